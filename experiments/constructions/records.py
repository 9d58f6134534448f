"""What is made of the points: thresholds, best blocks, noise and precision over seeds, the trainers' thresholds."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.constructions.claims import claim_rows
from experiments.constructions.config import ConstructionsConfig
from experiments.constructions.units import CONVEX
from experiments.engine import Rows
from experiments.points import Record
from experiments.reading import select
from theory.bounds import counting_bound, one_dimensional_cap, partition_total_key_dim, warren_bound
from theory.constructions import KINDS_OF_PAIRS, best_num_heads, predicted_head_dim
from theory.graphs import log2_num_permutation_graphs
from theory.transition import fit_threshold

CAPACITY = Path(__file__).parents[2] / "figures" / "capacity" / "paper.json"
"""Where the trainers' committed thresholds are; without it the comparison is left out."""


def summary(config: ConstructionsConfig, rows: Rows) -> Rows:
    """Thresholds, best blocks, noise, rounded, trained, claims."""
    made: Rows = {
        "thresholds": _thresholds(rows["points"]),
        "noise_curves": _noise(rows["noise"]),
        "precision_curves": _precision(rows["precision"]),
        "trained": trained(config),
    }
    made["blocks"] = _blocks(config, made["thresholds"])
    return made | {"claims": claim_rows(made)}


def _groups(rows: Sequence[Record], *names: str) -> dict[tuple[Any, ...], list[Record]]:
    groups: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[name] for name in names)].append(row)
    return groups


def _thresholds(points: Sequence[Record]) -> list[Record]:
    names = "num_items", "d_model", "num_heads", "construction"
    out = []
    for (m, d, h, construction), members in _groups(points, *names).items():
        at = _groups(members, "head_dim")
        dims = sorted(key[0] for key in at)
        hits = [sum(row["exact_recovery"] for row in at[k,]) for k in dims]
        found = fit_threshold(dims, hits, [len(at[k,]) for k in dims]).scaled(h)
        exact = [row["total_key_dim"] for row in members if row["exact_recovery"]]
        predicted = None if construction == CONVEX else predicted_head_dim(construction, m, d, h)
        out.append(
            dict(zip(names, (m, d, h, construction), strict=True))
            | {
                "block_size": -(-m // h),
                "status": found.status,
                "measured_total_key_dim": found.estimate,
                "ci_low": found.ci_low,
                "ci_high": found.ci_high,
                "smallest_exact": min(exact, default=None),
                "best_f1": max(row["best_f1"] for row in members),
                "predicted_total_key_dim": None if predicted is None else h * predicted,
                "num_seeds": max(len(rows) for rows in at.values()),
            }
        )
    return out


def floor_of(num_items: int, d_model: int, num_heads: int) -> float | None:
    """The largest budget that theorems exclude at a head count; None where they exclude all."""
    bits = log2_num_permutation_graphs(num_items)
    floor = max(counting_bound(bits, d_model, 32.0), warren_bound(bits, num_items, d_model, num_heads))
    if one_dimensional_cap(num_heads) < num_items:
        floor = max(floor, 2.0 * num_heads)
    return floor if np.isfinite(floor) else None


def partition_of(num_items: int, d_model: int, num_heads: int) -> float | None:
    """The fixed partition's predicted budget; None where it fails."""
    value = partition_total_key_dim(num_items, num_items, d_model, num_heads)
    return value if np.isfinite(value) else None


def _noise(rows: Sequence[Record]) -> list[Record]:
    out = []
    names = "construction", "d_model", "head_dim", "block_size"
    for key, members in _groups(rows, *names).items():
        measured = np.mean([row["variances"] for row in members], axis=0)
        spread = np.std([row["variances"] for row in members], axis=0, ddof=1) / np.sqrt(len(members))
        predicted = members[0]["predicted_variances"]
        for kind, value, error, expected in zip(KINDS_OF_PAIRS, measured, spread, predicted, strict=True):
            out.append(
                dict(zip(names, key, strict=True))
                | {
                    "pair": kind,
                    "variance": float(value),
                    "standard_error": float(error),
                    "predicted_variance": expected,
                }
            )
    return out


def _precision(rows: Sequence[Record]) -> list[Record]:
    out = []
    names = "source", "num_items", "d_model", "num_heads", "total_key_dim"
    for key, members in _groups(rows, *names).items():
        bits = [row["bits"] for row in members if row["bits"] is not None]
        out.append(
            dict(zip(names, key, strict=True))
            | {
                "runs": len(members),
                "exact": sum(row["exact_recovery"] for row in members),
                "least_bits": min(bits, default=None),
                "median_bits": float(np.median(bits)) if bits else None,
                "most_bits": max(bits, default=None),
                "balanced_better": sum(row["bits_gauge"] == "balanced" for row in members),
                "counting_bits": members[0]["counting_bits"],
                "least_bits_over_graph": min(
                    (row["bits_over_graph"] for row in members if row["bits"] is not None), default=None
                ),
            }
        )
    return out


def _blocks(config: ConstructionsConfig, thresholds: Sequence[Record]) -> list[Record]:
    """The best head count of each construction, measured and predicted, at each size."""
    out = []
    for (m, d, construction), members in _groups(thresholds, "num_items", "d_model", "construction").items():
        reached = [row for row in members if row["status"] == "reached"]
        best = min(reached, key=lambda row: row["measured_total_key_dim"], default=None)
        row = {"num_items": m, "d_model": d, "construction": construction}
        row |= {"measured_num_heads": None if best is None else best["num_heads"]}
        row |= {"measured_total_key_dim": None if best is None else best["measured_total_key_dim"]}
        heads = None
        if construction != CONVEX:
            tried = tuple(sorted(other["num_heads"] for other in members))
            heads = best_num_heads(construction, m, d, tried)
        budget = [r["predicted_total_key_dim"] for r in members if r["num_heads"] == heads]
        out.append(
            row | {"predicted_num_heads": heads, "predicted_total_key_dim": budget[0] if heads else None}
        )
    return out


def trained(config: ConstructionsConfig, path: Path = CAPACITY) -> list[Record]:
    """The trainers' committed thresholds at the sizes of a configuration."""
    if not path.exists():
        return []
    found = json.loads(path.read_text("utf-8"))["records"]["transitions"]
    names = "num_items", "d_model", "num_heads", "trainer", "measured_total_key_dim", "smallest_exact"
    return [
        {name: row[name] for name in names} | {"exact_total_key_dim": row["exact_total_key_dim"]}
        for m, d in config.sizes()
        for row in select(found, num_items=m, d_model=d, embedding="gaussian", graph="permutation")
        if row["trainer"] in ("best", "joint") and row["status"] == "reached"
    ]
