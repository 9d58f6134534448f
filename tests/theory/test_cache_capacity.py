"""What shared keys are predicted to hold: widths against Monte-Carlo, parameters against ranks, limits, inverses."""

import itertools
import math

import numpy as np
import pytest

from theory.bounds import (
    matrix_width,
    parameter_count_total_key_dim,
    partition_total_key_dim,
    single_head_max_items,
    width_requirement,
)
from theory.cache_capacity import (
    cached_dims,
    latent_cache_dims,
    latent_dim_of_parameters,
    latent_max_items,
    latent_parameter_cache_dims,
    latent_parameters,
    latent_width,
    shared_key_cache_dims,
    shared_key_head_dim,
    shared_key_max_items,
    shared_key_parameter_cache_dims,
    shared_key_parameters,
    shared_key_width,
)
from theory.cache_capacity.widths import asymptotic_group_width, best_subspace_width


def stacked(d_model, group, num_draws, seed):
    """Mean and standard error of a head's width by plain singular values of the stack."""
    stack = np.random.default_rng(seed).standard_normal((num_draws, group * d_model, d_model))
    partial = np.cumsum(np.linalg.svd(stack, compute_uv=False) ** 2, axis=1) / group
    return partial.mean(axis=0), partial.std(axis=0) / math.sqrt(num_draws)


@pytest.mark.parametrize(
    ("d_model", "group", "num_draws"), [(2, 3, 20000), (5, 2, 10000), (11, 8, 2000), (64, 4, 100)]
)
def test_width_of_a_group_equals_monte_carlo(d_model, group, num_draws):
    mean, error = stacked(d_model, group, num_draws, 1)
    ours = shared_key_width(d_model, 3 * group, 3, np.arange(1, d_model + 1))
    # Ours has the error of 4096 draws, less what their scaling takes away.
    assert np.all(np.abs(ours - mean) < 4 * np.hypot(error, error * math.sqrt(num_draws / 4096)))


def test_expansion_meets_monte_carlo_where_it_takes_over():
    for group in (2, 7):
        table = shared_key_width(32, group, 1, np.arange(1, 33))
        np.testing.assert_allclose(asymptotic_group_width(32, group)[1:], table, rtol=0.012)
    # With one head it is the expansion of the width of matrices, whose own terms are tested beside it.
    ours, theirs = asymptotic_group_width(200, 1), np.r_[0.0, matrix_width(200, np.arange(1, 201))]
    np.testing.assert_allclose(ours[40:], theirs[40:], rtol=1e-6)


@pytest.mark.parametrize("d_model", [7, 48])
def test_width_of_groups_at_its_limits_and_in_order(d_model):
    k = np.arange(1, d_model + 1)
    np.testing.assert_array_equal(shared_key_width(d_model, 6, 6, k), matrix_width(d_model, k))
    assert shared_key_width(d_model, 6, 2, d_model) == d_model**2
    assert shared_key_width(d_model, 6, 2, 2.0 * d_model) == d_model**2
    by_sharing = np.array([shared_key_width(d_model, 12, g, k) for g in (12, 6, 4, 2, 1)])
    assert np.all(np.diff(by_sharing[:, :-1], axis=0) < 0)  # per head and key dimension sharing costs width
    assert np.all(np.diff(by_sharing, axis=1) > 0)
    # A key dimension that cannot adapt to its heads is worth d: what infinitely many heads have.
    np.testing.assert_allclose(shared_key_width(d_model, 10**6, 1, k), d_model * k, rtol=0.01)
    assert np.all(by_sharing[:, :-1] > d_model * k[:-1])


