"""What softmax channels answer on contexts, in float64 NumPy from scores alone, and how right it is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from theory.recognition import sample_context


class Rates(NamedTuple):
    """How right answers on contexts are.

    Attributes:
        f1: over all pairs of all contexts, as for channels.
        accuracy: share of queries with the whole answer right: the neighbour alone, or nothing where it is absent.
    """

    f1: float
    accuracy: float


def draw_contexts(
    num_items: int, context_size: int, num_contexts: int, rng: np.random.Generator
) -> Int[np.ndarray, "n l"]:
    """Independent contexts, each of distinct items in random order."""
    return np.stack([sample_context(num_items, context_size, rng) for _ in range(num_contexts)])


def head_scores_of(
    items: Float[np.ndarray, "m d"],
    query_weights: Float[np.ndarray, "h d k"],
    key_weights: Float[np.ndarray, "h d k"],
) -> Float[np.ndarray, "h m m"]:
    """Scores of every head on all pairs, in float64."""
    queries, keys = (
        np.matmul(items.astype(np.float64), w.astype(np.float64)) for w in (query_weights, key_weights)
    )
    return queries @ np.swapaxes(keys, 1, 2)


def weights_on(
    scores: Float[np.ndarray, "h m m"], context: Int[np.ndarray, " l"], threshold: float, scale: float
) -> Float[np.ndarray, "h l l"]:
    """Attention weights on the items of a context; what is missing to 1 is on the null key at the threshold."""
    own = scale * (scores[:, context[:, None], context[None, :]] - threshold)
    top = np.maximum(own.max(axis=-1, keepdims=True), 0.0)
    shifted = np.exp(own - top)
    return shifted / (np.exp(-top) + shifted.sum(axis=-1, keepdims=True))


def pair_rates(
    edges: Bool[np.ndarray, "m m"], contexts: Int[np.ndarray, "n l"], answers: Bool[np.ndarray, "n l l"]
) -> Rates:
    """Rates of answers that say for every pair of a context whether it is an edge."""
    right = edges[contexts[:, :, None], contexts[:, None, :]]
    found = answers.sum() + right.sum()
    f1 = 2 * int((answers & right).sum()) / int(found) if found else 1.0
    return Rates(f1, float((answers == right).all(axis=-1).mean()))


def item_rates(
    edges: Bool[np.ndarray, "m m"], contexts: Int[np.ndarray, "n l"], answers: Int[np.ndarray, "n l"]
) -> Rates:
    """Rates of answers that name one item of all, or ``m`` for none.

    An answer outside the context counts as an edge that is none.
    """
    wanted = neighbours(edges, contexts)
    none = len(edges)
    right = (answers == wanted) & (wanted < none)
    said = int((answers < none).sum()) + int((wanted < none).sum())
    return Rates(2 * int(right.sum()) / said if said else 1.0, float((answers == wanted).mean()))


def neighbours(edges: Bool[np.ndarray, "m m"], contexts: Int[np.ndarray, "n l"]) -> Int[np.ndarray, "n l"]:
    """The neighbour in the context of each of its items, ``m`` where it has none."""
    target = np.where(edges.any(axis=1), edges.argmax(axis=1), len(edges))
    wanted = target[contexts]
    present = (wanted[:, :, None] == contexts[:, None, :]).any(axis=-1)
    return np.where(present, wanted, len(edges))


def decode_direction(
    outputs: Float[np.ndarray, "*n d"], items: Float[np.ndarray, "m d"], least_norm: float = 0.5
) -> Int[np.ndarray, "*n"]:
    """The item in whose direction an output points most, ``m`` for an output shorter than ``least_norm``."""
    answers = (outputs @ items.T).argmax(axis=-1)
    return np.where(np.linalg.norm(outputs, axis=-1) < least_norm, len(items), answers)
