"""Figures that show single heads: importance, ablation, what gates leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import style
from experiments.pruning.claims import SMALL_COST
from experiments.pruning.records import groups, span
from experiments.reading import Record, records, select
from experiments.roles.naming import NONE, ORDER
from experiments.style import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILLION, Look

COLOURS = "cividis"
"""Map of values; even in lightness, for every kind of sight."""
_SETS = (GREEN, ORANGE, VERMILLION, PURPLE, GREY)


def importance(data: Mapping[str, Any]) -> tuple[Figure, str] | None:
    """A map of I_h for each model, heads across and layers down."""
    by_model = groups(records(data, "heads"), "model")
    if not by_model:
        return None
    figure, grid = style.grid(1, len(by_model), style.COLUMN_WIDTH * min(2, len(by_model)), 3.4)
    for axes, ((model,), rows) in zip(grid[0], by_model.items(), strict=True):
        found = matrix(rows, "importance")
        image = axes.imshow(found, aspect="auto", cmap=COLOURS, vmin=0, interpolation="nearest")
        axes.set_title(model)
        axes.set_xlabel("head")
        axes.set_ylabel("layer")
        axes.set_xticks(range(found.shape[1]))
        axes.set_yticks(range(0, found.shape[0], 1 if found.shape[0] < 12 else 5))
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02)
        bar.set_label("importance I_h")
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    caption = (
        "Importance of every head on training text: mean over tokens of |Att_h . dL/dAtt_h|, every layer "
        "divided by its norm (Michel et al. 2019); L is the next-token loss of causal models, the contrastive loss "
        "of neighbouring sentences of encoders. Layers and heads are counted from 0; where heads share keys, "
        "neighbours do."
    )
    return figure, caption


def ablation(data: Mapping[str, Any]) -> tuple[Figure, str] | None:
    """What removing one head adds to the loss, and what leaving one head in a layer adds at best."""
    rows = records(data, "ablations")
    points = records(data, "points")
    models = [model for (model,) in groups(rows, "model") if span(select(points, model=model)) is not None]
    if not models:
        return None
    figure, grid = style.grid(len(models), 2, style.DOUBLE_WIDTH, 2.3 * len(models))
    for panels, model in zip(grid, models, strict=True):
        ends = span(select(points, model=model))
        assert ends is not None
        whole = ends[1] - ends[0]
        _single(panels[0], select(rows, model=model, ablation="single"), model, whole)
        _one_left(panels[1], select(rows, model=model, ablation="all_but_one"), model, whole)
    caption = (
        "Left: what removing one head adds to the loss on held-out text, in percent of what removing all "
        f"heads adds; heads in ascending order, grey line at {SMALL_COST:.0%}. Right: what keeping the best "
        "single head of a layer adds, all other layers being whole."
    )
    return figure, caption


def gates(data: Mapping[str, Any]) -> tuple[Figure, str] | None:
    """Loss of the heads that gates leave beside that of as many by importance; survivors by role."""
    rows = [row for row in records(data, "gate_sets") if row["heads_left"] < row["num_heads"]]
    if not rows:
        return None
    by_model = groups(rows, "model")
    figure, grid = style.grid(len(by_model), 2, style.DOUBLE_WIDTH, 2.5 * len(by_model))
    curve_look, gate_look = (
        Look("by importance I_h", BLUE, "o"),
        Look("by gates", VERMILLION, "D", filled=False),
    )
    for panels, ((model,), own) in zip(grid, by_model.items(), strict=True):
        axes: Axes = panels[0]
        curve = select(records(data, "points"), model=model, order="importance")
        curve += select(records(data, "matched"), model=model)
        curve = sorted(curve, key=lambda row: row["heads_left"])
        none = [None] * max(len(curve), len(own))
        for found, look, line in ((curve, curve_look, "-"), (own, gate_look, "none")):
            x, y = ([row[name] for row in found] for name in ("heads_left", "loss"))
            style.interval_bars(
                axes, x, y, none[: len(x)], none[: len(x)], look, linestyle=line, linewidth=0.7
            )
        axes.set_title(f"{model}: loss")
        axes.set_xlabel("heads left")
        axes.set_ylabel("loss on held-out text")
        _survivors(panels[1], own)
    style.legend_below(figure, [style.handle(curve_look), style.handle(gate_look, linestyle="none")], 2)
    caption = (
        "Hard-concrete gates with an L0 penalty (Voita et al. 2019), trained alone on a model that stays as "
        "it is. Left: loss on held-out text with the heads that they leave, beside as many by importance. "
        "Right: share of the heads of each role that survive, for each number of heads left (no bar: none); "
        "in brackets how many there are. Roles are those of the experiment *roles* (preset quick); a head "
        "may have several."
    )
    return figure, caption


def matrix(rows: Sequence[Record], name: str) -> np.ndarray:
    """A field of every head as an array of layers and heads."""
    shape = (1 + max(row["layer"] for row in rows), 1 + max(row["head"] for row in rows))
    found = np.full(shape, np.nan)
    for row in rows:
        found[row["layer"], row["head"]] = row[name]
    return found


def _single(axes: Axes, rows: Sequence[Record], model: str, whole: float) -> None:
    shares = np.sort([100 * row["increase"] / whole for row in rows])
    axes.plot(np.arange(1, len(shares) + 1), shares, ".", color=BLUE, markersize=3)
    axes.axhline(0, **style.REFERENCE)
    axes.axhline(100 * SMALL_COST, **style.REFERENCE)
    axes.set_title(f"{model}: without one head")
    axes.set_xlabel("heads, in order")
    axes.set_ylabel("added loss / % of all")


def _one_left(axes: Axes, rows: Sequence[Record], model: str, whole: float) -> None:
    best = {layer: min(row["increase"] for row in own) for (layer,), own in groups(rows, "layer").items()}
    axes.bar(list(best), [100 * rise / whole for rise in best.values()], color=BLUE, width=0.7)
    axes.axhline(5, **style.REFERENCE)
    axes.set_title(f"{model}: one head left in a layer")
    axes.set_xlabel("layer")
    axes.set_ylabel("added loss / % of all")


def _survivors(axes: Axes, rows: Sequence[Record]) -> None:
    axes.set_title(f"{rows[0]['model']}: heads by role")
    if rows[0]["roles"] is None:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "roles of this model are not measured", ha="center", transform=axes.transAxes)
        return
    names = [name for name in (*ORDER, NONE) if any(name in row["roles"] for row in rows)]
    width = 0.8 / len(rows)
    for index, row in enumerate(sorted(rows, key=lambda row: -row["heads_left"])):
        x = [i + (index - (len(rows) - 1) / 2) * width for i in range(len(names))]
        shares = [row["roles"][name][0] / row["roles"][name][1] for name in names]
        color = _SETS[index % len(_SETS)]
        axes.bar(
            x, shares, width, color=color, edgecolor="white", linewidth=0.5, label=f"{row['heads_left']} left"
        )
    counts = [rows[0]["roles"][name][1] for name in names]
    labels = [f"{n} ({c})" for n, c in zip(names, counts, strict=True)]
    axes.set_xticks(range(len(names)), labels, rotation=30, ha="right", rotation_mode="anchor")
    axes.tick_params(axis="x", length=0)
    axes.set_ylim(0, 1.25)
    axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    axes.set_ylabel("share that survives")
    axes.legend(loc="upper center", ncols=len(rows))
