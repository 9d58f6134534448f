"""`attention_fn` inside Flax's own modules: every keyword that the installed Flax passes is honoured or refused."""

import functools
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from mha_jax import flax_adapter
from mha_jax.flax_adapter import attention_fn
from tests.mha_jax.flax_layers import (
    DIM,
    FEATURES,
    HEADS,
    jit,
    nnx_layer,
    nnx_tolerance,
    normal,
    run_linen,
    tolerance,
)

BATCH, LENGTH, KEYS = 2, 5, 13  # distinct primes, also of heads, their dimension and features
OURS: dict[str, Any] = {"attention_fn": attention_fn}
# Every row attends something; examples, heads and rows differ.
MASK = np.random.default_rng(0).random((BATCH, HEADS, LENGTH, LENGTH)) < 0.6
MASK[..., 0] = True


def _x(length=LENGTH, *batch):
    return jnp.asarray(normal(10 + length, *(batch or (BATCH,)), length, FEATURES))


# Which keywords Flax passes

NNX_KEYWORDS = {
    *"mask dropout_rng dropout_rate broadcast_dropout deterministic dtype precision module is_causal".split()
}
LINEN_KEYWORDS = {
    *"mask dropout_rng dropout_rate broadcast_dropout deterministic dtype precision module".split(),
    *"force_fp32_for_softmax qk_attn_weights_einsum attn_weights_value_einsum".split(),
}


class _AnyName(dict):
    def __contains__(self, name):
        return True


class _TakesEverything(inspect.Signature):
    @property
    def parameters(self):  # pyright: ignore[reportIncompatibleMethodOverride]
        return _AnyName()


def _recorder():
    """A function that records the keywords it is called with, and tells linen, which looks, that it takes any."""
    seen = {}

    def record(query, key, value, **keywords):
        seen.update(keywords)
        return query

    record.__signature__ = _TakesEverything()
    return record, seen


def test_nnx_passes_the_keywords_that_are_handled():
    record, seen = _recorder()
    jax.eval_shape(lambda: nnx_layer(attention_fn=record)(_x(), sow_weights=True))
    assert set(seen) == NNX_KEYWORDS
    assert set(seen) <= set(inspect.signature(attention_fn).parameters)


def test_linen_passes_the_keywords_that_are_handled():
    record, seen = _recorder()
    jax.eval_shape(lambda: run_linen(_x(), layer={"attention_fn": record}, sow_weights=True))
    assert set(seen) == LINEN_KEYWORDS
    assert set(seen) <= set(inspect.signature(attention_fn).parameters)


@pytest.mark.parametrize("original", [nnx.dot_product_attention, linen.dot_product_attention])
def test_arguments_of_flaxs_own_functions_have_the_same_names_and_defaults(original):
    ours = inspect.signature(attention_fn).parameters
    theirs = inspect.signature(original).parameters
    assert set(theirs) <= set(ours)
    assert [*theirs][:12] == [*ours][:12]  # up to `module`, by position too
    for name in set(theirs) - {"promote_dtype"}:
        assert ours[name].default == theirs[name].default, name


# The same outputs as with Flax's own function

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "mask": {"mask": MASK},
    "mask of floats": {"mask": MASK.astype(np.float32)},
    "broadcast mask": {"mask": MASK[:1, :1]},
    "causal": {"is_causal": True},
    "causal and mask": {"is_causal": True, "mask": MASK},
}
NAMES = [("nnx", case) for case in (*CASES, "cross", "grouped", "bfloat16")] + [
    ("linen", case) for case in (*CASES, "cross", "softmax", "bfloat16", "float16") if "causal" not in case
]


@functools.cache
def _outputs():
    """By module and case: the output with our function and with Flax's; all in one compilation."""

    def output(module, case, own: dict[str, Any]):
        call, layer, inputs = CASES.get(case, {}), dict(own), (_x(),)
        if case == "cross":
            inputs = _x(), _x(KEYS)
        elif case == "grouped":
            layer |= {"heads": 6, "kv_heads": 2}
            inputs, call = (_x(LENGTH, 2, 3),), {"is_causal": True}
        elif case == "softmax":
            layer |= {"force_fp32_for_softmax": True}
        elif "float16" in case:
            layer |= {"dtype": jnp.dtype(case)}
        call = {name: jnp.asarray(x) if name == "mask" else x for name, x in call.items()}
        return (
            nnx_layer(**layer)(*inputs, **call)
            if module == "nnx"
            else run_linen(*inputs, layer=layer, **call)
        )

    return jit(lambda: {name: [output(*name, own) for own in (OURS, {})] for name in NAMES})()


