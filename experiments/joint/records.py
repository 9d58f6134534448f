"""What is made of the batches: curves, thresholds, and verdicts on what was expected."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from experiments.claims import Claim, Verdict, judged
from experiments.engine import Rows
from experiments.joint.config import REFERENCE
from experiments.joint.units import RECOVERED
from experiments.points import Record
from experiments.reading import select
from theory.bounds import parameter_count_total_key_dim, partition_total_key_dim
from theory.transition import fit_threshold

_SHARED = ("variant", "num_items", "d_model", "num_heads", "head_dim", "total_key_dim")


def summary(rows: Rows) -> Rows:
    """Curves (a row for a variant, head count and budget), thresholds (variant and head count), claims."""
    curves = _curves(rows["points"])
    thresholds = _thresholds(curves)
    return {"curves": curves, "thresholds": thresholds, "claims": claim_rows(curves, thresholds)}


def claim_rows(curves: Sequence[Record], thresholds: Sequence[Record]) -> list[Record]:
    """One row a claim: ``verdict`` is ``held``, ``failed`` or ``not_run``."""
    return judged(CLAIMS, curves, thresholds)


def _curves(points: Sequence[Record]) -> list[Record]:
    groups: dict[tuple, list[Record]] = {}
    for row in points:
        groups.setdefault(tuple(row[name] for name in _SHARED), []).append(row)
    curves = []
    for key, own in groups.items():
        good = [row for row in own if row["status"] == "ok"]
        f1 = [row["best_f1"] for row in good]
        settled = [row["settled"] for row in good if row["settled"] is not None]
        curves.append(
            dict(zip(_SHARED, key, strict=True))
            | {
                "num_seeds": len(own),
                "failed": len(own) - len(good),
                "median_f1": median(f1) if f1 else None,
                "least_f1": min(f1, default=None),
                "largest_f1": max(f1, default=None),
                "recovered": sum(value >= RECOVERED for value in f1),
                "exact": sum(bool(row["exact"]) for row in good),
                "settled": np.mean(settled, axis=0).round(4).tolist() if settled else None,
            }
        )
    return curves


def _thresholds(curves: Sequence[Record]) -> list[Record]:
    thresholds = []
    for variant, h in dict.fromkeys((row["variant"], row["num_heads"]) for row in curves):
        own = sorted(select(curves, variant=variant, num_heads=h), key=lambda row: row["total_key_dim"])
        m, d = own[0]["num_items"], own[0]["d_model"]
        found = fit_threshold(
            [row["total_key_dim"] for row in own],
            [row["recovered"] for row in own],
            [row["num_seeds"] for row in own],
        )
        laws = (partition_total_key_dim(m, m, d, h), parameter_count_total_key_dim(m, m, d, h))
        thresholds.append(
            {
                "variant": variant,
                "num_items": m,
                "d_model": d,
                "num_heads": h,
                "status": found.status,
                "measured_total_key_dim": found.estimate,
                "ci_low": found.ci_low,
                "ci_high": found.ci_high,
                "capped": found.capped,
                "smallest_exact": min((r["total_key_dim"] for r in own if r["exact"]), default=None),
                "largest_budget": own[-1]["total_key_dim"],
                "partition_total_key_dim": laws[0] if np.isfinite(laws[0]) else None,
                "parameter_count_total_key_dim": laws[1] if np.isfinite(laws[1]) else None,
            }
        )
    return thresholds


def _place(thresholds: Sequence[Record], variant: str, heads: int) -> float | None:
    """The threshold; the largest budget plus one where it was not reached (so that ratios are bounds)."""
    rows = select(thresholds, variant=variant, num_heads=heads)
    if not rows:
        return None
    value = rows[0]["measured_total_key_dim"]
    return rows[0]["largest_budget"] + 1.0 if value is None else value


def _ratios(thresholds: Sequence[Record], first: str, second: str) -> dict[int, float]:
    """Thresholds of one variant over those of another, where one of them was reached."""
    ratios = {}
    for h in sorted({row["num_heads"] for row in thresholds}):
        pair = [select(thresholds, variant=name, num_heads=h) for name in (first, second)]
        reached = [rows and rows[0]["measured_total_key_dim"] is not None for rows in pair]
        a, b = (_place(thresholds, name, h) for name in (first, second))
        if a is not None and b is not None and any(reached):
            ratios[h] = a / b
    return ratios


def _said(ratios: dict[int, float]) -> str:
    return ", ".join(f"{h} heads: {ratio:.2f}" for h, ratio in ratios.items())


def _settled_at(curves: Sequence[Record], variant: str) -> list[float]:
    """Share of edges with their final head at 5% of the steps, for every budget and head count."""
    rows = [row for row in select(curves, variant=variant) if row["settled"]]
    return [row["settled"][max(0, len(row["settled"]) // 20 - 1)] for row in rows]


def _frozen(curves: Sequence[Record], _: Sequence[Record]) -> Verdict | None:
    shares = _settled_at(curves, "adam")
    return (min(shares) >= 0.95, f"{min(shares):.3f} to {max(shares):.3f}") if shares else None


def _late(curves: Sequence[Record], _: Sequence[Record]) -> Verdict | None:
    shares = _settled_at(curves, "anneal")
    return (max(shares) <= 0.5, f"{min(shares):.3f} to {max(shares):.3f}") if shares else None


def _within(first: str, second: str, low: float, high: float):
    def judge(_: Sequence[Record], thresholds: Sequence[Record]) -> Verdict | None:
        ratios = _ratios(thresholds, first, second)
        fine = all(low <= ratio <= high for ratio in ratios.values())
        return (fine, _said(ratios)) if ratios else None

    return judge


def _two_heads(_: Sequence[Record], thresholds: Sequence[Record]) -> Verdict | None:
    rows = select(thresholds, num_heads=2)
    adam, annealed = select(rows, variant="adam"), select(rows, variant="anneal-hinge")
    if not adam or not annealed:
        return None
    fine = adam[0]["status"] == "not_reached" and annealed[0]["status"] == "reached"
    found = [f"{r[0]['variant']} {r[0]['measured_total_key_dim'] or 'not reached'}" for r in (adam, annealed)]
    return fine, ", ".join(found)


CLAIMS = (
    Claim("frozen", "adam: 95% of the edges with their final head by 5% of the steps", _frozen),
    Claim(
        "partition", "dealt edges: threshold within 15% of adam's", _within("partition", "adam", 0.85, 1.15)
    ),
    Claim("schedule", "decay: within 10% of adam", _within("decay", "adam", 0.9, 1.1)),
    Claim(
        "unfrozen", "anneal-hinge: at most 0.8 of adam's budget", _within("anneal-hinge", "adam", 0.0, 0.8)
    ),
    Claim(
        "gap closed",
        "anneal-hinge: at most 1.15 of head-by-head training's",
        _within("anneal-hinge", REFERENCE, 0.0, 1.15),
    ),
    Claim("late winners", "anneal: at most half of the edges settled by 5% of the steps", _late),
    Claim("two heads", "adam fails at every budget, anneal-hinge recovers", _two_heads),
)
