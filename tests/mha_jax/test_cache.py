"""`mha_jax.cache`: decoding in any chunks is the causal pass; capacity; memory; bytes a token."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.experimental import checkify

from mha_jax.cache import (
    KVCache,
    LatentCache,
    append,
    dropped,
    init_cache,
    init_latent_cache,
    written,
)
from mha_jax.latent import init_latent_attention, latent_attention
from mha_jax.projections import init_multi_head_attention, multi_head_attention
from mha_jax.rope import RotaryEmbedding

# T tokens fill a cache. Chunks are of few lengths where a test is to be fast: each is a program to compile.
B, T, M, D, E = 2, 7, 13, 4, 3
FULL = "cache: expected room for 3 more entries, got 6 of 7 in use"


_append = jax.jit(append)


def _dtype():
    return jnp.float64 if jax.config.read("jax_enable_x64") else jnp.float32


def _draw(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), _dtype())


def _params(init, **options):
    shapes = jax.eval_shape(functools.partial(init, d_model=M, dtype=_dtype(), **options), jax.random.key(0))
    rng = np.random.default_rng(0)

    def draw(x):
        deviation = x.shape[-2] ** -0.5 if x.ndim > 1 else 0.3
        return jnp.asarray(rng.normal(0.05, deviation, x.shape), x.dtype)

    return jax.tree.map(draw, shapes)


# Every kind of cache, with what must follow the position: RoPE of both styles, partial; windows; soft cap.
LAYERS = {
    "mha": (
        functools.partial(init_multi_head_attention, num_heads=2, head_dim=D, value_head_dim=E),
        functools.partial(multi_head_attention, rope=RotaryEmbedding()),
    ),
    "gqa": (
        functools.partial(
            init_multi_head_attention, num_heads=6, num_kv_heads=2, head_dim=5, use_bias=True, qk_norm=True
        ),
        functools.partial(
            multi_head_attention,
            rope=RotaryEmbedding(dims=4, style="interleaved"),
            local_window_size=(2, 0),
            logits_soft_cap=3.0,
        ),
    ),
    "mqa": (
        functools.partial(init_multi_head_attention, num_heads=3, num_kv_heads=1, head_dim=D),
        multi_head_attention,
    ),
    "mla": (
        functools.partial(
            init_latent_attention, num_heads=3, head_dim=5, latent_dim=7, rope_dim=2, latent_norm=True
        ),
        latent_attention,
    ),
    "mla absorbed": (
        functools.partial(
            init_latent_attention, num_heads=3, head_dim=5, latent_dim=7, rope_dim=2, latent_norm=True
        ),
        functools.partial(latent_attention, absorbed=True),
    ),
}


@functools.cache
def _layer(kind):
    """Parameters, the compiled layer and its full causal pass over T tokens."""
    init, attend = LAYERS[kind]
    params, x = _params(init), _draw(B, T, M)
    step = jax.jit(lambda params, x, cache: attend(params, x, cache=cache))
    return params, step, np.asarray(jax.jit(lambda params, x: attend(params, x, is_causal=True))(params, x))


def _empty(kind, room=T, junk=jnp.nan):
    """A cache whose places hold ``junk``."""
    if kind.startswith("mla"):
        cache = init_latent_cache(room, 7, 2, batch_shape=(B,), dtype=_dtype())
    else:
        kv_heads, width, value_width = {"mha": (2, D, E), "gqa": (2, 5, 5), "mqa": (1, D, D)}[kind]
        cache = init_cache(
            room, kv_heads, width, value_head_dim=value_width, batch_shape=(B,), dtype=_dtype()
        )
    return cache._replace(**{name: jnp.full_like(getattr(cache, name), junk) for name in cache._fields[:2]})


def _tolerance():
    return 200 * float(jnp.finfo(_dtype()).eps)


def _decode(kinds, chunks):
    """Outputs of chunk after chunk, one kind of layer after another, from a cache full of NaN."""
    x, outputs, cache = _draw(B, T, M), [], _empty(kinds[0])
    for i, count in enumerate(chunks):
        params, step, _ = _layer(kinds[i % len(kinds)])
        start = sum(chunks[:i])
        output, cache = step(params, x[:, start : start + count], cache)
        outputs.append(output)
    return np.concatenate(outputs, axis=1), cache


@st.composite
def _chunkings(draw, lengths):
    chunks = []
    while left := T - sum(chunks):
        chunks.append(draw(st.sampled_from([n for n in lengths if n <= left])))
    return chunks


def _check_chunking(kinds, chunks):
    found, cache = _decode(kinds, chunks)
    for kind in kinds:
        np.testing.assert_allclose(found, _layer(kind)[2], rtol=0, atol=_tolerance())
    assert all(np.isfinite(x).all() for x in cache)


# Both forms of latent attention take turns on one cache.
_KINDS = pytest.mark.parametrize(
    "kinds", [["mha"], ["gqa"], ["mla", "mla absorbed"]], ids=lambda kinds: kinds[0]
)


@_KINDS
@settings(max_examples=15, deadline=None)
@given(chunks=_chunkings((1, 3)))
def test_chunks_are_the_causal_pass(kinds, chunks):
    _check_chunking(kinds, chunks)


@pytest.mark.slow
@_KINDS
@settings(max_examples=40, deadline=None)
@given(chunks=_chunkings(range(1, T + 1)), empty=st.integers(0, T))
def test_chunks_of_any_length_are_the_causal_pass(kinds, chunks, empty):
    _check_chunking(kinds, [*chunks[:empty], 0, *chunks[empty:]])


@pytest.mark.float64
@pytest.mark.parametrize("kind", LAYERS)
def test_token_by_token_is_the_causal_pass(kind):
    found, cache = _decode([kind], [1] * (T - 2))
    np.testing.assert_allclose(found, _layer(kind)[2][:, : T - 2], rtol=0, atol=_tolerance())
    assert int(cache.length) == T - 2
    assert cache.length.dtype == jnp.int32
    np.testing.assert_array_equal(written(cache), np.arange(T) < T - 2)
    for entries in cache[:2]:
        assert np.isfinite(entries[:, : T - 2]).all()
        assert np.isnan(entries[:, T - 2 :]).all()


@pytest.mark.parametrize("kind", ["mha", "mla", pytest.param("mla absorbed", marks=pytest.mark.slow)])
def test_nothing_leaks_from_places_not_written_to_any_gradient(kind):
    params, x = _layer(kind)[0], _draw(B, 3, M)

    def loss(params, x, cache):
        return (LAYERS[kind][1](params, x, cache=cache)[0] ** 2).sum()

    gradients = jax.jit(jax.grad(loss, (0, 1)))
    found, expected = (gradients(params, x, _empty(kind, junk=junk)) for junk in (jnp.nan, 0.0))
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert all(g.any() for g in jax.tree.leaves(found))


def test_one_compiled_step_decodes_all_tokens_in_place():
    for kind in "gqa", "mla absorbed":
        params = _layer(kind)[0]
        traced = []

        def step(params, x, cache, kind=kind, traced=traced):
            traced.append(x.shape)
            return LAYERS[kind][1](params, x, cache=cache)

        step = jax.jit(step, donate_argnames="cache")
        cache = _empty(kind, room=1009)
        compiled = step.lower(params, _draw(B, 1, M), cache).compile()
        memory, program = compiled.memory_analysis(), compiled.as_text()
        assert memory is not None
        assert program is not None
        assert memory.alias_size_in_bytes == sum(x.nbytes for x in cache)
        shapes = {f"[{','.join(map(str, x.shape))}]" for x in cache[:2]}
        copies = [line for line in program.splitlines() if " copy(" in line]
        assert not [line for line in copies if any(shape in line.split(" copy(")[0] for shape in shapes)]
        for i in range(3):
            kept = cache
            _, cache = step(params, _draw(B, 1, M, seed=i), cache)
            assert kept[0].is_deleted()
        assert traced == [(B, 1, M)]


def test_appending_needs_no_memory():
    cache = init_cache(1009, 3, 5, batch_shape=(B,))
    new = jnp.ones((B, 4, 3, 5))
    memory = jax.jit(append, donate_argnums=0).lower(cache, new, new).compile().memory_analysis()
    assert memory is not None
    assert memory.alias_size_in_bytes == sum(x.nbytes for x in cache)
    assert memory.temp_size_in_bytes <= 4 * new.nbytes


@pytest.mark.parametrize("kind", ["mha", "mla"])
def test_past_the_capacity_only_what_does_not_fit_is_lost(kind):
    params, step, expected = _layer(kind)
    x, filled = jnp.concatenate([_draw(B, T, M), _draw(B, 2, M)], axis=1), _decode([kind], (3, 3, 1))[1]
    cache = _decode([kind], (3, 3))[1]
    np.testing.assert_array_equal(dropped(cache, 3), [False, True, True])
    with pytest.raises(ValueError, match=FULL):
        LAYERS[kind][1](params, x[:, 6:], cache=cache)

    found, cache = step(params, x[:, 6:], cache)
    np.testing.assert_allclose(found[:, 0], expected[:, 6], rtol=0, atol=_tolerance())
    assert np.isnan(found[:, 1:]).all()
    for entries, kept in zip(cache, filled, strict=True):
        np.testing.assert_allclose(entries, kept, rtol=0, atol=_tolerance())
    assert int(cache.length) == T

    found, again = step(params, x[:, :1], cache)
    assert np.isnan(found).all()
    jax.tree.map(np.testing.assert_array_equal, again, cache)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("length", [0, 1, 2, 3])
def test_writing_against_a_loop(length, count):
    cache = KVCache(_draw(3, 2, D), _draw(3, 2, E, seed=1), jnp.int32(length))
    new = _draw(count, 2, D, seed=2), _draw(count, 2, E, seed=3)
    found = _append(cache, *new)
    for i in range(2):
        expected = np.array(cache[i])
        for j in range(count):
            if length + j < 3:
                expected[length + j] = new[i][j]
        np.testing.assert_array_equal(found[i], expected)
    assert int(found.length) == min(length + count, 3)


def test_checkify_names_a_full_cache():
    params, step, _ = _layer("gqa")
    checked = jax.jit(checkify.checkify(step))
    x, cache = _draw(B, 3, M), _empty("gqa", junk=1.0)
    error, _ = checked(params, x, cache._replace(length=jnp.int32(4)))
    error.throw()
    error, (output, _) = checked(params, x, cache._replace(length=jnp.int32(6)))
    with pytest.raises(checkify.JaxRuntimeError, match=FULL):
        error.throw()
    np.testing.assert_array_equal(np.isnan(output).all((0, 2)), [False, True, True])


def test_decoding_in_a_scan():
    params, _, expected = _layer("mha")
    attend = LAYERS["mha"][1]

    def step(cache, x):
        output, cache = attend(params, x[:, None], cache=cache)
        return cache, output[:, 0]

    tokens = _draw(B, T, M).swapaxes(0, 1)
    _, outputs = jax.jit(functools.partial(jax.lax.scan, step))(_empty("mha"), tokens)
    np.testing.assert_allclose(outputs.swapaxes(0, 1), expected, rtol=0, atol=_tolerance())


def test_caches_of_their_own_lengths_by_vmap():
    params, step, expected = _layer("mha")
    lengths, x = (3, 5), _draw(B, T, M)
    caches = [_decode(["mha"], chunks)[1] for chunks in ((3,), (3, 1, 1))]
    key, value = (jnp.stack([cache[i][n] for n, cache in enumerate(caches)]) for i in (0, 1))
    own = KVCache(key, value, jnp.asarray(lengths, jnp.int32))
    token = jnp.stack([x[i, n : n + 1] for i, n in enumerate(lengths)])
    found, own = jax.jit(jax.vmap(step, in_axes=(None, 0, 0)))(params, token, own)
    np.testing.assert_array_equal(own.length, [4, 6])
    for i, n in enumerate(lengths):
        np.testing.assert_allclose(found[i, 0], expected[i, n], rtol=0, atol=_tolerance())


def test_prompts_padded_on_the_left():
    params, _, expected = _layer("mha")
    attend = jax.jit(LAYERS["mha"][1])
    padding, places = jnp.asarray([[0], [2]]), jnp.arange(T)[None]
    x = _draw(B, T, M)
    x = jnp.stack([x[0], jnp.roll(x[1], 2, axis=0)])
    mask, positions = (places >= padding)[:, None, None, :], jnp.maximum(places - padding, 0)
    found, cache = [], _empty("mha")
    for chunk in slice(0, 3), slice(3, 6):
        output, cache = attend(
            params, x[:, chunk], cache=cache, mask=mask, query_positions=positions[:, chunk]
        )
        found.append(output)
    found = np.concatenate(found, axis=1)
    np.testing.assert_allclose(found[0], expected[0, :6], rtol=0, atol=_tolerance())
    np.testing.assert_allclose(found[1, 2:], expected[1, :4], rtol=0, atol=_tolerance())


def test_entries_are_kept_in_the_dtype_of_the_cache():
    params, step, expected = _layer("mqa")
    cache = init_cache(T, 1, D, batch_shape=(B,), dtype=jnp.bfloat16)
    with jax.numpy_dtype_promotion("strict"):
        found, cache = step(params, _draw(B, T, M), cache)
    assert (found.dtype, cache.key.dtype, cache.value.dtype) == (_dtype(), jnp.bfloat16, jnp.bfloat16)
    np.testing.assert_allclose(found, expected, rtol=0, atol=4 * float(jnp.finfo(jnp.bfloat16).eps))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"is_causal": False}, "is_causal: expected True or None with a cache, got False"),
        ({"query_offset": 1}, "query_offset: expected 0 with a cache"),
        ({"x_kv": jnp.zeros((B, 2, M))}, "x_kv: expected as many tokens as x_q with a cache, 3, got 2"),
        (
            {"cache": init_latent_cache(3, 7, 2, batch_shape=(B,))},
            "cache: expected a KVCache, got LatentCache",
        ),
        ({"cache": init_cache(3, 3, D, batch_shape=(B,))}, r"key: expected shape \(2, T, 3, 4\), got"),
        ({"cache": init_cache(3, 2, D, batch_shape=(7,))}, r"key: expected shape \(7, T, 2, 4\), got"),
    ],
)
def test_arguments_beside_a_cache_are_checked(options, message):
    params = _layer("mha")[0]
    options = {"cache": _empty("mha")} | options
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(multi_head_attention)(params, _draw(B, 3, M), **options)


def test_a_latent_layer_takes_a_latent_cache():
    params = _layer("mla")[0]
    with pytest.raises(ValueError, match="cache: expected a LatentCache, got KVCache"):
        inspect.unwrap(latent_attention)(params, _draw(B, 3, M), cache=init_cache(3, 3, D, batch_shape=(B,)))
    with pytest.raises(ValueError, match="is_causal: expected True or None with a cache, got False"):
        inspect.unwrap(latent_attention)(params, _draw(B, 3, M), cache=_empty("mla"), is_causal=False)
    assert isinstance(_empty("mla"), LatentCache)
