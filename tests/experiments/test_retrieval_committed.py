"""What is committed under figures/retrieval: that it is sound, and what it says."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from experiments.collecting import config_from, units_of
from experiments.reading import select
from experiments.retrieval.claims import claim_rows
from experiments.retrieval.experiment import EXPERIMENT
from experiments.retrieval.units import compute, curves, predicted_nmse
from experiments.store import canonical
from theory.retrieval import unread_nmse

FOLDER = Path(__file__).parents[2] / "figures" / "retrieval"
NAMES = [name for name in ("quick", "targets", "paper") if (FOLDER / f"{name}.json").exists()]


def load(name):
    return json.loads((FOLDER / f"{name}.json").read_text(), parse_constant=pytest.fail)


def curves_of(name, **wanted):
    return select(load(name)["records"]["curves"], **wanted)


def test_quick_is_committed_and_complete():
    assert "quick" in NAMES
    assert load("quick")["unfinished"] == load("quick")["left_out"] == []


@pytest.mark.parametrize("name", NAMES)
def test_it_is_an_unchanged_preset_with_all_of_its_units(name):
    data = load(name)
    config = EXPERIMENT.presets[name]
    assert canonical(data["config"]) == canonical(asdict(config))
    assert config_from(EXPERIMENT, data["config"]) == config
    found = units_of(EXPERIMENT, config, data["records"])
    expected = len({model for _, model in curves(config)})
    assert len(found) == expected or data["unfinished"]


@pytest.mark.parametrize("name", NAMES)
def test_verdicts_are_those_of_the_records(name):
    rows = load(name)["records"]
    assert rows["claims"] == claim_rows(rows["curves"], rows["jumps"])


@pytest.mark.parametrize("name", NAMES)
def test_predictions_are_those_of_today(name):
    config = EXPERIMENT.presets[name]
    models = {canonical({"curve": curve} | asdict(model)): model for curve, model in curves(config)}
    for row in load(name)["records"]["curves"]:
        fields = {"curve": row["curve"], "learning_rate": 0.0, "seed": 0}
        key = canonical({k: row[k] for k in asdict(next(iter(models.values()))) if k in row} | fields)
        today = predicted_nmse(models[key])
        assert row["predicted_nmse"] == (None if today is None else pytest.approx(today, rel=1e-9))


def test_the_error_falls_a_hundredfold_at_four_heads():
    [row] = select(load("quick")["records"]["jumps"], curve="main", num_targets=4, length=128)
    assert row["best_ratio"] >= 100
    assert row["median_ratio"] >= 100


@pytest.mark.parametrize("name", NAMES)
def test_the_jump_moves_with_the_targets(name):
    rows = select(load(name)["records"]["jumps"], curve="main")
    assert len({row["num_targets"] for row in rows}) >= 2
    for row in rows:
        assert row["best_jump_at"] == row["median_jump_at"] == row["num_targets"]


@pytest.mark.parametrize("name", NAMES)
def test_no_best_run_is_worse_than_the_construction_below_d_heads(name):
    for row in curves_of(name, curve="main"):
        if row["num_heads"] < row["num_targets"]:
            # 2000 test samples: a standard error of some percent
            bound = unread_nmse(row["num_heads"], row["num_targets"], row["length"])
            assert row["best_nmse"] <= 1.08 * bound


@pytest.mark.parametrize("name", NAMES)
def test_every_head_of_the_best_runs_finds_its_token(name):
    rows = [row for row in curves_of(name, curve="main") if row["num_heads"] == row["num_targets"]]
    assert len(rows) >= 4
    assert min(row["matched"] for row in rows) > 0.99


@pytest.mark.parametrize("name", NAMES)
def test_copying_does_without_attention_and_heads_do_not(name):
    for row in curves_of(name, curve="copy"):
        assert row["best_nmse_uniform"] == row["best_nmse"]
    for row in curves_of(name, curve="heads"):
        assert row["best_nmse"] < 0.01
        assert row["best_nmse_uniform"] > 0.5


@pytest.mark.slow
def test_a_committed_batch_comes_out_about_the_same():
    """On the machine that wrote the records bit by bit; elsewhere rounding differs and grows in training."""
    config = EXPERIMENT.presets["quick"]
    units = units_of(EXPERIMENT, config, load("quick")["records"])
    [(points, records)] = [
        (EXPERIMENT.points(config), records)
        for unit, records in units
        if (unit["task"], unit["length"], unit["num_targets"], unit["num_heads"]) == ("max", 8, 2, 1)
        and (unit["encoder"], unit["num_layers"]) == ("linear", 1)
    ]
    place = 8, 2, 1, 1
    points = [p for p in points if (p.length, p.num_targets, p.num_heads, p.num_layers) == place]
    for found, expected in zip(compute(points), records, strict=True):
        assert found["nmse"] == pytest.approx(expected["nmse"], rel=0.1)
