"""Heads of a given size, one head against many, and heads that are given their edges."""

import math

import numpy as np
import pytest

from theory.bounds import held_edges, matrix_width, single_head_max_items, width_requirement
from theory.head_size import gain, gain_boundary, heads_by_parameters, heads_of_size, partition_budget
from theory.own_edges import holds_own_edges
from theory.problems import make_problem
from theory.training import GreedyOptions


@pytest.mark.parametrize(("m", "edges", "d", "k"), [(96, 96, 16, 2), (64, 512, 16, 3), (240, 240, 48, 1)])
def test_a_heads_share_takes_all_of_its_width(m, edges, d, k):
    share = edges / heads_of_size(m, edges, d, k)
    assert width_requirement(share, m * m - edges) == pytest.approx(matrix_width(d, k), rel=1e-9)
    share = edges / heads_by_parameters(m, edges, d, k)
    assert width_requirement(share, m * m - edges) == pytest.approx(k * (2 * d - k), rel=1e-9)


def test_heads_of_a_permutation_hold_what_held_edges_says():
    assert 96 / heads_of_size(96, 96, 16, 2) == pytest.approx(held_edges(96, 16, 2), rel=1e-9)
    assert heads_of_size(24, 24, 48, 4) == 1.0


def test_the_budget_is_the_least_of_all_head_counts():
    budget, heads = partition_budget(96, 96, 16)
    by_size = [k * heads_of_size(96, 96, 16, k) for k in range(2, 17)]
    # The head count is whole in one, the head size in the other: each relaxes what the other holds to.
    assert budget == pytest.approx(min(by_size), rel=0.05)
    assert 2 <= heads <= 8
    assert budget / heads >= 2


def test_one_head_is_as_good_as_many_far_below_the_ceiling_and_impossible_above():
    assert gain(17, 17, 16) == 1.0
    assert gain(51, 51, 16) > 1.1
    assert math.isinf(gain(58, 58, 16))
    for d in (8, 16, 24):
        boundary = gain_boundary(d, 1.1)
        assert boundary < single_head_max_items(d)
        assert gain(math.floor(boundary), math.floor(boundary), d) < 1.1
        assert gain(math.ceil(boundary), math.ceil(boundary), d) >= 1.1
    with pytest.raises(ValueError, match="least_gain: expected a number above 1"):
        gain_boundary(16, 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((8, 0, 4, 1), "num_edges"),
        ((8, 57, 4, 1), "num_edges"),
        ((8, 8, 0, 1), "d_model"),
        ((8, 8, 4, 0), "head_dim"),
    ],
)
def test_sizes_out_of_range_are_named(arguments, message):
    for function in (heads_of_size, heads_by_parameters):
        with pytest.raises(ValueError, match=message):
            function(*arguments)


def _batch(number):
    made = [
        make_problem(
            num_items=24, num_edges=24, d_model=12, embedding="gaussian", graph="permutation", seed=seed
        )
        for seed in range(number)
    ]
    return np.stack([p.embeddings for p in made]), np.stack([p.graph.adjacency() for p in made])


def test_a_one_dimensional_head_holds_two_edges_and_never_three():
    """Two by training, three excluded by a theorem."""
    items, edges = _batch(8)
    options = GreedyOptions(restarts=4)
    found = holds_own_edges(
        items, edges, head_dim=1, own_edges=[1, 2] * 2 + [3, 4] * 2, seeds=range(8), options=options
    )
    np.testing.assert_array_equal(found, [True] * 4 + [False] * 4)


def test_own_edges_are_counted():
    items, edges = _batch(2)
    for wrong in ([1], [0, 1], [1, 25]):
        with pytest.raises(ValueError, match="own_edges: expected 2 integers from 1 to 24"):
            holds_own_edges(items, edges, head_dim=2, own_edges=wrong, seeds=[0, 1])
