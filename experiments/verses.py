"""Text for experiments on real models: English and Spanish verses, or any UTF-8 file.

``make text`` fetches two Debian packages (public-domain translations of the Bible) and writes their verses, aligned by
book, chapter and verse, into one file (`experiments.verses_fetch`); this module reads it. Whole books are held out, by
a rule with a name: what a model or a choice is tested on shares no chapter with what it was made on.

    verses = read_verses()
    train, test = split(verses, "every-tenth")
    pairs = [(verse.english, verse.spanish) for verse in train]

`load_text` gives running text instead, from the English verses or from a file of the user's own (``--text PATH``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

PATH = Path(__file__).resolve().parents[1] / "data" / "verses.tsv"
"""Where ``make text`` writes the verses; not committed."""
SHA256 = "2c58254f1770fcf9a2b295c88c321821673986aefd83fc6ee95572f488415826"
"""Of that file, from the versions of the packages that `experiments.verses_fetch` names."""
HOW_TO_GET = "make text"

HELD_OUT: dict[str, Callable[[int], bool]] = {"every-tenth": lambda book: book % 10 == 8}
"""Rules by name, of the number of a book (1 to 66).

``every-tenth``: Ruth, Job, Hosea, Zechariah, Galatians, Hebrews; none retells
another book, as Chronicles and the Gospels do.
"""


class Verse(NamedTuple):
    """One verse in two languages.

    Attributes:
        book: OSIS abbreviation, such as ``Gen``.
        chapter: from 1.
        verse: from 1.
        english: World English Bible.
        spanish: Reina Valera 1909.
    """

    book: str
    chapter: int
    verse: int
    english: str
    spanish: str


@dataclass(frozen=True)
class Text:
    """Running text in two parts.

    Attributes:
        source: what it is.
        train: passages to choose or train on, in their order.
        held_out: passages to test on.
        train_sentences: the same as the former in shorter pieces: verses, or again the lines of a file.
        held_out_sentences: likewise.
    """

    source: str
    train: tuple[str, ...]
    held_out: tuple[str, ...]
    train_sentences: tuple[str, ...]
    held_out_sentences: tuple[str, ...]


@cache
def read_verses(path: Path = PATH) -> tuple[Verse, ...]:
    """All verses, in the order of the books.

    Raises:
        FileNotFoundError: if ``make text`` has not been run.
        ValueError: if the file is not the one that it writes.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: expected the verses; {HOW_TO_GET}")
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        raise ValueError(f"{path}: expected SHA-256 {SHA256}, got {found}; {HOW_TO_GET}")
    return parse(content.decode("utf-8"))


def lines_of(content: str) -> list[str]:
    """Lines as editors count them: ``str.splitlines`` also ends one at U+2028 and other characters of a text."""
    lines = content.replace("\r\n", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def parse(content: str) -> tuple[Verse, ...]:
    """Verses from lines of five fields separated by tabulators.

    Raises:
        ValueError: if a line is not such.
    """
    verses = []
    for number, line in enumerate(lines_of(content), 1):
        fields = line.split("\t")
        if len(fields) != 5:
            raise ValueError(f"line {number}: expected 5 fields, got {len(fields)}")
        book, chapter, verse, english, spanish = fields
        verses.append(Verse(book, int(chapter), int(verse), english, spanish))
    return tuple(verses)


def format_verses(verses: Sequence[Verse]) -> str:
    """The lines that `parse` reads."""
    return "".join(f"{v.book}\t{v.chapter}\t{v.verse}\t{v.english}\t{v.spanish}\n" for v in verses)


def split(verses: Sequence[Verse], rule: str = "every-tenth") -> tuple[tuple[Verse, ...], tuple[Verse, ...]]:
    """Verses to train on, and those of the books held out by a rule of `HELD_OUT`.

    Raises:
        ValueError: if there is no such rule.
    """
    if rule not in HELD_OUT:
        raise ValueError(f"rule: expected one of {', '.join(HELD_OUT)}, got {rule!r}")
    numbers = {book: number for number, book in enumerate(dict.fromkeys(v.book for v in verses), 1)}
    out = [HELD_OUT[rule](numbers[v.book]) for v in verses]
    train = tuple(v for v, held in zip(verses, out, strict=True) if not held)
    return train, tuple(v for v, held in zip(verses, out, strict=True) if held)


def load_text(path: str = "", rule: str = "every-tenth") -> Text:
    """English running text.

    Args:
        path: a UTF-8 file of ten lines or more, of which every non-empty one is a passage and the last tenth is held
            out; the English
            verses if empty, of which every chapter is a passage.
        rule: which books are held out.

    Raises:
        FileNotFoundError: if there is no such file, or ``make text`` has not been run.
        ValueError: if the file has fewer than ten lines, is no UTF-8, or is not what ``make text`` writes.
    """
    if not path:
        parts = split(read_verses(), rule)
        source = f"English verses (World English Bible), books held out: {rule}"
        return Text(source, *map(_chapters, parts), *(tuple(v.english for v in part) for part in parts))
    if not Path(path).is_file():
        raise FileNotFoundError(f"text: expected a UTF-8 file, got {path!r}, which is no file")
    try:
        lines = [line.strip() for line in lines_of(Path(path).read_text(encoding="utf-8-sig"))]
    except UnicodeDecodeError as error:
        raise ValueError(f"text: expected a UTF-8 file, got {path}: {error}") from None
    passages = [line for line in lines if line]
    if len(passages) < 10:
        raise ValueError(
            f"text: expected a file of at least ten lines of text, got {len(passages)} in {path}; "
            "the last tenth of the lines is held out, so a long one has to be broken"
        )
    start = len(passages) - len(passages) // 10
    parts = tuple(passages[:start]), tuple(passages[start:])
    return Text(f"{Path(path).name}, last tenth held out", *parts, *parts)


def _chapters(verses: Sequence[Verse]) -> tuple[str, ...]:
    chapters: dict[tuple[str, int], list[str]] = {}
    for verse in verses:
        chapters.setdefault((verse.book, verse.chapter), []).append(verse.english)
    return tuple(" ".join(lines) for lines in chapters.values())
