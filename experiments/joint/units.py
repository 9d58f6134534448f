"""Points of the joint experiment and what a batch computes: all budgets and seeds of one variant and head count."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from experiments.joint.config import REFERENCE, JointConfig, head_dims
from experiments.points import Kind, Record
from theory.problems import make_problem
from theory.recognition import channel_scores, evaluate
from theory.training import train_greedy
from theory.training.variants import VariantOptions, train_variant

RECOVERED = 0.99


@dataclass(frozen=True)
class VariantPoint:
    """One run.

    Attributes:
        variant: of training.
        num_items: ``m``.
        d_model: ``d``.
        num_heads: ``h``.
        head_dim: ``d_k``.
        seed: of everything that is drawn.
        num_steps: of Adam; None where head-by-head training has its own.
    """

    variant: str
    num_items: int
    d_model: int
    num_heads: int
    head_dim: int
    seed: int
    num_steps: int | None = None


KINDS = {
    "points": Kind(
        VariantPoint,
        frozenset(VariantPoint.__dataclass_fields__)
        | {"status", "reason", "total_key_dim", "best_f1", "exact", "f1", "settled", "shares", "seconds"},
        values=("head_dim", "seed"),
    )
}


def grid(config: JointConfig) -> list[VariantPoint]:
    """All points of a configuration."""
    arms = [(h, arm) for h in config.head_counts for arm in config.variants]
    if config.full_heads:
        arms += [(config.full_heads, arm) for arm in config.full_variants]
    return [
        VariantPoint(
            arm,
            config.num_items,
            config.d_model,
            h,
            k,
            seed,
            None if arm == REFERENCE else config.num_steps,
        )
        for h, arm in dict.fromkeys(arms)
        for k in head_dims(config, h)
        for seed in range(config.seeds)
    ]


def compute(points: Sequence[VariantPoint]) -> list[Record]:
    """Train all of a batch, in one program but for head-by-head training."""
    started = time.perf_counter()
    first = points[0]
    problems = [
        make_problem(
            num_items=p.num_items,
            num_edges=p.num_items,
            d_model=p.d_model,
            embedding="gaussian",
            graph="permutation",
            seed=p.seed,
        )
        for p in points
    ]
    items = np.stack([problem.embeddings for problem in problems])
    edges = np.stack([problem.graph.adjacency() for problem in problems])
    found = _head_by_head(points, items, edges) if first.num_steps is None else _variant(points, items, edges)
    seconds = round((time.perf_counter() - started) / len(points), 3)
    return [
        asdict(point)
        | {"status": "ok", "reason": None, "total_key_dim": point.num_heads * point.head_dim}
        | record
        | {"seconds": seconds}
        for point, record in zip(points, found, strict=True)
    ]


def _variant(points: Sequence[VariantPoint], items: np.ndarray, edges: np.ndarray) -> list[Record]:
    first = points[0]
    assert first.num_steps is not None
    name: Any = first.variant
    runs = train_variant(
        name,
        items,
        edges,
        num_heads=first.num_heads,
        head_dims=[p.head_dim for p in points],
        seeds=[p.seed for p in points],
        options=VariantOptions(num_steps=first.num_steps),
    )
    records = []
    for run in runs:
        fine = run.finite
        records.append(
            {
                "best_f1": run.best_f1 if fine else None,
                "exact": run.exact if fine else None,
                "f1": [round(float(x), 4) for x in run.f1] if fine else None,
                "settled": [round(float(x), 4) for x in run.settled] if fine else None,
                "shares": run.shares.tolist() if fine else None,
            }
            | ({} if fine else {"status": "failed", "reason": "loss not finite"})
        )
    return records


def _head_by_head(points: Sequence[VariantPoint], items: np.ndarray, edges: np.ndarray) -> list[Record]:
    records: dict[int, Record] = {}
    width = min(points[0].d_model, max(p.head_dim for p in points))
    for k in sorted({p.head_dim for p in points}):
        own = [i for i, p in enumerate(points) if p.head_dim == k]
        channels = train_greedy(
            items[own],
            edges[own],
            num_heads=points[0].num_heads,
            head_dim=k,
            seeds=[points[i].seed for i in own],
            max_head_dim=max(width, k),
        )
        for i, channel in zip(own, channels, strict=True):
            empty = {"best_f1": None, "exact": None, "f1": None, "settled": None, "shares": None}
            if channel.reason is not None:
                records[i] = empty | {"status": "failed", "reason": channel.reason}
                continue
            scores = channel_scores(items[i], channel.query_weights, channel.key_weights)
            found = evaluate(scores, edges[i], channel.threshold)
            records[i] = empty | {"best_f1": found.best_f1, "exact": found.exact_recovery}
    return [records[i] for i in range(len(points))]
