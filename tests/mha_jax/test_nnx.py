"""Layers of `mha_jax.nnx`: the pure functions' outputs, and what Flax does with layers and their state."""

import ast
import functools
import operator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import mha_jax
from mha_jax.attention import attention_weights
from mha_jax.latent import init_latent_attention, latent_attention
from mha_jax.nnx import MultiHeadAttention, MultiHeadLatentAttention
from mha_jax.nnx.layer import check_rngs
from mha_jax.projections import init_multi_head_attention, multi_head_attention, project_heads
from mha_jax.rope import RotaryEmbedding
from tests.mha_jax.flax_layers import jit, normal, tolerance

BATCH, LENGTH, FEATURES, KV_FEATURES, OUT = 2, 7, 11, 13, 5
ROPE = RotaryEmbedding(base=100.0)
# Every option that changes parameters, with sizes that differ.
SIZES: dict[str, Any] = {
    "d_model": FEATURES,
    "num_heads": 6,
    "num_kv_heads": 2,
    "head_dim": 4,
    "value_head_dim": 3,
    "d_kv": KV_FEATURES,
    "d_out": OUT,
    "use_bias": True,
    "qk_norm": True,
}
SELF: dict[str, Any] = SIZES | {"d_kv": FEATURES, "rope": ROPE}
LATENT: dict[str, Any] = {
    "d_model": FEATURES,
    "num_heads": 3,
    "head_dim": 4,
    "value_head_dim": 5,
    "latent_dim": 7,
    "rope_dim": 4,
    "query_latent_dim": 8,
    "d_out": OUT,
    "latent_norm": True,
}


def _layer(cls: Any = MultiHeadAttention, rngs=None, **options):
    """A layer with parameters drawn by NumPy, and so without compiling the draws of each one."""
    layer = nnx.eval_shape(lambda: cls(rngs=nnx.Rngs(0), **options))
    leaves, tree = jax.tree.flatten(layer.params)
    drawn = [
        jnp.asarray(normal(i, *x.shape) / np.sqrt(x.shape[-2] if x.ndim > 1 else 1))
        for i, x in enumerate(leaves)
    ]
    layer._set_state(
        jax.tree.unflatten(tree, [x.astype(normal(0).dtype) for x in drawn]), rngs or nnx.Rngs(1)
    )
    return layer


def _x(length=LENGTH, features=FEATURES):
    return jnp.asarray(normal(length, BATCH, length, features))


# Parameters


@pytest.mark.parametrize(
    ("cls", "init", "sizes"),
    [
        (MultiHeadAttention, init_multi_head_attention, SIZES),
        (MultiHeadLatentAttention, init_latent_attention, LATENT),
    ],
)
def test_parameters_are_those_of_the_pure_functions_under_their_names(cls, init, sizes):
    layer = nnx.eval_shape(lambda: cls(rngs=nnx.Rngs(0), param_dtype=jnp.bfloat16, **sizes))
    expected = jax.eval_shape(functools.partial(init, dtype=jnp.bfloat16, **sizes), jax.random.key(0))
    shapes = jax.tree.map(lambda x: (x.shape, x.dtype), expected)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), layer.params) == shapes
    state = nnx.to_pure_dict(nnx.state(layer))  # nothing but parameters
    assert jax.tree.map(lambda x: (x.shape, x.dtype), state) == shapes


def test_the_streams_key_draws_the_parameters():
    def compute():
        layer = MultiHeadAttention(d_model=4, num_heads=2, rngs=nnx.Rngs(3))
        return layer.params, init_multi_head_attention(nnx.Rngs(3).params(), 4, 2)

    found, expected = jit(compute)()
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert np.std(found["query"]["kernel"]) > 0.1


@pytest.mark.parametrize("cls", [MultiHeadAttention, MultiHeadLatentAttention])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 0}, "num_heads: expected a positive integer, got 0"),
        ({"num_heads": -2}, "num_heads: expected a positive integer, got -2"),
        ({"num_heads": 5}, ".*num_heads"),
        ({"d_model": 0}, "d_model: expected a positive integer, got 0"),
        ({"head_dim": 0}, "head_dim: expected a positive integer, got 0"),
        ({"dropout_rate": 1.0}, r"dropout_rate: expected a number in \[0, 1\), got 1.0"),
        ({"dropout_rate": -0.1}, r"dropout_rate: expected a number in \[0, 1\), got -0.1"),
    ],
)
def test_bad_sizes_and_rates_are_refused(cls, options, message):
    options = {"d_model": 8, "num_heads": 2} | options
    with pytest.raises(ValueError, match=f"^{message}"):
        nnx.eval_shape(lambda: cls(rngs=nnx.Rngs(0), **options))


