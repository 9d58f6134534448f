"""From heads with keys of their own to heads that share them: ways to set a trained layer's weights.

*Mean-pooling* (GQA, EMNLP 2023) gives a group the mean of its heads' key maps; queries stay. It asks that the
heads of a group mean the same by a coordinate, which nothing in a trained channel provides: ``W_Q R, W_K R^-T`` is
the same head for every invertible ``R``, and its mean with another head another one.

The *low-rank fit* does not see such a choice. Stacked, the ``M_i = W_Q^i W_K^{i T}`` of a group are one ``r d x d``
matrix, and what ``r`` heads with one key map of ``d_k`` dimensions can be is any such stack of rank ``d_k``: the
singular value decomposition, cut off there, is the nearest in the squared norm (a *theorem*, Eckart and Young; its
use here is ours). For latents the ``d_c`` right singular vectors of all heads' stack are the projection, and each
head's ``M_i``, projected, is cut off at ``d_k`` (nearest for each step, not for both together).

Neither looks at the graph: what is lost is recovered, or not, by training on from there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float

from theory.training.shared_keys import KeyDesign, SharedChannel


def mean_pool(channel: SharedChannel, num_kv_heads: int) -> SharedChannel:
    """Each group's key map is the mean of those of its heads.

    Args:
        channel: heads with keys of their own, or groups of them.
        num_kv_heads: groups, a divisor of the heads; a group is heads that follow each other.

    Raises:
        ValueError: groups that do not divide the heads.
    """
    query, key = channel.weights()
    design = KeyDesign(len(query), num_kv_heads, query.shape[-1])  # checks the numbers
    pooled = key.reshape(design.num_kv_heads, -1, *key.shape[1:]).mean(axis=1)
    return replace(channel, factors=_float32({"query": query, "key": pooled}), steps=0)


def low_rank(channel: SharedChannel, design: KeyDesign) -> SharedChannel:
    """The nearest layer of a design, in the squared norm of its heads' matrices.

    Args:
        channel: any heads.
        design: what they become, with as many heads; key dimensions beyond ``d`` are zero.

    Raises:
        ValueError: another number of heads.
    """
    query, key = channel.weights()
    if design.num_heads != len(query):
        raise ValueError(f"design: expected num_heads = {len(query)}, got {design.num_heads}")
    matrices = query @ np.swapaxes(key, 1, 2)
    groups = design.num_kv_heads if design.latent_dim is None else 1
    stacks = matrices.reshape(groups, -1, matrices.shape[-1])
    parts = [_factors(stack, design.width) for stack in stacks]
    left = np.concatenate([part.reshape(-1, query.shape[1], design.width) for part, _ in parts])
    right = np.stack([part for _, part in parts])
    if design.latent_dim is None:
        return replace(channel, factors=_float32({"query": left, "key": right}), steps=0)
    cut = [_factors(one, design.head_dim) for one in left]
    factors = {"query": np.stack([q for q, _ in cut]), "up": np.stack([u for _, u in cut]), "down": right[0]}
    return replace(channel, factors=_float32(factors), steps=0)


def _factors(
    matrix: Float[np.ndarray, "n d"], rank: int
) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, "d k"]]:
    """``matrix`` as far as ``rank`` goes: factors with equal shares of the singular values, zeros beyond its own."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    kept = min(rank, len(values))
    root = np.sqrt(values[:kept])
    pad = ((0, 0), (0, rank - kept))
    return np.pad(left[:, :kept] * root, pad), np.pad(right[:kept].T * root, pad)


def _float32(factors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: factor.astype(np.float32) for name, factor in factors.items()}
