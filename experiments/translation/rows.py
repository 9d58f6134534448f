"""Rows of packed pairs: training rows, made while they are asked for, and rows to translate from.

Training rows hold several pairs one after another, each seeing only itself: `Rows.source_segments` and
`target_segments` number the pairs of a row from 1, and are 0 where a row is empty. Rows to translate from hold one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from experiments.translation.subwords import END, TokenPairs, Tokens
from theory.problems import seeded_rng

OPEN_ROWS = 24
"""Rows that pairs are tried on at a time."""
_BLOCK = 1 << 16
"""Pairs whose lengths are Python's numbers at a time."""


class Rows(NamedTuple):
    """Rows of tokens, as arrays of NumPy or JAX of whole numbers; the leading axes are free.

    Attributes:
        source: ``(..., row, S)``.
        target: ``(..., row, T)``: labels, so every pair's tokens and `END`; `inputs_of` gives what is read.
        source_segments: which pair of its row a token is of, from 1; 0 where there is none.
        target_segments: likewise.
    """

    source: Any
    target: Any
    source_segments: Any
    target_segments: Any


def lengths_of(pairs: Sequence[tuple[Tokens, Tokens]]) -> Int[np.ndarray, "pairs 2"]:
    """Tokens of either side of every pair, without the `END` that a row puts after them."""
    if isinstance(pairs, TokenPairs):
        return pairs.lengths
    return np.array([tuple(map(len, pair)) for pair in pairs], np.int32).reshape(-1, 2)


def packed(pairs: Sequence[tuple[Tokens, Tokens]], length: int, order: Sequence[int]) -> Rows:
    """Pairs in rows of a length, several in one where they fit, in about the order given.

    Args:
        pairs: tokens. Those that do not fit into a row are left out.
        length: of rows, with an `END` after every source and target.
        order: of the pairs.
    """
    return _rows(pairs, _members(lengths_of(pairs), length, np.asarray(order, int)), length)


def single(pairs: Sequence[tuple[Tokens, Tokens]], length: int) -> Rows:
    """One pair a row; what is longer than a row is cut."""
    cut = [(source[: length - 1], target[: length - 1]) for source, target in pairs]
    return _rows(cut, [[index] for index in range(len(cut))], length)


class TrainingRows:
    """Rows over the pairs again and again in an order of the seed, so many at a time.

    Between two calls it holds which pairs are in each row that is left of a round, not the rows.

    Args:
        pairs: tokens.
        length: of rows.
        seed: of the order.
    """

    def __init__(self, pairs: Sequence[tuple[Tokens, Tokens]], length: int, seed: int) -> None:
        self._pairs, self._length = pairs, length
        self._rng = seeded_rng(seed, "translation, order of the pairs")
        self._left: list[list[int]] = []

    def take(self, num_rows: int) -> Rows:
        """The next rows.

        Raises:
            ValueError: if no pair fits into a row.
        """
        return _rows(self._pairs, self._next(num_rows), self._length)

    def skip(self, num_rows: int) -> None:
        """Pass over rows without making them."""
        self._next(num_rows)

    def _next(self, num_rows: int) -> list[list[int]]:
        found: list[list[int]] = []
        while len(found) < num_rows:
            if not self._left:
                self._left = self._round()
            count = num_rows - len(found)
            found += self._left[:count]
            del self._left[:count]
        return found

    def _round(self) -> list[list[int]]:
        order = self._rng.permutation(len(self._pairs))
        members = _members(lengths_of(self._pairs), self._length, order)
        if not members:
            raise ValueError(f"length: expected one that some pair fits into, got {self._length}")
        return [members[i] for i in self._rng.permutation(len(members)).tolist()]


def _members(
    lengths: Int[np.ndarray, "pairs 2"], length: int, order: Int[np.ndarray, " n"]
) -> list[list[int]]:
    """Which pairs stand in each row."""
    open_rows: list[list[int]] = []  # source and target space left, then members
    closed: list[list[int]] = []
    for begin in range(0, len(order), _BLOCK):
        block = order[begin : begin + _BLOCK]
        for index, (source, target) in zip(block.tolist(), (lengths[block] + 1).tolist(), strict=True):
            if max(source, target) > length:
                continue
            fits = [row for row in open_rows if row[0] >= source and row[1] >= target]
            if fits:
                row = min(fits, key=lambda row: min(row[0] - source, row[1] - target))
            else:
                if len(open_rows) >= OPEN_ROWS:
                    closed.append(open_rows.pop(0)[2:])
                row = [length, length]
                open_rows.append(row)
            row[0] -= source
            row[1] -= target
            row.append(index)
    return closed + [row[2:] for row in open_rows]


def _rows(pairs: Sequence[tuple[Tokens, Tokens]], members: Sequence[Sequence[int]], length: int) -> Rows:
    shape = len(members), length
    rows = Rows(*(np.zeros(shape, np.int32) for _ in range(4)))
    for row, indices in enumerate(members):
        at = [0, 0]
        for segment, index in enumerate(indices, 1):
            for side, tokens in enumerate(pairs[index]):
                start, at[side] = at[side], at[side] + len(tokens) + 1
                rows[side][row, start : at[side]] = (*tokens, END)
                rows[side + 2][row, start : at[side]] = segment
    return rows
