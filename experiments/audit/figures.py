"""Figures of the audit, drawn from what a complete run wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments import style
from experiments.drawing import Drawn
from experiments.reading import Record, records
from experiments.style import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILLION, Look

_AT_RANK: dict[str, Any] = style.PREDICTION | {"color": GREY, "linestyle": (0, (1.2, 1.4))}
_EFFECTIVE = Look("effective rank of a head", VERMILLION, "o")
_STABLE = Look("stable rank of a head", BLUE, "^", filled=False)
_AGAIN = Look("known edge met again", GREEN, "s")
_RANDOM = Look("type of the context at random", GREY, "D", filled=False)
_SINK = Look("tokens that attend a special one most", PURPLE, "v", filled=False)
_LAYERS = ((0.0, BLUE, "o"), (0.5, ORANGE, "^"), (1.0, VERMILLION, "s"))


def ranks(data: Mapping[str, Any]) -> Drawn:
    """Effective and stable rank of every head, by layer."""
    groups = _by_model(records(data, "layers"))
    if not groups:
        return None
    figure, grid = style.grid(1, len(groups), style.DOUBLE_WIDTH, 2.8)
    for axes, (name, rows) in zip(grid[0], groups.items(), strict=True):
        for look, key, shift in ((_EFFECTIVE, "effective_rank", -0.12), (_STABLE, "stable_rank", 0.12)):
            for row in rows:
                axes.plot(
                    [row["layer"] + shift] * len(row[key]),
                    row[key],
                    look.marker,
                    color=look.color,
                    markerfacecolor=look.color if look.filled else "none",
                    markersize=2.6,
                    markeredgewidth=0.6,
                )
        first = rows[0]
        for key in ("random_effective_rank", "random_stable_rank"):
            axes.axhline(float(np.mean([row[key] for row in rows])), **style.PREDICTION)
        axes.axhline(first["head_dim"], **style.REFERENCE)
        axes.set_title(f"{name}: d = {first['d_model']}, $d_k$ = {first['head_dim']}")
        axes.set_xlabel("layer")
        axes.set_ylim(0, 1.06 * first["head_dim"])
        axes.set_xticks(_ticks(len(rows)))
    grid[0, 0].set_ylabel(r"rank of $W_q^\top W_k$")
    handles = [style.handle(look, linestyle="none") for look in (_EFFECTIVE, _STABLE)]
    handles.append(style.line_handle("random weights of the same shape (both ranks)", style.PREDICTION))
    style.legend_below(figure, handles, 3)
    caption = (
        "Effective rank (exponential of the entropy of the singular values' shares) and stable rank (squared Frobenius "
        "over squared spectral norm) of W_q^T W_k, one marker a head; biases and rotary embeddings left out, scales of "
        "normalisations included where blocks normalise what enters them. Dashes: mean over random Gaussian weights of "
        "the same shape, for both ranks. Thin line: d_k, which neither can exceed."
    )
    return figure, caption


def graph(data: Mapping[str, Any]) -> Drawn:
    """Distinct edges against the text's length, beside what a layer is predicted to hold."""
    groups = _by_model(records(data, "graphs"))
    if not groups:
        return None
    figure, grid = style.grid(1, len(groups), style.DOUBLE_WIDTH * 0.85, 2.8, sharey=True)
    for axes, (name, rows) in zip(grid[0], groups.items(), strict=True):
        for place, color, marker in _LAYERS:
            row = rows[round(place * (len(rows) - 1))]
            axes.plot(
                [count["contexts"] * row["length"] for count in row["counts"]],
                [count["edges"] for count in row["counts"]],
                marker + "-",
                color=color,
                linewidth=0.8,
                label=f"layer {row['layer']}",
            )
        first = rows[0]
        axes.axhline(first["held_edges"], **style.PREDICTION)
        axes.axhline(first["held_edges_at_rank"], **_AT_RANK)
        axes.set_xscale("log")
        axes.set_yscale("log")
        counted = [count["contexts"] * first["length"] for count in first["counts"]]
        style.plain_log_ticks(axes.xaxis, counted[:: max(1, len(counted) // 3)])
        axes.set_title(f"{name}: $D_K$ = {first['total_key_dim']}")
        axes.set_xlabel("tokens of text")
        axes.legend(loc="lower right")
    grid[0, 0].set_ylabel("distinct edges between types, all heads")
    handles = [
        style.line_handle("prediction: held by a layer, at width d", style.PREDICTION),
        style.line_handle("the same at the embedding table's rank", _AT_RANK),
    ]
    style.legend_below(figure, handles, 2)
    caption = (
        "Distinct edges from a token's type to the type that a head attends most there, all heads of a layer together, "
        "against the length of the text; special tokens ([CLS], [SEP]; of a causal model its own and the first token) "
        "and a type's edges to itself left out. Dashes: edges of a random graph on the types of the whole text that "
        "the layer is predicted to hold (fixed even partition, every query head with keys of its own), for isotropic "
        "items of width d and at the effective rank of the embedding table."
    )
    return figure, caption


def fixed(data: Mapping[str, Any]) -> Drawn:
    """How often a known edge is attended again, by layer."""
    groups = _by_model([row for row in records(data, "graphs") if row["recurrence"] is not None])
    if not groups:
        return None
    figure, grid = style.grid(1, len(groups), style.DOUBLE_WIDTH * 0.85, 2.6, sharey=True)
    shown = ((_AGAIN, "recurrence"), (_RANDOM, "baseline"), (_SINK, "sink_share"))
    for axes, (name, rows) in zip(grid[0], groups.items(), strict=True):
        for look, key in shown:
            axes.plot(
                [row["layer"] for row in rows],
                [row[key] for row in rows],
                look.marker + "-",
                color=look.color,
                markerfacecolor=look.color if look.filled else "white",
                markersize=4,
                linewidth=0.7,
            )
        axes.set_title(name)
        axes.set_xlabel("layer")
        axes.set_ylim(*style.SHARE_LIMITS)
        axes.set_xticks(_ticks(len(rows)))
    grid[0, 0].set_ylabel("share")
    style.legend_below(figure, [style.handle(look) for look, _ in shown], 2)
    caption = (
        "How fixed attention's graph is. Edges of a head found in the first half of the contexts; wherever a token and "
        "the target of such an edge meet in the other half, how often the target is attended most (green), and how "
        "often a type of that context taken at random would be (grey). Purple: tokens that attend a special token "
        "most: [CLS] or [SEP], of a causal model its own or the first token; punctuation is not counted. Means over "
        "the heads of a layer."
    )
    return figure, caption


def _by_model(rows: list[Record]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = {}
    for row in sorted(rows, key=lambda row: row["layer"]):
        groups.setdefault(row["model"], []).append(row)
    return dict(sorted(groups.items()))


def _ticks(count: int) -> list[int]:
    step = 1 if count <= 12 else 5
    return list(range(0, count, step))


FIGURES = {
    "ranks": ranks,
    "graph": graph,
    "fixed": fixed,
}
"""What draws each figure, by name."""
