"""From heads with keys of their own to groups: what a trained layer loses, and what training on brings back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.points import Record
from theory.training import PLAIN
from theory.training.shared_keys import (
    JOINT_PURPOSE,
    KeyDesign,
    SharedChannel,
    initial_weights,
    train_shared_joint,
)
from theory.training.shared_keys_convert import low_rank, mean_pool

METHODS = ("mean-pool", "low-rank", "scratch")
"""Where training on begins: from mean-pooled keys, from the low-rank fit, from random weights (the control)."""


@dataclass(frozen=True)
class ConversionPoint:
    """One layer of heads with keys of their own, trained, converted to ``num_kv_heads`` and trained on."""

    num_items: int
    d_model: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    embedding: str
    learning_rate: float
    max_steps: int
    steps: tuple[int, ...]
    seed: int


CONVERSION_FIELDS = frozenset(ConversionPoint.__dataclass_fields__) | {
    "source_f1",
    "status",
    "seconds",
    *(f"{method}_f1" for method in METHODS),
}
"""``METHOD_f1``: best-threshold F1 at once and after each of ``steps``; None for a run that diverged."""


def convert(
    point: ConversionPoint, seeds: Sequence[int], embeddings: np.ndarray, adjacency: np.ndarray
) -> list[Record]:
    """The records of a batch."""
    started = time.perf_counter()
    own = KeyDesign(point.num_heads, point.num_heads, point.head_dim)
    shared = KeyDesign(point.num_heads, point.num_kv_heads, point.head_dim)
    options = replace(PLAIN, learning_rate=point.learning_rate, max_steps=point.max_steps)
    source = train_shared_joint(embeddings, adjacency, design=own, seeds=seeds, options=options)
    before = _f1(source, embeddings, adjacency)
    starts: dict[str, list[SharedChannel] | None] = {
        "mean-pool": [mean_pool(layer, point.num_kv_heads) for layer in source],
        "low-rank": [low_rank(layer, shared) for layer in source],
        "scratch": None,
    }
    curves: dict[str, list[list[float | None]]] = {}
    for method, layers in starts.items():
        columns = [_f1(layers or _random(point, shared, seeds), embeddings, adjacency)]
        for steps in point.steps:
            # Every run takes all its steps unless it is right before: patience is for runs whose end is not given.
            short = replace(options, max_steps=steps, patience=steps)
            ended = train_shared_joint(
                embeddings, adjacency, design=shared, seeds=seeds, options=short, starts=layers
            )
            columns.append(_f1(ended, embeddings, adjacency))
        curves[method] = [list(row) for row in zip(*columns, strict=True)]
    seconds = round((time.perf_counter() - started) / len(seeds), 3)
    rows = []
    for b, seed in enumerate(seeds):
        record: Record = {name: getattr(point, name) for name in ConversionPoint.__dataclass_fields__}
        record |= {"seed": seed, "steps": list(point.steps), "source_f1": before[b], "seconds": seconds}
        record |= {f"{method}_f1": curves[method][b] for method in METHODS}
        record["status"] = "failed" if before[b] is None else "ok"
        rows.append(record)
    return rows


def _random(point: ConversionPoint, design: KeyDesign, seeds: Sequence[int]) -> list[SharedChannel]:
    """The layers that training from scratch begins with."""
    scale, purpose = PLAIN.init_scale, JOINT_PURPOSE
    drawn = initial_weights(seeds, design, point.d_model, design.width, scale, purpose)
    return [
        SharedChannel({name: value[b] for name, value in drawn.items()}, 1.0, 1.0, 0, point.learning_rate)
        for b in range(len(seeds))
    ]


def _f1(layers: Sequence[SharedChannel], embeddings: np.ndarray, adjacency: np.ndarray) -> list[float | None]:
    """Best-threshold F1 of every layer, judged in float64 from its factors."""
    judged = [layer.judge(x, a) for layer, x, a in zip(layers, embeddings, adjacency, strict=True)]
    return [None if one is None else one.best_f1 for one in judged]
