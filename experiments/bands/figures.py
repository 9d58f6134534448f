"""The figure of the `bands` experiment, drawn from what a complete run wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from experiments import style
from experiments.bands.table import NAMES, sorted_arms
from experiments.drawing import Drawn
from experiments.reading import Record, records, seed_range, select
from experiments.style import BLACK, BLUE, GREEN, ORANGE, VERMILLION, Look

_LOOKS = {
    ("words", "joint"): Look("joint", VERMILLION, "s"),
    ("words-shuffled", "joint"): Look("joint, targets shuffled", ORANGE, "s"),
    ("words", "greedy"): Look("greedy", BLUE, "o"),
    ("words", "by-kind"): Look("one head a kind", GREEN, "D"),
}
_CHANCE = Look("shuffled kinds / random subspaces, 95%", BLACK, "_")


def heads(data: Mapping[str, Any]) -> Drawn:
    """Information and overlaps of every run, beside chance."""
    arms, points = sorted_arms(data), records(data, "points")
    if not arms:
        return None
    figure, grid = style.grid(1, 3, style.DOUBLE_WIDTH, 3.0)
    names = ("information", "query_overlap", "key_overlap")
    for axes, name in zip(grid[0], names, strict=True):
        for x, arm in enumerate(arms):
            own = select(points, **{key: arm[key] for key in ("graph", "trainer", "total_key_dim")})
            _column(axes, x, own, _LOOKS[arm["graph"], arm["trainer"]], name)
        axes.set_xticks(range(len(arms)), [str(arm["total_key_dim"]) for arm in arms])
        axes.set_xlabel(r"total key dimension $D_K$")
        axes.set_ylim(-0.03, 1.03)
    grid[0, 0].set_ylabel("normalised mutual information")
    grid[0, 0].set_title("winning head and kind of relation")
    grid[0, 1].set_ylabel(r"mean $\cos^2$ of principal angles")
    grid[0, 1].set_title("query subspaces of two heads")
    grid[0, 2].set_title("key subspaces of two heads")
    present = dict.fromkeys((arm["graph"], arm["trainer"]) for arm in arms)
    handles = [style.handle(_LOOKS[key], NAMES[key], linestyle="none") for key in present]
    handles.append(style.handle(_CHANCE, linestyle="none"))
    style.legend_below(figure, handles, 3)
    first = arms[0]
    caption = (
        f"Four kinds of relations between words ({first['num_edges']} pairs, d = {first['d_model']}, "
        f"{first['num_heads']} heads; {seed_range(arm['runs'] for arm in arms)}). Filled: runs that recover the graph "
        "exactly, open: those that do not. Left: how much the winning head of a pair tells of its kind (with targets "
        "shuffled: of its source's kind). Middle, right: overlap of two heads' subspaces, over heads that win a pair: "
        "bands of their own would lie below random subspaces. Black: 2.5% and 97.5% of chance, medians over runs "
        "(shuffled kinds: mean and 97.5%)."
    )
    return figure, caption


def _column(axes: Axes, x: int, rows: Sequence[Record], look: Look, name: str) -> None:
    rows = [row for row in rows if row[name] is not None]
    for index, row in enumerate(rows):
        shift = 0.5 * (index / max(1, len(rows) - 1) - 0.5)
        face = look.color if row["exact_recovery"] else "white"
        axes.plot(x + shift, row[name], look.marker, color=look.color, markerfacecolor=face, markersize=3)
    ends = ("shuffled_mean", "shuffled_high") if name == "information" else ("random_low", "random_high")
    for end in ends:
        values = sorted(row[end] for row in rows)
        if values:
            axes.plot([x - 0.4, x + 0.4], [values[len(values) // 2]] * 2, color=BLACK, linewidth=0.9)


FIGURES = {"heads": heads}
"""What draws each figure, by name."""
