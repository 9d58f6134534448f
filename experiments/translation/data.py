"""Parallel text for the translation experiment: pairs, splits by book, subwords, and rows of packed pairs.

A pair is a line of a source and its translation. Verses (``make text``) are split by whole books, so that nothing of a
held-out book, its names and its style, is seen in training; any other file of lines ``source<TAB>target`` is split by
its order, and pairs that are held out are not trained on where they come again. Subwords are learned on the training
split alone, for both languages together.

Training rows hold several pairs one after another, each seeing only itself: `Rows.source_segments` and
`target_segments` number the pairs of a row from 1, and are 0 where a row is empty. Rows to translate from hold one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from experiments import verses
from theory.problems import seeded_rng

PAD, BEGIN, END = 0, 1, 2
"""Tokens that are no subwords: of empty places, before the first token of a target, after the last of either side."""
SPECIAL = ("<pad>", "<begin>", "<end>")
COPY = "copy"
"""In place of a file: lines of letters that are to be copied, made up here."""
Pair = tuple[str, str]
Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Corpus:
    """Pairs to train on, to choose settings on and to report on.

    Attributes:
        source: what it is.
        train: pairs.
        dev: likewise.
        test: likewise.
    """

    source: str
    train: tuple[Pair, ...]
    dev: tuple[Pair, ...]
    test: tuple[Pair, ...]


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


def left_out(pairs: str) -> list[dict[str, str]]:
    """Everything, where the verses are asked for and not there: rows of ``what``, ``why`` and ``how_to_get``."""
    if pairs or verses.PATH.exists():
        return []
    why = "there are no verses to train on"
    how = f"{verses.HOW_TO_GET}, or --pairs PATH"
    return [{"what": "everything", "why": why, "how_to_get": how}]


def own_files(pairs: str) -> list[str]:
    """The file of the user's own pairs, if there is one."""
    return [] if pairs in ("", COPY) else [pairs]


def verse_corpus() -> Corpus:
    """English to Spanish; of the held-out books every other one is for testing, the rest for choosing.

    Test: Ruth, Hosea, Galatians (a story, a prophet, a letter); dev: Job, Zechariah, Hebrews.

    Raises:
        FileNotFoundError: if ``make text`` has not been run.
    """
    train, held_out = verses.split(verses.read_verses())
    books = list(dict.fromkeys(verse.book for verse in held_out))
    parts = [[v for v in held_out if v.book in books[start::2]] for start in (1, 0)]
    pairs = [tuple((v.english, v.spanish) for v in part) for part in (train, *parts)]
    return Corpus("English to Spanish verses, whole books held out", *pairs)


def file_corpus(path: str) -> Corpus:
    """A file of lines ``source<TAB>target``: the last tenth for testing, the tenth before it for choosing.

    Lines end at newlines alone, with a carriage return before them or not. A pair of the last tenth that also comes
    earlier is left out there, and one of the tenth before it is left out of training: no pair that is held out is
    trained on in exactly that form. (Pairs that differ in a character are not recognised.)

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is no UTF-8, a line has not two fields with text in them, there are fewer than thirty lines,
            or a part has no line of its own.
    """
    pairs = _read_pairs(path)
    tenth = len(pairs) // 10
    if tenth < 3:
        raise ValueError(f"pairs: expected at least thirty lines, got {len(pairs)} in {path}")
    ends = len(pairs) - 2 * tenth, len(pairs) - tenth
    test = tuple(pairs[ends[1] :])
    dev = _without(pairs[ends[0] : ends[1]], test)
    train = _without(pairs[: ends[0]], (*dev, *test))
    for name, part in (("train on", train), ("choose by", dev)):
        if not part:
            raise ValueError(
                f"pairs: expected lines to {name} that are not held out later on, got none in {path}"
            )
    return Corpus(f"{Path(path).name}, last tenths held out", train, dev, test)


def _read_pairs(path: str) -> list[Pair]:
    if not Path(path).is_file():
        raise FileNotFoundError(f"pairs: expected a UTF-8 file, got {path!r}, which is no file")
    try:
        lines = verses.lines_of(Path(path).read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"pairs: expected a UTF-8 file, got {path}: {error}") from None
    pairs = []
    for number, line in enumerate(lines, 1):
        fields = [field.strip() for field in line.split("\t")]
        if len(fields) != 2:
            raise ValueError(
                f"pairs: expected two fields, a tabulator between them, in line {number} of {path}, got {len(fields)}"
            )
        for name, field in zip(("source", "translation"), fields, strict=True):
            if not field:
                raise ValueError(
                    f"pairs: expected text on both sides of line {number} of {path}, got an empty {name}"
                )
        pairs.append((fields[0], fields[1]))
    return pairs


