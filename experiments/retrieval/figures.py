"""Figures of the `retrieval` experiment, drawn from what a complete run wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from experiments import style
from experiments.drawing import Drawn
from experiments.reading import Record, records, seed_range, select
from experiments.retrieval.figures_copy import copying
from experiments.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION, Look
from theory.retrieval import exponent, vacuous_length

_TARGETS = {
    2: Look("D = 2", BLUE, "o"),
    3: Look("D = 3", GREEN, "^"),
    4: Look("D = 4", VERMILLION, "s"),
    6: Look("D = 6", PURPLE, "D"),
}
_PLAIN = Look("linear encoder, orthonormal, fixed n, one layer", VERMILLION, "s")
_SETTINGS = {
    "random": Look("random directions", SKY, "o"),
    "fixed-width": Look("fixed E = n h", BLUE, "D"),
    "mlp": Look("MLP encoder", GREEN, "^"),
    "two-layer": Look("two layers", PURPLE, "v"),
    "general": Look("general task", ORANGE, "P"),
}
_PUBLISHED = Look("published (their encoder is not known)", BLACK, "*", filled=False)


def heads(data: Mapping[str, Any]) -> Drawn:
    """Errors against the number of heads, a panel for each length."""
    rows = [row for row in records(data, "curves") if row["curve"] == "main" and row["best_nmse"]]
    if not rows:
        return None
    lengths = sorted({row["length"] for row in rows})
    lengths = sorted({lengths[0], lengths[len(lengths) // 2], lengths[-1]}, reverse=True)
    figure, grid = style.grid(1, len(lengths), style.DOUBLE_WIDTH, 2.9, sharey=True)
    for axes, length in zip(grid[0], lengths, strict=True):
        here = select(rows, length=length)
        present = sorted({row["num_targets"] for row in here})
        for index, targets in enumerate(present):
            own = sorted(select(here, num_targets=targets), key=lambda row: row["num_heads"])
            look = _look(targets)
            _curve(axes, own, look, 0.1 * (index - (len(present) - 1) / 2))
            predicted = [(row["num_heads"], row["predicted_nmse"]) for row in own if row["predicted_nmse"]]
            if predicted:
                axes.plot(*zip(*predicted, strict=True), **(style.PREDICTION | {"color": look.color}))
            _marks(axes, own, look.color)
        _axes(axes, f"T = {length}", range(1, max(row["num_heads"] for row in here) + 1))
    grid[0, 0].set_ylabel("NMSE on fresh samples")
    handles = [style.handle(_look(d)) for d in sorted({row["num_targets"] for row in rows})]
    handles.append(style.line_handle("prediction: unread maxima", style.PREDICTION))
    if any(row["published_nmse"] for row in rows):
        handles.append(style.handle(_PUBLISHED, linestyle="none", markersize=7))
    style.legend_below(figure, handles, 4)
    caption = (
        "Error against the number of heads h: y = sum over i of max over t of <a_i, x^(t)>, D orthonormal a_i, "
        "linear encoder, per-head dimension n = width of a token. *Measured*: the least of all runs "
        f"({_runs(rows)}), bars up to the median run. *Prediction* (dashed): what is left when h heads read h "
        "maxima (`theory.retrieval.unread_nmse`, an upper bound by construction; 0 from h = D on). Stars: Yu et "
        "al. 2025, the least of several seeds, in the colour of their D; those at 2 heads (and at 3 for T = 8) "
        "are orders of magnitude alone."
    )
    return figure, caption


def settings(data: Mapping[str, Any]) -> Drawn:
    """Other settings at the largest number of targets, each at its longest length."""
    rows = [row for row in records(data, "curves") if row["best_nmse"]]
    panels = []
    for name in _SETTINGS:
        own = select(rows, curve=name)
        for key in ("num_targets", "length"):
            own = select(own, **{key: max((row[key] for row in own), default=0)})
        if own:
            panels.append((name, own))
    if not panels:
        return None
    figure, grid = style.grid(1, len(panels), style.DOUBLE_WIDTH, 2.7, sharey=True)
    compared = False
    for axes, (name, own) in zip(grid[0], panels, strict=True):
        place = {key: own[0][key] for key in ("num_targets", "length")}
        beside = select(rows, curve="main", **place) or select(rows, curve="mlp-beside", **place)
        if beside and name != "general":
            compared = True
            _curve(axes, beside, _PLAIN, -0.08)
        _curve(axes, own, _SETTINGS[name], 0.08)
        _marks(axes, own, _SETTINGS[name].color)
        axes.axvline(-(-own[0]["num_targets"] // own[0]["num_layers"]), **style.REFERENCE)
        shown = {row["num_heads"] for row in [*own, *(beside if name != "general" else [])]}
        title = f"{_SETTINGS[name].label}\nD = {place['num_targets']}, T = {place['length']}"
        _axes(axes, title, sorted(shown))
    grid[0, 0].set_ylabel("NMSE on fresh samples")
    handles = [style.handle(_SETTINGS[name]) for name, _ in panels]
    handles += [style.handle(_PLAIN)] if compared else []
    style.legend_below(figure, handles, 3)
    caption = (
        "The same with one thing changed, beside the linear encoder on orthonormal directions (red squares) "
        "where that was run at this T: random unit directions; fixed E = n h instead of fixed n; an MLP encoder "
        "of 32 hidden units; two layers (residual, n = 2 D); the general task (sum of minima of squared "
        "distances, each over half of the positions, MLP encoder with positions). Least of all runs "
        f"({_runs(rows)}), bars up to the median. Grey line: where the jump is expected, h = D / L."
    )
    return figure, caption


def theorem(data: Mapping[str, Any]) -> Drawn:
    """The exponent of the lower bound at the lengths that were run, and where it says nothing."""
    rows = [row for row in records(data, "curves") if row["curve"] == "main" and row["exponent"] is not None]
    if not rows:
        return None
    targets = max(row["num_targets"] for row in rows)
    own = select(rows, num_targets=targets)
    dim = own[0]["per_head_dim"]
    figure, grid = style.grid(1, 1, style.COLUMN_WIDTH, 2.6)
    axes: Axes = grid[0, 0]
    lengths = np.geomspace(8, 256, 60)
    for index, h in enumerate(sorted({row["num_heads"] for row in own})):
        color = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE)[index % 5]
        slope = exponent(5, h, targets, dim) - exponent(1, h, targets, dim)
        line: dict[str, Any] = style.PREDICTION | {"color": color}
        axes.plot(lengths, exponent(1, h, targets, dim) + slope * (lengths - 1) / 4, **line)
        measured = select(own, num_heads=h)
        axes.plot(
            [row["length"] for row in measured],
            [row["exponent"] for row in measured],
            style.MARKERS[index],
            color=color,
            label=f"h = {h}: beyond T = {vacuous_length(h, targets, dim)}",
        )
    axes.axhspan(-2, 0, **style.IMPOSSIBLE)
    axes.set_xscale("log", base=2)
    style.plain_log_ticks(axes.xaxis, [8, 16, 32, 64, 128, 256])
    axes.set_ylim(-1.6, None)
    axes.set_xlabel("tokens T")
    axes.set_ylabel(r"exponent $k$ of the lower bound")
    axes.legend(loc="upper left")
    caption = (
        f"Theorem (Yu et al. 2025): with h < D = {targets} heads of per-head dimension {dim} the number of "
        "parameters grows at least like (1 / error)^k (error in the supremum, weights at most 1). Markers: "
        "lengths of the runs. In the hatched area the bound says nothing. No run tests it: it is a rate, of "
        "unknown constant, for another error."
    )
    return figure, caption


def _look(targets: int) -> Look:
    return _TARGETS.get(targets, Look(f"D = {targets}", style.GREY, "h"))


def _curve(axes: Axes, rows: Sequence[Record], look: Look, shift: float) -> None:
    """Least errors with bars up to the median run."""
    rows = sorted(rows, key=lambda row: row["num_heads"])
    x = [row["num_heads"] + shift for row in rows]
    best, median = ([row[f"{name}_nmse"] for row in rows] for name in ("best", "median"))
    style.interval_bars(axes, x, best, [None] * len(rows), median, look, linestyle="-", linewidth=0.7)


def _marks(axes: Axes, rows: Iterable[Record], color: str) -> None:
    """Published values."""
    for row in rows:
        if row["published_nmse"]:
            axes.plot(
                row["num_heads"],
                row["published_nmse"],
                _PUBLISHED.marker,
                color=color,
                markerfacecolor="white",
                markersize=7,
                zorder=4,
            )


def _axes(axes: Axes, title: str, num_heads: Iterable[int]) -> None:
    heads = list(num_heads)
    axes.set_yscale("log")
    axes.set_title(title)
    axes.set_xlabel("heads h")
    axes.set_xlim(min(heads) - 0.5, max(heads) + 0.5)
    axes.set_xticks(heads)


def _runs(rows: Sequence[Record]) -> str:
    seeds = seed_range(len(row["seed_nmse"]) for row in rows)
    restarts = max(row["runs"] // max(1, len(row["seed_nmse"])) for row in rows)
    return f"{seeds}, {restarts} learning rates each" if restarts > 1 else seeds


FIGURES = {
    "heads": heads,
    "settings": settings,
    "copying": copying,
    "theorem": theorem,
}
"""What draws each figure, by name."""
