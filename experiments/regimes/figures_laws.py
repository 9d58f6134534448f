"""Figures of the regimes experiment: families, the scaling law, thin heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments import style
from experiments.drawing import Drawn
from experiments.reading import records, seed_range, select
from experiments.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, Look
from theory.bounds import held_edges
from theory.head_size import heads_by_parameters, heads_of_size, partition_budget

_FAMILIES = {
    "regular": Look("regular (1: permutation)", BLUE, "o"),
    "random": Look("random", GREEN, "s"),
    "hubs": Look("hubs (1, 1/2, 1/3, ...)", VERMILLION, "^"),
}
_LOOKS = tuple(
    Look("", color, marker)
    for color, marker in zip(
        (SKY, GREEN, BLUE, ORANGE, PURPLE, VERMILLION, GREY), style.MARKERS, strict=False
    )
)
_PARAMETERS = style.PARAMETER_COUNT
_NAMES = {
    "measured": "measured",
    "width_whole": "width, whole heads",
    "width": "width",
    "parameters_whole": "parameters, whole",
    "parameters": "parameters",
    "folk": "m ln m / d",
}


def families(data: Mapping[str, Any]) -> Drawn:
    """Budget against the number of edges."""
    rows = records(data, "families")
    if not rows:
        return None
    figure, panels = style.grid(1, 1, style.COLUMN_WIDTH, 3.2)
    axes = panels[0, 0]
    first = rows[0]
    m, d, k = first["num_items"], first["d_model"], first["head_dim"]
    edges = sorted({row["num_edges"] for row in rows})
    fine = np.geomspace(edges[0] / 1.15, edges[-1] * 1.15, 40).round().astype(int)
    axes.plot(fine, [k * heads_of_size(m, int(e), d, k) for e in fine], **style.PARTITION)
    axes.plot(fine, [k * heads_by_parameters(m, int(e), d, k) for e in fine], **_PARAMETERS)
    for index, (graph, look) in enumerate(_FAMILIES.items()):
        own = select(rows, graph=graph)
        x = [row["num_edges"] * 1.06 ** (index - 1) for row in own]
        values = [[row[name] for row in own] for name in ("budget", "low", "high")]
        style.interval_bars(axes, x, values[0], values[1], values[2], look)
    axes.set_xscale("log")
    axes.set_yscale("log")
    style.plain_log_ticks(axes.xaxis, edges)
    budgets = [row["budget"] for row in rows]
    style.plain_log_ticks(axes.yaxis, style.powers_of_two(min(budgets) / 2, 2 * max(budgets)))
    axes.set_xlabel("edges m'")
    axes.set_ylabel(f"$D_K$ needed with $d_k$ = {k}")
    handles = [style.handle(look, linestyle="none") for look in _FAMILIES.values()]
    handles += [
        style.line_handle("width (prediction)", style.PARTITION),
        style.line_handle("parameters (law of joint)", _PARAMETERS),
    ]
    style.legend_below(figure, handles, 2)
    caption = (
        f"Graphs of m' edges on {m} items in {d} dimensions: budget of heads of {k} dimensions, added until the "
        f"graph is "
        f"recovered; mean of {seed_range(row['num_seeds'] for row in rows)}, bars from the least to the largest."
    )
    return figure, caption


def scaling(data: Mapping[str, Any]) -> Drawn:
    """The folk law's constant over m and d, and exponents with their intervals."""
    rows, laws = records(data, "scaling"), records(data, "exponents")
    if not rows:
        return None
    figure, panels = style.grid(1, 2, style.DOUBLE_WIDTH, 3.4, width_ratios=(1.35, 1))
    left, right = panels[0]
    widths = sorted({row["d_model"] for row in rows})
    items = sorted({row["num_items"] for row in rows})
    for d, look in zip(widths, _LOOKS, strict=False):
        own = sorted(select(rows, d_model=d), key=lambda row: row["num_items"])
        fine = np.geomspace(own[0]["num_items"] / 1.05, own[-1]["num_items"] * 1.05, 30).round().astype(int)
        predicted = [partition_budget(int(m), int(m), d)[0] * d / (m * np.log(m)) for m in fine]
        left.plot(fine, predicted, **style.PREDICTION | {"color": look.color})
        values = [[row[name] for row in own] for name in ("over_folk", "over_folk_low", "over_folk_high")]
        style.interval_bars(left, [row["num_items"] for row in own], values[0], values[1], values[2], look)
    left.set_xscale("log")
    style.plain_log_ticks(left.xaxis, items)
    left.set_ylim(0, None)
    left.set_xlabel("items m (= edges)")
    left.set_ylabel("$D_K\\, d\\, /\\, (m \\ln m)$")
    shown = [name for name in _NAMES if select(laws, law=name)]
    for index, name in enumerate(shown):
        row = select(laws, law=name)[0]
        for value, look in (("a", Look("a (in m)", BLUE, "o")), ("b", Look("b (in 1/d)", VERMILLION, "s"))):
            spread = [row[value] - row[f"{value}_low"]], [row[f"{value}_high"] - row[value]]
            y = index + (0.13 if value == "b" else -0.13)
            solid = name == "measured"
            right.errorbar(
                [row[value]],
                [y],
                xerr=spread,
                marker=look.marker,
                color=look.color,
                markerfacecolor=look.color if solid else "white",
                linestyle="none",
                elinewidth=0.8,
                capsize=1.6,
            )
    right.set_yticks(range(len(shown)), [_NAMES[name] for name in shown])
    right.invert_yaxis()
    right.axvline(1.0, **style.REFERENCE)
    right.set_xlabel("exponent: a (circles), b (squares)")
    handles = [
        style.handle(look, f"d = {d}", linestyle="none") for d, look in zip(widths, _LOOKS, strict=False)
    ]
    handles.append(style.line_handle("width (prediction)", style.PREDICTION))
    style.legend_below(figure, handles, 4)
    caption = (
        "Permutations: the best budget of heads of a few sizes, added until the graph is recovered, "
        f"{seed_range(row['num_seeds'] for row in rows)}. Left: budget over the folk law, mean over seeds, bars from "
        f"the "
        "least to the largest. Right: exponents of $m^a d^{-b}$ by least squares at these sizes, 95% bootstrap "
        "intervals over sizes and seeds; predictions (open) are fitted at the same sizes."
    )
    return figure, caption


