"""The ledger as cards: readable on a narrow screen, to be filtered by verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from experiments.ledger.entry import HOLDS_WHERE, Row
from experiments.ledger.markdown import WORDS, figure_of
from experiments.report.markup import to_html


def cards(rows: Sequence[Row], root: Path, shown: dict[Path, str]) -> str:
    """All claims, with buttons that filter them.

    Args:
        rows: of the ledger.
        root: of the clone.
        shown: the page's figures: svg files to the names of their elements.
    """
    found = Counter(row.verdict for row in rows)
    buttons = "".join(
        f'<button type="button" data-filter="{word}">{word}{" …" if word == HOLDS_WHERE else ""} '
        f"<b>{found[word]}</b></button>"
        for word in WORDS
        if found[word]
    )
    everything = f'<button type="button" data-filter="" aria-pressed="true">all <b>{len(rows)}</b></button>'
    groups = {
        "The article": [row for row in rows if row.entry.article is not None],
        "Papers": [row for row in rows if row.entry.article is None],
    }
    shelves = "".join(
        f'<h3>{title}</h3><div class="claims">{"".join(_card(row, root, shown) for row in own)}</div>'
        for title, own in groups.items()
    )
    return f'<div class="filters" role="group" aria-label="Show claims by verdict">{everything}{buttons}</div>{shelves}'


def _card(row: Row, root: Path, shown: dict[Path, str]) -> str:
    kinds = {"where": row.where, "not": row.not_where, "undecided": row.undecided}
    kinds = {word: parts for word, parts in kinds.items() if parts}
    where = "".join(_list(word, parts) for word, parts in kinds.items()) if len(kinds) > 1 else ""
    path = root / figure_of(row, root)
    name = shown.get(path)
    figure = f' · <a href="#{name}">figure</a>' if name else ""
    commands = "<br>".join(
        f"<code>{escape(command)}</code>{escape(note)}" for command, note in row.commands.items()
    )
    return (
        f'<article class="claim" id="claim-{row.entry.name}" data-verdict="{row.verdict}">'
        f'<p class="said">{escape(row.entry.said)}{figure}</p><h4>{to_html(row.entry.claim)}</h4>'
        f'<p><span class="verdict">{row.verdict}</span></p>{where}'
        f"<details><summary>Numbers, rule and command</summary><dl><dt>Predicted, or what counts</dt>"
        f"<dd>{to_html(row.entry.counts)}</dd><dt>Measured</dt><dd>{_measured(row.measured)}</dd>"
        f"<dt>Command</dt><dd>{commands}</dd></dl></details></article>"
    )


def _measured(text: str) -> str:
    parts = text.split("; ")
    return (
        to_html(text)
        if len(parts) == 1
        else f"<ul>{''.join(f'<li>{to_html(part)}</li>' for part in parts)}</ul>"
    )


def _list(word: str, conditions: Iterable[str]) -> str:
    items = "".join(f"<li>{to_html(condition)}</li>" for condition in conditions)
    return f'<p class="word">{word}</p><ul class="{word}">{items}</ul>'