def _without(pairs: Sequence[Pair], others: Sequence[Pair]) -> tuple[Pair, ...]:
    left_out = frozenset(others)
    return tuple(pair for pair in pairs if pair not in left_out)


def copy_corpus(num_pairs: int = 2000) -> Corpus:
    """Lines of 2 to 6 letters, all different, each its own translation."""
    rng = seeded_rng(0, "translation, lines to copy")
    lines: dict[str, None] = {}
    while len(lines) < num_pairs:
        lines[" ".join(rng.choice(list("abcdefgh"), size=rng.integers(2, 7)))] = None
    pairs = [(line, line) for line in lines]
    held = max(8, num_pairs // 20)
    return Corpus(
        "made-up lines to copy", *map(tuple, (pairs[2 * held :], pairs[:held], pairs[held : 2 * held]))
    )


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
        return [tuple(encoding.ids) for encoding in self._tokenizer.encode_batch(list(lines))]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens up to the first `END`."""
        tokens = list(tokens)
        end = tokens.index(END) if END in tokens else len(tokens)
        return self._tokenizer.decode([t for t in tokens[:end] if t >= len(SPECIAL)]).strip()


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
    train: tuple[tuple[Tokens, Tokens], ...]
    dev: tuple[tuple[Tokens, Tokens], ...]
    test: tuple[tuple[Tokens, Tokens], ...]


@cache
def encoded(path: str, vocab_size: int) -> Encoded:
    """The verses (no path), lines to copy (`COPY`) or the pairs of a file, in subwords; read once a process."""
    corpus = copy_corpus() if path == COPY else file_corpus(path) if path else verse_corpus()
    return encode(corpus, vocab_size)


def encode(corpus: Corpus, vocab_size: int) -> Encoded:
    """A corpus in subwords that are learned on its training split."""
    subwords = Subwords([line for pair in corpus.train for line in pair], vocab_size)
    parts = []
    for pairs in (corpus.train, corpus.dev, corpus.test):
        sides = (subwords.encode([pair[side] for pair in pairs]) for side in (0, 1))
        parts.append(tuple(zip(*sides, strict=True)))
    return Encoded(corpus, subwords, *parts)


def packed(pairs: Sequence[tuple[Tokens, Tokens]], length: int, order: Sequence[int]) -> Rows:
    """Pairs in rows of a length, several in one where they fit, in about the order given.

    Args:
        pairs: tokens. Those that do not fit into a row are left out.
        length: of rows, with an `END` after every source and target.
        order: of the pairs.
    """
    open_rows: list[list[int]] = []  # source and target space left, then members
    closed: list[list[int]] = []
    for index in order:
        source, target = (len(side) + 1 for side in pairs[index])
        if max(source, target) > length:
            continue
        fits = [row for row in open_rows if row[0] >= source and row[1] >= target]
        if fits:
            row = min(fits, key=lambda row: min(row[0] - source, row[1] - target))
        else:
            if len(open_rows) >= _OPEN_ROWS:
                closed.append(open_rows.pop(0))
            row = [length, length]
            open_rows.append(row)
        row[0] -= source
        row[1] -= target
        row.append(index)
    members = [row[2:] for row in closed + open_rows]
    return _rows(pairs, members, length)


def single(pairs: Sequence[tuple[Tokens, Tokens]], length: int) -> Rows:
    """One pair a row; what is longer than a row is cut."""
    cut = [(source[: length - 1], target[: length - 1]) for source, target in pairs]
    return _rows(cut, [[index] for index in range(len(cut))], length)


def training_rows(pairs: Sequence[tuple[Tokens, Tokens]], length: int, num_rows: int, seed: int) -> Rows:
    """So many rows, over the pairs again and again in an order of the seed."""
    rng = seeded_rng(seed, "translation, order of the pairs")
    parts: list[Rows] = []
    while sum(len(part.source) for part in parts) < num_rows:
        rows = packed(pairs, length, rng.permutation(len(pairs)).tolist())
        if not len(rows.source):
            raise ValueError(f"length: expected one that some pair fits into, got {length}")
        order = rng.permutation(len(rows.source))
        parts.append(Rows(*(array[order] for array in rows)))
    return Rows(*(np.concatenate(arrays)[:num_rows] for arrays in zip(*parts, strict=True)))


_OPEN_ROWS = 24
"""Rows that pairs are tried on at a time."""


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
