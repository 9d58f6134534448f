"""The full-scale experiment: runs in stretches, verdicts, figures, a run of seconds, and what is committed."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from experiments import checkpoints, cli
from experiments.collecting import config_from
from experiments.fullscale import PRESETS, table, units
from experiments.fullscale.config import FREE, GREEDY, JOINT, PLAIN, check
from experiments.fullscale.experiment import EXPERIMENT
from experiments.fullscale.records import CLAIMS, claim_rows, prediction_rows, summary
from experiments.points import from_unit, to_units
from experiments.reading import select
from experiments.store import canonical

QUICK = PRESETS["quick"]
FOLDER = Path(__file__).parents[2] / "figures" / "fullscale"
NAMES = [name for name in ("quick", "paper") if (FOLDER / f"{name}.json").exists()]


def committed(name):
    return json.loads((FOLDER / f"{name}.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize("name", PRESETS)
def test_runs_are_stretches_that_come_back_as_units(name):
    runs = units.chains(PRESETS[name])
    points = [point for run in runs for point in run]
    batches = to_units(units.KINDS, points)
    assert [point for _, members in batches for point in members] == points
    assert all(from_unit(units.KINDS, unit) == members for unit, members in batches)
    for run in runs:
        assert [point.stretch for point in run] == list(range(run[0].num_stretches))
        assert run[0].num_heads * run[0].head_dim in (*PRESETS[name].budgets, PRESETS[name].d_model)
    assert {run[0].trainer for run in runs} == {*PRESETS[name].trainers, FREE}


def test_predictions_are_those_written_down():
    """The table in the module's docstring."""
    for name, ceiling, widths, counts in (
        ("quick", 1081, [None, None, 81, 74], [None, None, 129, 132]),
        ("paper", 12008, [None, None, 338, 293], [None, None, 532, 522]),
    ):
        rows = prediction_rows(PRESETS[name])
        assert [row["num_heads"] for row in rows] == [1, 2, 4, 12]
        assert round(rows[0]["single_head_max_items"]) == ceiling
        rounded = [
            [None if row[key] is None else round(row[key]) for row in rows]
            for key in ("partition_total_key_dim", "parameter_count_total_key_dim")
        ]
        assert rounded == [widths, counts]


def test_the_cost_of_a_step_is_stated_as_written_down():
    run = units.chains(PRESETS["paper"])[0][0]
    operations, memory = units.step_cost(run)
    assert (run.trainer, run.num_heads * run.head_dim) == (JOINT, 576)
    assert operations == 10 * 1024**2 * 576 + 12 * 1024 * 384 * 576
    assert 0.65 < memory / 2**30 < 0.75


def test_a_stretch_goes_on_from_the_state_on_disk_and_without_it(tmp_path, monkeypatch):
    monkeypatch.setenv(checkpoints.VARIABLE, str(tmp_path / "one"))
    runs = {run[0].trainer: run for run in units.chains(PRESETS["smoke"])}
    for trainer in (JOINT, GREEDY):
        run = runs[trainer]
        records = [units.compute([point])[0] for point in run]
        monkeypatch.setenv(checkpoints.VARIABLE, str(tmp_path / trainer))
        [alone] = units.compute([run[-1]])
        monkeypatch.setenv(checkpoints.VARIABLE, str(tmp_path / "one"))
        for name in ("best_f1", "missed", "wrong", "steps", "exact", "dtype"):
            assert alone[name] == records[-1][name]
        assert alone["loss"] == pytest.approx(records[-1]["loss"], rel=1e-5)
        assert [record["dtype"] for record in records] == ["float32"] * (len(run) - 1) + ["float64"]
    assert len(list((tmp_path / "one").iterdir())) == len(runs[JOINT]) + len(runs[GREEDY])
    assert checkpoints.Checkpoint("fullscale", {"another": "key"}).load() is None


def test_a_diverged_run_is_a_record_that_says_so():
    point = units.chains(PRESETS["smoke"])[0][-1]
    weights = np.full((2, 16, 8), np.nan)
    state = {"query": weights, "key": weights, "loss": np.float64(1.0), "steps": np.int64(40)}
    record = units._judged(point, units.instance_of(point), state)
    assert record["status"] == "failed"
    assert record["best_f1"] is None


def _summary(f1=None, margin_bound=1e-5, gradient=0.01, loss=0.06):
    """Records where a run recovers from a budget on; one head up to its ceiling."""
    least = {JOINT: 84, GREEDY: 84, PLAIN: 108} | (f1 or {})
    config = replace(QUICK, trainers=(JOINT, PLAIN, GREEDY))
    points = []
    for run in units.chains(config):
        first, last = run[0], run[-1]
        if first.trainer == FREE:
            held = first.num_items <= least.get(FREE, 1081)
        else:
            wanted = least.get((first.trainer, first.embedding), least[first.trainer])
            held = first.num_heads * first.head_dim >= wanted
        for point in (first, last):
            free = first.trainer == FREE and point is last
            points.append(
                asdict(point)
                | dict.fromkeys(units._MADE)
                | {
                    "status": "ok",
                    "total_key_dim": first.num_heads * first.head_dim,
                    "steps": 1 + point.stretch,
                }
                | {"best_f1": 1.0 if held else 0.5, "exact": held, "missed": 0, "wrong": 3, "above_all": 1}
                | {"loss": 0.0 if held else loss, "dtype": "float64", "seconds": 0.1}
                | ({"gradient": gradient, "margin": 1e-3 if held else -0.01} if free else {})
                | ({"margin_bound": margin_bound} if free and not held else {})
            )
    return summary(config, {"points": points}) | {"points": points}


