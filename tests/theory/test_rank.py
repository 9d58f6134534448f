"""`theory.rank`: exact patterns against exact arithmetic, the published theorem both ways, spectra."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from jaxtyping import TypeCheckError

from theory.rank import (
    PATTERNS,
    centred,
    centred_log,
    head_pattern,
    numerical_rank,
    published_counter_example,
    representable,
    representing_weights,
    required_head_dim,
    softmax,
    spectra,
)


def exact_rank(rows):
    """Rank of a matrix of integers, by elimination in fractions."""
    rows = [[Fraction(int(x)) for x in row] for row in rows]
    rank = 0
    for column in range(len(rows[0])):
        pivot = next((r for r in range(rank, len(rows)) if rows[r][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for r in range(rank + 1, len(rows)):
            factor = rows[r][column] / rows[rank][column]
            rows[r] = [a - factor * b for a, b in zip(rows[r], rows[rank], strict=True)]
        rank += 1
    return rank


def powers_of_two(exponents):
    """A pattern whose entries are powers of two over their row's sum: its log-odds are integers times ln 2."""
    weights = 2.0 ** np.asarray(exponents)
    return weights / weights.sum(axis=1, keepdims=True)


def log_odds_rank(exponents):
    """Rank of log(P_ij / P_in), by which the gauge is removed in another way than by centring."""
    exponents = np.asarray(exponents)
    return exact_rank(exponents[:, :-1] - exponents[:, -1:])


def test_the_required_size_is_the_rank_of_log_odds_for_all_small_patterns_of_powers_of_two():
    """Every 2 x 2 pattern with exponents up to 3, every 3 x 3 one with a last column of ones and exponents up to 2."""
    seen = set()
    for entries in itertools.product(range(4), repeat=4):
        exponents = np.reshape(entries, (2, 2))
        found = required_head_dim(powers_of_two(exponents))
        assert found == log_odds_rank(exponents)
        seen.add((2, found))
    for entries in itertools.product(range(3), repeat=6):
        exponents = np.zeros((3, 3), int)
        exponents[:, :2] = np.reshape(entries, (3, 2))
        found = required_head_dim(powers_of_two(exponents))
        assert found == log_odds_rank(exponents)
        seen.add((3, found))
    assert seen == {(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)}


def test_at_random_larger_sizes_the_same():
    rng = np.random.default_rng(0)
    for n, rank in ((5, 2), (7, 3), (7, 6), (11, 4)):
        exponents = rng.integers(-2, 3, (n, rank)) @ rng.integers(-2, 3, (rank, n))
        exponents += rng.integers(-3, 4, (n, 1))  # the gauge
        assert required_head_dim(powers_of_two(exponents)) == log_odds_rank(exponents) == min(rank, n - 1)


@pytest.mark.parametrize(("n", "d"), [(2, 2), (5, 7), (13, 13)])
def test_a_representable_pattern_has_weights_and_smaller_heads_have_none(n, d):
    """Both directions: from weights to a rank, from a rank to weights."""
    rng = np.random.default_rng(n)
    inputs = rng.standard_normal((n, d))
    for head_dim in range(1, n):
        query, key = rng.standard_normal((2, d, head_dim)) / np.sqrt(d)
        pattern = head_pattern(inputs, query, key)
        assert required_head_dim(pattern) == required_head_dim(pattern, inputs) == head_dim
        again = representing_weights(pattern, inputs, head_dim)
        assert again.query.shape == again.key.shape == (d, head_dim)
        np.testing.assert_allclose(head_pattern(inputs, *again), pattern, rtol=1e-9)
        if head_dim > 1:
            assert not representable(pattern, head_dim - 1)
            with pytest.raises(ValueError, match=f"head_dim: expected at least {head_dim}"):
                representing_weights(pattern, inputs, head_dim - 1)


