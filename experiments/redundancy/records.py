"""What is made of the records: shares of BLEU and gain that are kept, over the models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.engine import Rows
from experiments.points import Record
from experiments.redundancy.claims import claim_rows

LEAST_BLEU = 1.0
"""Where the models of a checkpoint have less on average they translate nothing, and shares of it are left out."""


def summary(rows: Rows) -> Rows:
    """``curves`` (one for each checkpoint and order) and ``claims``."""
    curves = _curves(rows["points"])
    return {"curves": curves, "claims": claim_rows(curves)}


def _curves(points: Sequence[Record]) -> list[Record]:
    groups: dict[tuple[str, int], list[Record]] = {}
    for point in points:
        groups.setdefault((point["order"], point["steps"]), []).append(point)
    return [_curve(*key, own) for key, own in groups.items()]


def _curve(order: str, steps: int, points: Sequence[Record]) -> Record:
    fractions = sorted({point["fraction_pruned"] for point in points})
    seeds = sorted({point["seed"] for point in points})
    made: Record = {
        "order": order,
        "steps": steps,
        "fraction_trained": steps / points[0]["num_steps"],
        "num_heads": sum(points[0]["left_by_kind"]),
        "seeds": len(seeds),
        "fraction_pruned": fractions,
        "left_by_kind": [
            np.mean([p["left_by_kind"] for p in points if p["fraction_pruned"] == f], axis=0).tolist()
            for f in fractions
        ],
    }
    for name, least in (("gain", 0.0), ("bleu", LEAST_BLEU)):
        by_seed = np.array([_values(points, name, seed, fractions) for seed in seeds], float)
        by_seed = by_seed[np.isfinite(by_seed).all(axis=1)]
        whole = by_seed[:, 0] if len(by_seed) else np.zeros(0)
        made[name] = float(whole.mean()) if len(whole) else None
        enough = len(whole) > 0 and whole.mean() > least
        worth = by_seed[whole > 0] if enough else by_seed[:0]
        shares = np.maximum(worth, 0.0) / worth[:, :1] if len(worth) else None
        made[f"{name}_seeds"] = len(worth)
        for end, of in (("", np.mean), ("_low", np.min), ("_high", np.max)):
            made[f"{name}_kept{end}"] = None if shares is None else of(shares, axis=0).tolist()
        made[f"{name}_by_seed"] = None if shares is None else shares.tolist()
    return made


def _values(points: Sequence[Record], name: str, seed: int, fractions: Sequence[float]) -> list[Any]:
    """Of one model, at every fraction; the mean over random orders. NaN where there is none."""
    own = [point for point in points if point["seed"] == seed]
    found = []
    for fraction in fractions:
        values = [point[name] for point in own if point["fraction_pruned"] == fraction]
        found.append(np.mean(values) if values and None not in values else np.nan)
    return found
