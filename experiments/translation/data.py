"""Parallel text for the translation experiment: pairs to train on, to choose settings by and to report on.

A pair is a line of a source and its translation. Verses (``make text``) are split by whole books, so that nothing of a
held-out book, its names and its style, is seen in training. A file of lines ``source<TAB>target`` is split by its
order; three files are what they are. Pairs of a file that are held out are not trained on where they come again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments import verses
from theory.problems import seeded_rng

COPY = "copy"
"""In place of a file: lines of letters that are to be copied, made up here."""
Pair = tuple[str, str]


@dataclass(frozen=True)
class Corpus:
    """Pairs to train on, to choose settings on and to report on.

    Attributes:
        source: what it is.
        train: pairs.
        dev: likewise.
        test: likewise.
        repeated: pairs that are left out of ``train`` and of ``dev`` because they are held out later on.
    """

    source: str
    train: tuple[Pair, ...]
    dev: tuple[Pair, ...]
    test: tuple[Pair, ...]
    repeated: tuple[int, int] = (0, 0)


def left_out(pairs: str) -> list[dict[str, str]]:
    """Everything, where the verses are asked for and not there: rows of ``what``, ``why`` and ``how_to_get``."""
    if pairs or verses.PATH.exists():
        return []
    why = "there are no verses to train on"
    how = f"{verses.HOW_TO_GET}, or --pairs PATH"
    return [{"what": "everything", "why": why, "how_to_get": how}]


def own_files(pairs: str) -> list[str]:
    """The files of the user's own pairs: none, one, or three between commas."""
    return [] if pairs in ("", COPY) else pairs.split(",")


def corpus_of(pairs: str) -> Corpus:
    """The verses (nothing), lines to copy (`COPY`), or the pairs of the user's own files.

    Raises:
        FileNotFoundError: as `verse_corpus` and `file_corpus`.
        ValueError: as `file_corpus`.
    """
    if not pairs:
        return verse_corpus()
    return copy_corpus() if pairs == COPY else file_corpus(pairs)


def verse_corpus() -> Corpus:
    """English to Spanish; of the held-out books every other one is for testing, the rest for choosing.

    Test: Ruth, Hosea, Galatians (a story, a prophet, a letter); dev: Job, Zechariah, Hebrews.

    Raises:
        FileNotFoundError: if ``make text`` has not been run.
    """
    train, held_out = verses.split(verses.read_verses())
    books = list(dict.fromkeys(verse.book for verse in held_out))
    parts = [[v for v in held_out if v.book in books[start::2]] for start in (1, 0)]
    train, dev, test = (tuple((v.english, v.spanish) for v in part) for part in (train, *parts))
    return Corpus("English to Spanish verses, whole books held out", train, dev, test)


def file_corpus(pairs: str) -> Corpus:
    """A file of lines ``source<TAB>target``: the last tenth for testing, the tenth before it for choosing.

    Or three such files between commas: to train on, to choose by, to test on. Lines end at newlines alone, with a
    carriage return before them or not. A pair for testing that also comes earlier is left out there, and one for
    choosing is left out of training: no pair that is held out is trained on in exactly that form. (Pairs that differ
    in a character are not recognised.)

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if there are neither one file nor three, one is no UTF-8, a line has not two fields with text in
            them, one file has fewer than thirty lines, or a part has no line of its own.
    """
    paths = pairs.split(",")
    if len(paths) not in (1, 3):
        raise ValueError(f"pairs: expected one file, or three between commas, got {pairs!r}")
    found = [_read_pairs(path) for path in paths]
    if len(found) == 1:
        [lines] = found
        tenth = len(lines) // 10
        if tenth < 3:
            raise ValueError(f"pairs: expected at least thirty lines, got {len(lines)} in {pairs}")
        ends = len(lines) - 2 * tenth, len(lines) - tenth
        found = [lines[: ends[0]], lines[ends[0] : ends[1]], lines[ends[1] :]]
    test = tuple(found[2])
    dev = _without(found[1], test)
    train = _without(found[0], (*dev, *test))
    for name, part in (("train on", train), ("choose by", dev), ("test on", test)):
        if not part:
            raise ValueError(
                f"pairs: expected lines to {name} that are not held out later on, got none in {pairs}"
            )
    names = [Path(path).name for path in paths]
    source = f"{names[0]}, last tenths held out" if len(paths) == 1 else f"{names[0]}, tested on {names[2]}"
    return Corpus(source, train, dev, test, (len(found[0]) - len(train), len(found[1]) - len(dev)))


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
    train, dev, test = map(tuple, (pairs[2 * held :], pairs[:held], pairs[held : 2 * held]))
    return Corpus("made-up lines to copy", train, dev, test)
