"""Drawing all figures of a run, with a file of captions beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from experiments import style

Drawn = tuple[Figure, str] | None
"""A figure and its caption; None where the run has no records for it."""


def draw_all(
    experiment: str,
    figures: Mapping[str, Callable[[Mapping[str, Any]], Drawn]],
    data: Mapping[str, Any],
    out_dir: Path,
    stem: str,
) -> list[Path]:
    """Draw every figure that the run has records for, and write down what each one shows.

    Returns:
        Paths written: ``<stem>-<figure>.svg`` and ``.png`` for each figure, then ``<stem>-captions.md``.
    """
    paths: list[Path] = []
    preset = data.get("preset", stem)
    captions = [
        f"# Figures of `{experiment}`, preset `{preset}`\n\nDrawn by `python -m experiments plot {experiment} "
        f"--preset {preset}` from the records in `{stem}.json`.\n"
    ]
    with style.context():
        for name, draw in figures.items():
            drawn = draw(data)
            if drawn is None:
                continue
            figure, caption = drawn
            file = f"{stem}-{name}"
            paths += style.save(figure, out_dir / file)
            captions.append(f"## {file}\n\n![{file}]({file}.svg)\n\n{caption}\n")
    left_out = [
        f"- `{item['what']}`: {item['why']} (`{item['how_to_get']}`)" for item in data.get("left_out") or []
    ]
    if left_out:
        captions.append("## Left out\n\n" + "\n".join(left_out) + "\n")
    path = out_dir / f"{stem}-captions.md"
    style.write(path, "\n".join(captions).encode())
    return [*paths, path]
