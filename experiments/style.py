"""One look for every figure of the project, and files that come out the same byte for byte.

Three kinds of statement keep three kinds of mark, in every figure: what was *measured* has markers with
interval bars, what is *predicted* (or an empirical law) is a thin line without markers, what a *theorem*
excludes is a hatched grey area. Colours are those of Okabe and Ito (colour-blind safe); whatever differs in
colour differs in marker, filling or dash as well, so that figures can be read in grey.

Figures are made of objects (`matplotlib.figure.Figure` on an Agg canvas), without pyplot and its global
state, and do not depend on a user's matplotlibrc. Text in svg files stays text: small files, searchable,
drawn in the first of a list of fonts of about the same widths that the viewer has.
"""

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator, StrMethodFormatter

COLUMN_WIDTH = 3.4
"""Inches: one column of a two-column page."""
DOUBLE_WIDTH = 7.0
"""Inches: the whole page."""

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#767676"

SHARE_LIMITS = (-0.05, 1.05)
"""Limits of an axis for shares and scores: markers at 0 and 1 are whole."""
SUFFIXES = ("svg", "png")
"""Formats in which every figure is written."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")
"""For series without a role of their own, such as sizes."""

_SETTINGS: dict[str, Any] = {
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans", "Bitstream Vera Sans", "Verdana", "Geneva", "Arial", "sans-serif"],
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "legend.columnspacing": 1.4,
    "figure.dpi": 100,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.titlepad": 4,
    "axes.axisbelow": True,
    "axes.unicode_minus": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "hatch.linewidth": 0.4,
    "svg.fonttype": "none",
    "svg.hashsalt": "mha-jax",
}


@dataclass(frozen=True)
class Look:
    """How the measured points of one series are drawn."""

    label: str
    color: str
    marker: str
    filled: bool = True


TRAINERS = {
    "best": Look("best trainer", BLUE, "o"),
    "greedy": Look("greedy (head by head)", BLUE, "o"),
    "joint": Look("joint training", ORANGE, "v"),
    "plain": Look("plain joint descent", VERMILLION, "s", filled=False),
    "polish": Look("polish (joint from greedy)", GREEN, "^", filled=False),
    "convex": Look("exact convex solve", BLACK, "D"),
}
"""Looks of the trainers: those that look for the best channel are filled, joint descent as usual is open."""

PARTITION: dict[str, Any] = {"color": BLUE, "linewidth": 0.9, "linestyle": (0, (5, 2))}
"""Prediction by width for a fixed partition, in the colour of the trainers that are held against it."""
PARAMETER_COUNT: dict[str, Any] = {"color": VERMILLION, "linewidth": 0.9, "linestyle": (0, (1.2, 1.4))}
"""Empirical law of plain joint descent, in its colour."""
PREDICTION: dict[str, Any] = {"color": BLACK, "linewidth": 0.9, "linestyle": (0, (5, 2))}
"""Any other prediction."""
REFERENCE: dict[str, Any] = {"color": GREY, "linewidth": 0.5, "linestyle": "-", "zorder": 0.5}
"""Help for the eye, such as the line at one half."""
IMPOSSIBLE: dict[str, Any] = {
    "facecolor": "#ECECEC",
    "edgecolor": "#A8A8A8",
    "hatch": "////",
    "linewidth": 0.0,
    "zorder": 0.2,
}
"""What a theorem excludes."""
WINDOW: dict[str, Any] = {"facecolor": "#D6E9F5", "edgecolor": "none", "linewidth": 0.0, "zorder": 0.1}
"""Where a prediction says that something works."""


@contextmanager
def context() -> Iterator[None]:
    """The project's settings on top of matplotlib's defaults; draw and save inside it."""
    with matplotlib.style.context(["default", _SETTINGS]):
        yield


def grid(
    num_rows: int, num_columns: int, width: float, height: float, **subplots: Any
) -> tuple[Figure, np.ndarray]:
    """A figure with ``(num_rows, num_columns)`` panels; width and height in inches.

    Args:
        num_rows: rows of panels.
        num_columns: columns of panels.
        width: of the whole figure, `COLUMN_WIDTH` or `DOUBLE_WIDTH`.
        height: of the whole figure.
        **subplots: as for `Figure.subplots`, such as ``sharey``.

    Returns:
        The figure and a two-dimensional object array of axes.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(num_rows, num_columns, squeeze=False, **subplots)


