"""The redundancy experiment as the engine sees it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import ClassVar

from experiments.engine import Ask, Experiment, Rows
from experiments.points import Kind, Point, Record
from experiments.redundancy import figures, records, table, units
from experiments.redundancy.config import PRESETS, RedundancyConfig, resolve
from experiments.redundancy.points import KIND, grid, work_of
from experiments.translation import data as text


class Redundancy(Experiment[RedundancyConfig]):
    """When heads of a translation model become redundant."""

    name = "redundancy"
    summary = "how many heads of a translation model can go, as its training goes on, and of which kind"
    presets = PRESETS
    kinds: ClassVar[Mapping[str, Kind]] = {"points": KIND}
    plots = figures.FIGURES
    tables = (table.curves_cells,)

    def resolve(self, config: RedundancyConfig, given: Collection[str]) -> RedundancyConfig:
        """Check a configuration."""
        return resolve(config, given)

    def points(self, config: RedundancyConfig) -> list[Point]:
        """The grid; nothing where there is no text."""
        return [] if text.left_out(config.pairs) else grid(config)

    def work(self, points: Sequence[Point]) -> float:
        """How much a batch costs, about."""
        return work_of(points)

    def compute(self, points: Sequence[Point]) -> list[Record]:
        """Train a model, and remove heads at every checkpoint."""
        return units.compute(points)

    def program(self, points: Sequence[Point]) -> Hashable:
        """What a batch needs compiled."""
        first = points[0]
        return first.d_model, first.num_heads, first.num_layers, first.rows, first.length

    def summary_of(self, config: RedundancyConfig, ask: Ask, rows: Rows) -> Rows:
        """Curves and claims."""
        return records.summary(rows)

    def input_files(self, config: RedundancyConfig) -> list[str]:
        """The pairs of the user's own."""
        return text.own_files(config.pairs)

    def left_out(self, config: RedundancyConfig) -> list[Record]:
        """Everything, where there is no text."""
        return text.left_out(config.pairs)

    def describe(self, points: Sequence[Point], records: Sequence[Record] | None) -> str:
        """One line on a batch."""
        first = points[0]
        said = f"model {first.seed}: {first.num_steps} steps, {len(first.looks)} checkpoints"
        if records is None:
            return said
        whole = [r["bleu"] for r in records if r["order"] == "importance" and r["fraction_pruned"] == 0]
        return f"{said}: BLEU " + ", ".join("–" if value is None else f"{value:.1f}" for value in whole)


EXPERIMENT = Redundancy()
