"""`mha_jax.projections` against a loop over heads in float64, and what keeping kernels per head is for."""

import functools
import inspect
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mha_jax.attention import attention_weights
from mha_jax.projections import (
    combine_heads,
    init_multi_head_attention,
    multi_head_attention,
    project_heads,
    select_heads,
)
from mha_jax.rope import RotaryEmbedding

B, T, S, M, M_KV, N, K, D, E, M_OUT = 2, 7, 5, 13, 17, 6, 3, 10, 11, 19
SIZES: dict[str, Any] = {"head_dim": D, "value_head_dim": E, "num_kv_heads": K, "d_kv": M_KV, "d_out": M_OUT}


_attend = jax.jit(multi_head_attention, static_argnames=("rope", "is_causal", "dtype"))


def _dtype():
    return jnp.float64 if jax.config.read("jax_enable_x64") else jnp.float32


def _tolerance(dtype=None):
    return 200 * float(jnp.finfo(dtype or _dtype()).eps)


def _draw(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), _dtype())


def _params(seed=0, **options):
    """Random parameters, of which biases and scales are not zero and one."""
    init = functools.partial(init_multi_head_attention, d_model=M, num_heads=N, dtype=_dtype(), **options)
    rng = np.random.default_rng(seed)

    def draw(path, shape):
        mean, deviation = (0, shape.shape[-2] ** -0.5) if path[-1].key == "kernel" else (0.3, 0.3)
        return jnp.asarray(rng.normal(mean, deviation, shape.shape), shape.dtype)

    return jax.tree.map_with_path(draw, jax.eval_shape(init, jax.random.key(0)))