@pytest.mark.parametrize("n", [3, 7, 17])
def test_n_minus_1_suffices_for_every_pattern_and_random_ones_need_it(n):
    rng = np.random.default_rng(n)
    inputs = rng.standard_normal((n, n + 2))
    for _ in range(5):
        pattern = rng.dirichlet(np.ones(n), n)
        assert required_head_dim(pattern) == n - 1
        assert not representable(pattern, n - 2)
        for head_dim in (n - 1, n, n + 2):  # d_k = d >= n is the published half
            weights = representing_weights(pattern, inputs, head_dim)
            np.testing.assert_allclose(head_pattern(inputs, *weights), pattern, rtol=1e-8)


def test_no_choice_of_the_gauge_has_a_lower_rank_than_centring():
    rng = np.random.default_rng(3)
    pattern = softmax(rng.standard_normal((7, 2)) @ rng.standard_normal((2, 7)))
    log = np.log(pattern)
    assert numerical_rank(centred_log(pattern), 1e-10) == 2
    assert numerical_rank(log, 1e-10) == 3  # no gauge at all
    for _ in range(20):
        shifted = log + rng.standard_normal((7, 1))
        assert numerical_rank(shifted, 1e-10) >= 2
        np.testing.assert_allclose(centred(shifted), centred_log(pattern), atol=1e-12)


def test_the_published_counter_example_fails_because_of_the_inputs():
    inputs, pattern = published_counter_example()
    assert required_head_dim(pattern, inputs) is None
    assert not representable(pattern, 1, inputs)
    with pytest.raises(ValueError, match=r"inputs: expected rows .* got rank 1 for 2 tokens"):
        representing_weights(pattern, inputs, 1)
    rng = np.random.default_rng(0)
    for scale in (
        1.0,
        30.0,
    ):  # a grid of weights: the second row stays uniform, so half of its row is never reached
        for query, key in rng.standard_normal((50, 2, 1, 1)) * scale:
            np.testing.assert_array_equal(head_pattern(inputs, query, key)[1], [0.5, 0.5])
    assert representable(pattern, 1)
    weights = representing_weights(pattern, np.eye(2), 1)
    np.testing.assert_allclose(head_pattern(np.eye(2), *weights), pattern, rtol=1e-12)


@pytest.mark.parametrize("with_ones", [True, False])
def test_inputs_of_lower_rank_have_the_patterns_that_their_weights_make_and_no_others(with_ones):
    """Both cases of the proof: constants lie in the column space of X, or not."""
    rng = np.random.default_rng(5)
    n, rank = 7, 4
    basis = rng.standard_normal((n, rank))
    if with_ones:
        basis[:, 0] = 1
    inputs = basis @ rng.standard_normal((rank, 11))
    for head_dim in (1, 2, 4):
        pattern = head_pattern(inputs, *(rng.standard_normal((2, 11, head_dim)) / 4))
        required = required_head_dim(pattern, inputs)
        # Where constants are at hand, what a gauge may do can make a head of full size superfluous by one.
        assert required == (head_dim if head_dim < rank or not with_ones else rank - 1)
        weights = representing_weights(pattern, inputs, head_dim)
        np.testing.assert_allclose(head_pattern(inputs, *weights), pattern, rtol=1e-8)
    moved = pattern + 1e-3 * centred(rng.standard_normal((n, n))) * pattern.min()
    assert required_head_dim(moved / moved.sum(axis=1, keepdims=True), inputs) is None


def test_a_soft_diagonal_needs_n_minus_1_and_uniform_attention_nothing():
    """Full rank of X and d >= n, and yet no head below n - 1: here the head size is the reason."""
    for n in (3, 5, 11):
        assert required_head_dim(softmax(2.0 * np.eye(n))) == n - 1
        assert required_head_dim(np.full((n, n), 1 / n)) == 0
        assert representable(np.full((n, n), 1 / n), 1)