def test_everything_as_expected_is_held():
    rows = _summary()["claims"]
    assert [row["verdict"] for row in rows] == ["held"] * len(CLAIMS)


@pytest.mark.parametrize(
    ("claim", "changed"),
    [
        ("one head fails", {"f1": {FREE: 1200}}),
        ("one head suffices", {"f1": {FREE: 100}}),
        ("stalled", {"margin_bound": 1e-3}),
        ("stalled", {"gradient": 0.1}),
        ("stalled", {"loss": 0.001}),
        ("heads recover", {"f1": {GREEDY: 1000}}),
        ("width", {"f1": {JOINT: 132, GREEDY: 132, PLAIN: 132}}),
        ("hardening", {"f1": {JOINT: 132}}),
        ("trainers", {"f1": {GREEDY: 132}}),
        ("words", {"f1": {(JOINT, "gaussian"): 132}}),
    ],
)
def test_each_verdict_can_fail(claim, changed):
    verdicts = {row["claim"]: row["verdict"] for row in _summary(**changed)["claims"]}
    assert verdicts[claim] == "failed"


def test_an_unfinished_run_is_no_evidence():
    data = _summary()
    points = [row for row in data["points"] if row["stretch"] < row["num_stretches"] - 1]
    rows = summary(QUICK, {"points": points})
    assert rows["smallest"] == []
    assert {row["verdict"] for row in rows["claims"]} == {"not_run"}
    assert not any(row["complete"] for row in rows["runs"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trainers": ("adam",)}, "trainers: expected names among"),
        ({"embeddings": ("glove",)}, "embeddings: expected names among"),
        ({"num_sources": 801}, "num_sources: expected 4 to 800"),
        ({"num_steps": 2001}, "num_steps: expected a multiple of stretches"),
        ({"head_counts": (5,)}, "budgets: expected a multiple of 5 heads"),
        ({"greedy_steps": 5}, "greedy_steps: expected at least"),
        ({"seeds": 0}, "seeds: expected a positive"),
    ],
)
def test_mistakes_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        check(replace(QUICK, **changes))


def test_figures_tables_and_values_are_made_of_the_records(tmp_path):
    data = {"preset": "quick", "records": _summary()}
    names = {path.name for path in EXPERIMENT.plot(data, tmp_path, "quick")}
    assert {"quick-training.svg", "quick-budgets.png", "quick-one-head.svg"} <= names
    values = table.values(data)
    assert values["smallest.joint.gaussian.h4"] == "84"
    assert values["one-head.gaussian.m1800"] == "0.5000"
    assert values["ceiling"] == "1,081"
    assert "108" in table.BLOCKS["smallest"](data)


@pytest.mark.slow
def test_a_run_from_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(EXPERIMENT, "plots", {})
    monkeypatch.setenv(checkpoints.VARIABLE, str(tmp_path / "states"))
    command = ["run", "fullscale", "--preset", "smoke", "--workers", "0", "--out", str(tmp_path)]
    assert cli.main(command) == 0
    data = json.loads((tmp_path / "smoke.json").read_text(), parse_constant=pytest.fail)
    assert {row["trainer"] for row in data["records"]["runs"]} == {JOINT, PLAIN, GREEDY, FREE}
    assert all(row["complete"] for row in data["records"]["runs"])
    assert "Smallest budget reached" in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_what_is_committed_is_of_this_configuration_and_judged(name):
    data, config = committed(name), PRESETS[name]
    assert canonical(data["config"]) == canonical(asdict(config))
    assert config_from(EXPERIMENT, data["config"]) == config
    rows = data["records"]
    assert rows["claims"] == claim_rows(rows["runs"], rows["smallest"], rows["predictions"])
    finished = [run for run in rows["runs"] if run["complete"]]
    assert all(run["dtype"] == "float64" for run in finished)
    expected = {(run[0].trainer, run[0].num_items, run[0].embedding) for run in units.chains(config)}
    if not data["unfinished"]:
        assert {(r["trainer"], r["num_items"], r["embedding"]) for r in finished} == expected


@pytest.mark.skipif("quick" not in NAMES, reason="no records")
def test_what_the_records_say():
    """One head of full width fails above its ceiling where several heads of a smaller budget recover the graph."""
    rows = committed("quick")["records"]
    for run in select(rows["runs"], trainer=FREE, num_items=1800, complete=True):
        assert run["best_f1"] < 0.5
    recovered = [row for row in rows["smallest"] if row["smallest_recovered"] is not None]
    assert {row["num_heads"] for row in recovered} == {4, 12}