def test_no_check_vanishes_without_asserts():
    for path in Path(mha_jax.__file__).parent.rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text("utf-8")))
        assert not any(isinstance(node, ast.Assert) for node in nodes), f"{path} checks by assert"


# Calls

LENGTHS = jnp.array([3, LENGTH])


@functools.cache
def _calls():
    """By name: output and weights of a layer, output and weights of the pure functions; in one compilation."""
    mask = np.random.default_rng(0).random((BATCH, 6, LENGTH, 13)) < 0.6
    bias = jnp.asarray(normal(0, 1, 6, LENGTH, 13))
    head_mask = jnp.asarray(normal(1, 6))
    settings = {"local_window_size": (3, 1), "logits_soft_cap": 2.0, "scale": 0.7}
    masking: dict[str, Any] = {
        "mask": jnp.asarray(mask),
        "bias": bias,
        "key_value_seq_lengths": jnp.array([13, 9]),
    }
    positions: dict[str, Any] = {
        "query_positions": jnp.arange(LENGTH) + 5,
        "key_positions": jnp.arange(13) * 2,
    }

    def compute():
        outputs = {}
        layer = _layer(**SIZES, rope=ROPE, **settings)
        inputs = _x(), _x(13, KV_FEATURES)
        found = layer(*inputs, head_mask=head_mask, return_weights=True, **masking, **positions)
        pure = multi_head_attention(
            layer.params, *inputs, rope=ROPE, head_mask=head_mask, **masking, **positions, **settings
        )
        query, key, _ = project_heads(layer.params, *inputs, rope=ROPE, **positions)
        outputs["cross"] = found, (pure, attention_weights(query, key, **masking, **settings))

        layer = _layer(**SELF, is_causal=True)
        found = layer(_x(), query_seq_lengths=LENGTHS, return_weights=True)
        pure = multi_head_attention(layer.params, _x(), rope=ROPE, is_causal=True, query_seq_lengths=LENGTHS)
        query, key, _ = project_heads(layer.params, _x(), rope=ROPE)
        weights = attention_weights(query, key, is_causal=True, query_seq_lengths=LENGTHS)
        outputs["causal"] = found, (pure, weights)

        # A chunk of queries at position 4, keys from 0 on.
        inputs = _x()[:, 4:], _x()
        found = layer(*inputs, query_offset=4, return_weights=True)
        full = layer(_x(), return_weights=True)
        outputs["offset"] = found, (full[0][:, 4:], full[1][:, :, 4:])
        outputs["not causal"] = (
            layer(_x(), is_causal=False),
            multi_head_attention(layer.params, _x(), rope=ROPE),
        )

        layer = _layer(MultiHeadLatentAttention, is_causal=True, rope=ROPE, **LATENT)
        found = layer(_x(), head_mask=head_mask[:3], return_weights=True)
        naive, absorbed = (
            latent_attention(
                layer.params, _x(), rope=ROPE, is_causal=True, head_mask=head_mask[:3], absorbed=absorbed
            )
            for absorbed in (False, True)
        )
        outputs["latent"] = found[0], naive
        outputs["latent, absorbed"] = layer(_x(), head_mask=head_mask[:3], absorbed=True), absorbed
        outputs["forms of latent attention"] = naive, absorbed
        # The weights, by means of values that tell the keys apart: the output is linear in them.
        outputs["latent weights"] = found[1].sum(-1), jnp.ones(found[1].shape[:-1], found[1].dtype)
        layer.rope = RotaryEmbedding(base=1e9)
        outputs["another rope"] = layer(_x(), head_mask=head_mask[:3]), naive
        return outputs

    return jit(compute)()


NAMES = (
    "cross|causal|offset|not causal|latent|latent, absorbed|forms of latent attention|latent weights".split(
        "|"
    )
)


@pytest.mark.float64
@pytest.mark.parametrize("name", NAMES)
def test_layers_give_what_the_pure_functions_give(name):
    found, expected = _calls()[name]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=2 * tolerance()), found, expected)
    assert np.abs(np.subtract(*_calls()["another rope"])).max() > 1e-3
    assert np.abs(np.subtract(_calls()["not causal"][0], _calls()["causal"][0][0])).max() > 1e-2


