"""What follows from how attention is defined, asked of the kernels each time the ledger is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

SUM_ERROR = 1e-5
"""Rounding of a row's sum in float32."""


def heads() -> dict[str, Any]:
    """Random queries and keys of four heads: sums of rows, and what another query of the first head changes.

    Returns:
        Like a record file. ``heads``: one row with ``largest_sum_error``, and the largest change of a weight of the
        first head (``own_change``) and of any other (``other_change``).
    """
    from mha_jax import attention_weights

    rng = np.random.default_rng(0)
    query, key, other = (rng.standard_normal((5, 7, 4, 8)).astype(np.float32) for _ in range(3))
    before = np.asarray(attention_weights(query, key))
    query[..., 0, :] = other[..., 0, :]
    change = np.abs(np.asarray(attention_weights(query, key)) - before)
    row = {
        "num_heads": 4,
        "largest_sum_error": float(np.abs(before.sum(-1) - 1).max()),
        "own_change": float(change[:, 0].max()),
        "other_change": float(change[:, 1:].max()),
    }
    return {"records": {"heads": [row]}}


CHECKS: dict[str, Callable[[], dict[str, Any]]] = {"checks/heads": heads}
