"""The certificates experiment as the engine sees it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from experiments.certificates import figures, records, table, units
from experiments.certificates.config import PRESETS, CertificatesConfig, check
from experiments.engine import Ask, Experiment, Part, Rows, costliest_first
from experiments.points import Point, Record


class Certificates(Experiment[CertificatesConfig]):
    """Partitions of the edges decided exactly."""

    name = "certificates"
    summary = "when heads of full rank hold the edges they are dealt, decided exactly"
    presets = PRESETS
    kinds = units.KINDS
    plots = figures.FIGURES
    tables = (table.places_cells,)

    def resolve(self, config: CertificatesConfig, given: Collection[str]) -> CertificatesConfig:
        """Check a configuration."""
        return check(config)

    def points(self, config: CertificatesConfig) -> list[Point]:
        """The grid."""
        return list(units.grid(config))

    def parts(self, config: CertificatesConfig, ask: Ask) -> list[Part]:
        """One part a batch, the costliest first."""
        return costliest_first(super().parts(config, ask))

    def work(self, points: Sequence[Point]) -> float:
        """How much a batch costs, about."""
        return len(points) * units.work_of(points[0])

    def compute(self, points: Sequence[Point]) -> list[Record]:
        """One batch."""
        return units.compute(points)

    def summary_of(self, config: CertificatesConfig, ask: Ask, rows: Rows) -> Rows:
        """Curves, half-way points, drift and verdicts."""
        return records.summary(rows)

    def describe(self, points: Sequence[Point], records: Sequence[Record] | None) -> str:
        """One line on a batch."""
        first = points[0]
        said = f"d = {first.d_model}, h = {first.num_heads}, m = {first.num_items}"
        if records is None:
            return f"{said}: {len(points)} partitions"
        return f"{said}: {sum(row['verdict'] == 'separable' for row in records)} of {len(records)} held"


EXPERIMENT = Certificates()
