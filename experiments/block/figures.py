"""The figure of the `block` experiment, drawn from what a complete run wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments import style
from experiments.block.table import NAMES
from experiments.drawing import Drawn
from experiments.reading import records, seed_range, select
from experiments.style import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILLION, Look

_COLORS = (VERMILLION, BLUE, GREEN, PURPLE)
_CONTROLS = {
    "frozen": Look(NAMES["frozen"], GREY, "v", filled=False),
    "wide": Look(NAMES["wide"], ORANGE, "X", filled=False),
    "removed": Look(NAMES["removed"], GREY, "_"),
}


def heads(data: Mapping[str, Any]) -> Drawn:
    """Accuracy against the number of heads, a panel for each width of the items."""
    rows = [row for row in records(data, "curves") if row["mean_accuracy"] is not None]
    if not select(rows, arm="block"):
        return None
    widths = sorted({row["d_model"] for row in rows})
    figure, grid = style.grid(1, len(widths), style.DOUBLE_WIDTH, 2.9, sharey=True)
    totals = sorted({row["total_key_dim"] for row in rows})
    looks = {
        total: Look(f"$D_K$ = {total}", _COLORS[i % 4], style.MARKERS[i]) for i, total in enumerate(totals)
    }
    for axes, width in zip(grid[0], widths, strict=True):
        here = select(rows, d_model=width)
        for total in totals:
            own = sorted(select(here, arm="block", total_key_dim=total), key=lambda row: row["num_heads"])
            x, y = [row["num_heads"] for row in own], [row["mean_accuracy"] for row in own]
            low, high = ([row[f"{end}_accuracy"] for row in own] for end in ("least", "largest"))
            style.interval_bars(axes, x, y, low, high, looks[total], linestyle="-", linewidth=0.7)
        for arm, look in _CONTROLS.items():
            for row in select(here, arm=arm):
                low, high = row["least_accuracy"], row["largest_accuracy"]
                style.interval_bars(axes, [row["num_heads"]], [row["mean_accuracy"]], [low], [high], look)
        axes.axhline(0.5, **style.REFERENCE)
        axes.set_xscale("log", base=2)
        style.plain_log_ticks(axes.xaxis, sorted({row["num_heads"] for row in here}))
        axes.set_ylim(0.35, 1.03)
        axes.set_title(f"m = {here[0]['num_items']}, d = {width}")
        axes.set_xlabel("heads h")
    grid[0, 0].set_ylabel("share of right answers")
    handles = [style.handle(looks[total]) for total in totals]
    handles += [
        style.handle(look, linestyle="none") for arm, look in _CONTROLS.items() if select(rows, arm=arm)
    ]
    style.legend_below(figure, handles, 3)
    caption = (
        "A whole Transformer block on frozen token embeddings of MiniLM (left: projected on their strongest "
        "directions; right, where it was run: as they are) names the neighbour of every item of a random context, or "
        f"says that it is not there. Points: mean over {seed_range(row['num_seeds'] for row in rows)}, bars from the "
        "least to the largest. Grey line: what an item alone tells, without its context. Controls: all scores held at "
        "zero, the same with a wider MLP, attention removed."
    )
    return figure, caption


FIGURES = {"heads": heads}
"""What draws each figure, by name."""
