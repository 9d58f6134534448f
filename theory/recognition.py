"""Relational graph recognition: what a channel answers on a context, and how right it is.

A channel scores every ordered pair of items; it answers "edge" where the score is strictly above one
threshold. On a context (a subset of the items) the answer for each item is its neighbours within the
context. Every pair of items is in some context of two, and an answer depends on nothing but its pair, so
*all contexts are answered right if and only if all pairs are* (a theorem; the tests enumerate it). The
metrics are therefore taken over all `m^2` pairs, the diagonal (never an edge) included.

Everything here is float64 NumPy and computed from the factors alone: nothing that a trainer reports about
itself is trusted. Scores that are not finite are refused, for a diverged run has no score, not a bad one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Float64, Int

Aggregation = Literal["max", "sum"]
_COMBINE: dict[str, Callable[..., np.ndarray]] = {"max": np.maximum, "sum": np.add}


@dataclass(frozen=True)
class Recovery:
    """How well scores and a threshold separate the edges of a graph from its non-edges.

    Attributes:
        micro_f1: F1 over all pairs at the channel's own (trained) threshold.
        best_f1: the largest F1 that any threshold gives.
        best_threshold: a finite threshold that gives `best_f1` (the highest such, if several do).
        exact_recovery: whether some threshold answers every pair right: `smallest_edge > largest_non_edge`.
        argmax_accuracy: among the sources with an edge, the fraction whose best-scored target is a neighbour.
        smallest_edge: the lowest score of an edge.
        largest_non_edge: the highest score of a non-edge.
    """

    micro_f1: float
    best_f1: float
    best_threshold: float
    exact_recovery: bool
    argmax_accuracy: float
    smallest_edge: float
    largest_non_edge: float


def channel_scores(
    embeddings: Float[np.ndarray, "m d"],
    query_weights: Float[np.ndarray, "h d k"],
    key_weights: Float[np.ndarray, "h d k"],
    aggregation: Aggregation = "max",
) -> Float64[np.ndarray, "m m"]:
    """Scores of all pairs, in float64, from the factors alone.

    `scores[u, v]` is the maximum (or the sum) over heads of `<x_u W_Q, x_v W_K>`, without scaling. The sum
    is one bilinear form of rank at most `h k`, that is, a single head of width `h k` (a theorem): it is the
    control. Memory is two `m x m` matrices, whatever the number of heads.

    Args:
        embeddings: the items, one per row; any float type, converted to float64 first, as are the weights.
        query_weights: one `d x k` matrix per head.
        key_weights: one `d x k` matrix per head.
        aggregation: "max" or "sum".

    Returns:
        The `(m, m)` scores, `[source, target]`.

    Raises:
        ValueError: shapes that do not fit, no head, another aggregation, or factors or scores that are not
            finite.
    """
    if aggregation not in _COMBINE:
        raise ValueError(f"aggregation: expected 'max' or 'sum', got {aggregation!r}")
    if query_weights.ndim != 3 or query_weights.shape[0] == 0 or query_weights.shape != key_weights.shape:
        raise ValueError(
            "query_weights, key_weights: expected one shape (h, d, k) with h >= 1, "
            f"got {query_weights.shape} and {key_weights.shape}"
        )
    if embeddings.ndim != 2 or embeddings.shape[1] != query_weights.shape[1]:
        raise ValueError(
            f"embeddings: expected shape (m, {query_weights.shape[1]}) to fit the weights, "
            f"got {embeddings.shape}"
        )
    arrays = {"embeddings": embeddings, "query_weights": query_weights, "key_weights": key_weights}
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ValueError(f"{name}: expected finite values, got NaN or infinity")
    items, queries, keys = (array.astype(np.float64) for array in arrays.values())
    combine = _COMBINE[aggregation]
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow is reported below, as an error
        scores = (items @ queries[0]) @ (items @ keys[0]).T
        _require_finite(scores)
        for query_weight, key_weight in zip(queries[1:], keys[1:], strict=True):
            head = (items @ query_weight) @ (items @ key_weight).T
            _require_finite(head)  # each head: a maximum would hide one at minus infinity
            scores = combine(scores, head, out=scores)
    _require_finite(scores)
    return scores


def evaluate(
    scores: Float64[np.ndarray, "m m"], adjacency: Bool[np.ndarray, "m m"], threshold: float
) -> Recovery:
    """All metrics of one channel on one graph.

    F1 is `2 TP / (predicted + edges)` over all pairs, 0 where nothing is predicted. The best threshold is
    exact: all cuts of the sorted scores are tried, and equal scores are never split. Sorting costs O(m^2 log
    m).

    Args:
        scores: float64, `[source, target]`.
        adjacency: the graph; the diagonal counts as any other pair.
        threshold: the channel's own threshold; a pair is answered "edge" where its score is strictly above.

    Returns:
        The metrics. In `argmax_accuracy` a tie between a neighbour and a non-neighbour is wrong, for nothing
        in the channel decides it.

    Raises:
        ValueError: shapes that do not fit, no edge or no non-edge, scores or a threshold that are not finite.
    """
    if scores.ndim != 2 or scores.shape != adjacency.shape:
        raise ValueError(
            f"scores, adjacency: expected one shape (m, m), got {scores.shape} and {adjacency.shape}"
        )
    _require_finite(scores)
    if not np.isfinite(threshold):
        raise ValueError(f"threshold: expected a finite number, got {threshold}")
    num_edges = int(adjacency.sum())
    if num_edges in (0, adjacency.size):
        raise ValueError(
            "adjacency: expected at least one edge and one non-edge, "
            f"got {num_edges} edges of {adjacency.size} pairs"
        )
    predicted = scores > threshold
    best_f1, best_threshold = _best_cut(scores.ravel(), adjacency.ravel())
    smallest_edge = float(scores[adjacency].min())
    largest_non_edge = float(scores[~adjacency].max())
    return Recovery(
        micro_f1=2 * int((predicted & adjacency).sum()) / (int(predicted.sum()) + num_edges),
        best_f1=best_f1,
        best_threshold=best_threshold,
        exact_recovery=smallest_edge > largest_non_edge,
        argmax_accuracy=_argmax_accuracy(scores, adjacency),
        smallest_edge=smallest_edge,
        largest_non_edge=largest_non_edge,
    )


def sample_context(num_items: int, size: int, rng: np.random.Generator) -> Int[np.ndarray, " c"]:
    """Distinct items in random order, uniform over all ordered choices.

    For tasks that show a model one context at a time, such as a softmax channel trained end to end. The capacity
    experiment does not draw contexts: it takes all pairs at once, which is the same (see the module).

    Raises:
        ValueError: a size below 1 or above `num_items`.
    """
    if not 1 <= size <= num_items:
        raise ValueError(f"size: expected an integer from 1 to num_items = {num_items}, got {size}")
    return rng.permutation(num_items)[:size]


def context_answers(
    adjacency: Bool[np.ndarray, "m m"], context: Int[np.ndarray, " c"]
) -> tuple[tuple[int, ...], ...]:
    """For every item of the context, in its order, the neighbours it has in the context, in ascending order.

    Raises:
        ValueError: a context with a repeated item, or one out of range.
    """
    members = _sorted_context(context, adjacency.shape[0])
    rows = adjacency[np.ix_(context, members)]
    return tuple(tuple(members[row].tolist()) for row in rows)


def recognise(
    scores: Float[np.ndarray, "m m"], threshold: float, context: Int[np.ndarray, " c"]
) -> tuple[tuple[int, ...], ...]:
    """What a channel answers on a context, in the form of `context_answers`: equal if and only if right.

    Raises:
        ValueError: a context with a repeated item, or one out of range; scores that are not finite.
    """
    _require_finite(scores)
    return context_answers(scores > threshold, context)


def _require_finite(scores: np.ndarray) -> None:
    if not np.isfinite(scores).all():
        raise ValueError("scores: expected finite values, got NaN or infinity")


def _sorted_context(context: np.ndarray, num_items: int) -> np.ndarray:
    members = np.unique(context)
    if members.size != context.size:
        raise ValueError(f"context: expected distinct items, got {context.tolist()}")
    if members.size and (members[0] < 0 or members[-1] >= num_items):
        raise ValueError(f"context: expected items from 0 to {num_items - 1}, got {context.tolist()}")
    return members


def _best_cut(scores: Float64[np.ndarray, " p"], edges: Bool[np.ndarray, " p"]) -> tuple[float, float]:
    """The largest F1 over all thresholds, and a finite threshold that gives it (the highest cut that does).

    Quotients of integers below 2^26 that differ do so by more than float64 rounding, hence the comparison is
    exact.
    """
    order = np.argsort(scores)[::-1]
    descending = scores[order]
    hits = np.cumsum(edges[order])
    ends = np.append(np.flatnonzero(descending[1:] != descending[:-1]), descending.size - 1)
    f1 = 2 * hits[ends] / (ends + 1 + hits[-1])
    best = int(np.argmax(f1))
    above = descending[ends[best]]
    if best + 1 == ends.size:  # every pair is answered "edge": any number below all scores will do
        return float(f1[best]), float(np.nextafter(above, -np.inf))
    below = descending[ends[best] + 1]
    middle = below / 2 + above / 2  # does not overflow, but may round up to `above`
    return float(f1[best]), float(middle if below <= middle < above else below)


def _argmax_accuracy(scores: Float64[np.ndarray, "m m"], adjacency: Bool[np.ndarray, "m m"]) -> float:
    best_edge = np.where(adjacency, scores, -np.inf).max(axis=1)
    best_other = np.where(adjacency, -np.inf, scores).max(axis=1)
    sources = adjacency.any(axis=1)
    return float((best_edge > best_other)[sources].mean())
