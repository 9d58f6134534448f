"""Figures of the `tries` experiment, drawn from what a complete run wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from experiments import style
from experiments.drawing import Drawn
from experiments.reading import Record, records, seed_range, select, wilson
from experiments.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, Look
from mha_jax.analysis import num_pruned

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
_REMOVED = {
    0.125: Look("an eighth", SKY, "v"),
    0.25: Look("a quarter", BLUE, "o"),
    0.375: Look("three eighths", GREEN, "D", filled=False),
    0.5: Look("half", ORANGE, "^", filled=False),
    0.75: Look("three quarters", VERMILLION, "s"),
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
    """Share of recovered problems at each budget, a panel for each head count."""
    rows = [row for row in records(data, "arms") if row["choice"] in (None, "recomputed")]
    heads = sorted({row["num_heads"] for row in rows})
    if not rows:
        return None
    tried = {h: sorted({row["total_key_dim"] for row in select(rows, num_heads=h)}) for h in heads}
    widths = {"width_ratios": [len(tried[h]) for h in heads]}
    figure, grid = style.grid(1, len(heads), style.DOUBLE_WIDTH, 2.8, sharey=True, gridspec_kw=widths)
    arms = {key: look for key, look in ARMS.items() if select(rows, arm=key[0], ratio=key[1])}
    for axes, h in zip(grid[0], heads, strict=True):
        for index, ((arm, ratio), look) in enumerate(arms.items()):
            own = select(rows, num_heads=h, arm=arm, ratio=ratio)
            ends = [wilson(row["recovered"], row["seeds"]) for row in own]
            style.interval_bars(
                axes,
                [tried[h].index(row["total_key_dim"]) + _beside(index, len(arms)) for row in own],
                [row["recovered"] / row["seeds"] for row in own],
                [low for low, _ in ends],
                [high for _, high in ends],
                look,
                capsize=0,
                markersize=4,
            )
        axes.axhline(0.5, **style.REFERENCE)
        axes.set_title(f"h = {h}")
        axes.set_xlabel(r"budget $D_K = h\,d_k$")
        _places(axes, [str(budget) for budget in tried[h]])
        axes.set_ylim(*style.SHARE_LIMITS)
    grid[0, 0].set_ylabel("share of problems recovered")
    style.legend_below(figure, [style.handle(look, linestyle="none") for look in arms.values()], 3)
    caption = (
        f"Share of problems recovered ({_size(rows)}; {_seeds(data)}) at each budget in the end, with Wilson's 95% "
        "intervals over the seeds of one budget (arms run on the same problems: intervals that overlap are no test). "
        "What was tried stands side by side, all markers of a strip at the budget under it."
    )
    return figure, caption


def _beside(index: int, count: int) -> float:
    """Where a series stands in the strip of its place."""
    return 0.8 * ((index + 0.5) / count - 0.5)


def _places(axes: Axes, names: Sequence[str]) -> None:
    """An axis of places, a strip each, every other one shaded."""
    axes.set_xticks(range(len(names)), list(names))
    axes.set_xlim(-0.5, len(names) - 0.5)
    for place in range(1, len(names), 2):
        axes.axvspan(place - 0.5, place + 0.5, color=GREY, alpha=0.12, linewidth=0, zorder=0)


def cut(data: Mapping[str, Any]) -> Drawn:
    """F1 right after the cut against the share of edges whose winner was kept: a panel for each choice and ratio."""
    points = [p for p in records(data, "points") if p["arm"] == "pruned" and p["cut_f1"] is not None]
    if not points:
        return None
    ratios = sorted({p["trained_heads"] // p["num_heads"] for p in points})
    choices = {name: look for name, look in _CHOICES.items() if select(points, choice=name)}
    height = 0.9 + 1.5 * len(ratios)
    figure, grid = style.grid(len(ratios), len(choices), style.DOUBLE_WIDTH, height, sharey=True, sharex=True)
    share = np.linspace(0, 1, 101)
    for line, ratio in zip(grid, ratios, strict=True):
        for axes, (name, look) in zip(line, choices.items(), strict=True):
            axes.plot(share, 2 * share / (1 + share), **style.PREDICTION)
            own = [p for p in points if p["choice"] == name and p["trained_heads"] == ratio * p["num_heads"]]
            axes.plot(
                [sum(p["won"]) / p["num_items"] for p in own],
                [p["cut_f1"] for p in own],
                look.marker,
                color=look.color,
                markerfacecolor="none",
                markersize=3,
                markeredgewidth=0.7,
            )
            axes.set_xlim(*style.SHARE_LIMITS)
            axes.set_ylim(*style.SHARE_LIMITS)
        line[0].set_ylabel(f"F1 after the cut, H = {ratio}h")
    for axes, look in zip(grid[0], choices.values(), strict=True):
        axes.set_title(f"kept: {look.label}", fontsize=7.5)
    for axes in grid[-1]:
        axes.set_xlabel("share of edges won", fontsize=7.5)
    style.legend_below(figure, [style.line_handle(r"expected: $2s/(1+s)$", style.PREDICTION)], 1)
    caption = (
        f"F1 (best threshold) of channels of H heads cut to h, without healing: one marker a run ({_size(points)}), by "
        "how the kept heads are chosen, against the share s of all edges that these had won. If "
        "every edge has one owner and no other head holds it, the F1 is that of the edges whose owner was kept (line; "
        "written down before the runs). Above the line: edges that a kept head also holds."
    )
    return figure, caption


def dynamics(data: Mapping[str, Any]) -> Drawn:
    """Score kept against the time of training: a line for each number of heads removed, a row for each task."""
    rows = records(data, "curves")
    tasks = [task for task in _TASKS if select(rows, task=task)]
    if not tasks:
        return None
    figure, grid = style.grid(len(tasks), 2, style.DOUBLE_WIDTH, 0.8 + 2.0 * len(tasks), sharey=True)
    counts = {task: [_count(rows, task, share) for share in _REMOVED] for task in tasks}
    for line, task in zip(grid, tasks, strict=True):
        orders = [order for order in _ORDERS if select(rows, task=task, order=order)]
        for axes, order in zip(line, orders, strict=True):
            own = sorted(select(rows, task=task, order=order), key=lambda row: row["steps"])
            axes.plot(range(len(own)), [row["score"] for row in own], **style.REFERENCE)
            for index, (count, look) in enumerate(zip(counts[task], _REMOVED.values(), strict=True)):
                style.interval_bars(
                    axes,
                    [place + _beside(index, len(_REMOVED)) for place in range(len(own))],
                    [row["kept_median"][count] for row in own],
                    [row["kept_low"][count] for row in own],
                    [row["kept_high"][count] for row in own],
                    look,
                    capsize=0,
                    markersize=3.5,
                )
            _places(axes, [f"{100 * row['fraction_trained']:g}" for row in own])
            axes.set_title(f"{_TASKS[task]}; removed {_ORDERS[order]}", fontsize=7.5)
            axes.set_xlabel("steps taken (% of all)")
            axes.set_ylim(-0.05, 1.15)
        line[0].set_ylabel("score kept")
    labels = [
        " or ".join(f"{counts[task][index]} of {select(rows, task=task)[0]['num_heads']}" for task in tasks)
        for index in range(len(_REMOVED))
    ]
    handles = [
        style.handle(look, f"without {label}", linestyle="none")
        for look, label in zip(_REMOVED.values(), labels, strict=True)
    ]
    handles.append(style.line_handle("score of all heads", style.REFERENCE))
    style.legend_below(figure, handles, 3)
    sizes = "; ".join(_watched(rows, task) for task in tasks)
    caption = (
        f"Share of the score at that time that is left without some heads ({sizes}), against the time of training (in "
        "the presets Michel et al.'s epochs 1, 2, 3, 5, 10, 20, 30, 40 of 40; all markers of a strip at the time under "
        "it): medians and quartiles over seeds (the table has means). Scores below 0 count as 0; models without a "
        f"positive score have no share to keep ({_without(rows)}). Thin grey: mean score of the whole model, over all "
        "seeds. Nothing is trained after the removal."
    )
    return figure, caption


def _count(rows: Sequence[Record], task: str, share: float) -> int:
    """How many heads of a task are a share of them, rounded up."""
    return num_pruned(share, select(rows, task=task)[0]["num_heads"])


def _size(rows: Sequence[Record]) -> str:
    return f"m = {rows[0]['num_items']}, d = {rows[0]['d_model']}"


def _seeds(data: Mapping[str, Any]) -> str:
    return seed_range(row["seeds"] for row in records(data, "arms"))


def _without(rows: Sequence[Record]) -> str:
    """Where seeds have no positive score: ``retrieval at 7.5%: 1 of 8 seeds``."""
    found = {
        f"{row['task']} at {100 * row['fraction_trained']:g}%: "
        f"{row['seeds'] - row['kept_seeds']} of {row['seeds']} seeds"
        for row in rows
        if row["kept_seeds"] < row["seeds"]
    }
    return "; ".join(sorted(found)) or "none here"


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
