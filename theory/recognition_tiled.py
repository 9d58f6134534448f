"""How well a channel recognises a large permutation: all pairs, a few rows at a time, no matrix of all of them.

The measures are those of `theory.recognition` (a test compares them). What they need of the non-edges is how many lie
above each edge: scores below the lowest edge are forgotten as soon as they are seen, and where more than
`KEPT_PER_EDGE` non-edges an edge are left, the lowest of those too. A threshold that many are above gives an F1 below
``2 / (KEPT_PER_EDGE + 2)``, so a larger best F1 is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

KEPT_PER_EDGE = 10


@dataclass(frozen=True)
class LargeRecovery:
    """What a channel makes of all pairs.

    Attributes:
        best_f1: the largest F1 that any threshold gives; exact from ``2 / (KEPT_PER_EDGE + 2)`` on, else that of the
            thresholds with at most ``KEPT_PER_EDGE`` false positives an edge.
        best_threshold: a threshold that gives it.
        missed: edges below that threshold.
        wrong: non-edges above it.
        above_all: edges above all non-edges.
        exact: whether these are all.
        smallest_edge: the lowest score of an edge.
        largest_non_edge: the highest score of a non-edge.
        non_edges: the highest scores of non-edges, descending, down to what was kept.
        edges: scores of the edges, by their source.
    """

    best_f1: float
    best_threshold: float
    missed: int
    wrong: int
    above_all: int
    exact: bool
    smallest_edge: float
    largest_non_edge: float
    non_edges: Float[np.ndarray, " n"]
    edges: Float[np.ndarray, " m"]


def recover_tiled(
    embeddings: Float[np.ndarray, "m d"],
    query_weights: Float[np.ndarray, "h d k"],
    key_weights: Float[np.ndarray, "h d k"],
    target: Int[np.ndarray, " m"],
    *,
    dtype: type[np.floating] = np.float64,
    tile: int = 512,
) -> LargeRecovery:
    """Judge a channel on a permutation from its weights alone; the diagonal counts as any other non-edge.

    Args:
        embeddings: items.
        query_weights: one matrix a head.
        key_weights: one matrix a head.
        target: of every source, a permutation.
        dtype: of the scores; projections are float64.
        tile: rows at a time; memory is ``O(tile m)``.

    Raises:
        ValueError: ``target`` is no permutation, or a score is not finite.
    """
    count = len(embeddings)
    if target.shape != (count,) or not np.array_equal(np.sort(target), np.arange(count)):
        raise ValueError(f"target: expected a permutation of {count} items, got shape {target.shape}")
    items = embeddings.astype(np.float64)
    queries = [(items @ weights).astype(dtype) for weights in query_weights.astype(np.float64)]
    keys = [(items @ weights).astype(dtype) for weights in key_weights.astype(np.float64)]
    edges = np.max([np.einsum("mk,mk->m", q, k[target]) for q, k in zip(queries, keys, strict=True)], axis=0)
    if not np.isfinite(edges).all():
        raise ValueError("scores: expected finite values, got NaN or infinity")
    floor, kept, top = float(edges.min()), [], -np.inf
    for begin in range(0, count, tile):
        rows = slice(begin, min(begin + tile, count))
        scores = queries[0][rows] @ keys[0].T
        for q, k in zip(queries[1:], keys[1:], strict=True):
            np.maximum(scores, q[rows] @ k.T, out=scores)
        scores[np.arange(len(scores)), target[rows]] = -np.inf
        highest = scores.max(axis=1)
        if not np.isfinite(highest).all():  # a NaN is the maximum of its row
            raise ValueError("scores: expected finite values, got NaN or infinity")
        top = max(top, float(highest.max()))
        kept.append(scores[scores >= floor])
        if sum(map(len, kept)) > 2 * KEPT_PER_EDGE * count:
            kept, floor = _highest(kept, KEPT_PER_EDGE * count)
    (non_edges,), floor = _highest(kept, KEPT_PER_EDGE * count)
    return _judge(edges, np.sort(non_edges)[::-1], max(floor, float(edges.min())), top)


def _highest(kept: list[np.ndarray], number: int) -> tuple[list[np.ndarray], float]:
    """The highest scores, at most ``number``, and the lowest of them that is surely all there."""
    scores = np.concatenate(kept)
    if len(scores) <= number:
        return [scores], -np.inf
    scores = np.partition(scores, len(scores) - number)[len(scores) - number :]
    return [scores], float(scores.min())


def _judge(edges: np.ndarray, non_edges: np.ndarray, floor: float, top: float) -> LargeRecovery:
    ascending, number = np.sort(edges), len(edges)
    places = ascending[ascending >= floor]
    if not len(places):
        places = ascending[-1:]
    hits = number - np.searchsorted(ascending, places)  # edges at or above each place
    wrong = len(non_edges) - np.searchsorted(non_edges[::-1], places)
    f1 = 2 * hits / (hits + wrong + number)
    best = int(np.argmax(f1))
    below = max(
        np.max(ascending[ascending < places[best]], initial=-np.inf),
        np.max(non_edges[non_edges < places[best]], initial=-np.inf),
    )
    middle = float(places[best]) if not np.isfinite(below) else float(below / 2 + places[best] / 2)
    above = int((edges > top).sum())
    return LargeRecovery(
        best_f1=float(f1[best]),
        best_threshold=middle if middle < places[best] else float(np.nextafter(places[best], -np.inf)),
        missed=number - int(hits[best]),
        wrong=int(wrong[best]),
        above_all=above,
        exact=above == number,
        smallest_edge=float(edges.min()),
        largest_non_edge=top,
        non_edges=non_edges,
        edges=edges,
    )
