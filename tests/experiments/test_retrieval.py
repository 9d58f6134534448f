"""The retrieval experiment: presets, what is made of records, verdicts, figures, a run of seconds."""

import io
import json
from dataclasses import asdict, replace

import pytest
from rich.console import Console

from experiments import cli, style
from experiments.engine import Unfinished
from experiments.points import from_unit, to_units
from experiments.retrieval import PRESETS, table
from experiments.retrieval.claims import CLAIMS
from experiments.retrieval.config import RetrievalConfig, resolve
from experiments.retrieval.experiment import EXPERIMENT
from experiments.retrieval.figures import heads
from experiments.retrieval.published import published
from experiments.retrieval.records import summary
from experiments.retrieval.units import (
    KINDS,
    compiled_model,
    curves,
    grid,
    model_of,
    predicted_nmse,
    work_of,
)

QUICK = PRESETS["quick"]


def _error(point):
    """What the records say where everything came out as expected."""
    if point.task == "memorise":
        return 0.025 * point.length**2 / point.readout_width
    if point.attention == "uniform":
        return predicted_nmse(point) or 0.9
    if point.num_heads * point.num_layers >= point.num_targets:
        return 5e-4
    left = predicted_nmse(replace(point, encoder="linear", directions="orthonormal", num_layers=1))
    assert left is not None
    return 0.9 * left * (0.1 if point.encoder == "mlp" or point.num_layers > 1 else 1)


def _record(point, error=None):
    error = (error or _error)(point)
    one_layer = point.num_layers == 1
    shares = [0.999] * min(point.num_heads, point.num_targets)
    shares += [None] * (point.num_targets - len(shares))
    return asdict(point) | {
        "status": "failed" if error is None else "ok",
        "reason": "diverged" if error is None else None,
        "nmse": error and error * (1 + point.seed / 50 + point.learning_rate),
        "nmse_uniform": error and (error if point.task == "memorise" else 7.0),
        "matched": shares if one_layer and error is not None else None,
        "predicted_nmse": predicted_nmse(point),
        "exponent": None,
        "num_parameters": model_of(point).num_parameters,
        "num_readout_parameters": model_of(point).num_readout_parameters,
        "seconds": 1.0,
    }


def _data(config=QUICK, error=None):
    rows = {"points": [_record(point, error) for point in grid(config)]}
    by_point = {
        tuple(row[name] for name in asdict(point)): row
        for point, row in zip(grid(config), rows["points"], strict=True)
    }

    def ask(points):
        return [by_point[tuple(asdict(point).values())] for point in points]

    return {"preset": "quick", "records": rows | summary(config, ask, rows)}


@pytest.fixture(scope="module")
def expected():
    return _data()


@pytest.mark.parametrize("name", PRESETS)
def test_points_of_a_preset_are_batches_that_come_back(name):
    points = grid(PRESETS[name])
    units = to_units(KINDS, points)
    assert [point for _, members in units for point in members] == points
    for unit, members in units:
        assert from_unit(KINDS, unit) == members
        assert len(members) == PRESETS[name].seeds * len(
            PRESETS[name].copy_learning_rates
            if members[0].task == "memorise"
            else PRESETS[name].learning_rates
        )
        compiled = compiled_model(members[0])
        assert compiled.num_heads >= members[0].num_heads
        assert work_of(members[0]) > 0


def test_quick_holds_what_it_has_to():
    main = {(p.num_targets, p.length, p.num_heads) for curve, p in curves(QUICK) if curve == "main"}
    for targets in (2, 4):
        for length in (8, 128):
            assert {h for d, t, h in main if (d, t) == (targets, length)} == set(range(1, targets + 3))
    assert {p.num_heads * p.per_head_dim for curve, p in curves(QUICK) if curve == "fixed-width"} == {32, 30}
    wide = [p for curve, p in curves(QUICK) if curve in ("copy", "wide")]
    assert all(p.per_head_dim >= p.length * p.width and p.num_heads == 1 for p in wide)


def test_published_values_stand_beside_their_setting_alone(expected):
    assert published("main", 4, 128, 3) == 1.58e-3
    assert published("main", 4, 32, 3) is published("mlp", 4, 128, 3) is None
    marked = {(r["curve"], r["length"]) for r in expected["records"]["curves"] if r["published_nmse"]}
    assert marked == {("main", 8), ("main", 128)}


