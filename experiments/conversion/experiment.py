"""The conversion experiment as the engine sees it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from experiments import verses
from experiments.conversion import figures, records, table, units
from experiments.conversion.config import PRESETS, ConversionConfig, resolve
from experiments.conversion.units import ConversionPoint
from experiments.engine import Ask, Experiment, Rows
from experiments.points import Record
from experiments.pretrained import input_files, installed


class Conversion(Experiment[ConversionConfig]):
    """What fewer key/value heads cost a trained model, before and after healing."""

    name = "conversion"
    summary = (
        "fewer key/value heads in a trained model: first, mean and low-rank merges, before and after healing"
    )
    presets = PRESETS
    kinds = units.KINDS
    plots = figures.FIGURES
    tables = (table.conversions_cells,)

    def resolve(self, config: ConversionConfig, given: Collection[str]) -> ConversionConfig:
        """Check a configuration."""
        return resolve(config, given)

    def points(self, config: ConversionConfig) -> list[ConversionPoint]:
        """The grid; empty where the model or the text is missing."""
        return [] if self.left_out(config) else units.grid(config)

    def work(self, points: Sequence[ConversionPoint]) -> float:
        """Passes through the model, a step of healing counted as three."""
        point = points[0]
        return point.test_windows + (point.test_windows + 3 * point.steps * point.batch if point.steps else 0)

    def compute(self, points: Sequence[ConversionPoint]) -> list[Record]:
        """One conversion."""
        return units.compute(points)

    def summary_of(self, config: ConversionConfig, ask: Ask, rows: Rows) -> Rows:
        """Excess losses and verdicts."""
        return records.summary(config, ask, rows)

    def input_files(self, config: ConversionConfig) -> list[str]:
        """The text, and the files of a model that is a folder."""
        return input_files([config.model], config.text)

    def left_out(self, config: ConversionConfig) -> list[Record]:
        """The model or the text, where it is not there."""
        missing = []
        if not installed(config.model):
            missing.append(
                {
                    "what": f"all of it: the model {config.model}",
                    "why": "not installed",
                    "how_to_get": "make models",
                }
            )
        path = Path(config.text or verses.PATH)
        if not path.exists():
            how = f"{verses.HOW_TO_GET}, or --text FILE"
            missing.append({"what": "all of it: the text", "why": f"no file {path.name}", "how_to_get": how})
        return missing

    def describe(self, points: Sequence[ConversionPoint], records: Sequence[Record] | None) -> str:
        """One line on a conversion."""
        p = points[0]
        said = "original" if p.method == units.ORIGINAL else f"{p.method}, {p.part} to {p.num_kv_heads}"
        said += f", {p.steps} steps of healing" if p.steps else ""
        if records is None:
            return said
        row = records[0]
        healed = "" if row["healed_loss"] is None else f", healed {row['healed_loss']:.3f}"
        return f"{said}: loss {row['loss']:.3f}{healed}"


EXPERIMENT = Conversion()
