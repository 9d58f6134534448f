"""Figures of the regimes experiment: the map, the gain along it, and joint training at some of its points."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullLocator

from experiments import style
from experiments.drawing import Drawn
from experiments.reading import Record, records, seed_range, select
from experiments.regimes import figures_laws
from experiments.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION, Look
from theory.bounds import cover_max_items, single_head_max_items
from theory.head_size import gain, gain_boundary

LEAST_GAIN = 1.1
LARGEST_GAIN = 1.5
_LOOKS = (
    Look("", SKY, "o"),
    Look("", GREEN, "s"),
    Look("", BLUE, "^"),
    Look("", ORANGE, "D"),
    Look("", PURPLE, "v"),
)
_DASHES = ("-", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)))
_JOINT = {
    "adam": Look("all at once (Adam)", VERMILLION, "s", filled=False),
    "anneal-hinge": Look("all at once (annealed)", PURPLE, "D", filled=False),
}


def regime_map(data: Mapping[str, Any]) -> Drawn:
    """Cells over (d, m), coloured by the measured gain."""
    rows = [row for row in records(data, "cells") if (row["gain"] is not None) == row["one_possible"]]
    if not rows:
        return None
    figure, panels = style.grid(1, 1, style.DOUBLE_WIDTH, 4.2)
    axes = panels[0, 0]
    norm, colours = LogNorm(1.0, LARGEST_GAIN), colormaps["cividis_r"]
    for row in rows:
        low, high = row["num_items"] / 1.16, row["num_items"] * 1.16
        left, right = row["d_model"] / 1.13, row["d_model"] * 1.13
        can = row["gain"] is not None
        face = colours(norm(min(LARGEST_GAIN, row["gain"]))) if can else style.IMPOSSIBLE["facecolor"]
        options = {} if can else {"hatch": "////", "edgecolor": style.IMPOSSIBLE["edgecolor"]}
        patch = Rectangle((left, low), right - left, high - low, facecolor=face, linewidth=0.0, **options)
        axes.add_patch(patch)
        light = can and norm(min(LARGEST_GAIN, row["gain"])) > 0.6
        axes.text(
            row["d_model"],
            row["num_items"],
            _cell_text(row),
            ha="center",
            va="center",
            fontsize=7,
            zorder=5,
            color="white" if light else BLACK,
            bbox=None if can else {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85},
        )
    widths = sorted({row["d_model"] for row in rows})
    fine = range(max(4, round(widths[0] / 1.2)), round(widths[-1] * 1.2) + 1)
    lines = _lines()
    axes.plot(fine, [single_head_max_items(d) for d in fine], **lines["ceiling"])
    axes.plot(fine, [gain_boundary(d, LEAST_GAIN) for d in fine], **lines["boundary"])
    axes.plot(fine, [cover_max_items(d) for d in fine], **lines["cover"])
    axes.set_xscale("log")
    axes.set_yscale("log")
    style.plain_log_ticks(axes.xaxis, widths)
    items = [row["num_items"] for row in rows]
    style.plain_log_ticks(axes.yaxis, style.powers_of_two(min(items) / 1.3, max(items) * 1.4))
    axes.set_xlim(widths[0] / 1.2, widths[-1] * 1.2)
    axes.set_ylim(min(items) / 1.35, max(items) * 1.45)
    axes.set_xlabel("width d of the items")
    axes.set_ylabel("items m (= edges)")
    bar = figure.colorbar(ScalarMappable(norm, colours), ax=axes, pad=0.01)
    bar.set_label("budget of one head / best budget")
    bar.ax.yaxis.set_minor_locator(NullLocator())
    style.plain_log_ticks(bar.ax.yaxis, (1.0, 1.1, 1.2, 1.3, 1.4, LARGEST_GAIN))
    handles = [
        style.line_handle("one head's ceiling (predicted)", lines["ceiling"]),
        style.line_handle(f"gain {LEAST_GAIN:g} (predicted)", lines["boundary"]),
        style.line_handle("above: no head holds all permutations (theorem)", lines["cover"]),
        style.area_handle("one head cannot (certified)", style.IMPOSSIBLE),
    ]
    style.legend_below(figure, handles, 2)
    caption = (
        "Permutations on m Gaussian items in d dimensions. In each cell: budget of one head → best budget of any "
        "number of "
        f"heads, at which half of {seed_range(row['num_seeds'] for row in rows)} recover the graph; colour: their "
        f"ratio. "
        "Hatched: an exact solve proves for most of the seeds that no single head holds the graph, whatever its "
        "budget. "
        "Lines: predictions without a free parameter, and the size above which (by counting sign patterns) one head "
        "cannot hold every permutation."
    )
    return figure, caption


def _lines() -> dict[str, dict[str, Any]]:
    return {
        "ceiling": style.PREDICTION,
        "boundary": style.PREDICTION | {"color": BLUE, "linestyle": (0, (2, 1.2))},
        "cover": style.PREDICTION | {"color": style.GREY, "linestyle": "-"},
    }


def _cell_text(row: Record) -> str:
    best = "?" if row["best_budget"] is None else str(row["best_budget"])
    return f"{row['one_budget']} → {best}" if row["one_budget"] is not None else f"∞ → {best}"


def gains(data: Mapping[str, Any]) -> Drawn:
    """One head's budget over the best, against m in multiples of the ceiling."""
    rows = [row for row in records(data, "cells") if row["gain"] is not None]
    if not rows:
        return None
    figure, panels = style.grid(1, 1, style.COLUMN_WIDTH, 3.0)
    axes = panels[0, 0]
    widths = sorted({row["d_model"] for row in rows})
    for index, (d, look, dash) in enumerate(zip(widths, _LOOKS, _DASHES, strict=False)):
        ceiling = single_head_max_items(d)
        items = range(max(4, round(0.25 * ceiling)), math.floor(ceiling) + 1, max(1, d // 8))
        x = [m / ceiling for m in items]
        line = style.PREDICTION | {"color": look.color, "linestyle": dash}
        axes.plot(x, [gain(m, m, d) for m in items], **line)
        own = select(rows, d_model=d)
        low, high = zip(*(_gain_interval(row) for row in own), strict=True)
        shift = 0.008 * (index - 2)
        places = [row["num_items"] / ceiling + shift for row in own]
        style.interval_bars(axes, places, [row["gain"] for row in own], low, high, look)
    axes.axhline(1.0, **style.REFERENCE)
    axes.set_xlim(0.25, 1.02)
    axes.set_ylim(0.9, max(2.0, 1.1 * max(row["gain"] for row in rows)))
    axes.set_xlabel("items / one head's predicted ceiling")
    axes.set_ylabel("budget of one head / best budget")
    handles = [
        style.handle(look, f"d = {d}", linestyle=dash)
        for d, look, dash in zip(widths, _LOOKS, _DASHES, strict=False)
    ]
    style.legend_below(figure, handles, 3)
    caption = (
        "What several heads save where one head can hold the permutation. Markers: measured, bars from the "
        "intervals of both "
        "budgets taken against each other; lines: predicted by width, for real numbers of dimensions."
    )
    return figure, caption


def _gain_interval(row: Record) -> tuple[float | None, float | None]:
    """The crossing's interval of one head over the seeds' range of the best, each taken against the other."""
    if row["many_budget"] is None or row["many_budget"] >= row["one_budget"]:
        return None, None
    low = max(1.0, (row["one_crossing_low"] or 0.0) / (row["many_high"] or row["many_budget"]))
    high = None if row["one_crossing_high"] is None else row["one_crossing_high"] / row["many_low"]
    return min(low, row["gain"]), None if high is None else max(high, row["gain"])


def joint(data: Mapping[str, Any]) -> Drawn:
    """Budgets of joint training by heads, beside the best of the map."""
    rows = records(data, "joint")
    if not rows:
        return None
    sizes = sorted({row["num_items"] for row in rows})
    narrow = len(sizes) == 1
    width = style.COLUMN_WIDTH if narrow else style.DOUBLE_WIDTH
    figure, panels = style.grid(1, len(sizes), width, 3.2 if narrow else 2.8, sharey=True)
    for axes, m in zip(panels[0], sizes, strict=True):
        _joint_panel(axes, select(rows, num_items=m), select(records(data, "cells"), num_items=m))
    panels[0, 0].set_ylabel("total key dimension $D_K$")
    handles = [style.handle(look, linestyle="none") for look in _JOINT.values()]
    best = Look("best trainer, any heads", BLUE, "o")
    handles += [style.line_handle(best.label, {"color": BLUE, "linewidth": 1.2})]
    handles += [
        style.line_handle("best trainer, one head", {"color": BLACK, "linewidth": 1.2, "linestyle": ":"})
    ]
    style.legend_below(figure, handles, 2 if narrow else 4)
    first = rows[0]
    caption = (
        f"Joint training in d = {first['d_model']}: budget at which half of {seed_range(r['num_seeds'] for r in rows)} "
        "recover the permutation, with 95% intervals; at the top, open triangles: not reached within the budgets run. "
        "Lines: the map's budgets, where one head can."
    )
    return figure, caption


def _joint_panel(axes: Any, rows: Sequence[Record], cells: Sequence[Record]) -> None:
    counts = sorted({row["num_heads"] for row in rows})
    for index, (variant, look) in enumerate(_JOINT.items()):
        own = select(rows, variant=variant)
        shift = 2 ** (0.16 * (index - 0.5))
        reached = [row for row in own if row["budget"] is not None]
        style.interval_bars(
            axes,
            [row["num_heads"] * shift for row in reached],
            [row["budget"] for row in reached],
            [None if row["capped"] else row["low"] for row in reached],
            [row["high"] for row in reached],
            look,
        )
        missed = [row for row in own if row["budget"] is None]
        top = [row["largest_run"] + 1.5 for row in missed]
        axes.plot(
            [row["num_heads"] * shift for row in missed], top, "^", color=look.color, markerfacecolor="white"
        )
    for cell in cells[:1]:
        if cell["best_budget"] is not None:
            axes.axhline(cell["best_budget"], color=BLUE, linewidth=1.2)
        if cell["one_budget"] is not None:
            axes.axhline(cell["one_budget"], color=BLACK, linewidth=1.2, linestyle=":")
    axes.set_xscale("log", base=2)
    style.plain_log_ticks(axes.xaxis, counts)
    axes.set_xlim(counts[0] / 1.5, counts[-1] * 1.5)
    axes.set_ylim(0, 1.15 * float(np.max([row["largest_run"] for row in rows])))
    axes.set_xlabel("heads h")
    axes.set_title(f"m = {rows[0]['num_items']}, {rows[0]['factor']:.1f} of the ceiling")


FIGURES = {
    "map": regime_map,
    "gain": gains,
    "joint": joint,
    "families": figures_laws.families,
    "scaling": figures_laws.scaling,
    "thin": figures_laws.thin,
}
"""What draws each figure, by name."""
