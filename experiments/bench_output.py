"""What the benchmarks of attention do when they have measured: write, draw, show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console

from experiments import style
from experiments.store import write_json
from experiments.timing import Record


def stem(benchmark: str, result: Mapping[str, Any]) -> str:
    """Name of the files: a GPU's results never replace a CPU's."""
    place = result["environment"]
    if place["platform"] == "cpu":
        return benchmark
    device = "".join(c if c.isalnum() else "-" for c in place["device_kind"].lower())
    return f"{benchmark}-{device}-{result['config']['dtype']}"


def draw(result: Mapping[str, Any], path: Path, figure: Callable[[Any], tuple[Figure, str]]) -> list[Path]:
    """Write the figure ``path``.svg and .png and its caption ``path``-caption.md; returns the paths of the figure."""
    drawn, caption = figure(result)
    paths = style.save(drawn, path)
    style.write(path.with_name(f"{path.name}-caption.md"), f"{caption}\n".encode())
    return paths


def write_and_show(
    result: Record,
    path: Path,
    figure: Callable[[Record], tuple[Figure, str]],
    show: Callable[[Record, Console], None],
    console: Console,
) -> None:
    """Write ``path``.json, its figure and caption, and print the tables and what was written."""
    data = path.with_name(f"{path.name}.json")
    write_json(data, result)
    paths = draw(result, path, figure)
    show(result, console)
    for written in (data, *paths):
        console.print(f"written: {written}")
