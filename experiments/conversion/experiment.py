"""The conversion experiment as the engine sees it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments import verses
from experiments.conversion import figures, records, units
from experiments.conversion.config import PRESETS, ConversionConfig, files, resolve
from experiments.conversion.units import ConversionPoint
from experiments.engine import Ask, Experiment, Part, Rows
from experiments.points import Record, to_units
from experiments.pretrained import installed
from experiments.progress import show_lines
from experiments.reading import records as records_of


class Conversion(Experiment[ConversionConfig]):
    """What fewer key/value heads cost a trained model, before and after healing."""

    name = "conversion"
    summary = (
        "fewer key/value heads in a trained model: first, mean and low-rank merges, before and after healing"
    )
    presets = PRESETS
    kinds = units.KINDS

    def resolve(self, config: ConversionConfig, given: Collection[str]) -> ConversionConfig:
        """Check a configuration."""
        return resolve(config, given)

    def points(self, config: ConversionConfig) -> list[ConversionPoint]:
        """The grid; empty where the model or the text is missing."""
        return [] if self.left_out(config) else units.grid(config)

    def parts(self, config: ConversionConfig, ask: Ask) -> list[Part]:
        """One part a conversion, weighted by its passes through the model."""
        return [
            Part(self.describe(points, None), partial(ask, points), len(points), _work(points[0]))
            for _, points in to_units(self.kinds, self.points(config))
        ]

    def compute(self, points: Sequence[ConversionPoint]) -> list[Record]:
        """One conversion."""
        return units.compute(points)

    def summary_of(self, config: ConversionConfig, ask: Ask, rows: Rows) -> Rows:
        """Excess losses and predictions."""
        return records.summary(config, ask, rows)

    def input_files(self, config: ConversionConfig) -> list[str]:
        """The text."""
        return [path for path in files(config) if Path(path).exists()]

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
        for path in files(config):
            if not Path(path).exists():
                how = f"{verses.HOW_TO_GET}, or --text FILE"
                missing.append({"what": "all of it: the text", "why": f"no file {path}", "how_to_get": how})
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

    def plot(self, data: Mapping[str, Any], folder: Path, stem: str) -> list[Path]:
        """Draw the figure."""
        return figures.plot(data, folder, stem)

    def show(self, data: Mapping[str, Any], console: Console) -> None:
        """Print the table."""
        table = Table(title="next-token loss on held-out text, nats a token above the unconverted model")
        for head in (
            "method",
            "merged",
            "cache B/token",
            "keys kept",
            "values kept",
            "loss",
            "excess",
            "healed excess",
        ):
            table.add_column(head, justify="right")
        for row in records_of(data, "conversions"):
            table.add_row(
                row["method"],
                row["part"],
                str(row["cache_bytes_per_token"]),
                _number(row["key_energy"]),
                _number(row["value_energy"]),
                _number(row["loss"]),
                _interval(row, "excess"),
                _interval(row, "healed_excess"),
            )
        console.print(table)
        said = {True: "held", False: "did not hold", None: "not measured"}
        lines = [f"{said[row['held']]}: {row['prediction']}" for row in records_of(data, "predictions")]
        show_lines(console, ["", "Predicted before the run", *lines])


def _work(point: ConversionPoint) -> float:
    """Passes through the model, a step of healing counted as three."""
    return point.test_windows + (point.test_windows + 3 * point.steps * point.batch if point.steps else 0)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _interval(row: Mapping[str, Any], name: str) -> str:
    if row[name] is None:
        return "-"
    return f"{row[name]:.3f} [{row[f'{name}_low']:.3f}, {row[f'{name}_high']:.3f}]"


EXPERIMENT = Conversion()
