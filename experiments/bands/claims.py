"""Verdicts on what was expected, from the records alone; the expectations are in the package's docstring."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, median

from experiments.claims import Claim, Verdict, judged
from experiments.points import Record
from experiments.reading import select

Points = Sequence[Record]


def claim_rows(points: Points) -> list[Record]:
    """One row a claim: ``verdict`` is ``held``, ``failed`` or ``not_run``."""
    return judged(CLAIMS, points)


def _exact(points: Points, **wanted: object) -> list[Record]:
    return select(points, exact_recovery=True, **wanted)


def _above(rows: Iterable[Record]) -> list[bool]:
    return [row["information"] > row["shuffled_high"] for row in rows]


def _count(rows: Sequence[Record]) -> str:
    average = fmean(row["information"] for row in rows)
    chance = fmean(row["shuffled_mean"] for row in rows)
    return f"{sum(_above(rows))} of {len(rows)} runs above; mean {average:.3f}, shuffled {chance:.3f}"


def _joint(points: Points) -> Verdict | None:
    rows = _exact(points, graph="words", trainer="joint")
    if not rows:
        return None
    held = 2 * sum(_above(rows)) >= len(rows) and fmean(row["information"] for row in rows) < 0.2
    return held, _count(rows)


def _greedy(points: Points) -> Verdict | None:
    rows = _exact(points, graph="words", trainer="greedy")
    return (4 * sum(_above(rows)) <= len(rows), _count(rows)) if rows else None


def _shuffled(points: Points) -> Verdict | None:
    rows = _exact(points, graph="words-shuffled", trainer="joint")
    return (4 * sum(_above(rows)) <= len(rows), _count(rows)) if rows else None


def _bands(points: Points) -> Verdict | None:
    rows = [row for row in _exact(points, graph="words", trainer="joint") if row["query_overlap"] is not None]
    if not rows:
        return None
    ratios = {
        name: median(row[f"{name}_overlap"] / row["random_overlap"] for row in rows)
        for name in ("query", "key")
    }
    found = ", ".join(f"{name} {ratio:.2f} of random" for name, ratio in ratios.items())
    return min(ratios.values()) >= 0.9, f"median overlap: {found} ({len(rows)} runs)"


def _price(points: Points) -> Verdict | None:
    wanted = {("by-kind", 48): None, ("by-kind", 16): None, ("greedy", 16): None}
    shares = {}
    for trainer, budget in wanted:
        rows = select(points, graph="words", trainer=trainer, total_key_dim=budget)
        if not rows:
            return None
        shares[trainer, budget] = fmean(row["exact_recovery"] for row in rows)
    found = ", ".join(f"{trainer} at {budget}: {share:.2f}" for (trainer, budget), share in shares.items())
    held = shares["by-kind", 48] >= 0.5 > shares["by-kind", 16] and shares["greedy", 16] >= 0.5
    return held, f"share of graphs recovered: {found}"


CLAIMS = (
    Claim("joint", "winning heads tell of kinds in at least half of the runs, below 0.2 on average", _joint),
    Claim("greedy", "at chance: above it in at most a quarter of the runs", _greedy),
    Claim("shuffled targets", "joint training at chance: in at most a quarter above it", _shuffled),
    Claim("no bands", "joint heads' overlap at least 0.9 of that of random subspaces", _bands),
    Claim("price", "one head a kind: enough at D_K = 48, not at 16, where free heads do", _price),
)
