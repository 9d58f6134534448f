"""Points of the block experiment and what a batch computes: all seeds of one configuration."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from experiments.block.config import BlockConfig
from experiments.block.training import Shape, num_parameters, train_blocks
from experiments.points import Kind, Record
from theory.embeddings import MINILM_EMBEDDINGS, MINILM_WIDTH, minilm_available
from theory.problems import make_problem

MODEL = "minilm"
_WIDEST_VALUE = 64


@dataclass(frozen=True)
class BlockPoint:
    """One trained block.

    Attributes:
        arm: ``block``, or a control: frozen, wide, removed.
        embedding: of the items.
        num_items: ``m``.
        d_model: ``d``.
        total_key_dim: ``D_K``.
        num_heads: ``h``.
        value_head_dim: of every head.
        mlp_width: hidden units.
        context_size: ``l``.
        planted: whether contexts are ``l / 2`` items and their neighbours.
        num_contexts: of a step.
        num_steps: of the optimiser.
        learning_rate: its highest.
        num_test: contexts on which it is judged.
        seed: of everything that is drawn.
    """

    arm: Literal["block", "frozen", "wide", "removed"]
    embedding: str
    num_items: int
    d_model: int
    total_key_dim: int
    num_heads: int
    value_head_dim: int
    mlp_width: int
    context_size: int
    planted: bool
    num_contexts: int
    num_steps: int
    learning_rate: float
    num_test: int
    seed: int


KINDS = {
    "points": Kind(
        BlockPoint,
        frozenset(BlockPoint.__dataclass_fields__)
        | {"status", "reason", "head_dim", "accuracy", "present_accuracy", "absent_accuracy", "present"}
        | {"loss", "num_parameters", "seconds"},
    )
}


def grid(config: BlockConfig) -> list[BlockPoint]:
    """All points of a configuration, without those whose embeddings are not there."""
    points: list[BlockPoint] = []

    def add(arm: str, total: int, heads: int, seeds: int, mlp_width: int, **changes: object) -> None:
        d_model = int(changes.get("d_model", config.d_model))  # type: ignore[call-overload]
        fields = {
            "arm": arm,
            "embedding": config.embedding,
            "num_items": config.num_items,
            "d_model": d_model,
            "total_key_dim": total,
            "num_heads": heads,
            "value_head_dim": min(d_model, _WIDEST_VALUE),
            "mlp_width": mlp_width,
            "context_size": config.context_size,
            "planted": False,
            "num_contexts": config.num_contexts,
            "num_steps": config.num_steps,
            "learning_rate": config.learning_rate,
            "num_test": config.num_test,
        } | changes
        points.extend(BlockPoint(**fields, seed=seed) for seed in range(seeds))  # type: ignore[arg-type]

    width = 4 * config.d_model
    if config.embedding not in MINILM_EMBEDDINGS or minilm_available():
        for total in config.total_key_dims:
            for heads in config.head_counts:
                if total % heads == 0:
                    add("block", total, heads, config.seeds, width)
        if config.total_key_dims:
            for arm in config.controls:
                units = 8 * width if arm == "wide" else width
                add(arm, max(config.total_key_dims), config.control_heads, config.seeds, units)
    if config.full_items and minilm_available():
        for heads in config.full_heads:
            add(
                "block",
                config.full_key_dim,
                heads,
                config.full_seeds,
                MINILM_WIDTH,
                embedding=MODEL,
                num_items=config.full_items,
                d_model=MINILM_WIDTH,
                planted=True,
                num_steps=config.full_steps,
                learning_rate=config.full_learning_rate,
            )
    return points


def needs_model(config: BlockConfig) -> bool:
    """Whether something of the configuration needs MiniLM."""
    return config.embedding in MINILM_EMBEDDINGS or config.full_items > 0


def work_of(point: BlockPoint) -> float:
    """How much a batch costs, about."""
    attention = point.num_heads * (point.context_size + point.value_head_dim * point.d_model / 8)
    return point.num_steps * (100 + attention + point.d_model * (point.mlp_width + point.num_items) / 50)


def shape_of(point: BlockPoint) -> Shape:
    """What the point's program is compiled for."""
    attention = {"block": "trained", "removed": "removed"}.get(point.arm, "frozen")
    return Shape(
        d_model=point.d_model,
        num_heads=point.num_heads,
        head_dim=point.total_key_dim // point.num_heads,
        value_head_dim=point.value_head_dim,
        mlp_width=point.mlp_width,
        attention=attention,  # type: ignore[arg-type]
        context_size=point.context_size,
        num_contexts=point.num_contexts,
        num_steps=point.num_steps,
        num_test=point.num_test,
        planted=point.planted,
    )


def compute(points: Sequence[BlockPoint]) -> list[Record]:
    """Train all seeds of one configuration."""
    first = points[0]
    started = time.perf_counter()
    problems = [
        make_problem(
            num_items=p.num_items,
            num_edges=p.num_items,
            d_model=p.d_model,
            embedding=p.embedding,
            graph="permutation",
            seed=p.seed,
        )
        for p in points
    ]
    shape = shape_of(first)
    items = np.stack([problem.embeddings for problem in problems])
    neighbour = np.stack([problem.graph.adjacency().argmax(axis=1) for problem in problems])
    found = train_blocks(shape, items, neighbour, [p.seed for p in points], first.learning_rate)
    seconds = round((time.perf_counter() - started) / len(points), 3)
    records = []
    for i, point in enumerate(points):
        fine = bool(np.isfinite(found.loss[i]))
        scores = {name: float(values[i]) if fine else None for name, values in found._asdict().items()}
        records.append(
            asdict(point)
            | scores
            | {
                "status": "ok" if fine else "failed",
                "reason": None if fine else "loss not finite",
                "head_dim": shape.head_dim,
                "num_parameters": num_parameters(shape),
                "seconds": seconds,
            }
        )
    return records