@pytest.mark.float64
@pytest.mark.parametrize(("module", "case"), NAMES)
def test_modules_give_what_they_give_with_their_own_function(module, case):
    found, expected = _outputs()[module, case]
    if case in CASES and case != "plain":  # the keyword matters
        assert np.abs(expected - _outputs()[module, "plain"][1]).max() > 1e-2
    assert found.dtype == expected.dtype
    # In 16 bits Flax rounds its weights; its softmax "in float32" is a cast down where inputs are float64.
    atol = {"bfloat16": 0.02, "float16": 0.003, "softmax": 1e-5}.get(
        case, nnx_tolerance() if module == "nnx" else tolerance()
    )
    np.testing.assert_allclose(*(np.asarray(x, np.float64) for x in (found, expected)), rtol=0, atol=atol)


def _heads(heads=4, kv_heads=2, length=LENGTH, keys=KEYS, dtype=np.float32):
    shapes = (length, heads, DIM), (keys, kv_heads, DIM), (keys, kv_heads, DIM)
    return [jnp.asarray(normal(i, BATCH, *shape), dtype) for i, shape in enumerate(shapes)]


def test_bias_is_added():
    query, key, value = _heads(kv_heads=4)
    bias = jnp.asarray(normal(3, 1, 4, LENGTH, KEYS), np.float32)
    functions = attention_fn, jax.nn.dot_product_attention
    found, expected = jit(lambda: [f(query, key, value, bias) for f in functions])()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_inputs_are_cast_to_dtype_or_by_the_function_given():
    query, key, value = (
        jax.ShapeDtypeStruct((5, 3, 7), dtype) for dtype in ("float32", "bfloat16", "float16")
    )

    def dtype(**options):
        return jax.eval_shape(functools.partial(attention_fn, **options), query, key, value).dtype

    assert dtype() == jnp.float32
    assert dtype(dtype=jnp.float16) == jnp.float16
    assert dtype(promote_dtype=lambda arrays, dtype: [x.astype(jnp.bfloat16) for x in arrays]) == jnp.bfloat16


def test_precision_reaches_both_products():
    def products(precision):
        attend: Any = functools.partial(attention_fn, precision=precision)
        return str(jax.make_jaxpr(attend)(*_heads())).count("Precision.HIGHEST")

    with jax.default_matmul_precision("default"):
        assert products(None) == 0
        assert products(jax.lax.Precision.HIGHEST) >= 2


@pytest.mark.parametrize(
    "name", ["einsum_dot_general", "qk_attn_weights_einsum", "attn_weights_value_einsum"]
)
def test_other_products_are_refused(name):
    query, key, value = _heads()
    other: Any = {name: jnp.einsum}
    with pytest.raises(NotImplementedError, match=rf"^{name}: the kernels have their own matrix products"):
        attention_fn(query, key, value, **other)


def test_other_products_are_refused_inside_linen():
    einsums = {
        name: lambda: jnp.einsum for name in ("qk_attn_weights_einsum_cls", "attn_weights_value_einsum_cls")
    }
    with pytest.raises(NotImplementedError, match=r"^qk_attn_weights_einsum: "):
        jax.eval_shape(lambda: run_linen(_x(), layer=OURS | einsums))


def test_weights_are_sown_as_flax_does():
    def nnx_weights(own):
        run = nnx.capture(nnx_layer(**own), nnx.Intermediate)
        out, state = run(_x(), mask=jnp.asarray(MASK), is_causal=True, sow_weights=True)
        return out, nnx.to_pure_dict(state)["attention_weights"]

    def linen_weights(own):
        call = {"mask": jnp.asarray(MASK), "sow_weights": True, "mutable": ["intermediates"]}
        out, state = run_linen(_x(), layer=own, **call)
        return out, state["intermediates"]["attention_weights"]

    found, expected = jit(lambda: [(nnx_weights(own), linen_weights(own)) for own in (OURS, {})])()
    assert jax.tree.map(jnp.shape, found) == jax.tree.map(jnp.shape, expected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=tolerance()), found, expected)
    (_, weights), _ = found
    np.testing.assert_allclose(np.asarray(jax.tree.leaves(weights)[0]).sum(-1), 1, atol=1e-5)


# Decoding with Flax's caches