def interval_bars(
    axes: Axes,
    x: Iterable[float],
    y: Iterable[float],
    low: Iterable[float | None],
    high: Iterable[float | None],
    look: Look,
    **options: Any,
) -> None:
    """Measured points with bars from ``low`` to ``high`` (None: no bar on that side), in a trainer's look."""
    x, y = list(x), list(y)
    below = [max(0.0, b - a) if a is not None else 0.0 for a, b in zip(low, y, strict=True)]
    above = [max(0.0, a - b) if a is not None else 0.0 for a, b in zip(high, y, strict=True)]
    settings: dict[str, Any] = {
        "color": look.color,
        "marker": look.marker,
        "markerfacecolor": look.color if look.filled else "white",
        "markeredgewidth": 1.0,
        "elinewidth": 0.8,
        "capsize": 1.6,
        "capthick": 0.8,
        "linestyle": "none",
        "zorder": 3,
    }
    axes.errorbar(x, y, yerr=[below, above], **{**settings, **options})


def handle(look: Look, label: str | None = None, **options: Any) -> Line2D:
    """Legend entry of a measured series."""
    face = look.color if look.filled else "white"
    style: dict[str, Any] = {"linestyle": "-", "markeredgewidth": 1.0, **options}
    return Line2D(
        [], [], color=look.color, marker=look.marker, markerfacecolor=face, label=label or look.label, **style
    )


def line_handle(label: str, line: dict[str, Any]) -> Line2D:
    """Legend entry of a predicted line."""
    return Line2D([], [], label=label, **{k: v for k, v in line.items() if k != "zorder"})


def area_handle(label: str, area: dict[str, Any]) -> Patch:
    """Legend entry of a shaded area."""
    return Patch(label=label, **{k: v for k, v in area.items() if k != "zorder"})


def legend_below(figure: Figure, handles: Sequence[Artist], max_columns: int) -> None:
    """One legend for all panels, under them, where it covers nothing; in fewer columns where it would be cut off."""
    for num_columns in range(max_columns, 0, -1):
        legend = figure.legend(handles=list(handles), loc="outside lower center", ncols=num_columns)
        if num_columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()


def plain_log_ticks(axis: Axis, ticks: Iterable[float]) -> None:
    """Ticks at these values alone, written as plain numbers; for logarithmic axes."""
    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def powers_of_two(low: float, high: float) -> list[float]:
    """The powers of two in ``[low, high]``, both positive."""
    exponents = np.arange(np.ceil(np.log2(low) - 1e-9), np.floor(np.log2(high) + 1e-9) + 1)
    return [float(value) for value in 2.0**exponents]


def write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write ``<stem>.svg`` and ``<stem>.png`` (200 dpi), the same bytes for the same figure and versions.

    Args:
        figure: made by `grid` inside `context`. Its layout is settled and fixed: the same in both files.
        stem: path without a suffix; missing folders are made.

    Returns:
        The two paths.
    """
    paths = []
    with context():
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        metadata: dict[str, dict[str, str | None]] = {
            "svg": {"Date": None, "Creator": None},
            "png": {"Software": None},
        }
        for suffix in SUFFIXES:
            buffer = io.BytesIO()
            figure.savefig(buffer, format=suffix, dpi=200, metadata=metadata[suffix])
            path = stem.with_name(f"{stem.name}.{suffix}")
            write(path, buffer.getvalue())
            paths.append(path)
    return paths
