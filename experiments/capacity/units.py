"""What one unit of the capacity experiment computes: all seeds of one configuration, or one point of a ceiling.

A unit is a flat dict of JSON values that determines its records; it is what the store is keyed by, what a worker gets
and what `verify` runs again.
"""

from __future__ import annotations

import base64
import time
from typing import Any

import numpy as np

from experiments.store import Record
from theory.certificates import certify_head
from theory.problems import make_problem, short_name
from theory.recognition import Recovery, channel_scores, evaluate
from theory.training import Channel, GreedyOptions, JointOptions, train

RECOVERED_F1 = 0.99
"""A run is a success when some threshold gives its scores at least this micro-F1."""


def compiled_width(head_dim: int) -> int:
    """Columns that the program of a ``head_dim`` is compiled for: the next power of two.

    One program serves all head dims up to its width. A wider program costs a run more than a second one costs to
    compile, hence powers of two rather than the widest of a sweep.
    """
    return 1 << (head_dim - 1).bit_length()


def compute(unit: dict[str, Any]) -> list[Record]:
    """Compute a unit's records.

    Raises:
        ValueError: for a unit of another kind.
    """
    if unit["kind"] == "points":
        return _points(unit)
    if unit["kind"] == "ceiling":
        return _ceiling(unit)
    raise ValueError(f"kind: expected 'points' or 'ceiling', got {unit['kind']!r}")


def _problems(unit: dict[str, Any]):
    return [
        make_problem(
            num_items=unit["num_items"],
            num_edges=unit["num_edges"],
            d_model=unit["d_model"],
            embedding=unit["embedding"],
            graph=unit["graph"],
            seed=seed,
        )
        for seed in range(unit["seeds"])
    ]


def _points(unit: dict[str, Any]) -> list[Record]:
    started = time.perf_counter()
    problems = _problems(unit)
    embeddings = np.stack([problem.embeddings for problem in problems])
    adjacency = np.stack([problem.graph.adjacency() for problem in problems])
    channels = train(
        unit["trainer"],
        embeddings,
        adjacency,
        num_heads=unit["num_heads"],
        head_dim=unit["head_dim"],
        seeds=range(unit["seeds"]),
        max_head_dim=compiled_width(unit["head_dim"]),
        joint_options=JointOptions(learning_rate=unit["learning_rate"], max_steps=unit["max_steps"])
        if unit["trainer"] == "joint"
        else None,
        greedy_options=GreedyOptions(restarts=unit["restarts"]) if unit["trainer"] != "joint" else None,
    )
    recoveries = [
        _judge(problem.embeddings, edges, channel)
        for problem, edges, channel in zip(problems, adjacency, channels, strict=True)
    ]
    seconds = (time.perf_counter() - started) / len(channels)
    records = [
        _point(unit, seed, channel, recovery, seconds)
        for seed, (channel, recovery) in enumerate(zip(channels, recoveries, strict=True))
    ]
    for record, channel, recovery in zip(records, channels, recoveries, strict=True):
        if recovery is not None and recovery.exact_recovery:
            record["channel"] = _packed(channel)
            break
    return records


def _judge(embeddings: np.ndarray, adjacency: np.ndarray, channel: Channel) -> Recovery | None:
    """Judge a channel in float64 from its factors alone; None for a run that diverged."""
    if channel.reason is not None:
        return None
    scores = channel_scores(embeddings, channel.query_weights, channel.key_weights)
    return evaluate(scores, adjacency, float(channel.threshold))


def _point(
    unit: dict[str, Any], seed: int, channel: Channel, recovery: Recovery | None, seconds: float
) -> Record:
    record: Record = {
        "num_items": unit["num_items"],
        "num_edges": unit["num_edges"],
        "d_model": unit["d_model"],
        "num_heads": unit["num_heads"],
        "head_dim": unit["head_dim"],
        "total_key_dim": unit["num_heads"] * unit["head_dim"],
        "embedding": short_name(unit["embedding"]),
        "graph": short_name(unit["graph"]),
        "aggregation": "max",
        "trainer": unit["trainer"],
        "seed": seed,
        "learning_rate": channel.learning_rate,
        "status": "ok" if recovery is not None else "failed",
        "reason": channel.reason,
        "steps": channel.steps,
        "seconds": round(seconds, 3),
    }
    scores = (
        "micro_f1",
        "best_f1",
        "exact_recovery",
        "argmax_accuracy",
        "smallest_edge",
        "largest_non_edge",
    )
    for name in scores:
        record[name] = None if recovery is None else getattr(recovery, name)
    record["loss"] = channel.loss if recovery is not None else None
    return record


def _packed(channel: Channel) -> Record:
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


def _ceiling(unit: dict[str, Any]) -> list[Record]:
    records = []
    for seed, problem in enumerate(_problems(unit)):
        started = time.perf_counter()
        adjacency = problem.graph.adjacency()
        certificate = certify_head(problem.embeddings, adjacency, ~adjacency)
        records.append(
            {
                "d_model": unit["d_model"],
                "num_heads": 1,
                "num_items": unit["num_items"],
                "embedding": unit["embedding"],
                "graph": unit["graph"],
                "seed": seed,
                "verdict": certificate.verdict,
                "proven": bool(certificate.proven),
                "margin": float(certificate.margin),
                "residual": None if certificate.residual is None else float(certificate.residual),
                "seconds": round(time.perf_counter() - started, 3),
            }
        )
    return records
