"""The audit's results as tables: for the terminal and, the same, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments import claims
from experiments.reading import Record, records
from experiments.tables import Cells, markdown_of


def rank_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each model: ranks of its heads, and what a layer could hold. None without models."""
    rows = records(data, "models")
    if not rows:
        return None
    lines = [
        (
            row["model"],
            str(row["head_dim"]),
            f"{row['mean_effective_rank']:.1f}",
            f"{row['mean_random_effective_rank']:.1f}",
            f"{row['mean_stable_rank']:.1f}",
            f"{row['mean_random_stable_rank']:.1f}",
            f"{row['vocab_edges']:,.0f}",
            f"{row['vocab_edges_at_rank']:,.0f}",
            f"{row['vocab_size']:,}",
        )
        for row in rows
    ]
    columns = ("model", "d_k", "effective\nrank", "random", "stable\nrank", "random")
    columns += ("edges\nheld", "by table\nrank", "items")
    note = (
        "Ranks of W_q^T W_k: mean over heads; random: weights of that shape. Edges held (a prediction): of a random "
        "graph over the vocabulary (items), by one layer; then with the embedding table's effective rank in place of d."
    )
    return Cells("Rank and predicted capacity", columns, tuple(lines), note)


def graph_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each model and some of its layers: attention's graph on the text. None without a text."""
    rows = records(data, "graphs")
    if not rows:
        return None
    lines = []
    for row in _some(rows):
        needed = row["needed_total_key_dim"]
        again = "–" if row["recurrence"] is None else f"{100 * row['recurrence']:.0f}%"
        base = "–" if row["baseline"] is None else f"{100 * row['baseline']:.0f}%"
        lines.append(
            (
                f"{row['model']}, {row['layer']}",
                f"{100 * row['sink_share']:.0f}%",
                f"{row['items']:,}",
                f"{row['edges']:,}",
                f"{row['held_edges']:,.0f}",
                "more than d" if needed is None else f"{needed:,.0f}",
                str(row["total_key_dim"]),
                f"{again} ({base})",
            )
        )
    columns = ("model, layer", "to special\ntokens", "items", "edges")
    columns += ("held", "D_K\nneeded", "D_K", "met again")
    note = (
        "To special tokens: tokens that attend [CLS] or [SEP] (of a causal model: its own, which no text contains, or "
        "the first token) most, all heads; punctuation is not counted. Edges: distinct ones between types, all heads. "
        "Held, needed: predictions for a random graph and query heads with keys of their own. Met again: how often a "
        "known edge's target, present in the context, is attended most (in brackets a type at random)."
    )
    return Cells("Attention's graph over the types of the text", columns, tuple(lines), note)


def claims_cells(data: Mapping[str, Any]) -> Cells | None:
    """What was expected and what came out. None where nothing was run that could tell."""
    return claims.claims_cells(
        data, "Expected: written down before the runs (`experiments/audit/__init__.py`)."
    )


BLOCKS = {
    "ranks": markdown_of(rank_cells),
    "graphs": markdown_of(graph_cells),
    "claims": markdown_of(claims_cells),
}
"""Tables by name, for `experiments.readme`."""


def _some(rows: Sequence[Record]) -> list[Record]:
    """Up to six layers of each model: first, last, and evenly spaced ones."""
    out = []
    for name in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == name]
        count = min(6, len(own))
        places = sorted({round(i * (len(own) - 1) / max(1, count - 1)) for i in range(count)})
        out += [own[place] for place in places]
    return out
