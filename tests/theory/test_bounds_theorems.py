"""The theorems: nothing that can be enumerated ever exceeds them."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from theory.bounds import (
    counting_bound,
    cover_max_items,
    one_dimensional_cap,
    one_dimensional_f1_cap,
    warren_bound,
)
from theory.bounds.theorems import log2_dichotomies, log2_sign_patterns
from theory.graphs import log2_num_permutation_graphs


def derangements(m):
    return sum((-1) ** k * math.factorial(m) // math.factorial(k) for k in range(m + 1))


def dichotomies(num_points, num_features):
    return 2 * sum(math.comb(num_points - 1, k) for k in range(num_features + 1))


def num_distinct(patterns):
    return len(np.unique(np.packbits(patterns.reshape(len(patterns), -1), axis=1), axis=0))


def random_scores(num_channels, m, d, h, head_dim, seed):
    """(channels, h, m, m) scores of random channels on one draw of embeddings."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((m, d))
    q, k = rng.standard_normal((2, num_channels, h, d, head_dim))
    return (x @ q) @ np.swapaxes(x @ k, -1, -2), rng.standard_normal((num_channels, 1, 1, 1))


def test_counting_bound_by_hand():
    assert counting_bound(1000, 8, 4) == (1000 / 4 - 1) / 16 == 15.5625
    assert counting_bound(0, 8, 4) == counting_bound(3, 8, 4) == 0
    # 2 parameters and tau of 1 bit each, d = 1: 8 channels; 3 bits fit in D_K = 1, a little more does not.
    assert counting_bound(3, 1, 1) == 1
    assert counting_bound(3.1, 1, 1) > 1


def test_counting_bound_holds_for_enumerated_channels():
    # d = 2, d_k = 1, h = 1: 4 weights and tau from 2 values each (1 bit).
    x = np.array([[1.0, 0.3], [-0.4, 1.0], [0.8, -0.6]])
    graphs = set()
    for w in itertools.product([-1.0, 1.5], repeat=5):
        scores = np.outer(x @ np.array(w[:2]), x @ np.array(w[2:4]))
        graphs.add(tuple((scores > w[4]).ravel()))
    assert 1 < len(graphs) <= 32
    assert counting_bound(math.log2(len(graphs)), 2, 1) <= 1


def test_sign_patterns_with_more_variables_than_polynomials():
    n = np.array([9.0, 9.0, 9.0])
    np.testing.assert_array_equal(log2_sign_patterns(n, np.array([9.0, 10.0, 1e6])), n)
    # Warren's formula by hand at N = 1000, P = 10: 10 log2(800 e).
    assert log2_sign_patterns(np.array(1000.0), np.array(10.0)) == pytest.approx(10 * math.log2(800 * math.e))


@given(n=st.integers(1, 10**12), p=st.integers(1, 10**12), step=st.integers(1, 10**6))
@settings(deadline=None, max_examples=50)
def test_sign_patterns_increase_and_end_at_all(n, p, step):
    def bound(variables):
        return float(log2_sign_patterns(np.array(float(n)), np.array(float(variables))))

    assert 0 < bound(p) <= n
    assert bound(p + step) >= bound(p)
    assert bound(n) == n


@pytest.mark.parametrize(
    ("m", "d", "h", "head_dim"), [(2, 1, 1, 1), (3, 2, 1, 1), (3, 2, 2, 1), (4, 3, 1, 2), (5, 2, 2, 2)]
)
def test_enumerated_patterns_and_graphs_stay_within_warren(m, d, h, head_dim):
    scores, tau = random_scores(60_000, m, d, h, head_dim, seed=m)
    rank = min(head_dim, d)
    variables = np.array(float(h * rank * (2 * d - rank) + 1))
    bound = log2_sign_patterns(np.array(float(h * m * m)), variables)
    patterns = num_distinct(scores > tau)
    graphs = num_distinct((scores > tau).any(axis=1))
    assert 1 < graphs <= patterns
    assert math.log2(patterns) <= bound
    # Read the other way round: a family that some budget realises is never put out of that budget's reach.
    assert warren_bound(math.log2(graphs), m, d, h) <= h * head_dim


