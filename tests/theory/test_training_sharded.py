"""Joint training over a mesh: the same channels as on one device, by the collectives that it says."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from theory.training import JointOptions
from theory.training.sharded import AXES, arguments, make_mesh

SCRIPT = Path(__file__).with_name("mesh_cases.py")
REPOSITORY = Path(__file__).parents[2]


def start(devices, *words):
    """The script in a process of its own with so many CPU devices."""
    settings = {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "JAX_PLATFORMS": "cpu",
        "JAX_DEFAULT_MATMUL_PRECISION": "highest",
        "PYTHONPATH": str(REPOSITORY),
    }
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, str(SCRIPT), *words], env=os.environ | settings, **pipes)


def result(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err[-3000:]
    return json.loads(out[out.index("RESULT") + len("RESULT") :])


def assert_same(channels, expected):
    """A hundred steps of float32 whose sums were taken in another order."""
    assert len(channels) == len(expected)
    for channel, other in zip(channels, expected, strict=True):
        assert channel["steps"] == other["steps"]
        for name in ("query", "key", "threshold", "loss"):
            np.testing.assert_allclose(channel[name], other[name], rtol=2e-3, atol=2e-4, err_msg=name)


COLLECTIVES = {
    # a step; a look at the runs; the agreement of all devices to go on
    '{"data": 2, "head": 2, "row": 2}': [["all-reduce"], ["all-reduce"] * 3, ["all-reduce"] * 3],
    '{"data": 2}': [["all-reduce"]],
    '{"head": 4}': [["all-reduce"], ["all-reduce"] * 2],
    '{"row": 2}': [["all-reduce"], ["all-reduce"] * 2],
}
"""What crosses the mesh inside the loops. A step: best score and its device over heads, gradients over rows."""
SUM = COLLECTIVES | {'{"head": 4}': [["all-reduce"], ["all-reduce"]]}
"""Of a sum over heads: a sum of scores."""
SOFT = COLLECTIVES | {
    '{"data": 2, "head": 2, "row": 2}': [["all-reduce"], ["all-reduce"] * 3, ["all-reduce"] * 4],
    '{"head": 4}': [["all-reduce"], ["all-reduce"] * 3],
}
"""Of a soft maximum: besides the best and the sum of the rest over heads, the gradient of the logits' scale."""


def check(devices, shapes, kinds):
    found = result(start(devices, "one process", json.dumps([json.loads(shape) for shape in shapes]), *kinds))
    expected = found.pop("one device")
    for shape in shapes:
        for kind in kinds:
            assert_same(found[shape][kind]["channels"], expected[kind])
            counted = {"max": COLLECTIVES, "sum": SUM, "soft": SOFT}[kind][shape]
            assert found[shape][kind]["collectives"] == counted, (shape, kind)


def test_on_eight_devices_the_channels_are_those_of_one():
    check(8, ['{"data": 2, "head": 2, "row": 2}'], ["max", "soft"])


@pytest.mark.slow
def test_along_each_axis_alone_and_for_the_sum_over_heads():
    check(4, ['{"data": 2}', '{"head": 4}', '{"row": 2}'], ["max", "sum", "soft"])


@pytest.mark.slow
def test_two_processes_give_both_the_channels_of_one():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    shape = '{"data": 2, "head": 2}'
    processes = [start(2, "many", address, str(rank), shape) for rank in range(2)]
    found = [result(process) for process in processes]
    assert [f["devices"] for f in found] == [[2, 4], [2, 4]]
    assert found[0]["channels"] == found[1]["channels"]
    expected = result(start(1, "one process", "[]", "max"))["one device"]["max"]
    assert_same(found[0]["channels"], expected)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ({"tree": 1}, "expected axes of"),
        ({"data": 0}, "positive sizes"),
        ({"data": 3}, "as many places as the"),
    ],
)
def test_meshes_that_cannot_be_are_refused(shape, said):
    with pytest.raises(ValueError, match=f"mesh: .*{said}"):
        make_mesh(shape)


def test_sizes_that_an_axis_does_not_divide_are_refused():
    mesh = Mesh(np.array(8 * jax.devices()[:1]).reshape(2, 2, 2), AXES)
    x, a = np.zeros((2, 6, 3)), np.zeros((2, 6, 6), bool)
    for heads, seeds, items, said in (
        (3, 2, 6, "num_heads: expected a multiple of the mesh's head = 2, got 3"),
        (2, 3, 6, "seeds: expected a multiple of the mesh's data = 2, got 3"),
        (2, 2, 5, "num_items: expected a multiple of the mesh's row = 2, got 5"),
    ):
        sizes = {"head_dim": 2, "max_head_dim": 2}
        with pytest.raises(ValueError, match=said):
            arguments(
                x[:, :items],
                a[:, :items, :items],
                mesh=mesh,
                num_heads=heads,
                seeds=range(seeds),
                options=JointOptions(),
                **sizes,
            )
