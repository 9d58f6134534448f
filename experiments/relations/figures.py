"""The figure of the `relations` experiment, drawn from what a complete run wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.artist import Artist

from experiments import style
from experiments.drawing import Drawn
from experiments.reading import records, seed_range, select
from experiments.style import BLUE, GREEN, ORANGE, SKY, VERMILLION, Look

_ARMS = {
    ("linear", "gaussian", "trained", True): Look("linear read-out", BLUE, "o"),
    ("linear", "gaussian", "trained", False): Look("linear, smaller D_K", SKY, "v"),
    ("mlp", "gaussian", "trained", True): Look("MLP, Gaussian values", GREEN, "^", filled=False),
    ("mlp", "signs", "trained", True): Look("MLP, values +1 and -1", VERMILLION, "s", filled=False),
    ("mlp", "signs", "mixed", True): Look("the same, mixtures set by hand", ORANGE, "D"),
}


def heads(data: Mapping[str, Any]) -> Drawn:
    """Error against the number of heads, a panel for each number of relations."""
    rows = [row for row in records(data, "curves") if row["least_error"] is not None]
    if not rows:
        return None
    counts = sorted({row["num_relations"] for row in rows})
    largest = max(row["total_key_dim"] for row in rows)
    figure, grid = style.grid(1, len(counts), style.DOUBLE_WIDTH, 2.9, sharey=True)
    shown: list[Look] = []
    for axes, relations in zip(grid[0], counts, strict=True):
        here = select(rows, num_relations=relations)
        most = max(row["num_heads"] for row in here)
        axes.fill_between(
            np.linspace(0.5, most + 0.5, 200),
            [max(0.0, 1 - max(1, round(x)) / relations) for x in np.linspace(0.5, most + 0.5, 200)],
            -0.1,
            **style.IMPOSSIBLE,
        )
        for index, ((readout, law, attention, wide), look) in enumerate(_ARMS.items()):
            own = select(here, readout=readout, values=law, attention=attention)
            own = [row for row in own if (row["total_key_dim"] == largest) == wide]
            own = sorted(own, key=lambda row: row["num_heads"])
            if not own:
                continue
            shown += [look] if look not in shown else []
            style.interval_bars(
                axes,
                [row["num_heads"] + 0.11 * (index - 2) for row in own],
                [row["least_error"] for row in own],
                [None] * len(own),
                [row["largest_error"] for row in own],
                look,
                linestyle="none",
            )
        axes.set_title(f"R = {relations} relation" + ("s" if relations > 1 else ""))
        axes.set_xlabel("heads h")
        axes.set_xlim(0.5, most + 0.5)
        axes.set_xticks(range(1, most + 1))
        axes.set_ylim(-0.04, 1.0)
    grid[0, 0].set_ylabel("mean squared error\n(values' variance)")
    handles: list[Artist] = [style.handle(look, linestyle="none") for look in shown]
    handles.append(style.area_handle("below (R - h) / R (theorem)", style.IMPOSSIBLE))
    style.legend_below(figure, handles, 3)
    smaller = sorted({row["total_key_dim"] for row in rows} - {largest})
    caption = (
        "Error of a layer whose items must return the values of R targets at once, each in its own slot, against the "
        f"number of heads at an equal total key dimension D_K = {largest}"
        + (f" (smaller: {', '.join(map(str, smaller))})" if smaller else "")
        + f". Points: best of {seed_range(row['runs'] for row in rows)}, bars up to the worst. *Theorem* (hatched): "
        "what no linear read-out, and on Gaussian values no read-out at all, can reach with h heads. On values of +1 "
        "and -1 it does not bind an MLP: weights set to 1 : 2 : 4 ... over a head's targets, and an MLP trained on "
        "them, go below it; training attention and MLP together does not find this."
    )
    return figure, caption


FIGURES = {"heads": heads}
"""What draws each figure, by name."""
