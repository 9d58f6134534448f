"""The relations experiment's results as tables: for the terminal and, the same, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments import claims
from experiments.reading import records, select
from experiments.tables import Cells, markdown_of

ARMS = {
    ("linear", "gaussian", "trained"): "linear",
    ("mlp", "gaussian", "trained"): "MLP, Gaussian",
    ("mlp", "gaussian", "mixed"): "MLP, Gaussian, by hand",
    ("mlp", "signs", "trained"): "MLP, signs",
    ("mlp", "signs", "mixed"): "MLP, signs, by hand",
}
"""Read-out, values, attention; and how they are called."""


def error_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each curve, a column for each head count. None without curves."""
    rows = records(data, "curves")
    most = max((row["num_heads"] for row in rows), default=0)
    lines = []
    for relations in sorted({row["num_relations"] for row in rows}):
        floors = [f"{max(0.0, 1 - h / relations):.2f}" for h in range(1, most + 1)]
        lines.append((str(relations), "floor (theorem)", "", *floors))
        for arm, name in ARMS.items():
            own = select(
                rows,
                num_relations=relations,
                **dict(zip(("readout", "values", "attention"), arm, strict=True)),
            )
            for budget in sorted({row["total_key_dim"] for row in own}, reverse=True):
                cells = []
                for h in range(1, most + 1):
                    at = select(own, num_heads=h, total_key_dim=budget)
                    cells.append("" if not at else _least(at[0]))
                lines.append((str(relations), name, "–" if arm[2] == "mixed" else str(budget), *cells))
    if not lines:
        return None
    columns = ("R", "read-out, values", "D_K", *(f"h = {h}" for h in range(1, most + 1)))
    note = (
        "Mean squared error over slots, in units of the values' variance: best seed. Linear: exact "
        "expectation. By hand: weights set, not trained. The floor binds every row but those on signs."
    )
    return Cells("Error by number of heads", columns, tuple(lines), note)


def _least(row: Mapping[str, Any]) -> str:
    if row["least_error"] is None:
        return "–"
    return f"{row['least_error']:.3f}"


def claims_cells(data: Mapping[str, Any]) -> Cells | None:
    """What was expected and what came out."""
    return claims.claims_cells(
        data, "Expected: written down before the runs (`experiments/relations/__init__.py`)."
    )


def values(data: Mapping[str, Any]) -> dict[str, str]:
    """Numbers for prose: ``READOUT.VALUES.ATTENTION.rR.hH.kD_K``, best error; with ``-median`` and ``-accuracy``."""
    out = {}
    for row in records(data, "curves"):
        if row["least_error"] is None:
            continue
        name = (
            f"{row['readout']}.{row['values']}.{row['attention']}.r{row['num_relations']}.h{row['num_heads']}"
            f".k{row['total_key_dim']}"
        )
        out[name] = f"{row['least_error']:.3f}"
        out[f"{name}-median"] = f"{row['median_error']:.3f}"
        out[f"{name}-accuracy"] = f"{row['largest_accuracy']:.3f}"
    return out | claims.claim_values(data)


BLOCKS = {"error": markdown_of(error_cells), "claims": markdown_of(claims_cells)}
"""Tables by name, for `experiments.readme`."""
