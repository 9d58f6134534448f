"""Estimates for heads that choose their edges, and Gordon's bound: Monte-Carlo, limits, direction."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog, minimize_scalar

from theory.bounds import (
    first_moment_requirement,
    first_moment_total_key_dim,
    gordon_total_key_dim,
    max_of_heads_requirement,
    max_of_heads_total_key_dim,
    owning_probability,
    partition_total_key_dim,
    width_requirement,
)
from theory.bounds.free_choice import lifting_cost, log_held_probability
from theory.bounds.gordon import owning_distance
from theory.bounds.greedy import choosing_requirement

DRAWS = 200_000


@pytest.mark.parametrize(("tau", "heads"), [(1.7, 1), (1.7, 3), (0.4, 5), (-0.6, 2)])
def test_lifting_costs_what_monte_carlo_says(tau, heads):
    z = np.random.default_rng(heads).standard_normal((DRAWS, heads)).max(axis=1)
    squares = np.maximum(tau - z, 0) ** 2
    error = squares.std() / np.sqrt(DRAWS)
    assert abs(lifting_cost(tau, heads) - squares.mean()) < 4 * error


def test_one_head_has_nothing_to_choose():
    for m, edges in ((12, 12), (96, 96), (40, 80)):
        whole = width_requirement(edges, m * m - edges)
        assert max_of_heads_requirement(m, edges, 1) == pytest.approx(whole, rel=1e-8)
        assert first_moment_requirement(m, edges, 1) == pytest.approx(whole, rel=1e-8)


def test_choosing_saves_and_more_heads_save_more():
    for m, d in ((96, 16), (192, 24)):
        for estimate in (max_of_heads_total_key_dim, first_moment_total_key_dim):
            budgets = [estimate(m, m, d, h) for h in (2, 3, 4, 8)]
            assert all(
                b < partition_total_key_dim(m, m, d, h) for b, h in zip(budgets, (2, 3, 4, 8), strict=True)
            )
            assert budgets == sorted(budgets, reverse=True)
    needs = [max_of_heads_requirement(96, 96, h) for h in (1, 2, 3, 4, 8)]
    assert needs == sorted(needs, reverse=True)


def test_requirement_of_the_maximum_is_the_minimum_over_thresholds():
    """By sampling both expectations at one set of draws, minimised over tau."""
    z = np.random.default_rng(3).standard_normal((DRAWS, 3))

    def cost(tau):
        lifted = np.maximum(tau - z.max(axis=1), 0) ** 2
        pushed = np.maximum(z - tau, 0) ** 2
        return 30 / 3 * lifted.mean() + 870 * pushed.mean()

    found: Any = minimize_scalar(cost, bounds=(0, 4), method="bounded")
    sampled = found.fun
    assert max_of_heads_requirement(30, 30, 3) == pytest.approx(sampled, rel=0.02)


def test_log_probability_against_subspaces_that_meet_the_cone():
    """Full-rank perceptrons with a free threshold decide exactly; the exponent is right to its leading order."""
    rng = np.random.default_rng(5)
    n, p, q, draws = 4, 5, 15, 300
    held = 0
    for _ in range(draws):
        patterns = np.concatenate([rng.standard_normal((p, n)), -rng.standard_normal((q, n))])
        signs = np.concatenate([np.ones(p), -np.ones(q)])
        rows = -np.concatenate([patterns, -signs[:, None]], axis=1)
        held += linprog(np.zeros(n + 1), A_ub=rows, b_ub=-np.ones(p + q), bounds=(None, None)).status == 0
    measured = np.log(held / draws)
    predicted = log_held_probability(float(n), float(p), float(q))
    whole = width_requirement(p, q)
    assert log_held_probability(whole, float(p), float(q)) == pytest.approx(0, abs=1e-4)
    assert predicted < -0.3
    # Chernoff is an upper bound on the exponent up to the factor in front, which is below 1 and not tiny.
    assert predicted - 2.5 < measured < predicted + 0.3


def test_distance_to_owning_is_the_least_over_sets_and_thresholds():
    rng = np.random.default_rng(0)
    edges, others = rng.standard_normal((4, 5)), rng.standard_normal((4, 12))
    found = owning_distance(edges, others, 3)
    for row in range(4):
        best = np.inf
        for own in combinations(range(5), 3):

            def cost(tau, row=row, own=own):
                lifted = np.maximum(tau - edges[row, list(own)], 0)
                return (lifted**2).sum() + (np.maximum(others[row] - tau, 0) ** 2).sum()

            least: Any = minimize_scalar(cost, bounds=(-4, 4), method="bounded")
            best = min(best, least.fun)
        assert found[row] ** 2 == pytest.approx(best, rel=1e-6, abs=1e-8)


def test_mean_distance_is_the_choosing_requirement_of_many_edges():
    """`choosing_requirement` is the limit of the squared distance: here 60 edges, of which half are owned."""
    rng = np.random.default_rng(1)
    distances = owning_distance(rng.standard_normal((400, 60)), rng.standard_normal((400, 3540)), 30)
    assert (distances**2).mean() == pytest.approx(choosing_requirement(60.0, 3540.0, 0.0), rel=0.03)


def test_gaussian_features_obey_the_bound():
    """Direction: heads of full rank on Gaussian features own ``p`` edges no oftener than the bound says."""
    m, d, own, draws = 4, 2, 2, 60
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(draws):
        features = rng.standard_normal((m * m, d * d))
        others = np.concatenate([features[m:], -np.ones((m * m - m, 1))], axis=1)
        for pair in combinations(range(m), own):
            mine = np.concatenate([features[list(pair)], -np.ones((own, 1))], axis=1)
            rows = np.concatenate([-mine, others])
            if (
                linprog(np.zeros(d * d + 1), A_ub=rows, b_ub=-np.ones(len(rows)), bounds=(None, None)).status
                == 0
            ):
                held += 1
                break
    bound = owning_probability(m, m, d, d, own)
    assert held / draws <= bound + 3 * np.sqrt(0.25 / draws)


def test_gordon_bound_at_known_places():
    assert gordon_total_key_dim(48, 48, 8, 1) == np.inf  # the ceiling is near 23 items
    assert gordon_total_key_dim(12, 12, 8, 1) < 8
    # It is never above what it relaxes to: a share of the edges that the head did not choose.
    for h in (2, 3):
        budget = gordon_total_key_dim(32, 32, 8, h)
        assert h <= budget <= h * np.ceil(partition_total_key_dim(32, 32, 8, h) / h)
        if budget > h:
            assert owning_probability(32, 32, 8, budget / h - 1, -(-32 // h)) <= 0.5
        assert owning_probability(32, 32, 8, budget / h, -(-32 // h)) > 0.5
    assert gordon_total_key_dim(32, 32, 8, 2) > 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: max_of_heads_requirement(1, 1, 1), "num_items: expected"),
        (lambda: first_moment_requirement(5, 21, 1), "num_edges: expected at most"),
        (lambda: owning_probability(5, 5, 2, 1, 6), "own: expected at most"),
        (lambda: gordon_total_key_dim(5, 5, 2, 1, 1.0), "probability: expected"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
