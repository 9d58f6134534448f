"""Subwords of both languages, and a corpus in them.

Subwords are learned on the training part alone, for both languages together. Tokens of millions of pairs stay in
memory, so they are kept in flat arrays (`TokenPairs`).
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, overload

import numpy as np
from jaxtyping import Int
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from experiments.translation.data import Corpus, Pair, corpus_of

PAD, BEGIN, END = 0, 1, 2
"""Tokens that are no subwords: of empty places, before the first token of a target, after the last of either side."""
SPECIAL = ("<pad>", "<begin>", "<end>")
Tokens = tuple[int, ...]
AT_A_TIME = 8192
"""Lines that are encoded at a time."""


class Subwords:
    """Byte-level subwords (byte-pair encoding) of both languages, learned on lines.

    Args:
        lines: to learn from.
        vocab_size: tokens in all, `SPECIAL` and the 256 bytes among them.

    Raises:
        ValueError: if that is too small.
    """

    def __init__(self, lines: Iterator[str] | Sequence[str], vocab_size: int) -> None:
        if vocab_size < 256 + len(SPECIAL):
            raise ValueError(f"vocab_size: expected at least {256 + len(SPECIAL)}, got {vocab_size}")
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=list(SPECIAL),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(lines, trainer)
        # A line that holds "<end>" holds these five characters: nothing in a text is a token of SPECIAL.
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer

    @property
    def vocab_size(self) -> int:
        """Tokens in all; fewer than asked for where the text has no more."""
        return self._tokenizer.get_vocab_size()

    def encode(self, lines: Sequence[str]) -> list[Tokens]:
        """Tokens of every line: subwords alone, whatever a line says, its ``<end>`` too."""
        return [tuple(found.ids) for found in self._tokenizer.encode_batch_fast(list(lines))]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens up to the first `END`."""
        tokens = list(tokens)
        end = tokens.index(END) if END in tokens else len(tokens)
        return self._tokenizer.decode([t for t in tokens[:end] if t >= len(SPECIAL)]).strip()


class TokenPairs(Sequence[tuple[Tokens, Tokens]]):
    """Tokens of both sides of pairs, in arrays: four bytes a token, eight a line.

    Args:
        subwords: that encode.
        pairs: lines of both sides.

    Attributes:
        lengths: tokens of either side of every pair, ``(pairs, 2)``.
    """

    def __init__(self, subwords: Subwords, pairs: Sequence[Pair]) -> None:
        self._tokens, ends = (array("i"), array("i")), (array("q", [0]), array("q", [0]))
        for begin in range(0, len(pairs), AT_A_TIME):
            for side, (tokens, end) in enumerate(zip(self._tokens, ends, strict=True)):
                for line in subwords.encode([pair[side] for pair in pairs[begin : begin + AT_A_TIME]]):
                    tokens.extend(line)
                    end.append(len(tokens))
        self._ends = ends
        self.lengths: Int[np.ndarray, "pairs 2"] = np.diff(np.asarray(ends), axis=1).T.astype(np.int32)

    def __len__(self) -> int:
        """How many pairs."""
        return len(self._ends[0]) - 1

    def update(self, digest: Any) -> None:
        """Add all tokens to one of `hashlib`'s digests."""
        for part in (*self._tokens, *self._ends):
            digest.update(part)

    @overload
    def __getitem__(self, index: int) -> tuple[Tokens, Tokens]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[Tokens, Tokens]]: ...
    def __getitem__(self, index: int | slice) -> tuple[Tokens, Tokens] | Sequence[tuple[Tokens, Tokens]]:
        """A pair, or a list of pairs."""
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        at = range(len(self))[index]
        source, target = (
            tuple(tokens[end[at] : end[at + 1]]) for tokens, end in zip(self._tokens, self._ends, strict=True)
        )
        return source, target


@dataclass(frozen=True)
class Encoded:
    """A corpus in subwords.

    Attributes:
        corpus: its text.
        subwords: what made them.
        train: tokens of both sides of every pair.
        dev: likewise.
        test: likewise.
    """

    corpus: Corpus
    subwords: Subwords
    train: TokenPairs
    dev: TokenPairs
    test: TokenPairs

    def digest(self) -> str:
        """SHA-256 of all tokens."""
        found = hashlib.sha256()
        for part in (self.train, self.dev, self.test):
            part.update(found)
        return found.hexdigest()


@cache
def encoded(pairs: str, vocab_size: int) -> Encoded:
    """The corpus of `corpus_of` in subwords; read once a process."""
    return encode(corpus_of(pairs), vocab_size)


def encode(corpus: Corpus, vocab_size: int) -> Encoded:
    """A corpus in subwords that are learned on its training part."""
    subwords = Subwords([line for pair in corpus.train for line in pair], vocab_size)
    parts = (TokenPairs(subwords, pairs) for pairs in (corpus.train, corpus.dev, corpus.test))
    return Encoded(corpus, subwords, *parts)
