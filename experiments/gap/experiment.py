"""The gap experiment as the engine sees it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from experiments.engine import Ask, Experiment, Part, Rows, costliest_first
from experiments.gap import figures, records, table, units
from experiments.gap.config import PRESETS, GapConfig, check
from experiments.points import Point, Record


class Gap(Experiment[GapConfig]):
    """Gap training, one change at a time."""

    name = "gap"
    summary = "how far theorems, estimates and exact minima lie below the best channel found"
    presets = PRESETS
    kinds = units.KINDS
    plots = figures.FIGURES
    tables = (table.heads_cells, table.items_cells, table.small_cells)

    def resolve(self, config: GapConfig, given: Collection[str]) -> GapConfig:
        """Check a configuration."""
        return check(config)

    def points(self, config: GapConfig) -> list[Point]:
        """The grid."""
        return list(units.grid(config))

    def parts(self, config: GapConfig, ask: Ask) -> list[Part]:
        """One part a batch, the costliest first."""
        return costliest_first(super().parts(config, ask))

    def work(self, points: Sequence[Point]) -> float:
        """How much a batch costs, about."""
        return sum(map(work_of, points))

    def compute(self, points: Sequence[Point]) -> list[Record]:
        """One batch."""
        return units.compute(points)

    def summary_of(self, config: GapConfig, ask: Ask, rows: Rows) -> Rows:
        """Thresholds, small sizes and verdicts."""
        return records.summary(rows)

    def describe(self, points: Sequence[Point], records: Sequence[Record] | None) -> str:
        """One line on a batch."""
        first = points[0]
        said = f"m = {first.num_items}, d = {first.d_model}"
        if isinstance(first, units.MinimumPoint):
            return f"exact minima, {said}: {len(points)} instances"
        said = f"{first.trainer}, {said}, h = {first.num_heads}"
        if records is None:
            return f"{said}: {len(points)} runs"
        exact = sum(bool(row["exact"]) for row in records)
        return f"{said}: {exact} of {len(records)} exact"


def work_of(point: Point) -> float:
    """How much one point costs beside others, about."""
    if isinstance(point, units.MinimumPoint):
        return 0.1 * point.num_items
    more = {"greedy": 1.0, "greedy-long": 4.0}.get(point.trainer, 3.0)
    return more * point.num_heads * (point.num_items / 96) ** 2 + 0.5


EXPERIMENT = Gap()
