"""Batches of text: sequences for a causal model, sentences (and pairs of neighbours) for an encoder.

What is taken is spread evenly over the text, so that few tokens come from many places; nothing is drawn at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from experiments.pretrained import TextTokenizer

SENTENCE_TOKENS = 32
"""Tokens of a sentence, about: how many sentences a number of tokens is."""
BATCH = 4
"""Sequences run at a time: more would take memory for their logits, and not be faster."""


class Batches(NamedTuple):
    """Sequences in batches of equal shape.

    Attributes:
        tokens: ids (batches, b, t), padded with 0.
        lengths: real tokens of each sequence (batches, b).
        words: (batches, b, t), False for padding and for special tokens.
    """

    tokens: Int[np.ndarray, "k b t"]
    lengths: Int[np.ndarray, "k b"]
    words: Bool[np.ndarray, "k b t"]

    @property
    def num_tokens(self) -> int:
        """Tokens that are no padding."""
        return int(self.lengths.sum())

    @property
    def real(self) -> Bool[np.ndarray, "k b t"]:
        """False for padding."""
        return np.arange(self.tokens.shape[-1]) < self.lengths[..., None]


def spread(count: int, size: int) -> list[int]:
    """``count`` different numbers below ``size``, evenly spaced; all of them where there are fewer."""
    count = min(count, size)
    return [int(i) for i in (np.arange(count) + 0.5) * size / count]


def sequences(
    tokenizer: TextTokenizer, passages: Sequence[str], count: int, length: int, batch: int = BATCH
) -> Batches:
    """Sequences of exactly ``length`` tokens: each from the beginning of a passage on, into the next where it ends.

    Raises:
        ValueError: if the text is too short for ``count`` of them.
    """
    found: list[list[int]] = []
    starts = spread(count, len(passages))
    for start in starts:
        whole = tokenizer.around(tokenizer.encode_joined(passages[start:], length))
        if len(whole) >= length:
            found.append(whole[:length])
    if not found:
        raise ValueError(f"text: expected {length} tokens that follow each other, got fewer")
    batch = next(size for size in range(min(batch, len(found)), 0, -1) if len(found) % size == 0)
    return _batches(tokenizer, found, (-1, batch), length)


def sentences(tokenizer: TextTokenizer, texts: Sequence[str], count: int, length: int) -> Batches:
    """One batch of sentences, cut to ``length`` tokens with what the model puts around them.

    Raises:
        ValueError: if there are fewer than three.
    """
    if len(texts) < 3:
        raise ValueError(f"text: expected at least three sentences, got {len(texts)}")
    found = _cut(tokenizer, [texts[i] for i in spread(count, len(texts))], length)
    return _batches(tokenizer, found, (1, -1), length)


def pairs(tokenizer: TextTokenizer, texts: Sequence[str], count: int, length: int, per_batch: int) -> Batches:
    """Sentences with their successors: in a batch of 2 p sentences, the first p are followed by the last p.

    Raises:
        ValueError: if there are fewer than four sentences.
    """
    if len(texts) < 4:
        raise ValueError(f"text: expected at least four sentences, got {len(texts)}")
    first = spread(count, (len(texts) - 1) // 2)
    per_batch = min(per_batch, len(first))
    first = first[: len(first) // per_batch * per_batch]
    picked = []
    for start in range(0, len(first), per_batch):
        own = [2 * i for i in first[start : start + per_batch]]
        picked += [texts[i] for i in own] + [texts[i + 1] for i in own]
    return _batches(tokenizer, _cut(tokenizer, picked, length), (-1, 2 * per_batch), length)


def _cut(tokenizer: TextTokenizer, texts: Sequence[str], length: int) -> list[list[int]]:
    inside = length - len(tokenizer.around([]))
    return [tokenizer.around(ids[:inside]) for ids in tokenizer.encode_all(texts)]


def _batches(
    tokenizer: TextTokenizer, found: Sequence[Sequence[int]], shape: tuple[int, int], length: int
) -> Batches:
    """Padded to the longest, rounded up to a multiple of eight where the length allows it."""
    size = min(length, -(-max(map(len, found)) // 8) * 8)
    tokens = np.zeros((len(found), size), np.int32)
    lengths = np.array([len(ids) for ids in found], np.int32)
    for row, ids in zip(tokens, found, strict=True):
        row[: len(ids)] = ids
    special = np.isin(tokens, sorted(tokenizer.special))
    words = (np.arange(size) < lengths[:, None]) & ~special
    return Batches(tokens.reshape(*shape, size), lengths.reshape(shape), words.reshape(*shape, size))
