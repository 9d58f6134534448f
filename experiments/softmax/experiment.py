"""The softmax experiment as the engine sees it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from experiments.engine import Ask, Experiment, Part, Rows
from experiments.points import Point, Record, to_units
from experiments.softmax import figures, records, table, units
from experiments.softmax.config import PRESETS, SoftmaxConfig, check


class Softmax(Experiment[SoftmaxConfig]):
    """Softmax heads and value routing beside the maximum over heads."""

    name = "softmax"
    summary = "softmax heads and value routing beside the maximum over heads, at a fixed key budget"
    presets = PRESETS
    kinds = units.KINDS
    plots = figures.FIGURES
    tables = (table.sweep_cells,)

    def resolve(self, config: SoftmaxConfig, given: Collection[str]) -> SoftmaxConfig:
        """Check a configuration."""
        return check(config)

    def points(self, config: SoftmaxConfig) -> list[Point]:
        """The grid."""
        return list(units.grid(config))

    def parts(self, config: SoftmaxConfig, ask: Ask) -> list[Part]:
        """One part a batch, the costliest first, weighted by about what it costs."""
        parts = [
            Part(self.describe(points, None), partial(ask, points), len(points), units.work_of(points[0]))
            for _, points in to_units(self.kinds, self.points(config))
        ]
        return sorted(parts, key=lambda part: -part.weight)

    def compute(self, points: Sequence[Point]) -> list[Record]:
        """One batch."""
        return units.compute(points)

    def summary_of(self, config: SoftmaxConfig, ask: Ask, rows: Rows) -> Rows:
        """Curves and verdicts."""
        return records.summary(rows)

    def describe(self, points: Sequence[Point], records: Sequence[Record] | None) -> str:
        """One line on a batch."""
        first = points[0]
        if isinstance(first, units.LemmaPoint):
            return f"constructed channels, h = {first.num_heads}"
        said = f"{first.arm}, D_K = {first.total_key_dim}, h = {first.num_heads}"
        if records is None:
            return f"{said}: {len(points)} seeds"
        return f"{said}: F1 {', '.join(table.score(row['f1']) for row in records)}"


EXPERIMENT = Softmax()
