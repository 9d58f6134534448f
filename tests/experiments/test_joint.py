"""The joint experiment: budgets, verdicts, figures, a run of seconds, and what is committed."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from experiments import cli
from experiments.collecting import config_from, units_of
from experiments.joint import PRESETS, table
from experiments.joint.config import ARMS, REFERENCE, check, head_dims
from experiments.joint.experiment import EXPERIMENT
from experiments.joint.records import CLAIMS, claim_rows, summary
from experiments.joint.units import KINDS, grid
from experiments.points import from_unit, to_units
from experiments.reading import select
from experiments.store import canonical

QUICK = PRESETS["quick"]
FOLDER = Path(__file__).parents[2] / "figures" / "joint"
NAMES = [name for name in ("quick", "long", "paper") if (FOLDER / f"{name}.json").exists()]


def committed(name="quick"):
    return json.loads((FOLDER / f"{name}.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize("name", PRESETS)
def test_points_of_a_preset_are_batches_that_come_back(name):
    points = grid(PRESETS[name])
    units = to_units(KINDS, points)
    assert [point for _, members in units for point in members] == points
    for unit, members in units:
        assert from_unit(KINDS, unit) == members
        assert len({p.head_dim for p in members}) * PRESETS[name].seeds == len(members)


def test_budgets_are_multiples_of_the_heads_with_two_dimensions_at_least():
    assert head_dims(QUICK, 4) == [3, 4, 5, 6, 7, 8]
    assert head_dims(QUICK, 8) == [2, 3, 4]
    assert head_dims(QUICK, 2) == [6, 8, 10, 12, 14, 16]
    assert {p.variant for p in grid(QUICK) if p.num_heads == 4} == set(ARMS)


def _claims(usual=None, settled=None, seeds=4):
    """Verdicts where a variant recovers from a budget on: ``usual`` by (variant, heads), or variant."""
    wanted: dict[Any, int] = {
        "adam": 26,
        "partition": 28,
        "decay": 26,
        "anneal": 18,
        "anneal-hinge": 16,
        REFERENCE: 16,
    }
    wanted |= {("adam", 2): 99, ("partition", 2): 99} | (usual or {})
    early = {"adam": 0.99, "anneal": 0.3} | (settled or {})
    points = []
    for point in grid(replace(QUICK, seeds=seeds)):
        least = wanted.get((point.variant, point.num_heads), wanted.get(point.variant, 24))
        held = point.num_heads * point.head_dim >= least
        share = early.get(point.variant, 0.5)
        points.append(
            asdict(point)
            | {"status": "ok", "total_key_dim": point.num_heads * point.head_dim, "exact": held}
            | {"best_f1": 1.0 if held else 0.5, "settled": [share] * 59 + [1.0]}
        )
    return {row["claim"]: row["verdict"] for row in summary({"points": points})["claims"]}


def test_everything_as_expected_is_held():
    verdicts = _claims()
    assert set(verdicts.values()) == {"held"}
    assert len(verdicts) == len(CLAIMS)


@pytest.mark.parametrize(
    ("claim", "changed"),
    [
        ("frozen", {"settled": {"adam": 0.9}}),
        ("partition", {"usual": {"partition": 16}}),
        ("schedule", {"usual": {"decay": 16}}),
        ("unfrozen", {"usual": {"anneal-hinge": 26}}),
        ("gap closed", {"usual": {"anneal-hinge": 20}}),
        ("late winners", {"settled": {"anneal": 0.6}}),
        ("two heads", {"usual": {("adam", 2): 28}}),
        ("two heads", {"usual": {"anneal-hinge": 99}}),
    ],
)
def test_each_verdict_can_fail(claim, changed):
    assert _claims(**changed)[claim] == "failed"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"variants": ("adams",)}, "variants: expected names among"),
        ({"head_counts": (24,)}, "largest_budget: expected room for 24 heads"),
        ({"budgets": 1}, "budgets: expected at least 2"),
        ({"seeds": 0}, "seeds: expected a positive"),
    ],
)
def test_mistakes_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        check(replace(QUICK, **changes))


@pytest.mark.slow
def test_a_run_from_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(EXPERIMENT, "plots", {})
    command = ["run", "joint", "--preset", "smoke", "--workers", "0", "--out", str(tmp_path)]
    assert cli.main([*command, "--variants", f"adam,{REFERENCE}", "--seeds", "1"]) == 0
    data = json.loads((tmp_path / "smoke.json").read_text(), parse_constant=pytest.fail)
    assert {row["status"] for row in data["records"]["points"]} == {"ok"}
    assert {row["variant"] for row in data["records"]["thresholds"]} == {"adam", REFERENCE}
    assert "Budget needed" in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_what_is_committed_is_complete_and_judged(name):
    data, config = committed(name), PRESETS[name]
    assert data["unfinished"] == data["left_out"] == []
    assert canonical(data["config"]) == canonical(asdict(config))
    assert config_from(EXPERIMENT, data["config"]) == config
    assert len(units_of(EXPERIMENT, config, data["records"])) == len(to_units(KINDS, grid(config)))
    rows = data["records"]
    assert rows["claims"] == claim_rows(rows["curves"], rows["thresholds"])


def test_what_the_records_say():
    """Under a hard maximum winners are frozen at the first look; annealed, fewer dimensions do."""
    rows = committed()["records"]
    for row in select(rows["curves"], variant="adam"):
        assert row["settled"][2] > 0.9
    by_name = {row["variant"]: row for row in select(rows["thresholds"], num_heads=4)}
    annealed = by_name["anneal-hinge"]["measured_total_key_dim"]
    assert annealed < 0.8 * by_name["adam"]["measured_total_key_dim"]
    assert by_name["anneal-hinge"]["smallest_exact"] < by_name["adam"]["smallest_exact"]


def test_with_more_steps_the_gap_is_closed():
    assert {"quick", "long"} <= set(NAMES)
    rows = committed("long")["records"]["thresholds"]
    for h in (2, 4, 8):
        [annealed] = select(rows, variant="anneal-hinge", num_heads=h)
        [greedy] = select(rows, variant=REFERENCE, num_heads=h)
        [adam] = select(rows, variant="adam", num_heads=h)
        assert annealed["measured_total_key_dim"] <= 1.15 * greedy["measured_total_key_dim"]
        reached = adam["measured_total_key_dim"] or adam["largest_budget"]
        assert annealed["measured_total_key_dim"] < 0.75 * reached


def test_figures_tables_and_values_are_made_of_the_records(tmp_path):
    data = committed()
    names = {path.name for path in EXPERIMENT.plot(data, tmp_path, "quick")}
    assert {"quick-winners.svg", "quick-thresholds.png"} <= names
    values = table.values(data)
    assert float(values["threshold.anneal-hinge.h4"]) < float(values["threshold.adam.h4"])
    assert "anneal-hinge" in table.BLOCKS["thresholds"](data)
