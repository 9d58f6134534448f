"""Many heads: fixed partitions, the parameter-count law, heads that choose, the window of head counts."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import minimize_scalar

from theory.bounds import (
    greedy_max_items,
    head_window,
    matrix_width,
    parameter_count_total_key_dim,
    partition_head_dim,
    partition_max_edges,
    partition_total_key_dim,
    single_head_max_items,
    width_requirement,
)
from theory.bounds.greedy import choosing_requirement, kept_moments


def density(z):
    return math.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def test_partition_at_known_sizes():
    heads = np.array([1, 2, 3, 4, 8, 16, 24])
    expected = [np.inf, np.inf, 19.8, 17.3, 15.7, 15.9, 17.0]
    np.testing.assert_allclose(partition_total_key_dim(96, 96, 16, heads), expected, rtol=0.008)
    np.testing.assert_allclose(
        partition_total_key_dim(192, 192, 24, np.array([3, 4, 6])), [30.7, 26.4, 24.2], rtol=0.01
    )
    assert partition_head_dim(256, 256, 64, 1) == pytest.approx(8.7, rel=0.005)
    assert partition_total_key_dim(160, 160, 16, 4) == np.inf


def test_parameter_count_at_known_sizes():
    heads = np.array([2, 3, 4, 8, 16, 24])
    expected = [np.inf, 28.0, 26.6, 26.9, 28.7, 30.2]
    np.testing.assert_allclose(parameter_count_total_key_dim(96, 96, 16, heads), expected, atol=0.05)
    assert parameter_count_total_key_dim(256, 256, 64, 1) == pytest.approx(14.6, abs=0.05)


@given(m=st.integers(5, 300), share=st.floats(0.01, 1), d=st.sampled_from([5, 16, 48]), h=st.integers(1, 23))
@settings(deadline=None, max_examples=50)
def test_partition_meets_its_requirement(m, share, d, h):
    edges = max(1, round(share * m))
    needed = width_requirement(edges / h, m * m - edges)
    head_dim = partition_head_dim(m, edges, d, h)
    law = parameter_count_total_key_dim(m, edges, d, h) / h
    assert partition_total_key_dim(m, edges, d, h) == h * head_dim
    if needed > d * d:
        assert head_dim == law == np.inf
    else:
        assert 0 < head_dim <= law <= d * (1 + 1e-12)  # a dimension is worth more width than parameters
        assert matrix_width(d, head_dim) == pytest.approx(needed, rel=1e-10)
        assert law * (2 * d - law) == pytest.approx(needed, rel=1e-10)


@given(m=st.integers(5, 3000), d=st.sampled_from([5, 16, 48]), h=st.integers(1, 23), part=st.floats(0.01, 1))
@settings(deadline=None, max_examples=20)
def test_the_most_edges_are_those_whose_partition_just_fits(m, d, h, part):
    head_dim = part * d
    most = partition_max_edges(m, d, h, head_dim)
    whole = m * (m - 1)
    assert 0 < most <= whole
    width = matrix_width(d, head_dim)
    if most < whole:
        assert width_requirement(most / h, m * m - most) == pytest.approx(width, rel=1e-9)
        assert partition_head_dim(m, max(1, math.floor(most)), d, h) <= head_dim * (1 + 1e-9) or most < 1
        assert partition_head_dim(m, math.ceil(most), d, h) >= head_dim * (1 - 1e-9)
    else:
        shares = np.linspace(0.01, 1, 50) * whole
        assert np.all(width_requirement(shares / h, m * m - shares) <= width * (1 + 1e-9))


def test_the_most_edges_broadcast_and_grow_with_heads():
    found = partition_max_edges(96, 16, np.array([2, 4, 8]), 5)
    assert found.shape == (3,)
    assert (np.diff(found) > 0).all()
    assert partition_max_edges(9, 16, 4, 16) == 72.0  # every graph
    with pytest.raises(ValueError, match="num_items: expected an integer of at least 2"):
        partition_max_edges(1, 16, 4, 5)


def test_one_head_partition_fails_beyond_the_ceiling():
    ceiling = single_head_max_items(24)
    below, above = math.floor(ceiling), math.ceil(ceiling)
    assert partition_head_dim(below, below, 24, 1) <= 24
    assert partition_head_dim(above, above, 24, 1) == np.inf


@pytest.mark.parametrize(("cut", "tau"), [(-3.0, 1.0), (-0.5, 2.5), (0.7, 3.1), (1.9, 2.2)])
def test_partial_moments_equal_quadrature_and_monte_carlo(cut, tau):
    first = quad(lambda z: (tau - z) * density(z), cut, tau, epsrel=1e-12)[0]
    second = quad(lambda z: (tau - z) ** 2 * density(z), cut, tau, epsrel=1e-12)[0]
    assert kept_moments(cut, tau).first == pytest.approx(first, rel=1e-9)
    assert kept_moments(cut, tau).second == pytest.approx(second, rel=1e-9)
    z = np.random.default_rng(7).standard_normal(300_000)
    sample = np.where((z > cut) & (z < tau), (tau - z) ** 2, 0)
    assert sample.mean() == pytest.approx(second, abs=4 * sample.std() / math.sqrt(len(z)))


@pytest.mark.parametrize(
    ("left", "negative", "cut"), [(97.0, 9e3, -1.0), (113.0, 12656.0, 0.4), (11.0, 9e3, 1.3)]
)
def test_choosing_requirement_is_the_minimum_over_the_threshold(left, negative, cut):
    def cost(tau):
        above = quad(lambda z: (z - tau) ** 2 * density(z), tau, 30, epsrel=1e-11)[0]
        return left * kept_moments(cut, tau).second + negative * above

    best: Any = minimize_scalar(cost, bounds=(cut, 6), method="bounded", options={"xatol": 1e-8})
    assert choosing_requirement(left, negative, cut) == pytest.approx(best.fun, rel=1e-7)


def test_choosing_among_all_is_not_choosing():
    assert choosing_requirement(31.0, 930.0, -30.0) == pytest.approx(width_requirement(31, 930), rel=1e-12)


def test_greedy_ceilings():
    ceilings = greedy_max_items(16, np.array([1, 2, 3]))
    assert ceilings[0] == single_head_max_items(16)
    # Independent evaluation of the recursion on a grid of cuts, all edges kept at the end.
    np.testing.assert_allclose(ceilings[1:], [greedy_on_a_grid(16, h) for h in (2, 3)], rtol=2e-3)
    np.testing.assert_allclose(ceilings, [56.9, 113, 168], rtol=0.025)


def greedy_on_a_grid(d_model, num_heads):
    cuts, taus = np.linspace(-4, 3, 1401), np.linspace(-1, 5, 601)
    z = np.linspace(-8, 8, 3201)
    weight = np.exp(-z * z / 2) / np.exp(-z * z / 2).sum()
    above = (weight * np.maximum(z - taus[:, None], 0) ** 2).sum(axis=1)
    from_top = np.cumsum((weight * np.maximum(taus[:, None] - z, 0) ** 2)[:, ::-1], axis=1)[:, ::-1]
    kept = np.stack([np.interp(cuts, z, row) for row in from_top])  # (tau, cut)
    survival = np.interp(cuts, z, np.cumsum(weight[::-1])[::-1])

    def holds(items):
        left, negative = float(items), items * (items - 1.0)
        for _ in range(num_heads - 1):
            needed = (left * kept + negative * above[:, None]).min(axis=0)
            left -= left * np.interp(-(d_model**2), -needed, survival)
        return (left * from_top[:, 0] + negative * above).min() <= d_model**2

    low, high = 10.0, 1000.0
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def test_greedy_ceilings_increase_in_both_arguments():
    table = greedy_max_items(np.array([[4], [7], [11]]), np.array([1, 2, 3]))
    assert table.shape == (3, 3)
    assert np.all(np.diff(table, axis=0) > 0)
    assert np.all(np.diff(table, axis=1) > 0)


def window_by_hand(total_key_dim, num_items, d_model):
    """By scanning integer head dims with widths of other draws."""
    matrices = np.random.default_rng(99).standard_normal((3000, d_model, d_model))
    width = np.r_[0, np.cumsum((np.linalg.svd(matrices, compute_uv=False) ** 2).mean(axis=0))]
    inside = []
    for h in range(1, total_key_dim + 1):
        if total_key_dim % h:
            continue
        head_dim = total_key_dim // h
        held = width[min(head_dim, d_model)] >= width_requirement(num_items / h, num_items**2 - num_items)
        if held and not (head_dim == 1 and 2 * h < num_items):
            inside.append(h)
    return (inside[0], inside[-1]) if inside else (None, None)


@pytest.mark.parametrize(
    ("total_key_dim", "expected"),
    [(24, (3, 12)), (36, (3, 18)), (48, (3, 48)), (8, (None, None)), (96, (3, 96))],
)
def test_head_window(total_key_dim, expected):
    assert head_window(total_key_dim, 96, 96, 16) == expected == window_by_hand(total_key_dim, 96, 16)


def test_head_window_edges():
    assert head_window(47, 96, 96, 16) == (None, None)  # prime: one head too few, 47 of one dimension hold 94
    assert head_window(60, 20, 20, 16) == (1, 60)  # a head of 60 counts as one of 16
    assert all(type(h) is int for h in head_window(np.int64(24), 96, 96, 16))
