"""What can go wrong with a run: nothing finished is lost, nothing is done twice, and the message says what to do.

Damaged lines, changed configurations, older schemas and full disks are also in `test_store` and `test_engine`.
"""

import errno
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments import cli, commands, files
from experiments.computing import Answer
from experiments.runner import Runner
from experiments.store import Store
from experiments.workers import InProcess
from tests.experiments import toy

TOY = "tests.experiments.toy:EXPERIMENT"
COMMAND = [sys.executable, "-m", "experiments", "run", TOY, "--preset", "smoke", "--out"]
pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends signals")


def run(out, *more):
    return cli.main(["run", TOY, "--preset", "smoke", "--workers", "0", "--quiet", "--out", str(out), *more])


def lines_of(folder):
    return [line for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]


def records(folder):
    rows = json.loads((folder / "smoke.json").read_text())["records"]
    ignored = ("seconds", "provenance")
    return {
        k: [{n: v for n, v in row.items() if n not in ignored} for row in rows[k]]
        for k in ("points", "widths")
    }


def units(folder):
    return [json.dumps(json.loads(line)["unit"]) for line in lines_of(folder)[1:]]


def start(out, *more):
    return subprocess.Popen(
        [*COMMAND, str(out), *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for_lines(process, out, number):
    deadline = time.monotonic() + 120
    while len(lines_of(out)) < number:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    assert run(out) == 0
    return out


def test_killed_in_the_middle_of_a_batch_the_run_goes_on_from_what_was_finished(tmp_path, whole):
    process = start(tmp_path, "--workers", "0", "--delays", "0.001", "60")
    wait_for_lines(process, tmp_path, 3)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before = lines_of(tmp_path)
    assert len(before) >= 3
    # The same run, but for the batch that takes a minute, which is given an end.
    path = next(tmp_path.glob("*.jsonl"))
    lines = [line.replace("60.0", "0.002") for line in before]
    renamed = files.places("toy", "smoke", json.loads(lines[0])["config"], True, tmp_path)[0]
    path.unlink()
    renamed.write_text("".join(line + "\n" for line in lines))
    assert run(tmp_path, "--delays", "0.001", "0.002") == 0
    assert lines_of(tmp_path)[: len(before)] == lines
    assert len(units(tmp_path)) == len(set(units(tmp_path)))
    assert records(tmp_path) == records(whole)


def test_an_interrupt_does_not_wait_for_a_batch_that_is_computed_in_the_process(tmp_path):
    process = start(tmp_path, "--workers", "0", "--delays", "0.001", "60")
    wait_for_lines(process, tmp_path, 3)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=50)
    assert time.monotonic() - started < 30
    assert process.returncode == commands.INTERRUPTED
    assert "interrupted; finished batches are in" in out
    assert "Traceback" not in out + err
    assert all("unit" in json.loads(line) for line in lines_of(tmp_path)[1:])


def test_an_interrupt_while_modules_are_imported_shows_no_traceback(monkeypatch, capsys):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "experiments.cli", SimpleNamespace(main=interrupted))
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as left:
        runpy.run_module("experiments", run_name="__main__")
    assert left.value.code == commands.INTERRUPTED
    assert capsys.readouterr().err == "interrupted\n"


def test_an_error_beside_a_batch_that_is_computed_leaves_with_its_status(monkeypatch, tmp_path):
    """The interpreter must not end around a thread that is inside a compiled program."""
    begun, go_on, left = threading.Event(), threading.Event(), []

    def compute(unit):
        begun.set()
        assert go_on.wait(20)
        return Answer([], {})

    def main(_):
        def fails():
            assert begun.wait(20)
            raise RuntimeError("a mistake")

        with Store(tmp_path / "run.jsonl", {}) as store:
            runner = Runner(store, InProcess(), compute, width=2)
            tasks = [lambda: runner.records({"n": 1}), fails]
            with pytest.raises(RuntimeError, match="a mistake"):
                runner.run(tasks)
        return 2

    monkeypatch.setitem(sys.modules, "experiments.cli", SimpleNamespace(main=main))
    monkeypatch.setattr(os, "_exit", left.append)
    with pytest.raises(SystemExit):
        runpy.run_module("experiments", run_name="__main__")
    go_on.set()
    assert left == [2]


def test_a_disk_that_fills_up_stops_the_run_and_space_lets_it_go_on(tmp_path, whole, monkeypatch, capsys):
    real = os.write
    left = [len("\n".join(lines_of(whole)[:3]))]

    def write(fd, content):
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = real(fd, bytes(content)[: left[0]])
        left[0] -= written
        return written

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        assert run(tmp_path) == 2
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert "the same command goes on from there" in said
    before = lines_of(tmp_path)
    assert 1 < len(before) < len(lines_of(whole))
    assert run(tmp_path) == 0
    assert lines_of(tmp_path)[: len(before)] == before
    assert len(units(tmp_path)) == len(set(units(tmp_path)))
    assert records(tmp_path) == records(whole)


def test_a_disk_that_is_full_for_the_final_file_alone_says_what_is_kept(tmp_path, whole, monkeypatch, capsys):
    path = next(whole.glob("*.jsonl"))
    (tmp_path / path.name).write_text(path.read_text())

    def full(path, value):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_json", full)
        assert run(tmp_path) == 2
    assert re.search(
        r"No space left on device; what is finished is kept in .*jsonl.*smoke\.json", capsys.readouterr().err
    )
    assert run(tmp_path) == 0


@pytest.mark.parametrize("out", ["file", "file/below", "locked"])
def test_a_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch, capsys, out):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine")
    Path("locked").mkdir()
    monkeypatch.setattr(files.os, "access", lambda path, mode: Path(path).name != "locked")  # also for root
    assert run(out) == 2
    assert f"out: expected a folder that can be written, got {out}" in capsys.readouterr().err
    assert Path("file").read_text() == "mine"


