"""Every measure on one pair of maps made by hand: in every dtype, with NaN in padding, under jit and vmap."""

import inspect
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mha_jax import analysis

pytestmark = pytest.mark.float64

# Two heads on four tokens; every weight is exact in bfloat16.
WEIGHTS = np.array(
    [
        [[1, 0, 0, 0], [0.75, 0.25, 0, 0], [0.5, 0.25, 0.25, 0], [0.125, 0.5, 0.25, 0.125]],
        [[0.25, 0.25, 0.25, 0.25], [0, 0, 1, 0], [0, 0.5, 0, 0.5], [1, 0, 0, 0]],
    ]
)
# Padding on both sides, whose weights are no numbers.
MAPS = np.pad(WEIGHTS, ((0, 0), (1, 1), (1, 1)), constant_values=np.nan)
TOKENS = np.pad(np.ones(4, bool), 1)
IDS = np.array([7, 7, 7, 8, 7, 7])
"""Padding has the number of a token too."""
WORDS = np.array([-1, 0, 0, 1, 2, -1])
BETWEEN = np.array(
    [
        [[1, 0, 0], [0.75, 0.25, 0], [0.625, 0.25, 0.125]],
        [[0.25, 0.625, 0.125], [0.5, 0, 0.5], [1, 0, 0]],
    ]
)
"""`WEIGHTS` between words."""
PADDED_BETWEEN = np.pad(BETWEEN, ((0, 0), (0, 1), (0, 1)), constant_values=np.nan)
REAL = np.array([True, True, True, False])
ATTENDS, ATTENDED = [[-1, 0, 0, -1], [1, 0, 0, -1]], [[1, 2, -1, -1], [2, 0, 1, -1]]
"""The other word that is attended most, or attends most: nobody (-1) where that is nothing at all."""
GRADIENTS = np.array([[3, 0.5], [-4, 0.25], [0.125, -0.5]])[None, None]
"""One layer, one example, three tokens, two heads."""
LOG_ALPHA = np.array([-2.0, 0.5, 1.0])

H = 0.75 * np.log(4 / 3) + 0.25 * np.log(4)


def shannon(p):
    return -np.sum(p * np.log(np.where(p > 0, p, 1)), axis=(-2, -1))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


FAR = shannon(WEIGHTS.mean(0)) - shannon(WEIGHTS).mean()
LIMIT = 0.33 * np.log(0.1 / 1.1)
MEASURES = {
    "attention_share": (
        lambda m: analysis.attention_share(m, analysis.offset_selector(6, -2), TOKENS),
        MAPS,
        [[1, 0], [4, 4]],
    ),
    "attention_shares": (
        lambda m: list(analysis.attention_shares(m, TOKENS, delimiters=IDS == 8).values()),
        MAPS,
        [
            [[1.25, 0.5], [4, 4]],
            [[0, 1.75], [4, 4]],
            [[1.625, 0.25], [4, 4]],
            [[2.375, 1.25], [4, 4]],
            [[0.5, 1.25], [4, 4]],
        ],
    ),
    "attention_entropy": (
        lambda m: analysis.attention_entropy(m, TOKENS),
        MAPS,
        [[H + 3.25 * np.log(2), 3 * np.log(2)], [4, 4]],
    ),
    "confidence": (lambda m: analysis.confidence(m, TOKENS), MAPS, [[2.75, 2.75], [4, 4]]),
    "head_distances": (
        lambda m: analysis.head_distances(m, TOKENS, smoothing=0.0),
        MAPS,
        FAR * (1 - np.eye(2)),
    ),
    "induction_score": (lambda m: analysis.induction_score(m, IDS, TOKENS), MAPS, [[0.75, 0], [1, 1]]),
    "previous_token_score": (
        lambda m: analysis.previous_token_score(m, TOKENS),
        MAPS,
        [[1.25, 0.5], [3, 3]],
    ),
    "sink_score": (lambda m: analysis.sink_score(m, TOKENS), MAPS, [[1.375, 1], [3, 3]]),
    "word_maps": (lambda m: analysis.word_maps(m, WORDS, 3), MAPS, BETWEEN),
    "attended_word": (lambda m: analysis.attended_word(m, REAL), PADDED_BETWEEN, ATTENDS),
    "attended_word, the other way": (
        lambda m: analysis.attended_word(m, REAL, attends=False),
        PADDED_BETWEEN,
        ATTENDED,
    ),
    "importance_total": (
        lambda g: analysis.importance_total(
            jnp.concatenate([g, jnp.full_like(g[:, :, :1], jnp.nan)], axis=2),
            np.array([[True, True, True, False]]),
        ),
        GRADIENTS,
        [[[7.125, 1.25]], [[3, 3]]],
    ),
    "normalise_layers": (analysis.normalise_layers, np.array([[3.0, 4.0]]), [[0.6, 0.8]]),
    "hard_concrete": (
        lambda a: analysis.hard_concrete(a, jnp.full_like(a, 0.25)),
        LOG_ALPHA,
        np.clip(1.2 * sigmoid((LOG_ALPHA - np.log(3)) / 0.33) - 0.1, 0, 1),
    ),
    "open_probability": (analysis.open_probability, LOG_ALPHA, sigmoid(LOG_ALPHA - LIMIT)),
    "open_penalty": (analysis.open_penalty, LOG_ALPHA, sigmoid(LOG_ALPHA - LIMIT).sum()),
    "settled_gates": (analysis.settled_gates, LOG_ALPHA, np.clip(1.2 * sigmoid(LOG_ALPHA) - 0.1, 0, 1)),
}
"""What is measured, of what, and the result: of a `Total` its sum and its number of terms."""

