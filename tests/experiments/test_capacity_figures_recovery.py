"""The figures of recovery and of head sweeps: marks are the records, lines the predictions."""

import copy
import math

import numpy as np
import pytest

from experiments.capacity.figures_records import rates
from experiments.capacity.figures_recovery import head_sweep, recovery
from experiments.reading import wilson
from tests.experiments.capacity_drawing import drawn, lines_at
from tests.experiments.capacity_records import make_data


@pytest.fixture(scope="module")
def data():
    return make_data()


def test_recovery_shows_the_recorded_shares_and_predictions(data):
    figure, _ = drawn(recovery, data)
    panels = {axes.get_title(): axes for axes in figure.axes if axes.get_title()}
    assert list(panels) == ["1 head", *(f"{h} heads" for h in (2, 3, 4, 6, 8, 16))]
    points = [p for p in data["records"]["points"] if p["num_heads"] == 4 and p["embedding"] == "gaussian"]
    for trainer in ("greedy", "joint", "plain"):
        here = [p for p in points if p["trainer"] == trainer]
        budgets = sorted({p["total_key_dim"] for p in here})
        shares = [np.mean([p["best_f1"] >= 0.99 for p in here if p["total_key_dim"] == b]) for b in budgets]
        assert any(np.array_equal(line.get_ydata(), shares) for line in panels["4 heads"].lines)
    record = next(r for r in data["records"]["transitions"] if r["num_heads"] == 4)
    for name in ("partition_total_key_dim", "parameter_count_total_key_dim"):
        assert lines_at(panels["4 heads"], record[name])


def test_head_sweep_shades_the_window_and_the_cap(data):
    figure, _ = drawn(head_sweep, data)
    tops = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in tops] == ["$D_K$ = 24", "$D_K$ = 36"]
    for axes in tops:
        texts = [text.get_text() for text in axes.texts]
        assert texts == ["predicted\nwindow", "$d_k$ = 1:\nimpossible"]
    caps = [
        text.get_text() for axes in figure.axes for text in axes.texts if text.get_text().startswith("F1")
    ]
    assert caps == ["F1 ≤ 0.80", "F1 ≤ 0.89"]
    enough = make_data(budgets=(96,), real=False, ceilings=(), heads=(4,))
    figure, _ = drawn(head_sweep, enough)
    assert not any("impossible" in text.get_text() for axes in figure.axes for text in axes.texts)


def test_head_sweep_says_which_splits_were_not_run(data):
    assert "without a mark" not in drawn(head_sweep, data)[1]
    part = copy.deepcopy(data)
    part["records"]["points"] = [p for p in part["records"]["points"] if p["num_heads"] != 12]
    assert "those without a mark were not run" in drawn(head_sweep, part)[1]


def test_rates_leave_failed_runs_out():
    rows = [{"head_dim": 2, "status": "ok", "best_f1": f1} for f1 in (1.0, 0.99, 0.98)]
    rows += [{"head_dim": k, "status": "failed", "best_f1": None} for k in (2, 3)]
    (rate,) = rates(rows, "head_dim").values()
    assert (rate.successes, rate.trials, rate.failed) == (2, 3, 1)
    low, high = wilson(2, 3)
    for edge in (low, high):  # Wilson's ends are where the normal test just rejects
        assert abs(2 / 3 - edge) == pytest.approx(1.96 * math.sqrt(edge * (1 - edge) / 3), rel=1e-9)
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(0, 8)[0] == 0.0
