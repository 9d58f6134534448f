"""Real relations between words: a small table made for this project.

Four kinds, each pair directed from source to target: country -> capital, singular -> plural, verb -> simple
past, word -> antonym. Every word is one whole entry of MiniLM's vocabulary and occurs once in the table, so
that any set of pairs is a matching: a graph in which an item has at most one edge, like part of a
permutation graph, but with structure.
"""

import csv
import functools
from dataclasses import dataclass
from pathlib import Path

KINDS = ("country-capital", "singular-plural", "verb-past", "antonym")

_TABLE = Path(__file__).parent / "data" / "word_relations.csv"


@dataclass(frozen=True)
class WordRelations:
    """Pairs of related words: ``sources[i] -> targets[i]`` is a relation of kind ``kinds[i]``.

    Raises:
        ValueError: if the columns differ in length, a kind is unknown or a word occurs twice.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    kinds: tuple[str, ...]

    def __post_init__(self) -> None:
        if not len(self.sources) == len(self.targets) == len(self.kinds):
            raise ValueError(
                "sources, targets, kinds: expected equal lengths, "
                f"got {len(self.sources)}, {len(self.targets)}, {len(self.kinds)}"
            )
        for kind in self.kinds:
            if kind not in KINDS:
                raise ValueError(f"kinds: expected one of {', '.join(KINDS)}, got {kind!r}")
        seen: set[str] = set()
        for word in self.sources + self.targets:
            if word in seen:
                raise ValueError(f"sources, targets: expected every word once, got {word!r} twice")
            seen.add(word)

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.sources)


@functools.lru_cache(maxsize=1)
def load_word_relations() -> WordRelations:
    """Read the project's table of word relations (``theory/data/word_relations.csv``)."""
    with _TABLE.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    return WordRelations(
        tuple(row["source"] for row in rows),
        tuple(row["target"] for row in rows),
        tuple(row["kind"] for row in rows),
    )