DTYPES = ["bfloat16", "float32", *(["float64"] if os.environ.get("MHA_JAX_TEST_FLOAT64") == "1" else [])]

HOST = {"head_importance", "kept_heads", "num_pruned", "pruning_order", "random_order", "recomputed_order"}
HOST |= {"single_heads", "all_but_one"}
"""Of numbers on the host, or made of others that are here."""
WITHOUT = {"OFFSETS", "Total", "dependency_hits", "offset_hits", "induction_selector", "key_selector"}
WITHOUT |= {"offset_selector", "head_gradients", "sample_gates"}
"""Without a map; a gradient has the dtype of what it is taken in, gates are drawn as `hard_concrete` makes them."""


def test_every_public_measure_is_here():
    named = {name.partition(",")[0] for name in MEASURES}
    assert named | HOST | WITHOUT == set(analysis.__all__)
    assert not named & (HOST | WITHOUT)


def numbers(found):
    if isinstance(found, analysis.Total):
        return np.stack([found.total, found.count])
    return np.stack([numbers(one) for one in found]) if isinstance(found, list) else np.asarray(found)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MEASURES)
def test_a_measure_is_what_it_is_by_hand(name, dtype):
    measure, given, expected = MEASURES[name]
    given = jnp.asarray(given, dtype)
    wanted = jnp.promote_types(given.dtype, jnp.float32)
    tolerance = 12 * float(jnp.finfo(wanted).eps)  # a measure of a dozen numbers rounds a dozen times
    alone = jax.jit(measure)(given)
    mapped = jax.jit(jax.vmap(measure))(jnp.stack([given, given]))
    for found in (alone, *(jax.tree.map(lambda leaf, i=i: leaf[i], mapped) for i in range(2))):
        for leaf in jax.tree.leaves(found):
            assert leaf.dtype == wanted or jnp.issubdtype(leaf.dtype, jnp.integer)
        np.testing.assert_allclose(numbers(found), expected, rtol=tolerance, atol=tolerance)


def test_long_rows_in_half_precision_stay_within_what_is_possible():
    """Eight bits are not enough to add up a thousand terms: uniform attention has log n, not more."""
    uniform = jnp.full((1, 1024, 1024), 1 / 1024, jnp.bfloat16)
    np.testing.assert_allclose(analysis.attention_entropy(uniform).mean(), [np.log(1024)], rtol=1e-5)
    everywhere = analysis.attention_share(uniform, jnp.ones((1024, 1024), bool))
    np.testing.assert_allclose(everywhere.mean(), [1], rtol=1e-6)
    one_word = analysis.word_maps(uniform, jnp.zeros(1024, int), 1)
    np.testing.assert_allclose(one_word, [[[1]]], rtol=1e-6)
    gates = jnp.full(1000, 20, jnp.bfloat16)
    assert analysis.open_penalty(gates) == 1000


