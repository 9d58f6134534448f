"""The relations experiment: presets, verdicts, the figure, a run of seconds, what is committed."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from experiments import cli, style
from experiments.collecting import config_from, units_of
from experiments.points import from_unit, to_units
from experiments.reading import select
from experiments.relations import PRESETS, RelationsConfig, table
from experiments.relations.claims import CLAIMS, claim_rows
from experiments.relations.config import resolve
from experiments.relations.experiment import EXPERIMENT
from experiments.relations.records import summary
from experiments.relations.units import KINDS, compute, floor_binds, grid, work_of
from experiments.store import canonical
from theory.relations import error_floor

QUICK = PRESETS["quick"]
FOLDER = Path(__file__).parents[2] / "figures" / "relations"
NAMES = [name for name in ("quick", "paper") if (FOLDER / f"{name}.json").exists()]


def load(name):
    return json.loads((FOLDER / f"{name}.json").read_text(), parse_constant=pytest.fail)


def record(point, **changes):
    """What comes out where everything is as expected."""
    floor = error_floor(point.num_relations, point.num_heads)
    error = floor + 0.002 * (1 + point.seed)
    if point.attention == "mixed" and point.values == "signs":
        error = floor / 10
    if point.total_key_dim == 12 and point.num_heads == point.num_relations:
        error = 0.1
    row = asdict(point) | {
        "status": "ok",
        "reason": None,
        "accuracy": 1 - floor,
        "error": error,
        "standard_error": 0.005,
        "expected_error": error if point.readout == "linear" else None,
        "predicted_error_floor": floor,
        "floor_binds": floor_binds(point),
        "seconds": 1.0,
    }
    return row | changes


def data_of(make=record, config=QUICK):
    rows = {"points": [make(point) for point in grid(config)]}
    return {"preset": "quick", "records": rows | summary(rows)}


def verdicts(data):
    return {row["claim"]: row["verdict"] for row in data["records"]["claims"]}


@pytest.mark.parametrize("name", PRESETS)
def test_points_of_a_preset_are_batches_that_come_back(name):
    points = grid(PRESETS[name])
    for unit, members in to_units(KINDS, points):
        assert from_unit(KINDS, unit) == members
        assert set(record(members[0])) == KINDS["points"].fields
        assert members[0].total_key_dim % members[0].num_heads == 0
        assert work_of(members[0]) > 0


def test_quick_has_every_head_count_at_one_budget():
    main = [p for p in grid(QUICK) if p.readout == "linear" and p.total_key_dim == 60]
    for relations in (1, 2, 4):
        heads = {p.num_heads for p in main if p.num_relations == relations}
        assert heads == set(range(1, relations + 3))
    assert RelationsConfig() == QUICK


def test_everything_expected_is_judged_held():
    assert verdicts(data_of()) == {claim.name: "held" for claim in CLAIMS}


@pytest.mark.parametrize(
    ("claim", "where", "changes"),
    [
        ("floor", {"readout": "linear", "num_heads": 1, "num_relations": 2}, {"expected_error": 0.499}),
        ("attained", {"readout": "linear", "num_heads": 3, "num_relations": 4}, {"expected_error": 0.28}),
        ("enough", {"readout": "linear", "num_heads": 4, "total_key_dim": 60}, {"accuracy": 0.97}),
        ("more", {"readout": "linear", "num_heads": 5, "num_relations": 4}, {"expected_error": 0.05}),
        ("Gaussian values", {"values": "gaussian", "num_heads": 1, "num_relations": 4}, {"error": 0.73}),
        ("signs", {"attention": "mixed", "values": "signs", "num_heads": 2}, {"error": 0.3}),
        ("training", {"readout": "mlp", "values": "signs", "num_heads": 1}, {"error": 0.1}),
        ("thin heads", {"total_key_dim": 12, "num_relations": 4, "num_heads": 4}, {"expected_error": 0.3}),
    ],
)
def test_each_verdict_can_fail(claim, where, changes):
    def spoilt(point):
        hit = all(getattr(point, name) == value for name, value in where.items())
        return record(point, **(changes if hit else {}))

    assert verdicts(data_of(spoilt))[claim] == "failed"


def test_what_was_not_run_is_not_judged():
    assert set(verdicts({"records": summary({"points": []})})) == {claim.name for claim in CLAIMS}
    assert set(verdicts({"records": summary({"points": []})}).values()) == {"not_run"}
    assert table.error_cells({"records": {}}) is None
    diverged = {
        "status": "failed",
        "error": None,
        "expected_error": None,
        "accuracy": None,
        "standard_error": None,
    }
    data = data_of(lambda point: record(point, **(diverged if point.seed == 0 else {})))
    assert {row["failed"] for row in data["records"]["curves"]} == {1}


def test_tables_values_and_the_figure_are_made_of_the_records(tmp_path):
    data = data_of()
    cells = table.error_cells(data)
    assert cells is not None
    [line] = [row for row in cells.rows if row[:3] == ("4", "linear", "60")]
    assert line[3:6] == ("0.752", "0.502", "0.252")
    assert table.values(data)["linear.gaussian.trained.r2.h1.k60"] == "0.502"
    names = {path.name for path in EXPERIMENT.plot(json.loads(json.dumps(data)), tmp_path, "quick")}
    assert names == {f"quick-heads.{suffix}" for suffix in style.SUFFIXES} | {"quick-captions.md"}
    assert EXPERIMENT.plot({"records": {}}, tmp_path, "none") == [tmp_path / "none-captions.md"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_relations": ()}, "num_relations: expected at least one, got none"),
        ({"seeds": 0}, "seeds: expected a positive integer, got 0"),
        ({"num_items": 31}, "num_items: expected at least 8 \\* num_relations = 32, got 31"),
    ],
)
def test_bad_configurations_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        resolve(replace(QUICK, **change), set())


def test_a_run_from_the_command_line(tmp_path, capsys):
    fields = "--num-relations 1 --extra-heads 0 --num-items 8 --d-model 6 --total-key-dim 4 --no-mlp --num-steps 20"
    command = ["run", "relations", "--preset", "smoke", "--workers", "0", "--out", str(tmp_path)]
    assert cli.main([*command, *fields.split()]) == 0
    data = json.loads((tmp_path / "smoke.json").read_text(), parse_constant=pytest.fail)
    assert [row["predicted_error_floor"] for row in data["records"]["points"]] == [0, 0]
    assert "Error by number of heads" in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_committed_records_are_whole_sound_and_of_today(name):
    data, config = load(name), PRESETS[name]
    assert canonical(data["config"]) == canonical(asdict(config))
    assert config_from(EXPERIMENT, data["config"]) == config
    assert data["unfinished"] == data["left_out"] == []
    assert len(units_of(EXPERIMENT, config, data["records"])) == len(to_units(KINDS, grid(config)))
    rows = data["records"]
    assert rows["claims"] == claim_rows(rows["points"], rows["curves"])
    for row in rows["points"]:
        assert row["predicted_error_floor"] == error_floor(row["num_relations"], row["num_heads"])
        if row["expected_error"] is not None:
            assert row["expected_error"] >= row["predicted_error_floor"] - 1e-5
            assert abs(row["error"] - row["expected_error"]) <= 5 * row["standard_error"] + 1e-6
        elif row["floor_binds"]:
            assert row["error"] >= row["predicted_error_floor"] - 4 * row["standard_error"]


def test_what_the_committed_records_say():
    assert "quick" in NAMES
    curves = load("quick")["records"]["curves"]
    for row in select(curves, readout="linear", total_key_dim=60):
        assert row["least_error"] <= row["predicted_error_floor"] + 0.02
    [below] = select(curves, values="signs", attention="mixed", num_relations=2)
    assert below["largest_error"] < 0.05 < below["predicted_error_floor"]


@pytest.mark.slow
def test_a_committed_batch_comes_out_about_the_same():
    units = units_of(EXPERIMENT, QUICK, load("quick")["records"])
    wanted = {"num_relations": 2, "num_heads": 1, "values": "gaussian", "attention": "mixed"}
    [(unit, expected)] = [(unit, rows) for unit, rows in units if wanted.items() <= unit.items()]
    for found, row in zip(compute(from_unit(KINDS, unit)), expected, strict=True):
        assert found["error"] == pytest.approx(row["error"], rel=0.02)
