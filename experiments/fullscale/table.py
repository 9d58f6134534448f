"""The full-scale experiment's results as tables: for the terminal and, the same, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments import claims
from experiments.fullscale.config import FREE
from experiments.reading import records, select
from experiments.tables import Cells, markdown_of


def smallest_cells(data: Mapping[str, Any]) -> Cells | None:
    """Smallest budgets: a row for a trainer and embedding, two columns a head count; predictions below."""
    rows = records(data, "smallest")
    if not rows:
        return None
    counts = sorted({row["num_heads"] for row in rows})
    lines = []
    for trainer, embedding in dict.fromkeys((row["trainer"], row["embedding"]) for row in rows):
        cells = []
        for h in counts:
            own = select(rows, trainer=trainer, embedding=embedding, num_heads=h)
            if not own:
                cells += ["", ""]
                continue
            found, exact = own[0]["smallest_recovered"], own[0]["smallest_exact"]
            cells += [f"> {own[0]['largest_budget']}" if found is None else str(found), str(exact or "–")]
        lines.append((trainer, embedding, *cells))
    predictions = {row["num_heads"]: row for row in records(data, "predictions")}
    for name, key in (("fixed partition by width", "partition"), ("parameter count", "parameter_count")):
        laws = [predictions[h][f"{key}_total_key_dim"] for h in counts]
        lines.append((name, "", *(x for law in laws for x in ("∞" if law is None else f"{law:.0f}", ""))))
    columns = ("training", "items", *(x for h in counts for x in (f"h = {h}", "exact")))
    first = next(iter(predictions.values()))
    note = (
        f"Smallest total key dimension at which a permutation on {first['num_items']} items, d = {first['d_model']}, "
        "is recovered (best-threshold F1 over all pairs of at least 0.99, in float64), among the budgets whose runs "
        "are finished; exact: every pair right. One head is predicted to hold a permutation on at most "
        f"{first['single_head_max_items']:.0f} items, whatever its size."
    )
    return Cells("Smallest budget reached", columns, tuple(lines), note)


def runs_cells(data: Mapping[str, Any]) -> Cells | None:
    """Every run at its last look."""
    rows = records(data, "runs")
    if not rows:
        return None
    lines = tuple(
        (
            row["trainer"],
            row["embedding"],
            *(str(row[name]) for name in ("num_items", "num_heads", "total_key_dim")),
            f"{row['steps']}{'' if row['complete'] else ' (unfinished)'}",
            *("–" if row[name] is None else f"{row[name]:.{digits}f}" for name, digits in _SHOWN),
        )
        for row in rows
    )
    columns = ("training", "items", "m", "h", "D_K", "steps", "loss", "F1", "missed", "wrong", "above all")
    note = (
        "F1: of the best threshold, over all pairs; missed edges and wrong non-edges at it; above all: edges above "
        "every non-edge. Steps are those of all heads together."
    )
    return Cells("Runs", columns, lines, note)


_SHOWN = (("loss", 4), ("best_f1", 4), ("missed", 0), ("wrong", 0), ("above_all", 0))


def one_head_cells(data: Mapping[str, Any]) -> Cells | None:
    """One free head against the number of items."""
    rows = [row for row in records(data, "runs") if row["trainer"] == FREE and row["gradient"] is not None]
    if not rows:
        return None
    ceiling = records(data, "predictions")[0]["single_head_max_items"]
    lines = tuple(
        (
            row["embedding"],
            str(row["num_items"]),
            f"{row['num_items'] / ceiling:.2f}",
            f"{row['best_f1']:.4f}",
            f"{row['loss']:.2g}",
            f"{row['gradient']:.1g}",
            f"{row['margin']:.2g}",
            "–" if row["margin_bound"] is None else f"{row['margin_bound']:.1g}",
        )
        for row in sorted(rows, key=lambda row: (row["embedding"], row["num_items"]))
    )
    columns = ("items", "m", "m / ceiling", "F1", "loss", "gradient", "margin", "no margin above")
    note = (
        "One free matrix (d_k = d), squared hinge, after its passes over all pairs. Gradient: its norm times that of "
        "the matrix over the loss. Margin: of the matrix at unit norm, negative where it does not separate. No margin "
        "above: proven for every matrix of unit norm."
    )
    return Cells("One head of full width", columns, lines, note)


def claims_cells(data: Mapping[str, Any]) -> Cells | None:
    """What was expected and what came out. None where nothing was run that could tell."""
    note = "Expected: written down before the runs (`experiments/fullscale/__init__.py`)."
    return claims.claims_cells(data, note)


def values(data: Mapping[str, Any]) -> dict[str, str]:
    """Every number of a run that prose may name, without the name of the source.

    ``smallest.joint.gaussian.h4`` (``-exact``), ``f1.joint.minilm.h4.k384`` (``-missed``, ``-wrong``, ``-steps``,
    ``-loss``), ``one-head.gaussian.m1800`` (``-gradient``, ``-bound``, ``-loss``), ``width.h4``, ``count.h4``,
    ``ceiling``, ``num-items``, ``claims.held``, ``claims.judged``.
    """
    out = {"num-runs": str(sum(row["complete"] for row in records(data, "runs")))}
    for row in records(data, "smallest"):
        name = f"smallest.{row['trainer']}.{row['embedding']}.h{row['num_heads']}"
        found, exact = row["smallest_recovered"], row["smallest_exact"]
        out[name] = f"more than {row['largest_budget']}" if found is None else str(found)
        out[f"{name}-exact"] = "none" if exact is None else str(exact)
    for row in records(data, "runs"):
        if row["best_f1"] is None or row["seed"]:
            continue
        if row["trainer"] == FREE:
            name = f"one-head.{row['embedding']}.m{row['num_items']}"
            if row["gradient"] is not None:
                out[f"{name}-gradient"] = f"{row['gradient']:.1g}"
            if row["margin_bound"] is not None:
                out[f"{name}-bound"] = f"{row['margin_bound']:.1g}"
        else:
            name = f"f1.{row['trainer']}.{row['embedding']}.h{row['num_heads']}.k{row['total_key_dim']}"
        out[name] = f"{row['best_f1']:.4f}"
        out |= {f"{name}-{key}": str(row[key]) for key in ("missed", "wrong", "steps")}
        out[f"{name}-loss"] = f"{row['loss']:.2g}"
    for row in records(data, "predictions"):
        out["ceiling"], out["num-items"] = f"{row['single_head_max_items']:,.0f}", f"{row['num_items']:,}"
        for name, key in (("width", "partition"), ("count", "parameter_count")):
            law = row[f"{key}_total_key_dim"]
            out[f"{name}.h{row['num_heads']}"] = "infinite" if law is None else f"{law:.0f}"
    return out | claims.claim_values(data)


BLOCKS = {
    "smallest": markdown_of(smallest_cells),
    "runs": markdown_of(runs_cells),
    "one-head": markdown_of(one_head_cells),
    "claims": markdown_of(claims_cells),
}
"""Tables by name, for `experiments.readme`."""