@given(
    bits=st.floats(0, 1e4),
    m=st.integers(1, 300),
    d=st.integers(1, 40),
    h=st.integers(1, 12),
    more=st.floats(0, 1e3),
)
@settings(deadline=None, max_examples=50)
def test_warren_bound_is_the_first_head_dim_that_passes(bits, m, d, h, more):
    k = np.arange(1, d + 1, dtype=float)
    enough = bits <= log2_sign_patterns(np.full(d, float(h * m * m)), h * k * (2 * d - k) + 1)
    expected = h * k[enough].min() if enough.any() else np.inf
    bound = warren_bound(bits, m, d, h)
    assert bound == expected
    assert warren_bound(bits + more, m, d, h) >= bound
    assert warren_bound(bits, m, d + 1, h) <= bound


def test_warren_bound_at_known_sizes():
    assert warren_bound(log2_num_permutation_graphs(96), 96, 16, 4) == 4
    assert warren_bound(log2_num_permutation_graphs(500), 500, 2, 1) == np.inf  # 5 variables
    assert warren_bound(0, 96, 16, np.array([3, 7])).tolist() == [3, 7]
    assert warren_bound(1e300, 96, 16, 4) == np.inf
    assert warren_bound(96 * 96 * 4, 96, 200, 4) < np.inf == warren_bound(96 * 96 * 4 + 1, 96, 200, 4)


@pytest.mark.parametrize(("num_points", "num_features"), [(5, 1), (6, 2), (7, 2), (6, 3), (5, 4)])
def test_cover_counts_linearly_separable_dichotomies(num_points, num_features):
    x = np.random.default_rng(num_points).standard_normal((num_points, num_features))
    extended = np.hstack([x, np.ones((num_points, 1))])
    separable = 0
    for signs in itertools.product([-1.0, 1.0], repeat=num_points):
        # Gordan: inseparable iff a convex combination of the signed points vanishes.
        rows = np.vstack([(extended * np.array(signs)[:, None]).T, np.ones(num_points)])
        separable += nnls(rows, np.r_[np.zeros(num_features + 1), 1.0])[1] > 1e-9
    assert separable == dichotomies(num_points, num_features)  # attained in general position


@pytest.mark.parametrize(("m", "d", "h"), [(2, 1, 1), (3, 1, 1), (4, 1, 2), (3, 2, 1), (4, 2, 1)])
def test_enumerated_graphs_stay_within_cover(m, d, h):
    scores, tau = random_scores(100_000, m, d, h, d, seed=d)
    graphs = num_distinct((scores > tau).any(axis=1))
    assert 1 < graphs <= dichotomies(m * m, d * d) ** h


@pytest.mark.parametrize(
    ("num_points", "num_features"), [(1, 1), (2, 1), (9, 4), (50, 49), (50, 30), (143641, 256)]
)
def test_dichotomies_in_bits(num_points, num_features):
    exact = math.log2(dichotomies(num_points, num_features))
    assert log2_dichotomies(num_points, num_features) == pytest.approx(exact, rel=1e-13)


@pytest.mark.parametrize("m", [2, 3, 19, 20, 21, 22, 150])
def test_derangements_in_bits(m):
    assert log2_num_permutation_graphs(m) == pytest.approx(math.log2(derangements(m)), rel=1e-13)


@pytest.mark.parametrize(("d", "h"), [(1, 1), (1, 3), (2, 1), (2, 2), (3, 1), (4, 2), (5, 1)])
def test_cover_limit_equals_exact_integers(d, h):
    possible = [derangements(m) <= dichotomies(m * m, d * d) ** h for m in range(2, 4 * h * d * d + 20)]
    limit = possible.index(False) + 1  # counting from m = 2
    assert not any(possible[limit - 1 :])  # excluded once, excluded ever after
    assert cover_max_items(d, h) == limit


