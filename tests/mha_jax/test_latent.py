"""`mha_jax.latent` against the paper's equations, head by head in float64; what the absorbed form never builds."""

import functools
import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mha_jax.attention import attention_weights, dot_product_attention
from mha_jax.latent import (
    combine_latent_heads,
    init_latent_attention,
    latent_attention,
    latent_heads,
    project_latents,
)
from mha_jax.rope import RotaryEmbedding

# Sizes with no sum of two equal to a third, so that an array's axes can be told by their lengths.
B, T, M, N, D, E, C, R, M_Q, M_OUT = 2, 7, 13, 3, 5, 11, 17, 2, 29, 23
SIZES = {"head_dim": D, "value_head_dim": E, "latent_dim": C, "rope_dim": R, "d_out": M_OUT}

_attend = jax.jit(latent_attention, static_argnames=("absorbed", "is_causal", "rope"))


def _dtype():
    return jnp.float64 if jax.config.read("jax_enable_x64") else jnp.float32


def _tolerance():
    return 200 * float(jnp.finfo(_dtype()).eps)


def _draw(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), _dtype())


def _params(**options):
    init = functools.partial(
        init_latent_attention, d_model=M, num_heads=N, dtype=_dtype(), **(SIZES | options)
    )
    rng = np.random.default_rng(0)

    def draw(x):
        mean, deviation = (0, x.shape[-2] ** -0.5) if x.ndim > 1 else (1, 0.3)
        return jnp.asarray(rng.normal(mean, deviation, x.shape), x.dtype)

    return jax.tree.map(draw, jax.eval_shape(init, jax.random.key(0)))


def _rotate(x, base, start=0):
    """Half-split RoPE of ``(T, R)`` by complex numbers."""
    half = x.shape[-1] // 2
    rates = base ** (-2 * np.arange(half) / x.shape[-1])
    turned = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * (start + np.arange(len(x)))[:, None] * rates)
    return np.concatenate([turned.real, turned.imag], axis=-1)


def _rms(x, scale):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale


def _oracle(params, x, *, base=10_000.0, start=0):
    """DeepSeek-V2, equations of section 2.1, causal, one head of one example at a time."""
    w = jax.tree.map(lambda array: np.asarray(array, np.float64), params)
    kernel = {part: arrays["kernel"] for part, arrays in w.items() if "kernel" in arrays}
    out = np.zeros((*x.shape[:-1], kernel["out"].shape[-1]))
    for example, h in enumerate(np.asarray(x, np.float64)):
        latent = h @ kernel["latent"]
        latent = _rms(latent, w["latent_norm"]["scale"]) if "latent_norm" in w else latent
        shared = _rotate(h @ kernel["rope_key"], base, start)
        compressed = h @ kernel["query_latent"] if "query_latent" in w else h
        if "query_latent_norm" in w:
            compressed = _rms(compressed, w["query_latent_norm"]["scale"])
        for i in range(len(kernel["out"])):
            rotated = _rotate(compressed @ kernel["query_rope"][i], base, start)
            query = np.concatenate([compressed @ kernel["query"][i], rotated], axis=-1)
            key = np.concatenate([latent @ kernel["key"][i], shared], axis=-1)
            scores = query @ key.T / math.sqrt(query.shape[-1])
            weights = np.exp(scores - scores.max(-1, keepdims=True)) * np.tri(len(h))
            weights /= weights.sum(-1, keepdims=True)
            out[example] += weights @ (latent @ kernel["value"][i]) @ kernel["out"][i]
    return out


@pytest.mark.float64
@pytest.mark.parametrize("absorbed", [False, True])
@pytest.mark.parametrize("init", [{}, {"query_latent_dim": M_Q, "latent_norm": True, "rope_dim": 4}])
def test_both_forms_are_the_papers_equations(init, absorbed):
    params, x = _params(**init), _draw(B, T, M)
    found = _attend(params, x, absorbed=absorbed, is_causal=True)
    assert found.dtype == _dtype()
    np.testing.assert_allclose(found, _oracle(params, x), rtol=0, atol=_tolerance())


