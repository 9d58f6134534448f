"""The tries experiment as the engine sees it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, ClassVar

from experiments.capacity.units import RECOVERED_F1
from experiments.engine import Ask, Experiment, Rows
from experiments.points import Kind, Point, Record
from experiments.tries import dynamics, figures, records, table, units
from experiments.tries.config import PRESETS, TriesConfig, resolve
from experiments.tries.units import TriesPoint


class Tries(Experiment[TriesConfig]):
    """Whether heads that are trained to be cut are worth it, and when redundancy appears."""

    name = "tries"
    summary = (
        "train more heads than needed and cut them: are many heads many tries; when do heads become redundant"
    )
    presets = PRESETS
    kinds: ClassVar[Mapping[str, Kind]] = {"points": units.KIND, "dynamics": dynamics.KIND}
    plots = figures.FIGURES
    tables = (table.threshold_cells, table.paired_cells, table.dynamics_cells)

    def resolve(self, config: TriesConfig, given: Collection[str]) -> TriesConfig:
        """Check a configuration."""
        return resolve(config, given)

    def points(self, config: TriesConfig) -> list[Point]:
        """The grid."""
        return [*units.grid(config), *dynamics.grid(config)]

    def work(self, points: Sequence[Point]) -> float:
        """How much a batch costs, about."""
        return _module(points).work_of(points)

    def compute(self, points: Sequence[Point]) -> list[Record]:
        """One training of all seeds, and all that is made of it."""
        return _module(points).compute(points)

    def program(self, points: Sequence[Point]) -> Hashable:
        """What a batch needs compiled."""
        return _module(points).program(points)

    def summary_of(self, config: TriesConfig, ask: Ask, rows: Rows) -> Rows:
        """Arms, thresholds, pairs, curves, claims."""
        return records.summary(config, ask, rows)

    def describe(self, points: Sequence[Point], records: Sequence[Record] | None) -> str:
        """One line on a batch."""
        p = points[0]
        if not isinstance(p, TriesPoint):
            return f"dynamics of {p.task}: {p.num_heads} heads, {p.num_steps} steps"
        said = f"h = {p.num_heads}, d_k = {p.head_dim}: {p.trained_heads} heads, {p.first_steps} steps"
        if records is None:
            return said
        good = sum(r["best_f1"] is not None and r["best_f1"] >= RECOVERED_F1 for r in records)
        return f"{said}: {good} of {len(records)} recovered"


def _module(points: Sequence[Point]) -> Any:
    return units if isinstance(points[0], TriesPoint) else dynamics


EXPERIMENT = Tries()