def _oracle(params, x_q, x_kv, *, rope=None, is_causal=False, head_mask=None, offset=0):
    """One head of one example at a time, float64."""
    wide = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    x_q, x_kv = np.asarray(x_q, np.float64), np.asarray(x_kv, np.float64)
    out = np.zeros((*x_q.shape[:-1], wide["out"]["kernel"].shape[-1]))
    heads, group = len(wide["query"]["kernel"]), len(wide["query"]["kernel"]) // len(wide["key"]["kernel"])

    def project(part, head, x):
        projected = x @ wide[part]["kernel"][head] + wide[part].get("bias", np.zeros((heads, 1)))[head]
        if f"{part}_norm" in wide:
            mean_square = (projected**2).mean(-1, keepdims=True)
            projected = projected / np.sqrt(mean_square + 1e-6) * wide[f"{part}_norm"]["scale"]
        if rope is not None and part != "value":
            dims = rope.dims or projected.shape[-1]
            pairs = (
                np.arange(dims).reshape(2, -1) if rope.style == "half" else np.arange(dims).reshape(-1, 2).T
            )
            angles = np.arange(len(x))[:, None] + (offset if part == "query" else 0)
            turns = np.exp(1j * angles * rope.base ** (-np.arange(0, dims, 2) / dims))
            turned = (projected[:, pairs[0]] + 1j * projected[:, pairs[1]]) * turns
            projected[:, pairs[0]], projected[:, pairs[1]] = turned.real, turned.imag
        return projected

    for example in range(len(x_q)):
        for head in range(heads):
            query = project("query", head, x_q[example])
            key, value = (project(part, head // group, x_kv[example]) for part in ("key", "value"))
            scores = query @ key.T / math.sqrt(key.shape[-1])
            if is_causal:
                allowed = np.arange(len(key))[None] <= np.arange(len(query))[:, None] + offset
                scores = np.where(allowed, scores, -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            output = weights / weights.sum(-1, keepdims=True) @ value
            output *= 1 if head_mask is None else head_mask[head]
            out[example] += output @ wide["out"]["kernel"][head]
    return out + wide["out"].get("bias", 0)


@pytest.mark.float64
@pytest.mark.parametrize(
    ("init", "cross", "options"),
    [
        ({"head_dim": 2}, False, {}),
        ({**SIZES, "use_bias": True}, True, {"rope": RotaryEmbedding(dims=4)}),
        (
            {**SIZES, "d_kv": M, "num_kv_heads": 1, "qk_norm": True},
            False,
            {"rope": RotaryEmbedding(style="interleaved"), "is_causal": True, "query_offset": 2},
        ),
        ({"head_dim": 3, "num_kv_heads": 2, "use_bias": True, "qk_norm": True}, False, {"is_causal": True}),
    ],
)
def test_equals_a_loop_over_heads(init, cross, options):
    params = _params(**init)
    x_q = _draw(B, T, M)
    x_kv = _draw(B, S, M_KV, seed=1) if cross else None
    found = _attend(params, x_q, x_kv, **options)
    renamed = {"offset" if name == "query_offset" else name: value for name, value in options.items()}
    expected = _oracle(params, x_q, x_q if x_kv is None else x_kv, **renamed)
    assert found.dtype == _dtype()
    np.testing.assert_allclose(found, expected, rtol=0, atol=_tolerance())


def test_every_size_is_free_and_defaults_are_flaxs():
    key = jax.random.key(0)
    shapes = jax.eval_shape(
        lambda: init_multi_head_attention(key, M, N, use_bias=True, qk_norm=True, **SIZES)
    )
    found = {f"{part} {name}": x.shape for part, arrays in shapes.items() for name, x in arrays.items()}
    assert found == {
        "query kernel": (N, M, D),
        "query bias": (N, D),
        "key kernel": (K, M_KV, D),
        "key bias": (K, D),
        "value kernel": (K, M_KV, E),
        "value bias": (K, E),
        "out kernel": (N, E, M_OUT),
        "out bias": (M_OUT,),
        "query_norm scale": (D,),
        "key_norm scale": (D,),
    }
    shapes = jax.eval_shape(lambda: init_multi_head_attention(key, 12, 4, dtype=jnp.bfloat16))
    found = {part: arrays["kernel"].shape for part, arrays in shapes.items()}
    assert found == {"query": (4, 12, 3), "key": (4, 12, 3), "value": (4, 12, 3), "out": (4, 3, 12)}
    assert {x.dtype for x in jax.tree.leaves(shapes)} == {jnp.dtype(jnp.bfloat16)}


def test_kernels_have_variance_one_over_fan_in():
    sizes: dict[str, Any] = {"head_dim": 47, "value_head_dim": 53, "num_kv_heads": 3, "d_kv": 89, "d_out": 61}
    init = functools.partial(
        init_multi_head_attention, d_model=101, num_heads=6, use_bias=True, qk_norm=True, **sizes
    )
    params = jax.jit(init)(jax.random.key(3))
    for part, fan_in in ("query", 101), ("key", 89), ("value", 89), ("out", 6 * 53):
        kernel = np.asarray(params[part]["kernel"], np.float64)
        # The variance of n draws has a relative error below sqrt(2 / n); 5 of them.
        np.testing.assert_allclose(kernel.var() * fan_in, 1, rtol=0, atol=5 * math.sqrt(2 / kernel.size))
        # Cut at two standard deviations of the normal, whose own is larger by 1 / .8796 to make up for it.
        assert 1.9 < np.abs(kernel).max() * math.sqrt(fan_in) * 0.8796 <= 2.001
        assert not params[part]["bias"].any()
    assert (params["query_norm"]["scale"] == 1).all()
    flat = np.concatenate(
        [params[part]["kernel"].ravel()[:1000] for part in ("query", "key", "value", "out")]
    )
    assert len(np.unique(flat)) > 3900  # every kernel has a key of its own


@pytest.mark.parametrize("kept", [[5, 0, 2]])
def test_a_head_masked_is_a_head_cut_out(kept):
    params = _params(head_dim=D, value_head_dim=E, use_bias=True)
    x = _draw(B, T, M)
    mask = jnp.zeros(N, x.dtype).at[jnp.asarray(kept)].set(1)
    cut = select_heads(params, kept)
    # The same by plain indexing: this is what keeping kernels per head promises.
    for part in params:
        for name, array in params[part].items():
            whole = part == "out" and name == "bias"
            np.testing.assert_array_equal(cut[part][name], array if whole else array[np.asarray(kept)])
    masked = _attend(params, x, head_mask=mask)
    np.testing.assert_allclose(masked, _attend(cut, x), rtol=0, atol=_tolerance())
    np.testing.assert_allclose(masked, _oracle(params, x, x, head_mask=mask), rtol=0, atol=_tolerance())


@pytest.mark.parametrize(("kept", "kv_kept"), [([4, 5, 0, 1], [2, 0]), ([1, 3, 5], [0, 1, 2]), ([3], [1])])
def test_grouped_heads_are_cut_out_with_their_keys(kept, kv_kept):
    params, x = _params(**{**SIZES, "d_kv": M}), _draw(B, T, M)
    cut = select_heads(params, kept)
    np.testing.assert_array_equal(cut["key"]["kernel"], params["key"]["kernel"][np.asarray(kv_kept)])
    mask = jnp.zeros(N, x.dtype).at[jnp.asarray(kept)].set(1)
    expected = _oracle(params, x, x, head_mask=mask)
    np.testing.assert_allclose(_attend(cut, x), expected, rtol=0, atol=_tolerance())


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ([], "heads: expected different indices in 0 ... 5, got"),
        ([1, 1], "heads: expected different indices"),
        ([-1], "heads: expected different indices"),
        ([6], "heads: expected different indices"),
        ([0.0], "heads: expected different indices"),
        ([0, 1, 2], r"heads: expected equally many .* of key/value heads \[0, 0, 1\]"),
        ([0, 2, 1, 3], "heads: expected equally many"),
    ],
)
def test_heads_to_select_are_checked(heads, message):
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(select_heads)(_params(**SIZES), heads)


def test_parts_compose_to_the_whole():
    params, x = _params(**{**SIZES, "d_kv": M, "use_bias": True}), _draw(B, T, M)
    rope = RotaryEmbedding()

    @jax.jit
    def by_parts(params, x):
        query, key, value = project_heads(params, x, rope=rope)
        weights = attention_weights(query, key, is_causal=True)
        heads = jnp.einsum("bnts,bsne->btne", weights, jnp.repeat(value, N // K, axis=2))
        return combine_heads(params, heads), weights

    output, weights = by_parts(params, x)
    assert weights.shape == (B, N, T, T)
    whole = _attend(params, x, rope=rope, is_causal=True)
    np.testing.assert_allclose(output, whole, rtol=0, atol=_tolerance())


def test_rope_follows_the_positions_given():
    params, x = _params(**{**SIZES, "d_kv": M}), _draw(B, T, M)
    attend = functools.partial(_attend, rope=RotaryEmbedding())
    plain = attend(params, x, query_positions=jnp.tile(jnp.arange(T), (B, 1)))
    shifted = jnp.arange(T)[None] + jnp.asarray([[3], [8]])
    # Keys follow where they are the queries' own tokens.
    np.testing.assert_allclose(attend(params, x, query_positions=shifted), plain, rtol=0, atol=2e-5)
    apart = attend(params, x, query_positions=shifted, key_positions=jnp.arange(T))
    assert np.abs(apart - plain).max() > 0.01
    # An offset for every example moves queries, not keys.
    np.testing.assert_allclose(attend(params, x, query_offset=jnp.asarray([3, 8])), apart, rtol=0, atol=2e-5)
    other = attend(params, x, x, query_positions=shifted)
    np.testing.assert_allclose(other, apart, rtol=0, atol=2e-5)


def test_dtypes_follow_the_input_the_parameters_or_what_is_asked():
    params, x = _params(**{**SIZES, "d_kv": M, "use_bias": True, "qk_norm": True}), _draw(B, T, M)
    narrow = jax.tree.map(lambda array: array.astype(jnp.bfloat16), params)
    params = jax.tree.map(lambda array: array.astype(_dtype()), narrow)
    attend = functools.partial(_attend, rope=RotaryEmbedding())
    assert jax.eval_shape(attend, params, x.astype(jnp.bfloat16)).dtype == _dtype()
    with jax.numpy_dtype_promotion("strict"):
        found = attend(narrow, x.astype(jnp.bfloat16))
        cast = attend(params, x.astype(jnp.bfloat16), dtype=jnp.bfloat16)
        wide = jax.eval_shape(attend, params, x)
    assert found.dtype == cast.dtype == jnp.bfloat16
    assert wide.dtype == _dtype()
    np.testing.assert_array_equal(found, cast)
    # A rounding of inputs, projections, heads and output each, of numbers that are about one.
    expected = _oracle(params, x, x, rope=RotaryEmbedding())
    np.testing.assert_allclose(
        found.astype(_dtype()), expected, rtol=0, atol=8 * float(jnp.finfo(jnp.bfloat16).eps)
    )


def test_the_sum_over_heads_is_taken_in_float32():
    init = functools.partial(
        init_multi_head_attention, d_model=4, num_heads=64, head_dim=16, dtype=jnp.bfloat16
    )
    params = jax.tree.map(lambda x: jnp.ones(x.shape, x.dtype), jax.eval_shape(init, jax.random.key(0)))
    heads = jnp.ones((3, 64, 16), jnp.bfloat16)
    assert (combine_heads(params, heads) == 1024).all()  # ones summed in bfloat16 stop at 256
    (product,) = [
        eqn for eqn in jax.make_jaxpr(combine_heads)(params, heads).eqns if "dot_general" in str(eqn)
    ]
    assert "preferred_element_type=float32" in str(product)


def test_causal_by_zero_gradients():
    params, x = _params(**{**SIZES, "d_kv": M, "qk_norm": True}), _draw(1, T, M)
    attend = functools.partial(multi_head_attention, rope=RotaryEmbedding(), is_causal=True)
    grads = jax.jit(jax.jacrev(lambda x: attend(params, x)[0].sum(-1)))(x)[:, 0]
    reached = np.abs(grads).max(-1) > 0
    np.testing.assert_array_equal(reached, np.tril(np.ones((T, T), bool)))


def test_gradients_of_all_parameters_are_finite_and_flow_under_debug_nans():
    params, x = _params(**{**SIZES, "d_kv": M, "use_bias": True, "qk_norm": True}), _draw(B, T, M)
    lengths = jnp.asarray([0, 3])  # one example attends nothing
    with jax.debug_nans(True):
        grads = jax.jit(jax.grad(lambda p: multi_head_attention(p, x, key_value_seq_lengths=lengths).sum()))(
            params
        )
    assert all(np.isfinite(x).all() and x.any() for x in jax.tree.leaves(grads))


def test_batch_axes_may_be_missing_or_many():
    params, x = _params(head_dim=2), _draw(3, 2, T, M)
    attend = functools.partial(_attend, rope=RotaryEmbedding(), is_causal=True)
    many = attend(params, x)
    for i in range(3):
        np.testing.assert_allclose(many[i, 1], attend(params, x[i, 1]), rtol=0, atol=_tolerance())


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        ((0, 2), {}, "d_model: expected a positive integer, got 0"),
        ((8, 0), {}, "num_heads: expected a positive integer, got 0"),
        ((8, -2), {}, "num_heads: expected a positive integer, got -2"),
        ((8, 2.0), {}, "num_heads: expected a positive integer, got 2.0"),
        ((8, True), {}, "num_heads: expected a positive integer, got True"),
        ((8, 3), {}, "head_dim: expected a size where num_heads = 3 does not divide 8, got None"),
        ((8, 3), {"head_dim": 0}, "head_dim: expected a positive integer, got 0"),
        ((8, 2), {"value_head_dim": 0}, "value_head_dim: expected a positive integer, got 0"),
        ((8, 4), {"num_kv_heads": 3}, "num_kv_heads: expected a divisor of num_heads = 4, got 3"),
        ((8, 4), {"num_kv_heads": 8}, "num_kv_heads: expected a divisor of num_heads = 4, got 8"),
        ((8, 4), {"d_kv": 0}, "d_kv: expected a positive integer, got 0"),
        ((8, 4), {"d_out": 0}, "d_out: expected a positive integer, got 0"),
        ((8, 4), {"dtype": jnp.int32}, "dtype: expected a floating-point dtype, got"),
    ],
)
def test_sizes_are_checked(args, options, message):
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(init_multi_head_attention)(jax.random.key(0), *args, **options)


def _without(params, part):
    return {name: arrays for name, arrays in params.items() if name != part}


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda p, x: (p, x[0, 0]), {}, r"x_q: expected shape \(..., T, 13\), got \(13,\)"),
        (lambda p, x: (p, x[..., :5]), {}, r"x_q: expected shape \(..., T, 13\), got \(2, 7, 5\)"),
        (lambda p, x: (p, x.astype(int)), {}, "x_q: expected a floating-point array, got int"),
        (lambda p, x: (p, x, x[..., :5]), {}, r"x_kv: expected shape \(..., T, 13\), got \(2, 7, 5\)"),
        (lambda p, x: (p, x, x[:1]), {}, r"x_kv: expected the batch axes of x_q, \(2,\), got \(1,\)"),
        (lambda p, x: (p, x), {"return_residual": True}, "return_residual: expected False"),
        (
            lambda p, x: (p, x),
            {"query_positions": jnp.arange(T)},
            "query_positions: expected None without rope",
        ),
        (lambda p, x: (p, x), {"key_positions": jnp.arange(T)}, "key_positions: expected None without rope"),
        (lambda p, x: (p, x), {"dtype": jnp.int32}, "dtype: expected a floating-point dtype"),
        (lambda p, x: (_without(p, "value"), x), {}, "params: expected part 'value', got"),
        (lambda p, x: (p | {"gate": {}}, x), {}, r"params: expected parts .* got \['gate'\] as well"),
        (lambda p, x: (p | {"out": {}}, x), {}, r"params\['out'\]: expected 'kernel', got \[\]"),
        (
            lambda p, x: (p | {"out": p["out"] | {"scale": x}}, x),
            {},
            r"params\['out'\]: expected .*got \['scale'\]",
        ),
        (
            lambda p, x: (p | {"key": {"kernel": jnp.ones((K, M, 4))}}, x),
            {},
            r"params\['key'\]\['kernel'\]: expected shape \(K, M_kv, 10\) without empty axes, got \(3, 13, 4\)",
        ),
        (
            lambda p, x: (p | {"out": {"kernel": jnp.ones((N, M))}}, x),
            {},
            r"expected shape \(6, 11, M_out\), got",
        ),
        (
            lambda p, x: (
                p
                | {
                    part: {"kernel": p[part]["kernel"][jnp.asarray([0, 0, 0, 0])]}
                    for part in "key value".split()
                },
                x,
            ),
            {},
            "params: expected N a multiple of K, got N = 6, K = 4",
        ),
    ],
)
def test_arguments_are_checked(change, options, message):
    args = change(_params(**{**SIZES, "d_kv": M}), _draw(B, T, M))
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(multi_head_attention)(*args, **options)


def test_unknown_options_are_refused():
    with pytest.raises(TypeError, match="causal"):
        multi_head_attention(_params(head_dim=2), _draw(B, T, M), causal=True)


def test_shape_of_heads_to_combine_is_checked():
    with pytest.raises(ValueError, match=r"heads: expected shape \(..., T, 6, 11\), got \(2, 6, 7, 11\)"):
        inspect.unwrap(combine_heads)(_params(**SIZES), _draw(B, N, T, E))
