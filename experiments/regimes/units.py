"""Points of the regimes experiment and what a batch of them computes."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from experiments.points import Kind, Point, Record
from theory.certificates import certify_head
from theory.own_edges import holds_own_edges
from theory.problems import make_problem
from theory.recognition import channel_scores, evaluate
from theory.training import Channel, GreedyOptions, train_greedy
from theory.training.variants import VariantOptions, train_variant

RECOVERED = 0.99
HEAD_BY_HEAD = GreedyOptions()
PATIENT = GreedyOptions(restarts=4, iterations=400)
"""For one head alone, which must not give up edges before its fits have ended."""


@dataclass(frozen=True)
class HeadsPoint:
    """Heads of one size, added one after the other until the graph is recovered or there are ``max_heads``.

    Attributes:
        part: of the experiment; ``one`` is the map's single head.
        num_items: ``m``.
        num_edges: ``m'``.
        d_model: ``d``.
        graph: as `theory.problems` names it.
        head_dim: ``d_k``.
        max_heads: at most.
        seed: of everything that is drawn.
    """

    part: str
    num_items: int
    num_edges: int
    d_model: int
    graph: str
    head_dim: int
    max_heads: int
    seed: int


@dataclass(frozen=True)
class DecidedPoint:
    """One permutation, of which it is decided whether one head can hold it."""

    num_items: int
    d_model: int
    seed: int


@dataclass(frozen=True)
class JointPoint:
    """One run of joint training on a permutation; fields as in the joint experiment."""

    variant: str
    num_items: int
    d_model: int
    num_heads: int
    num_steps: int
    head_dim: int
    seed: int


@dataclass(frozen=True)
class OwnPoint:
    """One head that is given ``own_edges`` edges of a permutation."""

    num_items: int
    d_model: int
    head_dim: int
    own_edges: int
    seed: int


def _fields(point: type, *more: str) -> frozenset[str]:
    return frozenset(point.__dataclass_fields__) | {*more, "seconds"}


KINDS = {
    "heads": Kind(
        HeadsPoint,
        _fields(HeadsPoint, "status", "reason", "heads", "exact_heads", "held", "best_f1"),
    ),
    "decided": Kind(DecidedPoint, _fields(DecidedPoint, "verdict", "proven", "margin", "residual")),
    "joint": Kind(
        JointPoint,
        _fields(JointPoint, "status", "reason", "best_f1", "exact"),
        values=("head_dim", "seed"),
        rows="joint_points",
    ),
    "own": Kind(OwnPoint, _fields(OwnPoint, "holds"), values=("own_edges", "seed"), rows="own_points"),
}


def compiled_width(point: HeadsPoint) -> int:
    """Columns that the program of a batch is compiled for; the map's head sizes share one, as do those of one head."""
    least = {"map": 4, "one": 16}.get(point.part, 1)
    return max(least, 1 << (point.head_dim - 1).bit_length())


def program(points: Sequence[Point]) -> Hashable:
    """What a batch needs compiled."""
    first = points[0]
    if not isinstance(first, HeadsPoint):
        return None
    width = min(first.d_model, compiled_width(first))
    return len(points), first.num_items, first.num_edges, first.d_model, width, first.part == "one"


def compute(points: Sequence[Point]) -> list[Record]:
    """Compute the records of a batch."""
    started = time.perf_counter()
    kind = {HeadsPoint: _heads, DecidedPoint: _decided, JointPoint: _joint, OwnPoint: _own}[type(points[0])]
    problems = [
        make_problem(
            num_items=p.num_items,
            num_edges=p.num_edges if isinstance(p, HeadsPoint) else p.num_items,
            d_model=p.d_model,
            embedding="gaussian",
            graph=p.graph if isinstance(p, HeadsPoint) else "permutation",
            seed=p.seed,
        )
        for p in points
    ]
    items = np.stack([problem.embeddings for problem in problems])
    edges = np.stack([problem.graph.adjacency() for problem in problems])
    found = kind(points, items, edges)
    seconds = round((time.perf_counter() - started) / len(points), 3)
    return [
        asdict(point) | record | {"seconds": seconds} for point, record in zip(points, found, strict=True)
    ]


def _heads(points: Sequence[HeadsPoint], items: np.ndarray, edges: np.ndarray) -> list[Record]:
    first = points[0]
    channels = train_greedy(
        items,
        edges,
        num_heads=first.max_heads,
        head_dim=first.head_dim,
        seeds=[p.seed for p in points],
        max_head_dim=compiled_width(first),
        options=PATIENT if first.part == "one" else HEAD_BY_HEAD,
    )
    return [judge(x, a, channel) for x, a, channel in zip(items, edges, channels, strict=True)]


def judge(items: np.ndarray, edges: np.ndarray, channel: Channel) -> Record:
    """Judge a channel in float64 from its weights, head after head.

    ``heads`` are the fewest first heads that recover the graph, ``exact_heads`` those that answer every pair right;
    ``held`` is how many edges each head scores above all of its own non-edges, heads that are not needed left out.
    """
    record: Record = {"status": "ok", "reason": None, "heads": None, "exact_heads": None}
    if channel.reason is not None:
        return record | {"status": "failed", "reason": channel.reason, "held": None, "best_f1": None}
    best, held, f1 = np.full(edges.shape, -np.inf), [], 0.0
    for i in range(len(channel.query_weights)):
        if not channel.query_weights[i].any():
            continue
        scores = channel_scores(items, channel.query_weights[i : i + 1], channel.key_weights[i : i + 1])
        held.append(int(np.sum(scores[edges] > scores[~edges].max())))
        best = np.maximum(best, scores)
        found = evaluate(best, edges, float(channel.threshold))
        f1 = max(f1, found.best_f1)
        if record["heads"] is None and found.best_f1 >= RECOVERED:
            record["heads"] = len(held)
        if record["exact_heads"] is None and found.exact_recovery:
            record["exact_heads"] = len(held)
    return record | {"held": held, "best_f1": f1}


def _decided(points: Sequence[DecidedPoint], items: np.ndarray, edges: np.ndarray) -> list[Record]:
    found = [certify_head(x, a, ~a) for x, a in zip(items, edges, strict=True)]
    return [
        {
            "verdict": one.verdict,
            "proven": bool(one.proven),
            "margin": float(one.margin),
            "residual": None if one.residual is None else float(one.residual),
        }
        for one in found
    ]


def _joint(points: Sequence[JointPoint], items: np.ndarray, edges: np.ndarray) -> list[Record]:
    first = points[0]
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
    return [
        {"status": "ok", "reason": None, "best_f1": run.best_f1, "exact": run.exact}
        if run.finite
        else {"status": "failed", "reason": "loss not finite", "best_f1": None, "exact": None}
        for run in runs
    ]


def _own(points: Sequence[OwnPoint], items: np.ndarray, edges: np.ndarray) -> list[Record]:
    holds = holds_own_edges(
        items,
        edges,
        head_dim=points[0].head_dim,
        own_edges=[p.own_edges for p in points],
        seeds=[p.seed for p in points],
    )
    return [{"holds": bool(one)} for one in holds]