def test_calls_leave_nothing_behind():
    """Asking for weights again and again, with dropout, too: only the dropout's counter changes."""

    def call(times):
        layer = _layer(**SELF, dropout_rate=0.5)
        for _ in range(times):
            layer(_x(), return_weights=True)
        return nnx.state(layer, nnx.Not(nnx.RngState)), nnx.state(layer)

    once, twice = (jax.eval_shape(functools.partial(call, times)) for times in (1, 2))
    assert jax.tree.structure(once) == jax.tree.structure(twice)
    assert jax.tree.structure(once[0]) == jax.tree.structure(nnx.state(_layer(**SELF)))


# Decoding


@functools.cache
def _decoded(kind):
    """Outputs and weights of chunks of a sequence, and of the whole of it."""
    cls, options = {
        "multi-head": (MultiHeadAttention, SELF),
        "latent": (MultiHeadLatentAttention, LATENT | {"rope": ROPE, "absorbed": True}),
    }[kind]
    layer = _layer(cls, **options, local_window_size=(4, 0))
    layer.init_cache(LENGTH + 2, batch_shape=(BATCH,), dtype=_x().dtype)

    def compute(graph, state):
        layer = nnx.merge(graph, state)
        chunks = [layer(_x()[:, a:b], decode=True, return_weights=True) for a, b in ((0, 3), (3, 4), (4, 7))]
        whole = layer(_x(), is_causal=True, return_weights=True)
        too_many = layer(_x()[:, :3], decode=True)
        return chunks, whole, too_many, nnx.state(layer, nnx.Cache)

    return jit(compute, static_argnums=0)(*nnx.split(layer))


@pytest.mark.float64
@pytest.mark.parametrize("kind", ["multi-head", "latent"])
def test_chunks_through_the_cache_give_the_whole_sequence(kind):
    chunks, (output, weights), too_many, cache = _decoded(kind)
    found = np.concatenate([np.asarray(out) for out, _ in chunks], axis=1)
    np.testing.assert_allclose(found, output, rtol=0, atol=4 * tolerance())
    found = np.concatenate([np.asarray(chunk) for _, chunk in chunks], axis=2)
    np.testing.assert_allclose(found[..., :LENGTH], weights, rtol=0, atol=4 * tolerance())
    assert np.all(found[..., LENGTH:] == 0)
    # Two of three more tokens fit.
    assert np.all(np.isfinite(too_many[:, :2]))
    assert np.all(np.isnan(too_many[:, 2]))
    assert cache["cache"]["length"].get_value() == LENGTH + 2


def test_the_cache_is_state_under_fixed_names():
    layer = _layer(**SELF)
    layer.init_cache(5, batch_shape=(2, 3))
    state = nnx.to_pure_dict(nnx.state(layer, nnx.Cache))
    shapes = jax.tree.map(jnp.shape, state)
    assert shapes == {"cache": {"key": (2, 3, 5, 2, 4), "value": (2, 3, 5, 2, 3), "length": ()}}
    layer.init_cache(4)
    assert layer.cache["key"].shape == (4, 2, 4)

    layer = _layer(MultiHeadLatentAttention, **LATENT, dtype=jnp.bfloat16)
    layer.init_cache(5)
    assert jax.tree.map(jnp.shape, nnx.to_pure_dict(nnx.state(layer, nnx.Cache))) == {
        "cache": {"latent": (5, 7), "rope_key": (5, 4), "length": ()}
    }
    assert layer.cache["latent"].dtype == jnp.bfloat16


def test_decoding_is_refused_without_a_cache_past_its_end_and_not_causal():
    layer = _layer(d_model=4, num_heads=2, decode=True)
    x = jnp.ones((3, 4), normal(0).dtype)
    with pytest.raises(
        ValueError, match=r"^decode: expected False before init_cache has made a cache, got True"
    ):
        layer(x)
    layer.init_cache(2)
    with pytest.raises(ValueError, match=r"^cache: expected room for 3 more entries, got 0 of 2 in use"):
        layer(x)
    assert layer.cache["length"].get_value() == 0
    with pytest.raises(ValueError, match=r"^is_causal: expected True or None with a cache, got False"):
        layer(x[:1], is_causal=False)
    with pytest.raises(ValueError, match=r"^capacity: expected a positive integer, got 0"):
        layer.init_cache(0)


# Dropout


def test_dropout_is_new_at_each_call_and_off_where_told():
    layer = _layer(d_model=4, num_heads=2, dropout_rate=0.5)
    first, second = layer._dropout(None, None), layer._dropout(None, None)
    assert first.keys() == second.keys() == {"dropout_rate", "dropout_key"}
    assert first["dropout_key"] != second["dropout_key"]
    assert layer._dropout(True, None) == {}
    for off in (layer.eval, lambda: layer.set_attributes(deterministic=True)):
        layer.train()
        off()
        assert layer._dropout(None, None) == {}
        assert layer._dropout(False, None) != {}
    view = nnx.view(layer, deterministic=False, decode=False)
    assert (layer.deterministic, view.deterministic) == (True, False)


