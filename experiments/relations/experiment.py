"""The relations experiment as the engine sees it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from experiments.engine import Ask, Experiment, Rows
from experiments.points import Record
from experiments.relations import figures, records, table, units
from experiments.relations.config import PRESETS, RelationsConfig, resolve
from experiments.relations.units import RelationsPoint


class Relations(Experiment[RelationsConfig]):
    """How many heads R relations at once need."""

    name = "relations"
    summary = "several relations at once: what h < R heads cannot return, and what a read-out can make up for"
    presets = PRESETS
    kinds = units.KINDS
    plots = figures.FIGURES
    tables = (table.error_cells,)

    def resolve(self, config: RelationsConfig, given: Collection[str]) -> RelationsConfig:
        """Check a configuration."""
        return resolve(config, given)

    def points(self, config: RelationsConfig) -> list[RelationsPoint]:
        """The grid."""
        return units.grid(config)

    def work(self, points: Sequence[RelationsPoint]) -> float:
        """How much a batch costs, about."""
        return units.work_of(points[0])

    def compute(self, points: Sequence[RelationsPoint]) -> list[Record]:
        """All seeds of one model."""
        return units.compute(points)

    def summary_of(self, config: RelationsConfig, ask: Ask, rows: Rows) -> Rows:
        """Curves, verdicts."""
        return records.summary(rows)

    def describe(self, points: Sequence[RelationsPoint], records: Sequence[Record] | None) -> str:
        """One line on a batch."""
        p = points[0]
        said = (
            f"R = {p.num_relations}, D_K = {p.total_key_dim}, {p.num_heads} heads, {p.readout} read-out, "
            f"{p.values}, attention {p.attention}"
        )
        errors = [r["error"] for r in records or () if r["error"] is not None]
        return f"{said}: error {min(errors):.3f}" if errors else said

    def group(self, point: RelationsPoint) -> str:
        """The curve that a point belongs to."""
        return f"R = {point.num_relations}, {point.readout} read-out, {point.values}"

    def estimate(self, points: Sequence[RelationsPoint], records: Sequence[Record]) -> str:
        """Least error by head count."""
        best: dict[int, float] = {}
        for record in records:
            if record["error"] is not None:
                h = record["num_heads"]
                best[h] = min(record["error"], best.get(h, float("inf")))
        return "error " + ", ".join(f"h = {h}: {best[h]:.2f}" for h in sorted(best))


EXPERIMENT = Relations()
