"""The rank experiment as the engine sees it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

from experiments.engine import Ask, Experiment, Part, Rows, costliest_first
from experiments.points import Point, Record
from experiments.rank import figures, maps, records, table, units
from experiments.rank.config import PRESETS, RankConfig, resolve
from experiments.rank.units import CirclePoint, RankPoint, SpectrumPoint


class Rank(Experiment[RankConfig]):
    """How near heads come to patterns as their size grows."""

    name = "rank"
    summary = "which patterns a head of size d_k can produce, exactly and nearly"
    presets = PRESETS
    kinds = units.KINDS
    plots = figures.FIGURES
    tables = (table.kl_cells, table.limits_cells)

    def resolve(self, config: RankConfig, given: Collection[str]) -> RankConfig:
        """Complete and check a configuration."""
        return resolve(config, given)

    def points(self, config: RankConfig) -> list[Point]:
        """The grid, without what cannot be run here."""
        return units.grid(config)

    def parts(self, config: RankConfig, ask: Ask) -> list[Part]:
        """One part a batch, the costliest first."""
        return costliest_first(super().parts(config, ask))

    def work(self, points: Sequence[Point]) -> float:
        """How much a batch costs, about."""
        return units.work_of(points)

    def compute(self, points: Sequence[Point]) -> list[Record]:
        """One batch."""
        return units.compute(points)

    def program(self, points: Sequence[Point]) -> Hashable:
        """What a batch needs compiled."""
        return units.program(points)

    def left_out(self, config: RankConfig) -> list[Record]:
        """Maps of the pretrained model, where it is not there."""
        why = maps.why_left_out()
        if why is None or not config.real_lengths:
            return []
        return [{"what": maps.MODEL, "why": why, "how_to_get": "make models"}]

    def summary_of(self, config: RankConfig, ask: Ask, rows: Rows) -> Rows:
        """Curves, precision limits, verdicts."""
        return records.summary(rows)

    def describe(self, points: Sequence[Point], records: Sequence[Record] | None) -> str:
        """One line on a batch."""
        first = points[0]
        if isinstance(first, RankPoint):
            said = f"{first.pattern}, n = {first.n}: {len({p.head_dim for p in points})} head sizes"
            if len(bounds := {p.bound for p in points}) > 1:
                said += f", {len(bounds)} bounds on norms"
            return (
                said if records is None else f"{said}, divergence {max(r['kl'] for r in records):.1e} at most"
            )
        if isinstance(first, SpectrumPoint):
            said = f"spectra, {first.source}, d_k = {first.head_dim}"
            if records is None:
                return said
            return f"{said}: rank of the softmax {min(r['weights_rank'] for r in records)} of {first.n}"
        said = f"circle in {first.dtype}"
        if records is None:
            return said
        right = [r["n"] for r in records if r["share_right"] == 1]
        return f"{said}: right up to {max(right, default=0):,} keys"

    def group(self, point: Point) -> str | None:
        """The curve that a point belongs to."""
        if isinstance(point, CirclePoint | SpectrumPoint):
            return None
        return f"{point.pattern}, n = {point.n}"

    def estimate(self, points: Sequence[Point], records: Sequence[Record]) -> str:
        """Least head size at which the pattern is met."""
        met = [r["head_dim"] for r in records if r["bound"] is None and r["kl"] < 1e-9]
        return f"met from d_k = {min(met)} on" if met else "not met"


EXPERIMENT = Rank()
