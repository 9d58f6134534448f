import math

import numpy as np
import pytest
from scipy import stats

from experiments.intervals import (
    Interval,
    above,
    at_least,
    at_most,
    below,
    difference,
    every,
    median_interval,
    paired,
    ratio,
    signed,
    some,
    student,
    welch,
)
from experiments.reading import wilson

DRAWS = 500
SLACK = 4 * math.sqrt(0.05 * 0.95 / DRAWS)
"""Four standard deviations of how often a 95% interval misses."""


def missed(intervals, truth):
    return np.mean([not low <= truth <= high for _, low, high in intervals])


def test_intervals_of_means_miss_five_times_in_a_hundred():
    rng = np.random.default_rng(0)
    shared = rng.normal(0, 5, (DRAWS, 3))
    first, second = 1.0 + rng.normal(0, 2, (DRAWS, 3)), rng.normal(0, 1, (DRAWS, 3))
    means = [student(row) for row in first]
    assert abs(missed(means, 1.0) - 0.05) < SLACK
    pairs = [
        paired(dict(enumerate(a + c)), dict(enumerate(b + c)))
        for a, b, c in zip(first, second, shared, strict=True)
    ]
    assert abs(missed(pairs, 1.0) - 0.05) < SLACK
    apart = [welch(list(a), list(b)) for a, b in zip(first, second, strict=True)]
    assert missed(apart, 1.0) < 0.05 + SLACK


def test_pairs_are_of_shared_seeds_and_one_pair_says_nothing():
    found = paired({0: 3.0, 1: 5.0, 2: 99.0}, {0: 1.0, 1: 2.0, 7: 0.0})
    expected = stats.ttest_1samp([2.0, 3.0], 0).confidence_interval()
    assert found is not None
    np.testing.assert_allclose(found, (2.5, expected.low, expected.high))
    assert paired({0: 3.0, 1: 5.0}, {1: 1.0}) is None
    assert welch([1.0], [1.0, 2.0]) is None
    assert student([2.0]) == (2.0, -math.inf, math.inf)


def test_difference_of_shares_is_newcombes():
    # Worked out from the Wilson intervals [0.6919, 0.8769] and [0.4904, 0.7004].
    low, high = 0.2 - math.hypot(0.8 - 0.6919, 0.7004 - 0.6), 0.2 + math.hypot(0.8769 - 0.8, 0.6 - 0.4904)
    found = difference(Interval(56 / 70, *wilson(56, 70)), Interval(48 / 80, *wilson(48, 80)))
    np.testing.assert_allclose(found, (0.2, low, high), atol=2e-4)
    rng = np.random.default_rng(2)
    first, second = rng.binomial(16, 0.8, DRAWS), rng.binomial(8, 0.4, DRAWS)
    intervals = [
        difference(Interval(a / 16, *wilson(int(a), 16)), Interval(b / 8, *wilson(int(b), 8)))
        for a, b in zip(first, second, strict=True)
    ]
    assert missed(intervals, 0.4) < 0.05 + SLACK


def test_a_ratio_is_a_difference_of_logarithms():
    found = ratio(Interval(8.0, 4.0, 16.0), Interval(2.0, 2.0, 2.0))
    np.testing.assert_allclose(found, (4.0, 2.0, 8.0))


def test_the_median_lies_between_order_statistics():
    assert median_interval(range(5)) is None
    assert median_interval([3, 1, 2, 6, 5, 4]) == (1, 6)
    rng = np.random.default_rng(1)
    values = rng.exponential(size=(DRAWS, 10))
    intervals = [(0.0, *(median_interval(row) or ())) for row in values]
    exact = 2 * stats.binom.cdf(1, 10, 0.5)  # at most one of ten on one side
    assert abs(missed(intervals, math.log(2)) - exact) < SLACK


@pytest.mark.parametrize(
    ("low", "high", "most", "least"),
    [(0.0, 1.0, True, False), (3.0, 4.0, False, True), (1.0, 3.0, None, None), (2.0, 2.0, True, True)],
)
def test_a_limit_within_the_interval_decides_nothing(low, high, most, least):
    assert at_most(2.0, low, high) is most
    assert at_least(2.0, low, high) is least
    assert above(2.0, low, high) is (None if most is None else not most)
    assert below(2.0, low, high) is (None if least is None else not least)


def test_without_an_interval_nothing_is_decided():
    assert {f(2.0, None, 1.0) for f in (at_most, at_least, above, below)} == {None}


def test_three_values():
    assert [every(v) for v in ([True, True], [True, None], [None, False], [])] == [True, None, False, True]
    assert [some(v) for v in ([False, True, None], [False, None], [False], [])] == [True, None, False, False]


def test_signs_are_written():
    assert signed(Interval(0.891, -0.104, 1.68)) == "+0.89 [-0.10, +1.68]"
