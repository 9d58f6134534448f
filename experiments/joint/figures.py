"""Figures of the `joint` experiment, drawn from what a complete run wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments import style
from experiments.drawing import Drawn
from experiments.joint.config import MAIN, REFERENCE
from experiments.reading import records, seed_range, select
from experiments.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, Look

_LOOKS = {
    REFERENCE: Look("head by head", BLUE, "o"),
    "adam": Look("all at once (Adam)", VERMILLION, "s"),
    "partition": Look("edges dealt", GREY, "X"),
    "hinge": Look("squared hinge", ORANGE, "v"),
    "shuffle": Look("shuffled winners", SKY, "P"),
    "anneal": Look("annealed", GREEN, "^"),
    "anneal-hinge": Look("annealed, hinge", PURPLE, "D"),
}
_DASHES = {
    "adam": "-",
    "partition": (0, (1, 1)),
    "hinge": (0, (4, 1.5)),
    "shuffle": (0, (6, 1, 1, 1)),
    "anneal": (0, (3, 1, 1, 1)),
    "anneal-hinge": (0, (2, 1)),
}


def winners(data: Mapping[str, Any]) -> Drawn:
    """When winners settle, and F1 against the budget, at the middle head count."""
    rows = [row for row in records(data, "curves") if row["variant"] in MAIN and row["median_f1"] is not None]
    counts = sorted({row["num_heads"] for row in rows if row["settled"]})
    if not counts:
        return None
    h = counts[len(counts) // 2]
    rows = select(rows, num_heads=h)
    budgets = sorted({row["total_key_dim"] for row in rows})
    shown = budgets[len(budgets) // 2]
    figure, grid = style.grid(1, 2, style.DOUBLE_WIDTH, 3.1)
    left, right = grid[0]
    for name, dashes in _DASHES.items():
        for row in select(rows, variant=name, total_key_dim=shown):
            x = (np.arange(len(row["settled"])) + 1) / len(row["settled"])
            left.plot(x, row["settled"], color=_LOOKS[name].color, linestyle=dashes, linewidth=1.2)
    left.set_ylim(*style.SHARE_LIMITS)
    left.set_xlabel("share of the steps taken")
    left.set_ylabel("edges with their final head")
    left.set_title(f"h = {h}, $D_K$ = {shown}")
    for index, (name, look) in enumerate(_LOOKS.items()):
        own = sorted(select(rows, variant=name), key=lambda row: row["total_key_dim"])
        x = [row["total_key_dim"] + 0.12 * (index - 3) for row in own]
        middle, low, high = ([row[f"{n}_f1"] for row in own] for n in ("median", "least", "largest"))
        line = _DASHES.get(name, "-")
        style.interval_bars(right, x, middle, low, high, look, linestyle=line, linewidth=0.8, markersize=4)
    right.set_ylim(0.15, 1.03)
    right.set_xticks(budgets)
    right.set_xlabel("total key dimension $D_K$")
    right.set_ylabel("best F1")
    right.set_title(f"h = {h}")
    handles = [
        style.handle(look, linestyle=_DASHES.get(name, "-"))
        for name, look in _LOOKS.items()
        if select(rows, variant=name)
    ]
    style.legend_below(figure, handles, 3)
    first = rows[0]
    caption = (
        f"A permutation on {first['num_items']} items, d = {first['d_model']}. Left: share of the edges whose winning "
        "head does not change any more, mean over seeds (of the maximum over heads, without noise or temperature). "
        f"Right: best-threshold F1 at the best look, median over {seed_range(row['num_seeds'] for row in rows)}, bars "
        "from the least to the largest."
    )
    return figure, caption


def thresholds(data: Mapping[str, Any]) -> Drawn:
    """Budget needed against the number of heads."""
    rows = [row for row in records(data, "thresholds") if row["variant"] in MAIN]
    counts = sorted({row["num_heads"] for row in rows})
    if not any(row["measured_total_key_dim"] for row in rows):
        return None
    figure, grid = style.grid(1, 1, style.COLUMN_WIDTH, 3.3)
    axes = grid[0, 0]
    top = max(row["largest_budget"] for row in rows)
    for index, (name, look) in enumerate(_LOOKS.items()):
        shift = 2 ** (0.07 * (index - 3))
        own = sorted(select(rows, variant=name), key=lambda row: row["num_heads"])
        reached = [row for row in own if row["measured_total_key_dim"] is not None]
        style.interval_bars(
            axes,
            [row["num_heads"] * shift for row in reached],
            [row["measured_total_key_dim"] for row in reached],
            [None if row["capped"] else row["ci_low"] for row in reached],
            [row["ci_high"] for row in reached],
            look,
        )
        missed = [row["num_heads"] * shift for row in own if row["measured_total_key_dim"] is None]
        axes.plot(missed, [top + 3.0] * len(missed), "^", color=look.color, markerfacecolor="white")
    laws = (
        ("partition", style.PREDICTION),
        ("parameter_count", style.PREDICTION | {"color": BLACK, "linestyle": ":"}),
    )
    for name, line in laws:
        own = [select(rows, num_heads=h)[0] for h in counts]
        places = [
            (row["num_heads"], row[f"{name}_total_key_dim"]) for row in own if row[f"{name}_total_key_dim"]
        ]
        if places:
            axes.plot(*zip(*places, strict=True), **line)
    axes.set_xscale("log", base=2)
    style.plain_log_ticks(axes.xaxis, counts)
    axes.set_ylim(min(10.0, 0.9 * min(row["measured_total_key_dim"] or top for row in rows)), top + 5.0)
    axes.set_xlim(counts[0] / 1.35, counts[-1] * 1.35)
    axes.set_xlabel("heads h")
    axes.set_ylabel("total key dimension $D_K$ needed")
    handles = [
        style.handle(look, linestyle="none") for name, look in _LOOKS.items() if select(rows, variant=name)
    ]
    handles += [
        style.line_handle("dealt (prediction)", laws[0][1]),
        style.line_handle("parameters (law)", laws[1][1]),
    ]
    style.legend_below(figure, handles, 2)
    caption = (
        "Budget at which half of the seeds recover the graph, 95% intervals (they may end above the axis), by how "
        "heads are trained; open triangles at the top: not reached up to the largest budget run "
        f"({top}). Where all seeds recover at the smallest budget run the point is that budget, without an interval "
        "below. Lines: prediction for heads of a fixed even partition by width, and the empirical law of joint "
        "training; both are infinite at two heads."
    )
    return figure, caption


FIGURES = {"winners": winners, "thresholds": thresholds}
"""What draws each figure, by name."""
