"""Figures of the `constructions` experiment, drawn from what a complete run wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from experiments import style
from experiments.constructions.records import floor_of, partition_of
from experiments.constructions.units import CONVEX
from experiments.drawing import Drawn
from experiments.reading import records, seed_range, select
from experiments.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILLION, Look
from theory.constructions import KINDS_OF_PAIRS

_LOOKS = {
    "matched-filter": Look("matched filter", VERMILLION, "s", filled=False),
    "one-sided": Look("one-sided", ORANGE, "^", filled=False),
    "zero-forcing": Look("zero-forcing", GREEN, "D", filled=False),
    CONVEX: Look("convex heads, d_k = d", PURPLE, "v"),
}
_SOURCES = {
    "greedy": Look("greedy training", BLUE, "o"),
    CONVEX: Look("greedy, convex heads (d_k = d)", PURPLE, "v"),
    "joint": Look("joint training", BLACK, "X", filled=False),
} | {name: look for name, look in _LOOKS.items() if name != CONVEX}


def _source(row: Mapping[str, Any]) -> str:
    """Greedy training fits free matrices where heads are as wide as items."""
    convex = row["source"] == "greedy" and row["total_key_dim"] >= row["num_heads"] * row["d_model"]
    return CONVEX if convex else row["source"]


def budgets(data: Mapping[str, Any]) -> Drawn:
    """Least budgets against the number of heads, beside predictions, theorems and trainers."""
    rows = records(data, "thresholds")
    sizes = sorted({(row["num_items"], row["d_model"]) for row in rows})
    if not sizes:
        return None
    columns = min(2, len(sizes))
    lines = -(-len(sizes) // columns)
    width = style.DOUBLE_WIDTH if columns > 1 else style.COLUMN_WIDTH
    figure, grid = style.grid(lines, columns, width, 0.9 + 2.1 * lines)
    for axes, (m, d) in zip(grid.flat, sizes, strict=False):
        here = select(rows, num_items=m, d_model=d)
        heads = np.array(sorted({1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, *(r["num_heads"] for r in here)}))
        heads = heads[heads <= max(r["num_heads"] for r in here)]
        _limits(axes, m, d, heads)
        for name, look in _LOOKS.items():
            own = sorted(select(here, construction=name), key=lambda row: row["num_heads"])
            line: dict[str, Any] = style.PREDICTION | {"color": look.color}
            known = [row for row in own if row["predicted_total_key_dim"] is not None]
            axes.plot([r["num_heads"] for r in known], [r["predicted_total_key_dim"] for r in known], **line)
            found = [row for row in own if row["status"] == "reached"]
            style.interval_bars(
                axes,
                [row["num_heads"] for row in found],
                [row["measured_total_key_dim"] for row in found],
                [None if name == CONVEX else row["ci_low"] for row in found],
                [None if name == CONVEX else row["ci_high"] for row in found],
                look,
            )
        best = select(records(data, "trained"), num_items=m, d_model=d, trainer="best")
        best = [row for row in best if row["exact_total_key_dim"] is not None]
        axes.plot(
            [row["num_heads"] for row in best],
            [row["exact_total_key_dim"] for row in best],
            "o",
            color=BLUE,
            zorder=4,
        )
        axes.axhline(m, **style.REFERENCE)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        style.plain_log_ticks(axes.xaxis, style.powers_of_two(1, float(heads[-1])))
        top = max([m, *(r["measured_total_key_dim"] or 0 for r in here)])
        axes.set_ylim(1.5, 2 * top)
        style.plain_log_ticks(axes.yaxis, style.powers_of_two(2, 2 * top))
        axes.set_title(f"m = {m}, d = {d}")
        axes.set_xlabel("heads h")
        axes.set_ylabel(r"total key dimension $D_K$")
    for axes in list(grid.flat)[len(sizes) :]:
        axes.set_visible(False)
    handles: list[Artist] = [style.handle(look, linestyle="none") for look in _LOOKS.values()]
    handles.append(style.handle(Look("best trainer", BLUE, "o"), linestyle="none"))
    handles.append(style.line_handle("prediction for a construction", style.PREDICTION))
    handles.append(style.line_handle("prediction: fixed partition", style.PARTITION))
    handles.append(style.area_handle("impossible (theorems)", style.IMPOSSIBLE))
    style.legend_below(figure, handles, 3)
    caption = (
        "Total key dimension at which a channel recovers half of the random permutations exactly, against the number "
        f"of heads, d_k up to d ({seed_range(r['num_seeds'] for r in rows)}; 95% intervals). *Predictions* (dashed, in "
        "the construction's colour): from the variances of scores, without a free parameter; blue dashes: a fixed even "
        "partition by width. *Theorems* (hatched): counting, Warren, at most two edges a head at d_k = 1. A "
        "construction without a point at some h is out of reach there at any d_k up to d. Grey line: one head an edge, "
        "D_K = m, which always works. Best trainer: committed thresholds of `capacity`, preset `paper`, exact recovery."
    )
    return figure, caption


def _limits(axes: Axes, m: int, d: int, heads: np.ndarray) -> None:
    floors = [(h, floor_of(m, d, int(h))) for h in heads]
    upper = [h * d if floor is None else floor for h, floor in floors]
    axes.fill_between(heads, upper, 0.5, **style.IMPOSSIBLE)
    partition = [(h, value) for h in heads if (value := partition_of(m, d, int(h))) is not None]
    if partition:
        axes.plot(*zip(*partition, strict=True), **style.PARTITION)


def noise(data: Mapping[str, Any]) -> Drawn:
    """Measured against predicted variances, and success against its prediction."""
    rows = [row for row in records(data, "noise_curves") if row["predicted_variance"] > 0]
    points = [row for row in records(data, "points") if row["predicted_success"] is not None]
    if not rows:
        return None
    figure, grid = style.grid(1, 2, style.DOUBLE_WIDTH, 2.9)
    left, right = grid[0]
    limits = min(row["predicted_variance"] for row in rows) / 2, 2 * max(row["variance"] for row in rows)
    left.plot(limits, limits, **style.PREDICTION)
    markers = dict(zip(KINDS_OF_PAIRS, ("o", "s", "^", "v", "D"), strict=True))
    for row in rows:
        left.plot(
            row["predicted_variance"],
            row["variance"],
            markers[row["pair"]],
            color=_LOOKS[row["construction"]].color,
            markerfacecolor="white",
        )
    left.set_xscale("log")
    left.set_yscale("log")
    left.set_xlabel("predicted variance of a score")
    left.set_ylabel("measured")
    for kind, marker in markers.items():
        left.plot([], [], marker, color=GREY, markerfacecolor="white", label=kind)
    left.legend(loc="upper left")
    right.plot([0, 1], [0, 1], **style.PREDICTION)
    for name, look in _LOOKS.items():
        groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
        for row in select(points, construction=name):
            key = row["num_items"], row["d_model"], row["num_heads"], row["head_dim"]
            groups.setdefault(key, []).append(row)
        predicted = [own[0]["predicted_success"] for own in groups.values()]
        shares = [float(np.mean([row["exact_recovery"] for row in own])) for own in groups.values()]
        right.plot(predicted, shares, look.marker, color=look.color, markerfacecolor="white", alpha=0.7)
    right.set_xlim(*style.SHARE_LIMITS)
    right.set_ylim(*style.SHARE_LIMITS)
    right.set_xlabel("predicted probability of exact recovery")
    right.set_ylabel("share of seeds")
    handles: list[Artist] = [
        style.handle(look, linestyle="none") for name, look in _LOOKS.items() if name != CONVEX
    ]
    handles.append(style.line_handle("prediction", style.PREDICTION))
    style.legend_below(figure, handles, 4)
    caption = (
        "Left: variance of the scores of one constructed head by kind of pair (markers; own edges, source and target "
        "in the block or out of it), measured on random permutations and items, against the formula. Right: share of "
        f"seeds recovered exactly ({seed_range([max(1, len({row['seed'] for row in points}))])}) at every head count "
        "and head size tried, against the probability predicted from these variances as if "
        "scores were independent and normal."
    )
    return figure, caption


def precision(data: Mapping[str, Any]) -> Drawn:
    """Bits a weight at which recovery is lost, against the budget."""
    rows = [row for row in records(data, "precision_curves") if row["median_bits"] is not None]
    sizes = list(dict.fromkeys((row["num_items"], row["d_model"]) for row in rows))
    if not sizes:
        return None
    width = style.DOUBLE_WIDTH if len(sizes) > 1 else style.COLUMN_WIDTH
    figure, grid = style.grid(1, len(sizes), width, 2.8, sharey=True)
    shown: dict[str, Look] = {}
    for axes, (m, d) in zip(grid[0], sizes, strict=True):
        here = select(rows, num_items=m, d_model=d)
        for name, look in _SOURCES.items():
            own = sorted((row for row in here if _source(row) == name), key=lambda row: row["total_key_dim"])
            if own:
                shown[name] = look
                style.interval_bars(
                    axes,
                    [row["total_key_dim"] for row in own],
                    [row["median_bits"] for row in own],
                    [row["least_bits"] for row in own],
                    [row["most_bits"] for row in own],
                    look,
                )
        budgets = np.geomspace(
            0.8 * min(r["total_key_dim"] for r in here), 1.2 * max(r["total_key_dim"] for r in here)
        )
        first = here[0]
        bound = first["counting_bits"] * (2 * d * first["total_key_dim"] + 1) / (2 * d * budgets + 1)
        axes.fill_between(budgets, bound, 0, **style.IMPOSSIBLE)
        axes.set_xscale("log", base=2)
        style.plain_log_ticks(axes.xaxis, sorted({row["total_key_dim"] for row in here}))
        axes.set_title(f"m = {m}, d = {d}")
        axes.set_xlabel(r"total key dimension $D_K$")
        axes.set_ylim(0, 1 + max(row["most_bits"] for row in rows))
    grid[0, 0].set_ylabel("bits a weight")
    handles: list[Artist] = [style.handle(look, linestyle="none") for look in shown.values()]
    handles.append(style.area_handle("cannot name the graph (counting)", style.IMPOSSIBLE))
    style.legend_below(figure, handles, 3 if len(sizes) > 1 else 2)
    caption = (
        "Least number of bits a weight at which, and above which, recovery stays exact (median over the seeds whose "
        "channel is exact, bars from the least to the most): every matrix rounded to evenly spaced values between plus "
        "and minus its largest entry, in the better of two gauges. *Theorem* (hatched): fewer bits do not name "
        "the graph."
    )
    return figure, caption


FIGURES = {
    "budgets": budgets,
    "noise": noise,
    "precision": precision,
}
"""What draws each figure, by name."""
