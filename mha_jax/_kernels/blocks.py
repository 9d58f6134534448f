"""Sizes of blocks, and which pairs of blocks are live. To be tuned."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mha_jax._kernels.head import Operands, Options


class Blocks(NamedTuple):
    """Sizes of the blocks of queries and of keys."""

    queries: int
    keys: int


class Axis(NamedTuple):
    """Positions 0 .. size - 1 in ``count`` blocks of ``block``.

    The last block starts earlier than a multiple of ``block`` where that does not divide ``size``, so that every
    block is whole and nothing is padded; positions before ``number * block`` are then not the block's own.
    """

    size: int
    block: int

    @property
    def count(self) -> int:
        return -(-self.size // self.block)

    @property
    def ragged(self) -> bool:
        return self.size % self.block != 0

    def start(self, number: Any) -> Any:
        """Where block ``number`` starts."""
        if not self.ragged:
            return number * self.block
        return jnp.minimum(number * self.block, self.size - self.block)

    def positions(self, number: Any) -> Array:
        return self.start(number) + jnp.arange(self.block, dtype=jnp.int32)

    def own(self, number: Any) -> Array:
        return self.positions(number) >= number * self.block


def live_keys(operands: Operands, options: Options, queries: Axis, keys: Axis) -> tuple[Any, Any]:
    """First and last + 1 live block of keys of each block of queries: arrays, known ones where possible."""
    low, high = _band(operands, options)
    return _live(
        queries, keys, low, high, _greatest(operands.query_length), _greatest(operands.key_length)
    )


def live_queries(operands: Operands, options: Options, queries: Axis, keys: Axis) -> tuple[Any, Any]:
    """First and last + 1 live block of queries of each block of keys."""
    low, high = _band(operands, options)
    low, high = (None if high is None else -high), (None if low is None else -low)
    return _live(
        keys, queries, low, high, _greatest(operands.key_length), _greatest(operands.query_length)
    )


def _band(operands: Operands, options: Options) -> tuple[Any, Any]:
    """Least and greatest ``s - t`` over all examples."""
    low, high = options.lower, options.upper
    if operands.offset is None:
        return low, high
    return (
        None if low is None else low + operands.offset.min(),
        None if high is None else high + operands.offset.max(),
    )


def _greatest(lengths: Array | None) -> Any:
    return None if lengths is None else lengths.max()


def _live(own: Axis, other: Axis, low: Any, high: Any, own_length: Any, other_length: Any) -> tuple[Any, Any]:
    xp = np if all(x is None or isinstance(x, int) for x in (low, high, own_length, other_length)) else jnp
    first_position = xp.minimum(xp.arange(own.count, dtype=xp.int32) * own.block, own.size - own.block)
    last_position = first_position + own.block - 1
    length = other.size if other_length is None else xp.minimum(other_length, other.size)
    first = xp.zeros_like(first_position) if low is None else xp.maximum(first_position + low, 0)
    last = xp.zeros_like(first_position) + length - 1
    if high is not None:
        last = xp.minimum(last, last_position + high)
    if own_length is not None:
        last = xp.where(first_position < own_length, last, -1)
    begin = first // other.block
    return begin, xp.maximum(last // other.block + 1, begin)