def test_width_at_equal_cache_grows_with_sharing():
    # The theorem that one design contains the other, seen in the widths.
    d_model, heads, cache = 16, 8, 8
    one_group = [float(shared_key_width(d_model, heads, g, cache / g)) for g in (8, 4, 2, 1)]
    assert np.all(np.diff(one_group) > 0)
    for g in (2, 4):
        latent = latent_width(d_model, heads, cache // g, cache)
        assert shared_key_width(d_model, heads, g, cache / g) < latent
        assert latent < shared_key_width(d_model, heads, 1, cache)


def test_width_of_latents_at_its_limits_and_in_order():
    d_model, heads, head_dim = 11, 3, 2
    latents = np.arange(1, d_model + 1)
    ours = np.array([latent_width(d_model, heads, head_dim, c) for c in latents])
    one_group = np.asarray(shared_key_width(d_model, heads, 1, np.minimum(latents, head_dim)))
    np.testing.assert_array_equal(ours[:head_dim], one_group[:head_dim])
    own = matrix_width(d_model, head_dim)
    np.testing.assert_array_equal(ours[heads * head_dim - 1 :], own)
    assert np.all(np.diff(ours[: heads * head_dim]) > 0)
    # Between, random projections are a lower bound, heads with own keys an upper one.
    c = 4
    rng = np.random.default_rng(2)
    random = np.linalg.svd(rng.standard_normal((4000, d_model, c)), compute_uv=False)[:, :head_dim] ** 2
    assert random.sum(axis=1).mean() < latent_width(d_model, heads, head_dim, c) < own
    assert latent_width(d_model, heads, head_dim, 4.5) == pytest.approx((ours[3] + ours[4]) / 2)


def test_width_of_latents_equals_a_search_over_all_planes():
    # d = 3, d_c = 2: planes are normals on the half sphere, which a grid covers.
    rng = np.random.default_rng(3)
    matrices = rng.standard_normal((6, 4, 3, 3))
    found = best_subspace_width(matrices, 1, 2)
    azimuth, height = np.meshgrid(np.linspace(0, 2 * np.pi, 161), np.linspace(0, 1, 81))
    radius = np.sqrt(1 - height**2)
    normals = np.stack([radius * np.cos(azimuth), radius * np.sin(azimuth), height], axis=-1).reshape(-1, 3)
    away = np.eye(3) - normals[:, :, None] * normals[:, None, :]
    for draw, value in zip(matrices, found, strict=True):
        images = draw[None] @ away[:, None]
        top = np.linalg.norm(images, ord=2, axis=(2, 3)) ** 2
        best = top.mean(axis=1).max()
        assert best * (1 - 1e-9) <= value * (1 + 2e-3)  # no plane of the grid is better
        assert value <= best * (1 + 2e-3)


@pytest.mark.slow
def test_large_latents_are_a_smaller_problem_scaled():
    ours = latent_width(72, 3, 6, 12)
    rng = np.random.default_rng(4)
    fresh = best_subspace_width(rng.standard_normal((4, 3, 72, 72)), 6, 12).mean()
    assert ours == pytest.approx(fresh, rel=0.02)


def jacobian_rank(make, sizes, seed):
    """Rank of the map from factors to (M_1, ..., M_h), by its derivative in random directions, all of them."""
    rng = np.random.default_rng(seed)
    factors = [rng.standard_normal(size) for size in sizes]
    columns = []
    for index, factor in enumerate(factors):
        for place in np.ndindex(factor.shape):
            moved = [f.copy() for f in factors]
            moved[index] = np.zeros_like(factor)
            moved[index][place] = 1.0
            columns.append(make(moved).ravel())  # linear in every factor
    return np.linalg.matrix_rank(np.array(columns))


@pytest.mark.parametrize(
    ("heads", "kv_heads", "d_model", "head_dim"), [(4, 2, 5, 3), (3, 1, 5, 2), (2, 2, 5, 3), (2, 1, 3, 3)]
)
def test_parameters_of_shared_keys_are_the_rank_of_a_jacobian(heads, kv_heads, d_model, head_dim):
    def make(factors):
        keys = np.repeat(factors[1], heads // kv_heads, axis=0)
        return factors[0] @ np.swapaxes(keys, 1, 2)

    sizes = (heads, d_model, head_dim), (kv_heads, d_model, head_dim)
    counted = shared_key_parameters(d_model, heads, kv_heads, head_dim)
    assert jacobian_rank(make, sizes, 5) == counted


@pytest.mark.parametrize(
    ("heads", "d_model", "head_dim", "latent_dim"),
    [(3, 5, 2, 3), (2, 5, 2, 4), (3, 5, 2, 5), (2, 7, 2, 5), (3, 5, 3, 2)],
)
def test_parameters_of_latents_are_the_rank_of_a_jacobian(heads, d_model, head_dim, latent_dim):
    def make(factors):
        query, up, down = factors
        return query @ np.swapaxes(down @ up, 1, 2)

    sizes = (heads, d_model, head_dim), (heads, latent_dim, head_dim), (d_model, latent_dim)
    assert jacobian_rank(make, sizes, 6) == latent_parameters(d_model, heads, head_dim, latent_dim)


def test_predictions_at_their_limits():
    size = 96, 96, 16, 4
    assert shared_key_cache_dims(*size, 4) == pytest.approx(partition_total_key_dim(*size), rel=1e-12)
    law = parameter_count_total_key_dim(*size)
    assert shared_key_parameter_cache_dims(*size, 4) == pytest.approx(law, rel=1e-12)
    one_group = shared_key_cache_dims(*size, 1)
    assert latent_cache_dims(*size, 16) == pytest.approx(one_group, rel=1e-12)  # d_k >= d_c
    assert latent_parameter_cache_dims(*size, 16) == pytest.approx(
        shared_key_parameter_cache_dims(*size, 1), rel=1e-9
    )
    own_head_dim = partition_total_key_dim(*size) / 4
    assert latent_cache_dims(*size, math.floor(own_head_dim)) == math.inf
    least = latent_cache_dims(*size, math.ceil(own_head_dim))
    assert one_group < least <= 16
    assert shared_key_cache_dims(200, 200, 16, 4, 1) == math.inf  # as with heads of their own
    assert partition_total_key_dim(200, 200, 16, 4) == math.inf


def test_sharing_keys_saves_cache_and_costs_parameters():
    groups = np.array([8, 4, 2, 1])
    cache = shared_key_cache_dims(96, 96, 16, 8, groups)
    assert np.all(np.diff(cache) < 0)
    assert np.all(np.diff(shared_key_parameters(16, 8, groups, cache / groups)) > 0)
    # The share of its width that one key head needs is the same as that of several: n_h is fixed by h alone.
    needed = width_requirement(96 / 8, 96 * 95)
    np.testing.assert_allclose(shared_key_width(16, 8, groups, cache / groups), needed, rtol=1e-12)


@pytest.mark.parametrize(("kv_heads", "items"), [*itertools.product((1, 2, 6), (31, 47))])
def test_items_that_a_cache_holds_are_the_inverse(kv_heads, items):
    cache = shared_key_cache_dims(items, items, 12, 6, kv_heads)
    assert shared_key_max_items(12, 6, kv_heads, cache) == pytest.approx(items, rel=1e-9)
    latent = latent_cache_dims(items, items, 12, 6, 4)
    assert latent_max_items(12, 6, 4, latent) == pytest.approx(items, rel=1e-9)


def test_budgets_of_parameters_are_spent():
    for g in (1, 2, 4):
        head_dim = shared_key_head_dim(16, 4, g, 300)
        assert shared_key_parameters(16, 4, g, head_dim) == pytest.approx(300)
        assert shared_key_head_dim(16, 4, g, 5000) == 16
    latent = latent_dim_of_parameters(16, 4, 3, 250)
    assert latent_parameters(16, 4, 3, latent) == pytest.approx(250)
    assert latent_dim_of_parameters(16, 4, 3, 5000) == 12
    assert shared_key_max_items(16, 1, 1, 16) == pytest.approx(single_head_max_items(16), rel=1e-9)


def test_cached_dims():
    assert cached_dims(8, 128) == 1024
    assert cached_dims(8, 128, 128) == 2048
    np.testing.assert_array_equal(cached_dims(np.array([1, 2]), 3, 5), [8, 16])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: shared_key_width(16, 4, 3, 2), "num_kv_heads: expected a divisor of num_heads = 4, got 3"),
        (lambda: shared_key_cache_dims(96, 96, 16, 4, 8), "num_kv_heads: expected a divisor"),
        (lambda: shared_key_parameters(16, 4, 0, 2), "num_kv_heads: expected a positive integer, got 0"),
        (lambda: latent_width(16, 4, 2.5, 3), "head_dim: expected a positive integer, got 2.5"),
        (lambda: latent_cache_dims(96, 96, 16, 4, 0), "head_dim: expected a positive integer, got 0"),
        (lambda: shared_key_head_dim(16, 4, 2, -1.0), "num_parameters: expected a positive finite number"),
        (lambda: cached_dims(2, 4, -1), "value_head_dim: expected a finite number of at least 0"),
        (lambda: latent_max_items(16, np.ones(3), np.ones(2), 4), "expected shapes that broadcast"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
