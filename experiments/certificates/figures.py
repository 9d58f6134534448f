"""Figures of the `certificates` experiment, drawn from what a complete run wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments import style
from experiments.certificates.table import CAVEAT
from experiments.drawing import Drawn
from experiments.reading import records, select
from experiments.style import BLUE, GREEN, ORANGE, PURPLE, VERMILLION, Look
from theory.partitions import partition_success_probability

_LOOKS = {
    1: Look("1 head", VERMILLION, "o"),
    2: Look("2 heads", BLUE, "s"),
    4: Look("4 heads", GREEN, "^"),
    8: Look("8 heads", PURPLE, "D"),
}


def _look(heads: int) -> Look:
    return _LOOKS.get(heads, Look(f"{heads} heads", ORANGE, "v"))


def curves(data: Mapping[str, Any]) -> Drawn:
    """Share of partitions held against the number of items, a panel for each d."""
    rows = [row for row in records(data, "curves") if row["share"] is not None]
    if not rows:
        return None
    widths = sorted({row["d_model"] for row in rows})
    figure, grid = style.grid(1, len(widths), style.DOUBLE_WIDTH, 2.8, sharey=True)
    for axes, d in zip(grid[0], widths, strict=True):
        here = select(rows, d_model=d)
        for h in sorted({row["num_heads"] for row in here}):
            own = select(here, num_heads=h)
            x = [row["num_items"] for row in own]
            y, low, high = ([row[name] for row in own] for name in ("share", "share_low", "share_high"))
            style.interval_bars(axes, x, y, low, high, _look(h))
            sizes = np.geomspace(0.86 * min(x), 1.12 * max(x), 80)
            chance = [partition_success_probability(float(m), float(m), d, h) for m in sizes]
            axes.plot(sizes, chance, **(style.PREDICTION | {"color": _look(h).color}))
        axes.set_xscale("log")
        places = select(records(data, "places"), d_model=d)
        ticks = [round(row["predicted_num_items"]) for row in places]
        style.plain_log_ticks(axes.xaxis, ticks)
        axes.set_ylim(*style.SHARE_LIMITS)
        axes.set_title(f"d = {d}")
        axes.set_xlabel("items m")
    grid[0, 0].set_ylabel("partitions held")
    handles = [style.handle(_look(h), linestyle="none") for h in sorted({row["num_heads"] for row in rows})]
    handles.append(style.line_handle("prediction, with its width", style.PREDICTION))
    style.legend_below(figure, handles, 5)
    undecided = sum(row["undecided"] for row in records(data, "curves"))
    caption = (
        "Share of random even partitions of a random permutation that heads of full rank (d_k = d) hold, each decided "
        f"exactly with a proof, 95% intervals; {undecided} undecided, left out of the shares. Dashed: prediction "
        f"without a free parameter, place and width; ticks: predicted half-way points. {CAVEAT}"
    )
    return figure, caption


def drift(data: Mapping[str, Any]) -> Drawn:
    """Ratio of measured and predicted half-way points against 1 / d, extrapolated."""
    rows = [row for row in records(data, "places") if row["ratio"] is not None]
    together = select(records(data, "drift"), num_heads=None)
    if not rows or not together:
        return None
    figure, grid = style.grid(1, 1, style.COLUMN_WIDTH, 2.7)
    axes = grid[0, 0]
    counts = sorted({row["num_heads"] for row in rows})
    for index, h in enumerate(counts):
        own = select(rows, num_heads=h)
        x = [1 / row["d_model"] + 0.0006 * (index - (len(counts) - 1) / 2) for row in own]
        low, high = ([row[end] / row["predicted_num_items"] for row in own] for end in ("ci_low", "ci_high"))
        style.interval_bars(axes, x, [row["ratio"] for row in own], low, high, _look(h))
    line, reach = together[0], max(1 / row["d_model"] for row in rows)
    fit: dict[str, Any] = {"color": "black", "linewidth": 0.9, "linestyle": "-"}
    axes.plot([0, reach], [line["limit"], line["limit"] + line["slope"] * reach], **fit)
    axes.errorbar(
        [0],
        [line["limit"]],
        [[line["limit"] - line["limit_low"]], [line["limit_high"] - line["limit"]]],
        fmt="k_",
    )
    axes.axhline(1.0, **style.REFERENCE)
    widths = sorted({row["d_model"] for row in rows})
    axes.set_xticks([0, *(1 / d for d in widths)], ["∞", *map(str, widths)])
    axes.set_xlabel("d (axis linear in 1 / d)")
    axes.set_ylabel("measured over predicted items")
    handles = [style.handle(_look(h), linestyle="none") for h in counts] + [
        style.line_handle("a + b / d", fit)
    ]
    style.legend_below(figure, handles, 3)
    caption = (
        "Half-way points over their predictions, 95% intervals, and a line in 1 / d through all of them, weighted by "
        "their intervals: an extrapolation, not a theory. Bar at the left: 95% interval of its limit."
    )
    return figure, caption


FIGURES = {"curves": curves, "drift": drift}
"""What draws each figure, by name."""
