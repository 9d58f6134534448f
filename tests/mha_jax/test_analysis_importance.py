"""Gradients in the mask of heads against finite differences, and importance on a case made by hand."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mha_jax import analysis, dot_product_attention, init_multi_head_attention
from mha_jax.projections import combine_heads, project_heads

pytestmark = pytest.mark.float64

LAYERS, EXAMPLES, TOKENS, HEADS, WIDTH = 2, 2, 5, 3, 6
LENGTHS = jnp.array([5, 3])
REAL = jnp.arange(TOKENS)[None, :] < LENGTHS[:, None]


@pytest.fixture(scope="module")
def loss():
    """Mean square of what two causal layers leave behind, of all real tokens."""
    keys = jax.random.split(jax.random.key(0), LAYERS + 1)
    layers = [init_multi_head_attention(key, WIDTH, HEADS) for key in keys[1:]]
    start = jax.random.normal(keys[0], (EXAMPLES, TOKENS, WIDTH))

    def of_mask(head_mask):
        x = start.astype(head_mask.dtype)
        for params, mask in zip(layers, head_mask, strict=True):
            query, key, value = project_heads(params, x)
            heads = dot_product_attention(
                query,
                key,
                value,
                is_causal=True,
                key_value_seq_lengths=LENGTHS,
                head_mask=mask,
                implementation="dense",
            )
            x = x + combine_heads(params, heads)
        return jnp.where(REAL[..., None], x**2, 0).sum()

    return jax.jit(of_mask)


def test_gradients_are_finite_differences_token_by_token(loss):
    start = jnp.ones((LAYERS, EXAMPLES, TOKENS, HEADS)).at[1, :, :, 0].set(0)
    value, gradients = analysis.head_gradients(loss, start)
    double = start.dtype == jnp.float64
    step = 1e-5 if double else 2e-2
    steps = step * jnp.eye(start.size, dtype=start.dtype).reshape(-1, *start.shape)
    upper, lower = (jax.lax.map(lambda s, sign=sign: loss(start + sign * s), steps) for sign in (1, -1))
    expected = ((upper - lower) / (2 * step)).reshape(start.shape)
    scale = float(value)
    # Rounding of a float32 sum of this size, over the step; and the step's square.
    np.testing.assert_allclose(gradients, expected, rtol=1e-3, atol=scale * (1e-9 if double else 2e-5))
    assert np.abs(expected[1, :, :, 0]).max() > 1e-2  # also of heads that are switched off
    np.testing.assert_allclose(gradients[:, 1, 3:], 0, atol=1e-12)  # padding has no say


def test_gradients_are_the_head_times_its_own_gradient(loss):
    ones = jnp.ones((LAYERS, EXAMPLES, TOKENS, HEADS))
    _, gradients = analysis.head_gradients(loss, ones)
    # A mask of one entry a head is the sum over tokens: the absolute value has to come before.
    whole = jax.grad(lambda mask: loss(jnp.broadcast_to(mask[:, None, None, :], ones.shape)))(
        jnp.ones((LAYERS, HEADS))
    )
    np.testing.assert_allclose(gradients.sum((1, 2)), whole, rtol=1e-4, atol=1e-4)


def test_importance_is_the_mean_absolute_value_by_token():
    # The loss is linear, so its gradient is known: heads 0 and 1 cancel over tokens, but not token by token.
    derivative = np.zeros((2, 2, 3, 2))
    derivative[0, 0, :, 0], derivative[0, 0, :, 1] = [3, -3, 0], [4, 4, -8]
    derivative[0, 1, :, 0], derivative[0, 1, :, 1] = [-6, 100, 100], [8, -100, 100]
    derivative[1, 0, 0, 1] = -7
    real = np.array([[True, True, True], [True, False, False]])

    def linear(mask):
        return (mask * derivative).sum()

    ones = jnp.ones(derivative.shape)
    _, gradients = analysis.head_gradients(linear, ones)
    total = analysis.importance_total(gradients, real)
    np.testing.assert_allclose(total.mean(), [[12 / 4, 24 / 4], [0, 7 / 4]], rtol=1e-6)
    np.testing.assert_allclose(total.count, 4)
    expected = [np.array([1, 2]) / np.sqrt(5), [0, 1]]
    np.testing.assert_allclose(analysis.head_importance(linear, ones, real), expected, rtol=1e-6)
    everywhere = analysis.importance_total(gradients).mean()
    np.testing.assert_allclose(everywhere[0, 0], (3 + 3 + 6 + 200) / 6, rtol=1e-6)
    batches = [analysis.importance_total(gradients[:, [i]], real[[i]]) for i in range(2)]
    np.testing.assert_allclose((batches[0] + batches[1]).mean(), total.mean(), rtol=1e-6)


def test_importance_over_no_tokens_is_not_a_number():
    ones = jnp.ones((2, 1, 3, 2))
    assert np.isnan(analysis.head_importance(jnp.sum, ones, np.zeros((1, 3), bool))).all()
    assert np.isfinite(analysis.head_importance(jnp.sum, ones, np.eye(3, dtype=bool)[:1])).all()


def test_a_layer_without_importance_stays_zero():
    np.testing.assert_array_equal(analysis.normalise_layers(jnp.zeros((2, 3))), np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("float16", 1e-3), ("float16", 1e2), ("bfloat16", 1e-30), ("bfloat16", 6e37)]
    + [("float32", size) for size in (1e-37, 1e-30, 1.0, 1e20, 6e37)],
)
def test_the_norm_of_a_layer_neither_overflows_nor_vanishes(dtype, size):
    stored = (jnp.array([[3, 4], [0, 0]], jnp.float32) * size).astype(dtype)
    found = analysis.normalise_layers(stored)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found[0], [0.6, 0.8], rtol=2 * float(jnp.finfo(dtype).eps))
    exact = np.asarray(stored[0], np.float64)  # what is stored is rounded
    for normalise in (analysis.normalise_layers, jax.jit(analysis.normalise_layers)):
        np.testing.assert_allclose(
            normalise(stored), np.stack([exact / np.linalg.norm(exact), 0 * exact]), rtol=3e-7
        )


def test_a_layer_with_a_nan_is_nan_and_one_of_zeros_has_a_gradient():
    found = analysis.normalise_layers(jnp.array([[3.0, jnp.nan], [3.0, 4.0]]))
    np.testing.assert_allclose(found, [[np.nan, np.nan], [0.6, 0.8]], rtol=3e-7)
    weights = jnp.array([[1.0, 2.0], [1.0, 2.0]])
    slope = jax.grad(lambda values: (weights * analysis.normalise_layers(values)).sum())
    found = np.asarray(slope(jnp.array([[0.0, 0.0], [3.0, 4.0]])))
    assert np.isfinite(found).all()
    # (w - n (n . w)) / |v| with n = (0.6, 0.8), w = (1, 2)
    np.testing.assert_allclose(found[1], (np.array([1, 2]) - np.array([0.6, 0.8]) * 2.2) / 5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "function", "arguments"),
    [
        ("head_mask", analysis.head_gradients, (jnp.sum, np.ones((2, 3)))),
        ("gradients", analysis.importance_total, (np.ones((2, 3)),)),
        ("tokens", analysis.importance_total, (np.ones((1, 2, 3, 4)), np.ones((3, 2), bool))),
        ("importance", analysis.normalise_layers, (np.ones(3),)),
    ],
)
def test_errors_name_the_argument(name, function, arguments):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        inspect.unwrap(function)(*arguments)
