"""Weights taken over from Flax's own modules and given back: the same functions, exact round trips."""

import functools
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from mha_jax.flax_weights import params_from_flax, params_to_flax
from mha_jax.nnx import MultiHeadAttention
from mha_jax.projections import init_multi_head_attention, multi_head_attention, select_heads
from tests.mha_jax.flax_layers import (
    DIM,
    FEATURES,
    HEADS,
    flax_params,
    jit,
    nnx_layer,
    nnx_tolerance,
    normal,
    run_linen,
    tolerance,
)

BATCH, LENGTH, KEYS, KV_FEATURES = 2, 5, 13, 17
MASK = np.random.default_rng(0).random((BATCH, HEADS, LENGTH, LENGTH)) < 0.6
MASK[..., 0] = True


def _x(length=LENGTH, features=FEATURES):
    return jnp.asarray(normal(10 + length, BATCH, length, features))


CASES = ["plain", "no bias", "mask", "causal", "cross", "grouped", "linen", "linen, no bias, mask", "decode"]


@functools.cache
def _outputs():
    """By case: our output with Flax's weights, Flax's own output."""

    def decode(layer, **options):
        layer.init_cache(**options)
        return jnp.concatenate([layer(_x()[:, t : t + 1], decode=True) for t in range(LENGTH)], axis=1)

    def compute():
        outputs = {}
        mask = jnp.asarray(MASK)
        for case in CASES:
            options: dict[str, Any] = {"mask": mask} if "mask" in case else {}
            params = flax_params(bias="no bias" not in case)
            layer = nnx_layer(params)
            if case == "causal":
                options["is_causal"] = True
            inputs = (_x(),)
            if case == "cross":
                inputs = _x(), _x(KEYS, KV_FEATURES)
                layer = nnx_layer(flax_params(kv_features=KV_FEATURES))
            if case == "grouped":
                layer = nnx_layer(heads=6, kv_heads=2)
            if "linen" in case:
                own = {"use_bias": "no bias" not in case}
                ours = multi_head_attention(params_from_flax(params), *inputs, **options)
                outputs[case] = ours, run_linen(*inputs, params=params, layer=own, **options)
            elif case == "decode":
                mine = MultiHeadAttention.from_params(params_from_flax(layer))
                ours = decode(mine, capacity=LENGTH, batch_shape=(BATCH,))
                theirs = decode(layer, input_shape=(BATCH, LENGTH, FEATURES), dtype=_x().dtype)
                outputs[case] = ours, theirs
            else:
                ours = multi_head_attention(params_from_flax(layer), *inputs, **options)
                outputs[case] = ours, layer(*inputs, **options)
        return outputs

    return jit(compute)()


@pytest.mark.float64
@pytest.mark.parametrize("case", CASES)
def test_flaxs_weights_give_flaxs_outputs(case):
    ours, theirs = _outputs()[case]
    atol = tolerance() if "linen" in case else nnx_tolerance()
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol)
    assert np.abs(ours - _outputs()["plain"][1]).max() > 1e-2 or case in ("plain", "linen")


