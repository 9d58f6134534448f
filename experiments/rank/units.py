"""Points of the rank experiment and what a batch computes."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.points import Kind, Point, Record
from experiments.rank import maps
from experiments.rank.config import BLOCK, STORAGE_BITS, RankConfig
from mha_jax import attention_weights
from theory.problems import seeded_rng
from theory.rank import (
    PATTERNS,
    best_approximations,
    bounded_permutation_kl,
    circle,
    circle_kl,
    circle_scale,
    guaranteed_length,
    least_planar_scale,
    mean_kl,
    required_head_dim,
    spectra,
    truncation,
)


@dataclass(frozen=True)
class RankPoint:
    """The best head of one size for one pattern.

    Attributes:
        pattern: a name in `theory.rank.PATTERNS`, or the pretrained model's.
        n: queries and keys.
        width: the largest head size of the batch, for which its program is compiled.
        head_dim: d_k.
        bound: on ``|q_i| |k_j|``; None for none.
        num_starts: of the optimiser.
        num_steps: of the optimiser, at most.
        seed: of the pattern, where it has chance in it, and of the starts; which map, for those of a model.
    """

    pattern: str
    n: int
    width: int
    num_starts: int
    num_steps: int
    head_dim: int
    seed: int
    bound: float | None = None


@dataclass(frozen=True)
class SpectrumPoint:
    """Spectra of one head's logits and weights.

    Attributes:
        source: ``gaussian`` (queries and keys with logits of variance 1), or the pretrained model's name.
        n: queries and keys.
        head_dim: d_k.
        seed: of the draw; which map, for those of a model.
    """

    source: str
    n: int
    head_dim: int
    seed: int


@dataclass(frozen=True)
class CirclePoint:
    """The circle in finite precision.

    Attributes:
        dtype: of queries and keys.
        miss: weight that all other keys are to share.
        num_queries: most queries looked at.
        n: keys.
    """

    dtype: str
    miss: float
    num_queries: int
    n: int


KINDS = {
    "points": Kind(
        RankPoint,
        frozenset(RankPoint.__dataclass_fields__)
        | {"kl", "max_logit", "representable", "minimal_head_dim", "truncated_kl", "uniform_kl", "floor_kl"}
        | {"circle_kl", "starts", "steps_taken", "layer", "head", "seconds"},
        values=("bound", "head_dim", "seed"),
    ),
    "spectra": Kind(
        SpectrumPoint,
        frozenset(SpectrumPoint.__dataclass_fields__)
        | {"logits", "weights", "logits_rank", "weights_rank", "layer", "head", "seconds"},
    ),
    "circle": Kind(
        CirclePoint,
        frozenset(CirclePoint.__dataclass_fields__)
        | {
            "scale",
            "least_scale",
            "guaranteed_length",
            "share_right",
            "least_weight",
            "queries_seen",
            "seconds",
        },
        values=("n",),
    ),
}


def head_dims(config: RankConfig, n: int) -> list[int]:
    """Head sizes at which a pattern of n keys is approximated."""
    return sorted({k for k in (*config.head_dims, n - 2, n - 1) if 1 <= k <= n - 1})


def grid(config: RankConfig) -> list[Point]:
    """All points of a configuration that can be computed here."""
    points: list[Point] = []
    shared = {"num_starts": config.num_starts, "num_steps": config.num_steps}
    for n in config.lengths:
        for pattern in config.patterns:
            points += [
                RankPoint(pattern, n, n - 1, head_dim=k, seed=seed, bound=bound, **shared)
                for bound in (None, *config.bounds)
                for k in head_dims(config, n)
                for seed in range(config.seeds)
            ]
    real = config.real_lengths if maps.why_left_out() is None else ()
    for n in real:
        sizes = sorted(k for k in config.real_head_dims if k < n)
        points += [
            RankPoint(maps.MODEL, n, max(sizes), head_dim=k, seed=seed, bound=bound, **shared)
            for bound in (None, *config.bounds)
            for k in sizes
            for seed in range(config.real_maps)
        ]
    points += [
        SpectrumPoint("gaussian", config.spectrum_length, k, seed)
        for k in config.spectrum_head_dims
        for seed in range(config.seeds)
    ]
    if config.spectrum_head_dims:
        points += [SpectrumPoint(maps.MODEL, n, 32, seed) for n in real for seed in range(config.real_maps)]
    points += [
        CirclePoint(dtype, config.circle_miss, config.circle_queries, n)
        for dtype in config.circle_dtypes
        for n in config.circle_lengths
    ]
    return points


def compute(points: Sequence[Point]) -> list[Record]:
    """One batch."""
    started = time.perf_counter()
    first = points[0]
    if isinstance(first, RankPoint):
        records = _approximate(points)
    elif isinstance(first, SpectrumPoint):
        records = [asdict(point) | _spectra(point) for point in points]
    else:
        records = [asdict(point) | _on_circle(point) for point in points]
    seconds = round((time.perf_counter() - started) / len(points), 3)
    return [record | {"seconds": seconds} for record in records]


def program(points: Sequence[Point]) -> Hashable:
    """What a batch needs compiled."""
    first = points[0]
    if not isinstance(first, RankPoint):
        return None
    return len(points), first.n, first.width, first.num_starts, first.num_steps


def work_of(points: Sequence[Point]) -> float:
    """How much a batch costs, about."""
    first = points[0]
    if isinstance(first, RankPoint):
        return len(points) * first.num_starts * first.num_steps * first.n**2 * first.width / 1e8
    return 1.0


def pattern_of(point: RankPoint) -> tuple[np.ndarray, int | None, int | None]:
    """A point's pattern, with layer and head of a map."""
    if point.pattern == maps.MODEL:
        found = maps.real_map(point.n, point.seed)
        return found.pattern, found.layer, found.head
    rng = seeded_rng(point.seed, f"pattern {point.pattern}")
    return PATTERNS[point.pattern](point.n, rng), None, None


