"""Figures of the `capacity` experiment, drawn from what a complete run wrote."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from experiments import style
from experiments.capacity.figures_ceiling import ceiling, real
from experiments.capacity.figures_recovery import head_sweep, recovery
from experiments.capacity.figures_threshold import scaling, threshold

_FIGURES: dict[str, tuple[str, Callable[[Mapping[str, Any]], tuple[Figure, str] | None]]] = {
    "recovery": ("a", recovery),
    "threshold": ("b", threshold),
    "head-sweep": ("c", head_sweep),
    "ceiling": ("d", ceiling),
    "scaling": ("e", scaling),
    "real": ("f", real),
}


def plot(data: Mapping[str, Any], out_dir: Path, stem: str) -> list[Path]:
    """Draw every figure that the run has records for, and write down what each one shows.

    Figures of the same ``stem`` in ``out_dir`` that the run has no records for are removed.

    Args:
        data: contents of a run's json file.
        out_dir: folder to write to; made where it is missing.
        stem: first part of the file names, such as ``quick``.

    Returns:
        Paths written: ``<stem>-<figure>.svg`` and ``.png`` for each figure, then ``<stem>-captions.md``. The
        same data gives the same bytes.

    Raises:
        ValueError: a recorded prediction is not what `theory.bounds` says today.
    """
    paths: list[Path] = []
    captions: list[str] = []
    with style.context():
        for name, (letter, draw) in _FIGURES.items():
            drawn = draw(data)
            file = f"{stem}-{name}"
            if drawn is None:  # what an earlier run drew has no caption any more
                for suffix in style.SUFFIXES:
                    (out_dir / f"{file}.{suffix}").unlink(missing_ok=True)
                continue
            figure, caption = drawn
            paths += style.save(figure, out_dir / file)
            captions.append(f"## ({letter}) {file}\n\n![{file}]({file}.svg)\n\n{caption}\n")
    command = (
        f"python -m experiments plot {data.get('experiment', 'capacity')} --preset {data.get('preset', stem)}"
    )
    head = f"# Figures of `{data.get('experiment', 'capacity')}`, preset `{data.get('preset', stem)}`\n\n"
    head += f"Drawn by `{command}` from the records in `{stem}.json`"
    head += f", which `{data['command']}` made.\n" if data.get("command") else ".\n"
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
    style.write(path, "\n".join([head, *captions]).encode())
    return [*paths, path]
