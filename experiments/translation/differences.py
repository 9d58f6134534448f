"""Which settings differ in perplexity, by intervals of the differences: what the seeds resolve and what they do not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from experiments.intervals import Interval, paired, signed, welch
from experiments.reading import Record, records, select
from experiments.tables import Cells

SAME = ("num_heads", "head_dim", "value_head_dim", "d_model", "learning_rate", "num_steps")
"""What trainings of one setting share."""


class Difference(NamedTuple):
    """A comparison of two settings, perplexity of the first minus that of the second.

    Attributes:
        arm: of both; ``M, S`` of one each.
        first, second: what tells them apart, in words.
        paired: over shared seeds, with Student's interval; None of one seed.
        welch: as if the seeds shared nothing.
    """

    arm: str
    first: str
    second: str
    paired: Interval | None
    welch: Interval | None


def by_seed(points: list[Record], setting: Record) -> dict[int, float]:
    """Perplexities of a setting's trainings that did not diverge."""
    own = select(points, **{name: setting[name] for name in SAME})
    return {row["seed"]: row["perplexity"] for row in own if row["perplexity"] is not None}


def differences(data: Mapping[str, Any]) -> list[Difference]:
    """Every comparison that an expectation or a claim makes, as far as its settings were run.

    A and F: neighbouring head counts, the fewest and the most heads against the best of the arm and against each other.
    B: every size of queries and keys against that of values and against the best. M against S: as many parameters.
    """
    points = records(data, "points")
    found = []
    for arm, first, second in _pairs(data):
        values = [by_seed(points, row) for row in (first, second)]
        one, other = (list(own.values()) for own in values)
        names = _name(arm, first), _name(arm, second)
        found.append(Difference(arm, *names, paired(values[0], values[1]), welch(one, other)))
    return found


def _pairs(data: Mapping[str, Any]) -> Iterator[tuple[str, Record, Record]]:
    rows = [row for row in records(data, "settings") if row["perplexity"] is not None]
    for arm in ("A", "F"):
        own = sorted(select(rows, arm=arm), key=lambda row: row["num_heads"])
        best = min(own, key=lambda row: row["perplexity"], default=None)
        wanted = [(b, a) for a, b in pairwise(own)] + [(row, best) for row in (own[:1] + own[-1:]) if best]
        for first, second in _once([*wanted, *((b, a) for b, a in zip(own[-1:], own[:1], strict=True))]):
            yield arm, first, second
    sizes = sorted(select(rows, arm="B"), key=lambda row: row["head_dim"])
    best = min(sizes, key=lambda row: row["perplexity"], default=None)
    bases = [row for row in sizes if row["head_dim"] == row["value_head_dim"]] + [best]
    for first, second in _once([(row, base) for base in bases for row in sizes if base]):
        yield "B", first, second
    small, split = (sorted(select(rows, arm=arm), key=lambda row: -row["num_params"]) for arm in ("M", "S"))
    for first, second in zip(small, split, strict=False):
        yield "M, S", first, second


def _once(pairs: Iterable[tuple[Record, Record]]) -> list[tuple[Record, Record]]:
    """Pairs of two settings, each in the order in which it comes first."""
    found: list[tuple[Record, Record]] = []
    for first, second in pairs:
        if first is not second and (first, second) not in found and (second, first) not in found:
            found.append((first, second))
    return found


def _name(arm: str, row: Record) -> str:
    if arm == "B":
        return f"d_k = {row['head_dim']}"
    return f"width {row['d_model']}" if arm == "M, S" else f"h = {row['num_heads']}"


def _sign(found: Interval | None) -> str:
    if found is None or found.low <= 0 <= found.high:
        return "undecided"
    return "higher" if found.low > 0 else "lower"


def differences_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each comparison. None where no setting has more than one seed."""
    lines = [
        (row.arm, f"{row.first} over {row.second}", signed(row.paired), _sign(row.paired), signed(row.welch))
        for row in differences(data)
        if row.paired is not None and row.welch is not None
    ]
    if not lines:
        return None
    note = (
        "Difference of mean perplexities with the 95% interval over shared seeds (Student's, of the differences), "
        "what it says of the first, and Welch's interval, which takes the seeds as unrelated. One comparison at a "
        "time: of 20 differences that are none, one is expected to look like one, and the best of an arm is chosen "
        "from the same trainings. Where the two intervals disagree more seeds would have to tell; CLAIMS.md takes the "
        "first, as seeds decide the order of the pairs in every setting."
    )
    columns = ("arm", "perplexity of", "shared seeds", "first is", "Welch")
    return Cells("Resolved by the seeds?", columns, tuple(lines), note)


def values(data: Mapping[str, Any]) -> dict[str, str]:
    """Numbers for prose.

    ``difference.A.h16.h8`` (B: ``k4.k16``; M against S: ``w64.w96``), ``sign.`` and ``welch.`` of it.
    """
    out = {}
    short = {"h = ": "h", "d_k = ": "k", "width ": "w"}
    for row in differences(data):
        place = f"{row.arm[0]}.{row.first}.{row.second}"
        for word, letter in short.items():
            place = place.replace(word, letter)
        if row.paired is not None and row.welch is not None:
            out[f"difference.{place}"], out[f"welch.{place}"] = signed(row.paired), signed(row.welch)
            out[f"sign.{place}"] = _sign(row.paired)
    return out
