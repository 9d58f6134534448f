"""The softmax experiment as the engine sees it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from experiments.engine import Ask, Experiment, Part, Rows, costliest_first
from experiments.points import Point, Record
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
        """One part a batch, the costliest first."""
        return costliest_first(super().parts(config, ask))

    def work(self, points: Sequence[Point]) -> float:
        """How much a batch costs, about."""
        return units.work_of(points[0])

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
