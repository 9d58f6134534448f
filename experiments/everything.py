"""Commands over all experiments: ``figures`` draws all of them again, ``paper`` runs every ``paper`` preset.

``python -m experiments figures [--check]`` reads the committed records and draws every figure; with ``--check`` into a
folder of its own, and the exit status is 1 where an svg file differs from the committed one or is missing. The same
versions draw the same bytes.

``python -m experiments paper [--yes]`` says how long what is left of every preset ``paper`` will take, from what a unit
of work of the committed ``quick`` run took, and asks before it runs one after the other. Each is resumed where it was
left, one that fails does not keep the next from its turn.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from experiments import bench_attention_figure, bench_heads, bench_output, style
from experiments.bench_decode_figure import figure as decode_figure
from experiments.engine import EXPERIMENTS, load
from experiments.environment import cores
from experiments.files import json_values, places, read_final
from experiments.points import Record, Unit
from experiments.progress import duration, unfinished_parts
from experiments.store import Line, canonical, read_lines
from experiments.tables import Cells, show_lines

FIGURES = Path(__file__).parents[1] / "figures"

BENCHMARKS = {
    "attention": bench_attention_figure.figure,
    "decode": decode_figure,
    "heads": bench_heads.figure,
}


class Drawing(NamedTuple):
    """A file of records, and what draws it: an experiment's name, or ``bench``."""

    experiment: str
    path: Path


def drawings(figures: Path = FIGURES) -> list[Drawing]:
    """Every committed file of records that has figures, largest first."""
    found = [
        Drawing(name, path)
        for name in EXPERIMENTS
        for path in sorted((figures / name).glob("*.json"))
        if path.stem in load(name).presets
    ]
    found += [
        Drawing("bench", path)
        for path in sorted((figures / "bench").glob("*.json"))
        if path.stem.split("-")[0] in BENCHMARKS
    ]
    return sorted(found, key=lambda drawing: -drawing.path.stat().st_size)


def draw(drawing: Drawing, folder: Path) -> list[Path]:
    """Draw the figures of one file of records into a folder; returns the paths."""
    path = drawing.path
    if drawing.experiment != "bench":
        return load(drawing.experiment).plot(read_final(path), folder, path.stem)
    figure = BENCHMARKS[path.stem.split("-")[0]]
    return bench_output.draw(json.loads(path.read_text("utf-8")), folder / path.stem, figure)


def redraw(console: Console, figures: Path = FIGURES, *, check: bool = False) -> int:
    """Draw all figures, or compare; returns the exit status."""
    found = drawings(figures)
    with tempfile.TemporaryDirectory() as temporary:
        folders = [Path(temporary) / d.path.parent.name if check else d.path.parent for d in found]
        with ProcessPoolExecutor(min(cores(), 8), mp_context=get_context("spawn")) as pool:
            drawn = list(pool.map(draw, found, folders))
        if not check:
            show_lines(
                console, [f"figure: {path}" for paths in drawn for path in paths if path.suffix == ".png"]
            )
            return 0
        different = [
            committed
            for drawing, paths in zip(found, drawn, strict=True)
            for path in paths
            if path.suffix == ".svg" and not _same(path, committed := drawing.path.parent / path.name)
        ]
    show_lines(console, [f"differs from its records: {path}" for path in different])
    show_lines(
        console, [f"{sum(map(len, drawn)) // len(style.SUFFIXES)} figures drawn, {len(different)} differ"]
    )
    return 1 if different else 0


def _same(drawn: Path, committed: Path) -> bool:
    return committed.exists() and drawn.read_bytes() == committed.read_bytes()


class Left(NamedTuple):
    """What is left of an experiment's preset ``paper``.

    Attributes:
        experiment: its name.
        parts: of the preset.
        unfinished: how many of them are not done.
        seconds: that they will take on this machine, about; None where nothing was measured.
        missing: what cannot be run here.
    """

    experiment: str
    parts: int
    unfinished: int
    seconds: float | None
    missing: tuple[str, ...]


def left_of_paper(name: str, figures: Path = FIGURES) -> Left:
    """How much of an experiment's preset ``paper`` is left, and for how long.

    A unit of work takes what it took in the committed ``quick`` run, of which as many go on at once as there are cores.
    """
    experiment = load(name)
    config = experiment.resolve(experiment.presets["paper"], set())
    missing = tuple(f"{row['what']}: {row['how_to_get']}" for row in experiment.left_out(config))
    results, _ = places(name, "paper", json_values(config), bool(missing), None)
    done = read_lines(results)[1]
    parts = experiment.parts(config, lambda points: [])
    left = unfinished_parts(experiment, config, lambda unit: _records(done, unit))
    seconds = None
    quick = figures / name / "quick.json"
    if quick.exists() and (took := read_final(quick).get("computing")):
        before = experiment.resolve(experiment.presets["quick"], set())
        work = sum(part.weight for part in experiment.parts(before, lambda points: []))
        if work:
            seconds = took["seconds"] / work * sum(parts[number].weight for number in left) / cores()
    return Left(name, len(parts), len(left), seconds, missing)


def _records(done: Mapping[str, Line], unit: Unit) -> list[Record] | None:
    line = done.get(canonical(unit))
    return None if line is None else line.records


def paper_cells(rows: Sequence[Left]) -> Cells:
    """What is left, as a table."""
    total = sum(row.seconds or 0.0 for row in rows)
    return Cells(
        "What is left of the presets `paper`",
        ("experiment", "parts", "left", "about"),
        tuple((row.experiment, f"{row.parts:,}", f"{row.unfinished:,}", _said(row.seconds)) for row in rows),
        f"About {duration(total)} in all on {cores()} cores, by what the parts of `quick` took; searches for "
        "thresholds may take more or less.",
    )


def _said(seconds: float | None) -> str:
    return "not known" if seconds is None else duration(seconds)


def paper(console: Console, *, ask: bool = True) -> int:
    """Say what is left of all presets ``paper``, ask, and run them; returns the exit status.

    Raises:
        ValueError: if there is nobody to ask.
    """
    names = [name for name in EXPERIMENTS if "paper" in load(name).presets]
    rows = [left_of_paper(name) for name in names]
    console.print(paper_cells(rows).rich())
    show_lines(console, [f"left out of {row.experiment}: {what}" for row in rows for what in row.missing])
    if ask:
        if not sys.stdin.isatty():
            raise ValueError("paper: expected --yes where nobody can be asked, got nothing")
        if console.input("Run them now, one after the other? [y/N] ").strip().lower() not in ("y", "yes"):
            return 0
    failed = []
    for row in rows:
        if not row.unfinished:
            continue
        command = [sys.executable, "-m", "experiments", "run", row.experiment, "--preset", "paper"]
        status = subprocess.run(command).returncode
        if status in (130, -2):
            return 130
        if status:
            failed.append(row.experiment)
    show_lines(console, [f"failed: {', '.join(failed)}"] if failed else ["all done"])
    return 1 if failed else 0
