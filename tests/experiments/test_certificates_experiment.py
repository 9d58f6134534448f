"""The certificates experiment: sizes, half-way points, verdicts, a run of seconds, and what is committed."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from experiments import cli
from experiments.certificates import PRESETS, table
from experiments.certificates.config import check
from experiments.certificates.experiment import EXPERIMENT
from experiments.certificates.records import CLAIMS, claim_rows, summary
from experiments.certificates.units import KINDS, compute, grid, sizes
from experiments.collecting import config_from, units_of
from experiments.points import from_unit, to_units
from experiments.reading import select
from experiments.store import canonical
from theory.partitions import partition_max_items, partition_success_probability

FOLDER = Path(__file__).parents[2] / "figures" / "certificates"
NAMES = [name for name in ("quick", "drift", "paper") if (FOLDER / f"{name}.json").exists()]
QUICK = PRESETS["quick"]


def committed(name):
    return json.loads((FOLDER / f"{name}.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize("name", PRESETS)
def test_points_of_a_preset_are_batches_that_come_back(name):
    points = grid(PRESETS[name])
    for unit, members in to_units(KINDS, points):
        assert from_unit(KINDS, unit) == members
    for d, h in {(p.d_model, p.num_heads) for p in points}:
        own = {p.num_items for p in points if (p.d_model, p.num_heads) == (d, h)}
        assert min(own) < partition_max_items(d, h) < max(own)


def test_sizes_above_the_largest_are_left_out():
    assert sizes(replace(QUICK, largest=60), 16, 1) == [53, 57, 59]
    assert sizes(replace(QUICK, largest=60), 16, 2) == []


def _summary(stretch=1.03, undecided=0, proven=True, seeds=150, widen=1.0, drift=0.0):
    """Records whose shares are the predicted ones of a graph ``stretch + drift (1/d - 1/16)`` times smaller."""
    points = []
    config = replace(QUICK, d_models=(16, 24), head_counts=(1, 2), offsets=(-0.8, -0.2, 0.2, 0.6, 1.2))
    for d in config.d_models:
        for h in config.head_counts:
            middle = partition_max_items(d, h)
            for m in sizes(config, d, h):
                place = m / (stretch + drift * (1 / d - 1 / 16))
                size = middle + (place - middle) / widen
                share = partition_success_probability(size, size, d, h)
                held = round(seeds * share)
                for seed in range(seeds):
                    verdict = "separable" if seed < held else "inseparable"
                    verdict = "undecided" if seed >= seeds - undecided else verdict
                    points.append(
                        {"d_model": d, "num_heads": h, "num_items": m, "seed": seed}
                        | {"verdict": verdict, "proven": proven}
                    )
    return summary({"points": points})


def test_half_way_points_are_found_where_they_were_put():
    rows = _summary(drift=0.5, seeds=400)
    for row in rows["places"]:
        expected = 1.03 + 0.5 * (1 / row["d_model"] - 1 / 16)
        assert row["ratio"] == pytest.approx(expected, abs=0.01)
        assert row["ci_low"] < row["measured_num_items"] < row["ci_high"]
    [together] = select(rows["drift"], num_heads=None)
    assert together["limit_low"] < 1.03 - 0.5 / 16 < together["limit_high"]


def _verdicts(**changed):
    return {row["claim"]: row["verdict"] for row in _summary(**changed)["claims"]}


def test_each_verdict_can_hold_and_fail():
    usual = {"drift": 0.6, "stretch": 1.035}
    assert set(_verdicts(**usual).values()) == {"held"}
    assert len(_verdicts(**usual)) == len(CLAIMS)
    for claim, changed in {
        "decided": {"undecided": 3},
        "proofs": {"proven": False},
        "place": {"stretch": 1.09},
        "width": {"widen": 3.0},
        "drift": {"drift": -1.0},
    }.items():
        assert _verdicts(**(usual | changed))[claim] == "failed"
    spread = [{"d_model": 16, "ratio": 1.0}, {"d_model": 16, "ratio": 1.04}]
    judge = next(claim.judge for claim in CLAIMS if claim.name == "heads")
    found = judge([], [], spread, [])
    assert found is not None
    assert not found[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_models": (2,)}, "d_models: expected at least 4"),
        ({"head_counts": ()}, "head_counts: expected at least one, got none"),
        ({"seeds": 0}, "seeds: expected a positive integer"),
    ],
)
def test_mistakes_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        check(replace(QUICK, **changes))


def test_a_run_from_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(EXPERIMENT, "plots", {})
    command = ["run", "certificates", "--preset", "smoke", "--workers", "0", "--out", str(tmp_path)]
    assert cli.main([*command, "--d-models", "6", "--seeds", "3", "--head-counts", "2"]) == 0
    data = json.loads((tmp_path / "smoke.json").read_text(), parse_constant=pytest.fail)
    assert {row["verdict"] for row in data["records"]["points"]} == {"separable", "inseparable"}
    assert "never the head" in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_what_is_committed_is_complete_and_judged(name):
    data, config = committed(name), PRESETS[name]
    assert data["unfinished"] == data["left_out"] == []
    assert canonical(data["config"]) == canonical(asdict(config))
    assert config_from(EXPERIMENT, data["config"]) == config
    assert len(units_of(EXPERIMENT, config, data["records"])) == len(to_units(KINDS, grid(config)))
    rows = data["records"]
    assert rows["claims"] == claim_rows(rows["points"], rows["curves"], rows["places"], rows["drift"])
    for row in rows["places"]:
        today = partition_max_items(row["d_model"], row["num_heads"])
        assert row["predicted_num_items"] == pytest.approx(today, rel=1e-9)
        assert 1 < row["ratio"] < 1.07
    failed = select(rows["points"], verdict="inseparable")
    assert np.mean([row["proven"] for row in failed]) > 0.9


def test_quick_is_committed():
    assert "quick" in NAMES


def test_a_committed_batch_comes_out_the_same():
    units = units_of(EXPERIMENT, QUICK, committed("quick")["records"])
    unit, expected = next((u, rows) for u, rows in units if (u["d_model"], u["num_heads"]) == (16, 2))
    for found, row in zip(compute(from_unit(KINDS, unit)[:3]), expected, strict=False):
        assert found["verdict"] == row["verdict"]


def test_figures_tables_and_values_say_what_a_failure_means(tmp_path):
    data = committed("quick")
    names = {path.name for path in EXPERIMENT.plot(data, tmp_path, "quick")}
    assert {"quick-curves.svg", "quick-drift.png"} <= names
    for text in (table.BLOCKS["places"](data), (tmp_path / "quick-captions.md").read_text()):
        assert "certifies that partition, never the head count" in text
    assert table.values(data)["undecided"] == "0"
