"""Uses of `dot_product_attention` that its callers meet: huge values, padding with causality, export, eager calls."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from mha_jax import dot_product_attention

UNCHECKED: Any = inspect.unwrap(dot_product_attention)  # without the tests' own check of types
OURS = ("dense", "blockwise")


def _draw(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape)


@pytest.mark.parametrize("implementation", OURS)
@pytest.mark.parametrize("length", [11, 700])
def test_a_mean_of_huge_values_does_not_overflow(implementation, length):
    query, key = jnp.zeros((1, 3, 1, 2)), jnp.zeros((1, length, 1, 2))
    value = jnp.full((1, length, 1, 1), 2e38)
    output = dot_product_attention(query, key, value, implementation=implementation)
    np.testing.assert_allclose(output, 2e38, rtol=1e-5)


@pytest.mark.parametrize("argument", ["mask", "bias"])
def test_padding_and_causality_together_need_no_memory_for_pairs(argument):
    def temporary_bytes(length):
        def attend(query: Any, padding: Any):
            padding = padding if argument == "mask" else jnp.where(padding, 0.0, -jnp.inf)
            return dot_product_attention(
                query, query, query, is_causal=True, implementation="blockwise", **{argument: padding}
            )

        arguments = jnp.zeros((1, length, 1, 2)), jnp.ones((1, 1, 1, length), bool)
        analysis = jax.jit(attend).lower(*arguments).compile().memory_analysis()
        assert analysis is not None
        return analysis.temp_size_in_bytes

    assert temporary_bytes(8192) - temporary_bytes(4096) < 4096 * 100  # all pairs would be 48 MB more


@pytest.mark.parametrize("implementation", OURS)
def test_padding_with_a_band_knows_exactly_what_is_read(implementation):
    """Against the same padding written out for every query, which takes another path; NaN where nothing is read."""
    rng = np.random.default_rng(7)
    queries, keys = 5, 7
    arrays = [rng.standard_normal((2, n, 1, 3)).astype(np.float32) for n in (queries, keys, keys)]

    @jax.jit
    def both(arrays, planted, short, offset, length):
        def loss(arrays, mask):
            options = {"query_offset": offset, "key_value_seq_lengths": length, "local_window_size": (2, 1)}
            return (
                dot_product_attention(*arrays, mask=mask, implementation=implementation, **options) ** 2
            ).sum()

        written_out = jnp.broadcast_to(short, (2, 1, queries, keys))
        return jax.value_and_grad(loss)(arrays, written_out), jax.value_and_grad(loss)(planted, short)

    unread = 0
    for _ in range(20):
        short = rng.random((2, 1, 1, keys)) < 0.4
        offset, length = rng.integers(-3, 5, 2), rng.integers(0, keys + 1, 2)
        distance = np.arange(keys) - np.arange(queries)[:, None] - offset[:, None, None]
        visible = (distance >= -2) & (distance <= 1) & short[:, 0] & (np.arange(keys) < length[:, None, None])
        read: list[Any] = [visible.any(2), visible.any(1), visible.any(1)]
        unread += sum((~x).sum() for x in read)
        planted = [np.where(r[..., None, None], x, np.nan) for r, x in zip(read, arrays, strict=True)]
        (value, grads), (found, found_grads) = both(arrays, planted, short, offset, length)
        np.testing.assert_allclose(found, value, rtol=1e-6)
        for a, b in zip(grads, found_grads, strict=True):
            np.testing.assert_allclose(b, a, rtol=0, atol=1e-5)
    assert unread > 100


def test_wide_integers_are_clipped_not_wrapped():
    query, key = _draw(0, 2, 3, 1, 2), _draw(1, 2, 5, 1, 2)
    far = np.full(2, 2**63 - 1)
    found = dot_product_attention(query, key, key, key_value_seq_lengths=far)
    np.testing.assert_array_equal(found, dot_product_attention(query, key, key))
    found = dot_product_attention(query, key, key, is_causal=True, query_offset=far)
    np.testing.assert_allclose(found, dot_product_attention(query, key, key), atol=1e-6)


@pytest.mark.parametrize("length", [5, 600])
def test_second_derivatives_are_refused_at_every_length(length):
    x = _draw(0, 1, length, 1, 2)

    def attend(x, implementation):
        return (dot_product_attention(x, x, x, implementation=implementation) ** 2).sum()

    def second(x, implementation):
        return jax.grad(lambda x: jax.grad(attend)(x, implementation).sum())(x)

    with pytest.raises(NotImplementedError, match="'dense'"):
        second(x, "blockwise")


def test_a_call_outside_jit_compiles_once():
    compiled = []
    x = _draw(0, 1, 600, 1, 2)

    def listen(event, *_, **__):
        if "backend_compile" in event:
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        dot_product_attention(x, x, x).block_until_ready()
        assert compiled
        compiled.clear()
        dot_product_attention(x, x, x).block_until_ready()
        assert not compiled
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def test_the_batch_may_be_symbolic_lengths_not():
    def traced(shape):
        program = jax.jit(lambda x: dot_product_attention(x, x, x, is_causal=True))
        return export.export(program)(jax.ShapeDtypeStruct(export.symbolic_shape(shape), jnp.float32))

    assert str(traced("b, 5, 2, 4").out_avals[0].shape) == "(b, 5, 2, 4)"
    with pytest.raises(NotImplementedError, match="lengths"):
        traced("2, t, 2, 4")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("logits_soft_cap", {"logits_soft_cap": "a"}),
        ("logits_soft_cap", {"logits_soft_cap": np.ones(2)}),
        ("dropout_rate", {"dropout_rate": None}),
        ("dropout_key", {"dropout_rate": 0.5, "dropout_key": 5}),
        ("dropout_key", {"dropout_rate": 0.5, "dropout_key": np.zeros(2, np.float32)}),
    ],
)
def test_what_is_no_number_and_no_key_is_refused_by_name(name, options):
    x = _draw(0, 1, 3, 1, 2)
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        jax.jit(lambda x: UNCHECKED(x, x, x, **options))(x)


def test_a_rate_that_is_traced_is_refused_by_name():
    x, key = _draw(0, 1, 3, 1, 2), jax.random.key(0)
    with pytest.raises(ValueError, match=r"^dropout_rate: expected"):
        jax.jit(lambda r: UNCHECKED(x, x, x, dropout_rate=r, dropout_key=key))(0.5)
