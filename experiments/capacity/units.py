"""Points of the capacity experiment and what a batch of them computes: all seeds of one configuration."""

from __future__ import annotations

import base64
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.mesh import current_mesh
from experiments.points import Kind, Record
from theory.certificates import certify_head
from theory.problems import Problem, make_problem, short_name
from theory.recognition import Recovery, channel_scores, evaluate
from theory.training import PLAIN, Channel, GreedyOptions, JointOptions, Trainer, train
from theory.training.sharded import train_joint_on_mesh

RECOVERED_F1 = 0.99
"""A run is a success when some threshold gives its scores at least this micro-F1."""


def compiled_width(head_dim: int) -> int:
    """Columns that the program of a ``head_dim`` is compiled for: the next power of two.

    One program serves all head dims up to its width. A wider program costs a run more than a second one costs to
    compile, hence powers of two rather than the widest of a sweep.
    """
    return 1 << (head_dim - 1).bit_length()


@dataclass(frozen=True)
class TrainedPoint:
    """One trained channel; a setting that its trainer does not heed is None."""

    num_items: int
    num_edges: int
    d_model: int
    num_heads: int
    head_dim: int
    embedding: str
    graph: str
    trainer: Trainer
    seed: int
    learning_rate: float | None = None
    max_steps: int | None = None
    restarts: int | None = None


@dataclass(frozen=True)
class CeilingPoint:
    """One graph, of which it is decided whether a single head can hold it."""

    num_items: int
    num_edges: int
    d_model: int
    embedding: str
    graph: str
    seed: int


TOGETHER = ("joint", "plain")
"""Trainers of all heads at once, which a mesh shares out."""

_SCORES = ("micro_f1", "best_f1", "exact_recovery", "argmax_accuracy", "smallest_edge", "largest_non_edge")

KINDS = {
    "points": Kind(
        TrainedPoint,
        frozenset(
            {
                "num_items",
                "num_edges",
                "d_model",
                "num_heads",
                "head_dim",
                "total_key_dim",
                "embedding",
                "graph",
            }
            | {
                "aggregation",
                "trainer",
                "seed",
                "learning_rate",
                "status",
                "reason",
                "loss",
                "steps",
                "seconds",
            }
            | {*_SCORES}
        ),
        optional=frozenset({"channel"}),
    ),
    "ceiling": Kind(
        CeilingPoint,
        frozenset(
            {"d_model", "num_heads", "num_items", "embedding", "graph", "seed"}
            | {"verdict", "proven", "margin", "residual", "seconds"}
        ),
        rows="ceiling_points",
    ),
}
"""A batch is all seeds of one configuration: their problems go through one program."""


def compute(points: Sequence[TrainedPoint] | Sequence[CeilingPoint]) -> list[Record]:
    """Compute the records of a batch."""
    first = points[0]
    problems = [
        make_problem(
            num_items=first.num_items,
            num_edges=first.num_edges,
            d_model=first.d_model,
            embedding=first.embedding,
            graph=first.graph,
            seed=point.seed,
        )
        for point in points
    ]
    if isinstance(first, TrainedPoint):
        return _trained(first, [point.seed for point in points], problems)
    return _decided(first, [point.seed for point in points], problems)


def program(points: Sequence[TrainedPoint] | Sequence[CeilingPoint]) -> Hashable:
    """What a batch needs compiled: heads that are trained one after the other share programs whatever their number."""
    first = points[0]
    if not isinstance(first, TrainedPoint):
        return None
    size = len(points), first.num_items, first.num_edges, first.d_model, compiled_width(first.head_dim)
    return (*size, "one head" if first.trainer == "greedy" else (first.trainer, first.num_heads))


def check_mesh(points: Sequence[TrainedPoint] | Sequence[CeilingPoint], mesh: Mapping[str, int]) -> None:
    """Refuse a batch of joint training that cannot be shared out evenly; all others stay on one device.

    Raises:
        ValueError: if seeds, heads or items are not multiples of their axis.
    """
    first = points[0]
    if not isinstance(first, TrainedPoint) or first.trainer not in TOGETHER:
        return
    for name, number, axis in (
        ("seeds", len(points), "data"),
        ("num_heads", first.num_heads, "head"),
        ("num_items", first.num_items, "row"),
    ):
        size = mesh.get(axis, 1)
        if number % size:
            raise ValueError(f"{name}: expected a multiple of the mesh's {axis} = {size}, got {number}")


