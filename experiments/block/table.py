"""The `block` experiment's results as tables: for the terminal and, the same, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments import claims
from experiments.reading import records
from experiments.tables import Cells, markdown_of

NAMES = {
    "block": "block",
    "frozen": "frozen scores",
    "wide": "frozen, wide MLP",
    "removed": "no attention",
}


def score(value: float | None) -> str:
    """Three digits after the point; a dash where there is no number."""
    return "–" if value is None else f"{value:.3f}"


def blocks_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each block. None without curves."""
    rows = records(data, "curves")
    if not rows:
        return None
    order = list(NAMES)
    rows.sort(key=lambda r: (r["d_model"], order.index(r["arm"]), r["total_key_dim"], r["num_heads"]))
    lines = tuple(
        (
            NAMES[row["arm"]],
            f"{row['num_items']}, {row['d_model']}",
            str(row["total_key_dim"]),
            str(row["num_heads"]),
            f"{score(row['mean_accuracy'])} [{score(row['least_accuracy'])}–{score(row['largest_accuracy'])}]",
            score(row["mean_present_accuracy"]),
            score(row["mean_absent_accuracy"]),
            f"{row['num_parameters']:,}",
        )
        for row in rows
    )
    columns = ("block", "m, d", "D_K", "h", "accuracy", "there", "absent", "para-\nmeters")
    note = (
        "Share of right answers on fresh contexts, mean over seeds, in brackets the least and the largest; of those "
        "whose neighbour is in the context, and whose is not. Saying the likelier of the two is worth about 0.5."
    )
    return Cells("A Transformer block names the neighbour in the context, or none", columns, lines, note)


def claims_cells(data: Mapping[str, Any]) -> Cells | None:
    """What was expected and what came out. None where nothing was run that could tell."""
    note = "Expected: written down before the runs (`experiments/block/__init__.py`)."
    return claims.claims_cells(data, note)


def values(data: Mapping[str, Any]) -> dict[str, str]:
    """Every number of a run that prose may name, without the name of the source.

    ``accuracy.block.d16.k24.h4``: mean accuracy (``-least``, ``-largest``, ``-parameters``); controls likewise, as in
    ``accuracy.frozen.d16.k48.h8``; ``claims.held``, ``claims.judged``, ``num-runs``.
    """
    out = {"num-runs": str(len(records(data, "points")))}
    for row in records(data, "curves"):
        name = f"accuracy.{row['arm']}.d{row['d_model']}.k{row['total_key_dim']}.h{row['num_heads']}"
        out[name] = score(row["mean_accuracy"])
        out[f"{name}-least"], out[f"{name}-largest"] = (
            score(row[f"{end}_accuracy"]) for end in ("least", "largest")
        )
        out[f"{name}-parameters"] = f"{row['num_parameters']:,}"
    return out | claims.claim_values(data)


BLOCKS = {"blocks": markdown_of(blocks_cells), "claims": markdown_of(claims_cells)}
"""Tables by name, for `experiments.readme`."""
