"""The constructions experiment: presets, verdicts, figures, a run of seconds, what is committed."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from experiments import cli, style
from experiments.collecting import config_from, units_of
from experiments.constructions import PRESETS, table
from experiments.constructions.claims import CLAIMS, claim_rows
from experiments.constructions.config import Rounded, resolve
from experiments.constructions.experiment import EXPERIMENT
from experiments.constructions.records import trained
from experiments.constructions.search import batches, parts_of
from experiments.constructions.units import KINDS, PrecisionPoint, compute, rounded_record
from experiments.points import from_unit, to_units
from experiments.reading import select
from experiments.store import canonical
from theory.constructions import balanced, predicted_head_dim, quantise, score_variances
from theory.problems import Problem, make_problem

QUICK = PRESETS["quick"]
FOLDER = Path(__file__).parents[2] / "figures" / "constructions"
NAMES = [name for name in ("quick", "paper") if (FOLDER / f"{name}.json").exists()]


def load(name):
    return json.loads((FOLDER / f"{name}.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize("name", PRESETS)
def test_batches_of_a_preset_come_back_and_searches_start(name):
    for points in batches(PRESETS[name]):
        [(unit, members)] = to_units(KINDS, points)
        assert from_unit(KINDS, unit) == members
    asked = []

    def ask(points):
        asked.append(points)
        return [{"exact_recovery": True} for _ in points]

    for part in parts_of(PRESETS[name], ask):
        part.run()
    assert len(asked) >= len(parts_of(PRESETS[name], ask))


def test_each_verdict_can_fail():
    data = load("quick")["records"]
    verdicts = {row["claim"]: row["verdict"] for row in claim_rows(data)}
    assert set(verdicts) == {claim.name for claim in CLAIMS}
    assert {row["verdict"] for row in claim_rows(dict.fromkeys(data, ()))} == {"not_run"}

    def spoil(kind, **values):
        changed = [row | values for row in data[kind]]
        return {row["claim"]: row["verdict"] for row in claim_rows({**data, kind: changed})}

    assert spoil("noise_curves", variance=1.0)["noise"] == "failed"
    assert spoil("thresholds", measured_total_key_dim=100.0)["budget"] == "failed"
    assert spoil("thresholds", status="reached", measured_total_key_dim=9.0)["out of reach"] == "failed"
    assert spoil("blocks", measured_num_heads=64)["blocks"] == "failed"
    assert spoil("blocks", measured_total_key_dim=5.0)["zero-forcing"] == "failed"
    assert spoil("thresholds", measured_total_key_dim=5.0)["one-sided"] == "failed"
    assert spoil("trained", exact_total_key_dim=80.0)["training"] == "failed"
    assert spoil("precision_curves", median_bits=3.0)["precision"] == "failed"
    assert spoil("precision_curves", least_bits_over_graph=2.0)["bits"] == "failed"

    falls = [row | {"median_bits": 100 / row["total_key_dim"]} for row in data["precision_curves"]]
    held = claim_rows({**data, "precision_curves": falls})
    assert {row["claim"]: row["verdict"] for row in held}["precision"] == "held"


def test_bits_are_the_least_from_which_on_recovery_is_exact():
    """Items are unit vectors, so that weights are scores: non-edges close to edges take bits to tell apart."""
    drawn = make_problem(
        num_items=4, num_edges=4, d_model=4, embedding="orthonormal", graph="permutation", seed=0
    )
    edges = drawn.graph.adjacency()
    problem = Problem(np.eye(4), drawn.graph, None)
    point = PrecisionPoint(4, 4, 1, 4, "greedy", 0)
    found = []
    for near in (0.0, 0.9, 0.99):
        scores = np.where(edges, 1.0, 0.0)
        scores[0, 0] = near
        weights = scores[None], np.eye(4)[None]

        def right(p, gauge):
            product = quantise(gauge[0], p)[0] @ quantise(gauge[1], p)[0].T
            return product[edges].min() > product[~edges].max()

        least = [
            min(p for p in range(1, 17) if all(right(more, gauge) for more in range(p, 17)))
            for gauge in (weights, balanced(*weights))
        ]
        record = rounded_record(point, problem, weights)
        assert record["exact_recovery"]
        assert record["bits"] == min(least)
        assert record["bits_over_graph"] == pytest.approx(2 * 4 * 4 * min(least) / np.log2(9))
        found.append(record["bits"])
    assert found == sorted(found)
    assert found[0] < found[-1]
    assert rounded_record(point, problem, (-weights[0], weights[1]))["bits"] is None


def test_tables_and_figures_are_made_of_the_records(tmp_path):
    data = load("quick")
    names = {path.name for path in EXPERIMENT.plot(data, tmp_path, "quick")}
    drawn = {f"quick-{figure}.{s}" for figure in ("budgets", "noise", "precision") for s in style.SUFFIXES}
    assert names == drawn | {"quick-captions.md"}
    assert EXPERIMENT.plot({"records": {}}, tmp_path, "none") == [tmp_path / "none-captions.md"]
    assert table.budget_cells({"records": {}}) is table.precision_cells({"records": {}}) is None
    cells = table.budget_cells(data)
    assert cells is not None
    [row] = [row for row in cells.rows if row[:2] == ("(96, 16)", "convex heads")]
    assert row[3] == table.values(data)["best.convex-greedy.m96.d16"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_model": (16,)}, "d_model: expected one for each of num_items"),
        ({"num_heads": (2, 2)}, "num_heads: expected different values"),
        ({"num_heads": (0,)}, "num_heads: expected positive integers"),
        ({"seeds": 0}, "seeds: expected a positive integer, got 0"),
        ({"noise_block_sizes": (63,)}, "noise_block_sizes: expected at most"),
        ({"precision": ("greedy:96:16:4",)}, "precision: expected source:num_items"),
        ({"precision": ("other:96:16:4:16",)}, "precision: expected a source among"),
        ({"precision": ("greedy:96:16:4:18",)}, "precision: expected a budget that the heads divide"),
    ],
)
def test_bad_configurations_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        resolve(replace(QUICK, **change), set())


def test_trained_thresholds_are_the_committed_ones(tmp_path):
    assert trained(QUICK, tmp_path / "none.json") == []
    rows = trained(QUICK)
    assert {(row["num_items"], row["d_model"]) for row in rows} >= {(96, 16), (256, 32)}
    assert Rounded.parse("greedy:96:16:4:16") == Rounded("greedy", 96, 16, 4, 16)


def test_a_run_from_the_command_line(tmp_path, capsys):
    fields = "--num-items 12 --d-model 16 --num-heads 2 --noise-seeds 2 --precision zero-forcing:12:16:4:32"
    command = [
        "run",
        "constructions",
        "--preset",
        "smoke",
        "--workers",
        "0",
        "--out",
        str(tmp_path),
        *fields.split(),
    ]
    assert cli.main(command) == 0
    data = json.loads((tmp_path / "smoke.json").read_text(), parse_constant=pytest.fail)
    assert {row["construction"] for row in data["records"]["thresholds"]} == {
        "matched-filter",
        "one-sided",
        "zero-forcing",
    }
    assert len(data["records"]["precision"]) == 2
    assert "How few bits" in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_committed_records_are_whole_and_of_today(name):
    data, config = load(name), PRESETS[name]
    assert canonical(data["config"]) == canonical(asdict(config))
    assert config_from(EXPERIMENT, data["config"]) == config
    assert data["unfinished"] == data["left_out"] == []
    rows = data["records"]
    assert rows["claims"] == claim_rows(rows)
    assert rows["trained"] == trained(config)
    for row in rows["thresholds"][::7]:
        if row["construction"] != "convex-greedy":
            sizes = row["num_items"], row["d_model"], row["num_heads"]
            found = predicted_head_dim(row["construction"], *sizes)
            assert row["predicted_total_key_dim"] == (None if found is None else found * row["num_heads"])
    for row in rows["noise_curves"]:
        expected = score_variances(row["construction"], row["d_model"], row["head_dim"], row["block_size"])
        assert row["predicted_variance"] == pytest.approx(expected[row["pair"]], rel=1e-12)


def test_what_the_committed_records_say():
    assert "quick" in NAMES
    rows = load("quick")["records"]
    own = select(rows["thresholds"], num_items=96, d_model=16)
    assert {row["construction"] for row in own if row["status"] == "reached"} == {"convex-greedy"}
    bits = {
        row["total_key_dim"]: row["median_bits"] for row in select(rows["precision_curves"], source="joint")
    }
    assert bits[48] <= bits[24]


@pytest.mark.slow
def test_a_committed_batch_comes_out_the_same():
    units = units_of(EXPERIMENT, QUICK, load("quick")["records"])
    unit, expected = next((unit, rows) for unit, rows in units if unit["kind"] == "noise")
    for found, row in zip(compute(from_unit(KINDS, unit)), expected, strict=True):
        np.testing.assert_allclose(found["variances"], row["variances"], rtol=1e-6)
