"""What every trainer takes and returns, and how initial weights are drawn.

A trainer gets a batch of problems of one shape (one problem per seed) and returns one `Channel` per problem.
Initial weights are drawn on the host and filled up with columns of zeros, so that a program compiled for more columns
than a run uses starts that run from the same numbers: inactive columns are zero in both factors, receive zero gradient
and stay zero. (Drawn inside the compiled programs they would take most of the time to compile them.) Training is in
float32 throughout, with or without 64-bit JAX; what it finds is judged in float64 from the weights alone
(`theory.recognition`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from theory.problems import seeded_rng


@dataclass(frozen=True, eq=False)
class Channel:
    """Weights of a trained key-query channel and how its training ended.

    Attributes:
        query_weights: ``(h, d, d_k)``, float32.
        key_weights: ``(h, d, d_k)``, float32.
        threshold: a pair is an edge when its best head scores above this.
        loss: the trainer's loss at the end.
        steps: optimiser steps taken (all heads of one restart together for head-by-head training).
        learning_rate: None where the trainer has none.
        reason: None for a run that ended well, else why its weights mean nothing.
    """

    query_weights: Float[np.ndarray, "h d k"]
    key_weights: Float[np.ndarray, "h d k"]
    threshold: float
    loss: float
    steps: int
    learning_rate: float | None
    reason: str | None = None


@dataclass(frozen=True)
class GreedyOptions:
    """Settings of greedy training.

    Attributes:
        restarts: random starts of each head; the one that holds most edges is kept.
        iterations: L-BFGS iterations between two drops, near the target.
        coarse_iterations: the same while far above the target.
        drop: fraction of a head's edges that goes at a time is ``1 / drop`` near the target.
        coarse_drop: the same far above it.
        max_rounds: cap on drops of one head.
        swap_passes: passes over all heads in which each is refitted to every edge that no other head holds, so that
            edges change hands, while few are missed.
        swap_below: fraction of edges missed up to which a run is worth these passes.
        gap: least score difference, in units of the hinge's margin, that counts as held.
        convex_max_d_model: ``d_model`` up to which heads with ``head_dim >= d_model`` are fitted as free matrices, in
            float64: their Newton systems have side ``d_model^2 + 1``. Above, they are fitted by their factors.
    """

    restarts: int = 2
    iterations: int = 100
    coarse_iterations: int = 40
    drop: int = 16
    coarse_drop: int = 4
    max_rounds: int = 100
    swap_passes: int = 2
    swap_below: float = 0.05
    gap: float = 1e-3
    convex_max_d_model: int = 40


def initial_factors(
    seeds: Sequence[int],
    names: Sequence[str],
    *,
    d_model: int,
    head_dim: int,
    max_head_dim: int,
    scale: float,
) -> tuple[Float32[np.ndarray, "b n d max_k"], Float32[np.ndarray, "b n d max_k"]]:
    """Draw Gaussian query and key weights of heads; columns from ``head_dim`` on are zero.

    Args:
        seeds: one for every problem.
        names: one for every draw of a problem: seed and name decide it.
        d_model: ``d``.
        head_dim: ``d_k``.
        max_head_dim: columns.
        scale: standard deviation.
    """
    factors = np.zeros((len(seeds), len(names), 2, d_model, max_head_dim), np.float32)
    for own, seed in zip(factors, seeds, strict=True):
        for draw, name in zip(own, names, strict=True):
            draw[..., :head_dim] = scale * seeded_rng(seed, name).standard_normal((2, d_model, head_dim))
    return factors[:, :, 0], factors[:, :, 1]


def check_batch(
    embeddings: Float[np.ndarray, "b m d"],
    adjacency: Bool[np.ndarray, "b m m"],
    num_heads: int,
    head_dim: int,
    max_head_dim: int,
    seeds: Sequence[int],
) -> Int[np.ndarray, "b e 2"]:
    """Check a trainer's input and return the edges ``(source, target)`` of every problem.

    Raises:
        ValueError: for a head count or size that is no positive integer, arrays of other shapes, a number of seeds
            other than the batch's, a negative seed, problems without edges or with different numbers of edges, or
            embeddings that are not finite.
    """
    for name, value in (("num_heads", num_heads), ("head_dim", head_dim)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name}: expected a positive integer, got {value!r}")
    if np.ndim(embeddings) != 3 or 0 in np.shape(embeddings):
        raise ValueError(
            f"embeddings: expected a non-empty batch (b, m, d), got shape {np.shape(embeddings)}"
        )
    wanted = (*np.shape(embeddings)[:2], np.shape(embeddings)[1])
    if np.shape(adjacency) != wanted or adjacency.dtype != bool:
        got = f"{adjacency.dtype} of shape {np.shape(adjacency)}"
        raise ValueError(f"adjacency: expected booleans of shape {wanted}, got {got}")
    if max_head_dim < head_dim:
        raise ValueError(f"max_head_dim: expected at least head_dim = {head_dim}, got {max_head_dim}")
    if len(seeds) != len(embeddings):
        raise ValueError(f"seeds: expected one for each of {len(embeddings)} problems, got {len(seeds)}")
    if min(seeds, default=0) < 0:
        raise ValueError(f"seeds: expected non-negative integers, got {list(seeds)}")
    if not np.isfinite(embeddings).all():
        raise ValueError("embeddings: expected finite numbers, got nan or infinity")
    counts = adjacency.sum(axis=(1, 2))
    if counts.min() < 1 or counts.min() != counts.max():
        raise ValueError(
            f"adjacency: expected the same positive number of edges in every problem, got {counts}"
        )
    return np.stack([np.argwhere(one) for one in adjacency]).astype(np.int32)