def floor_kl(point: RankPoint) -> float:
    """Below this no head of any size comes (theorem)."""
    if point.pattern == "permutation" and point.bound is not None:
        return bounded_permutation_kl(point.n, point.bound)
    return 0.0


def _approximate(points: Sequence[RankPoint]) -> list[Record]:
    found = {point.seed: pattern_of(point) for point in points}
    heads = best_approximations(
        [found[point.seed][0] for point in points],
        [point.head_dim for point in points],
        bounds=[point.bound for point in points],
        seeds=[point.seed for point in points],
        width=points[0].width,
        num_starts=points[0].num_starts,
        num_steps=points[0].num_steps,
    )
    records = []
    for point, best in zip(points, heads, strict=True):
        pattern, layer, head = found[point.seed]
        positive = bool((pattern > 0).all())
        required = required_head_dim(pattern) if positive else None
        is_circle = point.pattern == "permutation" and point.bound is not None
        records.append(
            asdict(point)
            | {
                "kl": best.kl,
                "max_logit": best.max_logit,
                "representable": required is not None and required <= point.head_dim,
                "minimal_head_dim": required,
                "truncated_kl": mean_kl(pattern, truncation(pattern, point.head_dim)) if positive else None,
                "uniform_kl": mean_kl(pattern, np.full_like(pattern, 1 / point.n)),
                "floor_kl": floor_kl(point),
                "circle_kl": circle_kl(point.n, point.bound or 0.0) if is_circle else None,
                "starts": list(best.starts),
                "steps_taken": list(best.num_steps),
                "layer": layer,
                "head": head,
            }
        )
    return records


def _spectra(point: SpectrumPoint) -> Record:
    layer, head = None, None
    if point.source == maps.MODEL:
        found = maps.real_map(point.n, point.seed)
        logits, layer, head = np.log(found.pattern), found.layer, found.head
        logits = logits - logits.mean(axis=1, keepdims=True)  # the model's own up to a constant a row
    else:
        rng = seeded_rng(point.seed, f"spectrum of head size {point.head_dim}")
        query, key = rng.standard_normal((2, point.n, point.head_dim))
        logits = query @ key.T / np.sqrt(point.head_dim)
    values = spectra(logits)
    return {
        "logits": [float(x) for x in values.logits],
        "weights": [float(x) for x in values.weights],
        "logits_rank": values.logits_rank,
        "weights_rank": values.weights_rank,
        "layer": layer,
        "head": head,
    }


def _on_circle(point: CirclePoint) -> Record:
    """Weights of the circle's targets with coordinates kept in one precision and arithmetic in float32."""
    rng = seeded_rng(point.n, "circle")
    targets = np.arange(point.n)
    if point.n > point.num_queries:
        targets = np.sort(rng.choice(point.n, point.num_queries, replace=False))
    query, key = circle(targets, point.n)
    scale = circle_scale(point.n, point.miss)
    stored = [jnp.asarray(x, point.dtype).astype(jnp.float32)[:, None, :] for x in (query, key)]
    least, right = 1.0, 0
    for start in range(0, len(targets), BLOCK):
        part: Any = attention_weights(stored[0][start : start + BLOCK], stored[1], scale=scale)[0]
        weights = np.array(part)
        rows, own = np.arange(len(weights)), targets[start : start + BLOCK]
        target = weights[rows, own].copy()
        weights[rows, own] = -1
        least = min(least, float(target.min()))
        right += int((target > weights.max(axis=1)).sum())
    return {
        "scale": scale,
        "least_scale": least_planar_scale(point.n, point.miss),
        "guaranteed_length": guaranteed_length(STORAGE_BITS[point.dtype]),
        "share_right": right / len(targets),
        "least_weight": least,
        "queries_seen": len(targets),
    }
