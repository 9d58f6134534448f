"""Cutting heads off a trained channel: what each head holds, and in which order heads go.

A channel scores a pair by its best head, so a cut takes the maximum over fewer heads; nothing else changes but the
threshold, which is a channel's own parameter and is chosen anew (F1 at the best threshold). All in float64 NumPy, from
the factors alone. Source: ours; the greedy orders are those of `mha_jax.analysis.orders`.
"""

import numpy as np
from jaxtyping import Bool, Float, Float64, Int

from theory.recognition import channel_scores


def scores_by_head(
    embeddings: Float[np.ndarray, "m d"],
    query_weights: Float[np.ndarray, "h d k"],
    key_weights: Float[np.ndarray, "h d k"],
) -> Float64[np.ndarray, "h m m"]:
    """Scores of every head: `theory.recognition.channel_scores` of each alone.

    Raises:
        ValueError: as `theory.recognition.channel_scores`.
    """
    return np.stack(
        [
            channel_scores(embeddings, q[None], k[None])
            for q, k in zip(query_weights, key_weights, strict=True)
        ]
    )


def best_f1(scores: Float64[np.ndarray, "m m"], adjacency: Bool[np.ndarray, "m m"]) -> float:
    """F1 at the best threshold: the same number as `theory.recognition.evaluate`'s, without sorting all pairs.

    The best threshold lies just below some edge, and only non-edges above the lowest edge count.
    """
    edges = np.sort(scores[adjacency])
    others = scores[~adjacency]
    others = np.sort(others[others >= edges[0]])
    hits = edges.size - np.searchsorted(edges, edges, side="left")
    wrong = others.size - np.searchsorted(others, edges, side="left")
    return float((2 * hits / (hits + wrong + edges.size)).max())


def edges_won(
    scores: Float64[np.ndarray, "h m m"], adjacency: Bool[np.ndarray, "m m"], threshold: float
) -> Int[np.ndarray, " h"]:
    """For every head the edges that it scores above the threshold and higher than any other head.

    Args:
        scores: of `scores_by_head`.
        adjacency: the graph.
        threshold: the channel's.
    """
    own = scores[:, adjacency]
    winner = own.argmax(axis=0)[own.max(axis=0) > threshold]
    return np.bincount(winner, minlength=len(scores))


def ablation_losses(
    scores: Float64[np.ndarray, "h m m"], adjacency: Bool[np.ndarray, "m m"], kept: Bool[np.ndarray, " h"]
) -> Float64[np.ndarray, " h"]:
    """How much F1 (best threshold) each head's removal costs the heads that are kept; 0 for the others.

    Removing the only head left costs all of it.
    """
    losses = np.zeros(len(scores))
    members = np.flatnonzero(kept)
    if not members.size:
        return losses
    present = scores[members]
    winner = present.argmax(axis=0)
    best = present.max(axis=0)
    whole = best_f1(best, adjacency)
    if members.size == 1:
        losses[members] = whole
        return losses
    second = np.partition(present, -2, axis=0)[-2]
    for place, head in enumerate(members):
        losses[head] = whole - best_f1(np.where(winner == place, second, best), adjacency)
    return losses


def kept_f1(
    scores: Float64[np.ndarray, "h m m"], adjacency: Bool[np.ndarray, "m m"], kept: Bool[np.ndarray, " h"]
) -> float:
    """F1 (best threshold) of the kept heads; without any, that of equal scores: every pair is called an edge."""
    if kept.any():
        return best_f1(scores[kept].max(axis=0), adjacency)
    return best_f1(np.zeros(adjacency.shape), adjacency)