def _assert_equal(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert jax.tree.map(lambda x: x.dtype, found) == jax.tree.map(lambda x: x.dtype, expected)


@pytest.mark.parametrize("bias", [False, True])
def test_round_trips_are_exact(bias):
    theirs = flax_params(6, 2, kv_features=KV_FEATURES, bias=bias)
    ours = params_from_flax(theirs)
    assert ours["query"]["kernel"].shape == (6, FEATURES, DIM)
    assert ours["key"]["kernel"].shape == (2, KV_FEATURES, DIM)
    _assert_equal(params_to_flax(ours), theirs)
    _assert_equal(params_from_flax(params_to_flax(ours)), ours)


def test_half_precision_is_kept():
    theirs = jax.tree.map(lambda x: x.astype(jnp.bfloat16), flax_params())
    _assert_equal(params_to_flax(params_from_flax(theirs)), theirs)


def test_a_module_its_state_and_its_dictionary_are_taken():
    layer = nnx_layer()
    expected = params_from_flax(flax_params())
    _assert_equal(params_from_flax(layer), expected)
    _assert_equal(params_from_flax(nnx.state(layer, nnx.Param)), expected)
    _assert_equal(params_from_flax(nnx.state(layer)), expected)
    boxed = jax.tree.map(lambda x: linen.Partitioned(x, names=("heads",)), flax_params())
    _assert_equal(params_from_flax(boxed), expected)


def test_weights_given_back_are_those_of_the_module():
    ours = jax.tree.map(jnp.asarray, params_from_flax(flax_params()))
    ours = jax.tree.map(lambda x: jnp.flip(x, axis=0), ours)
    layer = nnx_layer(params_to_flax(ours))
    found, expected = jit(lambda x: (layer(x), multi_head_attention(ours, x)))(_x())
    np.testing.assert_allclose(found, expected, rtol=0, atol=nnx_tolerance())


def test_a_layer_of_given_parameters_has_their_sizes_and_function():
    params = dict(params_from_flax(flax_params(6, 2, kv_features=KV_FEATURES)))
    params["out"] = {"kernel": params["out"]["kernel"]}  # a layer may have biases in some projections
    pruned = select_heads(params, [0, 3])
    for given in params, pruned:
        layer = MultiHeadAttention.from_params(given, is_causal=True)
        _assert_equal(layer.params, given)
        heads, width, dim = given["query"]["kernel"].shape
        assert (layer.num_heads, layer.d_model, layer.head_dim, layer.d_kv) == (
            heads,
            width,
            dim,
            KV_FEATURES,
        )
    with pytest.raises(ValueError, match=r"^params\['out'\]\['kernel'\]: expected shape"):
        MultiHeadAttention.from_params(params | {"out": pruned["out"]})


# Refusals


def test_a_layer_norm_of_queries_and_keys_is_refused():
    layer = nnx_layer(flax_params(), normalize_qk=True)
    with pytest.raises(NotImplementedError, match=r"^source: key_ln, query_ln subtract a mean"):
        params_from_flax(layer)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": {}}, r"^params\['query'\]: expected 'kernel'"),
        (
            {"key": {"kernel": np.ones((FEATURES, HEADS, DIM + 1))}},
            r"^params\['key'\]\['kernel'\]: expected shape",
        ),
        ({"other": {}}, r"^params: expected parts .*other"),
    ],
)
def test_what_are_no_parameters_of_flax_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        params_from_flax(flax_params() | change)


def test_another_module_or_type_is_refused():
    with pytest.raises(ValueError, match=r"^source: expected parts .*, got arrays \['bias', 'kernel'\]"):
        params_from_flax(nnx.state(nnx.Linear(2, 3, rngs=nnx.Rngs(0))))
    source: Any = [1, 2]
    with pytest.raises(ValueError, match=r"^source: expected a module or its parameters, got list"):
        inspect.unwrap(params_from_flax)(source)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value_head_dim": 3}, "one head dimension for keys .7. and values .3."),
        ({"qk_norm": True}, "no root-mean-square norm .key_norm, query_norm."),
        ({"use_bias": True}, "a bias in all projections or in none"),
    ],
)
def test_what_flax_cannot_hold_is_refused(options, message):
    init = functools.partial(
        init_multi_head_attention, d_model=FEATURES, num_heads=HEADS, head_dim=DIM, **options
    )
    params = jax.tree.map(lambda x: jnp.zeros(x.shape), dict(jax.eval_shape(init, jax.random.key(0))))
    if "use_bias" in options:
        params["out"] = {"kernel": params["out"]["kernel"]}
    with pytest.raises(NotImplementedError, match=rf"^params: Flax's modules have {message}"):
        params_to_flax(params)
