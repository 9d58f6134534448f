"""The `joint` experiment's results as tables: for the terminal and, the same, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments import claims
from experiments.joint.config import ARMS
from experiments.reading import Record, records, select
from experiments.tables import Cells, markdown_of


def _budget(row: Record) -> str:
    if row["measured_total_key_dim"] is None:
        return "not reached"
    sign = "≤ " if row["capped"] else ""
    low = (
        ""
        if row["ci_low"] is None or row["ci_high"] is None
        else f" [{row['ci_low']:.0f}–{row['ci_high']:.0f}]"
    )
    return f"{sign}{row['measured_total_key_dim']:.1f}{'' if row['capped'] else low}"


def thresholds_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each variant; two columns for each head count. None without thresholds."""
    rows = records(data, "thresholds")
    if not rows:
        return None
    counts = sorted({row["num_heads"] for row in rows})
    lines = []
    for variant in ARMS:
        cells = []
        for h in counts:
            own = select(rows, variant=variant, num_heads=h)
            exact = own[0]["smallest_exact"] if own else None
            cells += [_budget(own[0]), "–" if exact is None else str(exact)] if own else ["", ""]
        if any(cells):
            lines.append((variant, *cells))
    for name, key in (("fixed partition", "partition"), ("parameter count", "parameter_count")):
        laws = [select(rows, num_heads=h)[0][f"{key}_total_key_dim"] for h in counts]
        lines.append((name, *(x for law in laws for x in ("∞" if law is None else f"{law:.1f}", ""))))
    columns = ("training", *(x for h in counts for x in (f"h = {h}", "exact")))
    first = rows[0]
    note = (
        f"Total key dimension at which half of the seeds recover a permutation on {first['num_items']} items, d = "
        f"{first['d_model']} (best-threshold F1 of at least 0.99 at some look), 95% interval, within the budgets run; "
        "exact: smallest budget with every pair right in some seed. Last two rows: prediction for dealt edges, and the "
        "empirical law of joint training."
    )
    return Cells("Budget needed by how heads are trained", columns, tuple(lines), note)


def claims_cells(data: Mapping[str, Any]) -> Cells | None:
    """What was expected and what came out. None where nothing was run that could tell."""
    note = "Expected: written down before the runs (`experiments/joint/__init__.py`)."
    return claims.claims_cells(data, note)


def values(data: Mapping[str, Any]) -> dict[str, str]:
    """Every number of a run that prose may name, without the name of the source.

    ``threshold.anneal.h4`` (``-exact``: smallest exact budget); ``settled.adam.h4``: percentage of edges with their
    final head at the first look, least over budgets; ``claims.held``, ``claims.judged``, ``num-runs``.
    """
    out = {"num-runs": str(len(records(data, "points")))}
    for row in records(data, "thresholds"):
        name = f"{row['variant']}.h{row['num_heads']}"
        measured = row["measured_total_key_dim"]
        out[f"threshold.{name}"] = "not reached" if measured is None else f"{measured:.1f}"
        out[f"threshold.{name}-exact"] = (
            "none" if row["smallest_exact"] is None else str(row["smallest_exact"])
        )
        settled = [
            curve["settled"][0]
            for curve in select(records(data, "curves"), variant=row["variant"], num_heads=row["num_heads"])
            if curve["settled"]
        ]
        if settled:
            out[f"settled.{name}"] = f"{100 * min(settled):.0f}%"
    return out | claims.claim_values(data)


BLOCKS = {"thresholds": markdown_of(thresholds_cells), "claims": markdown_of(claims_cells)}
"""Tables by name, for `experiments.readme`."""
