"""The figures of thresholds and scaling: marks are the records, no line is where theorems exclude it."""

import copy
import math

import numpy as np
import pytest

from experiments.capacity import table
from experiments.capacity.figures_records import Case, budget_floor
from experiments.capacity.figures_recovery import recovery
from experiments.capacity.figures_threshold import scaling, threshold
from tests.experiments.capacity_drawing import drawn, lines_at
from tests.experiments.capacity_records import make_data


@pytest.fixture(scope="module")
def data():
    return make_data()


def test_threshold_marks_are_the_records(data):
    figure, _ = drawn(threshold, data)
    (axes,) = (axes for axes in figure.axes if axes.get_xlabel())
    transitions = [r for r in data["records"]["transitions"] if r["embedding"] == "gaussian"]
    for trainer in ("best", "joint", "plain"):
        rows = sorted((r for r in transitions if r["trainer"] == trainer), key=lambda r: r["num_heads"])
        reached = [r["measured_total_key_dim"] for r in rows if r["status"] == "reached"]
        assert any(np.array_equal(line.get_ydata(), reached) for line in axes.lines)
        for record in (r for r in rows if r["status"] == "not_reached"):
            assert any(np.array_equal(line.get_ydata(), [16 * record["num_heads"]]) for line in axes.lines)
    exact = [r["smallest_exact"] for r in transitions if r["trainer"] == "best" and r["smallest_exact"]]
    (stars,) = (np.asarray(line.get_ydata()).tolist() for line in axes.lines if line.get_marker() == "*")
    assert sorted(stars) == sorted(exact)
    low, high = axes.get_ylim()
    assert all(low < value < high for value in exact)


def test_no_theorem_floor_is_above_an_exact_channel_or_below_the_head_count(data):
    case = Case(96, 96, 16, "gaussian", "permutation")
    for record in data["records"]["transitions"]:
        if record["smallest_exact"] is not None and record["embedding"] == "gaussian":
            floor = budget_floor(case, record["num_heads"], record["counting_bound"])
            assert record["num_heads"] <= floor <= record["smallest_exact"]
    assert budget_floor(case, 47, None) == 94  # one dimension a head holds 94 of 96 edges
    assert budget_floor(case, 48, None) == 48
    assert budget_floor(Case(96, 96, 16, "gaussian", "my-edges"), 8, None) == 8
    assert budget_floor(Case(5000, 5000, 16, "gaussian", "permutation"), 1, None) == math.inf


def test_nothing_predicted_is_drawn_where_the_theorems_exclude_it(data):
    case = Case(96, 96, 16, "gaussian", "permutation")
    rows = {
        r["num_heads"]: r
        for r in data["records"]["transitions"]
        if r["embedding"] == "gaussian" and r["trainer"] == "best"
    }
    names = ("partition_total_key_dim", "parameter_count_total_key_dim")
    floors = {h: budget_floor(case, h, rows[h]["counting_bound"]) for h in rows}
    assert all(rows[16][name] < floors[16] for name in names)
    assert all(rows[6][name] > floors[6] for name in names)

    figure, caption = drawn(threshold, data)
    (axes,) = (axes for axes in figure.axes if axes.get_xlabel())
    lines = [np.asarray(line.get_xydata()) for line in axes.lines if line.get_marker() == "None"]
    assert len(lines) == 2
    for heads, budgets in (line[np.isfinite(line[:, 1])].T for line in lines):
        assert {3, 4, 6} <= set(heads)
        assert all(y >= budget_floor(case, int(h), None) for h, y in zip(heads, budgets, strict=True))
    assert "or the theorems exclude it" in caption

    figure, caption = drawn(recovery, data)
    panels = {axes.get_title(): axes for axes in figure.axes if axes.get_title()}
    for name in names:
        assert lines_at(panels["6 heads"], rows[6][name])
        assert not lines_at(panels["16 heads"], rows[16][name])
    assert "or the theorems exclude it" in caption

    figure, caption = drawn(scaling, data)
    heads = {
        round(float(x)) for axes in figure.axes for line in axes.lines[1:] for x in np.ravel(line.get_xdata())
    }
    assert 6 in heads
    assert 16 not in heads
    assert "excluded by the theorems" in caption
    assert "budgets were searched for the first criterion alone" in caption  # exact_status says no more

    cells = table.threshold_cells(data)
    assert cells is not None
    by_heads = {row[0]: row for row in cells.rows}
    assert [by_heads["16"][i] for i in (2, 7)] == [f"({rows[16][name]:.1f})" for name in names]
    assert [by_heads["6"][i] for i in (2, 7)] == [f"{rows[6][name]:.1f}" for name in names]
    assert "in brackets" in cells.note


def test_changed_predictions_are_refused(data):
    other = copy.deepcopy(data)
    record = next(r for r in other["records"]["transitions"] if r["num_heads"] == 3)
    record["partition_total_key_dim"] *= 1 + 1e-5
    for make in (recovery, threshold):
        with pytest.raises(ValueError, match=r"partition_total_key_dim = .* at num_heads = 3"):
            drawn(make, other)
    record["partition_total_key_dim"] = None
    with pytest.raises(ValueError, match="run it again"):
        drawn(threshold, other)
