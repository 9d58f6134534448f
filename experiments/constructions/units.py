"""Points of the constructions experiment and what a batch computes: all seeds of one configuration."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from experiments.points import Kind, Record
from theory.constructions import (
    CONSTRUCTIONS,
    KINDS_OF_PAIRS,
    balanced,
    bits_used,
    construct,
    quantise,
    score_variances,
    success_probability,
)
from theory.graphs import log2_num_permutation_graphs
from theory.problems import Problem, make_problem, seeded_rng
from theory.recognition import Recovery, channel_scores, evaluate
from theory.training import train

MOST_BITS = 16
CONVEX = "convex-greedy"
GAUGES = ("found", "balanced")


@dataclass(frozen=True)
class ConstructionPoint:
    """One channel, constructed (or of convex heads) for one permutation of Gaussian items."""

    num_items: int
    d_model: int
    num_heads: int
    head_dim: int
    construction: str
    seed: int


@dataclass(frozen=True)
class NoisePoint:
    """Scores of one constructed head that owns ``block_size`` edges of a permutation."""

    num_items: int
    d_model: int
    head_dim: int
    block_size: int
    construction: str
    seed: int


@dataclass(frozen=True)
class PrecisionPoint:
    """One channel, trained or constructed, whose weights are rounded to ever fewer bits."""

    num_items: int
    d_model: int
    num_heads: int
    head_dim: int
    source: str
    seed: int


def _fields(point: type, *more: str) -> frozenset[str]:
    return frozenset(point.__dataclass_fields__) | {*more, "seconds"}


KINDS = {
    "points": Kind(
        ConstructionPoint,
        _fields(
            ConstructionPoint,
            "total_key_dim",
            "exact_recovery",
            "best_f1",
            "smallest_edge",
            "largest_non_edge",
            "predicted_success",
        ),
    ),
    "noise": Kind(NoisePoint, _fields(NoisePoint, "variances", "predicted_variances")),
    "precision": Kind(
        PrecisionPoint,
        _fields(
            PrecisionPoint,
            "total_key_dim",
            "exact_recovery",
            "bits",
            "bits_gauge",
            "best_f1_found",
            "best_f1_balanced",
            "graph_bits",
            "counting_bits",
            "bits_over_graph",
        ),
    ),
}


def _problem(point: Any) -> Problem:
    return make_problem(
        num_items=point.num_items,
        num_edges=point.num_items,
        d_model=point.d_model,
        embedding="gaussian",
        graph="permutation",
        seed=point.seed,
    )


def compute(points: Sequence[Any]) -> list[Record]:
    """Compute the records of a batch."""
    started = time.perf_counter()
    make = {ConstructionPoint: _constructed, NoisePoint: _noise, PrecisionPoint: _rounded}[type(points[0])]
    records = make(points)
    seconds = round((time.perf_counter() - started) / len(points), 3)
    return [
        asdict(point) | record | {"seconds": seconds} for point, record in zip(points, records, strict=True)
    ]


def channels(
    source: str, problems: Sequence[Problem], seeds: Sequence[int], num_heads: int, head_dim: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Query and key weights of one channel for each problem, by a construction or a trainer."""
    if source in CONSTRUCTIONS:
        return [
            construct(
                source,
                problem.embeddings,
                problem.graph.edges,
                num_heads=num_heads,
                head_dim=head_dim,
                rng=seeded_rng(seed, f"construction, {source}"),
            )
            for seed, problem in zip(seeds, problems, strict=True)
        ]
    trained = train(
        "plain" if source == "joint" else "greedy",
        np.stack([problem.embeddings for problem in problems]),
        np.stack([problem.graph.adjacency() for problem in problems]),
        num_heads=num_heads,
        head_dim=head_dim,
        seeds=seeds,
        max_head_dim=1 << (head_dim - 1).bit_length(),
    )
    return [(channel.query_weights, channel.key_weights) for channel in trained]


def _judge(problem: Problem, weights: tuple[np.ndarray, np.ndarray]) -> Recovery:
    return evaluate(channel_scores(problem.embeddings, *weights), problem.graph.adjacency(), 0.0)


