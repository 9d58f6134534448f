"""Blocks of the blockwise kernel: how large they are, where they start, and which pairs of them are live.

**Sizes.** A step of the kernel holds one tile of logits for every head of every example, ``heads * queries * keys``
numbers, which it writes, reads for the maximum, overwrites by the exponentials and reads twice. On a CPU a step has a
fixed price, a few tenths of a millisecond for sharing its operations among threads, and gets slower per number where
tiles leave the cache; with few keys the running output, (queries, E), is rescaled too often, and large tiles have more
that causality masks. So a tile is the first of 512 x 512 up to 4 MB, 512 x 256 up to 16 MB, 256 x 256 and 256 x 128 up
to 8 MB, and 128 x 128, where queries or keys that are fewer than a side count as they are.
Other backends launch a kernel for each operation of a step, so that fewer and larger steps pay: 1024 x 1024,
not measured.
A side that is not longer than 1.25 blocks is taken whole; a longer one is split evenly, in multiples of 16.

**Ragged ends.** The last block starts so early that it is whole. Nothing is padded or copied, and what it shares with
the block before is either computed twice or masked once.

**Live pairs.** Causality, windows and lengths leave blocks of keys that no query of a block attends. For every
block the live ones form a range, known when the kernel is traced, or computed from offsets and lengths outside the
map over heads and batch: the widest range over all examples. Where the band is known, the range is split: tiles
within the band need no test of positions.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32

from mha_jax._kernels.head import Operands, Options

_CPU_TILES = ((512, 512, 2**22), (512, 256, 2**24), (256, 256, 2**23), (256, 128, 2**23))  # and most bytes
_SMALLEST_CPU_TILE = (128, 128)
_OTHER_TILE = (1024, 1024)
_SLACK = 1.25
_MULTIPLE = 16


class Axis(NamedTuple):
    """Positions 0 .. size - 1 in blocks of ``block``, the last of which may begin within the one before it."""

    size: int
    block: int

    @property
    def number(self) -> int:
        """Number of blocks."""
        return -(-self.size // self.block)

    @property
    def ragged(self) -> bool:
        """Whether the last block shares positions with the one before it."""
        return self.size % self.block != 0

    def start(self, number: Any) -> Any:
        """First position of a block."""
        start = number * self.block
        return jnp.minimum(start, self.size - self.block) if self.ragged else start

    def positions(self, number: Any) -> Int32[Array, "block"]:
        """Positions of a block."""
        return self.start(number) + jnp.arange(self.block, dtype=jnp.int32)

    def own(self, number: Any) -> Bool[Array, "block"]:
        """Which positions of a block are not of the block before."""
        return self.positions(number) >= number * self.block


class Range(NamedTuple):
    """For every block of one axis, the blocks ``begin .. end - 1`` of the other.

    Attributes:
        begin: int32 array, of NumPy where it is known at the time of tracing.
        end: likewise; not below ``begin``.
        banded: whether some of these pairs of blocks are crossed by an edge of the band.
    """

    begin: Any
    end: Any
    banded: bool


def choose_blocks(
    num_queries: int, num_keys: int, num_heads: Any, itemsize: int, backend: str
) -> tuple[Axis, Axis]:
    """Blocks of queries and of keys, by the rule above.

    Args:
        num_queries: T.
        num_keys: S.
        num_heads: heads of all examples, which are worked on at once; an integer, or symbolic.
        itemsize: bytes of a logit.
        backend: as ``jax.default_backend()``.
    """
    tile = _OTHER_TILE
    if backend == "cpu":
        tile = _SMALLEST_CPU_TILE
        if isinstance(num_heads, int):  # not of a symbolic batch
            fitting = (
                (rows, columns)
                for rows, columns, most in _CPU_TILES
                if num_heads * min(rows, num_queries) * min(columns, num_keys) * itemsize <= most
            )
            tile = next(fitting, tile)
    return _split(num_queries, tile[0]), _split(num_keys, tile[1])


def read_once(queries: Axis, keys: Axis) -> bool:
    """Whether keys are better split into heads, cast and zeroed a block at a time than all before.

    With one block of queries every block of keys is visited once, so that this is no more work, and nothing of the
    size of all keys is written. With one block of keys, too, there is nothing to gain, and gradients would do it again.
    """
    return queries.number == 1 and keys.number > 1


def _split(size: int, block: int) -> Axis:
    """Split evenly into blocks of about ``block``."""
    if size <= _SLACK * block:
        return Axis(size, size)
    count = -(-size // block)
    even = -(-size // count)
    return Axis(size, -(-even // _MULTIPLE) * _MULTIPLE)


def live_keys(operands: Operands, options: Options, queries: Axis, keys: Axis) -> list[Range]:
    """Live blocks of keys for every block of queries, in ranges to be visited one after the other."""
    low, high = _band(operands, options)
    return _live(queries, keys, low, high, operands.query_length, operands.key_length)


def live_queries(operands: Operands, options: Options, queries: Axis, keys: Axis) -> list[Range]:
    """Live blocks of queries for every block of keys."""
    low, high = _band(operands, options)
    low, high = (None if limit is None else -limit for limit in (high, low))
    return _live(keys, queries, low, high, operands.key_length, operands.query_length)


def _band(operands: Operands, options: Options) -> tuple[Any, Any]:
    """Least and greatest distance ``s - t`` that some example attends."""
    low, high, offset = options.lower, options.upper, operands.offset
    if offset is None:
        return low, high
    return (None if low is None else low + offset.min()), (None if high is None else high + offset.max())


def _live(
    own: Axis, other: Axis, low: Any, high: Any, own_length: Array | None, other_length: Array | None
) -> list[Range]:
    """Ranges of ``other``'s blocks with a position p that some own position o may meet: low <= p - o <= high."""
    known = not any(isinstance(x, Array) for x in (low, high, own_length, other_length))
    xp = np if known else jnp
    first_own = np.minimum(np.arange(own.number, dtype=np.int32) * own.block, own.size - own.block)
    last_own = first_own + (own.block - 1)
    first = xp.zeros_like(first_own) if low is None else xp.maximum(first_own + low, 0)
    length = other.size if other_length is None else xp.minimum(other_length.max(), other.size)
    last = xp.zeros_like(first_own) + (length - 1)
    if high is not None:
        last = xp.minimum(last, last_own + high)
    if own_length is not None:
        last = xp.where(first_own < own_length.max(), last, -1)
    begin = first // other.block
    end = xp.maximum(last // other.block + 1, begin)
    if other.number == 1 or isinstance(low, Array) or isinstance(high, Array):
        return [Range(begin, end, banded=True)]
    inner_begin = begin if low is None else xp.clip(-(-(last_own + low) // other.block), begin, end)
    inner_end = end if high is None else xp.clip((first_own + high + 1) // other.block, inner_begin, end)
    ranges = [Range(inner_begin, inner_end, banded=False)]
    if low is not None:
        ranges.insert(0, Range(begin, inner_begin, banded=True))
    if high is not None:
        ranges.append(Range(inner_end, end, banded=True))
    return [r for r in ranges if not known or np.any(r.begin < r.end)]