def test_the_patterns_have_the_sizes_that_are_said():
    sizes = {"random": 12, "low-rank": 4, "soft-permutation": 12, "gaussian-band": 2, "window-band": None}
    for name, expected in sizes.items():
        pattern = PATTERNS[name](13, np.random.default_rng(1))
        np.testing.assert_allclose(pattern.sum(axis=1), 1, rtol=1e-12)
        if expected is not None:
            assert required_head_dim(pattern) == expected, name
    hard = PATTERNS["permutation"](13, np.random.default_rng(1))
    assert (np.sort(hard.argmax(axis=1)) == np.arange(13)).all()
    with pytest.raises(ValueError, match="pattern: expected positive numbers"):
        required_head_dim(hard)


def test_a_pattern_known_in_float32_is_judged_by_float32():
    rng = np.random.default_rng(2)
    wide = softmax(rng.standard_normal((23, 5)) @ rng.standard_normal((5, 23)))
    rounded = wide.astype(np.float32)
    assert required_head_dim(wide) == required_head_dim(rounded) == 5
    assert required_head_dim(rounded, tolerance=1e-12) == 22


@pytest.mark.parametrize(
    ("pattern", "inputs", "message"),
    [
        (np.ones((3, 3)), None, "rows that sum to 1"),
        (np.array([[1.0, 0.0], [0.5, 0.5]]), None, "positive"),
        (np.array([[np.nan, 0.5], [0.5, 0.5]]), None, "positive"),
    ],
)
def test_bad_patterns_are_refused(pattern, inputs, message):
    with pytest.raises(ValueError, match=message):
        required_head_dim(pattern, inputs)


def test_shapes_are_those_of_a_square_and_its_inputs():
    """In calls that jaxtyping's checks do not cover, errors name the argument; under them they are type errors."""
    with pytest.raises((ValueError, TypeCheckError)):
        required_head_dim(np.full((2, 3), 1 / 3))
    with pytest.raises((ValueError, TypeCheckError)):
        required_head_dim(np.full((3, 3), 1 / 3), np.ones((2, 4)))


def test_head_sizes_are_positive():
    with pytest.raises(ValueError, match="head_dim: expected a positive integer, got 0"):
        representable(np.full((3, 3), 1 / 3), 0)


# Spectra


def exact_determinant(rows):
    rows = [[Fraction(x) for x in row] for row in rows]
    result = Fraction(1)
    for column in range(len(rows)):
        pivot = next((r for r in range(column, len(rows)) if rows[r][column]), None)
        if pivot is None:
            return Fraction(0)
        if pivot != column:
            rows[column], rows[pivot], result = rows[pivot], rows[column], -result
        result *= rows[column][column]
        for r in range(column + 1, len(rows)):
            factor = rows[r][column] / rows[column][column]
            rows[r] = [a - factor * b for a, b in zip(rows[r], rows[column], strict=True)]
    return result


def test_softmax_of_rank_one_logits_is_of_full_rank_in_exact_arithmetic():
    """Logits a_i b_j ln 2 with integers a and b: weights 2^(a_i b_j). Every minor is positive."""
    for n in (2, 5, 9):
        kernel = [[2 ** (a * b) for b in range(n)] for a in range(n)]
        assert exact_determinant(kernel) > 0
    minors = itertools.product(itertools.combinations(range(5), 3), repeat=2)
    assert all(exact_determinant([[2 ** (a * b) for b in cols] for a in rows]) > 0 for rows, cols in minors)


def test_spectra_tell_the_ranks_apart():
    rng = np.random.default_rng(7)
    query, key = rng.standard_normal((2, 23, 3))
    found = spectra(query @ key.T)
    assert (found.logits_rank, found.weights_rank) == (3, 23)
    assert (found.logits[3:] < 1e-13 * found.logits[0]).all()
    np.testing.assert_allclose(found.weights[0], np.linalg.norm(softmax(query @ key.T), 2))
    equal = spectra(np.zeros((5, 5)))
    assert (equal.logits_rank, equal.weights_rank) == (0, 1)  # keys that do not differ