def _constructed(points: Sequence[ConstructionPoint]) -> list[Record]:
    first, problems = points[0], [_problem(point) for point in points]
    found = channels(first.construction, problems, [p.seed for p in points], first.num_heads, first.head_dim)
    predicted = None
    if first.construction in CONSTRUCTIONS:
        sizes = first.num_items, first.d_model, first.num_heads, first.head_dim
        predicted = success_probability(first.construction, *sizes)  # pyright: ignore[reportArgumentType]
    records = []
    for problem, weights in zip(problems, found, strict=True):
        recovery = _judge(problem, weights)
        records.append(
            {"total_key_dim": first.num_heads * first.head_dim, "predicted_success": predicted}
            | {
                name: getattr(recovery, name)
                for name in ("exact_recovery", "best_f1", "smallest_edge", "largest_non_edge")
            }
        )
    return records


def _noise(points: Sequence[NoisePoint]) -> list[Record]:
    records = []
    for point in points:
        problem = _problem(point)
        edges = problem.graph.edges[: point.block_size]
        rng = seeded_rng(point.seed, "noise")
        name: Any = point.construction
        weights = construct(name, problem.embeddings, edges, num_heads=1, head_dim=point.head_dim, rng=rng)
        scores = channel_scores(problem.embeddings, *weights)
        own, source, target = np.zeros_like(scores, bool), *np.zeros((2, point.num_items), bool)
        own[edges[:, 0], edges[:, 1]], source[edges[:, 0]], target[edges[:, 1]] = True, True, True
        u, v = source[:, None], target[None]
        masks = (own, u & v & ~own, u & ~v, ~u & v, ~u & ~v)
        squares = np.square(scores - own)
        predicted = score_variances(name, point.d_model, point.head_dim, point.block_size)
        records.append(
            {
                "variances": [float(squares[mask].mean()) for mask in masks],
                "predicted_variances": [predicted[kind] for kind in KINDS_OF_PAIRS],
            }
        )
    return records


def _rounded(points: Sequence[PrecisionPoint]) -> list[Record]:
    first, problems = points[0], [_problem(point) for point in points]
    found = channels(first.source, problems, [p.seed for p in points], first.num_heads, first.head_dim)
    return [rounded_record(first, problem, weights) for problem, weights in zip(problems, found, strict=True)]


def rounded_record(point: PrecisionPoint, problem: Problem, weights: tuple[np.ndarray, np.ndarray]) -> Record:
    """What is left of a channel at 1 to 16 bits, in both gauges, and the least bits at which it is exact.

    ``bits`` is the least p at which, and at every larger one tried, some threshold separates the graph; in the better
    gauge. None where the channel as found does not, or 16 bits do not.
    """
    exact = _judge(problem, weights).exact_recovery
    least: dict[str, int | None] = {}
    scores: dict[str, list[float]] = {}
    for gauge in GAUGES:
        factors = weights if gauge == "found" else balanced(*weights)
        judged = [
            _judge(problem, (quantise(factors[0], p), quantise(factors[1], p)))
            for p in range(1, MOST_BITS + 1)
        ]
        scores[gauge] = [recovery.best_f1 for recovery in judged[:8]]
        wrong = [p for p, recovery in enumerate(judged, start=1) if not recovery.exact_recovery]
        least[gauge] = max(wrong, default=0) + 1 if exact and MOST_BITS not in wrong else None
    reached = {gauge: bits for gauge, bits in least.items() if bits is not None}
    gauge = min(reached, key=lambda name: reached[name], default=None)
    bits = None if gauge is None else reached[gauge]
    budget = point.num_heads * point.head_dim
    graph = log2_num_permutation_graphs(point.num_items)
    used = None if bits is None else bits_used(point.d_model, budget, bits)
    return {
        "total_key_dim": budget,
        "exact_recovery": exact,
        "bits": bits,
        "bits_gauge": gauge,
        "best_f1_found": scores["found"],
        "best_f1_balanced": scores["balanced"],
        "graph_bits": graph,
        "counting_bits": graph / (2 * point.d_model * budget + 1),
        "bits_over_graph": None if used is None else used / graph,
    }


def work_of(points: Sequence[Any]) -> float:
    """How much a batch costs, about."""
    first = points[0]
    scores = len(points) * first.num_items**2 * first.head_dim * getattr(first, "num_heads", 1) / 1e8
    if isinstance(first, PrecisionPoint):
        scores *= 2 * MOST_BITS
        return scores + (200 if first.source in ("greedy", "joint") else 0)
    return scores + (200 if getattr(first, "construction", "") == CONVEX else 0)
