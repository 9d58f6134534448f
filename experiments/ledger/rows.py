"""All claims, in the order in which they are shown."""

from __future__ import annotations

from experiments.ledger import channel, cost, models, representation, retrieval, superposition, text, training
from experiments.ledger.books import Books
from experiments.ledger.entry import Entry, Row, judge_entry

_MODULES = (channel, superposition, retrieval, representation, text, models, training, cost)
_ALL: tuple[Entry, ...] = tuple(entry for module in _MODULES for entry in module.ENTRIES)
ENTRIES = (
    *sorted((e for e in _ALL if e.article is not None), key=lambda e: e.article or 0),
    *(e for e in _ALL if e.article is None),
)
"""First the article's claims by number, then those of papers by subject."""


def judge_all(books: Books) -> list[Row]:
    """A row for every entry."""
    return [judge_entry(entry, books) for entry in ENTRIES]
