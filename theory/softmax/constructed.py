"""Channels with one owner an edge, made by convex optimisation."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from theory.squared_hinge import minimise_squared_hinge


def one_owner_heads(
    embeddings: Float[np.ndarray, "m d"], adjacency: Bool[np.ndarray, "m m"], num_heads: int
) -> Float[np.ndarray, "h d d"] | None:
    """Heads of full rank, each holding its share of the edges against *all* other pairs, edges of others included.

    Edges are dealt in turn. Every head's threshold is 1; its squared hinge loss is minimised, so that edges and
    other pairs keep away from it. (ours)

    Args:
        embeddings: ``(m, d)``.
        adjacency: edges, at least one for each head.
        num_heads: ``h``.

    Returns:
        Matrices ``(h, d, d)``; None where some head cannot hold its share, or has no positive threshold.

    Raises:
        ValueError: fewer edges than heads.
    """
    edges = np.argwhere(adjacency)
    if not 1 <= num_heads <= len(edges):
        raise ValueError(f"num_heads: expected 1 to the {len(edges)} edges, got {num_heads}")
    heads = []
    for index in range(num_heads):
        own = np.zeros_like(adjacency)
        own[tuple(edges[index::num_heads].T)] = True
        fit = minimise_squared_hinge(embeddings, own, ~own, tolerance=1e-6)
        scores = embeddings @ fit.weights @ embeddings.T
        threshold = 0.5 * (scores[own].min() + scores[~own].max())
        if not fit.separates or threshold <= 0:
            return None
        heads.append(fit.weights / threshold)
    return np.stack(heads)
