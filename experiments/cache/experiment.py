"""The cache experiment as the engine sees it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from pathlib import Path
from typing import Any

from experiments.cache import figures, plan, records, table, units
from experiments.cache.config import PRESETS, CacheConfig, resolve
from experiments.cache.conversion import ConversionPoint
from experiments.cache.units import SharedPoint
from experiments.engine import Ask, Experiment, Part, Rows
from experiments.points import Record
from theory.embeddings import MINILM_EMBEDDINGS
from theory.problems import short_name


class Cache(Experiment[CacheConfig]):
    """How much a token has to cache, for heads that share their keys in one way or another."""

    name = "cache"
    summary = (
        "what grouped, multi-query and latent attention cost in capacity, per cached dimension and parameter"
    )
    presets = PRESETS
    kinds = units.KINDS
    plots = figures.FIGURES
    tables = (table.threshold_cells, table.budget_cells, table.conversion_cells, table.model_cells)

    def resolve(self, config: CacheConfig, given: Collection[str]) -> CacheConfig:
        """Complete and check a configuration."""
        return resolve(config, given)

    def parts(self, config: CacheConfig, ask: Ask) -> list[Part]:
        """Searches, designs at equal budgets, conversions."""
        return plan.parts(config, ask)

    def compute(self, points: Sequence[SharedPoint] | Sequence[ConversionPoint]) -> list[Record]:
        """All seeds of one configuration."""
        return units.compute(points)

    def program(self, points: Sequence[SharedPoint] | Sequence[ConversionPoint]) -> Hashable:
        """What a batch needs compiled."""
        return units.program(points)

    def shown(self, point: SharedPoint | ConversionPoint) -> Record:
        """A point's fields as its record shows them: files by their stem."""
        return super().shown(point) | {"embedding": short_name(point.embedding)}

    def summary_of(self, config: CacheConfig, ask: Ask, rows: Rows) -> Rows:
        """Thresholds, budgets, conversions, real models, verdicts."""
        return records.summary(config, ask, rows)

    def input_files(self, config: CacheConfig) -> list[str]:
        """A file of items."""
        name = config.embedding.partition("::")[0]
        return [name] if config.embedding not in MINILM_EMBEDDINGS and Path(name).is_file() else []

    def describe(self, points: Sequence[Any], records: Sequence[Record] | None) -> str:
        """One line on a batch."""
        first = points[0]
        if isinstance(first, ConversionPoint):
            said = (
                f"conversion to {first.num_kv_heads} of {first.num_heads} key heads, {first.num_items} items"
            )
            return said if records is None else f"{said}: {len(records)} layers"
        design = units.design_of(first)
        said = f"{first.trainer}, {_curve(first).name}: C = {design.cache_dims}"
        if records is None:
            return said
        return f"{said} recovered {plan.successes(records, plan.CRITERIA[''])}/{len(records)}"

    def group(self, point: SharedPoint | ConversionPoint) -> str:
        """The threshold that a point helps to locate."""
        if isinstance(point, ConversionPoint):
            return "conversion"
        return f"{point.trainer}: threshold of {_curve(point).name}"

    def estimate(self, points: Sequence[Any], records: Sequence[Record]) -> str:
        """The threshold as it is known so far."""
        return _estimate_text(points, records)


def _curve(point: SharedPoint) -> plan.Curve:
    rank = None if point.latent_dim is None else point.head_dim
    size = point.num_items, point.d_model, point.num_heads, point.num_kv_heads
    return plan.Curve(point.design, *size, rank, point.embedding)


def _estimate_text(points: Sequence[Any], rows: Sequence[Record]) -> str:
    if isinstance(points[0], ConversionPoint):
        return f"{len(rows)} layers"
    fit = records.fit_own(_curve(points[0]), rows, plan.CRITERIA[""])
    if fit.estimate is None:
        return f"C*: {fit.status.replace('_', ' ')}"
    low, high = ("?" if end is None else f"{end:.1f}" for end in (fit.ci_low, fit.ci_high))
    return f"C* = {fit.estimate:.1f} [{low}, {high}]"


EXPERIMENT = Cache()
