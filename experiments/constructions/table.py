"""The constructions experiment's results as tables: for the terminal and, the same, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments import claims
from experiments.constructions.units import CONVEX
from experiments.reading import records, select
from experiments.tables import Cells, markdown_of

NAMES = {
    "matched-filter": "matched filter",
    "one-sided": "one-sided",
    "zero-forcing": "zero-forcing",
    CONVEX: "convex heads",
}


def budget_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each size and construction, a column for each head count. None without thresholds."""
    rows = records(data, "thresholds")
    heads = sorted({row["num_heads"] for row in rows})
    lines = []
    for m, d in sorted({(row["num_items"], row["d_model"]) for row in rows}):
        for construction, name in NAMES.items():
            own = select(rows, num_items=m, d_model=d, construction=construction)
            if not own:
                continue
            cells = []
            for h in heads:
                at = select(own, num_heads=h)
                cells.append(_budget(at[0]) if at else "")
            lines.append((f"({m}, {d})", name, *cells))
        best = select(records(data, "trained"), num_items=m, d_model=d, trainer="best")
        if best:
            found = {row["num_heads"]: row["exact_total_key_dim"] for row in best}
            cells = [f"{found[h]:.0f}" if found.get(h) is not None else "" for h in heads]
            lines.append((f"({m}, {d})", "best trainer", *cells))
    if not lines:
        return None
    columns = ("(m, d)", "heads by", *(f"h = {h}" for h in heads))
    note = (
        "Total key dimension at which half of the seeds are recovered exactly (predicted); –: at no d_k up to d. "
        "Best trainer: from figures/capacity/paper.json, exact recovery."
    )
    return Cells("Least budget of each construction", columns, tuple(lines), note)


def _budget(row: Mapping[str, Any]) -> str:
    measured = "–" if row["measured_total_key_dim"] is None else f"{row['measured_total_key_dim']:.0f}"
    if row["construction"] == CONVEX:
        return measured
    predicted = "–" if row["predicted_total_key_dim"] is None else f"{row['predicted_total_key_dim']}"
    return f"{measured}\n({predicted})"


def precision_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each channel that was rounded. None without any."""
    lines = []
    for row in records(data, "precision_curves"):
        bits = "–"
        if row["median_bits"] is not None:
            bits = f"{row['median_bits']:g} ({row['least_bits']} to {row['most_bits']})"
        over = row["least_bits_over_graph"]
        lines.append(
            (
                NAMES.get(row["source"], row["source"]),
                f"({row['num_items']}, {row['d_model']})",
                str(row["num_heads"]),
                str(row["total_key_dim"]),
                f"{row['exact']} of {row['runs']}",
                bits,
                f"{row['counting_bits']:.2f}",
                "–" if over is None else f"{over:.1f}",
            )
        )
    if not lines:
        return None
    columns = (
        "heads by",
        "(m, d)",
        "h",
        "D_K",
        "exact",
        "bits a weight",
        "counting\nbound",
        "bits over\ngraph's",
    )
    note = (
        "Least bits a weight at which, and above which, recovery stays exact (median, least to most over the exact "
        "runs; the better of two gauges). Counting bound: bits a weight that name the graph. Last: all weights' bits "
        "over the graph's, best run."
    )
    return Cells("How few bits a weight may have", columns, tuple(lines), note)


def claims_cells(data: Mapping[str, Any]) -> Cells | None:
    """What was expected and what came out."""
    return claims.claims_cells(
        data, "Expected: written down before the runs (`experiments/constructions/__init__.py`)."
    )


def values(data: Mapping[str, Any]) -> dict[str, str]:
    """Numbers for prose.

    ``best.CONSTRUCTION.mM.dD`` least D_K over head counts, ``-heads`` where; ``bits.SOURCE.hH.kD_K`` median bits;
    ``over-graph`` the least of all bits over the graph's; ``noise.low``, ``noise.high`` measured over predicted.
    """
    out = {}
    for row in records(data, "blocks"):
        name = f"best.{row['construction']}.m{row['num_items']}.d{row['d_model']}"
        reached = row["measured_total_key_dim"] is not None
        out[name] = f"{row['measured_total_key_dim']:.0f}" if reached else "none"
        out[f"{name}-heads"] = str(row["measured_num_heads"]) if reached else "–"
        out[f"{name}-predicted"] = str(row["predicted_total_key_dim"] or "none")
    for row in records(data, "precision_curves"):
        if row["median_bits"] is not None:
            name = f"bits.{row['source']}.m{row['num_items']}.h{row['num_heads']}.k{row['total_key_dim']}"
            out[name] = f"{row['median_bits']:g}"
            out[f"{name}-over-graph"] = f"{row['least_bits_over_graph']:.1f}"
    best = [
        r["least_bits_over_graph"] for r in records(data, "precision_curves") if r["median_bits"] is not None
    ]
    if best:
        out["over-graph"] = f"{min(best):.1f}"
    ratios = [
        r["variance"] / r["predicted_variance"]
        for r in records(data, "noise_curves")
        if r["predicted_variance"] > 0 and r["block_size"] >= 16
    ]
    if ratios:
        out |= {"noise.low": f"{min(ratios):.2f}", "noise.high": f"{max(ratios):.2f}"}
    return out | claims.claim_values(data)


BLOCKS = {
    "budget": markdown_of(budget_cells),
    "precision": markdown_of(precision_cells),
    "claims": markdown_of(claims_cells),
}
"""Tables by name, for `experiments.readme`."""
