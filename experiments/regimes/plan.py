"""Which points the regimes experiment asks for. Searches depend on the answers and on nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from experiments.engine import Ask, Part, costliest_first
from experiments.points import Record
from experiments.regimes.config import FAMILIES, RegimesConfig, size_of
from experiments.regimes.units import RECOVERED, DecidedPoint, HeadsPoint, JointPoint, OwnPoint
from theory.bounds import held_edges, partition_head_dim, single_head_max_items
from theory.head_size import LEAST_HEAD_DIM, heads_of_size, partition_budget
from theory.transition import search_threshold

PROMISING = 1.1
"""Head sizes are tried whose predicted budget is at most so many times the least of those configured."""
STEP_DOWN = 8
"""Up to so many heads, one less is tried with edges changing hands: its passes cost a fit of every head."""


def items_of(d_model: int, factor: float) -> int:
    """Items at a multiple of the single head's predicted ceiling."""
    return max(4, round(factor * single_head_max_items(d_model)))


def needed(records: Sequence[Record]) -> int | None:
    """Heads with which at least half of the seeds recover; None where more than half never do."""
    counts = sorted(row["heads"] for row in records if row["heads"] is not None)
    half = -(-len(records) // 2)
    return counts[half - 1] if len(counts) >= half else None


def whole_budget(num_items: int, num_edges: int, d_model: int, head_dim: int) -> int:
    """Predicted budget of heads of one size, rounded up to whole heads."""
    return head_dim * math.ceil(heads_of_size(num_items, num_edges, d_model, head_dim) - 1e-9)


def heads_points(
    part: str,
    size: tuple[int, int, int],
    graph: str,
    head_dim: int,
    seeds: int,
    max_heads: int | None = None,
) -> list[HeadsPoint]:
    """All seeds of one size (m, m', d) and head size, with room for twice the heads that are predicted."""
    m, edges, d = size
    if max_heads is None:
        max_heads = 2 * math.ceil(heads_of_size(m, edges, d, head_dim)) + 2
        if head_dim < LEAST_HEAD_DIM:  # a head of one dimension holds two edges of a permutation at most
            max_heads = max(max_heads, edges)
    return [HeadsPoint(part, m, edges, d, graph, head_dim, max_heads, seed) for seed in range(seeds)]


@dataclass(frozen=True)
class Cell:
    """One size of the map."""

    d_model: int
    factor: float
    num_items: int

    def size(self) -> tuple[int, int, int]:
        """m, m', d."""
        return self.num_items, self.num_items, self.d_model


def cells(config: RegimesConfig) -> list[Cell]:
    """The map's sizes; factors that round to the same number of items are one."""
    found = {}
    for d in config.map_d_models:
        for factor in config.map_factors:
            m = items_of(d, factor)
            if m <= config.map_largest_items:
                found.setdefault((d, m), Cell(d, factor, m))
    return list(found.values())


def search_cell(config: RegimesConfig, cell: Cell, ask: Ask) -> None:
    """Decide whether one head can, find its budget if so, then the best of several heads."""
    d, m, seeds = cell.d_model, cell.num_items, config.map_seeds
    decided = ask([DecidedPoint(m, d, seed) for seed in range(seeds)])
    single = math.inf
    if 2 * sum(row["verdict"] == "separable" for row in decided) >= seeds:

        def recovered(head_dim: int) -> tuple[int, int]:
            rows = ask(heads_points("one", cell.size(), "permutation", head_dim, seeds, 1))
            return sum(row["heads"] is not None for row in rows), len(rows)

        start = partition_head_dim(m, m, d, 1)
        tried = search_threshold(
            recovered, start=start if math.isfinite(start) else None, lowest=1, highest=d, spread=0.1
        )
        single = min((k for k, (hits, runs) in tried.items() if 2 * hits >= runs), default=math.inf)
    _several(config, cell, ask, single)


def _several(config: RegimesConfig, cell: Cell, ask: Ask, single: float) -> None:
    m, edges, d = cell.size()
    usable = [k for k in config.map_head_dims if k < min(single, d)]
    if not usable:
        return
    predicted = {k: whole_budget(m, edges, d, k) for k in usable}
    least = min(predicted.values())
    promising = [k for k in usable if predicted[k] <= PROMISING * least + 1]
    _best_of("map", cell.size(), promising, config.map_seeds, ask, single)


def _best_of(
    part: str, size: tuple[int, int, int], head_dims: Sequence[int], seeds: int, ask: Ask, single: float
) -> None:
    """Heads of each size until the graph is recovered, then one less where few are needed and it could be best."""
    counts = {}
    for k in head_dims:
        count = needed(ask(heads_points(part, size, "permutation", k, seeds)))
        if count is not None:
            counts[k] = count
    best = min((k * count for k, count in counts.items()), default=math.inf)
    for k, count in sorted(counts.items(), key=lambda pair: pair[0] * pair[1]):
        if 2 < count + 1 <= STEP_DOWN + 1 and k * (count - 1) < min(best, single):
            rows = ask(heads_points(part, size, "permutation", k, seeds, count - 1))
            if needed(rows) is not None:
                best = k * (count - 1)


def joint_batches(config: RegimesConfig) -> list[list[JointPoint]]:
    """All head sizes and seeds of each variant, size and head count that is predicted to be able to."""
    batches = []
    for factor in config.joint_factors:
        d = config.joint_d_model
        m = items_of(d, factor)
        for h in config.joint_heads:
            head_dims = _joint_head_dims(m, d, h, config.joint_budgets)
            for variant in config.joint_variants if head_dims else ():
                batches.append(
                    [
                        JointPoint(variant, m, d, h, config.joint_steps, k, seed)
                        for k in head_dims
                        for seed in range(config.joint_seeds)
                    ]
                )
    return batches


def _joint_head_dims(num_items: int, d_model: int, num_heads: int, count: int) -> list[int]:
    """From two thirds of the prediction to two and a half times it; none for one head above its ceiling."""
    if num_heads == 1:
        middle = partition_head_dim(num_items, num_items, d_model, 1)
    else:
        middle = partition_budget(num_items, num_items, d_model)[0] / num_heads
    if math.isinf(middle):
        return []
    low, high = max(1, round(0.67 * middle)), min(d_model, math.ceil(2.5 * middle))
    every = list(range(low, high + 1))
    if len(every) <= count:
        return every
    return sorted({every[round(i * (len(every) - 1) / max(1, count - 1))] for i in range(count)})


def family_batches(config: RegimesConfig) -> list[list[HeadsPoint]]:
    """All seeds of each family and number of edges."""
    m, d = config.family_items, config.family_d_model
    return [
        heads_points("families", (m, m * degree, d), graph, config.family_head_dim, config.family_seeds)
        for degree in config.family_degrees
        for graph in FAMILIES
    ]


def scaling_head_dims(config: RegimesConfig, num_items: int, d_model: int) -> list[int]:
    """Head sizes tried at a size of the scaling: the first, and promising ones of which few are needed."""
    first, *others = config.scaling_head_dims
    predicted = {k: whole_budget(num_items, num_items, d_model, k) for k in config.scaling_head_dims}
    most = PROMISING * min(predicted.values()) + 2
    return [first, *(k for k in others if predicted[k] <= min(most, STEP_DOWN * k) and k < d_model)]


def search_scaling(config: RegimesConfig, num_items: int, d_model: int, ask: Ask) -> None:
    """The best budget of one size of the scaling."""
    size = num_items, num_items, d_model
    head_dims = scaling_head_dims(config, num_items, d_model)
    _best_of("scaling", size, head_dims, config.scaling_seeds, ask, math.inf)


def thin_batches(config: RegimesConfig) -> list[list[HeadsPoint]]:
    """All seeds of each head size."""
    m, d = config.thin_items, config.thin_d_model
    return [
        heads_points("thin", (m, m, d), "permutation", k, config.thin_seeds) for k in config.thin_head_dims
    ]


def own_batches(config: RegimesConfig) -> list[list[OwnPoint]]:
    """All numbers of own edges and seeds of each head size: about the prediction; 1 to 4 at one dimension."""
    m, d = config.thin_items, config.thin_d_model
    batches = []
    for k in config.own_head_dims:
        middle = held_edges(m, d, k)
        offsets = (0.6, 0.7, 0.8, 0.9, 1.0, 1.1)
        numbers = [1, 2, 3, 4] if k == 1 else sorted({max(1, round(x * middle)) for x in offsets})
        batches.append([OwnPoint(m, d, k, p, seed) for p in numbers for seed in range(config.thin_seeds)])
    return batches


def parts(config: RegimesConfig, ask: Ask) -> list[Part]:
    """Cells of the map and batches, the costliest first."""
    found = []
    for cell in cells(config):
        name = f"map: {cell.num_items} items, d = {cell.d_model}"
        heads = partition_budget(*cell.size())[0] / 2 + 4
        run = partial(search_cell, config, cell, ask)
        found.append(
            Part(name, run, 6 * config.map_seeds, 4 * config.map_seeds * _work(cell.num_items, heads))
        )
    for batch in joint_batches(config):
        first = batch[0]
        weight = len(batch) * first.num_steps * first.num_items**2 * first.num_heads * 3e-4
        found.append(Part(describe(batch, None), partial(ask, batch), len(batch), weight))
    for m, d in map(size_of, config.scaling_sizes):
        name, run = f"scaling: {m} items, d = {d}", partial(search_scaling, config, m, d, ask)
        heads = 2 * partition_budget(m, m, d)[0] + 4
        found.append(Part(name, run, 3 * config.scaling_seeds, config.scaling_seeds * _work(m, heads)))
    for batch in (*family_batches(config), *thin_batches(config)):
        weight = len(batch) * _work(batch[0].num_items, batch[0].max_heads)
        found.append(Part(describe(batch, None), partial(ask, batch), len(batch), weight))
    for batch in own_batches(config):
        weight = len(batch) * _work(batch[0].num_items, 2.0)
        found.append(Part(describe(batch, None), partial(ask, batch), len(batch), weight))
    return costliest_first(found)


def _work(num_items: int, heads: float) -> float:
    return num_items**2 * heads + 1e5


def describe(points: Sequence, records: Sequence[Record] | None) -> str:
    """One line on a batch."""
    first = points[0]
    size = f"{first.num_items} items, d = {first.d_model}"
    if isinstance(first, DecidedPoint):
        said = f"one head, exactly: {size}"
        held = sum(row["verdict"] == "separable" for row in records or ())
        return said if records is None else f"{said}: {held} of {len(records)} can"
    if isinstance(first, JointPoint):
        said = f"{first.variant}, h = {first.num_heads}: {size}"
        held = sum((row["best_f1"] or 0) >= RECOVERED for row in records or ())
        return said if records is None else f"{said}: {held} of {len(records)} recovered"
    if isinstance(first, OwnPoint):
        said = f"own edges, d_k = {first.head_dim}: {size}"
        return (
            said
            if records is None
            else f"{said}: {sum(row['holds'] for row in records)} of {len(records)} held"
        )
    said = f"{first.part}: {first.graph}, {first.num_edges} edges, {size}, d_k = {first.head_dim}"
    if first.part != "families":
        said = f"{first.part}: {size}, d_k = {first.head_dim}, at most {first.max_heads} heads"
    return said if records is None else f"{said}: {[row['heads'] for row in records]}"
