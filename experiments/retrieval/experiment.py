"""The retrieval experiment as the engine sees it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

from experiments.engine import Ask, Experiment, Rows
from experiments.points import Record
from experiments.retrieval import figures, records, table, units
from experiments.retrieval.config import PRESETS, RetrievalConfig, resolve
from experiments.retrieval.units import RetrievalPoint


class Retrieval(Experiment[RetrievalConfig]):
    """How the error of D-retrieval falls with the number of heads."""

    name = "retrieval"
    summary = "how many heads a task of D retrievals needs, and the wide head that copies its input"
    presets = PRESETS
    kinds = units.KINDS
    plots = figures.FIGURES
    tables = (table.heads_cells, table.jumps_cells, table.copy_cells)

    def resolve(self, config: RetrievalConfig, given: Collection[str]) -> RetrievalConfig:
        """Complete and check a configuration."""
        return resolve(config, given)

    def points(self, config: RetrievalConfig) -> list[RetrievalPoint]:
        """The grid."""
        return units.grid(config)

    def work(self, points: Sequence[RetrievalPoint]) -> float:
        """How much a batch costs, about."""
        return units.work_of(points[0])

    def compute(self, points: Sequence[RetrievalPoint]) -> list[Record]:
        """All seeds and learning rates of one model."""
        return units.compute(points)

    def program(self, points: Sequence[RetrievalPoint]) -> Hashable:
        """What a batch needs compiled."""
        return units.program(points)

    def summary_of(self, config: RetrievalConfig, ask: Ask, rows: Rows) -> Rows:
        """Curves, jumps, verdicts."""
        return records.summary(config, ask, rows)

    def describe(self, points: Sequence[RetrievalPoint], records: Sequence[Record] | None) -> str:
        """One line on a batch."""
        p = points[0]
        notes = [p.encoder]
        notes += [p.directions] if p.directions not in (None, "orthonormal") else []
        notes += [f"{p.num_layers} layers"] if p.num_layers > 1 else []
        notes += ["uniform attention"] if p.attention == "uniform" else []
        said = (
            f"{p.task} ({', '.join(notes)}), D = {p.num_targets}, T = {p.length}: "
            f"{p.num_heads} heads of {p.per_head_dim}, read-out {p.readout_width}"
        )
        if records is None:
            return said
        errors = [record["nmse"] for record in records if record["nmse"] is not None]
        return f"{said}: NMSE {min(errors):.1e}" if errors else f"{said}: all runs diverged"

    def group(self, point: RetrievalPoint) -> str:
        """The curve that a point belongs to."""
        return f"{point.task}, {point.encoder}, D = {point.num_targets}, T = {point.length}"

    def estimate(self, points: Sequence[RetrievalPoint], records: Sequence[Record]) -> str:
        """Least error by head count."""
        best: dict[int, float] = {}
        for record in records:
            if record["nmse"] is not None:
                h = record["num_heads"]
                best[h] = min(record["nmse"], best.get(h, float("inf")))
        return "NMSE " + ", ".join(f"h = {h}: {best[h]:.1e}" for h in sorted(best))


EXPERIMENT = Retrieval()
