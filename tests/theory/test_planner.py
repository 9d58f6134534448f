"""The planner against a search over all layers, and against what joint training was measured to need."""

import itertools
import json
import math
from pathlib import Path

import pytest

from experiments.reading import records
from theory.bounds import parameter_count_total_key_dim, partition_total_key_dim, warren_bound
from theory.cache_capacity import cached_dims, latent_parameters, shared_key_parameters
from theory.graphs import log2_num_random_graphs
from theory.planner import SLACK, plan

CAPACITY = Path(__file__).parents[2] / "figures" / "capacity" / "quick.json"


def _enough(edges, m, d, h, g, k):
    """Whether a layer has the parameters that the law asks for, and no theorem excludes it."""
    if k > d or (k == 1 and 2 * h < edges):
        return False
    own = parameter_count_total_key_dim(m, edges, d, h)
    if math.isinf(own):
        return False
    needed = h * (own / h) * (2 * d - own / h)  # of h heads with keys of their own
    bits = log2_num_random_graphs(m, edges)
    return shared_key_parameters(d, h, g, k) >= needed * (1 - 1e-9) and h * k >= warren_bound(bits, m, d, h)


@pytest.mark.parametrize("multiple", [1, 3])
@pytest.mark.parametrize(("edges", "m", "d"), [(96, 96, 16), (60, 96, 24), (200, 64, 32)])
def test_it_recommends_the_fewest_heads_near_the_least_budget(edges, m, d, multiple):
    heads = (1, 2, 3, 4, 6, 8, 12, 16)
    budgets = {}
    for h in heads:
        fitting = [k for k in range(multiple, d + 1, multiple) if _enough(edges, m, d, h, h, k)]
        if fitting:
            budgets[h] = h * min(fitting)
    made = plan(edges, m, d, num_heads=heads, head_dim_multiple=multiple)
    assert {row.num_heads: row.total_key_dim for row in made.rows if row.head_dim} == budgets
    best = min(h for h, budget in budgets.items() if budget <= SLACK * min(budgets.values()))
    assert made.choice is not None
    assert (made.choice.num_heads, made.choice.num_heads * made.choice.head_dim) == (best, budgets[best])
    assert made.choice.num_kv_heads == best
    assert made.choice.cache_dims == 2 * budgets[best]


@pytest.mark.parametrize("limit", [12, 16, 24, 40, 400])
def test_keys_are_shared_as_little_as_the_cache_allows(limit):
    edges, m, d, heads = 96, 96, 16, (2, 3, 4, 6, 8)
    budgets, groups = {}, {}
    for h in heads:
        for g, k in itertools.product([g for g in range(h, 0, -1) if h % g == 0], range(1, d + 1)):
            if 2 * g * k <= limit and _enough(edges, m, d, h, g, k):
                budgets[h], groups[h] = h * k, g
                break
    made = plan(edges, m, d, cache_dims=limit, num_heads=heads)
    if not budgets:
        assert made.choice is None
        assert any(said.startswith("cache") for said in made.limits)
        return
    best = min(h for h, budget in budgets.items() if budget <= SLACK * min(budgets.values()))
    assert made.choice is not None
    assert made.choice.num_heads == best
    assert made.choice.num_kv_heads == groups[best]
    assert made.choice.num_heads * made.choice.head_dim == budgets[best]
    assert (
        made.choice.cache_dims
        == cached_dims(groups[best], made.choice.head_dim, made.choice.head_dim)
        <= limit
    )


def test_the_cache_limits_were_not_all_alike():
    found = [plan(96, 96, 16, cache_dims=limit, num_heads=(2, 3, 4, 6, 8)).choice for limit in (12, 24, 400)]
    assert len({None if choice is None else choice.num_kv_heads / choice.num_heads for choice in found}) == 3


def test_a_latent_of_that_size_has_the_parameters():
    choice = plan(96, 96, 16).choice
    assert choice is not None
    assert choice.latent_dim is not None
    own = parameter_count_total_key_dim(96, 96, 16, choice.num_heads) / choice.num_heads
    needed = choice.num_heads * own * (32 - own)
    sizes = 16, choice.num_heads, choice.head_dim
    assert latent_parameters(*sizes, choice.latent_dim) >= needed
    assert latent_parameters(*sizes, choice.latent_dim - 1) < needed


def test_one_head_is_not_enough_whatever_its_size():
    made = plan(96, 96, 16, num_heads=(1,))
    assert made.choice is None
    assert made.window == (None, None)
    assert made.rows[0].partition == made.rows[0].law == math.inf
    assert made.limits[0].startswith("rank")


def test_a_head_size_that_cannot_be_had_is_named():
    made = plan(100, 100, 64, head_dim_multiple=1000)
    assert made.window != (None, None)
    assert made.choice is None
    assert [said for said in made.limits if said.startswith("head size")]


def test_many_heads_are_limited_by_the_theorem():
    made = plan(96, 96, 16, num_heads=(32,))
    assert made.rows[0].theorem == 64.0
    assert made.rows[0].partition < 64.0
    assert made.choice is not None
    assert made.choice.head_dim == 2
    assert any(said.startswith("theorem") for said in made.limits)


def test_head_counts_that_hold_every_edge_in_one_dimension_may():
    assert plan(8, 96, 16, num_heads=(4,)).rows[0].theorem < 8


def test_rows_are_the_bounds():
    row = plan(500, 300, 40, num_heads=(5,)).rows[0]
    assert row.partition == partition_total_key_dim(300, 500, 40, 5)
    assert row.law == parameter_count_total_key_dim(300, 500, 40, 5)


def test_what_is_recommended_was_recovered_by_joint_training():
    data = json.loads(CAPACITY.read_text("utf-8"))
    measured = {
        row["num_heads"]: row["ci_high"]
        for row in records(data, "transitions")
        if (row["num_items"], row["d_model"], row["embedding"], row["graph"], row["trainer"])
        == (96, 16, "gaussian", "permutation", "joint")
        and row["status"] == "reached"
    }
    choice = plan(96, 96, 16, num_heads=tuple(measured)).choice
    assert choice is not None
    assert choice.num_heads * choice.head_dim >= measured[choice.num_heads]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"num_relations": 0}, "num_relations: expected"),
        ({"num_items": 1}, "num_items"),
        ({"num_relations": 96 * 95 + 1}, "num_relations: expected"),
        ({"d_model": 0}, "d_model"),
        ({"cache_dims": 0}, "cache_dims"),
        ({"num_heads": ()}, "num_heads"),
        ({"num_heads": (0,)}, "num_heads"),
        ({"head_dim_multiple": 0}, "head_dim_multiple"),
    ],
)
def test_sizes_out_of_range_are_refused(arguments, named):
    sizes = {"num_relations": 96, "num_items": 96, "d_model": 16}
    with pytest.raises(ValueError, match=named):
        plan(**(sizes | arguments))
