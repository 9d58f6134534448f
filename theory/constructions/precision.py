"""Channels whose weights are kept in p bits.

The rule: every matrix (``W_Q^i``, ``W_K^i`` of every head) is rounded on its own to the nearest of ``2^p`` evenly
spaced values from ``-a`` to ``a``, a its largest entry in magnitude (mid-rise: no zero, symmetric; p = 1 keeps
signs). The scale a stays in full precision and is not counted, one number a matrix. The threshold is the best one
afterwards.

A head has a gauge: ``W_Q A, W_K A^-T`` score the same for any invertible A, but do not round the same. `balanced`
takes the factors from the singular value decomposition, equal in size; nothing says that it is the best gauge.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

Weights = Float[np.ndarray, "h d k"]


def quantise(weights: Weights, bits: int) -> Weights:
    """Round every head's matrix to ``2^bits`` evenly spaced values, as the module says; float64.

    Raises:
        ValueError: unless ``bits`` is 1 to 32.
    """
    if not 1 <= bits <= 32:
        raise ValueError(f"bits: expected an integer from 1 to 32, got {bits}")
    w = weights.astype(np.float64)
    largest = np.abs(w).max(axis=(1, 2), keepdims=True)
    step = 2 * largest / (2**bits - 1)
    safe = np.where(step > 0, step, 1.0)
    index = np.clip(np.round((w + largest) / safe), 0, 2**bits - 1)
    return np.where(step > 0, index * safe - largest, 0.0)


def balanced(query_weights: Weights, key_weights: Weights) -> tuple[Weights, Weights]:
    """The same channel with each head's factors from the singular value decomposition of ``W_Q W_K^T``; float64.

    ``W_Q = U sqrt(S) H``, ``W_K = V sqrt(S) H`` with one orthogonal H, a fixed random one for every ``d_k``: without it
    columns differ in size as the singular values do, and small ones would be rounded away.
    """
    num_heads, d_model, head_dim = query_weights.shape
    rank = min(d_model, head_dim)
    turn = np.linalg.qr(np.random.default_rng(head_dim).standard_normal((head_dim, head_dim)))[0][:rank]
    queries, keys = np.empty((2, num_heads, d_model, head_dim))
    for i in range(num_heads):
        product = query_weights[i].astype(np.float64) @ key_weights[i].astype(np.float64).T
        left, singular, right = np.linalg.svd(product)
        root = np.sqrt(singular[:rank])
        queries[i] = (left[:, :rank] * root) @ turn
        keys[i] = (right[:rank].T * root) @ turn
    return queries, keys


def bits_used(d_model: int, total_key_dim: int, bits: int) -> int:
    """Bits of all weights at ``bits`` each: ``2 d D_K p``; scales and the threshold are left out."""
    return 2 * d_model * total_key_dim * bits
