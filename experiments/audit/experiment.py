"""The audit as the engine sees it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from experiments.audit import figures, records, table, units
from experiments.audit.config import PRESETS, AuditConfig, resolve
from experiments.engine import Ask, Experiment, Part, Rows, costliest_first
from experiments.points import Kind, Point, Record
from experiments.pretrained import input_files, not_installed
from experiments.roles.text import SAMPLE, available, why_missing


class Audit(Experiment[AuditConfig]):
    """What the heads of real layers could hold, and what attention on a text would need."""

    name = "audit"
    summary = (
        "rank of real heads, predicted capacity of real layers, and the graph that attention shows on a text"
    )
    presets = PRESETS
    kinds: ClassVar[Mapping[str, Kind]] = units.KINDS
    plots = figures.FIGURES
    tables = (table.rank_cells, table.graph_cells)

    def resolve(self, config: AuditConfig, given: Collection[str]) -> AuditConfig:
        """Check a configuration."""
        return resolve(config, given)

    def points(self, config: AuditConfig) -> list[Point]:
        """All layers of all models that are there."""
        return list(units.grid(config))

    def parts(self, config: AuditConfig, ask: Ask) -> list[Part]:
        """One part a batch, the costliest first."""
        return costliest_first(super().parts(config, ask))

    def work(self, points: Sequence[Point]) -> float:
        """Attention on a text takes longer than weights."""
        return 1.0 if isinstance(points[0], units.LayerPoint) else 10.0

    def compute(self, points: Sequence[Point]) -> list[Record]:
        """All layers of one model."""
        return units.compute(points)

    def summary_of(self, config: AuditConfig, ask: Ask, rows: Rows) -> Rows:
        """One row for each model, and claims."""
        return records.summary(rows)

    def input_files(self, config: AuditConfig) -> list[str]:
        """The user's text, and the files of models that are folders; the others have fixed contents."""
        return input_files(config.models, config.text, sample=SAMPLE)

    def left_out(self, config: AuditConfig) -> list[Record]:
        """Models and texts that are not there."""
        rows = not_installed(config.models)
        if not available(config.text):
            why, how = why_missing()
            rows.append({"what": "attention's graph on a text", "why": why, "how_to_get": how})
        return rows

    def describe(self, points: Sequence[Point], records: Sequence[Record] | None) -> str:
        """One line on a batch."""
        what = "weights" if isinstance(points[0], units.LayerPoint) else "attention on the text"
        return f"{points[0].model}: {what} of {len(points)} layers"


EXPERIMENT = Audit()