def _trained(first: TrainedPoint, seeds: Sequence[int], problems: Sequence[Problem]) -> list[Record]:
    started = time.perf_counter()
    embeddings = np.stack([problem.embeddings for problem in problems])
    adjacency = np.stack([problem.graph.adjacency() for problem in problems])
    joint = greedy = None
    if first.learning_rate is not None and first.max_steps is not None:
        usual = PLAIN if first.trainer == "plain" else JointOptions()
        joint = replace(usual, learning_rate=first.learning_rate, max_steps=first.max_steps)
    if first.restarts is not None:
        greedy = GreedyOptions(restarts=first.restarts)
    sizes = {
        "num_heads": first.num_heads,
        "head_dim": first.head_dim,
        "seeds": seeds,
        "max_head_dim": compiled_width(first.head_dim),
    }
    mesh = current_mesh()
    if mesh is not None and first.trainer in TOGETHER:  # the others go head by head, on one device
        channels = train_joint_on_mesh(embeddings, adjacency, mesh=mesh, **sizes, options=joint)
    else:
        channels = train(
            first.trainer, embeddings, adjacency, **sizes, joint_options=joint, greedy_options=greedy
        )
    recoveries = [
        _judge(problem.embeddings, edges, channel)
        for problem, edges, channel in zip(problems, adjacency, channels, strict=True)
    ]
    seconds = (time.perf_counter() - started) / len(channels)
    records = [
        _point(first, seed, channel, recovery, seconds)
        for seed, channel, recovery in zip(seeds, channels, recoveries, strict=True)
    ]
    for record, channel, recovery in zip(records, channels, recoveries, strict=True):
        if recovery is not None and recovery.exact_recovery:
            record["channel"] = packed(channel)
            break
    return records


def _judge(embeddings: np.ndarray, adjacency: np.ndarray, channel: Channel) -> Recovery | None:
    """Judge a channel in float64 from its factors alone; None for a run that diverged."""
    if channel.reason is not None:
        return None
    scores = channel_scores(embeddings, channel.query_weights, channel.key_weights)
    return evaluate(scores, adjacency, float(channel.threshold))


def _point(
    point: TrainedPoint, seed: int, channel: Channel, recovery: Recovery | None, seconds: float
) -> Record:
    record: Record = {
        "num_items": point.num_items,
        "num_edges": point.num_edges,
        "d_model": point.d_model,
        "num_heads": point.num_heads,
        "head_dim": point.head_dim,
        "total_key_dim": point.num_heads * point.head_dim,
        "embedding": short_name(point.embedding),
        "graph": short_name(point.graph),
        "aggregation": "max",
        "trainer": point.trainer,
        "seed": seed,
        "learning_rate": channel.learning_rate,
        "status": "ok" if recovery is not None else "failed",
        "reason": channel.reason,
        "steps": channel.steps,
        "seconds": round(seconds, 3),
    }
    for name in _SCORES:
        record[name] = None if recovery is None else getattr(recovery, name)
    record["loss"] = channel.loss if recovery is not None else None
    return record


def packed(channel: Channel) -> Record:
    """A channel as JSON: its factors as base64 of little-endian float32."""

    def pack(weights: np.ndarray) -> str:
        return base64.b64encode(np.ascontiguousarray(weights, "<f4").tobytes()).decode()

    return {
        "shape": list(channel.query_weights.shape),
        "query_weights": pack(channel.query_weights),
        "key_weights": pack(channel.key_weights),
    }


def unpack_channel(packed: Record) -> tuple[np.ndarray, np.ndarray]:
    """Query and key weights ``(h, d, d_k)``, float32, of a channel kept in a record."""
    query, key = (
        np.frombuffer(base64.b64decode(packed[name]), "<f4").reshape(packed["shape"])
        for name in ("query_weights", "key_weights")
    )
    return query, key


def _decided(first: CeilingPoint, seeds: Sequence[int], problems: Sequence[Problem]) -> list[Record]:
    records = []
    for seed, problem in zip(seeds, problems, strict=True):
        started = time.perf_counter()
        adjacency = problem.graph.adjacency()
        certificate = certify_head(problem.embeddings, adjacency, ~adjacency)
        records.append(
            {
                "d_model": first.d_model,
                "num_heads": 1,
                "num_items": first.num_items,
                "embedding": first.embedding,
                "graph": first.graph,
                "seed": seed,
                "verdict": certificate.verdict,
                "proven": bool(certificate.proven),
                "margin": float(certificate.margin),
                "residual": None if certificate.residual is None else float(certificate.residual),
                "seconds": round(time.perf_counter() - started, 3),
            }
        )
    return records
