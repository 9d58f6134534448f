"""What is committed under figures/rank: that it is sound, and what it says."""

import json
from dataclasses import asdict
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from experiments.collecting import config_from, units_of
from experiments.points import from_unit, to_units
from experiments.rank.experiment import EXPERIMENT
from experiments.rank.maps import MODEL
from experiments.rank.records import summary
from experiments.rank.units import KINDS, compute, floor_kl, grid, pattern_of
from experiments.reading import select
from experiments.store import canonical
from theory.rank import circle_kl, circle_scale, mean_kl, required_head_dim, truncation

FOLDER = Path(__file__).parents[2] / "figures" / "rank"
NAMES = [name for name in ("quick", "paper") if (FOLDER / f"{name}.json").exists()]


def load(name):
    return json.loads((FOLDER / f"{name}.json").read_text(), parse_constant=pytest.fail)


def points_of(name, **wanted):
    return select(load(name)["records"]["points"], **wanted)


def test_quick_is_committed_and_complete():
    assert "quick" in NAMES
    assert load("quick")["unfinished"] == load("quick")["left_out"] == []


@pytest.mark.parametrize("name", NAMES)
def test_it_is_an_unchanged_preset_with_all_of_its_units(name, monkeypatch):
    monkeypatch.setattr("experiments.rank.maps.why_left_out", lambda: None)
    data = load(name)
    config = EXPERIMENT.presets[name]
    assert canonical(data["config"]) == canonical(asdict(config))
    assert config_from(EXPERIMENT, data["config"]) == config
    found = units_of(EXPERIMENT, config, data["records"])
    assert len(found) == len(to_units(KINDS, grid(config))) or data["unfinished"]


def batches_of(rows):
    return {name: rows[name] for name in KINDS}


@pytest.mark.parametrize("name", NAMES)
def test_curves_limits_and_verdicts_are_those_of_the_points(name):
    """And change with them: the same check goes red for points of which one kind of number is another."""
    rows = load(name)["records"]
    made = summary(batches_of(rows))
    assert {key: rows[key] for key in made} == made
    assert set(made) | set(KINDS) == set(rows)

    def doctored(kind, **changes):
        own = [{**row, **{key: change(row[key]) for key, change in changes.items()}} for row in rows[kind]]
        again = summary(batches_of(rows) | {kind: own})
        return {key for key in made if again[key] != made[key]}

    assert doctored("points", kl=lambda x: x / 2) == {"curves", "claims"}
    assert doctored("points", max_logit=lambda x: 2 * x) == {"curves"}
    assert doctored("points", uniform_kl=lambda x: 2 * x) == {"curves", "claims"}
    assert "limits" in doctored("circle", share_right=lambda x: 0.5)
    assert doctored("spectra", weights_rank=lambda x: x - 1) == {"claims"}


@pytest.mark.parametrize("name", NAMES)
def test_a_point_is_the_best_of_its_starts_and_beside_its_own_constructions(name):
    for row in load(name)["records"]["points"]:
        assert row["kl"] == min(x for x in row["starts"] if x is not None)
        assert len(row["starts"]) == len(row["steps_taken"]) == row["num_starts"]
        assert max(row["steps_taken"]) <= row["num_steps"]
        assert (row["truncated_kl"] is None) == (row["pattern"] == "permutation")


