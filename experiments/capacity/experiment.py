"""The capacity experiment as the engine sees it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.capacity import figures, plan, records, table, units
from experiments.capacity.config import PRESETS, CapacityConfig, resolve
from experiments.capacity.units import CeilingPoint, TrainedPoint
from experiments.engine import Ask, Experiment, Part, Rows
from experiments.points import Record
from theory.problems import short_name


class Capacity(Experiment[CapacityConfig]):
    """How many key dimensions a graph needs."""

    name = "capacity"
    summary = "how many key dimensions a graph needs, for every head count: measured, predicted, proven"
    presets = PRESETS
    kinds = units.KINDS
    plots = figures.FIGURES
    tables = (table.threshold_cells, table.ceiling_cells, table.real_cells)

    def resolve(self, config: CapacityConfig, given: Collection[str]) -> CapacityConfig:
        """Complete and check a configuration."""
        return resolve(config, given)

    def parts(self, config: CapacityConfig, ask: Ask) -> list[Part]:
        """Searches, head sweeps, ceilings."""
        return plan.parts(config, ask)

    def compute(self, points: Sequence[TrainedPoint] | Sequence[CeilingPoint]) -> list[Record]:
        """All seeds of one configuration."""
        return units.compute(points)

    def program(self, points: Sequence[TrainedPoint] | Sequence[CeilingPoint]) -> Hashable:
        """What a batch needs compiled."""
        return units.program(points)

    def check_mesh(
        self, points: Sequence[TrainedPoint] | Sequence[CeilingPoint], mesh: Mapping[str, int]
    ) -> None:
        """Joint training shares out seeds, heads and items."""
        units.check_mesh(points, mesh)

    def shown(self, point: TrainedPoint | CeilingPoint) -> Record:
        """A point's fields as its record shows them: files by their stem."""
        return super().shown(point) | {
            "embedding": short_name(point.embedding),
            "graph": short_name(point.graph),
        }

    def summary_of(self, config: CapacityConfig, ask: Ask, rows: Rows) -> Rows:
        """Transitions, ceilings, head sweeps, exact channels."""
        return records.summary(config, ask, rows)

    def unpacked(self, rows: Rows) -> Rows:
        """Points with the channels that stand in rows of their own."""
        return records.unpacked(rows)

    def input_files(self, config: CapacityConfig) -> list[str]:
        """Files of items and of edges."""
        names = {config.embedding.partition("::")[0], config.graph}
        return [name for name in sorted(names) if Path(name).is_file()]

    def left_out(self, config: CapacityConfig) -> list[Record]:
        """Arms whose model is not installed."""
        return plan.left_out(config)

    def describe(self, points: Sequence[Any], records: Sequence[Record] | None) -> str:
        """One line on a batch."""
        first = points[0]
        if isinstance(first, CeilingPoint):
            said = f"one head, exactly: {first.num_items} items, d = {first.d_model}"
            separable = sum(record["verdict"] == "separable" for record in records or ())
            return said if records is None else f"{said}: {separable}/{len(records)} graphs separable"
        total = first.num_heads * first.head_dim
        said = (
            f"{first.trainer}, {first.num_items} items, d = {first.d_model}: "
            f"{first.num_heads} heads x {first.head_dim} = {total}"
        )
        if records is None:
            return said
        return f"{said} recovered {plan.successes(records, plan.CRITERIA[''])}/{len(records)}"

    def group(self, point: TrainedPoint | CeilingPoint) -> str:
        """The threshold or ceiling that a point helps to locate."""
        if isinstance(point, CeilingPoint):
            return f"ceiling of one head, d = {point.d_model}"
        return f"{point.trainer}: threshold of {point.num_heads} heads, {plan.place(_curve(point))}"

    def estimate(self, points: Sequence[Any], records: Sequence[Record]) -> str:
        """The threshold or ceiling as it is known so far."""
        return _estimate_text(points, records)


def _curve(point: TrainedPoint) -> plan.Curve:
    return plan.Curve(
        point.num_items, point.num_edges, point.d_model, point.num_heads, point.embedding, point.graph
    )


def _estimate_text(points: Sequence[Any], rows: Sequence[Record]) -> str:
    """A threshold with its interval, in words."""
    if isinstance(points[0], CeilingPoint):
        fit, what = records.fit_ceiling(rows), "items"
    else:
        fit, what = records.fit_own(rows, _curve(points[0]), plan.CRITERIA[""]), "D_K*"
    if fit.estimate is None:
        return f"{what}: {fit.status.replace('_', ' ')}"
    interval = f" [{_number(fit.ci_low)}, {_number(fit.ci_high)}]"
    return f"{what} = {fit.estimate:.1f}{interval}"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.1f}"


EXPERIMENT = Capacity()
