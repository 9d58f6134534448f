"""`run --mesh`: what is refused, and a run of two processes on the loopback."""

import json
import os
import re
import socket
import subprocess
import sys

import pytest

from experiments import cli, mesh

FIELDS = (
    "--num-items 12 --d-model 4 --num-heads 2 --total-key-dim 4 --ceiling-d-model 3 --ceiling-seeds 3 --seeds 2 "
    "--max-steps 100 --trainers joint --total-key-dim"
).split()


def test_a_mesh_is_read_and_written():
    assert mesh.parse_mesh("data=2,head=4") == {"data": 2, "head": 4}
    for text in ("", "data", "data=x", "data=2,data=2", "data=-1"):
        with pytest.raises(ValueError, match="expected axes with sizes"):
            mesh.parse_mesh(text)
    assert mesh.mesh_text(mesh.make_mesh({})) == "data=1"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mesh", "data=7", "--seeds", "7"], "mesh: expected as many places as the"),
        (["--mesh", "data=1", "--executor", "dask"], "executor: expected none beside --mesh"),
        (["--mesh", "data=1", "--workers", "2"], "executor: expected none beside --mesh"),
        (["--coordinator", "127.0.0.1:1"], "mesh: expected the mesh that the processes"),
        (["--mesh", "data=1", "--num-processes", "2"], "num_processes: expected --coordinator HOST:PORT"),
        (["--process-id", "0"], "process_id: expected --coordinator HOST:PORT"),
        (
            ["--mesh", "data=1", "--coordinator", "auto", "--process-id", "0"],
            "got auto, which finds it out",
        ),
        (["--scheduler", "tcp://127.0.0.1:9"], "scheduler: expected --executor dask"),
        (
            ["--scheduler", "scheduler.json", "--executor", "processes"],
            "scheduler: expected --executor dask",
        ),
    ],
)
def test_what_does_not_go_with_a_mesh_is_refused(words, said, tmp_path, capsys):
    assert cli.main(["run", "capacity", "--preset", "smoke", "--out", str(tmp_path), *words]) == 2
    assert said in capsys.readouterr().err
    assert mesh.current_mesh() is None


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        (
            "head=2",
            r"joint: 1 heads at D_K = 4, .*; num_heads: expected a multiple of the mesh's head = 2, got 1",
        ),
        ("data=3", r"seeds: expected a multiple of the mesh's data = 3, got 2"),
        ("row=5", r"num_items: expected a multiple of the mesh's row = 5, got 12"),
    ],
)
def test_a_mesh_that_a_part_does_not_fit_is_refused_before_anything_runs(axes, said, tmp_path, capsys):
    fields = [*FIELDS[:-1], "--mesh", axes, "--out", str(tmp_path)]
    assert cli.main(["run", "capacity", "--preset", "smoke", *fields]) == 2
    assert re.search(said, capsys.readouterr().err)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_two_processes_are_one_run_whose_records_say_so(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "experiments", "run", "capacity", "--preset", "smoke", *FIELDS]
    shared = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    on_mesh = ["--mesh", "data=2,head=2", "--coordinator", address, "--num-processes", "2"]
    processes = [
        subprocess.Popen(
            [*command, *on_mesh, "--process-id", str(rank), "--out", str(tmp_path / "mesh")],
            env=shared,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    for process in processes:
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, said
    assert cli.main([*command[3:], "--workers", "0", "--quiet", "--out", str(tmp_path / "one")]) == 0
    found = json.loads((tmp_path / "mesh" / "smoke.json").read_text())
    expected = json.loads((tmp_path / "one" / "smoke.json").read_text())
    made = {(p["environment"]["mesh"], p["environment"]["processes"]) for p in found["provenance"].values()}
    assert made == {("data=2,head=2", 2)}
    points = found["records"]["points"]
    assert len(points) == len(expected["records"]["points"])
    for point, other in zip(points, expected["records"]["points"], strict=True):
        assert (point["head_dim"], point["seed"], point["steps"]) == (
            other["head_dim"],
            other["seed"],
            other["steps"],
        )
        assert point["loss"] == pytest.approx(other["loss"], rel=1e-2)
