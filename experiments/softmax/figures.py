"""Figures of the `softmax` experiment, drawn from what a complete run wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments import style
from experiments.drawing import Drawn
from experiments.reading import records, seed_range, select
from experiments.softmax.table import NAMES
from experiments.style import BLACK, BLUE, GREEN, PURPLE, VERMILLION, Look

_LOOKS = {
    "greedy": Look(NAMES["greedy"], BLUE, "o"),
    "joint": Look(NAMES["joint"], VERMILLION, "s"),
    "weights": Look(NAMES["weights"], GREEN, "^"),
    "values": Look(NAMES["values"], PURPLE, "D"),
}
_TRANSPLANT = Look("exact channel put into softmax heads", BLACK, "P", filled=False)


def sweep(data: Mapping[str, Any]) -> Drawn:
    """F1 against the number of heads, a panel for each budget."""
    rows = [row for row in records(data, "curves") if row["median_f1"] is not None]
    if not rows:
        return None
    totals = sorted({row["total_key_dim"] for row in rows})
    figure, grid = style.grid(1, len(totals), style.DOUBLE_WIDTH, 2.9, sharey=True)
    for axes, total in zip(grid[0], totals, strict=True):
        for index, (arm, look) in enumerate(_LOOKS.items()):
            own = sorted(select(rows, arm=arm, total_key_dim=total), key=lambda row: row["num_heads"])
            x = [row["num_heads"] * 2 ** (0.06 * (index - 1.5)) for row in own]
            middle, low, high = ([r[f"{n}_f1"] for r in own] for n in ("median", "least", "largest"))
            style.interval_bars(axes, x, middle, low, high, look, linestyle="-", linewidth=0.7)
        moved = [r for r in select(rows, total_key_dim=total) if r["least_softmax_f1"] is not None]
        axes.plot(
            [row["num_heads"] for row in moved],
            [row["least_softmax_f1"] for row in moved],
            _TRANSPLANT.marker,
            color=BLACK,
            markerfacecolor="none",
            markersize=7,
            zorder=2.5,
        )
        axes.set_xscale("log", base=2)
        style.plain_log_ticks(axes.xaxis, sorted({row["num_heads"] for row in rows}))
        axes.set_ylim(*style.SHARE_LIMITS)
        axes.set_title(f"$D_K$ = {total}")
        axes.set_xlabel("heads h")
    grid[0, 0].set_ylabel("F1 over pairs of contexts")
    handles = [style.handle(look) for look in _LOOKS.values() if any(select(rows, arm=_name(look)))]
    handles.append(style.handle(_TRANSPLANT, linestyle="none", markersize=7))
    style.legend_below(figure, handles, 3)
    first = rows[0]
    caption = (
        f"F1 against the number of heads at a fixed budget: a permutation on {first['num_items']} items, d = "
        f"{first['d_model']}, on random contexts of {first['context_size']} items, the same for all channels. Points: "
        f"median over {seed_range(row['num_seeds'] for row in rows)}, bars from the least to the largest. *Maximum*: "
        "the key-query channel at its best threshold, trained head by head (greedy) or all heads at once (joint). "
        "*Softmax*: heads with a null key trained end to end, read off their weights or off the values that come out. "
        "Crosses: weights of exact channels of the maximum put into softmax heads at the scale that the margin asks "
        "for, without training, the least F1 of all of them (a theorem says 1)."
    )
    return figure, caption


def _name(look: Look) -> str:
    return next(arm for arm, other in _LOOKS.items() if other is look)


def lemma(data: Mapping[str, Any]) -> Drawn:
    """Worst distances from the neighbour's value against the scaled margin, beside their bounds."""
    rows = [row for row in records(data, "lemma") if row["constructed"]]
    if not rows:
        return None
    counts = sorted({row["num_heads"] for row in rows})
    figure, grid = style.grid(1, 2, style.DOUBLE_WIDTH, 2.7, sharey=True)
    panels = (
        ("worst_error", "error_bound", "neighbour in the context"),
        ("worst_absent", "absent_bound", "no neighbour"),
    )
    for axes, (worst, bound, title) in zip(grid[0], panels, strict=True):
        for index, h in enumerate(counts):
            own = select(rows, num_heads=h)
            x = own[0]["scaled_margins"]
            color = (BLUE, VERMILLION, GREEN, PURPLE)[index % 4]
            look = Look(f"h = {h}", color, style.MARKERS[index])
            values = [[row[worst][i] for row in own] for i in range(len(x))]
            style.interval_bars(
                axes, x, [max(v) for v in values], [min(v) for v in values], [None] * len(x), look
            )
            axes.plot(x, own[0][bound], **(style.PREDICTION | {"color": color}))
        axes.set_yscale("log")
        axes.set_title(title)
        axes.set_xlabel(r"scaled margin $\beta\gamma$")
    grid[0, 0].set_ylabel("distance from what should come out")
    handles = [
        style.handle(
            Look(f"h = {h}", (BLUE, VERMILLION, GREEN, PURPLE)[i % 4], style.MARKERS[i]), linestyle="none"
        )
        for i, h in enumerate(counts)
    ]
    handles.append(style.line_handle("upper bound (theorem)", style.PREDICTION))
    style.legend_below(figure, handles, 4)
    first = rows[0]
    caption = (
        f"Channels with one owner an edge, made by convex optimisation (m = {first['num_items']}, d = d_k = "
        f"{first['d_model']}): the largest distance of the summed output from the neighbour's value (left; from zero "
        f"where the neighbour is not in the context, right) over random contexts of {first['context_size']} items, "
        "against the scale times the margin. Points: the worst seed, bars down to the best. Dashed: the theorem's "
        "upper bound."
    )
    return figure, caption


FIGURES = {"sweep": sweep, "lemma": lemma}
"""What draws each figure, by name."""
