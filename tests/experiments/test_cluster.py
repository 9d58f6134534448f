"""The executor of Dask, against a real scheduler and two workers on the loopback."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec

import pytest

from experiments import cli

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("distributed") is None, reason="the extra `cluster` is not installed"),
    pytest.mark.skipif(os.name != "posix", reason="sends signals"),
]
TOY = "tests.experiments.toy:EXPERIMENT"
QUIET = ["--no-dashboard", "--host", "127.0.0.1"]


def start(*words, **more):
    return subprocess.Popen([sys.executable, "-m", *words], text=True, **more)


@pytest.fixture
def cluster(tmp_path):
    """A scheduler's file and two worker processes."""
    file = tmp_path / "scheduler.json"
    log = (tmp_path / "cluster.log").open("w")
    places = {"stdout": log, "stderr": log}
    processes = [
        start(
            "distributed.cli.dask_scheduler", *QUIET, "--port", "0", "--scheduler-file", str(file), **places
        )
    ]
    try:
        deadline = time.monotonic() + 120
        while not file.exists():
            assert processes[0].poll() is None, (tmp_path / "cluster.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        address = json.loads(file.read_text())["address"]
        folder = ["--local-directory", str(tmp_path)]
        for _ in range(2):
            worker = (
                "distributed.cli.dask_worker",
                address,
                *QUIET,
                "--nthreads",
                "1",
                "--no-nanny",
                *folder,
            )
            processes.append(start(*worker, **places))
        yield file, processes[1:]
    finally:
        for process in processes:
            process.kill()
            process.wait()
        log.close()


def lines_of(folder):
    return [line for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]


def rows(folder):
    records = json.loads((folder / "smoke.json").read_text())["records"]
    ignored = ("seconds", "provenance")
    return [{k: v for k, v in row.items() if k not in ignored} for row in records["points"]]


def test_a_worker_that_dies_is_made_up_for_by_the_others(cluster, tmp_path):
    file, workers = cluster
    out = tmp_path / "out"
    delays = [f"{1 + number / 100}" for number in range(10)]
    command = ["experiments", "run", TOY, "--preset", "smoke", "--out", str(out), "--delays", *delays]
    run = start(
        *command,
        "--executor",
        "dask",
        "--scheduler",
        str(file),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    deadline = time.monotonic() + 200
    while len(lines_of(out)) < 4:
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    workers[0].send_signal(signal.SIGKILL)
    said, _ = run.communicate(timeout=200)
    assert run.returncode == 0, said
    units = [json.dumps(json.loads(line)["unit"]) for line in lines_of(out)[1:]]
    assert len(units) == len(set(units))
    data = json.loads((out / "smoke.json").read_text())
    assert data["unfinished"] == []
    assert len(data["records"]["delays"]) == len(delays)
    here = tmp_path / "here"
    assert cli.main(["run", TOY, "--preset", "smoke", "--workers", "0", "--quiet", "--out", str(here)]) == 0
    assert rows(out) == rows(here)


def test_a_scheduler_that_is_not_there_is_an_error_that_says_so(tmp_path):
    command = ["experiments", "run", TOY, "--preset", "smoke", "--out", str(tmp_path), "--executor", "dask"]
    run = start(
        *command, "--scheduler", "tcp://127.0.0.1:9", stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    said, _ = run.communicate(timeout=120)
    assert run.returncode == 2
    assert "error: " in said
    assert "127.0.0.1:9" in said
