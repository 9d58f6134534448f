"""What is committed under figures/pruning: that it is sound, and what it says."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from experiments.collecting import config_from, units_of
from experiments.points import to_units
from experiments.pretrained import SIZES
from experiments.pruning.claims import FLOAT32_ACCURACY, claim_rows
from experiments.pruning.experiment import EXPERIMENT
from experiments.pruning.points import KINDS, grid
from experiments.pruning.records import curve_rows, gate_rows, onset_rows, role_rows, speed_rows
from experiments.reading import select
from experiments.store import canonical

FOLDER = Path(__file__).parents[2] / "figures" / "pruning"
NAMES = [name for name in ("quick", "minilm", "smollm", "paper") if (FOLDER / f"{name}.json").exists()]


def load(name):
    data = json.loads((FOLDER / f"{name}.json").read_text(), parse_constant=pytest.fail)
    data["records"] = {"matched": []} | data["records"]  # a run without gates may be older than this kind
    return data


def measured(name):
    return {model: SIZES[model] for model in EXPERIMENT.presets[name].models}


def test_quick_is_committed_and_complete():
    assert "quick" in NAMES
    assert load("quick")["unfinished"] == load("quick")["left_out"] == []


@pytest.mark.parametrize("name", NAMES)
def test_it_is_an_unchanged_preset_with_all_of_its_units(name):
    data = load(name)
    config = EXPERIMENT.presets[name]
    assert canonical(data["config"]) == canonical(asdict(config))
    assert config_from(EXPERIMENT, data["config"]) == config
    if not data["unfinished"]:
        # Every unit of the preset, whatever is installed here.
        wanted = [unit for unit, _ in to_units(KINDS, grid(config))]
        rows = data["records"]
        wanted_by_gates = {(row["model"], row["heads_left"]) for row in rows["gate_sets"]}
        assert {(row["model"], row["heads_left"]) for row in rows["matched"]} == wanted_by_gates
        assert len(rows["matched"]) == len(wanted_by_gates)
        assert sum(len(rows[kind]) for kind in KINDS if kind != "matched") == len(grid(config))
        assert len({canonical(unit) for unit in wanted}) == len(wanted)
        assert units_of(EXPERIMENT, config, rows) or EXPERIMENT.left_out(config)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_made_of_records_is_made_of_these(name):
    rows = load(name)["records"]
    assert rows["curves"] == curve_rows(rows["points"])
    assert rows["onsets"] == onset_rows(rows["points"])
    assert rows["gate_sets"] == gate_rows(rows["gates"], rows["heads"], rows["matched"], role_rows())
    assert rows["speedups"] == speed_rows(rows["timings"])
    assert rows["claims"] == claim_rows(rows)


@pytest.mark.parametrize("name", NAMES)
def test_curves_have_the_same_ends_and_every_tenth(name):
    points = load(name)["records"]["points"]
    for model, (num_layers, num_heads, *_) in measured(name).items():
        own = select(points, model=model)
        total = num_layers * num_heads
        assert {row["fraction_pruned"] for row in own} == {i / 10 for i in range(11)}
        for fraction, left in ((0.0, total), (1.0, 0)):
            ends = select(own, fraction_pruned=fraction)
            assert {row["heads_left"] for row in ends} == {left}
            assert len({row["loss"] for row in ends}) == 1
        assert select(own, fraction_pruned=1.0)[0]["loss"] > select(own, fraction_pruned=0.0)[0]["loss"] + 0.1
        orders = {(row["order"], row["seed"]) for row in own}
        assert {("importance", 0), ("confidence", 0), ("random", 2)} <= orders


@pytest.mark.parametrize("name", NAMES)
def test_importance_has_norm_one_in_every_layer(name):
    for model, (num_layers, num_heads, *_) in measured(name).items():
        rows = select(load(name)["records"]["heads"], model=model)
        found = np.array([row["importance"] for row in rows]).reshape(num_layers, num_heads)
        np.testing.assert_allclose((found**2).sum(1), 1, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_smaller_weights_gave_what_the_mask_gives(name):
    for row in load(name)["records"]["timings"]:
        # Where heads are missing SmolLM2's thirty layers make more of float32 rounding; in float64 nothing is left of
        # the difference (`tests/experiments/test_pruning_models.py`).
        deep = row["model"] == "smollm2-135m" and row["fraction_pruned"] > 0
        assert row["difference"] <= (3e-4 if deep else FLOAT32_ACCURACY) * row["scale"]
