"""Figures of the `gap` experiment, drawn from what a complete run wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from experiments import style
from experiments.drawing import Drawn
from experiments.gap.records import BEST
from experiments.gap.table import sweeps
from experiments.reading import Record, records, seed_range, select
from experiments.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILLION, Look

_LOOKS = {
    "annealed": Look("annealed, refitted", PURPLE, "D"),
    "greedy": Look("head by head", BLUE, "o"),
    "greedy-long": Look("head by head, longer", BLUE, "s", filled=False),
    "hard": Look("hard max, refitted", VERMILLION, "v", filled=False),
}
_LINES = {
    "partition": ("dealt edges (prediction)", style.PARTITION),
    "max_of_heads": ("max of heads (estimate)", style.PREDICTION | {"linestyle": (0, (1, 1))}),
    "first_moment": ("first moment (estimate)", style.PREDICTION | {"linestyle": (0, (4, 1, 1, 1))}),
    "gordon": ("Gordon (Gaussian)", style.PREDICTION | {"color": GREEN, "linestyle": "-"}),
}
_EXACT = Look("smallest exact channel", BLACK, "_")
_MINIMUM = Look("exact minimum", BLACK, "s")


def _bounds(axes: Axes, rows: Sequence[Record], key: str) -> None:
    """Theorems as an area, estimates and predictions as lines, over one axis."""
    rows = sorted(select(rows, trainer=BEST), key=lambda row: row[key])
    places = [row[key] for row in rows]
    floor = [max(row["cap"], row["warren"] or 0.0) for row in rows]
    axes.fill_between(places, [0.0] * len(floor), floor, **style.IMPOSSIBLE)
    for name, (_, line) in _LINES.items():
        finite = [(row[key], row[name]) for row in rows if row[name] is not None]
        if finite:
            axes.plot(*zip(*finite, strict=True), **line)


def _measured(axes: Axes, rows: Sequence[Record], key: str, spread: float) -> None:
    shown = [name for name in _LOOKS if select(rows, trainer=name)]
    for index, name in enumerate(shown):
        shift = 1 + spread * (index - (len(shown) - 1) / 2)
        own = sorted(select(rows, trainer=name), key=lambda row: row[key])
        reached = [row for row in own if row["measured_total_key_dim"] is not None]
        style.interval_bars(
            axes,
            [row[key] * shift for row in reached],
            [row["measured_total_key_dim"] for row in reached],
            [None if row["capped"] else row["ci_low"] for row in reached],
            [row["ci_high"] for row in reached],
            _LOOKS[name],
        )
    exact = [row for row in select(rows, trainer=BEST) if row["smallest_exact"] is not None]
    axes.plot(
        [row[key] for row in exact],
        [row["smallest_exact"] for row in exact],
        "_",
        color=BLACK,
        markersize=14,
        markeredgewidth=1.4,
        zorder=4,
    )


def _handles(rows: Sequence[Record]) -> list[Any]:
    handles: list[Any] = [
        style.handle(look, linestyle="none") for name, look in _LOOKS.items() if select(rows, trainer=name)
    ]
    handles.append(style.handle(_EXACT, linestyle="none", markersize=9))
    handles += [style.line_handle(label, line) for label, line in _LINES.values()]
    return [*handles, style.area_handle("cap, Warren (theorems)", style.IMPOSSIBLE)]


def _sweep(rows: Sequence[Record], key: str, label: str, spread: float) -> Any:
    figure, grid = style.grid(1, 1, style.COLUMN_WIDTH, 4.0)
    axes = grid[0, 0]
    _bounds(axes, rows, key)
    _measured(axes, rows, key, spread)
    places = sorted({row[key] for row in rows})
    axes.set_xscale("log", base=2)
    style.plain_log_ticks(axes.xaxis, places)
    axes.set_xlim(places[0] / (1 + 2.5 * spread), places[-1] * (1 + 2.5 * spread))
    tops = [row["measured_total_key_dim"] or 0.0 for row in rows] + [row["partition"] or 0.0 for row in rows]
    axes.set_ylim(0, 1.2 * max(tops))
    axes.set_xlabel(label)
    axes.set_ylabel("total key dimension $D_K$")
    style.legend_below(figure, _handles(rows), 2)
    return figure


_SAID = (
    "Points: budget at which half of the seeds recover a permutation (best-threshold F1 of at least 0.99), bars 95% "
    "intervals (without a lower end where all seeds recover at the smallest budget run); dashes: smallest budget with "
    "an exact channel, checked in float64. Hatched: excluded by the cap at one dimension or Warren's bound. Gordon's "
    "bound is a theorem for independent Gaussian features, not for these; the estimates are heuristic, and low."
)


def heads(data: Mapping[str, Any]) -> Drawn:
    """Everything on one axis, against the number of heads."""
    rows, _ = sweeps(data)
    if len({row["num_heads"] for row in rows}) < 2:
        return None
    first = rows[0]
    said = f"{first['num_items']} items, d = {first['d_model']}, {seed_range(row['num_seeds'] for row in rows)}. "
    return _sweep(rows, "num_heads", "heads h", 0.045), said + _SAID


def items(data: Mapping[str, Any]) -> Drawn:
    """The same against the number of items."""
    _, rows = sweeps(data)
    if len({row["num_items"] for row in rows}) < 2:
        return None
    first = rows[0]
    said = f"{first['num_heads']} heads, d = {first['d_model']}, {seed_range(row['num_seeds'] for row in rows)}. "
    return _sweep(rows, "num_items", "items m", 0.012), said + _SAID


def small(data: Mapping[str, Any]) -> Drawn:
    """Exact minima against estimates, and brackets for one dimension and for the budget."""
    rows = records(data, "instances")
    if not rows:
        return None
    sizes = sorted({(row["num_items"], row["d_model"]) for row in rows})
    figure, grid = style.grid(1, 2, style.DOUBLE_WIDTH, 3.2)
    left, right = grid[0]
    marks = {
        "gordon": Look("Gordon (Gaussian features)", GREEN, "v", filled=False),
        "first_moment": Look("first moment (estimate)", ORANGE, "^", filled=False),
        "max_of_heads": Look("maximum of heads (estimate)", GREY, "P"),
        "partition": Look("fixed partition (prediction)", BLUE, "o", filled=False),
    }
    trained = Look("annealed, refitted", PURPLE, "D")
    for place, (m, d) in enumerate(sizes):
        own = select(rows, num_items=m, d_model=d)
        for index, (name, look) in enumerate(marks.items()):
            style.interval_bars(
                left, [place + 0.12 * (index - 2.5)], [own[0][f"{name}_heads"]], [None], [None], look
            )
        exact = [row["full_rank_heads"] for row in own]
        found = [row["trained_heads"].get(str(d)) for row in own]
        reached = [value for value in found if value is not None]
        for shift, values, look in ((0.18, exact, _MINIMUM), (0.3, reached, trained)):
            if values:
                middle = sum(values) / len(values)
                style.interval_bars(left, [place + shift], [middle], [min(values)], [max(values)], look)
        for offset, low, high, look in (
            (-0.12, "one_low", "one_high", Look("heads of one dimension", VERMILLION, "_")),
            (0.12, "least_budget_low", "least_budget_high", Look("any head size", BLACK, "_")),
        ):
            for index, row in enumerate(own):
                x = place + offset + 0.16 * (index / max(1, len(own) - 1) - 0.5)
                right.plot([x, x], [row[low], row[high]], "-", color=look.color, linewidth=1.2)
                right.plot([x, x], [row[low], row[high]], look.marker, color=look.color, markersize=5)
        right.plot([place - 0.25, place + 0.25], [m / 2, m / 2], **style.PREDICTION)
    for axes in (left, right):
        axes.set_xticks(range(len(sizes)), [f"m = {m}\nd = {d}" for m, d in sizes])
        axes.set_xlim(-0.6, len(sizes) - 0.4)
        axes.set_ylim(bottom=0)
    left.set_ylabel("heads of full rank needed")
    right.set_ylabel("total key dimension $D_K$ needed")
    handles = [style.handle(look, linestyle="none") for look in [*marks.values(), _MINIMUM, trained]]
    handles += [
        style.handle(Look("$d_k$ = 1, bracket", VERMILLION, "_")),
        style.handle(Look("any head size, bracket", BLACK, "_")),
        style.line_handle("cap: m/2 (theorem)", style.PREDICTION),
    ]
    style.legend_below(figure, handles, 3)
    caption = (
        "Permutations small enough to try everything. Left: fewest heads of full rank: exact minimum and fewest at "
        "which annealed training was exact, mean and range over instances, beside what bounds and estimates say. "
        "Right, one bar an instance: brackets on the least budget with heads of one dimension and with heads of any "
        "size (a point where it is exact)."
    )
    return figure, caption


FIGURES = {"heads": heads, "items": items, "small": small}
"""What draws each figure, by name."""
