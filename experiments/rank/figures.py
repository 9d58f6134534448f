"""Figures of the `rank` experiment, drawn from what a complete run wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from experiments import style
from experiments.drawing import Drawn
from experiments.rank.maps import MODEL
from experiments.rank.table import NAMES, SHOWN
from experiments.reading import Record, records, seed_range, select
from experiments.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, Look
from theory.rank import circle_scale, least_planar_scale

FLOOR = 1e-10
"""Divergences are drawn no lower: an exact pattern is met to rounding."""

_FREE = Look("best head known", BLUE, "o")
_COLORS, _MARKERS = (VERMILLION, GREEN, ORANGE, PURPLE, SKY), ("s", "D", "v", "^")
_SEARCH = Look("best of searches, where worse", BLACK, "*", filled=False)
_TRUNCATED = Look("truncated logits", GREY, "x")
_EXACT: dict[str, Any] = {"color": BLACK, "linewidth": 0.9, "linestyle": "-"}
_CLOSED: dict[str, Any] = style.PREDICTION | {"color": VERMILLION}
_GUARANTEED: dict[str, Any] = {"color": GREY, "linewidth": 0.9, "linestyle": (0, (1.2, 1.4))}
_DTYPES = {
    "bfloat16": Look("bfloat16", VERMILLION, "s"),
    "float16": Look("float16", GREEN, "^"),
    "float32": Look("float32", BLUE, "o"),
}


def divergence(data: Mapping[str, Any]) -> Drawn:
    """Divergence against head size, a panel for each pattern at its largest length."""
    rows = records(data, "curves")
    shown = [name for name in NAMES if select(rows, pattern=name)]
    if not shown:
        return None
    columns = min(4, len(shown))
    lines = -(-len(shown) // columns)
    figure, grid = style.grid(
        lines, columns, style.DOUBLE_WIDTH, 0.5 + 1.75 * lines + 0.5 * (lines == 1), sharey=True
    )
    bounds = sorted({row["bound"] for row in rows if row["bound"] is not None})
    for index, axes in enumerate(grid.flat):
        if index >= len(shown):
            axes.set_visible(False)
            continue
        own = select(rows, pattern=shown[index])
        n = max(row["n"] for row in own)
        _divergence_panel(axes, select(own, n=n), bounds)
        axes.set_title(f"{NAMES[shown[index]]}, n = {n}")
        if index + columns >= len(shown):
            axes.set_xlabel(r"head size $d_k$")
    for line in grid:
        line[0].set_ylabel("divergence (nats a row)")
    handles = [style.handle(_FREE)]
    handles += [
        style.handle(_bounded(index), f"best head known, $|q||k| \\leq {bound:g}$")
        for index, bound in enumerate(bounds)
    ]
    if any(_worse(row) for row in rows):
        handles.append(style.handle(_SEARCH, linestyle="none"))
    handles.append(style.handle(_TRUNCATED, linestyle=":"))
    handles.append(style.line_handle("exact from here on (theorem)", _EXACT))
    if any(row["floor_kl"] for row in rows):
        handles.append(style.line_handle("bounded permutation: circle (cross), any size (dashed)", _CLOSED))
    style.legend_below(figure, handles, 3)
    counts = [row["num_seeds"] for row in rows if row["pattern"] != MODEL]
    caption = (
        "Kullback-Leibler divergence of the best known head of size d_k from a pattern, in nats a row, at the largest "
        "length n. Known: found by a search, at this size and bound or smaller ones, or constructed (for permutations "
        f"a circle and a simplex). Points: median over {seed_range(counts)} (MiniLM: over maps of different layers and "
        "heads), bars: from the least to the largest; all are upper bounds. Stars: the median of what searches found, "
        "where it is above 1e-8 and a construction better by 10%. Black line: rank of the centred log, from which on a "
        "head has the pattern exactly (theorem). A permutation is not positive and never met, only approached: without "
        "a bound to any precision from d_k = 2 on (theorem: the circle, drawn at 1e-10), which descent does not always "
        "find at 2; it stops where the slope is 1e-8. Dashed: the least divergence of any bounded head from a "
        "permutation (theorem); cross: points on a circle with the same bound. Grey crosses: the centred log cut to "
        "d_k singular values. Divergences below 1e-10 are drawn there."
    )
    return figure, caption


def _divergence_panel(axes: Axes, rows: Sequence[Record], bounds: Sequence[float]) -> None:
    rows = sorted(rows, key=lambda row: row["head_dim"])
    free = select(rows, bound=None)
    cut = [row for row in free if row["median_truncated_kl"] is not None]
    if cut:
        axes.plot(
            [row["head_dim"] for row in cut],
            [max(FLOOR, row["median_truncated_kl"]) for row in cut],
            color=GREY,
            marker="x",
            linestyle=":",
            linewidth=0.7,
        )
    for index, bound in enumerate(bounds):
        own = select(rows, bound=bound)
        _points(axes, own, _bounded(index))
        if own and own[0]["floor_kl"]:
            color = _bounded(index).color
            line: dict[str, Any] = _CLOSED | {"color": color}
            axes.axhline(own[0]["floor_kl"], **line)
            axes.plot([2], [own[0]["circle_kl"]], "+", color=color, markersize=9, zorder=4)
    _points(axes, free, _FREE)
    for row in filter(_worse, rows):
        at = row["head_dim"], max(FLOOR, row["median_search_kl"])
        color = (_FREE if row["bound"] is None else _bounded(bounds.index(row["bound"]))).color
        axes.plot(*at, _SEARCH.marker, color=color, markerfacecolor="white", markersize=7, zorder=4)
    sizes = {row[f"{end}_minimal_head_dim"] for row in rows for end in ("least", "largest")} - {None}
    for size in sizes:
        axes.axvline(size, zorder=0.6, **_EXACT)
    axes.axhline(free[0]["median_uniform_kl"], **style.REFERENCE)
    axes.set_yscale("log")
    axes.set_xscale("log", base=2)
    axes.set_ylim(FLOOR / 4, 20)
    axes.set_yticks([1e-9, 1e-6, 1e-3, 1])
    style.plain_log_ticks(axes.xaxis, style.powers_of_two(1, max(row["head_dim"] for row in rows)))


def _bounded(index: int) -> Look:
    """Of the bound of this number: 20 looks that differ, with 5 colours and 4 markers."""
    return Look("", _COLORS[index % len(_COLORS)], _MARKERS[index % len(_MARKERS)], filled=False)


def _worse(row: Record) -> bool:
    """Whether a construction is visibly better than what the searches found, and these were not finished."""
    return row["median_search_kl"] > max(SHOWN, 1.1 * row["median_kl"])


def _points(axes: Axes, rows: Sequence[Record], look: Look) -> None:
    if not rows:
        return
    median, low, high = (
        [max(FLOOR, row[f"{name}_kl"]) for row in rows] for name in ("median", "least", "largest")
    )
    sizes = [row["head_dim"] for row in rows]
    style.interval_bars(axes, sizes, median, low, high, look, linestyle="-", linewidth=0.7)


def spectra(data: Mapping[str, Any]) -> Drawn:
    """Singular values of logits and of their softmax."""
    rows = records(data, "spectra")
    gaussian = select(rows, source="gaussian")
    sizes = sorted({row["head_dim"] for row in gaussian})
    if not sizes:
        return None
    wanted = sizes if len(sizes) <= 3 else [sizes[0], sizes[len(sizes) // 2], sizes[-1]]
    panels = [(f"Gaussian queries and keys\n$d_k$ = {k}", select(gaussian, head_dim=k)) for k in wanted]
    real = [row for row in rows if row["source"] == MODEL]
    if real:
        n = min(row["n"] for row in real)
        panels.append((f"MiniLM maps\n$d_k$ = {real[0]['head_dim']}", select(real, n=n)))
    figure, grid = style.grid(1, len(panels), style.DOUBLE_WIDTH, 2.5, sharey=True)
    looks = (Look("logits", BLUE, "o"), Look("their softmax", VERMILLION, "s", filled=False))
    for axes, (title, own) in zip(grid[0], panels, strict=True):
        for look, name in zip(looks, ("logits", "weights"), strict=True):
            values = np.array([row[name] for row in own])
            values = np.maximum(values / values[:, :1], 1e-18)
            order = np.arange(1, values.shape[1] + 1)
            axes.fill_between(order, values.min(0), values.max(0), color=look.color, alpha=0.25, linewidth=0)
            axes.plot(
                order,
                np.median(values, axis=0),
                look.marker,
                color=look.color,
                markersize=2.2,
                markerfacecolor=look.color if look.filled else "white",
            )
        axes.axvline(own[0]["head_dim"] + 0.5, **style.REFERENCE)
        axes.axhline(len(own[0]["logits"]) * np.finfo(float).eps, **style.REFERENCE)
        axes.set_yscale("log")
        axes.set_ylim(1e-19, 3)
        axes.set_yticks([1e-16, 1e-12, 1e-8, 1e-4, 1])
        axes.set_title(f"{title}, n = {own[0]['n']}")
        axes.set_xlabel("singular value number")
    grid[0, 0].set_ylabel("over the largest")
    style.legend_below(figure, [style.handle(look, linestyle="none") for look in looks], 2)
    caption = (
        "Singular values of logits Q K^T / sqrt(d_k) and of their softmax, over the largest one: median over seeds (or "
        "maps), bands from the least to the largest. Logits end at d_k (vertical line), as a product must. Their "
        "softmax does not: its rank is n, already at d_k = 1, where its singular values fall below what float64 "
        "resolves (horizontal line) although none is zero (theorem). MiniLM: the model's maps and their centred logs."
    )
    return figure, caption


def on_the_circle(data: Mapping[str, Any]) -> Drawn:
    """Logits that the circle needs, and where precision ends it."""
    rows = records(data, "circle")
    if not rows:
        return None
    figure, grid = style.grid(1, 2, style.DOUBLE_WIDTH, 2.7)
    needed, held = grid[0]
    miss = rows[0]["miss"]
    largest = max(row["n"] for row in rows)
    lengths = np.unique(np.geomspace(3, largest, 60).astype(int))
    needed.fill_between(lengths, 0.1, [least_planar_scale(int(n), miss) for n in lengths], **style.IMPOSSIBLE)
    needed.plot(lengths, [circle_scale(int(n), miss) for n in lengths], **style.PREDICTION)
    needed.set_xscale("log", base=10)
    needed.set_yscale("log")
    needed.set_ylim(1, None)
    needed.set_xlabel("keys n")
    needed.set_ylabel("largest logit")
    needed.set_title(f"weight {1 - miss:g} on every target, $d_k$ = 2")
    shown = [name for name in _DTYPES if select(rows, dtype=name)]
    for name in shown:
        look = _DTYPES[name]
        own = sorted(select(rows, dtype=name), key=lambda row: row["n"])
        least = [row["least_weight"] for row in own]
        held.plot([row["n"] for row in own], least, color=look.color, linewidth=0.7)
        for row, weight in zip(own, least, strict=True):
            right = row["share_right"] == 1
            face = look.color if right else "white"
            held.plot(row["n"], weight, look.marker, color=look.color, markerfacecolor=face)
        line: dict[str, Any] = _GUARANTEED | {"color": look.color}
        held.axvline(own[0]["guaranteed_length"], **line)
    held.set_xscale("log", base=10)
    held.set_ylim(*style.SHARE_LIMITS)
    held.set_xlabel("keys n")
    held.set_ylabel("least weight of a target")
    held.set_title("coordinates kept in")
    handles = [
        style.line_handle("circle, exactly", style.PREDICTION),
        style.area_handle("no head of size 2 (theorem)", style.IMPOSSIBLE),
        *(style.handle(_DTYPES[name]) for name in shown),
        style.line_handle("guaranteed up to here (theorem)", _GUARANTEED),
        style.handle(Look("open: some target is not first", GREY, "o", filled=False), linestyle="none"),
    ]
    style.legend_below(figure, handles, 4)
    caption = (
        "A head of size 2 that attends any permutation: n keys on a circle, each query at its target. Left: the "
        f"largest logit that gives every target the weight {1 - miss:g} (dashed, exact), about n^2 / (2 pi^2) times "
        "ln(2 / miss); hatched: what no queries and keys in the plane do it with (theorem). Right: the least weight "
        "of a target, coordinates kept in each precision, logits and softmax in float32. Filled: every target that was "
        "looked at has the largest weight; open: some has not. Dotted: up to there it must (theorem, for the order)."
    )
    return figure, caption


FIGURES = {
    "divergence": divergence,
    "spectra": spectra,
    "circle": on_the_circle,
}
"""What draws each figure, by name."""
