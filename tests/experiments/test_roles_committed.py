"""What is committed under figures/roles: that it is sound, and what it says."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from experiments.points import from_unit
from experiments.pretrained import installed, sizes
from experiments.reading import wilson
from experiments.roles import units
from experiments.roles.claims import claim_rows
from experiments.roles.config import RELATIONS
from experiments.roles.dependency import DIRECTIONS
from experiments.roles.experiment import EXPERIMENT
from experiments.roles.records import role_rows
from experiments.store import canonical

FOLDER = Path(__file__).parents[2] / "figures" / "roles"
NAMES = [name for name in ("quick", "paper") if (FOLDER / f"{name}.json").exists()]


def load(name):
    return json.loads((FOLDER / f"{name}.json").read_text(), parse_constant=pytest.fail)


def test_quick_is_committed_and_complete():
    assert "quick" in NAMES
    data = load("quick")
    assert data["unfinished"] == data["left_out"] == []


@pytest.mark.parametrize("name", NAMES)
def test_it_is_an_unchanged_preset(name):
    data = load(name)
    assert canonical(data["config"]) == canonical(asdict(EXPERIMENT.presets[name]))
    assert data["command"] == f"python -m experiments run roles --preset {name}"


@pytest.mark.parametrize("name", NAMES)
def test_every_head_has_its_scores(name):
    rows = load(name)["records"]
    for kind in ("heads", "control_heads"):
        places = {(row["model"], row["layer"], row["head"]) for row in rows[kind]}
        expected = {
            (model, layer, head)
            for model in EXPERIMENT.presets[name].models
            for layer in range(sizes(model).num_layers)
            for head in range(sizes(model).num_heads)
        }
        assert places == expected
        assert len(rows[kind]) == len(expected)
        for row in rows[kind]:
            causal = sizes(row["model"]).causal
            shares = [row[s] for s in ("previous", "self", "first", "delimiter", "confidence")]
            assert all(0 <= share <= 1 + 1e-6 for share in shares)
            assert -1e-6 <= row["entropy"] <= row["uniform_entropy"] + 1e-6
            null = {score for score in units.SCORES if row[score] is None}
            assert null == ({"next", "separator"} if causal else {"induction", "previous_random", "sink"})
            assert row["num_tokens"] > 1000


@pytest.mark.parametrize("name", NAMES)
def test_dependencies_have_one_row_a_relation(name):
    rows = load(name)["records"]
    for kind in ("dependency", "controls"):
        found = [(row["model"], row["relation"]) for row in rows[kind]]
        assert sorted(found) == sorted((m, r) for m in EXPERIMENT.presets[name].models for r in RELATIONS)
        for row in rows[kind]:
            hits = round(row["accuracy"] * row["count"])
            assert row["accuracy"] == pytest.approx(hits / row["count"])
            assert (row["ci_low"], row["ci_high"]) == pytest.approx(wilson(hits, row["count"]))
            assert row["direction"] in DIRECTIONS
    words = {
        kind: {(r["model"], r["relation"]): r["count"] for r in rows[kind]}
        for kind in ("dependency", "controls")
    }
    assert words["dependency"] == words["controls"]


@pytest.mark.parametrize("name", NAMES)
def test_roles_and_verdicts_are_those_of_the_records(name):
    rows = load(name)["records"]
    assert rows["roles"] == role_rows(rows)
    assert rows["claims"] == claim_rows(rows)


@pytest.mark.parametrize("name", NAMES)
def test_maps_of_heads_show_their_distances(name):
    for row in load(name)["records"]["distances"]:
        distances = units.unpack(row["packed"])
        layers, heads = sizes(row["model"])[:2]
        assert len(distances) == layers * heads == len(row["x"]) == len(row["y"])
        assert 0 < distances.max() <= np.log(2)
        points = np.stack([row["x"], row["y"]], axis=1)
        between = np.linalg.norm(points[:, None] - points[None, :], axis=-1)
        stress = np.sqrt(((between - distances) ** 2).sum() / (distances**2).sum())
        assert stress == pytest.approx(row["stress"], abs=1e-3)  # half precision
        groups = {"minilm-l6": heads, "smollm2-135m": 3}[row["model"]]
        for key, value in units.near_and_far(distances, heads, groups).items():
            assert row[key] == (value if value is None else pytest.approx(value, rel=1e-3))


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_computed_again(name):
    if not installed("minilm-l6"):
        pytest.skip("minilm-l6 is not installed; run `make models`")
    rows = [row for row in load(name)["records"]["examples"] if row["model"] == "minilm-l6"]
    values = {key: [row[key] for row in rows] for key in ("role", "layer", "head")}
    points = from_unit(EXPERIMENT.kinds, {"kind": "examples", "model": "minilm-l6", "values": values})
    for row, again in zip(rows, units.compute(points), strict=True):
        assert again["tokens"] == row["tokens"]
        assert np.abs(np.subtract(again["weights"], row["weights"])).max() < 2e-3  # rounded to three digits
