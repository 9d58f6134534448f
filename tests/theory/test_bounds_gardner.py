"""The width requirement and Gardner's capacity: against quadrature, Monte-Carlo and an actual perceptron."""

import math
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq, linprog, nnls

from theory.bounds import (
    convex_success_probability,
    gardner_capacity,
    gardner_threshold,
    single_head_max_items,
    transition_width,
    width_requirement,
)

fractions = st.floats(1e-9, 0.5)
counts = st.floats(1e-3, 1e9)


def root(function, low, high) -> float:
    return cast(float, brentq(function, low, high, xtol=1e-13))


def tail_moment(order, t):
    """E[(z - t)_+^order] for any t, by quadrature of a positive integrand with phi(t) in front for t > 0."""
    if t > 0:
        value, _ = quad(lambda s: s**order * math.exp(-t * s - s * s / 2), 0, 40, epsabs=0, epsrel=1e-12)
        return value * math.exp(-t * t / 2) / math.sqrt(2 * math.pi)
    value, _ = quad(
        lambda z: (z - t) ** order * math.exp(-z * z / 2), t, 40, epsabs=0, epsrel=1e-12, points=[0]
    )
    return value / math.sqrt(2 * math.pi)


def requirement_by_quadrature(p, q):
    """The defining form, its minimiser found from the balance of first moments."""
    tau = root(lambda t: math.log(p * tail_moment(1, -t)) - math.log(q * tail_moment(1, t)), -9, 9)
    return p * tail_moment(2, -tau) + q * tail_moment(2, tau), tau


@pytest.mark.parametrize("fraction", [0.5, 0.3, 0.1, 1 / 64, 1e-3, 1e-6, 1e-9])
def test_capacity_and_threshold_equal_quadrature(fraction):
    needed, tau = requirement_by_quadrature(fraction, 1 - fraction)
    assert gardner_capacity(fraction) == pytest.approx(1 / needed, rel=1e-9)
    assert gardner_threshold(fraction) == pytest.approx(tau, abs=1e-9)


def test_capacity_at_known_fractions():
    expected = [2, 3.913, 13.774, 121.195]
    np.testing.assert_allclose(gardner_capacity(np.array([0.5, 0.1, 1 / 64, 1 / 1024])), expected, atol=5e-4)


def test_capacity_in_bits_falls_towards_its_sparse_limit():
    def bits(f):
        return gardner_capacity(f) * (-f * math.log2(f) - (1 - f) * math.log1p(-f) / math.log(2))

    assert bits(0.5) == pytest.approx(2)
    assert bits(1 / 1024) == pytest.approx(1.354, abs=5e-4)
    values = [bits(10.0**-k) for k in (1, 3, 9, 30, 100, 300)]
    assert values == sorted(values, reverse=True)
    assert 1 / (2 * math.log(2)) < values[-1] < 0.75


def test_capacity_without_rare_patterns_is_infinite():
    np.testing.assert_array_equal(gardner_capacity(np.array([0.0, 1.0])), [np.inf, np.inf])
    np.testing.assert_array_equal(gardner_threshold(np.array([0.0, 1.0])), [np.inf, -np.inf])
    assert width_requirement(0, 5) == width_requirement(5, 0) == width_requirement(0, 0) == 0


def test_capacity_is_finite_down_to_the_smallest_numbers():
    f = np.array([1e-20, 1e-100, 1e-300])
    # n / f -> tau^2, where f = phi(tau) / tau^3 to leading order: 2 ln(1/f) less terms of order ln ln(1/f).
    rate = 1 / gardner_capacity(f) / f
    assert np.all(rate < -2 * np.log(f))
    assert np.all(rate > -2 * np.log(f) - 6 * np.log(-np.log(f)))


@given(f=fractions)
@settings(deadline=None, max_examples=50)
def test_capacity_is_symmetric(f):
    # 1 - f is rounded to 1.1e-16, which moves it by that much relative to f.
    assert gardner_capacity(1 - f) == pytest.approx(gardner_capacity(f), rel=1e-12 + 2.3e-16 / f)
    assert gardner_threshold(1 - f) == pytest.approx(-gardner_threshold(f), abs=1e-12 + 2.3e-16 / f)


@given(f=fractions, factor=st.floats(1.001, 10))
@settings(deadline=None, max_examples=50)
def test_capacity_falls_towards_one_half(f, factor):
    larger = min(f * factor, 0.5)
    assert gardner_capacity(larger) <= gardner_capacity(f)
    if larger > f * 1.0009:
        assert gardner_capacity(larger) < gardner_capacity(f)


@given(p=counts, q=counts, factor=st.floats(1.001, 100))
@settings(deadline=None, max_examples=50)
def test_requirement_is_symmetric_homogeneous_and_increasing(p, q, factor):
    n = width_requirement(p, q)
    assert width_requirement(q, p) == n
    assert width_requirement(factor * p, factor * q) == pytest.approx(factor * n, rel=1e-11)
    assert n < width_requirement(factor * p, q)
    assert n <= width_requirement(p, factor * q)
    assert min(p, q) * (1 - 1e-12) <= n <= (p + q) / 2 * (1 + 1e-12)
    assert n == pytest.approx((p + q) / gardner_capacity(min(p, q) / (p + q)), rel=1e-11)


@pytest.mark.parametrize(("p", "q"), [(7, 7), (5, 601), (97, 9216)])
def test_requirement_equals_monte_carlo(p, q):
    num_draws = 200_000
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((2, num_draws))

    def slope(t):
        return p * np.maximum(t - a, 0).mean() - q * np.maximum(b - t, 0).mean()

    tau = root(slope, -4, 5)
    positive, negative = p * np.maximum(tau - a, 0) ** 2, q * np.maximum(b - tau, 0) ** 2
    error = math.sqrt((positive.var() + negative.var()) / num_draws)
    assert width_requirement(p, q) == pytest.approx(positive.mean() + negative.mean(), abs=4 * error)


