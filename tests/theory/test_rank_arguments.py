"""What functions of `theory.rank` accept and refuse: lists, whole numbers, half precision; nothing without an end."""

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from theory.rank import (
    PATTERNS,
    best_approximations,
    bounded_permutation_kl,
    centred,
    centred_log,
    circle,
    circle_kl,
    factors,
    gap,
    guaranteed_length,
    head_pattern,
    log_tolerance,
    mean_kl,
    numerical_rank,
    planar_gap,
    representable,
    representing_weights,
    required_head_dim,
    softmax,
    spectra,
    truncation,
)

PATTERN = [[0.5, 0.25, 0.25], [0.125, 0.375, 0.5], [0.25, 0.5, 0.25]]
"""Exact in every precision."""
LOGITS = [[1, 0, -2], [0, 3, 1], [2, 2, 1]]
WIDE = np.asarray(PATTERN)
EYE = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]

MATRICES = {
    "softmax": ("logits", softmax, LOGITS),
    "centred": ("logits", centred, LOGITS),
    "numerical_rank": ("matrix", numerical_rank, LOGITS),
    "factors": ("logits", lambda x: factors(x, 2)[0], LOGITS),
    "spectra": ("logits", lambda x: spectra(x).weights, LOGITS),
    "head_pattern": ("inputs", lambda x: head_pattern(x, [[1], [2], [0]], [[0], [1], [1]]), LOGITS),
    "head_pattern, query": ("query", lambda w: head_pattern(EYE, w, LOGITS), LOGITS),
    "head_pattern, key": ("key", lambda w: head_pattern(EYE, LOGITS, w), LOGITS),
    "centred_log": ("pattern", centred_log, PATTERN),
    "log_tolerance": ("pattern", lambda p: log_tolerance(p) / 10, PATTERN),
    "required_head_dim": ("pattern", required_head_dim, PATTERN),
    "required_head_dim, inputs": ("inputs", lambda x: required_head_dim(PATTERN, x), EYE),
    "representable": ("pattern", lambda p: representable(p, 2), PATTERN),
    "representing_weights": ("pattern", lambda p: representing_weights(p, EYE, 2).query, PATTERN),
    "representing_weights, inputs": ("inputs", lambda x: representing_weights(PATTERN, x, 2).key, EYE),
    "truncation": ("pattern", lambda p: truncation(p, 1), PATTERN),
    "mean_kl": ("pattern", lambda p: mean_kl(p, np.full((3, 3), 1 / 3)), PATTERN),
    "mean_kl, other": ("other", lambda p: mean_kl(PATTERN, p), PATTERN),
}


@pytest.mark.parametrize("name", MATRICES)
def test_lists_whole_numbers_and_half_precision_are_computed_with(name):
    """All say the same as float64, to the rounding of what they came in; of whole numbers exactly."""
    _, function, value = MATRICES[name]
    expected = np.asarray(function(np.asarray(value, np.float64)), np.float64)
    np.testing.assert_array_equal(function(value), expected)
    if value is not PATTERN:
        np.testing.assert_array_equal(function(np.asarray(value)), expected)
    for dtype in (jnp.bfloat16, np.float16, np.float32):
        found = np.asarray(function(np.asarray(jnp.asarray(value, dtype))), np.float64)
        if name != "log_tolerance":
            rounding = float(jnp.finfo(dtype).eps) * np.abs(expected).max()
            np.testing.assert_allclose(found, expected, atol=rounding)


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_by_name(name, bad):
    argument, function, value = MATRICES[name]
    spoilt = np.asarray(value, np.float64)
    spoilt[1, 1] = bad
    with pytest.raises(ValueError, match=f"^{argument}: expected .* numbers, got {bad} among them"):
        function(spoilt)


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.eye(3, dtype=bool), "numbers, got an array of bool"),
        (np.eye(3, dtype=complex), "numbers, got an array of complex128"),
        ([0.5, 0.5], "a matrix with rows and columns, got shape"),
        (np.zeros((0, 3)), "a matrix with rows and columns, got shape"),
        ([[1.0], [0.5, 0.5]], "rows of one length, got list"),
    ],
)
def test_what_is_no_matrix_of_numbers_is_refused_by_name(name, value, message):
    argument, function, _ = MATRICES[name]
    with pytest.raises(ValueError, match=f"^{argument}: expected .*{message}"):
        function(value)


def test_half_precision_is_judged_by_its_own_rounding():
    """Rounded to 8 bits, a head of size 2 is still one of size 2; judged by float64 it would be of full rank."""
    rng = np.random.default_rng(3)
    wide = softmax(rng.standard_normal((17, 2)) @ rng.standard_normal((2, 17)) / 2)
    half = np.asarray(jnp.asarray(wide, jnp.bfloat16))
    rows = half.astype(np.float64)
    rows /= rows.sum(axis=1, keepdims=True)
    assert required_head_dim(wide) == 2
    assert representable(half, 2)
    assert required_head_dim(rows) == 16
    assert log_tolerance(half) / log_tolerance(wide) == pytest.approx(2.0**45, rel=0.1)


def call(function, *arguments, **named):
    """A call whose arguments may be of a type that the checks of the tests refuse before the function does."""
    return lambda: function(*arguments, **named)


