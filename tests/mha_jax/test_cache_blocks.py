"""Decoding from a cache of many blocks: keys and values are read where they lie, whatever lies beside them."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mha_jax import _layers, attention, dot_product_attention
from mha_jax._kernels.blocks import Axis
from tests.mha_jax.test_cache import LAYERS, B, M, T, _draw, _empty, _layer, _tolerance


def _threes(num_queries, num_keys, *_):
    """All queries in one block, keys in blocks of three, the last of which is ragged."""
    return Axis(num_queries, num_queries), Axis(num_keys, min(3, num_keys))


@pytest.fixture
def in_blocks():
    with mock.patch.object(attention, "choose_blocks", _threes):
        yield


@pytest.mark.float64
@pytest.mark.usefixtures("in_blocks")
@pytest.mark.parametrize("kind", LAYERS)
def test_token_by_token_is_the_causal_pass(kind):
    params, _, expected = _layer(kind)
    step = jax.jit(lambda params, x, cache: LAYERS[kind][1](params, x, cache=cache))
    x, cache, found = _draw(B, T, M), _empty(kind), []
    for i in range(T):
        output, cache = step(params, x[:, i : i + 1], cache)
        found.append(output)
    np.testing.assert_allclose(np.concatenate(found, axis=1), expected, rtol=0, atol=_tolerance())


@pytest.mark.float64
@pytest.mark.parametrize("kind", ["gqa", "mla absorbed"])
def test_gradients_are_those_of_the_dense_kernel_also_of_what_is_cached(kind):
    """Of parameters, input and cached entries; what is not written gets none, and may be NaN."""
    params, x = _layer(kind)[0], _draw(B, 2, M)
    junk = _empty(kind)
    cached = tuple(_draw(B, 3, *entries.shape[2:], seed=i) for i, entries in enumerate(junk[:2]))

    def loss(params, x, cached, implementation):
        first, second = (old.at[:, :3].set(new) for old, new in zip(junk[:2], cached, strict=True))
        cache = type(junk)(first, second, jnp.int32(3))
        return (LAYERS[kind][1](params, x, cache=cache, implementation=implementation)[0] ** 2).sum()

    gradients = jax.jit(jax.grad(loss, (0, 1, 2)), static_argnums=3)
    with mock.patch.object(attention, "choose_blocks", _threes):
        found = gradients(params, x, cached, "blockwise")
    expected = gradients(params, x, cached, "dense")
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        scale = float(np.abs(theirs).max())
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=_tolerance() * scale)
        assert scale > 0


@pytest.mark.usefixtures("in_blocks")
def test_gradients_keep_the_dtype_of_what_is_kept():
    rng = np.random.default_rng(0)
    query, key, value = (
        jnp.asarray(rng.standard_normal(shape), jnp.bfloat16)
        for shape in ((1, 1, 2, 4), (1, 7, 1, 4), (1, 7, 1, 3))
    )

    def loss(query, key, value, implementation):
        return (
            dot_product_attention(query, key, value, implementation=implementation).astype(jnp.float32).sum()
        )

    found = jax.grad(loss, (0, 1, 2))(query, key, value, "blockwise")
    expected = jax.grad(loss, (0, 1, 2))(query, key, value, "dense")
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype == jnp.bfloat16
        ours, theirs = np.asarray(ours, np.float32), np.asarray(theirs, np.float32)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=float(jnp.finfo(jnp.bfloat16).eps))


@pytest.mark.parametrize("kind", ["gqa", "mla absorbed"])
def test_a_step_copies_nothing_of_the_size_of_the_cache(kind):
    """Not even where heads are split, latents and rotated keys joined, and places not yet written.

    In float32: on a CPU XLA widens a cache of bfloat16 as a whole.
    """
    params, room = _layer(kind)[0], 4003
    cache = _empty(kind, room)

    def temporary(implementation):
        step = jax.jit(
            lambda params, x, cache: LAYERS[kind][1](params, x, cache=cache, implementation=implementation),
            donate_argnames="cache",
        )
        memory = step.lower(params, _draw(B, 1, M), cache).compile().memory_analysis()
        assert memory is not None
        return memory.temp_size_in_bytes

    entries = min(x.nbytes for x in cache[:2])
    assert temporary(None) < 0.6 * sum(x.nbytes for x in cache[:2])
    assert temporary("dense") > entries


@pytest.mark.float64
@pytest.mark.parametrize("rows", [1, 16, 17])
def test_projections_of_few_rows_are_those_of_many(rows):
    x, kernel = _draw(rows, 5), _draw(3, 5, 4, seed=1)
    found = _layers.to_heads(x, kernel, x.dtype, None)
    np.testing.assert_allclose(found, np.einsum("tm,nmd->tnd", x, kernel), rtol=0, atol=_tolerance())
    back = _draw(3, 4, 5, seed=2)
    out = _layers.from_heads(found, back, x.dtype, None)
    np.testing.assert_allclose(out, np.einsum("tnd,ndm->tm", found, back), rtol=0, atol=10 * _tolerance())


def test_few_rows_copy_no_kernel():
    kernel, row = jnp.ones((8, 64, 16)), jnp.ones((1, 64))
    program = jax.jit(lambda x, k: _layers.to_heads(x, k, x.dtype, None)).lower(row, kernel).compile()
    memory = program.memory_analysis()
    assert memory is not None
    assert memory.temp_size_in_bytes < kernel.nbytes
