"""Verdicts on what was expected, from the records alone; the expectations are in the package's docstring."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from experiments.claims import Claim, Verdict, judged
from experiments.points import Record
from experiments.reading import select

ROUNDING = 1e-5
"""Error of an expectation from weights kept in float32."""


def claim_rows(points: Sequence[Record], curves: Sequence[Record]) -> list[Record]:
    """One row a claim: ``verdict`` is ``held``, ``failed`` or ``not_run``."""
    return judged(CLAIMS, points, [row for row in curves if row["least_error"] is not None])


def _span(values: Iterable[float]) -> str:
    ordered = sorted(values)
    low, high = f"{ordered[0]:.3f}", f"{ordered[-1]:.3f}"
    return low if low == high else f"{low} to {high}"


def _linear(curves: Sequence[Record], budget: int | None = 60) -> list[Record]:
    rows = select(curves, readout="linear")
    return rows if budget is None else select(rows, total_key_dim=budget)


def _floor(points: Sequence[Record], _: Sequence[Record]) -> Verdict | None:
    rows = [r for r in select(points, readout="linear") if r["expected_error"] is not None]
    over = [r["expected_error"] - r["predicted_error_floor"] for r in rows]
    return (min(over) >= -ROUNDING, f"error less floor in {len(over)} runs: {_span(over)}") if over else None


def _attained(_: Sequence[Record], curves: Sequence[Record]) -> Verdict | None:
    over = [
        r["least_error"] - r["predicted_error_floor"]
        for r in _linear(curves, None)
        if r["num_heads"] < r["num_relations"]
    ]
    return (max(over) <= 0.02, f"best error less floor {_span(over)}") if over else None


def _enough(_: Sequence[Record], curves: Sequence[Record]) -> Verdict | None:
    rows = [r for r in _linear(curves) if r["num_heads"] == r["num_relations"]]
    if not rows:
        return None
    errors, right = [r["least_error"] for r in rows], [r["largest_accuracy"] for r in rows]
    found = f"best error {_span(errors)}, accuracy {_span(right)}"
    return max(errors) < 0.02 and min(right) > 0.98, found


def _more(_: Sequence[Record], curves: Sequence[Record]) -> Verdict | None:
    changes = [
        more["least_error"] - at["least_error"]
        for at in _linear(curves)
        if at["num_heads"] == at["num_relations"]
        for more in select(_linear(curves), num_relations=at["num_relations"])
        if more["num_heads"] > at["num_heads"]
    ]
    return (max(map(abs, changes)) < 0.02, f"change of the best error {_span(changes)}") if changes else None


def _gaussian(points: Sequence[Record], _: Sequence[Record]) -> Verdict | None:
    rows = [
        r
        for r in select(points, readout="mlp", values="gaussian", status="ok")
        if r["num_heads"] < r["num_relations"]
    ]
    if not rows:
        return None
    over = [(r["error"] - r["predicted_error_floor"]) / r["standard_error"] for r in rows]
    errors = [r["error"] - r["predicted_error_floor"] for r in rows]
    found = f"{len(rows)} runs: error less floor {_span(errors)}, least {min(over):.1f} standard errors"
    return min(over) >= -3, found


def _signs(_: Sequence[Record], curves: Sequence[Record]) -> Verdict | None:
    rows = [
        r
        for r in select(curves, values="signs", attention="mixed")
        if r["num_relations"] <= 2 * r["num_heads"]
    ]
    shares = [r["least_error"] / r["predicted_error_floor"] for r in rows]
    return (max(shares) < 0.5, f"best error over floor {_span(shares)}") if shares else None


def _training(_: Sequence[Record], curves: Sequence[Record]) -> Verdict | None:
    rows = [
        r
        for r in select(curves, readout="mlp", values="signs", attention="trained")
        if r["num_heads"] < r["num_relations"]
    ]
    over = [r["least_error"] - r["predicted_error_floor"] for r in rows]
    return (max(map(abs, over)) <= 0.05, f"best error less floor {_span(over)}") if over else None


def _thin(_: Sequence[Record], curves: Sequence[Record]) -> Verdict | None:
    found = [select(_linear(curves, budget), num_relations=4, num_heads=4) for budget in (12, 60)]
    if not all(found):
        return None
    thin, wide = (rows[0]["least_error"] for rows in found)
    return wide < thin < 0.25, f"best error {thin:.3f} at D_K = 12, {wide:.3f} at 60"


CLAIMS = (
    Claim("floor", "no linear run below (R - h) / R", _floor),
    Claim("attained", "best linear run within 0.02 of it at h < R", _attained),
    Claim("enough", "at h = R, D_K = 60 error below 0.02, accuracy above 0.98", _enough),
    Claim("more", "at D_K = 60 heads beyond R change the error by less than 0.02", _more),
    Claim("Gaussian values", "no MLP below the floor by three standard errors", _gaussian),
    Claim("signs", "mixtures set by hand, read by an MLP, below half the floor (two targets a head)", _signs),
    Claim("training", "with attention trained the MLP on signs stays within 0.05 of the floor", _training),
    Claim("thin heads", "R = h = 4 at D_K = 12: worse than at 60, better than three heads can be", _thin),
)