@pytest.mark.float64
def test_rope_settings_and_positions():
    params, x = _params(rope_dim=4), _draw(B, T, M)
    found = _attend(params, x, rope=RotaryEmbedding(base=7.0), is_causal=True, positions=jnp.arange(3, 3 + T))
    np.testing.assert_allclose(found, _oracle(params, x, base=7.0, start=3), rtol=0, atol=2 * _tolerance())
    assert np.abs(found - _oracle(params, x)).max() > 0.01
    stretched = _attend(
        params, x, rope=RotaryEmbedding(base=7.0), is_causal=True, positions=2 * jnp.arange(T)
    )
    assert np.abs(found - stretched).max() > 0.01


@pytest.mark.float64
def test_forms_agree_in_all_gradients():
    params, x = _params(query_latent_dim=M_Q, latent_norm=True), _draw(B, T, M)
    head_mask, grad = _draw(N, seed=2), _draw(B, T, M_OUT, seed=3)

    @functools.partial(jax.jit, static_argnums=0)
    def gradients(absorbed, *args):
        def attend(params, x, head_mask):
            return latent_attention(params, x, absorbed=absorbed, head_mask=head_mask, is_causal=True)

        return jax.vjp(attend, *args)[1](grad)

    naive, absorbed = (gradients(form, params, x, head_mask) for form in (False, True))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=2 * _tolerance()), naive, absorbed
    )
    assert all(g.any() for g in jax.tree.leaves(naive))


@pytest.mark.parametrize("dropout_rate", [0.0, pytest.param(0.3, marks=pytest.mark.slow)])
def test_forms_agree_under_every_option(dropout_rate):
    options = {
        "bias": _draw(B, N, T, T, seed=1),
        "mask": jnp.asarray(np.random.default_rng(1).random((B, 1, 1, T)) < 0.8),
        "key_value_seq_lengths": jnp.asarray([T, 4]),
        "head_mask": _draw(T, N, seed=2),
        "dropout_key": jax.random.key(5),
        "scale": 0.7,
    }
    attend = functools.partial(
        latent_attention, logits_soft_cap=2.0, dropout_rate=dropout_rate, local_window_size=(4, 1)
    )
    attend = jax.jit(attend, static_argnames="absorbed")
    naive, absorbed = (attend(_params(), _draw(B, T, M), absorbed=form, **options) for form in (False, True))
    np.testing.assert_allclose(naive, absorbed, rtol=0, atol=_tolerance())


def _shapes(jaxpr):
    """Shapes of all arrays in a program, those of inner programs included."""
    for equation in jaxpr.eqns:
        yield from (variable.aval.shape for variable in equation.outvars)
        for value in jax.tree.leaves(
            equation.params, is_leaf=lambda leaf: hasattr(leaf, "eqns") or hasattr(leaf, "jaxpr")
        ):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from _shapes(inner)


def test_the_absorbed_form_builds_no_key_or_value_of_a_head():
    tokens, cached = 1, 101
    params, x = _params(), _draw(B, tokens, M)
    latent, rope_key = _draw(B, cached, C), _draw(B, cached, R)

    def attend(params, x, latent, rope_key, absorbed):
        query, key, value = latent_heads(params, x, latent, rope_key, absorbed=absorbed)
        heads = dot_product_attention(query, key, value)
        return combine_latent_heads(params, heads, absorbed=absorbed)

    sizes, memory = {}, {}
    for absorbed in (False, True):
        run = functools.partial(attend, absorbed=absorbed)
        shapes = set(_shapes(jax.make_jaxpr(run)(params, x, latent, rope_key).jaxpr))
        sizes[absorbed] = max(math.prod(shape) for shape in shapes if cached in shape)
        lowered = jax.jit(run).lower(params, x, latent, rope_key)
        analysis = lowered.compile().memory_analysis()
        assert analysis is not None
        memory[absorbed] = analysis.temp_size_in_bytes
    assert sizes[False] >= B * cached * N * (D + R)
    assert sizes[True] == B * cached * (C + R)  # the latents and rotated keys side by side
    assert memory[True] < 0.7 * memory[False]


