"""Verdicts on what was expected, from the records alone; the expectations are in the package's docstring."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from experiments.claims import Claim, Verdict, judged
from experiments.points import Record
from experiments.reading import select


def claim_rows(table: Sequence[Record], jumps: Sequence[Record]) -> list[Record]:
    """One row a claim: ``verdict`` is ``held``, ``failed`` or ``not_run``."""
    return judged(CLAIMS, table, jumps)


def _span(values: Iterable[float], form: str = ".2f") -> str:
    low, high = min(values := list(values)), max(values)
    return f"{low:{form}}" if low == high else f"{low:{form}} to {high:{form}}"


def _jump_places(rows: Sequence[Record]) -> Verdict | None:
    if not rows:
        return None
    right = [row["best_jump_at"] == row["median_jump_at"] == row["expected_heads"] for row in rows]
    wrong = ", ".join(
        f"D = {row['num_targets']}, T = {row['length']}: at {row['best_jump_at']} (best), "
        f"{row['median_jump_at']} (median)"
        for row, fine in zip(rows, right, strict=True)
        if not fine
    )
    return all(right), f"{sum(right)} of {len(rows)} curves" + (f"; {wrong}" if wrong else "")


def _jump(_: Sequence[Record], jumps: Sequence[Record]) -> Verdict | None:
    return _jump_places(select(jumps, curve="main"))


def _ratio(_: Sequence[Record], jumps: Sequence[Record]) -> Verdict | None:
    rows = select(jumps, curve="main", num_targets=4, length=128)
    if not rows:
        return None
    [row] = rows
    interval = f"[{row['ratio_low']:.0f}, {row['ratio_high']:.0f}]"
    found = (
        f"least of all runs {row['best_ratio']:.0f}, seeds' best runs {row['seed_ratio']:.0f} {interval}, "
        f"median of all runs {row['median_ratio']:.0f}"
    )
    return min(row["best_ratio"], row["median_ratio"]) >= 100, found


def _unread(table: Sequence[Record], _: Sequence[Record]) -> Verdict | None:
    rows = [r for r in select(table, curve="main") if r["num_heads"] < r["num_targets"] and r["best_nmse"]]
    if not rows:
        return None
    shares = [row["best_nmse"] / row["predicted_nmse"] for row in rows]
    return 0.5 <= min(shares) <= max(shares) <= 1.05, f"error / prediction {_span(shares)}"


def _above(table: Sequence[Record], _: Sequence[Record]) -> Verdict | None:
    factors = []
    for at in select(table, curve="main"):
        if at["num_heads"] == at["num_targets"] and at["best_nmse"]:
            place = {"curve": "main", "num_targets": at["num_targets"], "length": at["length"]}
            factors += [
                row["best_nmse"] / at["best_nmse"]
                for row in select(table, **place)
                if row["num_heads"] > at["num_heads"] and row["best_nmse"]
            ]
    if not factors:
        return None
    return 0.1 <= min(factors) <= max(factors) <= 10, f"error over that at D {_span(factors)}"


def _uniform(table: Sequence[Record], _: Sequence[Record]) -> Verdict | None:
    rows = [r for r in select(table, curve="uniform") if r["best_nmse"]]
    if not rows:
        return None
    shares = [row["median_nmse"] / row["predicted_nmse"] for row in rows]
    return 0.9 <= min(shares) <= max(shares) <= 1.1, f"error / theorem {_span(shares)}"


def _moved(_: Sequence[Record], jumps: Sequence[Record]) -> Verdict | None:
    return _jump_places(select(jumps, curve="random") + select(jumps, curve="fixed-width"))


def _mlp(table: Sequence[Record], jumps: Sequence[Record]) -> Verdict | None:
    rows = []
    for row in select(jumps, curve="mlp"):
        beside = select(jumps, curve="mlp-beside", num_targets=row["num_targets"], length=row["length"])
        rows += [(row, other) for other in beside if row["best_ratio"] and other["best_ratio"]]
    if not rows:
        return None
    below = [
        r["best_nmse"] < other["best_nmse"]
        for r in select(table, curve="mlp")
        if r["num_heads"] < r["num_targets"]
        for other in select(
            table,
            curve="mlp-beside",
            num_heads=r["num_heads"],
            num_targets=r["num_targets"],
            length=r["length"],
        )
    ]
    smaller = [row["best_ratio"] < other["best_ratio"] for row, other in rows]
    text = "; ".join(
        f"T = {row['length']}: ratio {row['best_ratio']:.0f} against {other['best_ratio']:.0f}"
        for row, other in rows
    )
    return all(smaller) and all(below), text


def _layers(_: Sequence[Record], jumps: Sequence[Record]) -> Verdict | None:
    return _jump_places(select(jumps, curve="two-layer"))


def _general(_: Sequence[Record], jumps: Sequence[Record]) -> Verdict | None:
    return _jump_places(select(jumps, curve="general"))


def _maps(table: Sequence[Record], _: Sequence[Record]) -> Verdict | None:
    rows = [
        row
        for row in select(table, curve="main")
        if row["num_heads"] == row["num_targets"] and row["matched"] is not None
    ]
    if not rows:
        return None
    low = min(row["matched_low"] for row in rows)
    found = f"worst head of the best runs {_span([r['matched'] for r in rows], '.4f')} (lower end of 95% {low:.4f})"
    return min(row["matched"] for row in rows) > 0.99, found


def _copying(table: Sequence[Record], _: Sequence[Record]) -> Verdict | None:
    wide = [r for r in select(table, curve="wide") if r["best_nmse"]]
    heads = [r for r in select(table, curve="heads") if r["best_nmse"]]
    flat = {r["length"]: r["best_nmse"] for r in select(table, curve="heads-uniform")}
    if not wide or not heads or not flat:
        return None
    changes = [row["best_nmse_uniform"] / row["best_nmse"] for row in wide]
    collapse = [row["best_nmse_uniform"] / flat[row["length"]] for row in heads if row["length"] in flat]
    held = max(changes) <= 1.1 and min(collapse) >= 1
    found = (
        f"wide head's error x {_span(changes, '.1f')} under uniform weights; D heads: {_span(collapse, '.0f')} "
        "times the error of a model trained with uniform attention"
    )
    return held, found


R = TypeVar("R", bound=Mapping[str, Any])
WORK_ERROR = 0.1
"""Error at which read-outs are compared (chosen when the errors were known)."""


def smallest_readout(rows: Iterable[R]) -> R | None:
    """The model with the smallest read-out among those with at most `WORK_ERROR`, None where there is none."""
    enough = [row for row in rows if row["best_nmse"] and row["best_nmse"] <= WORK_ERROR]
    return min(enough, key=lambda row: row["num_readout_parameters"], default=None)


def _work(table: Sequence[Record], _: Sequence[Record]) -> Verdict | None:
    lengths = sorted({row["length"] for row in select(table, curve="copy")})
    heads, copy = (
        [smallest_readout(select(table, curve=curve, length=length)) for length in lengths]
        for curve in ("heads", "copy")
    )
    if len(lengths) < 2 or not select(table, curve="heads"):
        return None
    # Hidden units have to grow: parameters do so with the copied input alone.
    units = [None if row is None else row["readout_width"] for row in copy]
    grows = all(a is not None and (b is None or a < b) for a, b in pairwise(units))
    same = None not in heads and len({row["num_readout_parameters"] for row in heads if row}) == 1

    def text(rows: Sequence[Record | None]) -> str:
        return ", ".join("more than tried" if r is None else f"{r['num_readout_parameters']:,}" for r in rows)

    return grows and same, f"T = {lengths}: copying {text(copy)}; D heads {text(heads)}"


CLAIMS = (
    Claim("jump", "largest fall of the error at h = D, for every D and T", _jump),
    Claim("ratio", "at least 100 at T = 128, D = 4", _ratio),
    Claim("below D", "error between 0.5 and 1.05 of the prediction for unread targets", _unread),
    Claim("above D", "within a factor 10 of the error at D", _above),
    Claim("uniform", "uniform attention within 10% of its exact error", _uniform),
    Claim("directions, width", "random directions and a fixed E move no jump", _moved),
    Claim("MLP encoder", "smaller errors below D, smaller ratio at D than a linear encoder", _mlp),
    Claim("layers", "two layers jump at L h = D", _layers),
    Claim("general", "the general task jumps at h = D", _general),
    Claim("maps", "each head finds its token in more than 99%", _maps),
    Claim(
        "copying",
        "uniform weights change nothing in the wide head; D heads do worse than uniform attention",
        _copying,
    ),
    Claim(
        "work",
        f"parameters of the read-out for an error of {WORK_ERROR:g} grow with T when copying, not with D heads",
        _work,
    ),
)
