"""Figures of the `tries` experiment, drawn from what a complete run wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments import style
from experiments.drawing import Drawn, checkpoint_look
from experiments.reading import Record, records, seed_range, select, wilson
from experiments.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, Look

ARMS: dict[tuple[str, int], Look] = {
    ("direct", 1): Look("h heads (direct)", BLUE, "o"),
    ("resumed", 1): Look("h heads, a second start (control)", BLUE, "s", filled=False),
    ("restarts", 4): Look("best of 4 direct runs", SKY, "D"),
    ("healed-steps", 2): Look("2h heads, cut, healed", ORANGE, "^", filled=False),
    ("healed-steps", 4): Look("4h heads, cut, healed", VERMILLION, "^"),
    ("healed-compute", 4): Look("4h, cut, healed, equal compute", PURPLE, "v"),
    ("rewound", 4): Look("kept of 4h, from their first weights", GREEN, "P", filled=False),
}
_BEST = Look("best trainer (capacity)", BLACK, "X")
_CHOICES = {
    "wins": Look("most edges won", BLUE, "o"),
    "ablation": Look("ablation, once", ORANGE, "^", filled=False),
    "recomputed": Look("ablation, anew", VERMILLION, "s"),
    "random": Look("at random", GREY, "D", filled=False),
}
_TASKS = {"channel": "channel: F1", "retrieval": "retrieval: 1 − NMSE"}
_ORDERS = {
    "ablation": "by ablation, anew",
    "importance": "by importance",
    "random": "at random",
}


def budgets(data: Mapping[str, Any]) -> Drawn:
    """Thresholds by head count and arm."""
    rows = [row for row in records(data, "thresholds") if row["choice"] in (None, "recomputed")]
    arms = {key: look for key, look in ARMS.items() if select(rows, arm=key[0], ratio=key[1])}
    if not arms or not any(row["measured_total_key_dim"] for row in rows):
        return None
    figure, [[axes]] = style.grid(1, 1, style.DOUBLE_WIDTH, 3.2)
    heads = sorted({row["num_heads"] for row in rows})
    place = {h: i for i, h in enumerate(heads)}
    shown = [*arms.items(), (("best", 1), _BEST)]
    for index, ((arm, ratio), look) in enumerate(shown):
        own = select(rows, arm=arm, ratio=ratio)
        if arm == "best":
            own = select(records(data, "yardsticks"), trainer="best")
        own = [row for row in own if row["measured_total_key_dim"] is not None and row["num_heads"] in place]
        shift = 0.1 * (index - (len(shown) - 1) / 2)
        style.interval_bars(
            axes,
            [place[row["num_heads"]] + shift for row in own],
            [row["measured_total_key_dim"] for row in own],
            [row["ci_low"] for row in own],
            [row["ci_high"] for row in own],
            look,
        )
    for h in heads:
        predicted = select(rows, num_heads=h)[0]["partition_total_key_dim"]
        if predicted is not None:
            axes.plot([place[h] - 0.4, place[h] + 0.4], [predicted] * 2, **style.PREDICTION)
    axes.set_xticks(range(len(heads)), [str(h) for h in heads])
    axes.set_xlim(-0.55, len(heads) - 0.45)
    found = [row["measured_total_key_dim"] for row in rows if row["measured_total_key_dim"] is not None]
    axes.set_ylim(0.6 * min(found), None)
    axes.set_xlabel("heads in the end h")
    axes.set_ylabel(r"total key dimension $D_K = h\,d_k$ needed")
    handles = [style.handle(look, linestyle="none") for look in arms.values()]
    handles += [
        style.handle(_BEST, linestyle="none"),
        style.line_handle("prediction: fixed partition", style.PREDICTION),
    ]
    style.legend_below(figure, handles, 3)
    caption = (
        f"Final budget at which half of the permutations ({_size(rows)}; {_seeds(data)}) are recovered, F1 at the best "
        "threshold of at least 0.99, with 95% intervals. All arms end with h heads of the same d_k. *Cut*: the "
        "heads whose ablation, computed anew after each removal, costs least go; *healed*: half of the steps before "
        "the cut, half after it; *equal compute*: the part before it is shortened until head-steps equal those of the "
        "direct run. A missing marker: not reached at the budgets tried; a bar down to "
        "the edge: nothing tried was too little. *Best trainer*: from `capacity`, the lowest "
        "of training head by head and joint training. Dashes: prediction for a fixed even partition of the edges."
    )
    return figure, caption


def recovery(data: Mapping[str, Any]) -> Drawn:
    """Share of recovered problems against the budget, a panel for each head count."""
    rows = [row for row in records(data, "arms") if row["choice"] in (None, "recomputed")]
    heads = sorted({row["num_heads"] for row in rows})
    if not rows:
        return None
    figure, grid = style.grid(1, len(heads), style.DOUBLE_WIDTH, 2.8, sharey=True)
    arms = {key: look for key, look in ARMS.items() if select(rows, arm=key[0], ratio=key[1])}
    for axes, h in zip(grid[0], heads, strict=True):
        for index, ((arm, ratio), look) in enumerate(arms.items()):
            own = sorted(
                select(rows, num_heads=h, arm=arm, ratio=ratio), key=lambda row: row["total_key_dim"]
            )
            shift = 0.08 * h * (index - (len(arms) - 1) / 2) / 2
            ends = [wilson(row["recovered"], row["seeds"]) for row in own]
            style.interval_bars(
                axes,
                [row["total_key_dim"] + shift for row in own],
                [row["recovered"] / row["seeds"] for row in own],
                [low for low, _ in ends],
                [high for _, high in ends],
                look,
                linestyle="-",
                linewidth=0.7,
                elinewidth=0.4,
                capsize=0,
                markersize=4,
            )
        axes.axhline(0.5, **style.REFERENCE)
        axes.set_title(f"h = {h}")
        axes.set_xlabel(r"budget $D_K = h\,d_k$")
        axes.set_xticks(sorted({row["total_key_dim"] for row in select(rows, num_heads=h)}))
        axes.set_ylim(*style.SHARE_LIMITS)
    grid[0, 0].set_ylabel("share of problems recovered")
    style.legend_below(figure, [style.handle(look) for look in arms.values()], 3)
    caption = (
        f"Share of problems recovered ({_size(rows)}; {_seeds(data)}) against the budget in the end, with Wilson's 95% "
        "intervals; markers are moved sideways so as not to cover each other."
    )
    return figure, caption


def cut(data: Mapping[str, Any]) -> Drawn:
    """F1 right after the cut against the share of edges whose winner was kept; and by choice."""
    points = [p for p in records(data, "points") if p["arm"] == "pruned" and p["cut_f1"] is not None]
    if not points:
        return None
    ratios = sorted({p["trained_heads"] // p["num_heads"] for p in points})
    figure, grid = style.grid(1, len(ratios), style.DOUBLE_WIDTH * 0.8, 2.7, sharey=True, sharex=True)
    choices = {name: look for name, look in _CHOICES.items() if select(points, choice=name)}
    share = np.linspace(0, 1, 101)
    for axes, ratio in zip(grid[0], ratios, strict=True):
        axes.plot(share, 2 * share / (1 + share), **style.PREDICTION)
        for name, look in choices.items():
            own = [p for p in points if p["choice"] == name and p["trained_heads"] == ratio * p["num_heads"]]
            axes.plot(
                [sum(p["won"]) / p["num_items"] for p in own],
                [p["cut_f1"] for p in own],
                look.marker,
                color=look.color,
                markerfacecolor=look.color if look.filled else "none",
                markersize=3,
                markeredgewidth=0.7,
            )
        axes.set_title(f"H = {ratio}h cut to h")
        axes.set_xlabel("share of edges won by the kept heads")
        axes.set_xlim(*style.SHARE_LIMITS)
        axes.set_ylim(*style.SHARE_LIMITS)
    grid[0, 0].set_ylabel("F1 after the cut")
    handles = [style.handle(look, linestyle="none") for look in choices.values()]
    handles.append(style.line_handle(r"expected: $2s/(1+s)$", style.PREDICTION))
    style.legend_below(figure, handles, 3)
    caption = (
        f"F1 (best threshold) of channels of H heads cut to h, without healing: one marker a run ({_size(points)}). If "
        "every edge has one owner and no other head holds it, the F1 is that of the edges whose owner was kept (line; "
        "written down before the runs). Above the line: edges that a kept head also holds."
    )
    return figure, caption


def dynamics(data: Mapping[str, Any]) -> Drawn:
    """Score kept against heads removed: a line for each checkpoint, a row for each task."""
    rows = records(data, "curves")
    tasks = [task for task in _TASKS if select(rows, task=task)]
    if not tasks:
        return None
    figure, grid = style.grid(len(tasks), 2, style.DOUBLE_WIDTH * 0.85, 0.7 + 2.1 * len(tasks), sharey=True)
    looks: dict[float, Look] = {}
    for line, task in zip(grid, tasks, strict=True):
        orders = [order for order in _ORDERS if select(rows, task=task, order=order)]
        for axes, order in zip(line, orders, strict=True):
            own = sorted(select(rows, task=task, order=order), key=lambda row: row["steps"])
            for index, row in enumerate(own):
                look = checkpoint_look(index, len(own), row["fraction_trained"])
                looks.setdefault(row["fraction_trained"], look)
                removed = [100 * value for value in row["fraction_pruned"]]
                axes.plot(
                    removed, row["kept"], color=look.color, marker=look.marker, markersize=3, linewidth=0.9
                )
                if index == len(own) - 1:
                    axes.fill_between(
                        removed, row["kept_low"], row["kept_high"], color=look.color, alpha=0.18, linewidth=0
                    )
            axes.plot([0, 100], [1, 0], **style.REFERENCE)
            axes.set_title(f"{_TASKS[task]}; removed {_ORDERS[order]}", fontsize=7.5)
            axes.set_xlabel("heads removed (%)")
            axes.set_ylim(-0.05, 1.12)
        line[0].set_ylabel("score kept")
    style.legend_below(figure, [style.handle(looks[t]) for t in sorted(looks)], 4)
    sizes = "; ".join(_watched(rows, task) for task in tasks)
    caption = (
        f"Share of the score at that time that is left without some heads ({sizes}), mean over seeds, a line for each "
        "checkpoint (shares of all steps; in the presets Michel et al.'s epochs 1, 2, 3, 5, 10, 20, 30, 40 of 40); "
        "band: quartiles over seeds at the last one. Scores below 0 count as 0, and "
        "models without a positive score are left out. Thin grey: in proportion to the heads "
        "left. Nothing is trained after the removal."
    )
    return figure, caption


def _size(rows: Sequence[Record]) -> str:
    return f"m = {rows[0]['num_items']}, d = {rows[0]['d_model']}"


def _seeds(data: Mapping[str, Any]) -> str:
    return seed_range(row["seeds"] for row in records(data, "arms"))


def _watched(rows: Sequence[Record], task: str) -> str:
    own = select(rows, task=task)
    return f"{task}: {own[0]['num_heads']} heads, {seed_range(row['seeds'] for row in own)}"


FIGURES = {
    "budgets": budgets,
    "recovery": recovery,
    "cut": cut,
    "dynamics": dynamics,
}
"""What draws each figure, by name."""