def test_dtypes():
    params, x = _params(latent_norm=True), _draw(B, T, M)
    narrow = jax.tree.map(lambda array: array.astype(jnp.bfloat16), params)
    wide = jax.tree.map(lambda array: array.astype(_dtype()), narrow)
    x = x.astype(jnp.bfloat16)
    assert jax.eval_shape(latent_attention, wide, x).dtype == _dtype()
    with jax.numpy_dtype_promotion("strict"):
        found = _attend(narrow, x, absorbed=True, is_causal=True)
    assert found.dtype == jnp.bfloat16
    error = np.abs(np.asarray(found, np.float64) - _oracle(wide, x.astype(_dtype()))).max()
    assert error < 16 * float(jnp.finfo(jnp.bfloat16).eps)  # a rounding of every projection


def test_attention_maps_of_both_forms_are_the_layers():
    params, x = _params(), _draw(B, T, M)

    @functools.partial(jax.jit, static_argnums=2)
    def maps(params, x, absorbed):
        query, key, value = latent_heads(params, x, *project_latents(params, x), absorbed=absorbed)
        weights = attention_weights(query, key, is_causal=True, scale=(D + R) ** -0.5)
        value = jnp.broadcast_to(value, (B, T, N, value.shape[-1]))
        heads = jnp.einsum("bnts,bsne->btne", weights, value)
        return weights, combine_latent_heads(params, heads, absorbed=absorbed)

    naive, absorbed = maps(params, x, False), maps(params, x, True)
    assert naive[0].shape == (B, N, T, T)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=_tolerance()), naive, absorbed)
    np.testing.assert_allclose(naive[1], _oracle(params, x), rtol=0, atol=_tolerance())


def test_shapes_and_defaults():
    key = jax.random.key(0)
    init = functools.partial(
        init_latent_attention, key, M, N, query_latent_dim=M_Q, latent_norm=True, **SIZES
    )
    found = {
        f"{part} {name}": x.shape
        for part, arrays in jax.eval_shape(init).items()
        for name, x in arrays.items()
    }
    assert found == {
        "latent kernel": (M, C),
        "rope_key kernel": (M, R),
        "key kernel": (N, C, D),
        "value kernel": (N, C, E),
        "query_latent kernel": (M, M_Q),
        "query kernel": (N, M_Q, D),
        "query_rope kernel": (N, M_Q, R),
        "out kernel": (N, E, M_OUT),
        "latent_norm scale": (C,),
        "query_latent_norm scale": (M_Q,),
    }
    defaults = jax.eval_shape(lambda: init_latent_attention(key, 24, 3))
    found = {part: arrays["kernel"].shape for part, arrays in defaults.items()}
    assert found == {
        "latent": (24, 32),
        "rope_key": (24, 4),
        "key": (3, 32, 8),
        "value": (3, 32, 8),
        "query": (3, 24, 8),
        "query_rope": (3, 24, 4),
        "out": (3, 8, 24),
    }


