"""The `retrieval` experiment's results as tables: for the terminal and, the same, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from experiments.capacity.figures_records import Record, records
from experiments.capacity.table import Cells
from experiments.retrieval.claims import select

_CURVES = {
    "main": "linear encoder",
    "random": "random directions",
    "fixed-width": "fixed E = n h",
    "mlp": "MLP encoder",
    "two-layer": "two layers",
    "general": "general task",
}


def scientific(value: float | None) -> str:
    """``2.3e-4``; a dash where there is no number."""
    if value is None:
        return "–"
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
        ratio = "–"
        if row["best_ratio"] is not None:
            ratio = f"{row['best_ratio']:.0f}"
        interval = "–"
        if row["ratio_low"] is not None:
            interval = f"{row['median_ratio']:.0f} [{row['ratio_low']:.0f}–{row['ratio_high']:.0f}]"
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
                interval,
            )
        )
    if not lines:
        return None
    columns = ("curve", "D", "T", "expected", "found", "ratio of\nbest", "ratio of\nmedians")
    note = (
        "Expected, found: head count at which the error falls by the largest factor. Ratio: error with one head fewer "
        "over error at the expected head count; the medians' with a 95% bootstrap interval over seeds' best runs."
    )
    return Cells("Where the error jumps", columns, tuple(lines), note)


def copy_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each length: three models with and without their attention. None where they were not run."""
    rows = [row for row in records(data, "curves") if row["best_nmse"]]
    lines = []
    for length in sorted({row["length"] for row in rows if row["curve"] == "copy"}):
        cells = []
        for curve in ("heads", "wide", "copy"):
            own = select(rows, curve=curve, length=length)
            best = min(own, key=lambda row: row["best_nmse"], default=None)
            if best is None:
                cells += ["–"] * 3
            else:
                cells += [scientific(best["best_nmse"]), scientific(best["best_nmse_uniform"])]
                cells += [f"{best['num_readout_parameters']:,}"]
        lines.append((str(length), *cells))
    if not lines:
        return None
    columns = ("T",)
    for name in ("D heads", "wide head", "copying head"):
        columns += (f"{name}:\nNMSE", "uniform\nweights", "read-out\nparameters")
    note = (
        "The read-out that does best for each. Uniform weights: put in place of the trained ones, without training "
        "again. The copying head is kept uniform in training too."
    )
    return Cells("Copying", columns, tuple(lines), note)


def claims_cells(data: Mapping[str, Any]) -> Cells | None:
    """What was expected and what came out. None where nothing was run that could tell."""
    rows = [row for row in records(data, "claims") if row["verdict"] != "not_run"]
    if not rows:
        return None
    lines = tuple((row["claim"], row["expected"], row["verdict"], row["found"] or "–") for row in rows)
    note = "Expected: written down before the runs (`experiments/retrieval/__init__.py`)."
    return Cells("Expected and found", ("claim", "expected", "verdict", "found"), lines, note)


def rich_tables(data: Mapping[str, Any]) -> list[Table]:
    """All tables that the run has records for."""
    return [cells.rich() for cells in _all(data)]


def _all(data: Mapping[str, Any]) -> list[Cells]:
    made = (make(data) for make in (heads_cells, jumps_cells, copy_cells, claims_cells))
    return [cells for cells in made if cells is not None]


def _groups(rows: list[Record]) -> dict[tuple[str, int, int], list[Record]]:
    groups: dict[tuple[str, int, int], list[Record]] = {}
    for row in rows:
        groups.setdefault((row["curve"], row["num_targets"], row["length"]), []).append(row)
    return groups
