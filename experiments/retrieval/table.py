"""The `retrieval` experiment's results as tables: for the terminal and, the same, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments import claims
from experiments.reading import Record, records, select
from experiments.retrieval.claims import smallest_readout
from experiments.tables import Cells, markdown_of

_CURVES = {
    "main": "linear encoder",
    "random": "random directions",
    "fixed-width": "fixed E = n h",
    "mlp": "MLP encoder",
    "two-layer": "two layers",
    "general": "general task",
}

_COPYING = {
    "heads": "D heads",
    "heads-uniform": "D heads, kept uniform",
    "wide": "wide head",
    "copy": "wide head, kept uniform",
}


def scientific(value: float | None) -> str:
    """Two digits: ``0.23``, ``2.3e-4`` below a hundredth; a dash where there is no number."""
    if value is None:
        return "–"
    if value >= 0.01 or value == 0:
        return f"{value:#.2g}".rstrip(".") if value else "0"
    mantissa, _, power = f"{value:.1e}".partition("e")
    return f"{mantissa}e{int(power)}"


def heads_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each curve; a column for each head count: least and median error. None without curves."""
    rows = [row for row in records(data, "curves") if row["curve"] in _CURVES]
    most = max((row["num_heads"] for row in rows), default=0)
    lines = []
    for (curve, targets, length), own in _groups(rows).items():
        cells = []
        for h in range(1, most + 1):
            at = select(own, num_heads=h)
            cells.append(
                f"{scientific(at[0]['best_nmse'])} ({scientific(at[0]['median_nmse'])})" if at else ""
            )
        lines.append((_CURVES[curve], str(targets), str(length), *cells))
    if not lines:
        return None
    columns = ("curve", "D", "T", *(f"h = {h}" for h in range(1, most + 1)))
    note = "NMSE on fresh samples: least of all runs, in brackets their median."
    return Cells("Error by number of heads", columns, tuple(lines), note)


def jumps_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each curve: where the error falls most, and by how much at D. None without curves."""
    rows = [row for row in records(data, "jumps") if row["curve"] in _CURVES]
    lines = []
    for row in rows:
        ratio = "–" if row["best_ratio"] is None else _factor(row["best_ratio"])
        seeds = "–"
        if row["seed_ratio"] is not None:
            seeds = f"{_factor(row['seed_ratio'])} [{_factor(row['ratio_low'])}–{_factor(row['ratio_high'])}]"
        median = "–" if row["median_ratio"] is None else _factor(row["median_ratio"])
        found = str(row["best_jump_at"])
        if row["median_jump_at"] != row["best_jump_at"]:
            found += f" (median: {row['median_jump_at']})"
        lines.append(
            (
                _CURVES[row["curve"]],
                str(row["num_targets"]),
                str(row["length"]),
                str(row["expected_heads"]),
                found,
                ratio,
                seeds,
                median,
            )
        )
    if not lines:
        return None
    columns = ("curve", "D", "T", "expected", "found", "least\nof all", "seeds'\nbest", "median\nof all")
    note = (
        "Expected, found: head count at which the error falls by the largest factor. Then this factor at the expected "
        "head count: of the least errors of all runs; of the medians over seeds' best runs, with a 95% bootstrap "
        "interval over seeds; of the medians of all runs."
    )
    return Cells("Where the error jumps", columns, tuple(lines), note)


def _factor(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def copy_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each length and model, with and without its attention. None where they were not run."""
    rows = [row for row in records(data, "curves") if row["best_nmse"]]
    lines = []
    for length in sorted({row["length"] for row in rows if row["curve"] == "copy"}):
        for curve, name in _COPYING.items():
            best = min(
                select(rows, curve=curve, length=length), key=lambda row: row["best_nmse"], default=None
            )
            if best is not None:
                numbers = [scientific(best[key]) for key in ("best_nmse", "median_nmse", "best_nmse_uniform")]
                lines.append((str(length), name, *numbers, f"{best['num_readout_parameters']:,}"))
    if not lines:
        return None
    columns = ("T", "model", "NMSE", "median", "uniform\nweights", "read-out\nparameters")
    note = (
        "The read-out that does best for each model. Uniform weights: put in place of the trained ones, without "
        "training again."
    )
    return Cells("Copying", columns, tuple(lines), note)


