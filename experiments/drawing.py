"""Drawing all figures of a run, with a file of captions beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from experiments import style
from experiments.style import Look

Drawn = tuple[Figure, str] | None
"""A figure and its caption; None where the run has no records for it."""


def draw_all(
    experiment: str,
    figures: Mapping[str, Callable[[Mapping[str, Any]], Drawn]],
    data: Mapping[str, Any],
    out_dir: Path,
    stem: str,
    note: str = "",
) -> list[Path]:
    """Draw every figure that the run has records for, and write down what each one shows.

    Figures of the same ``stem`` in ``out_dir`` that the run has no records for are removed.

    Args:
        experiment: its name.
        figures: what draws each figure, by name.
        data: contents of a run's json file.
        out_dir: folder to write to; made where it is missing.
        stem: first part of the file names, such as ``quick``.
        note: what holds for all captions.

    Returns:
        Paths written: ``<stem>-<figure>.svg`` and ``.png`` for each figure, then ``<stem>-captions.md``.
    """
    paths: list[Path] = []
    preset = data.get("preset", stem)
    captions = [
        f"# Figures of `{experiment}`, preset `{preset}`\n\nDrawn by `python -m experiments plot {experiment} "
        f"--preset {preset}` from the records in `{stem}.json`.{note and f' {note}'}\n"
    ]
    with style.context():
        for name, draw in figures.items():
            drawn = draw(data)
            file = f"{stem}-{name}"
            if drawn is None:  # what an earlier run drew has no caption any more
                for suffix in style.SUFFIXES:
                    (out_dir / f"{file}.{suffix}").unlink(missing_ok=True)
                continue
            figure, caption = drawn
            paths += style.save(figure, out_dir / file)
            captions.append(f"## {file}\n\n![{file}]({file}.svg)\n\n{caption}\n")
    left_out = [
        f"- `{item['what']}`: {item['why']} (`{item['how_to_get']}`)" for item in data.get("left_out") or []
    ]
    if left_out:
        captions.append("## Left out\n\n" + "\n".join(left_out) + "\n")
    if data.get("unfinished"):
        captions.append(
            f"## Unfinished\n\n{len(data['unfinished'])} parts of the run are in no figure yet.\n"
        )
    path = out_dir / f"{stem}-captions.md"
    style.write(path, "\n".join(captions).encode())
    return [*paths, path]


def checkpoint_look(index: int, count: int, fraction: float) -> Look:
    """Of checkpoint ``index`` of ``count``, at a fraction of training: from light to dark, with markers in turn."""
    shade = 0.72 * (1 - index / max(1, count - 1))
    blue = (shade + (1 - shade) * channel for channel in (0.0, 0.27, 0.55))
    color = "#" + "".join(f"{round(255 * min(1.0, value)):02x}" for value in blue)
    return Look(f"{100 * fraction:.3g}% of training", color, style.MARKERS[index % len(style.MARKERS)])
