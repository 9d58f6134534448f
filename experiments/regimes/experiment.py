"""The regimes experiment as the engine sees it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

from experiments.engine import Ask, Experiment, Part, Rows
from experiments.points import Point, Record
from experiments.regimes import figures, plan, records, table, units
from experiments.regimes.config import PRESETS, RegimesConfig, check


class Regimes(Experiment[RegimesConfig]):
    """Where heads help, by how much, and how budgets scale."""

    name = "regimes"
    summary = "where one head suffices, what more heads save, and how the budget scales with m' and d"
    presets = PRESETS
    kinds = units.KINDS
    plots = figures.FIGURES
    tables = (table.map_cells, table.families_cells, table.scaling_cells, table.thin_cells)

    def resolve(self, config: RegimesConfig, given: Collection[str]) -> RegimesConfig:
        """Check a configuration."""
        return check(config)

    def parts(self, config: RegimesConfig, ask: Ask) -> list[Part]:
        """Sizes of the map, joint training, families, scaling, thin heads."""
        return plan.parts(config, ask)

    def compute(self, points: Sequence[Point]) -> list[Record]:
        """One batch."""
        return units.compute(points)

    def program(self, points: Sequence[Point]) -> Hashable:
        """What a batch needs compiled."""
        return units.program(points)

    def summary_of(self, config: RegimesConfig, ask: Ask, rows: Rows) -> Rows:
        """Cells, laws and verdicts."""
        return records.summary(config, rows)

    def describe(self, points: Sequence[Point], records: Sequence[Record] | None) -> str:
        """One line on a batch."""
        return plan.describe(points, records)


EXPERIMENT = Regimes()