def test_transition_width_equals_the_spread_of_the_number_of_active_patterns():
    assert transition_width(50, 50) == pytest.approx(5)  # Cover: a binomial of 100 fair coins
    p, q, num_draws = 23, 211, 3000
    rng = np.random.default_rng(11)
    active = np.empty(num_draws)
    for i in range(num_draws):
        a, b = np.sort(rng.standard_normal(p)), np.sort(rng.standard_normal(q))[::-1]
        # The nearest labels of one threshold: the mean of the active ones, found by pooling from outside in.
        i_a, i_b, total = 1, 1, a[0] + b[0]
        while True:
            tau = total / (i_a + i_b)
            if i_a < p and a[i_a] < tau:
                total, i_a = total + a[i_a], i_a + 1
            elif i_b < q and b[i_b] > tau:
                total, i_b = total + b[i_b], i_b + 1
            else:
                break
        active[i] = i_a + i_b - 1  # the threshold is free
    # Relative error of a variance is sqrt(2 / draws); corrections to V are of relative order 1 / n.
    n = width_requirement(p, q)
    assert active.mean() == pytest.approx(n, abs=1.5)
    assert active.var() == pytest.approx(
        transition_width(p, q) ** 2, rel=4 * math.sqrt(2 / num_draws) + 1 / n
    )


def features(x, y):
    return np.hstack([x, np.ones((len(x), 1))]) * y[:, None]


def is_separable(x, y):
    """Gordan: inseparable iff some lambda >= 0 of sum 1 has sum_i lambda_i y_i (x_i, 1) = 0."""
    a = features(x, y)
    _, distance = nnls(np.vstack([a.T, np.ones(len(a))]), np.r_[np.zeros(a.shape[1]), 1.0])
    return distance > 1e-9


def first_inseparable(num_weights, fraction, rng):
    """Number of patterns at which one draw, growing pattern by pattern, stops being separable."""
    most = int(3 * gardner_capacity(fraction) * num_weights)
    x = rng.standard_normal((most, num_weights))
    y = np.where(np.diff(np.floor(fraction * np.arange(most + 1) + 0.5)) > 0, 1.0, -1.0)
    low, high = num_weights, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_separable(x[:middle], y[:middle]) else (low, middle)
    return high


def check_perceptron(fraction, num_weights, num_draws):
    rng = np.random.default_rng(17)
    points = np.array([first_inseparable(num_weights, fraction, rng) for _ in range(num_draws)]) - 0.5
    capacity = gardner_capacity(fraction)
    # The threshold is one more weight; beyond that, corrections are of the order of one weight.
    predicted = capacity * (num_weights + 1)
    spread = capacity * transition_width(fraction * predicted, (1 - fraction) * predicted)
    assert points.mean() == pytest.approx(predicted, abs=3.5 * spread / math.sqrt(num_draws) + capacity)
    # The spread of the spread; skewness and kurtosis of the finite size are within the second term.
    assert points.std() == pytest.approx(
        spread, rel=3.5 / math.sqrt(2 * num_draws) + 2 / math.sqrt(num_weights)
    )


@pytest.mark.parametrize(("fraction", "num_draws"), [(0.5, 100), (0.1, 100), (0.02, 40)])
def test_capacity_of_a_perceptron(fraction, num_draws):
    check_perceptron(fraction, 30, num_draws)


@pytest.mark.slow
@pytest.mark.parametrize(("fraction", "num_weights"), [(0.5, 127), (0.1, 89), (0.02, 53)])
def test_capacity_of_a_larger_perceptron(fraction, num_weights):
    check_perceptron(fraction, num_weights, 150)


def test_separability_check_agrees_with_a_linear_programme():
    rng = np.random.default_rng(3)
    verdicts = []
    for _ in range(30):
        x, y = rng.standard_normal((23, 10)), rng.choice([-1.0, 1.0], 23)
        a = features(x, y)
        programme = linprog(np.zeros(11), A_ub=-a, b_ub=-np.ones(23), bounds=(None, None), method="highs")
        verdicts.append(is_separable(x, y))
        assert verdicts[-1] == (programme.status == 0)
    assert 5 < sum(verdicts) < 25


def test_single_head_ceiling():
    d = np.array([16, 24, 32, 64, 768])
    items = single_head_max_items(d)
    np.testing.assert_allclose(items, [56.9, 108.4, 172.8, 544, 41241], rtol=1e-3)
    np.testing.assert_allclose(width_requirement(items, items**2 - items), d**2, rtol=1e-12)
    assert np.all(np.diff(single_head_max_items(np.arange(1, 200))) > 0)
    assert 1 < single_head_max_items(1) < 2


def test_success_probability_is_one_half_at_the_ceiling_and_follows_the_width():
    items = np.arange(40, 80)
    chance = convex_success_probability(items, items, 16)
    assert np.all(np.diff(chance) < 0)
    ceiling = single_head_max_items(16)
    assert chance[items < ceiling].min() > 0.5 > chance[items > ceiling].max()
    # One standard deviation below: n_1 = 256 - 0.95 * 16 = 240.8.
    m = root(lambda x: requirement_by_quadrature(x, x * x - x)[0] - 240.8, 40, 60)
    below, above = math.floor(m), math.ceil(m)
    assert (
        convex_success_probability(above, above, 16) < 0.841345 < convex_success_probability(below, below, 16)
    )
    # The constant is the derived width at that size.
    assert transition_width(ceiling, ceiling**2 - ceiling) == pytest.approx(0.95 * 16, rel=0.01)
