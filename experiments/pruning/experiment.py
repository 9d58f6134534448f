"""The pruning experiment as the engine sees it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from experiments import verses
from experiments.engine import Ask, Experiment, Part, Rows, costliest_first
from experiments.points import Record, to_units
from experiments.pretrained import input_files, installed, not_installed
from experiments.pruning import figures, table, units
from experiments.pruning.config import PRESETS, PruningConfig, resolve
from experiments.pruning.points import (
    KINDS,
    AblatedPoint,
    GatePoint,
    HeadPoint,
    MatchedPoint,
    PrunedPoint,
    TimedPoint,
    grid,
    matched,
)
from experiments.pruning.records import onset_rows, summary


class Pruning(Experiment[PruningConfig]):
    """Which heads of pretrained models can go."""

    name = "pruning"
    summary = "which heads of pretrained models can go: importance, pruning curves, gates, speed"
    presets = PRESETS
    kinds = KINDS
    plots = figures.FIGURES
    tables = (table.curves_cells, table.gates_cells, table.speed_cells)

    def resolve(self, config: PruningConfig, given: Collection[str]) -> PruningConfig:
        """Check a configuration."""
        return resolve(config, given)

    def points(self, config: PruningConfig) -> list[Any]:
        """The grid, of what there is here."""
        return grid(_present(config))

    def parts(self, config: PruningConfig, ask: Ask) -> list[Part]:
        """One part a batch, the costliest first; that of gates goes on to importance with as many heads."""
        return costliest_first(
            Part(self.describe(own, None), partial(_ask, ask, own), len(own), self.work(own))
            for _, own in to_units(self.kinds, self.points(config))
        )

    def work(self, points: Sequence[Any]) -> float:
        """How much a batch costs, about."""
        return work_of(points)

    def compute(self, points: Sequence[Any]) -> list[Record]:
        """One batch of one model."""
        return units.compute(points)

    def program(self, points: Sequence[Any]) -> Hashable:
        """What a batch needs compiled."""
        return type(points[0]).__name__, points[0].model

    def summary_of(self, config: PruningConfig, ask: Ask, rows: Rows) -> Rows:
        """Curves, onsets, gate sets, speed-ups, verdicts."""
        return summary(config, ask, rows)

    def unpacked(self, rows: Rows) -> Rows:
        """The rows of a final file; one of a run without gates may be older than the kind that gates ask for."""
        return {"matched": []} | rows

    def input_files(self, config: PruningConfig) -> list[str]:
        """The user's text, and the files of models that are folders."""
        return input_files(config.models, config.text, sample="sample")

    def left_out(self, config: PruningConfig) -> list[Record]:
        """Models that are not installed; everything where there is no text."""
        rows = not_installed(config.models)
        if not _has_text(config):
            why = "there are no verses to measure on"
            rows.append({"what": "everything", "why": why, "how_to_get": "make text, or --text PATH"})
        return rows

    def describe(self, points: Sequence[Any], records: Sequence[Record] | None) -> str:
        """One line on a batch."""
        p = points[0]
        done = records or ()
        if isinstance(p, HeadPoint):
            said, result = "scores of heads", "done"
        elif isinstance(p, PrunedPoint):
            said = f"pruning by {p.order.replace('_', ' ')}" + (f" {p.seed}" if p.order == "random" else "")
            result = ", ".join(f"{r['loss']:.2f}" for r in done)
        elif isinstance(p, AblatedPoint):
            said = (
                "every head alone removed" if p.ablation == "single" else "every head alone left in its layer"
            )
            result = f"up to {max((r['increase'] for r in done), default=0):+.3f}"
        elif isinstance(p, GatePoint):
            said = f"gates, penalty {p.penalty:g}"
            result = f"{done[0]['heads_left'] if done else 0} heads left, loss {done[0]['loss'] if done else 0:.3f}"
        elif isinstance(p, MatchedPoint):
            said, result = f"{p.heads_left} heads by importance", ", ".join(f"{r['loss']:.3f}" for r in done)
        else:
            said, result = f"timing, {p.removal} removed, batch {p.batch_size}", "done"
        return f"{p.model}: {said}" + ("" if records is None else f": {result}")

    def group(self, point: Any) -> str | None:
        """The curves of a model."""
        return f"{point.model}: loss by heads removed" if isinstance(point, PrunedPoint) else None

    def estimate(self, points: Sequence[Any], records: Sequence[Record]) -> str:
        """Mean cost by order."""
        costs: dict[str, list[float]] = {}
        for row in onset_rows(records):
            costs.setdefault(row["order"], []).append(row["mean_cost"])
        return "mean cost " + ", ".join(f"{order}: {sum(own) / len(own):.3f}" for order, own in costs.items())


def _ask(ask: Ask, own: Sequence[Any]) -> None:
    """A batch; after that of gates the loss that importance has with exactly as many heads."""
    records = ask(own)
    if isinstance(own[0], GatePoint):
        ask([matched(own[0], records[0]["heads_left"])])


def work_of(points: Sequence[Any]) -> float:
    """What a batch costs, about, in forward passes of SmolLM2 over its tokens."""
    p = points[0]
    size = 0.15 if p.model == "minilm-l6" else 1.0
    if isinstance(p, PrunedPoint):
        extra = {"importance_recomputed": 3.0 * len(points), "ablation": float(len(points) * 10)}
        return size * (len(points) + extra.get(p.order, 3.0))
    if isinstance(p, AblatedPoint):
        return size * len(points)
    if isinstance(p, GatePoint):
        tokens = p.sequences * 32
        return size * (3.5 * p.num_steps * tokens / p.num_tokens + 3)
    if isinstance(p, TimedPoint):
        return size * (len(points) * p.batch_size * p.length / p.num_tokens + 12)
    return size * 6


def _has_text(config: PruningConfig) -> bool:
    return config.text != "" or verses.PATH.exists()


def _present(config: PruningConfig) -> PruningConfig:
    """The configuration without what is left out here."""
    there = [model for model in config.models if installed(model)] if _has_text(config) else []

    def kept(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name in names if name in there)

    return replace(
        config,
        models=kept(config.models),
        ablated_models=kept(config.ablated_models),
        gated_models=kept(config.gated_models),
        timed_models=kept(config.timed_models),
    )


EXPERIMENT = Pruning()