def thin(data: Mapping[str, Any]) -> Drawn:
    """Edges a head holds, and what a permutation needs, by head size."""
    own, counted = records(data, "own"), records(data, "thin")
    if not own or not counted:
        return None
    figure, panels = style.grid(1, 2, style.DOUBLE_WIDTH, 2.9)
    left, right = panels[0]
    m, d = own[0]["num_items"], own[0]["d_model"]
    largest = max(row["head_dim"] for row in (*own, *counted))
    sizes = np.arange(1, largest + 1)
    left.plot(sizes, [held_edges(m, d, int(k)) for k in sizes], **style.PARTITION)
    given, chosen = Look("given its edges", BLACK, "D"), Look("first, chooses its edges", BLUE, "o")
    mean = Look("mean of all heads", SKY, "v")
    values = [[row[name] for row in own] for name in ("budget", "low", "high")]
    style.interval_bars(left, [row["head_dim"] - 0.08 for row in own], values[0], values[1], values[2], given)
    for look, name, shift in ((chosen, "first_held", 0.0), (mean, "mean_held", 0.08)):
        left.plot(
            [row["head_dim"] + shift for row in counted],
            [row[name] for row in counted],
            look.marker,
            color=look.color,
        )
    left.plot([0.7, 1.3], [2, 2], color=GREY, linewidth=1.5)
    left.set_ylim(0, None)
    left.set_ylabel("edges held by a head")
    style.interval_bars(
        right,
        [row["head_dim"] for row in counted],
        [row["budget"] for row in counted],
        [row["low"] for row in counted],
        [row["high"] for row in counted],
        Look("needed", BLUE, "o"),
    )
    right.plot(sizes, [k * heads_of_size(m, m, d, int(k)) for k in sizes], **style.PARTITION)
    right.plot(sizes, [k * heads_by_parameters(m, m, d, int(k)) for k in sizes], **_PARAMETERS)
    right.plot([0.7, 1.3], [m / 2, m / 2], color=GREY, linewidth=1.5)
    right.set_ylim(0, None)
    right.set_ylabel("total key dimension $D_K$ needed")
    for axes in (left, right):
        axes.set_xticks(sizes)
        axes.set_xlabel("head size $d_k$")
    handles = [style.handle(look, linestyle="none") for look in (given, chosen, mean)]
    handles += [
        style.line_handle("width (prediction)", style.PARTITION),
        style.line_handle("parameters (law of joint)", _PARAMETERS),
        style.line_handle("cap at $d_k$ = 1 (theorem)", {"color": GREY, "linewidth": 1.5}),
    ]
    style.legend_below(figure, handles, 3)
    caption = (
        f"A permutation on {m} items in {d} dimensions. Left: edges held by one head that is given them (half-way "
        f"point, "
        "95% interval), by the first of heads that choose theirs, and by all of these on average. Right: what the "
        "whole "
        f"permutation needs, mean of {seed_range(row['num_seeds'] for row in counted)}, bars from the least to the "
        f"largest. "
        "At one dimension a head holds two edges at most, a theorem that the width does not know."
    )
    return figure, caption
