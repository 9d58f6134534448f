"""Running text cut into segments, one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path

import numpy as np

from experiments.pretrained import TextTokenizer
from experiments.verses import HOW_TO_GET, PATH, load_text

SAMPLE = "sample"
"""A few sentences that were written for this project: to see that everything works, not to measure anything."""
_SAMPLE_FILE = Path(__file__).parent / "sample.txt"


@dataclass(frozen=True)
class Batch:
    """Some sequences, padded to one length.

    Attributes:
        tokens: ``(B, T)`` ids.
        lengths: ``(B,)``; 0 in rows that only fill the batch up.
    """

    tokens: np.ndarray
    lengths: np.ndarray


def available(text: str) -> bool:
    """Whether the text is there: only the verses may be missing."""
    return bool(text) or PATH.exists()


def passages(text: str) -> tuple[str, ...]:
    """The passages of a text that are not held out: verses by chapter if ``text`` is empty, lines of a file else.

    Raises:
        FileNotFoundError: if it is not there.
        ValueError: if it is no text.
    """
    if text == SAMPLE:
        return tuple(_SAMPLE_FILE.read_text(encoding="utf-8").splitlines())
    return load_text(text).train


def why_missing() -> tuple[str, str]:
    """Why there is no text, and how to get it."""
    return "the verses are not there", f"{HOW_TO_GET}, or name a UTF-8 file by --text PATH"


def segments(
    tokenizer: TextTokenizer, texts: tuple[str, ...], length: int, count: int
) -> Iterator[list[int]]:
    """Segments of a text, with what the model puts around each.

    Segment i begins with passage ``i len(texts) / count``, rounded down, and goes on with those behind it, as far as
    ``length`` tokens reach and no further than to where the next segment begins.

    Args:
        tokenizer: of the model.
        texts: passages.
        length: tokens of a segment, at most.
        count: segments, at most as many as passages.

    Raises:
        ValueError: for more.
    """
    if count > len(texts):
        raise ValueError(f"num_segments: expected at most the {len(texts)} passages of the text, got {count}")
    room = length - len(tokenizer.prefix) - len(tokenizer.suffix)
    for i in range(count):
        start, end = i * len(texts) // count, (i + 1) * len(texts) // count
        if ids := tokenizer.encode_joined(texts[start:end], room):
            yield tokenizer.around(ids[:room])


def whole_pieces(tokenizer: TextTokenizer, texts: Sequence[str], length: int) -> list[list[int]]:
    """All pieces of exactly ``length`` tokens, with what the model puts around each, in the order of the text.

    A piece lies within one passage. Passages that are too short for one, such as the lines of a file with line breaks
    within its sentences, are joined with their neighbours that are too short as well.
    """
    room = length - len(tokenizer.prefix) - len(tokenizer.suffix)
    runs: list[list[int]] = []
    alone = zip(texts, tokenizer.encode_all(texts), strict=True)
    for short, group in groupby(alone, lambda pair: len(pair[1]) < room):
        own = list(group)
        runs += [tokenizer.encode_joined(text for text, _ in own)] if short else [ids for _, ids in own]
    return [
        tokenizer.around(ids[start : start + room])
        for ids in runs
        for start in range(0, len(ids) - room + 1, room)
    ]


def batches(sequences: Iterator[list[int]], size: int, length: int) -> Iterator[Batch]:
    """Batches of ``size`` sequences of at most ``length`` tokens; the last one is filled up with empty ones."""
    while rows := list(islice(sequences, size)):
        tokens = np.zeros((size, length), np.int32)
        lengths = np.zeros(size, np.int32)
        for i, ids in enumerate(rows):
            tokens[i, : len(ids)], lengths[i] = ids, len(ids)
        yield Batch(tokens, lengths)
