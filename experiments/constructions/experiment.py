"""The constructions experiment as the engine sees it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

from experiments.constructions import figures, records, search, table, units
from experiments.constructions.config import PRESETS, ConstructionsConfig, resolve
from experiments.constructions.units import ConstructionPoint, NoisePoint, PrecisionPoint
from experiments.engine import Ask, Experiment, Part, Rows
from experiments.points import Point, Record


class Constructions(Experiment[ConstructionsConfig]):
    """What explicit constructions of heads need."""

    name = "constructions"
    summary = "explicit heads (matched filter, one-sided, zero-forcing): noise, budgets, bits a weight"
    presets = PRESETS
    kinds = units.KINDS
    plots = figures.FIGURES
    tables = (table.budget_cells, table.precision_cells)

    def resolve(self, config: ConstructionsConfig, given: Collection[str]) -> ConstructionsConfig:
        """Check a configuration."""
        return resolve(config, given)

    def parts(self, config: ConstructionsConfig, ask: Ask) -> list[Part]:
        """Searches for budgets, noise, precision."""
        return search.parts_of(config, ask)

    def compute(self, points: Sequence[Point]) -> list[Record]:
        """One batch."""
        return units.compute(points)

    def program(self, points: Sequence[Point]) -> Hashable:
        """Trainers alone compile something of note."""
        first = points[0]
        if isinstance(first, PrecisionPoint) and first.source in ("greedy", "joint"):
            width = 1 << (first.head_dim - 1).bit_length()
            return first.source, first.num_items, first.d_model, width, len(points)
        return None

    def summary_of(self, config: ConstructionsConfig, ask: Ask, rows: Rows) -> Rows:
        """Thresholds, best blocks, curves, verdicts."""
        return records.summary(config, rows)

    def describe(self, points: Sequence[Point], records: Sequence[Record] | None) -> str:
        """One line on a batch."""
        p = points[0]
        if isinstance(p, NoisePoint):
            return f"noise of {p.construction}, blocks of {p.block_size}, d_k = {p.head_dim}"
        name = p.construction if isinstance(p, ConstructionPoint) else f"rounded {p.source}"
        said = f"{name}, {p.num_items} items, d = {p.d_model}, {p.num_heads} heads of {p.head_dim}"
        if records is None:
            return said
        return f"{said}: {sum(r['exact_recovery'] for r in records)} of {len(records)} exact"


EXPERIMENT = Constructions()
