"""The joint experiment as the engine sees it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from experiments.engine import Ask, Experiment, Part, Rows, costliest_first
from experiments.joint import figures, records, table, units
from experiments.joint.config import PRESETS, JointConfig, check
from experiments.points import Point, Record


class Joint(Experiment[JointConfig]):
    """Joint training, one change at a time."""

    name = "joint"
    summary = "why training all heads at once needs more budget, and what closes the gap"
    presets = PRESETS
    kinds = units.KINDS
    plots = figures.FIGURES
    tables = (table.thresholds_cells,)

    def resolve(self, config: JointConfig, given: Collection[str]) -> JointConfig:
        """Check a configuration."""
        return check(config)

    def points(self, config: JointConfig) -> list[Point]:
        """The grid."""
        return list(units.grid(config))

    def parts(self, config: JointConfig, ask: Ask) -> list[Part]:
        """One part a batch, the costliest first."""
        return costliest_first(super().parts(config, ask))

    def work(self, points: Sequence[Point]) -> float:
        """How much a batch costs, about: heads trained."""
        return len(points) * points[0].num_heads

    def compute(self, points: Sequence[Point]) -> list[Record]:
        """One batch."""
        return units.compute(points)

    def summary_of(self, config: JointConfig, ask: Ask, rows: Rows) -> Rows:
        """Curves, thresholds and verdicts."""
        return records.summary(rows)

    def describe(self, points: Sequence[Point], records: Sequence[Record] | None) -> str:
        """One line on a batch."""
        first = points[0]
        said = f"{first.variant}, h = {first.num_heads}"
        if records is None:
            return f"{said}: {len(points)} runs"
        best = sum((row["best_f1"] or 0) >= units.RECOVERED for row in records)
        return f"{said}: {best} of {len(records)} recovered"


EXPERIMENT = Joint()
