"""The command line end to end on a run of seconds; resuming; what is refused."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from experiments import cli
from experiments.capacity import PRESETS, plan, records, resolve
from experiments.capacity.experiment import EXPERIMENT, Capacity
from experiments.capacity.plan import Curve
from experiments.computing import file_hashes
from theory.bounds import one_dimensional_f1_cap

TINY = (
    "--num-items 12 --d-model 4 --num-heads 2 --total-key-dim 4 --ceiling-d-model 3 --ceiling-seeds 3 --seeds 3 "
    "--max-steps 200 --restarts 1"
).split()


def _run(out, *more):
    return cli.main(["run", "capacity", "--preset", "smoke", "--workers", "0", "--out", str(out), *more])


def _records(path):
    """Records without their times, to be compared."""
    records = json.loads(path.read_text(), parse_constant=pytest.fail)["records"]
    for rows in records.values():
        for row in rows:
            row.pop("seconds", None)
            row.pop("provenance", None)
    return records


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("tiny run")
    assert _run(out, *TINY) == 0
    return out


def test_a_run_writes_records_and_figures_where_it_was_told_to(finished):
    names = {path.name for path in finished.iterdir()}
    assert {"smoke.json", "smoke-threshold.svg", "smoke-threshold.png", "smoke-head-sweep.svg"} <= names
    data = json.loads((finished / "smoke.json").read_text())
    assert data["config"]["num_items"] == [12]
    assert "--num-items 12" in data["command"]
    assert data["left_out"] == []


def test_records_are_what_was_asked_for(finished):
    records = _records(finished / "smoke.json")
    swept = {
        (p["trainer"], p["num_heads"], p["head_dim"]) for p in records["points"] if p["total_key_dim"] == 4
    }
    assert {(t, h, 4 // h) for t in ("greedy", "joint") for h in (1, 2, 4)} <= swept
    assert all(p["total_key_dim"] == p["num_heads"] * p["head_dim"] for p in records["points"])
    assert [row["trainer"] for row in records["transitions"]] == ["greedy", "joint", "plain", "best"]
    assert {row["seed"] for row in records["ceiling_points"]} == {0, 1, 2}
    assert len(records["ceilings"]) == 1
    seeds = {}
    for p in records["points"]:
        seeds.setdefault((p["trainer"], p["num_heads"], p["head_dim"]), []).append(p["seed"])
    assert all(found == [0, 1, 2] for found in seeds.values())


def test_no_one_dimensional_channel_beats_its_theorem(finished):
    points = [p for p in _records(finished / "smoke.json")["points"] if p["head_dim"] == 1]
    assert {p["trainer"] for p in points} == {"greedy", "joint"}
    for point in points:
        assert 0 < point["best_f1"] <= one_dimensional_f1_cap(point["num_heads"], point["num_edges"])


@pytest.mark.parametrize(
    ("counts", "estimate", "low"),
    [({1: 0, 2: 8}, 16.0, 16.0), ({1: 0, 2: 2, 3: 8}, None, 16.0)],
)
def test_no_threshold_lies_between_one_dimension_a_head_and_two(counts, estimate, low):
    """At 8 heads and 96 edges a theorem excludes d_k = 1, so that what is interpolated below d_k = 2 is not."""
    points = [
        {"head_dim": k, "seed": seed, "status": "ok", "best_f1": float(seed < number)}
        for k, number in counts.items()
        for seed in range(8)
    ]
    curve = Curve(96, 96, 16, 8, "gaussian", "permutation")
    for fit in (records.fit_own, records._fit_best):
        found = fit(points, curve, plan.CRITERIA[""])
        assert found.ci_low is not None
        assert found.ci_low >= low
        assert found.estimate is not None
        assert found.estimate == estimate if estimate else low < found.estimate < 24
    free = Curve(96, 96, 16, 8, "gaussian", "random")  # not a matching: a head may hold a star
    below = records.fit_own(points, free, plan.CRITERIA[""]).ci_low
    assert below is not None
    assert below < low


def test_a_second_run_computes_nothing_and_gives_the_same(finished, monkeypatch):
    monkeypatch.setattr(Capacity, "compute", lambda self, points: pytest.fail(f"computed {points} again"))
    before = (finished / "smoke.json").read_bytes()
    assert _run(finished, *TINY) == 0
    assert (finished / "smoke.json").read_bytes() == before


def test_a_run_that_lost_its_end_computes_that_alone(finished, tmp_path, monkeypatch):
    [store] = finished.glob("*.jsonl")
    lines = store.read_bytes().splitlines(keepends=True)
    (tmp_path / store.name).write_bytes(b"".join(lines[:-2]) + lines[-2][:30])
    computed = []
    real = Capacity.compute
    monkeypatch.setattr(
        Capacity, "compute", lambda self, points: computed.append(points) or real(self, points)
    )
    assert _run(tmp_path, *TINY) == 0
    assert len(computed) == 2
    assert _records(tmp_path / "smoke.json") == _records(finished / "smoke.json")


def test_a_folder_holds_one_run(finished, capsys, monkeypatch):
    monkeypatch.setattr(Capacity, "compute", lambda self, points: pytest.fail("computed"))
    before = (finished / "smoke.json").read_bytes()
    assert _run(finished, *TINY, "--num-heads", "3") == 2
    assert "expected a folder of the same run" in capsys.readouterr().err
    assert (finished / "smoke.json").read_bytes() == before


def test_a_file_that_changed_is_another_run(tmp_path):
    path = tmp_path / "edges.csv"
    config = resolve(PRESETS["quick"], set())
    assert file_hashes(EXPERIMENT, config) == {}
    path.write_text("0,1\n")
    with_file = replace(config, graph=str(path))
    before = file_hashes(EXPERIMENT, with_file)
    path.write_text("1,0\n")
    assert list(before) == [str(path)]
    assert file_hashes(EXPERIMENT, with_file) != before


def test_verify_compares_with_a_fresh_computation(finished, tmp_path, capsys):
    arguments = ["verify", "capacity", "--preset", "smoke", "--batches", "1", "--out"]
    assert cli.main([*arguments, str(finished)]) == 0
    data = json.loads((finished / "smoke.json").read_text())
    for point in data["records"]["points"] + data["records"]["ceiling_points"]:
        point["seed"], point["margin"], point["loss"] = point["seed"], 0.5, 0.5
    for made in data["provenance"].values():
        made["environment"]["processor"] = "Abacus"
    (tmp_path / "smoke.json").write_text(json.dumps(data))
    assert cli.main([*arguments, str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "DIFFERENT" in said
    assert " against 0.5" in said
    assert "made elsewhere (processor Abacus, here " in said


def test_status_counts_batches_and_damage(finished, tmp_path, capsys):
    [store] = finished.glob("*.jsonl")
    (tmp_path / store.name).write_bytes(store.read_bytes() + b'{"unit": {"torn')
    assert cli.main(["status", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    batches = len(store.read_bytes().splitlines()) - 1
    assert f"{batches} finished batches" in said
    assert f"line {batches + 2}: cannot be read" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--num-items", "5", "7"], "d_model"),
        (["--num-heads", "0"], "num_heads"),
        (["--graph", "tree"], "graph"),
        (["--graph", "words", "--num-items", "13"], "num_items"),
        (["--embedding", "missing.npy"], "missing.npy"),
        (["--embedding", "orthonormal"], "num_items"),
        (["--degree", "2"], "degree"),
        (["--arms", "gaussian:permutation:8"], "arms"),
        (["--learning-rate", "-1"], "learning_rate"),
        (["--preset", "huge"], "preset"),
    ],
)
def test_a_bad_request_says_what_is_wrong_before_any_computing(words, said, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Capacity, "compute", lambda self, points: pytest.fail("computed"))
    assert cli.main(["run", "capacity", "--workers", "0", "--out", str(tmp_path), *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert said in error
    assert list(tmp_path.iterdir()) == []


def test_naming_a_size_asks_for_that_sweep_alone():
    quick = PRESETS["quick"]
    assert resolve(quick, set()) == quick
    sized = resolve(quick, {"num_items"})
    assert (sized.total_key_dim, sized.ceiling_d_model, sized.arms) == ((), (), ())
    assert sized.num_heads == quick.num_heads
    assert resolve(quick, {"graph", "total_key_dim"}).total_key_dim == quick.total_key_dim


def test_naming_a_budget_asks_for_every_head_count_that_divides_it():
    config = resolve(PRESETS["quick"], {"total_key_dim"})
    assert config.num_heads == ()
    assert [curve.num_heads for total, curve in plan.sweeps(config) if total == 24] == [
        1,
        2,
        3,
        4,
        6,
        8,
        12,
        24,
    ]


def test_files_say_how_many_items(tmp_path):
    import numpy as np

    np.save(tmp_path / "mine.npy", np.random.default_rng(0).normal(size=(11, 5)))
    (tmp_path / "edges.csv").write_text("source,target\n0,3\n4,1\n10,2\n")
    config = replace(
        PRESETS["quick"], embedding=str(tmp_path / "mine.npy"), graph=str(tmp_path / "edges.csv")
    )
    config = resolve(config, {"embedding", "graph"})
    assert config.sizes() == [(11, 5)]
    assert config.num_edges(config.graph, 11) == 3
    config = replace(PRESETS["quick"], graph=str(tmp_path / "edges.csv"))
    assert resolve(config, {"graph"}).sizes() == [(11, 16)]


def test_a_search_begins_at_the_prediction_of_its_trainer():
    curve = Curve(96, 96, 16, 4, "gaussian", "permutation")
    asked = []

    def ask(points):
        asked.append((points[0].trainer, points[0].head_dim))
        success = points[0].head_dim >= 5
        return [{"status": "ok", "best_f1": float(success)}] * 8

    for trainer in ("greedy", "joint", "plain"):
        plan.search(PRESETS["quick"], curve, trainer, ask)
    first = dict(reversed(asked))
    for trainer, head_dim in first.items():
        assert abs(head_dim - curve.predicted(trainer) / 4) <= 0.5
    assert first["plain"] > first["joint"]
    assert len(asked) <= 3 * 16 / 3


def test_a_diverged_run_counts_as_one_that_did_not_succeed():
    failed = {"status": "failed", "best_f1": None, "exact_recovery": None}
    assert plan.successes([failed, {"status": "ok", "best_f1": 1.0}], plan.CRITERIA[""]) == 1


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
def test_killed_three_times_the_same_command_gives_the_same_records_and_none_twice(tmp_path):
    command = [
        sys.executable,
        "-m",
        "experiments",
        "run",
        "capacity",
        "--preset",
        "smoke",
        "--workers",
        "2",
        "--out",
    ]

    def finished_batches():
        return sum(len(path.read_bytes().splitlines()) - 1 for path in (tmp_path / "killed").glob("*.jsonl"))

    subprocess.run([*command, str(tmp_path / "whole")], check=True, stdout=subprocess.DEVNULL)
    for batches in (1, 5, 9):
        process = subprocess.Popen([*command, str(tmp_path / "killed")], stdout=subprocess.DEVNULL)
        while process.poll() is None and finished_batches() < batches:
            time.sleep(0.02)
        assert process.poll() is None, "finished before it could be killed"
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run([*command, str(tmp_path / "killed")], check=True, stdout=subprocess.DEVNULL)
    assert _records(tmp_path / "killed" / "smoke.json") == _records(tmp_path / "whole" / "smoke.json")
    [store] = (tmp_path / "killed").glob("*.jsonl")
    units = [
        json.dumps(json.loads(line)["unit"], sort_keys=True) for line in store.read_text().splitlines()[1:]
    ]
    assert len(units) == len(set(units))