def test_two_runs_on_one_output_refuse_each_other(tmp_path, whole, capsys):
    path = next(whole.glob("*.jsonl"))
    header = {k: v for k, v in json.loads(path.read_text().splitlines()[0]).items() if k != "schema"}
    with Store(path, header):
        assert run(whole) == 2
    assert f"another process is writing {path}" in capsys.readouterr().err
    assert run(whole) == 0


def test_a_folder_is_of_one_run_also_before_and_after_it_is_finished(tmp_path, whole, monkeypatch, capsys):
    path = next(whole.glob("*.jsonl"))
    lines = path.read_text().splitlines(keepends=True)
    killed = tmp_path / "killed"
    killed.mkdir()
    (killed / path.name).write_text("".join(lines[:2]))
    for change in (["--rates", "0.4"], ["--preset", "quick"]):
        assert run(killed, *change) == 2
        assert f"out: expected a folder of the same run, got {killed / path.name}" in capsys.readouterr().err
    assert [entry.name for entry in killed.glob("*.json*")] == [path.name]
    (killed / path.name).write_text(lines[0])  # begun by mistake: nothing is finished
    header = {k: v for k, v in json.loads(lines[0]).items() if k != "schema"}
    with Store(killed / path.name, header):
        assert run(killed, "--rates", "0.4") == 2
    compute, late = toy.Toy.compute, tmp_path / "late"

    def another_comes(self, points):
        (late / "smoke.json").write_text((whole / "smoke.json").read_text())
        return compute(self, points)

    with monkeypatch.context() as patch:
        patch.setattr(toy.Toy, "compute", another_comes)
        assert run(late, "--rates", "0.4") == 2
    assert (late / "smoke.json").read_text() == (whole / "smoke.json").read_text()
    (late / "smoke.json").unlink()
    assert run(late, "--rates", "0.4") == 0


@pytest.mark.parametrize("content", [b'{"config": {"wid', b"[]", b"\xff\x00"])
def test_a_damaged_final_file_is_named_and_collect_rebuilds_it(tmp_path, whole, capsys, content):
    path = next(whole.glob("*.jsonl"))
    (tmp_path / path.name).write_text(path.read_text())
    final = tmp_path / "smoke.json"
    final.write_bytes(content)
    for command in (["run", TOY, "--workers", "0"], ["plot", TOY], ["verify", TOY]):
        assert cli.main([*command, "--preset", "smoke", "--out", str(tmp_path)]) == 2
        said = capsys.readouterr().err
        assert f"{final}: expected the records of a finished run, got a damaged file" in said
        assert "`collect` writes it again" in said
    assert cli.main(["collect", TOY, "--preset", "smoke", "--out", str(tmp_path)]) == 0
    assert records(tmp_path) == records(whole)


def test_a_changed_configuration_is_a_run_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["run", TOY, "--preset", "smoke", "--workers", "0", "--quiet"]
    assert cli.main(arguments) == 0
    assert cli.main([*arguments, "--rates", "0.4"]) == 0
    assert len(list((tmp_path / "runs" / "toy").glob("*.jsonl"))) == 2
    assert len(list((tmp_path / "runs" / "toy").glob("*/smoke.json"))) == 2


def test_an_older_schema_is_refused_by_name(tmp_path, whole, capsys):
    path = next(whole.glob("*.jsonl"))
    (tmp_path / path.name).write_text(path.read_text().replace('"schema":1', '"schema":0', 1))
    assert run(tmp_path) == 2
    assert "expected schema 1, got 0, written by another version" in capsys.readouterr().err
    data = json.loads((whole / "smoke.json").read_text()) | {"schema": 0}
    (tmp_path / "smoke.json").write_text(json.dumps(data))
    for command in ("plot", "verify"):
        assert cli.main([command, TOY, "--preset", "smoke", "--out", str(tmp_path)]) == 2
        assert "expected schema 1, got 0" in capsys.readouterr().err


@pytest.mark.parametrize("error", [RuntimeError, ValueError, OSError, KeyError])
def test_an_error_of_a_batch_keeps_the_others(tmp_path, whole, monkeypatch, capsys, error):
    compute = toy.Toy.compute

    def fails(self, points):
        if getattr(points[0], "steps", 0) == 4:
            raise error("a mistake")
        return compute(self, points)

    with monkeypatch.context() as patch:
        patch.setattr(toy.Toy, "compute", fails)
        assert run(tmp_path) == 2
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "in fails" in said  # where it was raised
    assert re.search(r'error: batch {.*"steps":4.*}: ' + error.__name__ + ": .*a mistake", said)
    assert len(lines_of(tmp_path)) == 3
    assert run(tmp_path) == 0
    assert records(tmp_path) == records(whole)


@pytest.mark.slow
def test_an_interrupt_ends_the_workers_too(tmp_path):
    process = start(tmp_path, "--workers", "2", "--delays", "0.001", "60")
    wait_for_lines(process, tmp_path, 3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)  # its pipes close only when its workers are gone
    assert process.returncode == commands.INTERRUPTED
    assert "leaked" not in err  # semaphores of the workers
    assert "Traceback" not in out + err


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
def test_a_worker_that_is_killed_costs_nothing_but_time(tmp_path, whole):
    process = start(tmp_path, "--workers", "2", "--delays", "0.001", "4")
    wait_for_lines(process, tmp_path, 2)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    workers = [pid for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(int(workers[0]), signal.SIGKILL)
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert len(units(tmp_path)) == len(set(units(tmp_path)))
    assert records(tmp_path) == records(whole)
