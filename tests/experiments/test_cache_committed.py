"""What is committed under figures/cache: that it is sound, and what it says."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from experiments.cache.claims import claim_rows
from experiments.cache.experiment import EXPERIMENT
from experiments.cache.models import model_rows
from experiments.cache.plan import budgets, conversions, curves
from experiments.cache.units import compute
from experiments.collecting import config_from, units_of
from experiments.points import from_unit
from experiments.store import canonical

FOLDER = Path(__file__).parents[2] / "figures" / "cache"
NAMES = [name for name in ("quick", "paper") if (FOLDER / f"{name}.json").exists()]


def load(name):
    return json.loads((FOLDER / f"{name}.json").read_text(), parse_constant=pytest.fail)


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
    rows = data["records"]
    assert sum(len(own) for _, own in found) == len(rows["points"]) + len(rows["conversion_points"])
    assert len(rows["budgets"]) == len(budgets(config))
    assert len({row["num_kv_heads"] for row in rows["conversions"]}) == len(conversions(config))


@pytest.mark.parametrize("name", NAMES)
def test_verdicts_are_those_of_the_records(name):
    rows = load(name)["records"]
    assert rows["claims"] == claim_rows(rows)


@pytest.mark.slow  # widths of the real models take minutes
@pytest.mark.parametrize("name", NAMES)
def test_predictions_are_those_of_today(name):
    rows = load(name)["records"]
    today = {}
    for curve, trainers in curves(EXPERIMENT.presets[name]):
        key = (curve.design, curve.num_items, curve.num_heads, curve.num_kv_heads)
        today |= {
            (*key, t): (curve.predicted_cache_dims, curve.parameter_cache_dims) for t in (*trainers, "best")
        }
    assert len(today) == len(rows["transitions"])
    for row in rows["transitions"]:
        names = ("design", "num_items", "num_heads", "num_kv_heads", "trainer")
        width, law = today[tuple(row[name] for name in names)]
        for value, expected in (
            (row["predicted_cache_dims"], width),
            (row["parameter_count_cache_dims"], law),
        ):
            assert value == (None if expected == float("inf") else pytest.approx(expected, rel=1e-9))
    for row, own in zip(rows["models"], model_rows(), strict=True):
        assert row == {k: pytest.approx(v, rel=1e-9) if isinstance(v, float) else v for k, v in own.items()}


@pytest.mark.parametrize("name", NAMES)
def test_points_say_one_thing(name):
    for row in load(name)["records"]["points"]:
        assert row["status"] == "ok"
        assert row["exact_recovery"] == (row["smallest_edge"] > row["largest_non_edge"])
        assert row["exact_recovery"] == (row["held_edges"] == row["num_items"])
        # Any threshold above all non-edges is one of those that the best F1 is over.
        held = row["held_edges"]
        assert row["best_f1"] >= 2 * held / (held + row["num_items"]) - 1e-12
        assert row["best_f1"] >= row["micro_f1"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_batch_comes_out_again(name):
    data = load(name)
    found = units_of(EXPERIMENT, EXPERIMENT.presets[name], data["records"])
    unit, rows = next(
        (unit, own)
        for unit, own in found
        if unit.get("design") == "mqa" and unit["trainer"] == "alternate" and own[0]["exact_recovery"]
    )
    again = compute(from_unit(EXPERIMENT.kinds, unit))
    assert [row["exact_recovery"] for row in again] == [row["exact_recovery"] for row in rows]
