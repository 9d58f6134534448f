"""Points of the gap experiment and what a batch computes."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from experiments.gap.config import GapConfig
from experiments.points import Kind, Record
from theory.bounds import partition_head_dim
from theory.minima import full_rank_sets, least_cover, least_one_dimensional_heads
from theory.problems import make_problem
from theory.recognition import channel_scores, evaluate
from theory.training import Channel, GreedyOptions, train_greedy
from theory.training.annealed import AnnealedOptions, train_annealed

RECOVERED = 0.99
_HARD = 1e-3  # temperature of a maximum that is hard from the start, in units of the margin


@dataclass(frozen=True)
class ChannelPoint:
    """One trained channel.

    Attributes:
        trainer: a name in `experiments.gap.config.TRAINERS`.
        num_items: ``m``.
        d_model: ``d``.
        num_heads: ``h``.
        head_dim: ``d_k``.
        seed: of everything that is drawn.
        restarts: starts; None where the trainer has its own number.
        num_steps: of Adam; None where there is none.
    """

    trainer: str
    num_items: int
    d_model: int
    num_heads: int
    head_dim: int
    seed: int
    restarts: int | None = None
    num_steps: int | None = None


@dataclass(frozen=True)
class MinimumPoint:
    """One instance that is small enough to try everything.

    Attributes:
        num_items: ``m``.
        d_model: ``d``.
        seed: of items and graph.
    """

    num_items: int
    d_model: int
    seed: int


KINDS = {
    "points": Kind(
        ChannelPoint,
        frozenset(ChannelPoint.__dataclass_fields__)
        | {"status", "reason", "total_key_dim", "best_f1", "exact", "missed", "seconds"},
        values=("head_dim", "seed"),
    ),
    "minima": Kind(
        MinimumPoint,
        frozenset(MinimumPoint.__dataclass_fields__)
        | {"full_rank_heads", "largest_owned", "undecided", "programs", "one_low", "one_high", "seconds"},
    ),
}


def head_dims(config: GapConfig, num_items: int, num_heads: int) -> list[int]:
    """Head sizes of one size and head count: the largest is about what a fixed partition needs."""
    dim = float(partition_head_dim(num_items, num_items, config.d_model, num_heads))
    # Where that partition fails (two heads), nine sixteenths of the full rank are a start.
    share = 0.5625 if math.isinf(dim) else config.reach * dim / config.d_model
    top = min(config.d_model, max(2, math.ceil(share * config.d_model)))
    dims = [k for k in range(top - config.budgets + 1, top + 1) if k >= 1]
    # One dimension is excluded by a theorem: it is run where there is nothing else below.
    return dims[1:] if dims[0] == 1 and len(dims) > 2 else dims


def small_shapes(num_items: int, d_model: int, most: int) -> list[tuple[int, int]]:
    """(head_dim, num_heads) of small channels: two dimensions and full rank, heads around what they need."""
    shapes = []
    for k in dict.fromkeys((2, d_model)):
        dims = [float(partition_head_dim(num_items, num_items, d_model, h)) for h in range(1, num_items + 1)]
        dealt = next((h for h, dim in enumerate(dims, 1) if dim <= k), num_items)
        shapes += [(k, h) for h in range(max(1, dealt - most), dealt + 1)]
    return shapes


def grid(config: GapConfig) -> list[ChannelPoint | MinimumPoint]:
    """All points of a configuration."""
    arms = [(config.num_items, h, name) for h in config.head_counts for name in config.trainers]
    arms += [(m, config.middle, name) for m in config.items for name in config.trainers]
    if config.middle in config.head_counts:
        arms += [(config.num_items, config.middle, name) for name in config.more]
    points: list[ChannelPoint | MinimumPoint] = []
    for m, h, name in dict.fromkeys(arms):
        for k in head_dims(config, m, h):
            points += [_channel(config, name, m, config.d_model, h, k, s) for s in range(config.seeds)]
    for m, d in dict.fromkeys(zip(config.minima, config.minima_dims, strict=True)):
        points += [MinimumPoint(m, d, seed) for seed in range(config.minima_seeds)]
        for k, h in small_shapes(m, d, 2):
            points += [_channel(config, "annealed", m, d, h, k, s) for s in range(config.minima_seeds)]
    return points


def _channel(config: GapConfig, name: str, m: int, d: int, h: int, k: int, seed: int) -> ChannelPoint:
    if name.startswith("greedy"):
        return ChannelPoint(name, m, d, h, k, seed)
    return ChannelPoint(name, m, d, h, k, seed, config.restarts, config.num_steps)


def compute(points: Sequence[ChannelPoint | MinimumPoint]) -> list[Record]:
    """One batch."""
    if isinstance(points[0], MinimumPoint):
        return [_minimum(point) for point in points if isinstance(point, MinimumPoint)]
    return _channels([point for point in points if isinstance(point, ChannelPoint)])


def _minimum(point: MinimumPoint) -> Record:
    started = time.perf_counter()
    made = _problem(point)
    adjacency = made.graph.adjacency()
    sets = full_rank_sets(made.embeddings, adjacency)
    one = least_one_dimensional_heads(made.embeddings, adjacency)
    return asdict(point) | {
        "full_rank_heads": least_cover(sets.ownable),
        "largest_owned": max(int(s).bit_count() for s in np.flatnonzero(sets.ownable)),
        "undecided": sets.undecided,
        "programs": sets.programs,
        "one_low": one.low,
        "one_high": one.high,
        "seconds": round(time.perf_counter() - started, 3),
    }


def _problem(point: ChannelPoint | MinimumPoint):
    return make_problem(
        num_items=point.num_items,
        num_edges=point.num_items,
        d_model=point.d_model,
        embedding="gaussian",
        graph="permutation",
        seed=point.seed,
    )


def train_points(
    points: Sequence[ChannelPoint], items: np.ndarray, edges: np.ndarray, max_head_dim: int
) -> list[Channel]:
    """The channels of points of one shape, by programs compiled for ``max_head_dim``."""
    first = points[0]
    shape: Any = {
        "num_heads": first.num_heads,
        "head_dim": first.head_dim,
        "seeds": [point.seed for point in points],
        "max_head_dim": max_head_dim,
    }
    if first.trainer == "greedy":
        return train_greedy(items, edges, **shape)
    if first.trainer == "greedy-long":
        long = GreedyOptions(restarts=6, swap_passes=6, swap_below=0.2)
        return train_greedy(items, edges, options=long, **shape)
    assert first.restarts is not None
    assert first.num_steps is not None
    options = AnnealedOptions(restarts=first.restarts, num_steps=first.num_steps)
    if first.trainer == "hard":
        options = replace(options, temperature=_HARD, coldest=_HARD)
    return train_annealed(items, edges, options=options, **shape)


def _channels(points: Sequence[ChannelPoint]) -> list[Record]:
    started = time.perf_counter()
    problems = [_problem(point) for point in points]
    items = np.stack([problem.embeddings for problem in problems])
    edges = np.stack([problem.graph.adjacency() for problem in problems])
    found: dict[int, Record] = {}
    widest = max(point.head_dim for point in points)
    for k in sorted({point.head_dim for point in points}):
        own = [i for i, point in enumerate(points) if point.head_dim == k]
        channels = train_points([points[i] for i in own], items[own], edges[own], widest)
        for i, channel in zip(own, channels, strict=True):
            found[i] = _judged(channel, items[i], edges[i])
    seconds = round((time.perf_counter() - started) / len(points), 3)
    return [
        asdict(point) | {"total_key_dim": point.num_heads * point.head_dim} | found[i] | {"seconds": seconds}
        for i, point in enumerate(points)
    ]


def _judged(channel: Channel, items: np.ndarray, edges: np.ndarray) -> Record:
    """What the channel does, in float64, from its weights alone."""
    if channel.reason is not None:
        return {
            "status": "failed",
            "reason": channel.reason,
            "best_f1": None,
            "exact": None,
            "missed": None,
        }
    scores = channel_scores(items, channel.query_weights, channel.key_weights)
    said = evaluate(scores, edges, channel.threshold)
    return {
        "status": "ok",
        "reason": None,
        "best_f1": said.best_f1,
        "exact": said.exact_recovery,
        "missed": int(np.sum(scores[edges] <= scores[~edges].max())),
    }
