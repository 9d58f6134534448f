"""The page from its parts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from experiments.engine import load
from experiments.ledger.entry import Row
from experiments.ledger.markdown import counts
from experiments.report import grid
from experiments.report.captions import BENCH, Group
from experiments.report.claims import cards
from experiments.report.markup import to_html
from experiments.report.svg import inline

PARTS = Path(__file__).parent / "page"
CHECKED_EVERY = 53
"""Of the sliders' grid, every so-manieth point is in the page with its values from Python."""
TITLE = "Heads of attention: what was predicted, what was measured"


def page(groups: Sequence[Group], rows: Sequence[Row], root: Path) -> str:
    """The whole page; the same for the same records.

    Args:
        groups: figures with captions.
        rows: the ledger.
        root: of the clone.
    """
    figures, names = _figures(groups)
    own = [row for row in rows if row.entry.article is not None]
    others = [row for row in rows if row.entry.article is None]
    contents = [
        ("try", "Try the bounds"),
        ("claims", "Claims"),
        *((name, title) for name, title, _ in figures),
    ]
    entries = "".join(f'<li><a href="#{name}">{escape(title)}</a></li>' for name, title in contents)
    data = {
        "items": grid.NUM_ITEMS, "d": grid.D_MODEL, "heads": grid.NUM_HEADS, "budget": grid.TOTAL_KEY_DIM,
        "tables": grid.width_tables(), "points": grid.points(CHECKED_EVERY),
    }  # fmt: skip
    replacements = {
        "TITLE": escape(TITLE),
        "STYLE": _part("page.css"),
        "CONTENTS": entries,
        "LEDGER_COUNTS": f"The article's {len(own)} claims: {counts(own)}. Of papers, {len(others)}: {counts(others)}.",
        "LEDGER": cards(rows, root, names),
        "FIGURES": "".join(section for _, _, section in figures),
        "DATA": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
        "SCRIPT": _part("theory.js") + _part("page.js"),
    }
    text = _part("page.html")
    for name, value in replacements.items():
        text = text.replace(f"<!--{name}-->", value)
    return text


def _part(name: str) -> str:
    return (PARTS / name).read_text("utf-8")


def _figures(groups: Sequence[Group]) -> tuple[list[tuple[str, str, str]], dict[Path, str]]:
    """Sections ``(name, title, HTML)``, and the names of the figures' elements by file."""
    sections, names, number = [], {}, 0
    for experiment, own in groupby(groups, key=lambda group: group.experiment):
        summary = (
            "speed and memory beside other implementations"
            if experiment == BENCH
            else load(experiment).summary
        )
        title = "Benchmarks" if experiment == BENCH else experiment.capitalize()
        parts = []
        for group in own:
            drawn = []
            for caption in group.captions:
                number += 1
                name = f"{experiment}-{caption.name}"
                names[caption.path] = name
                svg = inline(caption.path.read_text("utf-8"), f"f{number}-", f"{experiment}: {caption.name}")
                drawn.append(
                    f'<figure id="{name}"><div class="plate" tabindex="0">{svg}</div>'
                    f"<figcaption>{to_html(caption.text)}</figcaption></figure>"
                )
            body = f"<p>Records: <code>{escape(group.command)}</code></p>{''.join(drawn)}"
            folded = experiment != BENCH and group.preset != "quick"
            parts.append(
                f"<details><summary>Preset {escape(group.preset)}</summary>{body}</details>"
                if folded
                else body
            )
        said = f"<h2>{title}</h2><p>{escape(summary[:1].upper() + summary[1:])}.</p>"
        section = f'<section id="{experiment}">{said}{"".join(parts)}</section>'
        sections.append((experiment, title, section))
    return sections, names