ONE = {"bounds": [None], "seeds": [0], "width": 2}


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (
            call(required_head_dim, PATTERN, tolerance=np.nan),
            "tolerance: expected a non-negative number .* nan",
        ),
        (
            call(required_head_dim, PATTERN, tolerance=-1.0),
            "tolerance: expected a non-negative number .* got -1",
        ),
        (call(numerical_rank, LOGITS, np.inf), "tolerance: expected a non-negative number .* got inf"),
        (call(representable, PATTERN, 1, tolerance=np.nan), "tolerance: "),
        (call(representing_weights, PATTERN, EYE, 2, tolerance=-1e-9), "tolerance: "),
        (call(representing_weights, PATTERN, EYE, 0), "head_dim: expected a positive integer, got 0"),
        (call(factors, LOGITS, -1), "head_dim: expected at least 0, got -1"),
        (call(truncation, PATTERN, -1), "head_dim: expected at least 0, got -1"),
        (call(required_head_dim, [[0.5, 0.5]]), "pattern: expected a square matrix, got shape"),
        (call(required_head_dim, PATTERN, EYE[:2]), "inputs: expected 3 rows, one a token, got 2"),
        (
            call(head_pattern, EYE, LOGITS, EYE[:2]),
            r"key: expected shape \(d, d_k\) = \(3, 3\), got \(2, 3\)",
        ),
        (call(mean_kl, PATTERN, [[1.0]]), "other: expected the shape of the pattern"),
        (call(mean_kl, PATTERN, LOGITS), "other: expected non-negative numbers, got -2 among them"),
        (call(mean_kl, PATTERN, np.ones((3, 3))), "other: expected rows that sum to 1"),
        (
            call(mean_kl, np.full((64, 64), 1.5 / 64).astype(jnp.bfloat16), np.full((64, 64), 1 / 64)),
            "pattern: expected rows that sum to 1, got a row off by 5",
        ),
        (
            call(head_pattern, [[1e200], [1.0]], [[1e200]], [[1e200]]),
            "inputs, query, key: expected logits within float64",
        ),
        (call(guaranteed_length, 0), "storage_bits: expected 1 to 1000, got 0"),
        (call(guaranteed_length, 8, 0), "arithmetic_bits: expected 1 to 1000, got 0"),
        (call(guaranteed_length, 2000), "storage_bits: expected 1 to 1000, got 2000"),
        (call(circle_kl, 5, np.nan), "scale: expected a non-negative number .* got nan"),
        (call(circle_kl, 5, -1.0), "scale: expected a non-negative number .* got -1"),
        (call(planar_gap, 5, np.inf), "bound: expected a non-negative number .* got inf"),
        (call(bounded_permutation_kl, 5, np.nan), "bound: expected a non-negative number .* got nan"),
        (call(circle, [0.0, 1.0]), "targets: expected a row of whole numbers, got float64"),
        (call(circle, [0, -1]), "targets: expected keys 0 to 1, got -1 to 0"),
        (call(circle, [0], 0), "num_keys: expected a positive integer, got 0"),
        (call(best_approximations, [PATTERN], [0], **ONE), "head_dims: expected a positive integer, got 0"),
        (call(best_approximations, [LOGITS], [1], **ONE), "patterns: expected non-negative numbers, got -2"),
        (call(best_approximations, [WIDE[:2]], [1], **ONE), "patterns: expected square ones of one length"),
        (call(best_approximations, [PATTERN], [1], **ONE | {"bounds": [0.0]}), "bounds: expected positive"),
        (
            call(best_approximations, [PATTERN], [1], **ONE | {"bounds": [np.nan]}),
            "bounds: expected a non-neg",
        ),
        (
            call(best_approximations, [PATTERN], [1], **ONE | {"seeds": [-1]}),
            "seeds: expected at least 0, got -1",
        ),
        (
            call(best_approximations, [PATTERN], [1], **ONE | {"width": 0}),
            "width: expected a positive integer",
        ),
    ],
)
def test_numbers_out_of_range_are_refused_by_name(refused, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        refused()


def test_sizes_that_are_not_whole_are_refused():
    for refused in (call(gap, 2.5), call(guaranteed_length, np.nan), call(representable, PATTERN, 1.5)):
        with pytest.raises((ValueError, TypeCheckError)):
            refused()


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns_have_the_lengths_that_are_said(name):
    for n in (6, 70):
        pattern = PATTERNS[name](n, np.random.default_rng(0))
        np.testing.assert_allclose(pattern.sum(axis=1), 1, rtol=1e-12)
        assert (pattern > 0).all() or name == "permutation"
    for n in (5, 71):
        with pytest.raises(ValueError, match=f"^n: expected 6 to 70, got {n}"):
            PATTERNS[name](n, np.random.default_rng(0))


def test_targets_may_be_a_list_and_few_bits_guarantee_one_key():
    query, key = circle([2, 0], 3)
    np.testing.assert_array_equal(query, key[[2, 0]])
    lengths = [guaranteed_length(bits) for bits in range(1, 12)]
    assert lengths[0] == 1
    assert lengths == sorted(lengths)
    assert guaranteed_length(8, 1) == 1
