"""Compiled programs that are kept between processes."""

import json
import os
import subprocess
import sys

import jax
import pytest

from experiments import environment
from experiments.environment import CompiledPrograms


@pytest.fixture(autouse=True)
def settings(monkeypatch):
    told = {}
    monkeypatch.setattr(jax.config, "update", told.__setitem__)
    return told


def test_what_one_process_publishes_another_has(tmp_path, settings, monkeypatch):
    first = CompiledPrograms(tmp_path)
    first.start()
    monkeypatch.setattr(os, "getpid", lambda: 1)  # the other one
    second = CompiledPrograms(tmp_path)
    second.start()
    own = [tmp_path / name for name in os.listdir(tmp_path)]
    assert len(own) == 2
    mine = next(path for path in own if not path.name.endswith("-1"))
    (mine / "jit_a-cache").write_bytes(b"program")
    (mine / "jit_a-atime").write_bytes(b"")
    assert not (tmp_path / "jit_a-cache").exists()  # while it may be half written
    first.publish()
    first.publish()
    second.fetch()
    assert (tmp_path / "jit_a-cache").read_bytes() == b"program"
    [other] = tmp_path.glob("process-*-1")
    assert os.listdir(other) == ["jit_a-cache"]
    assert settings["jax_compilation_cache_dir"] == str(other)


def test_half_an_entry_of_a_killed_process_goes_with_it(tmp_path, monkeypatch):
    dead = subprocess.Popen(["true"])
    dead.wait()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: dead.pid)
        patch.setattr(environment, "_alive", lambda process: True)
        CompiledPrograms(tmp_path).start()
    [left] = tmp_path.iterdir()
    (left / "jit_a-cache").write_bytes(b"progr")
    CompiledPrograms(tmp_path).start()
    assert not left.exists()
    assert not (tmp_path / "jit_a-cache").exists()


def test_the_folder_is_of_the_user_and_can_be_another_or_none(tmp_path, monkeypatch):
    monkeypatch.setenv("MHA_JAX_CACHE", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert environment.cache_folder() is None
    for name, value, parent in (
        ("MHA_JAX_CACHE", tmp_path, tmp_path),
        ("MHA_JAX_CACHE", "~/kept", tmp_path / "kept"),
        ("XDG_CACHE_HOME", tmp_path / "x", tmp_path / "x" / "mha-jax" / "compiled"),
    ):
        monkeypatch.delenv("MHA_JAX_CACHE", raising=False)
        monkeypatch.setenv(name, str(value))
        folder = environment.cache_folder()
        assert folder is not None
        assert folder.parent == parent


def test_a_folder_that_cannot_be_written_is_no_reason_to_stop(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MHA_JAX_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(environment, "_programs", None)
    said = []
    assert environment.keep_programs(said.append) is None
    assert "compiled programs are not kept" in said[0]


@pytest.mark.slow
def test_a_second_process_compiles_next_to_nothing_and_gives_the_same(tmp_path):
    code = (
        "import json\nfrom experiments.computing import work\nfrom experiments.points import to_units\n"
        "from experiments.capacity.experiment import EXPERIMENT\nfrom experiments.capacity.plan import Curve\n"
        "points = Curve(24, 24, 6, 2, 'gaussian', 'permutation')"
        ".points(EXPERIMENT.presets['smoke'], 'greedy', 3)\n"
        "records, notes = work('capacity', {}, to_units(EXPERIMENT.kinds, points)[0][0])\n"
        "for record in records:\n    del record['seconds']\n"
        "print(json.dumps([records, notes['seconds']['compiling']]))\n"
    )

    def run():
        said = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"MHA_JAX_CACHE": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(said.stdout)

    first, cold = run()
    kept = {path.name for path in tmp_path.rglob("*-cache")}
    second, warm = run()
    assert first == second
    assert kept == {path.name for path in tmp_path.rglob("*-cache")}  # nothing was compiled
    assert warm < 0.7 * cold  # what is left is tracing
