"""Exact minima at small sizes: against certificates, brute force and trainers."""

from itertools import combinations

import numpy as np
import pytest

from theory.bounds import one_dimensional_cap
from theory.certificates import certify_head
from theory.minima import (
    Bracket,
    full_rank_sets,
    least_cover,
    least_one_dimensional_heads,
)
from theory.problems import make_problem
from theory.training import train_greedy


def problem(m, d, seed):
    found = make_problem(
        num_items=m, num_edges=m, d_model=d, embedding="gaussian", graph="permutation", seed=seed
    )
    return found.embeddings, found.graph.adjacency()


@pytest.mark.parametrize(("m", "d", "seed"), [(5, 2, 0), (6, 2, 1), (7, 3, 2)])
def test_ownable_sets_are_those_that_certificates_prove(m, d, seed):
    items, adjacency = problem(m, d, seed)
    sets = full_rank_sets(items, adjacency)
    edges = np.argwhere(adjacency)
    assert sets.undecided == 0
    verdicts = set()
    for mask in range(1, 2**m):
        own = np.zeros_like(adjacency)
        own[tuple(edges[[i for i in range(m) if mask >> i & 1]].T)] = True
        verdict = certify_head(items, own, ~adjacency).verdict
        verdicts.add(verdict)
        assert verdict in ("undecided", "separable" if sets.ownable[mask] else "inseparable")
    assert {"separable", "inseparable"} <= verdicts
    assert sets.programs < 2**m - 1  # most follow from others


def test_least_cover_by_hand():
    def closed(*sets):
        family = np.zeros(8, bool)
        for s in sets:
            family[[t for t in range(8) if t & ~s == 0]] = True
        return family

    assert least_cover(closed(0b111)) == 1
    assert least_cover(closed(0b011, 0b110)) == 2
    assert least_cover(closed(0b001, 0b010, 0b100)) == 3
    assert least_cover(closed(0b011)) is None


def test_no_channel_beats_the_exact_minimum():
    """Convex greedy heads, which trainers are free to choose, need at least as many."""
    for seed in range(3):
        items, adjacency = problem(9, 3, seed)
        sets = full_rank_sets(items, adjacency)
        least = least_cover(sets.ownable)
        assert not sets.undecided
        assert least is not None
        held = [
            train_greedy(items[None], adjacency[None], num_heads=h, head_dim=3, seeds=[seed])[0].loss == 0
            for h in range(1, 10)
        ]
        assert least <= 1 + held.index(True) <= least + 1


def _owns(items, adjacency, pair, w, y):
    scores = np.outer(items @ w, items @ y)
    return min(scores[u, v] for u, v in pair) > scores[~adjacency].max()


def test_pairs_of_one_dimension_against_search():
    """What random directions own must count as possible: the lower end is none of a search that missed."""
    rng = np.random.default_rng(0)
    for seed in (0, 1):
        items, adjacency = problem(5, 2, seed)
        edges = [tuple(map(int, edge)) for edge in np.argwhere(adjacency)]
        owned = set()
        for _ in range(3000):
            w, y = rng.standard_normal((2, 2))
            owned |= {
                p for p in combinations(range(5), 2) if _owns(items, adjacency, [edges[i] for i in p], w, y)
            }
        found = 5
        for first in owned:
            found = min(found, 4)
            if any(not set(first) & set(other) for other in owned):
                found = 3
        bracket = least_one_dimensional_heads(items, adjacency)
        assert bracket.low <= found
        assert bracket.low >= -(-5 // one_dimensional_cap(1))
        assert bracket.low <= bracket.high <= 5


def test_one_dimension_where_items_are_orthonormal():
    """Directions x_u - x_s exist for all pairs: two edges a head, three heads for six edges."""
    items = np.eye(6)
    adjacency = np.roll(np.eye(6, dtype=bool), 1, axis=1)
    assert least_one_dimensional_heads(items, adjacency) == Bracket(3, 3)
    assert least_cover(full_rank_sets(items, adjacency).ownable) == 1


def test_mistakes_are_named():
    items = np.eye(16)
    with pytest.raises(ValueError, match="adjacency: expected 1 to 14 edges"):
        full_rank_sets(items, np.roll(np.eye(16, dtype=bool), 1, axis=1))
    with pytest.raises(ValueError, match="adjacency: expected a permutation"):
        least_one_dimensional_heads(items[:3, :3], np.eye(3, dtype=bool)[:, [1, 0, 0]])
    with pytest.raises(ValueError, match="embeddings: expected rows of unit norm"):
        least_one_dimensional_heads(2 * np.eye(3), np.roll(np.eye(3, dtype=bool), 1, axis=1))