@pytest.mark.slow
def test_dropout_changes_outputs():
    layer = _layer(d_model=4, num_heads=2, dropout_rate=0.5)

    @nnx.jit
    def call(layer, x):
        return layer(x)

    x = _x(3, 4)
    first, second = call(layer, x), call(layer, x)
    assert np.abs(first - second).max() > 1e-2
    layer.eval()
    without = jit(functools.partial(multi_head_attention, layer.params))(x)
    np.testing.assert_allclose(call(layer, x), without, rtol=0, atol=tolerance())


def test_dropout_keys_are_those_given_or_the_layers_own():
    def key(layer, **call):
        return jax.random.key_data(layer._dropout(False, call.get("rngs"))["dropout_key"])

    layer = _layer(**SELF, dropout_rate=0.5, rngs=nnx.Rngs(5))
    np.testing.assert_array_equal(key(layer), jax.random.key_data(nnx.Rngs(5).dropout.fork()()))
    for rngs in (nnx.Rngs(dropout=3), nnx.Rngs(dropout=3).dropout):
        np.testing.assert_array_equal(
            key(layer, rngs=rngs), jax.random.key_data(nnx.Rngs(dropout=3).dropout())
        )
    layer = _layer(**SELF)
    layer.dropout_rate = 0.5
    with pytest.raises(ValueError, match=r"^rngs: expected random streams for dropout, got None"):
        jax.eval_shape(lambda: layer(_x()))


def test_random_streams_are_streams():
    for wrong in (0, jax.random.key(0)):
        with pytest.raises(ValueError, match=r"^rngs: expected nnx.Rngs, got "):
            check_rngs(wrong)


# Flax's transformations


def test_gradients():
    layer = _layer(**SELF, is_causal=True)
    options = {"rope": ROPE, "is_causal": True}

    @jit
    def gradients(params):
        layer = MultiHeadAttention.from_params(params, **options)
        found = nnx.grad(lambda layer, x: jnp.sum(layer(x) ** 2))(layer, _x())
        expected = jax.grad(lambda params: jnp.sum(multi_head_attention(params, _x(), **options) ** 2))(
            params
        )
        return nnx.to_pure_dict(found), expected

    found, expected = gradients(layer.params)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=tolerance() * np.abs(b).max()),
        found,
        expected,
    )
    assert all(np.abs(x).max() > 1e-3 for x in jax.tree.leaves(found))


def test_splits_and_checkpoints():
    layer = _layer(**SELF)
    graph, params, rest = nnx.split(layer, nnx.Param, ...)
    assert not jax.tree.leaves(rest)
    names = {".".join(map(str, path)) for path, _ in nnx.to_flat_state(params)}
    assert names == {f"{part}.{name}" for part, arrays in layer.params.items() for name in arrays}
    other = _layer(**SELF)
    nnx.update(other, jax.tree.map(lambda x: 2 * x, nnx.to_pure_dict(params)))
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, 2 * b), other.params, layer.params)
    merged: Any = nnx.merge(graph, params, rest)
    assert jax.tree.map(jnp.shape, merged.params) == jax.tree.map(jnp.shape, layer.params)


@pytest.mark.slow
def test_layers_stacked_by_vmap_and_run_by_scan():
    """Also with a cache for each layer: a loop over the layers gives the same."""
    options: dict[str, Any] = {"d_model": FEATURES, "num_heads": 2, "head_dim": 4, "rope": ROPE}

    @nnx.vmap(in_axes=(0,), out_axes=0)
    def make(rngs):
        layer = MultiHeadAttention(rngs=rngs, **options)
        layer.init_cache(LENGTH, batch_shape=(BATCH,))
        return layer

    @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
    def run(x, layer):
        return x + layer(x, decode=True)

    def compute():
        layers = make(nnx.Rngs(0).split(2))
        x = _x().astype(jnp.float32)
        found = run(x, layers)
        lengths = layers.cache["length"].get_value()
        for i in range(2):
            params = jax.tree.map(operator.itemgetter(i), layers.params)
            x = x + MultiHeadAttention.from_params(params, rope=ROPE, is_causal=True)(x)
        return found, x, lengths

    found, expected, lengths = jit(compute)()
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
    np.testing.assert_array_equal(lengths, [LENGTH] * 2)