def test_decode_cache_of_nnx():
    """``is_causal`` is from the top left: one query after several keys sees key 0 alone, here as there."""

    def decode(own, is_causal):
        layer = nnx_layer(**own)
        layer.init_cache((BATCH, LENGTH, FEATURES), _x().dtype)
        return jnp.concatenate(
            [layer(_x()[:, t : t + 1], decode=True, is_causal=is_causal) for t in range(3)], axis=1
        )

    found, expected, full = jit(
        lambda: (
            [decode(OURS, is_causal) for is_causal in (False, True)],
            [decode({}, is_causal) for is_causal in (False, True)],
            nnx_layer()(_x()[:, :3], is_causal=True),
        )
    )()
    np.testing.assert_allclose(found, expected, rtol=0, atol=nnx_tolerance())
    np.testing.assert_allclose(found[0], full, rtol=0, atol=nnx_tolerance())
    assert np.abs(found[1] - full).max() > 1e-2


def test_decode_cache_of_linen():
    def decode(own):
        shape = (BATCH, LENGTH, HEADS, DIM)
        cache = {"cached_key": jnp.zeros(shape, _x().dtype), "cached_value": jnp.zeros(shape, _x().dtype)}
        cache["cache_index"] = jnp.int32(0)
        outputs = []
        for t in range(3):
            layer = own | {"decode": True}
            out, state = run_linen(_x()[:, t : t + 1], layer=layer, cache=cache, mutable=["cache"])
            cache = state["cache"]
            outputs.append(out)
        return jnp.concatenate(outputs, axis=1)

    found, expected, full = jit(
        lambda: (decode(OURS), decode({}), nnx_layer()(_x()[:, :3], is_causal=True))
    )()
    np.testing.assert_allclose(found, expected, rtol=0, atol=nnx_tolerance())
    np.testing.assert_allclose(found, full, rtol=0, atol=nnx_tolerance())


# Dropout

RATE = 0.4


@functools.cache
def _weights_after_dropout():
    """For `broadcast_dropout` on and off: which weights remain, and the weights without dropout.

    Values are unit vectors, so that the output is the weights. Masks of all shapes that broadcast, grouped heads.
    """
    query, key, _ = _heads(heads=6)
    value = jnp.broadcast_to(jnp.eye(KEYS, dtype=query.dtype)[None, :, None], (BATCH, KEYS, 2, KEYS))
    bias = jnp.asarray(normal(3, 1, 6, LENGTH, KEYS), np.float32)

    def attend(mask, **options: Any):
        return jnp.moveaxis(attention_fn(query, key, value, bias, mask, **options), 1, 2)

    masks: list[Any] = [None]
    for i, shape in enumerate([(BATCH, 1, LENGTH, KEYS), (1, 6, 1, KEYS)]):
        masks.append(np.random.default_rng(i).random(shape) < 0.7)
        masks[-1][..., 0] = True

    def compute():
        options = {"dropout_rng": jax.random.key(7), "dropout_rate": RATE}
        dropped = {True: [attend(mask, **options) for mask in masks]}
        dropped[False] = [attend(None, broadcast_dropout=False, **options)]
        without = [attend(mask) for mask in masks]
        return dropped, without, [attend(None, deterministic=True, **options), attend(None, dropout_rng=None)]

    return jax.tree.map(np.asarray, jit(compute)())


@pytest.mark.parametrize("broadcast", [False, True])
def test_dropout_removes_weights_and_scales_the_others(broadcast):
    dropped, without, _ = _weights_after_dropout()
    removed = dropped[broadcast][0] == 0
    for found, weights in zip(
        dropped[broadcast], without, strict=False
    ):  # a mask does not change what is dropped
        np.testing.assert_allclose(found, np.where(removed, 0, weights / (1 - RATE)), rtol=2e-5, atol=1e-7)
    masks = removed.reshape(-1, LENGTH, KEYS)
    assert len(np.unique(masks, axis=0)) == (1 if broadcast else len(masks))  # one for all, or one for each
    draws = masks[0].size if broadcast else masks.size
    assert abs(masks.mean() - RATE) < 4 * np.sqrt(RATE * (1 - RATE) / draws)


def test_no_dropout_where_deterministic_or_the_rate_is_zero():
    _, without, off = _weights_after_dropout()
    for found in off:
        np.testing.assert_array_equal(found, without[0])


@pytest.mark.parametrize("broadcast", [False, True])
def test_dropout_is_refused_without_a_key_or_with_a_bad_rate(broadcast):
    attend = functools.partial(attention_fn, *_heads(), broadcast_dropout=broadcast)
    with pytest.raises(ValueError, match=r"^dropout_rng: expected a key, as dropout_rate is 0.4, got None"):
        attend(dropout_rate=RATE)
    for rate in (1.0, -0.1):
        with pytest.raises(ValueError, match=r"^dropout_rate: expected"):
            attend(dropout_rate=rate, dropout_rng=jax.random.key(0))


