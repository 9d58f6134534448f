"""The translation experiment as the engine sees it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

from experiments.engine import Ask, Experiment, Part, Rows
from experiments.points import Record
from experiments.translation import data as text
from experiments.translation import figures, plan, records, table, units
from experiments.translation.config import PRESETS, TranslationConfig, resolve
from experiments.translation.plan import BaselinePoint, TextPoint, TranslationPoint, TuningPoint


class Translation(Experiment[TranslationConfig]):
    """How translation depends on head count and head size."""

    name = "translation"
    summary = "head count against head size in a small translation model: perplexity, BLEU, cost"
    presets = PRESETS
    kinds = plan.KINDS
    plots = figures.FIGURES
    tables = (table.text_cells, table.settings_cells, table.baselines_cells)

    def resolve(self, config: TranslationConfig, given: Collection[str]) -> TranslationConfig:
        """Check a configuration."""
        return resolve(config, given)

    def parts(self, config: TranslationConfig, ask: Ask) -> list[Part]:
        """The baselines, then one part a setting, which first has its arm's learning rate chosen."""
        if text.left_out(config.pairs):
            return []
        base, used = plan.baseline(config), plan.text_of(config)
        parts = [
            Part("text", lambda: ask(used)),
            Part("baselines", lambda: ask(base), 1, plan.work_of(base[0]) / 10),
        ]
        seen: set[TranslationPoint] = set()
        for arm, own in plan.settings(config).items():
            for setting in own:

                def run(arm: str = arm, setting: TranslationPoint = setting) -> list[Record]:
                    return ask(plan.runs_of(config, setting, plan.rate_of(config, arm, ask)))

                if setting not in seen or len(config.learning_rates) > 1:
                    weight = plan.work_of(setting) * config.seeds
                    parts.append(Part(f"{arm}: {_sizes(setting)}", run, config.seeds, weight))
                seen.add(setting)
        return parts

    def compute(self, points: Sequence[TranslationPoint | TextPoint]) -> list[Record]:
        """All seeds of a setting, or all learning rates; or counts of the text."""
        return units.compute(points)

    def program(self, points: Sequence[TranslationPoint | TextPoint]) -> Hashable:
        """What a batch needs compiled."""
        first = points[0]
        if isinstance(first, TextPoint):
            return None
        return type(first).__name__, len(points), plan.shape_of(first), first.rows, first.length

    def summary_of(self, config: TranslationConfig, ask: Ask, rows: Rows) -> Rows:
        """Settings, learning rates, verdicts."""
        return records.summary(config, ask, rows)

    def input_files(self, config: TranslationConfig) -> list[str]:
        """The pairs of the user's own."""
        return text.own_files(config.pairs)

    def left_out(self, config: TranslationConfig) -> list[Record]:
        """Everything, where there is no text."""
        return text.left_out(config.pairs)

    def describe(
        self, points: Sequence[TranslationPoint | TextPoint], records: Sequence[Record] | None
    ) -> str:
        """One line on a batch."""
        first = points[0]
        if isinstance(first, TextPoint):
            return "text" if records is None else f"text: {table.text_line(records[0])}"
        if isinstance(first, BaselinePoint):
            return "baselines: untrained, copied source"
        if isinstance(first, TuningPoint):
            said = f"learning rate at {_sizes(first)}"
            return said if records is None else f"{said}: {plan.chosen(records):g}"
        said = f"{first.arm}: {_sizes(first)}"
        ok = [record for record in records or () if record["bleu"] is not None]
        if not ok:
            return said if records is None else f"{said}: all runs diverged"
        means = (sum(record[name] for record in ok) / len(ok) for name in ("bleu", "perplexity"))
        return "{}: BLEU {:.1f}, perplexity {:.2f}".format(said, *means)


def _sizes(point: TranslationPoint) -> str:
    values = "" if point.value_head_dim == point.head_dim else f" (values {point.value_head_dim})"
    return f"{point.num_heads} heads of {point.head_dim}{values}, width {point.d_model}"


EXPERIMENT = Translation()
"""The translation experiment."""