def test_least_median_and_ratio_are_over_runs_and_seeds(expected):
    [row] = [
        r
        for r in expected["records"]["curves"]
        if (r["curve"], r["num_targets"], r["length"], r["num_heads"]) == ("main", 4, 128, 3)
    ]
    base = 0.9 * 0.25
    errors = sorted(base * (1 + seed / 50 + rate) for seed in range(3) for rate in (0.01, 0.03))
    assert row["best_nmse"] == pytest.approx(errors[0])
    assert row["median_nmse"] == pytest.approx((errors[2] + errors[3]) / 2)
    assert row["seed_nmse"] == pytest.approx([base * (1.01 + seed / 50) for seed in range(3)])
    [jump] = [
        r
        for r in expected["records"]["jumps"]
        if (r["curve"], r["num_targets"], r["length"]) == ("main", 4, 128)
    ]
    assert (jump["best_jump_at"], jump["median_jump_at"], jump["expected_heads"]) == (4, 4, 4)
    assert jump["best_ratio"] == pytest.approx(base / 5e-4)
    assert jump["ratio_low"] < base / 5e-4 < jump["ratio_high"]
    assert jump["ratio_low"] > base / 5e-4 * 1.01 / 1.05 * 0.99
    layers = {
        (r["num_targets"], r["expected_heads"]): r["best_jump_at"]
        for r in expected["records"]["jumps"]
        if r["curve"] == "two-layer"
    }
    assert layers == {(2, 1): 1, (4, 2): 2}


def test_everything_as_expected_is_held(expected):
    verdicts = {row["claim"]: row["verdict"] for row in expected["records"]["claims"]}
    assert len(verdicts) == len(CLAIMS)
    assert set(verdicts.values()) == {"held"}


@pytest.mark.parametrize(
    ("claim", "change"),
    [
        ("jump", lambda p: 1e-7 if p.num_heads == 3 and p.num_targets == 2 else _error(p)),
        ("ratio", lambda p: 3e-3 if p.length == 128 and p.num_heads == 4 else _error(p)),
        ("below D", lambda p: 0.05 if (p.length, p.num_heads, p.num_targets) == (32, 2, 4) else _error(p)),
        ("above D", lambda p: 0.2 if p.num_heads == 6 else _error(p)),
        ("uniform", lambda p: 1.2 * _error(p) if p.attention == "uniform" else _error(p)),
        (
            "directions, width",
            lambda p: 5e-4 if p.directions == "random" and p.num_heads == 3 else _error(p),
        ),
        ("MLP encoder", lambda p: 5e-6 if p.encoder == "mlp" and p.num_heads == 4 else _error(p)),
        ("layers", lambda p: 0.2 if p.num_layers == 2 and p.num_heads == 2 else _error(p)),
        ("general", lambda p: 0.2 if p.task == "general" else _error(p)),
        ("work", lambda p: 0.05 if p.task == "memorise" else _error(p)),
    ],
)
def test_each_verdict_can_fail(claim, change):
    verdicts = {row["claim"]: row["verdict"] for row in _data(error=change)["records"]["claims"]}
    assert verdicts[claim] == "failed"


def test_maps_and_copying_can_fail(expected):
    table_rows, jumps = (expected["records"][name] for name in ("curves", "jumps"))
    judges = {claim.name: claim.judge for claim in CLAIMS}

    def spoilt(curve, **values):
        return [row | values if row["curve"] == curve else row for row in table_rows]

    for curve, claim, values in (
        ("main", "maps", {"matched": 0.98}),
        ("wide", "copying", {"best_nmse_uniform": 1.0}),
        ("heads", "copying", {"best_nmse_uniform": 0.1}),
    ):
        found = judges[claim](spoilt(curve, **values), jumps)
        assert found is not None
        assert not found[0]


def test_what_was_not_run_is_not_judged():
    def ask(points):
        raise Unfinished("nothing")

    rows = summary(QUICK, ask, {"points": []})
    assert rows["curves"] == rows["jumps"] == []
    assert {row["verdict"] for row in rows["claims"]} == {"not_run"}
    assert table.heads_cells({"records": rows}) is None


