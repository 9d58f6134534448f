"""The `softmax` experiment's results as tables: for the terminal and, the same, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments import claims
from experiments.reading import Record, records, select
from experiments.softmax.config import ARMS
from experiments.tables import Cells, markdown_of

NAMES = {
    "greedy": "maximum, greedy",
    "joint": "maximum, joint",
    "weights": "softmax, weights",
    "values": "softmax, values",
}


def score(value: float | None) -> str:
    """Three digits after the point; a dash where there is no number."""
    return "–" if value is None else f"{value:.3f}"


def sweep_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each budget and channel; a column for each head count. None without curves."""
    rows = records(data, "curves")
    if not rows:
        return None
    counts = sorted({row["num_heads"] for row in rows})
    lines = []
    for total in sorted({row["total_key_dim"] for row in rows}):
        for arm in ARMS:
            own = select(rows, total_key_dim=total, arm=arm)
            if own:
                lines.append((str(total), NAMES[arm], *(_cell(select(own, num_heads=h)) for h in counts)))
    columns = ("D_K", "channel", *(f"h = {h}" for h in counts))
    first = rows[0]
    note = (
        f"F1 over the pairs of the same random contexts of {first['context_size']} of {first['num_items']} items "
        f"(d = {first['d_model']}), median of {max(row['num_seeds'] for row in rows)} seeds. Maximum: at the best "
        "threshold. Softmax: trained end to end."
    )
    return Cells("Softmax heads beside the maximum over heads", columns, tuple(lines), note)


def _cell(rows: list[Record]) -> str:
    return score(rows[0]["median_f1"]) if rows else ""


def claims_cells(data: Mapping[str, Any]) -> Cells | None:
    """What was expected and what came out. None where nothing was run that could tell."""
    note = "Expected: written down before the runs (`experiments/softmax/__init__.py`)."
    return claims.claims_cells(data, note)


def values(data: Mapping[str, Any]) -> dict[str, str]:
    """Every number of a run that prose may name, without the name of the source.

    ``f1.values.k24.h4``: median F1 of a channel (``-least``, ``-largest``, ``-recovered``: seeds with at least 0.99);
    ``transplanted``: exact channels put into softmax heads, ``transplanted-right``: those without a mistake;
    ``one-owner``: exact greedy channels with one owner an edge, of ``exact-greedy``; ``scale-least`` and
    ``scale-largest``: of the logits where the threshold is 1; ``claims.held``, ``claims.judged``, ``num-runs``.
    """
    points = records(data, "points")
    out = {"num-runs": str(len(points))}
    for row in records(data, "curves"):
        name = f"f1.{row['arm']}.k{row['total_key_dim']}.h{row['num_heads']}"
        out[name] = score(row["median_f1"])
        out[f"{name}-least"], out[f"{name}-largest"] = score(row["least_f1"]), score(row["largest_f1"])
        out[f"{name}-recovered"] = f"{row['recovered']} of {row['num_seeds']}"
    exact = [row for row in points if row["exact_recovery"]]
    if exact:
        right = [row for row in exact if row["softmax_accuracy"] == row["values_accuracy"] == 1]
        greedy = select(exact, arm="greedy")
        out |= {
            "transplanted": str(len(exact)),
            "transplanted-right": str(len(right)),
            "exact-greedy": str(len(greedy)),
            "one-owner": str(sum(row["one_owner"] for row in greedy)),
            "scale-least": f"{min(row['scale'] for row in exact):,.0f}",
            "scale-largest": f"{max(row['scale'] for row in exact):,.0f}",
        }
    return out | claims.claim_values(data)


BLOCKS = {"sweep": markdown_of(sweep_cells), "claims": markdown_of(claims_cells)}
"""Tables by name, for `experiments.readme`."""
