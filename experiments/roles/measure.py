"""What each head of a model does on a text, batch after batch: only sums are kept."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from experiments.pretrained import ModelConfig, PretrainedModel, TextTokenizer, forward
from experiments.pretrained.model import Params
from experiments.roles.text import batches
from mha_jax.analysis import (
    Total,
    attention_entropy,
    attention_share,
    attention_shares,
    confidence,
    head_distances,
    induction_score,
    key_selector,
    previous_token_score,
    sink_score,
)

ENTROPY_SMOOTHING = 1e-4
"""Of the entropy, as in the code of Clark et al. 2019."""
DISTANCE_SMOOTHING = 1e-3
"""Of the distances between heads, likewise."""
FARTHEST = 8
"""Offsets from -FARTHEST to FARTHEST are counted one by one."""
BATCH_SIZE = 4


class Marks(NamedTuple):
    """Which tokens are what, ``(..., T)``.

    Attributes:
        real: not padding.
        separator: what the model puts behind a text: [SEP].
        punctuation: full stops and commas.
    """

    real: Bool[Array, "*batch t"]
    separator: Bool[Array, "*batch t"]
    punctuation: Bool[Array, "*batch t"]

    @property
    def delimiter(self) -> Bool[Array, "*batch t"]:
        """Separators and punctuation; what the model puts before a text ([CLS]) is none."""
        return self.separator | self.punctuation


def marks(
    tokens: Int[np.ndarray, "*batch t"], lengths: Int[np.ndarray, "*batch"], tokenizer: TextTokenizer
) -> Marks:
    """The marks of padded sequences. A separator inside of a text, which some write there, is one too."""
    real = np.arange(tokens.shape[-1]) < lengths[..., None]
    found = (np.isin(tokens, sorted(ids)) & real for ids in (tokenizer.suffix, tokenizer.punctuation))
    return Marks(jnp.asarray(real), *map(jnp.asarray, found))


def text_scores(
    model: PretrainedModel, params: Params, sequences: Iterator[list[int]], length: int
) -> dict[str, Any]:
    """Scores of all heads on a text.

    Args:
        model: its tokeniser marks the delimiters.
        params: its parameters, or the control's.
        sequences: ids.
        length: of the longest of them, at most.

    Returns:
        ``(L, N)`` arrays in float64: shares ``previous``, ``next``, ``self``, ``first``, ``separator``,
        ``punctuation``, ``delimiter`` (both); ``entropy`` and ``uniform_entropy``, that of uniform attention, in nats;
        ``confidence``; ``offset``, where the largest weights most often stand, and ``offset_share``, how often;
        ``sink``. And ``num_tokens``.
    """
    sums: dict[str, Total] = {}
    num_tokens = 0
    for batch in batches(sequences, BATCH_SIZE, length):
        own = marks(batch.tokens, batch.lengths, model.tokenizer)
        found = _text_totals(params, model.config, batch.tokens, batch.lengths, own)
        sums = _added(sums, found)
        num_tokens += int(batch.lengths.sum())
    offsets = sums.pop("offsets")
    scores: dict[str, Any] = {name: np.asarray(total.total / total.count) for name, total in sums.items()}
    best = offsets.total.argmax(-1)
    scores["offset"] = best - FARTHEST
    scores["offset_share"] = np.take_along_axis(offsets.total / offsets.count, best[..., None], -1)[..., 0]
    return scores | {"num_tokens": num_tokens}


def repeated_scores(model: PretrainedModel, params: Params, count: int, length: int) -> dict[str, Any]:
    """Scores of a causal model on random tokens that are repeated once: nothing but the repetition is to be seen.

    Tokens are drawn evenly from all that are not special, without replacement in a sequence, from seed 0.

    Args:
        model: the model.
        params: its parameters, or the control's.
        count: sequences.
        length: random tokens of each, which are then repeated.

    Returns:
        ``(L, N)`` arrays in float64: ``induction`` over the second halves, ``previous_random`` over all queries.
    """
    rng = np.random.default_rng(0)
    usable = np.setdiff1d(np.arange(model.config.vocab_size), sorted(model.tokenizer.special))
    if len(usable) < length:
        raise ValueError(f"repeated_length: expected at most {len(usable)} tokens, got {length}")
    drawn = (rng.choice(usable, length, replace=False).tolist() for _ in range(count))
    sums: dict[str, Total] = {}
    for batch in batches((ids + ids for ids in drawn), BATCH_SIZE, 2 * length):
        sums = _added(sums, _repeated_totals(params, model.config, batch.tokens, batch.lengths))
    return {name: np.asarray(total.total / total.count) for name, total in sums.items()}


def distances(model: PretrainedModel, sequences: Iterator[list[int]], length: int) -> tuple[np.ndarray, int]:
    """Jensen-Shannon divergence between every two heads of all layers, in nats a token: its mean over the text.

    Returns:
        ``(L N, L N)`` in float64, heads of a layer side by side, and the number of tokens.
    """
    total, num_tokens = 0.0, 0
    for batch in batches(sequences, 1, length):
        found = _distances(model.params, model.config, batch.tokens, batch.lengths)
        total, num_tokens = total + np.asarray(found, np.float64), num_tokens + int(batch.lengths[0])
    mean = np.asarray(total / num_tokens)
    return (mean + mean.T) / 2, num_tokens  # the two of a pair differ by rounding


def maps(model: PretrainedModel, ids: list[int], heads: list[tuple[int, int]]) -> Float[np.ndarray, "h t t"]:
    """Attention maps of some heads ``(layer, head)`` on one sequence."""
    found = _maps(model.params, model.config, jnp.asarray([ids]), jnp.asarray([len(ids)]))
    layers, numbers = zip(*heads, strict=True)
    return np.asarray(found[jnp.array(layers), 0, jnp.array(numbers)])


def _added(sums: dict[str, Total], more: dict[str, Total]) -> dict[str, Total]:
    exact = {
        name: Total(np.asarray(total.total, np.float64), np.asarray(total.count, np.float64))
        for name, total in more.items()
    }
    return {name: sums[name] + total if sums else total for name, total in exact.items()}


@partial(jax.jit, static_argnames=("config",))
def _text_totals(
    params: Params, config: ModelConfig, tokens: Array, lengths: Array, marks: Marks
) -> dict[str, Total]:
    """Totals ``(L, N)`` of a batch, by name; ``offsets`` ``(L, N, 2 FARTHEST + 1)``."""
    weights = forward(params, config, tokens, lengths, return_weights=True).weights
    assert weights is not None
    real = marks.real
    found = attention_shares(weights, real)
    for name in ("separator", "punctuation", "delimiter"):
        found[name] = attention_share(weights, key_selector(getattr(marks, name)), real)
    found["entropy"] = attention_entropy(weights, real, smoothing=ENTROPY_SMOOTHING, is_causal=config.causal)
    chosen = {"queries": real & ~marks.separator, "keys": ~marks.separator}
    found["confidence"] = confidence(weights, real, **chosen)
    found["sink"] = sink_score(weights, real)
    found = {name: total.over(1) for name, total in found.items()}
    uniform = jnp.log(_allowed(real, config.causal))
    like = found["entropy"].total
    found["uniform_entropy"] = Total(
        jnp.broadcast_to((uniform * real).sum(), like.shape),
        jnp.broadcast_to(real.sum(dtype=like.dtype), like.shape),
    )
    return found | {"offsets": _offsets(weights, **chosen)}


def _allowed(real: Bool[Array, "b t"], causal: bool) -> Float[Array, "b t"]:
    """How many keys each query may attend, at least 1."""
    all_keys = jnp.broadcast_to(real.sum(-1, keepdims=True), real.shape)
    own = jnp.broadcast_to(jnp.arange(1, real.shape[1] + 1)[None, :], real.shape)
    return jnp.maximum(own if causal else all_keys, 1).astype(jnp.float32)


def _offsets(weights: Array, queries: Array, keys: Array) -> Total:
    """How often the largest weight of a query stands at each offset."""
    size = weights.shape[-1]
    largest = jnp.where(keys[None, :, None, None, :], weights, -1).argmax(-1)
    offset = largest - jnp.arange(size)[None, None, None, :]
    wanted = jnp.arange(-FARTHEST, FARTHEST + 1)[None, None, None, None, :]
    hits = (offset[..., None] == wanted) & queries[None, :, None, :, None]
    total = hits.sum((1, 3), dtype=jnp.float32)
    return Total(total, jnp.broadcast_to(queries.sum(dtype=jnp.float32), total.shape))


@partial(jax.jit, static_argnames=("config",))
def _repeated_totals(params: Params, config: ModelConfig, tokens: Array, lengths: Array) -> dict[str, Total]:
    weights = forward(params, config, tokens, lengths, return_weights=True).weights
    assert weights is not None
    real = jnp.arange(tokens.shape[1])[None, :] < lengths[:, None]
    return {
        "induction": induction_score(weights, tokens, real).over(1),
        "previous_random": previous_token_score(weights, real).over(1),
    }


@partial(jax.jit, static_argnames=("config",))
def _distances(params: Params, config: ModelConfig, tokens: Array, lengths: Array) -> Array:
    weights = forward(params, config, tokens, lengths, return_weights=True).weights
    assert weights is not None
    heads = weights[:, 0].reshape(-1, *weights.shape[-2:])
    real = jnp.arange(tokens.shape[1]) < lengths[0]
    return head_distances(heads, real, smoothing=DISTANCE_SMOOTHING, is_causal=config.causal)


@partial(jax.jit, static_argnames=("config",))
def _maps(params: Params, config: ModelConfig, tokens: Array, lengths: Array) -> Array:
    weights = forward(params, config, tokens, lengths, return_weights=True).weights
    assert weights is not None
    return weights