def claims_cells(data: Mapping[str, Any]) -> Cells | None:
    """What was expected and what came out. None where nothing was run that could tell."""
    note = (
        "Expected: written down before the runs (`experiments/retrieval/__init__.py`); the error of 0.1 under "
        '"work" was chosen afterwards.'
    )
    return claims.claims_cells(data, note)


BLOCKS = {
    "heads": markdown_of(heads_cells),
    "jumps": markdown_of(jumps_cells),
    "copy": markdown_of(copy_cells),
    "claims": markdown_of(claims_cells),
}
"""Tables by name, for `experiments.readme`."""


def values(data: Mapping[str, Any]) -> dict[str, str]:
    """Every number of a run that prose may name, without the name of the source.

    ``main.d4.t128.h3``: least error of a curve's model (``-median``, ``-uniform``: with uniform weights put in,
    ``-predicted``, ``-published``; ``-matched``: share of its worst head). In the comparison with copying, the
    read-out's hidden units follow, as in ``copy.d4.t8.h1.n32``; ``best.copy.t8`` is the least over read-outs,
    ``parameters.copy.t8`` what an error of 0.1 takes. ``ratio.main.d4.t128``, ``seed-ratio.``, ``median-ratio.`` and
    ``jump.``: where the error jumps; ``maps.lowest``: the worst head of all best runs with h = D;
    ``claims.held``, ``claims.judged``; ``num-runs``.
    """
    rows = records(data, "curves")
    out = {"num-runs": str(len(records(data, "points")))}
    for row in rows:
        name = f"{row['curve']}.d{row['num_targets']}.t{row['length']}.h{row['num_heads']}"
        if row["curve"] in ("copy", "wide", "heads", "heads-uniform"):
            name += f".n{row['readout_width']}"
        out[name] = scientific(row["best_nmse"])
        fields = ("median_nmse", "best_nmse_uniform", "predicted_nmse", "published_nmse")
        for end, field in zip(("median", "uniform", "predicted", "published"), fields, strict=True):
            out[f"{name}-{end}"] = scientific(row[field])
        if row["matched"] is not None:
            out[f"{name}-matched"] = f"{100 * row['matched']:.1f}%"
    for curve in ("copy", "wide", "heads"):
        for length in sorted({row["length"] for row in select(rows, curve=curve)}):
            own = [row for row in select(rows, curve=curve, length=length) if row["best_nmse"]]
            if own:
                best = min(own, key=lambda row: row["best_nmse"])
                out[f"best.{curve}.t{length}"] = scientific(best["best_nmse"])
                out[f"best.{curve}.t{length}-uniform"] = scientific(best["best_nmse_uniform"])
                smallest = smallest_readout(own)
                out[f"parameters.{curve}.t{length}"] = (
                    "none" if smallest is None else f"{smallest['num_readout_parameters']:,}"
                )
    for row in records(data, "jumps"):
        place = f"{row['curve']}.d{row['num_targets']}.t{row['length']}"
        out[f"jump.{place}"] = str(row["best_jump_at"])
        for name, field in (
            ("ratio", "best_ratio"),
            ("seed-ratio", "seed_ratio"),
            ("median-ratio", "median_ratio"),
        ):
            out[f"{name}.{place}"] = "–" if row[field] is None else f"{row[field]:,.0f}"
    matched = [r["matched"] for r in rows if r["num_heads"] == r["num_targets"] and r["curve"] == "main"]
    if matched and None not in matched:
        out["maps.lowest"] = f"{100 * min(matched):.1f}%"
    return out | claims.claim_values(data)


def _groups(rows: list[Record]) -> dict[tuple[str, int, int], list[Record]]:
    groups: dict[tuple[str, int, int], list[Record]] = {}
    for row in rows:
        groups.setdefault((row["curve"], row["num_targets"], row["length"]), []).append(row)
    return groups
