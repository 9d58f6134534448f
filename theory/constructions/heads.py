"""Three constructions of a head that owns a block of edges (ours; matched filters and zero-forcing are textbook).

A block has edges ``(u_j, v_j)``, j = 1 ... B, of a matching, and each edge a signature ``r_j`` with entries
``+-1/sqrt(d_k)`` at random. The score of an own edge is 1 but for noise, all other scores are noise around 0.

- *matched filter*: ``W_Q = sum_j x_{u_j} r_j^T``, ``W_K = sum_j x_{v_j} r_j^T``;
- *one-sided*: ``W_Q = R``, ``W_K = (sum_j x_{v_j} x_{u_j}^T) R``, R of orthonormal columns times ``sqrt(d / d_k)``;
- *zero-forcing*: ``W_Q = X_U^+ r``, ``W_K = X_V^+ r`` with pseudo-inverses of the blocks' rows: items of the block get
  exactly their signatures, at the price of large weights as B comes near d. Needs ``B <= d - 2``.

A channel deals its graph's edges out evenly, at random.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Float, Int

Construction = Literal["matched-filter", "one-sided", "zero-forcing"]
CONSTRUCTIONS: tuple[Construction, ...] = ("matched-filter", "one-sided", "zero-forcing")


def signatures(count: int, head_dim: int, rng: np.random.Generator) -> Float[np.ndarray, "B k"]:
    """Draw ``count`` rows with entries ``+-1/sqrt(head_dim)``: unit norm, inner products of variance 1/d_k."""
    return rng.choice([-1.0, 1.0], size=(count, head_dim)) / np.sqrt(head_dim)


def construct(
    construction: Construction,
    embeddings: Float[np.ndarray, "m d"],
    edges: Int[np.ndarray, "e 2"],
    *,
    num_heads: int,
    head_dim: int,
    rng: np.random.Generator,
) -> tuple[Float[np.ndarray, "h d k"], Float[np.ndarray, "h d k"]]:
    """Build a channel for a matching.

    Args:
        construction: one of `CONSTRUCTIONS`.
        embeddings: unit norm.
        edges: ``(source, target)``; no item twice as source or as target.
        num_heads: h; blocks differ by one edge at most.
        head_dim: d_k, at most d for ``one-sided``.
        rng: source of the blocks and of signatures.

    Returns:
        Query and key weights.

    Raises:
        ValueError: an unknown construction, edges that are no matching, sizes out of range.
    """
    if construction not in CONSTRUCTIONS:
        raise ValueError(f"construction: expected one of {CONSTRUCTIONS}, got {construction!r}")
    d_model, num_edges = embeddings.shape[1], len(edges)
    if any(len(set(column.tolist())) < num_edges for column in edges.T):
        raise ValueError("edges: expected a matching, got an item twice as source or as target")
    if not 1 <= num_heads <= num_edges:
        raise ValueError(f"num_heads: expected 1 to num_edges = {num_edges}, got {num_heads}")
    if head_dim < 1 or (construction == "one-sided" and head_dim > d_model):
        raise ValueError(f"head_dim: expected 1 to d_model = {d_model}, got {head_dim}")
    if construction == "zero-forcing" and -(-num_edges // num_heads) > d_model - 2:
        raise ValueError(
            f"num_heads: expected blocks of at most d_model - 2 = {d_model - 2} edges for zero-forcing, "
            f"got {num_heads} heads for {num_edges} edges"
        )
    heads = [
        _head(construction, embeddings[block[:, 0]], embeddings[block[:, 1]], head_dim, rng)
        for block in np.array_split(rng.permutation(edges), num_heads)
    ]
    queries, keys = (np.stack(factors) for factors in zip(*heads, strict=True))
    return queries, keys


def _head(
    construction: Construction,
    sources: Float[np.ndarray, "B d"],
    targets: Float[np.ndarray, "B d"],
    head_dim: int,
    rng: np.random.Generator,
) -> tuple[Float[np.ndarray, "d k"], Float[np.ndarray, "d k"]]:
    d_model = sources.shape[1]
    if construction == "one-sided":
        basis = np.linalg.qr(rng.standard_normal((d_model, head_dim)))[0] * np.sqrt(d_model / head_dim)
        return basis, targets.T @ (sources @ basis)
    rows = signatures(len(sources), head_dim, rng)
    if construction == "matched-filter":
        return sources.T @ rows, targets.T @ rows
    return np.linalg.pinv(sources) @ rows, np.linalg.pinv(targets) @ rows
