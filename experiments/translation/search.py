"""Translating: beam search with caches, compiled once for a number of rows.

Scores are ``log p / ((5 + tokens) / 6)^alpha``, tokens with `END` counted (Wu et al. 2016, as in Vaswani et al. 2017:
beam 4, alpha 0.6). Unfinished hypotheses and finished ones are kept apart, each the best ``beam``; a row stops where
nothing unfinished can come before its worst finished one.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from experiments.translation.model import Block, ModelShape, Translator, apply
from experiments.translation.rows import Rows
from experiments.translation.subwords import BEGIN, END, PAD
from mha_jax import dot_product_attention
from mha_jax.cache import KVCache, init_cache
from mha_jax.projections import combine_heads, multi_head_attention, project_heads

BEAM = 4
ALPHA = 0.6
UNREACHED = -1e9
"""Score of a hypothesis that is not there."""


class Hypotheses(NamedTuple):
    """The best translations of every row, best first.

    Attributes:
        tokens: with `END` where one is finished, then `PAD`.
        scores: see the module's docstring.
    """

    tokens: Int[Array, "b k t"]
    scores: Float[Array, "b k"]


class _Search(NamedTuple):
    position: Int[Array, ""]
    live: Int[Array, "b k t"]
    live_scores: Float[Array, "b k"]  # log p
    finished: Int[Array, "b k t"]
    finished_scores: Float[Array, "b k"]
    caches: list[KVCache]


def penalty(length: Any, alpha: float) -> Any:
    """What log p is divided by."""
    return ((5 + length) / 6) ** alpha


def beam_search(
    model: Translator,
    source: Int[Array, "b s"],
    segments: Int[Array, "b s"],
    *,
    max_length: int,
    beam: int = BEAM,
    alpha: float = ALPHA,
) -> Hypotheses:
    """Translations of at most ``max_length`` tokens, `END` counted; where none ends in time, the best unfinished."""
    rows, vocab = len(source), model.shape.vocab_size
    encoded = model.encode(source, segments)
    keys = [project_heads(block.source_attention.params, encoded)[1:] for block in model.decoder]
    valid = (segments > 0)[:, None, None]
    state = _Search(
        jnp.zeros((), jnp.int32),
        jnp.full((rows, beam, max_length), PAD, jnp.int32),
        jnp.broadcast_to(jnp.where(jnp.arange(beam) == 0, 0.0, UNREACHED)[None], (rows, beam)),
        jnp.full((rows, beam, max_length), PAD, jnp.int32),
        jnp.full((rows, beam), UNREACHED),
        [_cache(block, rows, beam, max_length) for block in model.decoder],
    )

    def goes_on(state: _Search) -> Array:
        reachable = state.live_scores.max(1) / penalty(max_length, alpha)
        return (state.position < max_length) & (reachable > state.finished_scores.min(1)).any()

    def extend(state: _Search) -> _Search:
        at = state.position
        last = jax.lax.dynamic_index_in_dim(state.live, jnp.maximum(at - 1, 0), 2, keepdims=False)
        last = jnp.where(at == 0, BEGIN, last)
        logits, caches = _next(model, last, at, keys, valid, state.caches)
        scores = state.live_scores[..., None] + jax.nn.log_softmax(logits)
        best, index = jax.lax.top_k(scores.reshape(rows, beam * vocab), 2 * beam)
        parent, token = index // vocab, index % vocab
        tokens = jnp.take_along_axis(state.live, parent[..., None], 1)
        tokens = jnp.where((jnp.arange(max_length) == at)[None, None], token[..., None], tokens)
        ends = token == END

        done = jnp.where(ends, best / penalty(at + 1, alpha), UNREACHED)
        finished_scores, kept = jax.lax.top_k(jnp.concatenate([state.finished_scores, done], 1), beam)
        finished = jnp.concatenate([state.finished, tokens], 1)
        finished = jnp.take_along_axis(finished, kept[..., None], 1)

        live_scores, kept = jax.lax.top_k(jnp.where(ends, UNREACHED, best), beam)
        live = jnp.take_along_axis(tokens, kept[..., None], 1)
        parent = jnp.take_along_axis(parent, kept, 1)
        caches = [_reorder(cache, parent) for cache in caches]
        return _Search(at + 1, live, live_scores, finished, finished_scores, caches)

    state = jax.lax.while_loop(goes_on, extend, state)
    # An unfinished hypothesis comes after every finished one.
    none = state.finished_scores[:, :1] <= UNREACHED / 2
    cut = state.live_scores / penalty(max_length, alpha)
    tokens = jnp.where(none[..., None], state.live, state.finished)
    return Hypotheses(tokens, jnp.where(none, cut, state.finished_scores))


@partial(jax.jit, static_argnums=(0, 4))
def _searched(
    shape: ModelShape, parameters: Any, source: Array, segments: Array, max_length: int
) -> Int[Array, "b t"]:
    return beam_search(apply(shape, parameters), source, segments, max_length=max_length).tokens[:, 0]


def translate(shape: ModelShape, parameters: Any, rows: Rows, *, rows_at_a_time: int = 64) -> np.ndarray:
    """The best hypothesis of every row, ``(rows, T)``; the last batch is filled up with empty rows."""
    source, segments = (np.asarray(part, np.int32) for part in (rows.source, rows.source_segments))
    missing = -len(source) % rows_at_a_time
    source, segments = (np.pad(part, ((0, missing), (0, 0))) for part in (source, segments))
    out = [
        _searched(
            shape,
            parameters,
            source[i : i + rows_at_a_time],
            segments[i : i + rows_at_a_time],
            source.shape[1],
        )
        for i in range(0, len(source), rows_at_a_time)
    ]
    return np.concatenate([np.asarray(part) for part in out])[: len(rows.source)]


def _cache(block: Block, rows: int, beam: int, capacity: int) -> KVCache:
    layer = block.self_attention
    return init_cache(
        capacity,
        layer.num_kv_heads,
        layer.head_dim,
        value_head_dim=layer.value_head_dim,
        batch_shape=(rows, beam),
    )


def _reorder(cache: KVCache, parent: Int[Array, "b k"]) -> KVCache:
    def take(held: Array) -> Array:
        return jnp.take_along_axis(held, parent[:, :, None, None, None], 1)

    return cache._replace(key=take(cache.key), value=take(cache.value))


def _next(
    model: Translator,
    last: Int[Array, "b k"],
    position: Int[Array, ""],
    keys: list[tuple[Array, Array]],
    valid: Bool[Array, "b 1 1 s"],
    caches: list[KVCache],
) -> tuple[Float[Array, "b k v"], list[KVCache]]:
    """Logits after one more token of every hypothesis; the beam is an axis of queries where the source is attended."""
    at = jnp.full((1, 1), position)
    x = model.embed(last, jnp.broadcast_to(at, last.shape))
    appended = []
    for block, (key, value), cache in zip(model.decoder, keys, caches, strict=True):
        inputs = block.self_norm(x)[:, :, None]
        y, cache = multi_head_attention(block.self_attention.params, inputs, cache=cache)
        appended.append(cache)
        x = x + y[:, :, 0]
        params = block.source_attention.params
        query, _, _ = project_heads(params, block.source_norm(x))
        x = x + combine_heads(params, dot_product_attention(query, key, value, mask=valid))
        x = x + block.feed_forward(block.feed_forward_norm(x))
    return model.logits(model.decoder_norm(x)), appended
