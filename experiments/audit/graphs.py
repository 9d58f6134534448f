"""Attention's graph over the types of a text: which token is attended most, and how fixed that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from experiments.pretrained import PretrainedModel, TextTokenizer, forward
from experiments.roles.text import passages, whole_pieces
from theory.problems import seeded_rng

BATCH = 8


def contexts_of(
    tokenizer: TextTokenizer, text: str, num_contexts: int, length: int
) -> Int[np.ndarray, "c t"]:
    """Pieces of running text of ``length`` tokens, evenly spaced over it and in its order.

    Raises:
        ValueError: if the text has too few.
    """
    pieces = whole_pieces(tokenizer, passages(text), length)
    if not pieces:
        raise ValueError(f"text: expected one with contexts of {length} tokens, got none in {text!r}")
    if len(pieces) < num_contexts:
        raise ValueError(
            f"num_contexts: expected at most the text's {len(pieces)}, got {num_contexts} "
            f"(text {text!r}, {length} tokens each)"
        )
    places = np.linspace(0, len(pieces) - 1, num_contexts).round().astype(int)
    return np.array([pieces[place] for place in places])


@partial(jax.jit, static_argnames=("config",))
def _most_attended(params, config, tokens):
    lengths = jnp.full((tokens.shape[0],), tokens.shape[1])
    output = forward(params, config, tokens, lengths, return_weights=True)
    return jnp.argmax(jnp.asarray(output.weights), axis=-1)


def most_attended(model: PretrainedModel, contexts: Int[np.ndarray, "c t"]) -> Int[np.ndarray, "l n c t"]:
    """For every layer, head and token the position that it attends most."""
    parts = []
    for start in range(0, len(contexts), BATCH):
        batch = contexts[start : start + BATCH]
        full = np.concatenate([batch, np.repeat(batch[-1:], BATCH - len(batch), axis=0)])
        found = np.asarray(_most_attended(model.params, model.config, jnp.asarray(full)))
        parts.append(found[:, : len(batch)])
    return np.concatenate(parts, axis=1).transpose(0, 2, 1, 3)


def content_positions(model: PretrainedModel, contexts: Int[np.ndarray, "c t"]) -> Bool[np.ndarray, "c t"]:
    """Tokens that count: neither special ones nor, in a causal model, the first one, which serves as one."""
    content = ~np.isin(contexts, sorted(model.tokenizer.special))
    if model.config.causal:
        content[:, 0] = False
    return content


@dataclass(frozen=True)
class TypeGraph:
    """Attention's graph over types, in one layer.

    Attributes:
        items: types of the text.
        edges: distinct edges between different types, all heads together.
        growth: contexts, items and edges of parts of the text.
        sink_share: tokens whose most attended one is special (or the first token of a causal model).
        self_share: tokens that attend themselves, or another token of their type, most.
        opportunities: how often a known edge could be met again.
        recurrence: how often it then was the most attended one; None without opportunities.
        baseline: how often a type of the context at random would have been.
    """

    items: int
    edges: int
    growth: list[dict[str, int]]
    sink_share: float
    self_share: float
    opportunities: int
    recurrence: float | None
    baseline: float | None


def type_graph(
    contexts: Int[np.ndarray, "c t"],
    content: Bool[np.ndarray, "c t"],
    attended: Int[np.ndarray, "n c t"],
    *,
    causal: bool,
    parts: Sequence[float],
) -> TypeGraph:
    """Count and re-find the edges of one layer.

    An edge goes from a token's type to the type of the token that a head attends most there, if both are content and
    differ. Known edges are those of a head in the first half of the contexts; in the second half an opportunity is a
    token whose context holds, where it can attend it, the target of a known edge of the same head and type.

    Args:
        contexts: ids, in the order of the text.
        content: which positions count.
        attended: position attended most, of every head.
        causal: whether a token sees only what is before it.
        parts: parts of the contexts, in a random order, at which edges are counted.
    """
    heads, count, _ = attended.shape
    codes, types = np.unique(contexts, return_inverse=True)
    types = types.reshape(contexts.shape)
    target_types = np.take_along_axis(np.broadcast_to(types, attended.shape), attended, axis=-1)
    target_content = np.take_along_axis(np.broadcast_to(content, attended.shape), attended, axis=-1)
    source = np.broadcast_to(types, attended.shape)
    real = np.broadcast_to(content, attended.shape)
    linked = real & target_content & (source != target_types)
    edge = source * len(codes) + target_types
    shuffled = seeded_rng(0, "audit, order of contexts").permutation(count)
    growth = []
    for part in parts:
        some = shuffled[: max(1, round(part * count))]
        growth.append(
            {
                "contexts": len(some),
                "items": len(np.unique(types[some][content[some]])),
                "edges": len(np.unique(edge[:, some][linked[:, some]])),
            }
        )
    half = count // 2
    hits = chances = 0
    expected = 0.0
    seen = _seen_types(types[half:], content[half:], causal)
    pair = types[half:, :, None] * len(codes) + types[half:, None, :]
    for head in range(heads):
        known = np.unique(edge[head, :half][linked[head, :half]])
        chance = seen & np.isin(pair, known)
        hits += int((chance & (types[half:, None, :] == target_types[head, half:, :, None])).sum())
        chances += int(chance.sum())
        expected += float((chance / np.maximum(seen.sum(-1, keepdims=True), 1)).sum())
    return TypeGraph(
        items=growth[-1]["items"],
        edges=growth[-1]["edges"],
        growth=growth,
        sink_share=float((real & ~target_content).sum() / real.sum()),
        self_share=float((real & target_content & (source == target_types)).sum() / real.sum()),
        opportunities=chances,
        recurrence=hits / chances if chances else None,
        baseline=expected / chances if chances else None,
    )


def _seen_types(
    types: Int[np.ndarray, "c t"], content: Bool[np.ndarray, "c t"], causal: bool
) -> Bool[np.ndarray, "c t t"]:
    """Where key position s is the first of its type among those that query t can attend, and another type than t's."""
    length = types.shape[1]
    same = types[:, :, None] == types[:, None, :]
    earlier = np.tril(np.ones((length, length), bool), -1)
    first = content & ~(same & earlier[None] & content[:, None, :]).any(-1)
    seen = content[:, :, None] & first[:, None, :] & ~same
    return seen & earlier[None] if causal else seen
