"""Points of the cache experiment and what a batch of them computes: all seeds of one configuration."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.cache.config import Design, Trainer
from experiments.cache.conversion import CONVERSION_FIELDS, ConversionPoint, convert
from experiments.capacity.units import compiled_width
from experiments.points import Kind, Record
from theory.cache_capacity import latent_parameters, shared_key_parameters
from theory.problems import make_problem, short_name
from theory.recognition import Recovery, channel_scores, evaluate
from theory.training import PLAIN, GreedyOptions, train
from theory.training.shared_keys import KeyDesign, train_shared_joint
from theory.training.shared_keys_alternate import AlternateOptions, train_shared_alternate


@dataclass(frozen=True)
class SharedPoint:
    """One trained layer; a setting that its trainer does not heed is None, as is the latent of a design without."""

    design: Design
    trainer: Trainer
    num_items: int
    d_model: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    embedding: str
    seed: int
    latent_dim: int | None = None
    learning_rate: float | None = None
    max_steps: int | None = None
    restarts: int | None = None


_SCORES = ("micro_f1", "best_f1", "exact_recovery", "smallest_edge", "largest_non_edge")

KINDS = {
    "points": Kind(
        SharedPoint,
        frozenset(SharedPoint.__dataclass_fields__)
        | {
            "cache_dims",
            "num_params",
            "status",
            "reason",
            "held_edges",
            "loss",
            "steps",
            "seconds",
            *_SCORES,
        },
    ),
    "conversion": Kind(ConversionPoint, CONVERSION_FIELDS, rows="conversion_points"),
}
"""A batch is all seeds of one configuration: their problems go through one program."""


def shared_width(width: int) -> int:
    """Width that the program of a design is compiled for: a power of two, as for heads with own keys, of at least 8.

    Thin keys cost little beside the scores of all pairs, so that most widths of a search can share one program.
    """
    return max(8, compiled_width(width))


def design_of(point: SharedPoint) -> KeyDesign:
    """The layer of a point."""
    return KeyDesign(point.num_heads, point.num_kv_heads, point.head_dim, point.latent_dim)


def num_params(point: SharedPoint) -> float:
    """Degrees of freedom of the heads' matrices."""
    if point.latent_dim is not None:
        return float(latent_parameters(point.d_model, point.num_heads, point.head_dim, point.latent_dim))
    size = point.d_model, point.num_heads, point.num_kv_heads, point.head_dim
    return float(shared_key_parameters(*size))


def compute(points: Sequence[SharedPoint] | Sequence[ConversionPoint]) -> list[Record]:
    """Compute the records of a batch."""
    first = points[0]
    problems = [
        make_problem(
            num_items=first.num_items,
            num_edges=first.num_items,
            d_model=first.d_model,
            embedding=first.embedding,
            graph="permutation",
            seed=point.seed,
        )
        for point in points
    ]
    embeddings = np.stack([problem.embeddings for problem in problems])
    adjacency = np.stack([problem.graph.adjacency() for problem in problems])
    if isinstance(first, ConversionPoint):
        return convert(first, [point.seed for point in points], embeddings, adjacency)
    started = time.perf_counter()
    rows = _trained(first, [point.seed for point in points], embeddings, adjacency)
    seconds = round((time.perf_counter() - started) / len(points), 3)
    return [row | {"seconds": seconds} for row in rows]


def program(points: Sequence[SharedPoint] | Sequence[ConversionPoint]) -> Hashable:
    """What a batch needs compiled: programs serve all widths up to a power of two."""
    first = points[0]
    size: tuple[Hashable, ...] = (len(points), first.num_items, first.d_model, first.num_heads)
    if isinstance(first, ConversionPoint):
        return (*size, "conversion", first.num_kv_heads)
    if first.trainer == "greedy":
        return (*size[:-1], compiled_width(first.head_dim), "one head")
    if first.latent_dim is None:
        layer = (first.num_kv_heads, shared_width(first.head_dim))
    else:
        layer = (first.head_dim, "latent", shared_width(first.latent_dim))
    return (*size, first.trainer, *layer)


def _trained(
    first: SharedPoint, seeds: Sequence[int], embeddings: np.ndarray, adjacency: np.ndarray
) -> list[Record]:
    design = design_of(first)
    joint = greedy = None
    if first.learning_rate is not None and first.max_steps is not None:
        joint = replace(PLAIN, learning_rate=first.learning_rate, max_steps=first.max_steps)
    if first.restarts is not None and first.trainer == "greedy":
        greedy = GreedyOptions(restarts=first.restarts)
    ends: list[tuple[Record, Recovery | None, int]] = []
    if first.design == "mha" and first.trainer != "alternate":  # the trainers of `capacity`
        found = train(
            "plain" if first.trainer == "joint" else "greedy",
            embeddings,
            adjacency,
            num_heads=first.num_heads,
            head_dim=first.head_dim,
            seeds=seeds,
            max_head_dim=compiled_width(first.head_dim),
            joint_options=joint,
            greedy_options=greedy,
        )
        for channel, x, a in zip(found, embeddings, adjacency, strict=True):
            recovery, held = None, 0
            if channel.reason is None:
                scores = channel_scores(x, channel.query_weights, channel.key_weights)
                recovery, held = evaluate(scores, a, float(channel.threshold)), _held(scores, a)
            ends.append((_end(channel), recovery, held))
    else:
        shared = {"design": design, "seeds": seeds, "max_width": shared_width(design.width)}
        if first.trainer == "joint":
            layers = train_shared_joint(embeddings, adjacency, **shared, options=joint)
        elif first.trainer == "alternate":
            options = AlternateOptions(restarts=first.restarts or 1)
            layers = train_shared_alternate(embeddings, adjacency, **shared, options=options)
        else:
            raise ValueError(
                f"trainer: expected alternate or joint for {first.design}, got {first.trainer!r}"
            )
        for layer, x, a in zip(layers, embeddings, adjacency, strict=True):
            recovery = layer.judge(x, a)
            held = 0 if recovery is None else _held(channel_scores(x, *layer.weights()), a)
            ends.append((_end(layer), recovery, held))
    return [_record(first, seed, *end, design.cache_dims) for seed, end in zip(seeds, ends, strict=True)]


def _end(channel) -> Record:
    return {"reason": channel.reason, "loss": channel.loss, "steps": channel.steps}


def _held(scores: np.ndarray, adjacency: np.ndarray) -> int:
    """Edges above all non-edges."""
    return int((scores[adjacency] > scores[~adjacency].max()).sum())


def _record(
    point: SharedPoint, seed: int, end: Record, recovery: Recovery | None, held: int, cache_dims: int
) -> Record:
    names = SharedPoint.__dataclass_fields__
    record: Record = {name: getattr(point, name) for name in names}
    record |= {"seed": seed, "embedding": short_name(point.embedding)}
    record |= {"cache_dims": cache_dims, "num_params": num_params(point)}
    record |= end | {"status": "ok" if recovery is not None else "failed"}
    record["held_edges"] = None if recovery is None else held
    for name in _SCORES:
        record[name] = None if recovery is None else getattr(recovery, name)
    if recovery is None:
        record["loss"] = None
    return record
