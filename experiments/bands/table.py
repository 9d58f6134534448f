"""The bands experiment's results as tables: for the terminal and, the same, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments import claims
from experiments.reading import Record, records
from experiments.tables import Cells, markdown_of

NAMES = {
    ("words", "joint"): "joint",
    ("words-shuffled", "joint"): "joint, shuffled",
    ("words", "greedy"): "greedy",
    ("words", "by-kind"): "one head a kind",
}


def sorted_arms(data: Mapping[str, Any]) -> list[Record]:
    """Arms in the order of `NAMES`, by budget."""
    order = {key: index for index, key in enumerate(NAMES)}
    return sorted(
        records(data, "arms"),
        key=lambda row: (order.get((row["graph"], row["trainer"]), 9), row["total_key_dim"]),
    )


def arms_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each arm. None without any."""
    lines = []
    for row in sorted_arms(data):
        lines.append(
            (
                NAMES.get((row["graph"], row["trainer"]), row["trainer"]),
                str(row["total_key_dim"]),
                f"{row['exact']} of {row['runs']}",
                _number(row["median_information"]),
                _number(row["median_shuffled_high"]),
                f"{row['above_chance']} of {row['runs']}",
                _number(row["median_query_overlap"]),
                _number(row["median_key_overlap"]),
                _number(row["median_random_overlap"]),
            )
        )
    if not lines:
        return None
    columns = ("heads by", "D_K", "exact", "NMI", "chance", "above", "Q", "K", "rand.")
    note = (
        "NMI: normalised mutual information of winning head and kind of relation (median over seeds); chance: 97.5% "
        "quantile of shuffled kinds; above: runs beyond their own quantile. Q, K, rand.: mean squared cosine "
        "of the principal angles between heads' query and key subspaces, and between random ones. Shuffled: the words' "
        "targets."
    )
    return Cells("Do heads take relations?", columns, tuple(lines), note)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def claims_cells(data: Mapping[str, Any]) -> Cells | None:
    """What was expected and what came out."""
    return claims.claims_cells(
        data, "Expected: written down before the runs (`experiments/bands/__init__.py`)."
    )


def values(data: Mapping[str, Any]) -> dict[str, str]:
    """Numbers for prose: ``nmi.GRAPH.TRAINER.kD_K``; with ``-chance``, ``-above``, ``-exact``, ``-queries`` ..."""
    out = {}
    for row in records(data, "arms"):
        name = f"nmi.{row['graph']}.{row['trainer']}.k{row['total_key_dim']}"
        out[name] = _number(row["median_information"])
        out[f"{name}-chance"] = _number(row["median_shuffled_high"])
        out[f"{name}-above"] = f"{row['above_chance']} of {row['runs']}"
        out[f"{name}-exact"] = f"{row['exact']} of {row['runs']}"
        for end, field in (
            ("queries", "query_overlap"),
            ("keys", "key_overlap"),
            ("random", "random_overlap"),
        ):
            out[f"{name}-{end}"] = _number(row[f"median_{field}"])
    return out | claims.claim_values(data)


BLOCKS = {"arms": markdown_of(arms_cells), "claims": markdown_of(claims_cells)}
"""Tables by name, for `experiments.readme`."""
