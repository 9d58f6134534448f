"""Greedy training where a head is a free matrix (``head_dim >= d_model``): convex fits, in float64.

The same scheme as `theory.training.greedy`: a head is fitted to all edges that are left, drops the worst-scored of its
own edges while some are on the wrong side (near what it is predicted to hold one at a time, which costs little here),
and is refitted; what it holds at the end is taken off; at the end heads are refitted to all edges that no other head
holds. Each fit is convex in the matrix ``M = W_Q W_K^T`` (`theory.squared_hinge`), so nothing is random. The factors
are the two halves of its singular value decomposition. One problem after the other: set ``OPENBLAS_NUM_THREADS=1``
where other programs run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from theory.recognition import channel_scores
from theory.squared_hinge import fit_full_rank_head, minimise_squared_hinge
from theory.training.types import Channel, GreedyOptions


class _FreeHead(NamedTuple):
    """A fitted head: its matrix at the scale where the threshold is 1, and all edges it holds."""

    weights: Float[np.ndarray, "d d"]
    held: Bool[np.ndarray, "m m"]
    steps: int


def _fit_head(
    embeddings: Float[np.ndarray, "m d"],
    adjacency: Bool[np.ndarray, "m m"],
    wanted: Bool[np.ndarray, "m m"],
    target: float,
    options: GreedyOptions,
    warm_start: tuple[np.ndarray, float] | None = None,
) -> _FreeHead:
    """Fit one head to as many of the wanted edges as it can hold."""
    own, steps = wanted.copy(), 0
    fit = None
    for _ in range(options.max_rounds):
        if not own.any():
            break
        fit = fit_full_rank_head(embeddings, own, ~adjacency, warm_start=warm_start)
        warm_start = fit.weights, fit.threshold
        steps += fit.iterations
        if fit.separates:
            break
        scores = embeddings @ fit.weights @ embeddings.T
        wrong = own & (scores <= scores[~adjacency].max())
        size = int(own.sum())
        number = min(int(wrong.sum()), size // options.coarse_drop if size > 2.0 * target else 1)
        own &= scores > np.partition(scores[own], number - 1)[number - 1]
    if fit is None or not own.any():
        return _FreeHead(np.zeros((embeddings.shape[1],) * 2), np.zeros_like(wanted), steps)
    # Widen the gap: the fits above stop at one that float32 would lose.
    fit = minimise_squared_hinge(
        embeddings, own, ~adjacency, tolerance=1e-4, max_iterations=60, warm_start=warm_start
    )
    scores = embeddings @ fit.weights @ embeddings.T
    highest = scores[~adjacency].max()
    held = adjacency & (scores > highest + options.gap)
    threshold = 0.5 * (scores[held].min(initial=np.inf) + highest)
    if not (held.any() and threshold > 0.0):
        return _FreeHead(np.zeros_like(fit.weights), np.zeros_like(wanted), steps + fit.iterations)
    return _FreeHead(fit.weights / threshold, held, steps + fit.iterations)


def _fit_heads(
    embeddings: Float[np.ndarray, "m d"],
    adjacency: Bool[np.ndarray, "m m"],
    num_heads: int,
    target: float,
    options: GreedyOptions,
) -> list[_FreeHead]:
    """Fit heads one after the other until every edge is held or ``num_heads`` are in use."""
    heads: list[_FreeHead] = []
    left = adjacency.copy()
    while left.any() and len(heads) < num_heads:
        heads.append(_fit_head(embeddings, adjacency, left, target, options))
        left &= ~heads[-1].held
    for index in options.swap_passes * list(range(len(heads))) if len(heads) > 1 else ():
        if not 0 < left.sum() <= options.swap_below * adjacency.sum():
            break
        by_others = np.zeros_like(adjacency)
        for i, head in enumerate(heads):
            by_others |= head.held if i != index else False
        old = heads[index]
        new = _fit_head(embeddings, adjacency, adjacency & ~by_others, target, options)
        better = (new.held | by_others).sum() >= (old.held | by_others).sum()
        heads[index] = (new if better else old)._replace(steps=old.steps + new.steps)
        left = adjacency & ~(by_others | heads[index].held)
    return heads


def train_convex(
    embeddings: Float[np.ndarray, "b m d"],
    adjacency: Bool[np.ndarray, "b m m"],
    *,
    num_heads: int,
    head_dim: int,
    target: float,
    options: GreedyOptions,
) -> list[Channel]:
    """Train heads one after the other, each a free matrix; one channel per problem. All heads share the threshold 1.

    Args:
        embeddings: ``(b, m, d)``.
        adjacency: ``(b, m, m)``, [source, target].
        num_heads: heads. Those that are not needed are zero.
        head_dim: at least ``d``; further columns are zero.
        target: edges that one head is predicted to hold.
        options: settings of greedy training; restarts and L-BFGS iterations have no meaning here.
    """
    channels = []
    for x, a in zip(embeddings.astype(np.float64), adjacency, strict=True):
        heads = _fit_heads(x, a, num_heads, target, options)
        query = np.zeros((num_heads, x.shape[1], head_dim), np.float32)
        key = np.zeros_like(query)
        for i, head in enumerate(heads):
            left, singular, right = np.linalg.svd(head.weights)
            query[i, :, : x.shape[1]] = left * np.sqrt(singular)
            key[i, :, : x.shape[1]] = right.T * np.sqrt(singular)
        scores = channel_scores(x, query, key)
        channels.append(
            Channel(
                query_weights=query,
                key_weights=key,
                threshold=1.0,
                loss=float(np.mean(scores[a] <= scores[~a].max())),
                steps=sum(head.steps for head in heads),
                learning_rate=None,
            )
        )
    return channels