def test_kernels_are_drawn_for_their_fan_in(monkeypatch):
    fans = {}

    def record(key, shape, dtype, *, contracted):
        fans[shape] = math.prod(shape[axis] for axis in contracted)
        return jnp.zeros(shape, dtype)

    monkeypatch.setattr("mha_jax.latent.init_kernel", record)
    init = functools.partial(init_latent_attention, d_model=M, num_heads=N, query_latent_dim=M_Q, **SIZES)
    kernels = {
        part: arrays["kernel"].shape for part, arrays in jax.eval_shape(init, jax.random.key(0)).items()
    }
    assert {part: fans[shape] for part, shape in kernels.items()} == {
        "latent": M,
        "rope_key": M,
        "key": C,
        "value": C,
        "query_latent": M,
        "query": M_Q,
        "query_rope": M_Q,
        "out": N * E,
    }


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        ((0, 2), {}, "d_model: expected a positive integer, got 0"),
        ((8, 0), {}, "num_heads: expected a positive integer, got 0"),
        ((8, 3), {}, "head_dim: expected a size where num_heads = 3 does not divide 8, got None"),
        (
            (8, 3),
            {"head_dim": 6},
            "rope_dim: expected an even number given where half of 6 is none, got None",
        ),
        ((8, 3), {"head_dim": 8, "rope_dim": 3}, "rope_dim: expected an even number, got 3"),
        ((8, 3), {"head_dim": 8, "latent_dim": 0}, "latent_dim: expected a positive integer, got 0"),
        (
            (8, 3),
            {"head_dim": 8, "query_latent_dim": 0},
            "query_latent_dim: expected a positive integer, got 0",
        ),
        ((8, 3), {"head_dim": 8, "value_head_dim": 0}, "value_head_dim: expected a positive integer, got 0"),
        ((8, 3), {"head_dim": 8, "d_out": 0}, "d_out: expected a positive integer, got 0"),
        ((8, 3), {"head_dim": 8, "dtype": jnp.int8}, "dtype: expected a floating-point dtype"),
    ],
)
def test_sizes_are_checked(args, options, message):
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(init_latent_attention)(jax.random.key(0), *args, **options)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda p, x: (p, x[0, 0]), {}, r"x: expected shape \(..., T, 13\), got \(13,\)"),
        (lambda p, x: (p, x.swapaxes(1, 2)), {}, r"x: expected shape \(..., T, 13\), got \(2, 13, 7\)"),
        (lambda p, x: (p, x.astype(int)), {}, "x: expected a floating-point array, got int"),
        (lambda p, x: (p, x), {"return_residual": True}, "return_residual: expected not to be given"),
        (lambda p, x: (p, x), {"query_offset": 3}, "query_offset: expected not to be given"),
        (lambda p, x: (p | {"gate": {}}, x), {}, r"params: expected parts .* got \['gate'\] as well"),
        (
            lambda p, x: (p | {"key": {"kernel": jnp.ones((N, C + 1, D))}}, x),
            {},
            r"params\['key'\]\['kernel'\]: expected shape \(N, 17, D\) without empty axes, got \(3, 18, 5\)",
        ),
        (
            lambda p, x: (p | {part: {"kernel": jnp.ones((N, 9, D))} for part in ("query", "query_rope")}, x),
            {},
            "expected M_q = M = 13, got 9|expected shape",
        ),
        (
            lambda p, x: (p | {"query_latent_norm": {"scale": jnp.ones(M)}}, x),
            {},
            "params: expected part 'query_latent' to go with 'query_latent_norm'",
        ),
    ],
)
def test_arguments_are_checked(change, options, message):
    args = change(_params(), _draw(B, T, M))
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(latent_attention)(*args, **options)


def test_arguments_of_the_parts_are_checked():
    params, x = _params(), _draw(B, T, M)
    heads = inspect.unwrap(latent_heads)
    with pytest.raises(ValueError, match=r"latent: expected batch and token axes \(2, 5\), got \(3, 5\)"):
        heads(params, x, _draw(3, 5, C), _draw(3, 5, R), absorbed=True)
    with pytest.raises(ValueError, match=r"rope_key: expected batch and token axes \(2, 5\), got \(2, 3\)"):
        heads(params, x, _draw(B, 5, C), _draw(B, 3, R), absorbed=True)
    with pytest.raises(ValueError, match=r"rope_key: expected shape \(..., T, 2\), got \(2, 5, 17\)"):
        heads(params, x, _draw(B, 5, C), _draw(B, 5, C), absorbed=True)
    combine = inspect.unwrap(combine_latent_heads)
    with pytest.raises(ValueError, match=r"heads: expected shape \(..., T, 3, 11\), got \(2, 7, 3, 17\)"):
        combine(params, _draw(B, T, N, C), absorbed=False)
    with pytest.raises(ValueError, match=r"heads: expected shape \(..., T, 3, 17\), got \(2, 7, 3, 11\)"):
        combine(params, _draw(B, T, N, E), absorbed=True)
