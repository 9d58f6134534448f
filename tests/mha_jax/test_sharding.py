"""Heads and batch sharded over a mesh, by NamedSharding and by shard_map: one device's numbers, one all-reduce."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = ["dense jit", "dense shard_map", "blockwise jit", "blockwise shard_map"]


@functools.cache
def _run():
    """All cases in one process of its own, as the number of devices is fixed when JAX starts."""
    flags = "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-W", "error", "-m", "tests.mha_jax.sharded"]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", CASES)
def test_output_and_gradients_are_those_of_one_device(case):
    found = _run()[case]
    assert found["finite"]
    assert 0 < found["error"] < 2e-6  # not the same program


@pytest.mark.parametrize("case", CASES)
def test_everything_stays_sharded(case):
    output, x, *kernels = _run()[case]["sharding"]
    assert output == x == "P('data',)"
    assert kernels == ["P('heads',)"] * 4


@pytest.mark.parametrize("case", CASES)
def test_the_output_projection_is_the_only_communication(case):
    assert _run()[case]["collectives"] == ["all-reduce"]
