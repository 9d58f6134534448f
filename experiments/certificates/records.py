"""What is made of the batches: curves, half-way points, their drift with d, and verdicts on what was expected."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import numpy as np

from experiments.claims import Claim, Verdict, judged
from experiments.engine import Rows
from experiments.points import Record
from experiments.reading import select, wilson
from theory.partitions import partition_max_items, partition_success_probability
from theory.transition import fit_threshold

_LOGIT_RANGE = 2 * log(9.0)  # of a logistic curve from 90% to 10%, in units of 1 / slope


def summary(rows: Rows) -> Rows:
    """Curves (a row for d, h and m), half-way points (d and h), drift (a row for h), claims."""
    curves = _curves(rows["points"])
    places = _places(curves)
    drift = _drift(places)
    return {
        "curves": curves,
        "places": places,
        "drift": drift,
        "claims": claim_rows(rows["points"], curves, places, drift),
    }


def claim_rows(
    points: Sequence[Record], curves: Sequence[Record], places: Sequence[Record], drift: Sequence[Record]
) -> list[Record]:
    """One row a claim: ``verdict`` is ``held``, ``failed`` or ``not_run``."""
    return judged(CLAIMS, points, curves, places, drift)


def _curves(points: Sequence[Record]) -> list[Record]:
    groups: dict[tuple[int, int, int], list[Record]] = {}
    for row in points:
        groups.setdefault((row["d_model"], row["num_heads"], row["num_items"]), []).append(row)
    curves = []
    for (d, h, m), own in sorted(groups.items()):
        count = {name: len(select(own, verdict=name)) for name in ("separable", "inseparable", "undecided")}
        decided = count["separable"] + count["inseparable"]
        low, high = wilson(count["separable"], decided)
        curves.append(
            {"d_model": d, "num_heads": h, "num_items": m}
            | count
            | {
                "share": count["separable"] / decided if decided else None,
                "share_low": low,
                "share_high": high,
                "predicted_share": partition_success_probability(m, m, d, h),
            }
        )
    return curves


def _places(curves: Sequence[Record]) -> list[Record]:
    """The size at which half of the partitions are held; undecided ones are left out of both counts."""
    places = []
    for d, h in sorted({(row["d_model"], row["num_heads"]) for row in curves}):
        own = [row for row in select(curves, d_model=d, num_heads=h) if row["share"] is not None]
        trials = [row["separable"] + row["inseparable"] for row in own]
        found = fit_threshold(
            [row["num_items"] for row in own], [row["separable"] for row in own], trials, decreasing=True
        )
        predicted = partition_max_items(d, h)
        reach = partition_max_items(d, h, 0.1) - partition_max_items(d, h, 0.9)
        fine = found.estimate is not None and not found.capped and found.ci_low and found.ci_high
        measured = found.estimate if fine else None
        places.append(
            {
                "d_model": d,
                "num_heads": h,
                "predicted_num_items": predicted,
                "predicted_range": reach,
                "measured_num_items": measured,
                "ci_low": found.ci_low if fine else None,
                "ci_high": found.ci_high if fine else None,
                "measured_range": _LOGIT_RANGE / found.slope if fine and found.slope else None,
                "ratio": measured / predicted if measured else None,
                "num_seeds": max(trials),
            }
        )
    return places


def _drift(places: Sequence[Record]) -> list[Record]:
    """For every head count, and for all together (None): ``ratio = limit + slope / d`` by weighted least squares.

    The interval comes from the intervals of the half-way points, which count as normal and independent.
    """
    good = [row for row in places if row["ratio"] is not None]
    rows = []
    for h in [*sorted({row["num_heads"] for row in good}), None]:
        own = good if h is None else select(good, num_heads=h)
        if len({row["d_model"] for row in own}) < 2:
            continue
        error = np.array(
            [(row["ci_high"] - row["ci_low"]) / (2 * 1.96 * row["predicted_num_items"]) for row in own]
        )
        weights = 1.0 / np.maximum(error, 1e-4)
        design = np.stack([np.ones(len(own)), [1.0 / row["d_model"] for row in own]], axis=1)
        covariance = np.linalg.inv((design * weights[:, None] ** 2).T @ design)
        limit, slope = covariance @ (design * weights[:, None] ** 2).T @ [row["ratio"] for row in own]
        half = 1.96 * float(np.sqrt(covariance[0, 0]))
        rows.append(
            {
                "num_heads": h,
                "limit": float(limit),
                "limit_low": float(limit) - half,
                "limit_high": float(limit) + half,
                "slope": float(slope),
                "slope_half_width": 1.96 * float(np.sqrt(covariance[1, 1])),
                "num_places": len(own),
            }
        )
    return rows


def _decided(points: Sequence[Record], *_: Sequence[Record]) -> Verdict | None:
    if not points:
        return None
    open_ = len(select(points, verdict="undecided"))
    return open_ <= 0.01 * len(points), f"{open_} of {len(points)} undecided"


def _proofs(points: Sequence[Record], *_: Sequence[Record]) -> Verdict | None:
    failed = select(points, verdict="inseparable")
    if not failed:
        return None
    proven = sum(row["proven"] for row in failed)
    return proven >= 0.9 * len(failed), f"{proven} of {len(failed)} failed partitions"


def _place(
    _: Sequence[Record], __: Sequence[Record], places: Sequence[Record], *___: object
) -> Verdict | None:
    ratios = [row["ratio"] for row in places if row["ratio"] is not None]
    if not ratios:
        return None
    return min(ratios) >= 1 and max(ratios) <= 1.07, f"{min(ratios):.3f} to {max(ratios):.3f}"


def _width(
    _: Sequence[Record], __: Sequence[Record], places: Sequence[Record], *___: object
) -> Verdict | None:
    found = [
        row["measured_range"] / row["predicted_range"] for row in places if row["measured_range"] is not None
    ]
    if not found:
        return None
    return min(found) >= 0.5 and max(
        found
    ) <= 2, f"{min(found):.2f} to {max(found):.2f} of the predicted range"


def _falls(
    _: Sequence[Record], __: Sequence[Record], ___: Sequence[Record], drift: Sequence[Record]
) -> Verdict | None:
    rows = select(drift, num_heads=None)
    if not rows:
        return None
    [row] = rows
    near = row["limit_low"] <= 1.01 and row["limit_high"] >= 0.99
    found = f"ratio = {row['limit']:.3f} [{row['limit_low']:.3f}, {row['limit_high']:.3f}] + {row['slope']:.2f} / d"
    return row["slope"] > 0 and near, found


def _same(
    _: Sequence[Record], __: Sequence[Record], places: Sequence[Record], *___: object
) -> Verdict | None:
    spreads = []
    for d in sorted({row["d_model"] for row in places}):
        ratios = [row["ratio"] for row in select(places, d_model=d) if row["ratio"] is not None]
        if len(ratios) > 1:
            spreads.append((max(ratios) - min(ratios), d))
    if not spreads:
        return None
    return max(spreads)[0] <= 0.03, ", ".join(f"d = {d}: {spread:.3f}" for spread, d in spreads)


CLAIMS = (
    Claim("decided", "at most 1 in 100 undecided", _decided),
    Claim("proofs", "9 of 10 failed heads fail in exact arithmetic", _proofs),
    Claim("place", "half-way points 0% to 7% above the prediction", _place),
    Claim("width", "from half to twice the predicted range", _width),
    Claim("drift", "falls with d, to 1 at infinite d", _falls),
    Claim("heads", "the same ratio for all head counts, within 0.03", _same),
)
