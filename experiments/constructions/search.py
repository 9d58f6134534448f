"""Where to look: the grid of noise and precision, and the search for the least budget of a construction."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from experiments.constructions.config import ConstructionsConfig, Rounded
from experiments.constructions.units import CONVEX, ConstructionPoint, NoisePoint, PrecisionPoint, work_of
from experiments.engine import Ask, Part, costliest_first
from experiments.points import Point
from theory.constructions import CONSTRUCTIONS, Construction, predicted_head_dim
from theory.transition import search_threshold


def head_counts(
    config: ConstructionsConfig, construction: Construction, num_items: int, d_model: int
) -> list[int]:
    """Head counts at which a construction can be built, with blocks of at least two edges."""
    counts = [h for h in config.num_heads if 2 * h <= num_items]
    if construction == "zero-forcing":
        return [h for h in counts if -(-num_items // h) <= d_model - 2]
    return counts


def parts_of(config: ConstructionsConfig, ask: Ask) -> list[Part]:
    """Searches, then noise and precision; the costliest first."""
    parts = []
    for m, d in config.sizes():
        for construction in CONSTRUCTIONS:
            for h in head_counts(config, construction, m, d):
                run = partial(_search, ask, config, construction, m, d, h)
                weight = 6 * config.seeds * m * m * d * h / 1e8
                parts.append(
                    Part(f"{construction}, {m} items, d = {d}, {h} heads", run, 6 * config.seeds, weight)
                )
        if d <= config.convex_max_d_model:
            run = partial(_convex, ask, config, m, d)
            parts.append(Part(f"{CONVEX}, {m} items, d = {d}", run, 2 * config.convex_seeds, 600))
    for points in batches(config):
        name = f"{type(points[0]).__name__}: {points[0]}"
        parts.append(Part(name, partial(ask, points), len(points), work_of(points)))
    return costliest_first(parts)


def _search(
    ask: Ask,
    config: ConstructionsConfig,
    construction: Construction,
    num_items: int,
    d_model: int,
    num_heads: int,
) -> None:
    def evaluate(head_dim: int) -> tuple[int, int]:
        sizes = num_items, d_model, num_heads, head_dim
        records = ask([ConstructionPoint(*sizes, construction, seed) for seed in range(config.seeds)])
        return sum(record["exact_recovery"] for record in records), len(records)

    start = predicted_head_dim(construction, num_items, d_model, num_heads)
    search_threshold(evaluate, start=start, lowest=1, highest=d_model)


def _convex(ask: Ask, config: ConstructionsConfig, num_items: int, d_model: int) -> None:
    """Ever more heads of d_k = d, until half of the seeds are recovered."""
    for h in range(1, config.convex_max_heads + 1):
        points = [
            ConstructionPoint(num_items, d_model, h, d_model, CONVEX, s) for s in range(config.convex_seeds)
        ]
        if 2 * sum(record["exact_recovery"] for record in ask(points)) >= len(points):
            return


def batches(config: ConstructionsConfig) -> list[Sequence[Point]]:
    """Batches of noise and precision."""
    out: list[Sequence[Point]] = [
        [
            NoisePoint(config.noise_num_items, config.noise_d_model, head_dim, block, construction, seed)
            for seed in range(config.noise_seeds)
        ]
        for construction in CONSTRUCTIONS
        for head_dim in config.noise_head_dims
        for block in config.noise_block_sizes
    ]
    for text in config.precision:
        r = Rounded.parse(text)
        head_dim = r.total_key_dim // r.num_heads
        sizes = r.num_items, r.d_model, r.num_heads, head_dim
        out.append([PrecisionPoint(*sizes, r.source, seed) for seed in range(config.precision_seeds)])
    return out
