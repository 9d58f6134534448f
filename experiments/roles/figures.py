"""Figures of the `roles` experiment, drawn from what a complete run wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from experiments import style
from experiments.drawing import Drawn, draw_all
from experiments.pretrained import file_name
from experiments.reading import Record, records
from experiments.roles.claims import layer_means, of_model
from experiments.roles.figures_maps import examples, head_map
from experiments.roles.table import label, models
from experiments.style import BLACK, BLUE, VERMILLION, Look

_PANELS = {
    "previous": "previous",
    "next": "next",
    "self": "itself",
    "first": "first token",
    "delimiter": "delimiters",
    "confidence": "confidence",
    "entropy": "entropy /\nuniform",
    "induction": "induction",
}
_TRAINED = Look("a head", BLUE, "o", filled=False)
_MEAN = Look("mean of a layer", BLUE, "o")
_RANDOM = Look("mean of a layer, random weights", VERMILLION, "s", filled=False)
_HEAD = Look("best head (95% interval)", BLUE, "o")
_CONTROL = Look("best head, random weights", VERMILLION, "s", filled=False)
_OFFSET = Look("best fixed offset", BLACK, "|")
_FEWEST = 50
"""Words of a relation that is drawn."""


def plot(data: Mapping[str, Any], out_dir: Path, stem: str) -> list[Path]:
    """Draw every figure that the run has records for, with captions."""
    return draw_all(
        "roles", dict(_figures(data)), data, out_dir, stem, note="Layers and heads are counted from 0."
    )


def scores(data: Mapping[str, Any], model: str) -> Drawn:
    """Heat maps of a model's scores, heads across and layers down."""
    rows = of_model(records(data, "heads"), model)
    panels = [name for name in _PANELS if rows and rows[0][name] is not None]
    if rows and rows[0]["induction"] is not None and "next" in panels:
        panels.remove("next")  # of a causal model: 0
    if not panels:
        return None
    num_layers, num_heads = (1 + max(row[name] for row in rows) for name in ("layer", "head"))
    height = 1.1 + min(0.09 * num_layers, 3.0)
    figure, grid = style.grid(1, len(panels), style.DOUBLE_WIDTH, height, sharey=True)
    mesh = None
    for axes, name in zip(grid[0], panels, strict=True):
        table = np.zeros((num_layers, num_heads))
        for row in rows:
            value = row[name] / row["uniform_entropy"] if name == "entropy" else row[name]
            table[row["layer"], row["head"]] = value
        mesh = axes.pcolormesh(table, vmin=0, vmax=1, cmap="cividis", linewidth=0, rasterized=False)
        axes.set_title(_PANELS[name])
        axes.set_xticks([0.5, num_heads - 0.5], ["0", str(num_heads - 1)])
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
    step = 1 if num_layers <= 12 else 5
    grid[0, 0].set_yticks(np.arange(0, num_layers, step) + 0.5, [str(i) for i in range(0, num_layers, step)])
    grid[0, 0].invert_yaxis()
    grid[0, 0].set_ylabel("layer")
    grid[0, len(panels) // 2].set_xlabel("head")
    if mesh is not None:
        figure.colorbar(mesh, ax=grid[0].tolist(), shrink=0.9, aspect=25, pad=0.01, label="score")
    tokens = rows[0]["num_tokens"]
    caption = (
        f"{label(model)}: what every head does. Shares of attention to the previous and the next token, to itself, to "
        "the first token and to delimiters (separators, full stops, commas); confidence, the mean largest weight; "
        "entropy over that of uniform attention"
    )
    caption += f"; on {tokens:,} tokens of text" if tokens else ""
    caption += "; induction score on repeated random tokens." if "induction" in panels else "."
    return figure, caption


def entropies(data: Mapping[str, Any]) -> Drawn:
    """Entropy of every head by layer, a panel for each model."""
    found = [
        model for model in models(data) if layer_means(of_model(records(data, "heads"), model), "entropy")
    ]
    if not found:
        return None
    figure, grid = style.grid(1, len(found), style.DOUBLE_WIDTH, 2.7, sharey=True)
    for axes, model in zip(grid[0], found, strict=True):
        rows = of_model(records(data, "heads"), model)
        axes.plot(
            [row["layer"] for row in rows],
            [row["entropy"] for row in rows],
            "o",
            color=BLUE,
            markersize=2.5,
            markerfacecolor="none",
            markeredgewidth=0.6,
        )
        _layer_line(axes, rows, _MEAN)
        _layer_line(axes, of_model(records(data, "control_heads"), model), _RANDOM)
        axes.axhline(rows[0]["uniform_entropy"], **style.PREDICTION)
        axes.set_title(label(model))
        axes.set_xlabel("layer")
    grid[0, 0].set_ylim(-0.04 * grid[0, 0].get_ylim()[1], None)  # room for whole markers at 0
    grid[0, 0].set_ylabel("entropy (nats)")
    handles = [
        style.handle(_TRAINED, linestyle="none", markersize=3),
        style.handle(_MEAN),
        style.handle(_RANDOM),
        style.line_handle("uniform attention", style.PREDICTION),
    ]
    style.legend_below(figure, handles, 4)
    caption = (
        "Entropy of attention by layer: every head (small circles), the mean of a layer, and the same with random "
        "weights in the layers. Dashed: uniform attention to all tokens that may be attended. Smoothed by 1e-4 as in "
        "Clark et al. 2019."
    )
    return figure, caption


def _layer_line(axes: Axes, rows: Sequence[Record], look: Look) -> None:
    means = layer_means(rows, "entropy")
    axes.plot(
        range(len(means)),
        means,
        color=look.color,
        marker=look.marker,
        markersize=3.5,
        linewidth=1.0,
        markerfacecolor=look.color if look.filled else "white",
    )


def dependencies(data: Mapping[str, Any]) -> Drawn:
    """Accuracy of the best head for each relation, beside the best offset and the control."""
    every = [row for row in records(data, "dependency") if row["accuracy"] is not None]
    often = [row for row in every if row["count"] >= _FEWEST]
    rows = often if {row["relation"] for row in often} > {"all"} else every
    if not rows:
        return None
    found = [model for model in models(data) if of_model(rows, model)]
    relations = list(dict.fromkeys(row["relation"] for row in rows))
    relations.sort(key=lambda relation: -max(r["count"] for r in rows if r["relation"] == relation))
    height = 1.2 + 0.155 * len(relations)
    figure, grid = style.grid(1, len(found), style.DOUBLE_WIDTH, height, sharey=True)
    y = {relation: i for i, relation in enumerate(relations)}
    for axes, model in zip(grid[0], found, strict=True):
        own = of_model(rows, model)
        places = [y[row["relation"]] for row in own]
        axes.hlines(places, 0, 1, color="#E6E6E6", linewidth=0.5, zorder=0.1)
        axes.plot(
            [row["offset_accuracy"] for row in own],
            places,
            linestyle="none",
            marker="|",
            color=BLACK,
            markersize=7,
            markeredgewidth=1.4,
        )
        control = [
            row
            for row in of_model(records(data, "controls"), model)
            if row["relation"] in y and row["accuracy"] is not None
        ]
        axes.plot(
            [row["accuracy"] for row in control],
            [y[row["relation"]] for row in control],
            linestyle="none",
            marker="s",
            color=VERMILLION,
            markerfacecolor="white",
            markersize=3.5,
        )
        axes.errorbar(
            [row["accuracy"] for row in own],
            places,
            xerr=[
                [row["accuracy"] - row["ci_low"] for row in own],
                [row["ci_high"] - row["accuracy"] for row in own],
            ],
            color=BLUE,
            marker="o",
            linestyle="none",
            elinewidth=0.8,
            capsize=1.5,
        )
        axes.set_title(label(model))
        axes.set_xlabel("share of words whose head is found")
        axes.set_xlim(*style.SHARE_LIMITS)
        axes.tick_params(axis="y", length=0)
    counts = {row["relation"]: row["count"] for row in rows}
    grid[0, 0].set_yticks(range(len(relations)), [f"{r} ({counts[r]:,})" for r in relations])
    grid[0, 0].invert_yaxis()
    handles = [
        style.handle(_HEAD, linestyle="none"),
        style.handle(_CONTROL, linestyle="none"),
        style.handle(_OFFSET, linestyle="none", markersize=7, markeredgewidth=1.4),
    ]
    style.legend_below(figure, handles, 3)
    caption = (
        "Dependencies that a single head finds (UD relations; in brackets the words they are measured on). The word "
        "that a word depends on is predicted to be the one it attends most, or that attends it most. Head, direction "
        "and offset are chosen on the first half of the sentences, for pretrained and random weights alike, and "
        "measured on the second. Bars: 95% Wilson intervals."
    )
    return figure, caption


def _figures(data: Mapping[str, Any]) -> Iterator[tuple[str, Callable[[Mapping[str, Any]], Drawn]]]:
    found = models(data)
    for model in found:
        yield f"scores-{file_name(model)}", lambda data, model=model: scores(data, model)
    yield "entropy", entropies
    yield "map", head_map
    yield "dependency", dependencies
    for model in found:
        yield f"examples-{file_name(model)}", lambda data, model=model: examples(data, model)
