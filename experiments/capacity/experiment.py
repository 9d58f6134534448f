"""The capacity experiment as the command line sees it: run, describe, plot."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.capacity import figures, table
from experiments.capacity.config import PRESETS, CapacityConfig, resolve
from experiments.capacity.plan import CRITERIA, Unfinished, left_out, successes, tasks
from experiments.capacity.records import Records, make_records, units_of
from experiments.capacity.units import compute
from experiments.runner import Runner
from experiments.store import Record, Store

NAME = "capacity"
SUMMARY = "how many key dimensions a graph needs, for every head count: measured, predicted, proven"

__all__ = [
    "NAME",
    "PRESETS",
    "SUMMARY",
    "CapacityConfig",
    "collect",
    "compute",
    "describe",
    "input_files",
    "left_out",
    "plot",
    "resolve",
    "run",
    "show",
    "tasks",
    "units_of",
]


def input_files(config: CapacityConfig) -> dict[str, str]:
    """SHA-256 of every file that the configuration names: results of a file that has changed are another run's."""
    names = {config.embedding.partition("::")[0], config.graph}
    return {
        name: hashlib.sha256(Path(name).read_bytes()).hexdigest()
        for name in sorted(names)
        if Path(name).is_file()
    }


def run(config: CapacityConfig, runner: Runner, finished: Callable[[], None]) -> None:
    """Compute everything that the configuration asks for; ``finished`` hears of every part."""
    runner.run([part.run for part in tasks(config, runner.records)], finished)


def collect(config: CapacityConfig, store: Store) -> tuple[Records, list[str]]:
    """Make the records of what a store holds, and name the parts that are unfinished."""

    def ask(unit: dict[str, Any]) -> list[Record]:
        known = store.get(unit)
        if known is None:
            raise Unfinished(str(unit))
        return known

    return make_records(config, ask)


def describe(unit: dict[str, Any], records: list[Record]) -> str:
    """One line on what came of a unit."""
    if unit["kind"] == "ceiling":
        separable = sum(record["verdict"] == "separable" for record in records)
        return (
            f"one head, exactly: {separable}/{len(records)} graphs on {unit['num_items']} items separable, "
            f"d = {unit['d_model']}"
        )
    total = unit["num_heads"] * unit["head_dim"]
    return (
        f"{unit['trainer']}, {unit['num_items']} items, d = {unit['d_model']}: {unit['num_heads']} heads x "
        f"{unit['head_dim']} = {total} recovered {successes(records, CRITERIA[''])}/{len(records)}"
    )


def plot(data: dict[str, Any], folder: Path, stem: str) -> list[Path]:
    """Draw the figures of a finished run."""
    return figures.plot(data, folder, stem)


def show(data: dict[str, Any], console: Console) -> None:
    """Print the tables of a finished run."""
    for rows in table.rich_tables(data):
        console.print(rows)
