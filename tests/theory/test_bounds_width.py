"""Gaussian width of low-rank matrices and the edges a head holds by it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from theory.bounds import held_edges, matrix_width, width_requirement
from theory.bounds.width import MONTE_CARLO_MAX_D_MODEL, asymptotic_width


def fresh_width(d_model, num_draws, seed):
    """Mean and standard error by plain singular values, without the scaling of the implementation."""
    matrices = np.random.default_rng(seed).standard_normal((num_draws, d_model, d_model))
    partial = np.cumsum(np.linalg.svd(matrices, compute_uv=False) ** 2, axis=1)
    return partial.mean(axis=0), partial.std(axis=0) / math.sqrt(num_draws)


@pytest.mark.parametrize(
    ("d_model", "num_draws"), [(2, 20000), (5, 10000), (16, 4000), (31, 1000), (64, 400)]
)
def test_width_equals_monte_carlo(d_model, num_draws):
    mean, error = fresh_width(d_model, num_draws, 1)
    ours = matrix_width(d_model, np.arange(1, d_model + 1))
    # Both sides have an error; ours is that of 8192 draws.
    own = error * math.sqrt(num_draws / 8192)
    assert np.all(np.abs(ours - mean) < 4 * np.hypot(error, own))


@pytest.mark.slow
def test_width_beyond_the_crossover_equals_monte_carlo():
    mean, error = fresh_width(128, 400, 2)
    ours = matrix_width(128, np.arange(1, 129))
    assert np.all(np.abs(ours - mean) < 4 * error + 2e-4 * mean)


def test_width_of_two_by_two_in_closed_form():
    # sigma_1^2 - sigma_2^2 has mean E sqrt(A B) * 2 with A, B chi-square of 2: (|F|^4 - 4 det^2)^(1/2).
    # In terms of the rotation-like and reflection-like parts, sigma_1,2 = (a +- b) / sqrt(2), both Rayleigh:
    # E sigma_1^2 = (E a^2 + E b^2) / 2 + E a E b = 2 + pi / 2.
    assert matrix_width(2, 1) == pytest.approx(2 + math.pi / 2, rel=4e-3)


def test_width_is_exact_at_full_rank_and_constant_beyond():
    d = np.array([1, 2, 3, 16, 32, 33, 64, 768])
    np.testing.assert_array_equal(matrix_width(d, d), d**2)
    np.testing.assert_array_equal(matrix_width(d, 2.5 * d), d**2)
    assert matrix_width(1, 0.25) == 0.25


def test_expansion_agrees_with_monte_carlo_at_the_crossover_away_from_the_edge():
    d = MONTE_CARLO_MAX_D_MODEL
    table, expansion = matrix_width(d, np.arange(1, d + 1)), asymptotic_width(d)[1:]
    np.testing.assert_allclose(expansion[d // 2 :], table[d // 2 :], rtol=1.5e-3)
    np.testing.assert_allclose(expansion, table, rtol=0.02)
    # Without the correction of order d the middle is low by 0.3%, more than the tolerance above.
    assert matrix_width(d + 1, 1) / matrix_width(d, 1) == pytest.approx((d + 1) / d, rel=5e-3)


def test_expansion_approaches_its_leading_term():
    # a = pi/4: k/d = 1/2 - 1/pi, w2/d^2 = 1/2.
    d = 40000
    k = d * (0.5 - 1 / math.pi)
    assert matrix_width(d, k) / d**2 == pytest.approx(0.5, abs=1 / d)


@pytest.mark.parametrize("d_model", [1, 2, 16, 32, 33, 48, 200, 1024])
def test_width_increases_and_is_concave(d_model):
    steps = np.diff(np.r_[0.0, matrix_width(d_model, np.arange(1, d_model + 1))])
    assert np.all(steps > 0)
    assert np.all(np.diff(steps) < 0)


@given(d=st.sampled_from([7, 16, 48]), k=st.floats(0.01, 50), step=st.floats(1e-6, 1))
@settings(deadline=None, max_examples=50)
def test_width_is_strictly_increasing_and_continuous_in_head_dim(d, k, step):
    low, high = matrix_width(d, k), matrix_width(d, k + step)
    assert high - low <= matrix_width(d, 1) * step * (1 + 1e-6)
    if k + step <= d:
        assert high > low
    else:
        assert high == d**2


def test_held_edges_at_known_sizes():
    held = held_edges(96, 16, np.arange(1, 7))
    np.testing.assert_allclose(held, [6.1, 12.3, 17.9, 22.7, 26.9, 30.3], rtol=0.008)
    np.testing.assert_allclose(
        width_requirement(held, 96 * 95), matrix_width(16, np.arange(1, 7)), rtol=1e-12
    )


def test_held_edges_end_with_the_permutation():
    assert held_edges(23, 16, 16) == 23
    assert held_edges(96, 16, 16) < 96
    assert held_edges(96, 16, 20) == held_edges(96, 16, 16)


@given(m=st.integers(2, 400), d=st.sampled_from([2, 16, 48]), k=st.floats(0.1, 50))
@settings(deadline=None, max_examples=30)
def test_held_edges_grow_with_head_dim_and_fall_with_items(m, d, k):
    held = held_edges(m, d, k)
    assert 0 < held <= m
    assert held_edges(m, d, 1.1 * k) >= held
    if held < m:
        assert held_edges(m + 1, d, k) < held