@pytest.mark.parametrize("name", NAMES)
def test_no_head_is_reported_above_a_known_construction(name):
    rows = load(name)["records"]["curves"]
    for row in rows:
        assert row["largest_kl"] <= row["largest_search_kl"]
        assert row["median_kl"] <= row["median_uniform_kl"] + 1e-12
        if row["bound"] is None and row["median_truncated_kl"] is not None:
            assert row["median_kl"] <= row["median_truncated_kl"] + 1e-12
        if row["pattern"] == "permutation" and row["head_dim"] >= 2:
            assert row["largest_kl"] <= (1e-10 if row["bound"] is None else row["circle_kl"]) * (1 + 1e-9)
            if row["head_dim"] == row["n"] - 1:
                assert row["largest_kl"] <= (row["floor_kl"] or 1e-10) * (1 + 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_real_maps_have_curves_with_and_without_a_bound(name):
    config = EXPERIMENT.presets[name]
    for n in config.real_lengths:
        rows = select(load(name)["records"]["curves"], pattern=MODEL, n=n)
        assert {row["bound"] for row in rows} == {None, *config.bounds}
        sizes = {k for k in config.real_head_dims if k < n}
        assert all({r["head_dim"] for r in select(rows, bound=b)} == sizes for b in (None, *config.bounds))


@pytest.mark.parametrize("name", NAMES)
def test_curves_fall_with_size_and_with_the_bound(name):
    """A bounded head is one without a bound, a small one is a large one with zeros: so are the least divergences."""
    rows = load(name)["records"]["curves"]
    pairs = 0
    for row in rows:
        for other in select(rows, pattern=row["pattern"], n=row["n"]):
            if other["head_dim"] <= row["head_dim"] and (other["bound"] or np.inf) <= (
                row["bound"] or np.inf
            ):
                pairs += 1
                for end in ("least", "median", "largest"):
                    assert row[f"{end}_kl"] <= other[f"{end}_kl"]
    assert pairs > 500


@pytest.mark.parametrize("name", NAMES)
def test_theory_is_that_of_today(name):
    [*found] = units_of(EXPERIMENT, EXPERIMENT.presets[name], load(name)["records"])
    for unit, rows in found:
        for point, row in zip(from_unit(KINDS, unit), rows, strict=True):
            if unit["kind"] == "circle":
                assert row["scale"] == pytest.approx(circle_scale(point.n, point.miss), rel=1e-6)
            if unit["kind"] == "points" and point.pattern != MODEL:
                assert row["floor_kl"] == pytest.approx(floor_kl(point), rel=1e-9)
                if row["circle_kl"] is not None:
                    assert row["circle_kl"] == pytest.approx(circle_kl(point.n, point.bound), rel=1e-9)
                pattern = pattern_of(point)[0]
                uniform = mean_kl(pattern, np.full_like(pattern, 1 / point.n))
                assert row["uniform_kl"] == pytest.approx(uniform, rel=1e-9)
                if point.pattern != "permutation":
                    assert row["minimal_head_dim"] == required_head_dim(pattern)
                    cut = mean_kl(pattern, truncation(pattern, point.head_dim))
                    assert row["truncated_kl"] == pytest.approx(cut, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_patterns_are_met_where_the_theorem_says_and_nowhere_else(name):
    free = [r for r in points_of(name, bound=None) if r["minimal_head_dim"] is not None]
    assert len(free) > 100
    for row in free:
        assert row["representable"] == (row["head_dim"] >= row["minimal_head_dim"])
        assert (row["kl"] < 1e-9) == row["representable"]


@pytest.mark.parametrize("name", NAMES)
def test_bounded_permutations_are_where_their_closed_forms_are(name):
    for row in points_of(name, pattern="permutation"):
        if row["bound"] is not None:
            assert row["kl"] >= row["floor_kl"] * (1 - 1e-6)
            if row["head_dim"] == row["n"] - 1:
                assert row["kl"] == pytest.approx(row["floor_kl"], rel=0.01)
            if row["head_dim"] == 2:
                assert row["kl"] >= row["circle_kl"] * (1 - 1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_real_maps_are_nearly_of_a_quarter_of_their_rank(name):
    rows = points_of(name, pattern=MODEL, n=48)
    assert {row["minimal_head_dim"] for row in rows} == {32}
    near = select(rows, head_dim=8, bound=None)
    assert len(near) >= 6
    assert median(r["kl"] for r in near) < 0.05 * median(r["uniform_kl"] for r in near)


@pytest.mark.parametrize("name", NAMES)
def test_softmax_has_a_higher_rank_than_its_logits(name):
    for row in load(name)["records"]["spectra"]:
        assert row["logits_rank"] == row["head_dim"] < row["weights_rank"]


@pytest.mark.slow
def test_a_committed_batch_comes_out_about_the_same():
    """Bit by bit on the machine that wrote the records, with its versions; elsewhere rounding differs."""
    units = units_of(EXPERIMENT, EXPERIMENT.presets["quick"], load("quick")["records"])
    wanted = [
        {"kind": "points", "pattern": "soft-permutation", "n": 12},
        {"kind": "circle", "dtype": "bfloat16"},
    ]
    for fields in wanted:
        unit, expected = next((unit, rows) for unit, rows in units if fields.items() <= unit.items())
        for found, row in zip(compute(from_unit(KINDS, unit)), expected, strict=True):
            for name in {"kl", "scale"} & set(row):
                assert found[name] == pytest.approx(row[name], rel=0.02, abs=1e-9)
            if "share_right" in row:
                assert found["share_right"] == pytest.approx(row["share_right"], abs=0.02)
