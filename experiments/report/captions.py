"""Captions of all committed figures, read from the files that were written when they were drawn."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from experiments.engine import EXPERIMENTS

_FIGURE = re.compile(
    r"^## (?P<title>[^\n]*)\n\n!\[[^\]]*\]\((?P<file>[^)]+)\)\n\n(?P<text>.*?)(?=^## |\Z)", re.M | re.S
)
_DRAWN = re.compile(r" *Drawn by: (?P<command>.+?)\.?\s*\Z")
BENCH = "bench"


class Caption(NamedTuple):
    """A figure and what it shows.

    Attributes:
        name: of the file without folder and suffix.
        path: of the svg file.
        text: Markdown, one paragraph.
    """

    name: str
    path: Path
    text: str


class Group(NamedTuple):
    """Figures that were drawn together.

    Attributes:
        experiment: name, `BENCH` for benchmarks.
        preset: name; of benchmarks which one.
        command: that made the records.
        captions: in order.
    """

    experiment: str
    preset: str
    command: str
    captions: tuple[Caption, ...]


def groups(root: Path) -> list[Group]:
    """Figures under ``root``/figures, in the order of `EXPERIMENTS`, ``quick`` first; benchmarks last.

    Args:
        root: of a clone.

    Returns:
        Groups with one figure at least.

    Raises:
        FileNotFoundError: a caption names a figure that is not there.
    """
    found = [
        _group(path, experiment)
        for experiment in EXPERIMENTS
        for path in _presets((root / "figures" / experiment).glob("*-captions.md"))
    ]
    found += [_bench(path) for path in sorted((root / "figures" / BENCH).glob("*-caption.md"))]
    for group in found:
        for caption in group.captions:
            if not caption.path.exists():
                raise FileNotFoundError(f"{caption.path}: expected the figure of its caption, found none")
    return [group for group in found if group.captions]


def _presets(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: (path.name != "quick-captions.md", path.name))


def _group(path: Path, experiment: str) -> Group:
    preset = path.name.removesuffix("-captions.md")
    captions = tuple(
        Caption(Path(match["file"]).stem, path.parent / match["file"], match["text"].strip())
        for match in _FIGURE.finditer(path.read_text("utf-8"))
    )
    return Group(experiment, preset, f"python -m experiments run {experiment} --preset {preset}", captions)


def _bench(path: Path) -> Group:
    name, text = path.name.removesuffix("-caption.md"), path.read_text("utf-8").strip()
    drawn = _DRAWN.search(text)
    command = drawn["command"] if drawn else f"python -m experiments.bench_{name}"
    caption = Caption(name, path.with_name(f"{name}.svg"), _DRAWN.sub("", text))
    return Group(BENCH, name, command, (caption,))