def test_diverged_runs_are_counted_and_hide_no_others():
    data = _data(error=lambda p: None if p.seed == 1 and p.num_heads == 3 else _error(p))
    [row] = [
        r
        for r in data["records"]["curves"]
        if (r["curve"], r["num_targets"], r["length"], r["num_heads"]) == ("main", 4, 128, 3)
    ]
    assert (row["runs"], row["failed"], len(row["seed_nmse"])) == (6, 2, 2)


def test_figures_tables_and_values_are_made_of_the_records(expected, tmp_path):
    paths = EXPERIMENT.plot(expected, tmp_path, "quick")
    names = {path.name for path in paths}
    assert {f"quick-{name}.svg" for name in ("heads", "settings", "copying")} <= names
    captions = (tmp_path / "quick-captions.md").read_text()
    assert captions.count("## quick-") == 3  # no exponents in these records: no figure of them
    with style.context():
        drawn = heads(expected)
        assert drawn is not None
        again = style.save(drawn[0], tmp_path / "again")
    assert [path.read_bytes() for path in paths[:2]] == [path.read_bytes() for path in again]
    console = Console(width=100, record=True, file=io.StringIO())
    EXPERIMENT.show(expected, console)
    shown = console.export_text()
    assert "Where the error jumps" in shown
    assert "held  ratio: at least 100 at T = 128, D = 4" in shown
    values = table.values(expected)
    assert values["main.d4.t128.h3"] == "0.23"
    assert values["main.d4.t128.h4"] == "5.1e-4"
    assert values["ratio.main.d4.t128"] == "450"
    assert values["jump.two-layer.d4.t8"] == "2"
    assert values["claims.held"] == values["claims.judged"] == "12"
    assert values["maps.lowest"] == "99.9%"


@pytest.mark.parametrize(
    ("changes", "given", "message"),
    [
        ({"num_targets": (2, 2)}, {"num_targets"}, "num_targets: expected different values"),
        ({"lengths": (0,)}, {"lengths"}, "lengths: expected positive integers, got 0"),
        ({"lengths": ()}, {"lengths"}, "lengths: expected at least one curve"),
        ({"learning_rates": ()}, set(), "learning_rates: expected at least one"),
        ({"num_train": 250}, set(), "num_train: expected a multiple of 100, got 250"),
        ({"fixed_width": 4}, set(), "fixed_width: expected at least one dimension for every head, got 4"),
        ({"extra_heads": -1}, set(), "extra_heads: expected 0 or a positive integer, got -1"),
    ],
)
def test_mistakes_are_named(changes, given, message):
    with pytest.raises(ValueError, match=message):
        resolve(replace(QUICK, **changes), given)


def test_naming_a_curve_asks_for_it_alone():
    main = resolve(replace(QUICK, num_targets=(3,)), {"num_targets"})
    assert {curve for curve, _ in curves(main)} == {"main", "uniform"}
    one = resolve(replace(QUICK, mlp_lengths=(5,)), {"mlp_lengths"})
    assert {curve for curve, _ in curves(one)} == {"mlp", "mlp-uniform", "mlp-beside"}
    assert resolve(QUICK, set()) == QUICK


def test_a_run_from_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(EXPERIMENT, "plots", {})  # drawn above, from more
    sizes = (
        "--num-targets 2 --arm-targets 2 --lengths 5 --extra-heads 0 --seeds 2 --num-steps 40 --num-train 300"
    )
    command = ["run", "retrieval", "--preset", "smoke", "--workers", "0", "--out", str(tmp_path)]
    assert cli.main([*command, *sizes.split()]) == 0
    data = json.loads((tmp_path / "smoke.json").read_text(), parse_constant=pytest.fail)
    points = data["records"]["points"]
    assert len(points) == 3 * 2
    required = "task num_targets length num_heads per_head_dim encoder num_layers seed nmse".split()
    assert all(set(required) <= set(point) and point["nmse"] > 0 for point in points)
    assert [row["num_heads"] for row in data["records"]["curves"]] == [1, 2, 1]
    assert "Error by number of heads" in capsys.readouterr().out


def test_defaults_are_the_quick_preset():
    assert RetrievalConfig() == QUICK
