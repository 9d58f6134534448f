"""The ledger as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.ledger.books import ROOT
from experiments.ledger.entry import FAILS, HOLDS, HOLDS_WHERE, NOT_TESTED, UNDECIDED, Row

WORDS = (HOLDS, HOLDS_WHERE, UNDECIDED, FAILS, NOT_TESTED)
COLUMNS = ("said", "claim", "run", "predicted, or what counts", "measured", "verdict")


def figure_of(row: Row, root: Path = ROOT) -> str:
    """Path of the figure's svg from the root; of the captions where there is no such figure; empty without either."""
    if row.verdict == NOT_TESTED or not row.entry.needs:
        return ""
    captions = [f"figures/{name}-captions.md" for name in row.entry.needs]
    for path in ([f"{row.entry.figure}.svg"] if row.entry.figure else []) + captions:
        if (root / path).exists():
            return path
    return ""


def counts(rows: Iterable[Row]) -> str:
    """How many have which verdict: ``holds 5, holds where ... 11``."""
    found = Counter(row.verdict for row in rows)
    return ", ".join(
        f"{word}{' ...' if word == HOLDS_WHERE else ''} {found[word]}" for word in WORDS if found[word]
    )


def ledger(rows: Sequence[Row], root: Path = ROOT) -> str:
    """CLAIMS.md."""
    own = [row for row in rows if row.entry.article is not None]
    others = [row for row in rows if row.entry.article is None]
    return "\n".join(
        [
            "# Claims and what became of them",
            "",
            "Written by `make readme` (`python -m experiments claims`) from the committed records; the rules are in "
            "[experiments/ledger](experiments/ledger). The article is a Chinese essay on why attention is split into "
            "heads; its claims are in our words. A verdict is about what was run, not about every model: *holds* (in "
            "every part that was measured), *holds where ...* (in some), *fails* (in none, and what was measured "
            "contradicts it), *undecided* (measured, but what was measured neither shows nor contradicts it), *not "
            "tested*. Where a claim is a comparison, it is decided by the 95% interval of the difference, one "
            "comparison at a time: of 20 differences that are none, one is expected to look like one. A claim of no "
            "difference holds where the whole interval is within the tolerance. Square brackets are 95% intervals, "
            "of timings quartiles, of medians over seeds the range of the seeds; numbers without brackets are taken "
            "as they stand: counts, rankings, losses of one model on one text.",
            "",
            f"## The article: {len(own)} claims ({counts(own)})",
            "",
            *_table(own, root),
            "",
            f"## Papers: {len(others)} claims ({counts(others)})",
            "",
            "Only what was read in a paper, or in a careful account of it, is attributed to it; of Adler 2025 that is "
            "the abstract. Settings differ from the papers' (smaller models, other data): *fails* means not here.",
            "",
            *_table(others, root),
            "",
        ]
    )


def _table(rows: Iterable[Row], root: Path) -> list[str]:
    lines = [_line(COLUMNS), _line(["---"] * len(COLUMNS))]
    for row in rows:
        verdict = f"**{row.verdict}**{row.sentence[len(row.verdict) :]}"
        path = figure_of(row, root)
        if path:
            verdict += f" ([{'figure' if path.endswith('.svg') else 'figures'}]({path}))"
        run = "<br>".join(f"`{command}`{note}" for command, note in row.commands.items())
        lines.append(_line([row.entry.said, row.entry.claim, run, row.entry.counts, row.measured, verdict]))
    return lines


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
