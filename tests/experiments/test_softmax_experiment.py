"""The softmax experiment: points, verdicts, figures, a run of seconds, and what is committed."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from experiments import cli
from experiments.collecting import config_from, units_of
from experiments.points import from_unit, to_units
from experiments.reading import select
from experiments.softmax import PRESETS, table
from experiments.softmax.config import check
from experiments.softmax.experiment import EXPERIMENT
from experiments.softmax.records import CLAIMS, claim_rows, summary
from experiments.softmax.units import KINDS, LemmaPoint, compute, grid
from experiments.store import canonical

QUICK = PRESETS["quick"]
COMMITTED = Path(__file__).parents[2] / "figures" / "softmax" / "quick.json"


def committed():
    return json.loads(COMMITTED.read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize("name", PRESETS)
def test_points_of_a_preset_are_batches_that_come_back(name):
    points = grid(PRESETS[name])
    units = to_units(KINDS, points)
    assert [point for _, members in units for point in members] == points
    for unit, members in units:
        assert from_unit(KINDS, unit) == members
        assert len(members) == PRESETS[name].seeds
    assert all(p.total_key_dim % p.num_heads == 0 for p in points if not isinstance(p, LemmaPoint))


def _rows(**changed):
    """Records in which everything came out as expected, but for ``changed``: F1 by (arm, heads)."""
    points = []
    for point in grid(QUICK):
        if isinstance(point, LemmaPoint):
            continue
        thin = point.num_heads in (1, point.total_key_dim)
        f1 = changed.get(f"{point.arm}{point.num_heads}", 0.6 if thin else 0.995)
        exact = point.arm == "greedy" and not thin
        points.append(
            dict.fromkeys(KINDS["points"].fields)
            | asdict(point)
            | {"status": "ok", "head_dim": point.total_key_dim // point.num_heads, "f1": f1, "accuracy": f1}
            | {"exact_recovery": exact}
            | (
                {
                    "one_owner": changed.get("one_owner", True),
                    "softmax_f1": 1.0,
                    "softmax_accuracy": changed.get("transplanted", 1.0),
                    "values_accuracy": 1.0,
                    "largest_excess": changed.get("excess", -0.1),
                    "scale": 100.0,
                }
                if exact
                else {}
            )
        )
    rows = {"points": points, "lemma": []}
    return rows | summary(rows)


def _verdicts(**changed):
    return {row["claim"]: row["verdict"] for row in _rows(**changed)["claims"]}


def test_everything_as_expected_is_held():
    assert set(_verdicts().values()) == {"held"}
    assert len(_verdicts()) == len(CLAIMS)


@pytest.mark.parametrize(
    ("claim", "changed"),
    [
        ("guarantee", {"excess": 1e-6}),
        ("transplant", {"transplanted": 0.999}),
        ("one head", {"joint1": 0.95}),
        ("window", {"values24": 0.999}),
        ("no better", {"weights2": 1.0, "greedy2": 0.98}),
        ("routing costs", {"values4": 1.0, "weights4": 0.98}),
        ("idle heads", {"one_owner": False}),
    ],
)
def test_each_verdict_can_fail(claim, changed):
    assert _verdicts(**changed)[claim] == "failed"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arms": ("gredy",)}, "arms: expected names among"),
        ({"context_size": 97}, "context_size: expected 2 to 96, got 97"),
        ({"head_counts": (2, 2)}, "head_counts: expected different"),
        ({"seeds": 0}, "seeds: expected a positive integer"),
    ],
)
def test_mistakes_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        check(replace(QUICK, **changes))


def test_a_run_from_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(EXPERIMENT, "plots", {})
    # Heads as wide as the items: convex, nothing to compile.
    sizes = "--arms greedy --head-counts 2 --seeds 1 --num-test 4 --lemma-heads 2 --total-key-dims 16"
    command = ["run", "softmax", "--preset", "smoke", "--workers", "0", "--out", str(tmp_path)]
    assert cli.main([*command, *sizes.split()]) == 0
    data = json.loads((tmp_path / "smoke.json").read_text(), parse_constant=pytest.fail)
    [point] = data["records"]["points"]
    assert point["exact_recovery"]
    assert point["softmax_accuracy"] == point["values_accuracy"] == 1
    assert point["largest_excess"] < 0
    assert "maximum, greedy" in capsys.readouterr().out


def test_quick_is_committed_and_complete():
    data = committed()
    assert data["unfinished"] == data["left_out"] == []
    assert canonical(data["config"]) == canonical(asdict(QUICK))
    assert config_from(EXPERIMENT, data["config"]) == QUICK
    assert len(units_of(EXPERIMENT, QUICK, data["records"])) == len(to_units(KINDS, grid(QUICK)))
    rows = data["records"]
    assert rows["claims"] == claim_rows(rows, rows["curves"])


def test_what_the_records_say():
    rows = committed()["records"]
    exact = [row for row in rows["points"] if row["exact_recovery"]]
    assert len(exact) > 40
    assert all(row["softmax_accuracy"] == row["values_accuracy"] == 1 for row in exact)
    assert max(row["largest_excess"] for row in exact) <= 0
    for row in select(rows["curves"], num_heads=1):
        assert row["largest_f1"] < 0.9
    # One dimension a head ends the maximum over heads, not the sum of their values.
    [thin] = select(rows["curves"], arm="values", total_key_dim=24, num_heads=24)
    [cut] = select(rows["curves"], arm="greedy", total_key_dim=24, num_heads=24)
    assert thin["least_f1"] > 0.9 > cut["largest_f1"]


def test_figures_tables_and_values_are_made_of_the_records(tmp_path):
    data = committed()
    names = {path.name for path in EXPERIMENT.plot(data, tmp_path, "quick")}
    assert {"quick-sweep.svg", "quick-lemma.png", "quick-captions.md"} <= names
    values = table.values(data)
    assert values["transplanted"] == values["transplanted-right"]
    assert float(values["f1.values.k24.h24"]) > float(values["f1.greedy.k24.h24"])
    assert "softmax, values" in table.BLOCKS["sweep"](data)


@pytest.mark.slow
def test_a_committed_batch_comes_out_about_the_same():
    wanted = {"kind": "points", "arm": "greedy", "num_heads": 4, "total_key_dim": 24}
    units = units_of(EXPERIMENT, QUICK, committed()["records"])
    unit, expected = next((unit, rows) for unit, rows in units if wanted.items() <= unit.items())
    for found, row in zip(compute(from_unit(KINDS, unit)), expected, strict=True):
        assert found["exact_recovery"] == row["exact_recovery"]
        assert found["margin"] == pytest.approx(row["margin"], rel=0.1)
