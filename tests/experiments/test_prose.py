"""Comparisons that README.md and docs/findings make in words, asked of the committed records."""

import json

import pytest

from experiments.ledger.books import ROOT
from experiments.reading import select


def records(name, kind):
    return json.loads((ROOT / "figures" / f"{name}.json").read_text("utf-8"))["records"][kind]


@pytest.mark.parametrize(("heads", "apart"), [(3, True), (4, True), (6, False)])
def test_the_best_trainer_lies_below_a_fixed_partition_at_three_and_four_heads(heads, apart):
    [row] = select(
        records("capacity/quick", "transitions"),
        trainer="best",
        embedding="gaussian",
        graph="permutation",
        num_heads=heads,
    )
    assert row["measured_total_key_dim"] < row["partition_total_key_dim"]
    assert (row["ci_high"] < row["partition_total_key_dim"]) == apart


def test_the_best_trainer_needs_less_than_any_try():
    thresholds, yardsticks = (records("tries/quick", kind) for kind in ("thresholds", "yardsticks"))
    for best in select(yardsticks, trainer="best"):
        own = [row for row in thresholds if row["num_heads"] == best["num_heads"]]
        tried = [row for row in own if row["measured_total_key_dim"] is not None]
        assert all(best["measured_total_key_dim"] < row["measured_total_key_dim"] for row in tried)
        if best["num_heads"] == 3:
            assert all(best["ci_high"] < row["ci_low"] for row in tried)


def test_one_head_left_in_a_layer_of_minilm_costs_most_in_the_last():
    curves, ablations = (records("pruning/minilm", kind) for kind in ("curves", "ablations"))
    whole = select(curves, order="importance", fraction_pruned=1.0)[0]["loss"]
    least = {}
    for row in select(ablations, ablation="all_but_one"):
        least[row["layer"]] = min(row["increase"] / whole, least.get(row["layer"], 1.0))
    last = least.pop(max(least))
    assert min(*least.values(), last) > 0.05
    assert last > 4 * max(least.values())


def test_minilms_random_orders_are_between():
    own = {
        order: [row["mean_cost"] for row in select(records("pruning/minilm", "onsets"), order=order)]
        for order in ("importance", "importance_recomputed", "ablation", "random")
    }
    chance = own["random"]
    assert own["importance_recomputed"][0] < min(chance)
    assert min(chance) < own["importance"][0] < sum(chance) / len(chance) < own["ablation"][0] < max(chance)
