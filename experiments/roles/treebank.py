"""A treebank in CoNLL-U: sentences of words, each with the word it depends on and the kind of its dependency."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from experiments.verses import lines_of

PATH = Path(__file__).resolve().parents[2] / "data" / "en_ewt-ud-dev.conllu"
"""Where the treebank is looked for if nothing is said; not committed."""
SHA256 = "531a54ff90d6ab12201c5a50c3e78e6ddac4de69abc4bce5d275d3cd29efe2b6"
"""Of that file: UD English-EWT, dev split, at commit 15d613d8."""
HOW_TO_GET = (
    "save en_ewt-ud-dev.conllu of github.com/UniversalDependencies/UD_English-EWT (commit 15d613d8, CC BY-SA 4.0) "
    "as data/en_ewt-ud-dev.conllu, or name a treebank by --ud PATH"
)
ROOT = -1


@dataclass(frozen=True)
class Sentence:
    """One sentence.

    Attributes:
        words: in their order.
        spaces: whether there is a space before each word.
        heads: the word that each depends on, from 0; `ROOT` for the root.
        relations: the kinds of their dependencies, with subtypes, such as ``nsubj:pass``.
    """

    words: tuple[str, ...]
    spaces: tuple[bool, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]


def available(path: str) -> bool:
    """Whether the treebank is there: only the one of the default place may be missing."""
    return bool(path) or PATH.exists()


def find(path: str) -> Path:
    """The file: that of the default place if ``path`` is empty, the only ``.conllu`` of a folder, or ``path`` itself.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if a folder has several.
    """
    place = Path(path) if path else PATH
    if place.is_dir():
        found = sorted(place.glob("*.conllu"))
        if len(found) > 1:
            raise ValueError(f"ud: expected a folder with one .conllu file, got {len(found)} in {place}")
        place = found[0] if found else place / "*.conllu"
    if not place.is_file():
        raise FileNotFoundError(f"ud: expected a treebank at {place}, got none; {HOW_TO_GET}")
    return place


@cache
def read(path: str) -> tuple[Sentence, ...]:
    """All sentences of a treebank; see `find`.

    Raises:
        FileNotFoundError: if it is not there.
        ValueError: if it is no CoNLL-U, or the file of the default place is not the one named above.
    """
    file = find(path)
    content = file.read_bytes()
    if not path:
        digest = hashlib.sha256(content).hexdigest()
        if digest != SHA256:
            raise ValueError(f"{file.name}: expected sha256 {SHA256}, got {digest}; {HOW_TO_GET}")
    try:
        sentences = parse(content.decode("utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"ud: expected CoNLL-U in {file}, got {error}") from None
    if not sentences:
        raise ValueError(f"ud: expected CoNLL-U in {file}, got no sentence")
    return sentences


def parse(content: str) -> tuple[Sentence, ...]:
    """Sentences of a CoNLL-U text.

    A word that is written together with the next one (``SpaceAfter=No``, or parts of a contraction such as do-n't)
    has no space behind it. Empty words, which nobody wrote, are left out.

    Raises:
        ValueError: if a line is not as it has to be, or a word depends on one that is not there, or in a
            circle instead of on a root.
    """
    sentences: list[Sentence] = []
    rows: list[tuple[str, int, str, bool]] = []
    together = range(0)  # numbers of the words of a contraction
    together_space = True

    def close() -> None:
        nonlocal together
        if rows:
            words, heads, relations, spaces_after = zip(*rows, strict=True)
            where = f"sentence {len(sentences) + 1}, of {len(words)} words ({' '.join(words):.40})"
            for head in heads:
                if not ROOT <= head < len(words):
                    raise ValueError(f"a head {head + 1} in {where}")
            if (word := _rootless(heads)) is not None:
                raise ValueError(
                    f"a word {word + 1} that depends on itself, at last, and on no root, in {where}"
                )
            spaces = (True, *spaces_after[:-1])
            sentences.append(Sentence(words, spaces, heads, relations))
        rows.clear()
        together = range(0)

    for number, line in enumerate(lines_of(content), 1):
        if not line.strip():
            close()
            continue
        if line.startswith("#"):
            continue
        fields = line.split("\t")
        if len(fields) != 10:
            raise ValueError(f"line {number}: {len(fields)} fields instead of 10")
        space = "SpaceAfter=No" not in fields[9].split("|")
        if "." in fields[0]:
            continue
        try:
            if "-" in fields[0]:
                first, _, last = fields[0].partition("-")
                together, together_space = range(int(first), int(last) + 1), space
                continue
            index, head = int(fields[0]), int(fields[6])
        except ValueError:
            raise ValueError(f"line {number}: no numbers in {fields[0]!r}, {fields[6]!r}") from None
        if index != len(rows) + 1:
            raise ValueError(f"line {number}: word {index} after word {len(rows)}")
        if index in together:
            space = together_space and index == together[-1]
        rows.append((fields[1], head - 1, fields[7], space))
    close()
    return tuple(sentences)


def _rootless(heads: tuple[int, ...]) -> int | None:
    """The first word from which no way along the heads leads to a root."""
    rooted: set[int] = {ROOT}
    for word in range(len(heads)):
        way: set[int] = set()
        place = word
        while place not in rooted:
            if place in way:
                return word
            way.add(place)
            place = heads[place]
        rooted |= way
    return None