def test_broadcast_dropout_refuses_what_the_kernel_refuses():
    attend = functools.partial(attention_fn, dropout_rate=RATE, dropout_rng=jax.random.key(0))
    query, key, value = _heads(heads=4, kv_heads=3)
    with pytest.raises(ValueError, match=r"^key: expected a number of heads .* divides .*4, got 3"):
        attend(query, key, value)
    query, key, value = _heads()
    with pytest.raises(ValueError, match=r"^mask: expected"):
        attend(query, key, value, mask=jnp.ones((LENGTH, KEYS), bool))
    with pytest.raises(ValueError, match=r"^bias: expected"):
        attend(query, key, value, bias=jnp.ones((1, 3, LENGTH, KEYS)))


def test_the_keys_of_flaxs_modules_reach_the_kernel(monkeypatch):
    """Their own random keys, new at each call, and their rate."""
    seen = []

    def record(query, key, value, bias, mask, **options):
        seen.append((options["dropout_rate"], jax.random.key_data(options["dropout_key"])))
        return query

    monkeypatch.setattr(flax_adapter, "dot_product_attention", record)
    layer = OURS | {"dropout_rate": 0.3, "deterministic": False, "broadcast_dropout": False}
    rngs = nnx.Rngs(dropout=0)
    module = nnx_layer(**layer)
    for _ in range(2):
        module(_x(), rngs=rngs)
    for seed in range(2):
        run_linen(_x(), layer=layer, rngs={"dropout": jax.random.key(seed)})
    assert [rate for rate, _ in seen] == [0.3] * 4
    assert len({tuple(np.asarray(key)) for _, key in seen}) == 4


@pytest.mark.slow
def test_dropout_inside_flaxs_modules():
    layer = OURS | {"dropout_rate": 0.5, "deterministic": False}

    def compute():
        outputs = {}
        for broadcast in (False, True):
            options = layer | {"broadcast_dropout": broadcast}
            module, rngs = nnx_layer(**options), nnx.Rngs(dropout=0)
            outputs["nnx", broadcast] = [module(_x(), rngs=rngs) for _ in range(2)]
            keys = [{"dropout": jax.random.key(seed)} for seed in range(2)]
            outputs["linen", broadcast] = [run_linen(_x(), layer=options, rngs=rngs) for rngs in keys]
        return outputs

    for name, (first, second) in jit(compute)().items():
        assert np.abs(first - second).max() > 1e-3, name
        assert np.all(np.isfinite(first)), name


# Beyond Flax


def test_a_row_that_may_attend_nothing_gives_zero():
    query, key, value = _heads(kv_heads=4)
    mask = np.ones((BATCH, 1, LENGTH, KEYS), bool)
    mask[0, :, 2] = False
    compute = jit(
        lambda mask: (
            attention_fn(query, key, value, mask=mask),
            jax.nn.dot_product_attention(query, key, value),
        )
    )
    found, expected = (np.array(x) for x in compute(mask))
    assert np.all(found[0, 2] == 0)
    found[0, 2] = expected[0, 2]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_a_mask_of_another_rank_is_refused():
    with pytest.raises(ValueError, match=r"^mask: expected"):
        jax.eval_shape(lambda: nnx_layer(**OURS)(_x(), mask=jnp.asarray(MASK[0])))


def test_options_of_the_kernel_reach_it_through_partial():
    windowed = functools.partial(attention_fn, local_window_size=(1, 0), implementation="dense")
    capped = functools.partial(attention_fn, logits_soft_cap=0.5)
    scaled = functools.partial(attention_fn, scale=2.0)
    band = np.tri(LENGTH, k=0, dtype=bool) & ~np.tri(LENGTH, k=-2, dtype=bool)

    def compute():
        mask = jnp.asarray(band)[None, None]
        outputs = []
        pairs: Any = ({}, {"mask": mask}), ({"attention_fn": windowed}, {})
        for own, call in pairs:
            outputs.append([nnx_layer(**own)(_x(), **call), run_linen(_x(), layer=own, **call)])
        changed = [nnx_layer(attention_fn=f)(_x()) for f in (attention_fn, capped, scaled)]
        return outputs, changed

    (expected, found), changed = jit(compute)()
    np.testing.assert_allclose(np.stack(found), np.stack(expected), rtol=0, atol=nnx_tolerance())
    assert all(np.abs(x - changed[0]).max() > 1e-3 for x in changed[1:])
