"""Batches of text: sequences for a causal model, sentences (and pairs of neighbours) for an encoder.

What is taken is spread evenly over the text, so that few tokens come from many places; nothing is drawn at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from experiments.pretrained import TextTokenizer
from experiments.verses import Text, load_text

SAMPLE = str(Path(__file__).parents[2] / "LICENSE")
SENTENCE_TOKENS = 32
"""Tokens of a sentence, about: how many sentences a number of tokens is."""
BATCH = 4
"""Sequences run at a time: more would take memory for their logits, and not be faster."""
PAIRS = 16
"""Pairs of sentences in a batch of the contrastive loss."""


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


def text_of(text: str) -> Text:
    """The text that a configuration names."""
    return load_text(SAMPLE if text == "sample" else text)


def spread(count: int, size: int) -> list[int]:
    """``count`` different numbers below ``size``, evenly spaced; all of them where there are fewer."""
    count = min(count, size)
    return [int(i) for i in (np.arange(count) + 0.5) * size / count]


def subject_batches(
    tokenizer: TextTokenizer, words: Text, num_tokens: int, length: int, *, causal: bool
) -> tuple[Batches, Batches]:
    """What heads of a model are scored on, from the training part of a text, and what losses are measured on.

    Raises:
        ValueError: if the text has not as many tokens as are asked for.
    """
    if causal:
        count = num_tokens // length
        return (
            sequences(tokenizer, words.train, count, length),
            sequences(tokenizer, words.held_out, count, length),
        )
    count = max(4, num_tokens // SENTENCE_TOKENS)
    train = pairs(tokenizer, words.train_sentences, count // 2, length, min(PAIRS, count // 2))
    return train, sentences(tokenizer, words.held_out_sentences, count, length)


def gate_batches(
    tokenizer: TextTokenizer, words: Text, num_steps: int, size: int, length: int, *, causal: bool
) -> Batches:
    """What gates are trained on, a batch a step: where the text has fewer they come again.

    Args:
        tokenizer: of the model.
        words: of which the training part is taken.
        num_steps: batches, at most.
        size: sentences of a batch, or four times its sequences, which are about four times as long.
        length: longest sequence.
        causal: whether sequences are wanted, or pairs of sentences.

    Raises:
        ValueError: if the text has not enough for one batch.
    """
    if causal:
        batch = max(1, size // 4)
        found = _sequences(tokenizer, words.train, num_steps * batch, length)
        if len(found) < batch:
            raise ValueError(
                f"gate_sequences: expected at most {4 * len(found)} for the {len(found)} sequences of {length} "
                f"tokens of the text, got {size}"
            )
        return _batches(tokenizer, found[: len(found) // batch * batch], (-1, batch), length)
    batch = max(1, size // 2)
    most = _most_pairs(words.train_sentences)
    if most < batch:
        raise ValueError(
            f"gate_sequences: expected at most {2 * most} for the pairs of sentences of the text, got {size}"
        )
    return pairs(tokenizer, words.train_sentences, min(num_steps * batch, most), length, batch)


def sequences(
    tokenizer: TextTokenizer, passages: Sequence[str], count: int, length: int, batch: int = BATCH
) -> Batches:
    """Sequences of exactly ``length`` tokens: each from the beginning of a passage on, into the next where it ends.

    Raises:
        ValueError: if the text is too short for ``count`` of them.
    """
    found = _sequences(tokenizer, passages, count, length)
    if len(found) < count:
        raise ValueError(
            f"num_tokens: expected at most {len(found) * length}, in {len(found)} sequences of {length} tokens "
            f"of the text, got {count * length}"
        )
    batch = next(size for size in range(min(batch, count), 0, -1) if count % size == 0)
    return _batches(tokenizer, found, (-1, batch), length)


def _sequences(tokenizer: TextTokenizer, passages: Sequence[str], count: int, length: int) -> list[list[int]]:
    """As many as there are, from places that are spread over the passages."""
    joined = (
        tokenizer.around(tokenizer.encode_joined(passages[start:], length))
        for start in spread(count, len(passages))
    )
    return [whole[:length] for whole in joined if len(whole) >= length]


def sentences(tokenizer: TextTokenizer, texts: Sequence[str], count: int, length: int) -> Batches:
    """One batch of sentences, cut to ``length`` tokens with what the model puts around them.

    Raises:
        ValueError: if there are fewer than ``count``.
    """
    if len(texts) < count:
        raise ValueError(_too_many("sentences", len(texts), count))
    found = _cut(tokenizer, [texts[i] for i in spread(count, len(texts))], length)
    return _batches(tokenizer, found, (1, -1), length)


def pairs(tokenizer: TextTokenizer, texts: Sequence[str], count: int, length: int, per_batch: int) -> Batches:
    """Sentences with their successors: in a batch of 2 p sentences, the first p are followed by the last p.

    Of ``count`` pairs, those that fill whole batches.

    Raises:
        ValueError: if there are fewer, or they fill no batch.
    """
    if not per_batch <= count <= _most_pairs(texts):
        raise ValueError(_too_many("sentences with successors", 2 * _most_pairs(texts), 2 * count))
    first = spread(count, _most_pairs(texts))
    first = first[: len(first) // per_batch * per_batch]
    picked = []
    for start in range(0, len(first), per_batch):
        own = [2 * i for i in first[start : start + per_batch]]
        picked += [texts[i] for i in own] + [texts[i + 1] for i in own]
    return _batches(tokenizer, _cut(tokenizer, picked, length), (-1, 2 * per_batch), length)


def _most_pairs(texts: Sequence[str]) -> int:
    return (len(texts) - 1) // 2


def _too_many(what: str, most: int, asked: int) -> str:
    return (
        f"num_tokens: expected at most {most * SENTENCE_TOKENS} for the {most} {what} of the text, "
        f"got as many as {asked} take"
    )


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
