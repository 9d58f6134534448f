"""Expectations of an experiment, written down before its runs, and verdicts on them from the records alone."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console

from experiments.points import Record
from experiments.reading import records
from experiments.tables import Cells, show_lines

Verdict = tuple[bool, str]
"""Whether it came out as expected, and the numbers that say so."""


class Claim(NamedTuple):
    """One expectation.

    Attributes:
        name: short.
        expected: what was expected.
        judge: from the evidence (records) to a verdict; None where nothing was run that could tell.
    """

    name: str
    expected: str
    judge: Callable[..., Verdict | None]


def judged(claims: Iterable[Claim], *evidence: Any) -> list[Record]:
    """One row a claim: ``verdict`` is ``held``, ``failed`` or ``not_run``, ``found`` the numbers."""
    rows = []
    for claim in claims:
        verdict = claim.judge(*evidence)
        held, found = (None, None) if verdict is None else verdict
        word = "not_run" if verdict is None else "held" if held else "failed"
        rows.append({"claim": claim.name, "expected": claim.expected, "verdict": word, "found": found})
    return rows


def claims_cells(data: Mapping[str, Any], note: str) -> Cells | None:
    """What was expected and what came out. None where nothing was run that could tell."""
    lines = tuple((row["claim"], row["expected"], _word(row), row["found"] or "–") for row in _judged(data))
    return (
        Cells("Expected and found", ("claim", "expected", "verdict", "found"), lines, note) if lines else None
    )


def claim_lines(data: Mapping[str, Any]) -> list[str]:
    """`claims_cells` as lines, for the terminal."""
    return [
        f"{_word(row):>6}  {row['claim']}: {row['expected']}\n        found: {row['found']}"
        for row in _judged(data)
    ]


def show_claims(console: Console, data: Mapping[str, Any]) -> None:
    """Print what was expected and what came out; nothing where nothing was run that could tell."""
    if lines := claim_lines(data):
        show_lines(console, ["", "Expected and found", *lines])


def claim_values(data: Mapping[str, Any]) -> dict[str, str]:
    """``claims.judged`` and ``claims.held``, how many, for prose."""
    rows = _judged(data)
    held = sum(row["verdict"] == "held" for row in rows)
    return {"claims.judged": str(len(rows)), "claims.held": str(held)}


def _word(row: Mapping[str, Any]) -> str:
    """The verdict; with a word where its row says that the seeds do not decide it (``decided`` is False)."""
    return f"{row['verdict']} (not decided)" if row.get("decided") is False else row["verdict"]


def _judged(data: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [row for row in records(data, "claims") if row["verdict"] != "not_run"]