@pytest.mark.parametrize(("d", "limit"), [(16, 378), (24, 811), (32, 1402)])
def test_cover_limit_at_known_sizes(d, limit):
    assert cover_max_items(d) == limit
    assert derangements(limit) <= dichotomies(limit**2, d * d)
    assert derangements(limit + 1) > dichotomies((limit + 1) ** 2, d * d)


def test_cover_limit_increases():
    table = cover_max_items(np.array([[3], [8], [21]]), np.array([1, 2, 5]))
    assert table.dtype == np.int64
    assert np.all(np.diff(table, axis=0) > 0)
    assert np.all(np.diff(table, axis=1) > 0)


def held_by_one_dimension(a, b, targets):
    """Most edges of a permutation above all non-edges, for each row of factors."""
    scores = a[:, :, None] * b[:, None, :]
    m = len(targets)
    edge = np.zeros((m, m), bool)
    edge[np.arange(m), targets] = True
    floor = scores[:, ~edge].max(axis=1)
    return (scores[:, edge] > floor[:, None]).sum(axis=1)


def test_one_dimension_never_holds_three_edges():
    values = np.array([-2.0, -1.0, 0.0, 1.0, 3.0])
    grid = np.array(list(itertools.product(values, repeat=6)))
    assert held_by_one_dimension(grid[:, :3], grid[:, 3:], [1, 2, 0]).max() == one_dimensional_cap(1) == 2
    rng = np.random.default_rng(0)
    for targets in ([1, 0, 3, 2], [1, 2, 3, 4, 0]):
        a, b = rng.standard_normal((2, 50_000, len(targets))) ** 3
        assert held_by_one_dimension(a, b, targets).max() == 2


def test_one_dimensional_cap_counts_heads():
    assert one_dimensional_cap(48) == 96
    assert one_dimensional_cap(np.array([1, 5])).tolist() == [2, 10]


@pytest.mark.parametrize(
    ("num_edges", "num_heads"), [(2, 1), (3, 1), (4, 1), (5, 1), (4, 2), (5, 2), (96, 24)]
)
def test_cap_on_f1_of_one_dimensional_heads(num_edges, num_heads):
    cap = one_dimensional_f1_cap(num_heads, num_edges)
    assert (cap == 1) == (one_dimensional_cap(num_heads) >= num_edges)
    # by hand: every way to deal T found edges to the 2h classes
    if num_edges <= 5:
        best = 0.0
        for counts in itertools.product(range(num_edges + 1), repeat=2 * num_heads):
            found, false = sum(counts), sum(math.comb(count, 2) for count in counts)
            if 0 < found <= num_edges:
                best = max(best, 2 * found / (found + false + num_edges))
        assert cap == pytest.approx(best, rel=1e-12)


def test_no_one_dimensional_channel_beats_the_cap():
    # Random channels, improved by a random walk, judged at every threshold of either sign.
    rng = np.random.default_rng(3)
    reached = []
    for num_items, num_heads in ((3, 1), (5, 1), (5, 2), (7, 2)):
        edges = np.roll(np.eye(num_items, dtype=bool), 1, axis=1)

        def best_f1(factors, edges=edges, num_items=num_items):
            scores = np.einsum("ht,hs->hts", *factors).max(0)
            above = scores[..., None] > np.unique(scores)[:-1]
            found = (above & edges[..., None]).sum((0, 1))
            return np.max(2 * found / (above.sum((0, 1)) + num_items))

        cap, best = one_dimensional_f1_cap(num_heads, num_items), 0.0
        for _ in range(12):
            factors = rng.standard_normal((2, num_heads, num_items))
            score = best_f1(factors)
            for _ in range(250):
                step = factors + rng.standard_normal(factors.shape) * rng.choice([0.03, 0.3, 1.0])
                if (new := best_f1(step)) >= score:
                    factors, score = step, new
            best = max(best, score)
        assert best <= cap + 1e-12
        reached.append(best / cap)
    assert max(reached) > 0.99  # the walk is strong enough to meet the cap where it can
