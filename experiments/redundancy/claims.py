"""Verdicts on what was expected, from the curves alone; the expectations are in the package's docstring."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments import points
from experiments.claims import Claim, Verdict, judged
from experiments.intervals import Interval, student
from experiments.reading import Record, select
from experiments.translation.model import ATTENTIONS

Curves = Sequence[Record]
LATE, KEPT = 0.4, 0.85
"""Published: so many heads can go at so much of the BLEU, late in training."""
KIND = 0.6
"""Published: beyond this part of the heads that attend the source BLEU collapses."""


def claim_rows(curves: Curves) -> list[points.Record]:
    """One row a claim: ``verdict`` is ``held``, ``failed`` or ``not_run``."""
    return judged(CLAIMS, curves)


def kept_at(curve: Record, name: str, fraction: float, end: str = "") -> float | None:
    """The share of ``bleu`` or ``gain`` that is kept without a part of the heads; None where it was not measured."""
    shares = curve[f"{name}_kept{end}"]
    if shares is None or fraction not in curve["fraction_pruned"]:
        return None
    return shares[curve["fraction_pruned"].index(fraction)]


def by_time(curves: Curves, order: str, name: str) -> list[Record]:
    """Curves of an order that have shares, the earliest checkpoint first."""
    own = [curve for curve in select(curves, order=order) if curve[f"{name}_kept"] is not None]
    return sorted(own, key=lambda curve: curve["steps"])


def _late(curves: Curves) -> Verdict | None:
    own = by_time(curves, "importance", "bleu")
    if not own or own[-1]["fraction_trained"] < 1:
        return None
    kept = kept_at(own[-1], "bleu", LATE)
    if kept is None:
        return None
    low, high = (kept_at(own[-1], "bleu", LATE, end) for end in ("_low", "_high"))
    return kept < KEPT, f"{kept:.0%} of BLEU {own[-1]['bleu']:.1f} (models {low:.0%} to {high:.0%})"


def _appears(curves: Curves) -> Verdict | None:
    own = by_time(curves, "importance", "bleu")
    if len(own) < 2:
        return None
    first, last = (kept_at(curve, "bleu", LATE) for curve in (own[0], own[-1]))
    if first is None or last is None:
        return None
    early = f"{first:.0%} after {own[0]['fraction_trained']:.0%} of training (BLEU {own[0]['bleu']:.1f})"
    return last > first, f"{early}, {last:.0%} at the end"


def _margins(curves: Curves, at: int) -> np.ndarray | None:
    """Mean share of the gain over the fractions, by I_h minus at random, for every model of a checkpoint."""
    both = [by_time(curves, order, "gain") for order in ("importance", "random")]
    if not all(both) or both[0][at]["steps"] != both[1][at]["steps"]:
        return None
    ours, chance = (np.array(own[at]["gain_by_seed"]).mean(axis=1) for own in both)
    return ours - chance if len(ours) == len(chance) else None


def _order(curves: Curves) -> Verdict | None:
    margins = _margins(curves, -1)
    if margins is None:
        return None
    found = f"{margins.mean():+.3f} of the gain (models {margins.min():+.3f} to {margins.max():+.3f})"
    return bool(margins.min() > 0), found


def _early_order(curves: Curves) -> Verdict | None:
    early, late = _margins(curves, 0), _margins(curves, -1)
    if early is None or late is None or len(by_time(curves, "importance", "gain")) < 2:
        return None
    found = f"{early.mean():+.3f} of the gain at the first checkpoint, {late.mean():+.3f} at the end"
    return bool(early.mean() < late.mean()), found


def time_differences(curves: Curves) -> list[tuple[str, Interval, str]]:
    """Of every model the last checkpoint minus the first: BLEU kept without `LATE` of the heads, and the margin of I_h.

    Returns:
        What, mean and interval, format of the numbers; none of fewer than two models, which have no interval.
    """
    found: list[tuple[str, Interval, str]] = []
    own = by_time(curves, "importance", "bleu")
    if len(own) > 1 and all(LATE in curve["fraction_pruned"] for curve in own):
        at = own[0]["fraction_pruned"].index(LATE)
        first, last = (np.array(curve["bleu_by_seed"])[:, at] for curve in (own[0], own[-1]))
        if len(first) == len(last) > 1:
            what = f"share of the BLEU kept without {LATE:.0%} of the heads by I_h"
            found.append((what, student(list(last - first)), ".2f"))
    early, late = _margins(curves, 0), _margins(curves, -1)
    several = len(by_time(curves, "importance", "gain")) > 1
    if several and early is not None and late is not None and len(early) == len(late) > 1:
        what = "share of the gain kept by I_h over that in random order"
        found.append((what, student(list(late - early)), ".3f"))
    return found


def _source(curves: Curves) -> Verdict | None:
    shares = {}
    for kind in ATTENTIONS:
        own = by_time(curves, kind, "bleu")
        shares[kind] = kept_at(own[-1], "bleu", KIND) if own else None
    if any(share is None for share in shares.values()):
        return None
    found = ", ".join(f"{kind} {share:.0%}" for kind, share in shares.items())
    least = min(shares, key=lambda kind: shares[kind])  # type: ignore[arg-type, return-value]
    return least == "source", f"{found} of the BLEU"


CLAIMS = (
    Claim(
        "late",
        "at the end less than 85% of the BLEU without 40% of the heads by I_h (published: more)",
        _late,
    ),
    Claim("appears", "without 40% of the heads more of the BLEU is kept at the end than at first", _appears),
    Claim("order", "at the end I_h keeps more of the gain than random orders, for every model", _order),
    Claim(
        "early order",
        "at the first checkpoint it does so by less (published: I_h says nothing)",
        _early_order,
    ),
    Claim(
        "source", "without 60% of a kind's heads the source's keep least BLEU (published: collapse)", _source
    ),
)