def test_a_word_that_attends_nobody_is_no_hit():
    """In a causal model the first word attends no other: the largest of nothing but zeros is nobody."""
    maps = np.array([[[0.5, 0.0, 0.0], [0.9, 0.1, 0.0], [0.3, 0.4, 0.3]]])
    attends, attended = analysis.attended_word(maps), analysis.attended_word(maps, attends=False)
    assert attends.tolist() == [[-1, 0, 1]]
    assert attended.tolist() == [[1, 2, -1]]
    alone = analysis.attended_word(np.full((1, 3, 3), 0.5), np.array([True, False, False]))
    assert alone.tolist() == [[-1, -1, -1]]  # one word has no other
    heads, relations = np.array([1, -1, 1]), np.array([0, 0, 0])  # a root that is asked for: nobody is right
    hits = analysis.dependency_hits(np.array([[1, -1, -1], [-1, -1, 1]]), heads, relations, 1)
    np.testing.assert_array_equal(hits.total, [[1], [1]])
    np.testing.assert_array_equal(hits.count, [[3], [3]])


def test_a_word_whose_weights_are_no_numbers_is_not_guessed():
    maps = np.array([[[0.1, 0.9, 0.0], [np.nan, 0.1, 0.9], [0.9, 0.1, 0.0]]])
    assert analysis.attended_word(maps).tolist() == [[1, -1, 0]]


OPTIONS = {
    "attention_entropy": (
        lambda s: analysis.attention_entropy(WEIGHTS, smoothing=s, is_causal=True).total.sum(),
        (0.0, 0.01, 0.5),
    ),
    "head_distances": (lambda s: analysis.head_distances(WEIGHTS, smoothing=s)[0, 1], (0.0, 0.01, 0.5)),
    "hard_concrete": (
        lambda t: analysis.hard_concrete(LOG_ALPHA, np.full(3, 0.375), temperature=t).sum(),
        (0.33, 0.5, 2.0),
    ),
    "sample_gates": (
        lambda t: analysis.sample_gates(jax.random.key(0), LOG_ALPHA, temperature=t).sum(),
        (0.33, 0.5, 2.0),
    ),
    "open_probability": (
        lambda t: analysis.open_probability(LOG_ALPHA, temperature=t).sum(),
        (0.33, 0.5, 2.0),
    ),
    "open_penalty": (lambda t: analysis.open_penalty(LOG_ALPHA, temperature=t), (0.33, 0.5, 2.0)),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_may_be_traced(name):
    function, values = OPTIONS[name]
    expected = [float(function(value)) for value in values]
    np.testing.assert_allclose([jax.jit(function)(value) for value in values], expected, rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(function)(jnp.array(values)), expected, rtol=1e-5)
    np.testing.assert_allclose(function(jnp.asarray(values[1])), expected[1], rtol=1e-5)
    at, step = values[2], 1e-2
    slope = (function(at + step) - function(at - step)) / (2 * step)
    assert abs(slope) > 0.01
    np.testing.assert_allclose(jax.grad(function)(at), slope, rtol=2e-3)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("kind", [float, np.float32, jnp.asarray])
def test_options_that_are_known_are_checked(name, kind):
    option = "smoothing" if name in ("attention_entropy", "head_distances") else "temperature"
    for wrong in (-0.5, 1.0, np.nan) if option == "smoothing" else (-0.5, 0.0, np.nan):
        with pytest.raises(ValueError, match=rf"^{option}: expected"):
            OPTIONS[name][0](kind(wrong))


def test_a_traced_option_keeps_the_dtype_of_the_maps():
    for dtype in DTYPES:
        maps = jnp.asarray(WEIGHTS, dtype)
        wanted = jnp.promote_types(maps.dtype, jnp.float32)
        for smoothing in (0.1, np.float64(0.1), jnp.asarray(0.1, jax.dtypes.canonicalize_dtype("float64"))):
            assert inspect.unwrap(analysis.attention_entropy)(maps, smoothing=smoothing).total.dtype == wanted
            found = jax.jit(lambda m, s: analysis.attention_entropy(m, smoothing=s))(maps, smoothing)
            assert found.total.dtype == wanted
