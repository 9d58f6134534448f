"""Boolean masks of attention: causal, window, padding. True lets a query attend a key.

Query ``t`` sits at position ``t + query_offset`` and key ``s`` at position ``s``, so that without an offset the
diagonal starts at the top left, as in ``jax.nn``. `mha_jax.dot_product_attention` takes the same restrictions as
arguments, and need not store a mask then; these are for combining, for plotting and for other implementations.

Letters: ``T`` query length, ``S`` key length.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int


def causal_mask(num_queries: int, num_keys: int, *, query_offset: int = 0) -> Bool[Array, "T S"]:
    """A query attends itself and what came before.

    Args:
        num_queries: T.
        num_keys: S.
        query_offset: position of the first query, any integer.

    Returns:
        True where ``s <= t + query_offset``.

    Raises:
        ValueError: a size is negative or not an integer, or the offset is not an integer.
    """
    return _distance(num_queries, num_keys, query_offset) <= 0


def window_mask(
    num_queries: int, num_keys: int, window: int | tuple[int, int], *, query_offset: int = 0
) -> Bool[Array, "T S"]:
    """A query attends its neighbourhood.

    Args:
        num_queries: T.
        num_keys: S.
        window: ``(left, right)``, how many keys before and after a query's own position it attends; one
            integer stands for both.
        query_offset: position of the first query, any integer.

    Returns:
        True where ``-left <= s - (t + query_offset) <= right``.

    Raises:
        ValueError: as in `causal_mask`, or ``window`` is no non-negative integer or pair of them.
    """
    left, right = window_sides(window, "window")
    distance = _distance(num_queries, num_keys, query_offset)
    return (distance >= -left) & (distance <= right)


def padding_mask(lengths: Int[Array, "..."], size: int) -> Bool[Array, "... size"]:
    """The first positions of every example are real, the rest is padding.

    As a mask of keys, for arrays ``(B, T, N, D)``: ``padding_mask(lengths, S)[:, None, None, :]``.

    Args:
        lengths: number of real positions of every example.
        size: number of positions.

    Returns:
        True where ``position < length``.

    Raises:
        ValueError: ``lengths`` are not integers, or ``size`` is negative or not an integer.
    """
    lengths = jnp.asarray(lengths)
    if not jnp.issubdtype(lengths.dtype, jnp.integer):
        raise ValueError(f"lengths: expected integers, got {lengths.dtype}")
    positions = jnp.arange(_size(size, "size"), dtype=jnp.int32).reshape(*(1,) * lengths.ndim, -1)
    return positions < lengths[..., None].astype(jnp.int32)


def window_sides(window: Any, name: str) -> tuple[int, int]:
    """``(left, right)`` of a window given as a pair or as one integer; ``name`` is the argument's in errors."""
    sides = window if isinstance(window, tuple | list) else (window, window)
    if len(sides) != 2 or not all(is_integer(side) and side >= 0 for side in sides):
        raise ValueError(f"{name}: expected a non-negative integer or a pair of them, got {window!r}")
    left, right = sides
    return int(left), int(right)


def is_integer(x: Any) -> bool:
    """Whether ``x`` is a Python or NumPy integer (and no bool)."""
    return isinstance(x, int | np.integer) and not isinstance(x, bool)


def _distance(num_queries: Any, num_keys: Any, query_offset: Any) -> Int[Array, "T S"]:
    """``s - (t + query_offset)``."""
    if not is_integer(query_offset):
        raise ValueError(f"query_offset: expected an integer, got {query_offset!r}")
    queries = jnp.arange(_size(num_queries, "num_queries"), dtype=jnp.int32)
    keys = jnp.arange(_size(num_keys, "num_keys"), dtype=jnp.int32)
    return keys[None, :] - queries[:, None] - jnp.int32(query_offset)


def _size(size: Any, name: str) -> int:
    if not is_integer(size) or size < 0:
        raise ValueError(f"{name}: expected a non-negative integer, got {size!r}")
    return int(size)
