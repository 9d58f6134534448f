"""Recovery against the budget at fixed numbers of heads, and against the number of heads at fixed budgets."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from experiments import style
from experiments.capacity.figures_marks import LINES, handles_of
from experiments.capacity.figures_records import (
    MATCHINGS,
    PARAMETER_COUNT,
    PARTITION,
    SUCCESS_F1,
    TRAINER_WORDS,
    Case,
    Rate,
    budget_floor,
    case_of,
    check_predictions,
    ends_of_lines,
    open_prediction,
    rates,
    select,
    sweep_cases,
    trainers_of,
)
from experiments.drawing import Drawn
from experiments.reading import Record, listed, records, seed_range
from theory.bounds import one_dimensional_f1_cap


def _draw_rates(axes: Axes, values: Mapping[int, Rate], look: style.Look, shift: float) -> None:
    x = [value * shift for value in values]
    shares = [rate.share for rate in values.values()]
    low, high = zip(*(rate.interval for rate in values.values()), strict=True)
    style.interval_bars(axes, x, shares, low, high, look, linestyle="-")


def _failures(groups: list[Mapping[int, Rate]]) -> str:
    failed = sum(rate.failed for group in groups for rate in group.values())
    return f" Failed runs ({failed}) are left out." if failed else ""


def _seeds(groups: list[Mapping[int, Rate]]) -> str:
    return seed_range(rate.trials for group in groups for rate in group.values())


def recovery(data: Mapping[str, Any]) -> Drawn:
    """Recovery against the budget, and its caption; None where no threshold was measured."""
    transitions = [r for r in records(data, "transitions") if r["status"] != "not_run"]
    points = records(data, "points")
    panels: list[list[tuple[Case, int]]] = []
    for case in sweep_cases(transitions):
        heads = sorted(
            {
                r["num_heads"]
                for r in select(transitions, case)
                if select(points, case, num_heads=r["num_heads"])
            }
        )
        if heads:
            panels.append([(case, h) for h in heads])
    if not panels:
        return None
    check_predictions(transitions)

    alone = len(panels) == 1
    longest = max(len(row) for row in panels)
    num_columns = min(longest, 4) if alone else min(longest, 8)
    rows = [row[i : i + num_columns] for row in panels for i in range(0, len(row), num_columns)]
    width = style.COLUMN_WIDTH if num_columns <= 2 else style.DOUBLE_WIDTH
    num_ticks = 6 if width / num_columns > 1.5 else 3
    figure, axes = style.grid(len(rows), num_columns, width, 0.75 + 1.25 * len(rows), sharey=True)
    drawn: list[Mapping[int, Rate]] = []
    lines: set[str] = set()  # what some panel shows
    trainers: list[str] = []
    for index, (row, row_axes) in enumerate(zip(rows, axes, strict=True)):
        case = row[0][0]
        swept = {h for panel in panels for owner, h in panel if owner == case}
        budgets = [p["total_key_dim"] for p in select(points, case) if p["num_heads"] in swept]
        span = max(budgets) / min(budgets) * 1.2**2
        for panel in row_axes[len(row) :]:
            panel.set_axis_off()
        for column, ((_, heads), panel) in enumerate(zip(row, row_axes, strict=False)):
            here = select(transitions, case, num_heads=heads)
            lines |= _limits_and_lines(panel, case, here, budgets, num_ticks)
            here_trainers = trainers_of(here)
            for position, trainer in enumerate(here_trainers):
                shift = span ** (0.012 * (position - (len(here_trainers) - 1) / 2))
                values = rates(select(points, case, num_heads=heads, trainer=trainer), "total_key_dim")
                if values:
                    _draw_rates(panel, values, style.TRAINERS[trainer], shift)
                    drawn.append(values)
                    trainers += [trainer] if trainer not in trainers else []
            panel.set_title(f"{heads} head" + ("s" if heads > 1 else ""))
            if index == len(rows) - 1 or column >= len(rows[index + 1]):
                panel.set_xlabel("total key dimension $D_K$" if num_columns <= 4 else "$D_K$")
        row_axes[0].set_ylabel("graphs recovered" if alone else f"{case.title}\ngraphs recovered")
    handles: list[Artist] = [style.handle(style.TRAINERS[name]) for name in trainers]
    handles += handles_of(lines)
    style.legend_below(figure, handles, 3 if width == style.DOUBLE_WIDTH else 2)
    names = "; ".join(row[0][0].description for row in panels)
    caption = (
        f"Recovery against the budget, one panel for each number of heads: {names}. *Measured*: share of "
        f"seeds whose channel reaches a best-threshold F1 of {SUCCESS_F1:g}, with Wilson's 95% intervals, "
        f"{_seeds(drawn)} a point"
    )
    caption += f", for {listed(TRAINER_WORDS.get(name, name) for name in trainers)}." if trainers else "."
    if PARTITION in lines:
        caption += (
            " *Prediction* (dashed): the budget a fixed even partition of the edges needs, by width, an upper "
            "estimate for heads that choose."
        )
    if PARAMETER_COUNT in lines:
        caption += " *Empirical law* (dotted): plain joint descent's parameter count."
    caption += ends_of_lines({PARTITION, PARAMETER_COUNT} & lines)
    if "theorems" in lines:
        caption += (
            " *Theorems* (hatched): budgets too small for some graph of the family (counting, Warren), or, at "
            "one dimension a head, for any."
        )
    return figure, caption + _failures(drawn)


def _limits_and_lines(
    axes: Axes, case: Case, here: list[Record], budgets: list[int], num_ticks: int
) -> set[str]:
    """Axes, predictions and the theorems' area; says which of them can be seen."""
    limits = min(budgets) / 1.2, max(budgets) * 1.2
    axes.set_xscale("log", base=2)
    axes.set_xlim(*limits)
    axes.set_ylim(*style.SHARE_LIMITS)
    ticks = style.powers_of_two(*limits)
    if len(ticks) < 2:
        ticks = sorted(set(budgets))
    style.plain_log_ticks(axes.xaxis, ticks[:: max(1, math.ceil(len(ticks) / num_ticks))])
    axes.set_yticks([0, 0.5, 1], ["0", "½", "1"])
    axes.axhline(0.5, **style.REFERENCE)
    record = here[0]
    floor = budget_floor(case, record["num_heads"], record.get("counting_bound"))
    drawn = set()
    if floor > limits[0]:
        axes.axvspan(limits[0] / 2, min(floor, limits[1] * 2), **style.IMPOSSIBLE)
        drawn.add("theorems")
    for name, _, line in LINES:
        value = open_prediction(record, name)
        if value is not None and limits[0] < value < limits[1]:
            axes.axvline(value, zorder=2, **line)
            drawn.add(name)
    return drawn


def head_sweep(data: Mapping[str, Any]) -> Drawn:
    """Recovery against the number of heads, and its caption; None without head sweeps."""
    points = records(data, "points")
    sweeps: dict[tuple[Case, int], list[Record]] = {}
    for record in records(data, "head_sweeps"):
        sweeps.setdefault((case_of(record), record["total_key_dim"]), []).append(record)
    keys = sorted(sweeps, key=lambda key: (key[0].d_model, key))
    keys = [(case, budget) for case, budget in keys if select(points, case, total_key_dim=budget)]
    if not keys:
        return None
    several_cases = len({case for case, _ in keys}) > 1
    num_columns = min(len(keys), 2)
    bands = math.ceil(len(keys) / num_columns)
    width = style.COLUMN_WIDTH if len(keys) == 1 else style.DOUBLE_WIDTH
    figure, axes = style.grid(2 * bands, num_columns, width, 0.8 + (2.9 if bands == 1 else 3.0) * bands)
    panel_width = width / num_columns - 0.5
    drawn: list[Mapping[int, Rate]] = []
    areas: set[str] = set()  # what some panel shows
    not_run = False  # some way to split a budget
    trainers: list[str] = []
    for index in range(num_columns * bands):
        band, column = divmod(index, num_columns)
        top, bottom = axes[2 * band, column], axes[2 * band + 1, column]
        if index >= len(keys):
            top.set_axis_off()
            bottom.set_axis_off()
            continue
        case, budget = keys[index]
        here = select(points, case, total_key_dim=budget)
        groups = {name: rates(select(here, trainer=name), "num_heads") for name in trainers_of(here)}
        groups = {name: values for name, values in groups.items() if values}
        divisors = [h for h in range(1, budget + 1) if budget % h == 0]
        not_run |= not set(divisors) <= {p["num_heads"] for p in here}
        areas |= _window_and_cap(top, bottom, case, divisors, sweeps[case, budget])
        for position, (name, values) in enumerate(groups.items()):
            shift = (1.8 * budget) ** (0.012 * (position - (len(groups) - 1) / 2))
            _draw_rates(top, values, style.TRAINERS[name], shift)
            _draw_scores(bottom, values, style.TRAINERS[name], shift)
            trainers += [name] if name not in trainers else []
        drawn += groups.values()
        top.set_title(f"$D_K$ = {budget}" + (f"   ({case.title})" if several_cases else ""), pad=20)
        _head_ticks(bottom, divisors, panel_width)
        if index + num_columns >= len(keys):
            bottom.set_xlabel("number of heads $h$ (below: head dimension $d_k = D_K / h$)")
        if column == 0:
            top.set_ylabel("share recovered")
            bottom.set_ylabel("best F1")
        else:
            top.tick_params(labelleft=False)
            bottom.tick_params(labelleft=False)
    handles: list[Artist] = [style.handle(style.TRAINERS[name]) for name in trainers]
    if "window" in areas:
        handles.append(style.area_handle("predicted window (fixed partition)", style.WINDOW))
    if "theorem" in areas:
        handles.append(style.area_handle("impossible: $d_k$ = 1 holds 2 edges a head", style.IMPOSSIBLE))
    style.legend_below(figure, handles, 1 if len(keys) == 1 else 2)
    names = "; ".join(dict.fromkeys(case.description for case, _ in keys))
    splits = "Every way to split $D_K$ evenly" + (
        ", of which those without a mark were not run" if not_run else ""
    )
    caption = (
        f"How many heads at a fixed budget: {names}. {splits}. *Measured*: above, "
        f"the share of seeds whose channel reaches a best-threshold F1 of {SUCCESS_F1:g}, with Wilson's 95% "
        "intervals; below, the mean of that F1 with the range from the worst to the best seed; "
        f"{_seeds(drawn)} a point."
    )
    if "window" in areas:
        caption += (
            " *Prediction* (blue): the divisors between the smallest and the largest at which heads with edges "
            "dealt out beforehand recover the graph; heads that choose their edges can do better."
        )
    if "theorem" in areas:
        caption += (
            " *Theorem* (hatched): a head with $d_k = 1$ holds at most two edges of a permutation without a "
            "false one, so that F1 above the hatched area's lower edge is impossible there."
        )
    return figure, caption + _failures(drawn)


def _draw_scores(axes: Axes, values: Mapping[int, Rate], look: style.Look, shift: float) -> None:
    x = [value * shift for value in values]
    means = [float(np.mean(rate.scores)) for rate in values.values()]
    low = [min(rate.scores) for rate in values.values()]
    high = [max(rate.scores) for rate in values.values()]
    style.interval_bars(axes, x, means, low, high, look, linestyle="-")


def _window_and_cap(
    top: Axes, bottom: Axes, case: Case, divisors: list[int], sweep: list[Record]
) -> set[str]:
    """Axes, the predicted window and the cap at one dimension a head; says which of the two can be seen."""
    drawn = set()
    budget = divisors[-1]
    edges = [math.sqrt(a * b) for a, b in itertools.pairwise(divisors)]
    edges = [divisors[0] / 1.35, *edges, divisors[-1] * 1.35]
    for axes in (top, bottom):
        axes.set_xscale("log", base=2)
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(*style.SHARE_LIMITS)
        style.plain_log_ticks(axes.xaxis, divisors)
        fewest, most = sweep[0].get("predicted_min_heads"), sweep[0].get("predicted_max_heads")
        if fewest is not None and most is not None:
            window = edges[divisors.index(fewest)], edges[divisors.index(most) + 1]
            axes.axvspan(*window, **style.WINDOW)
            drawn.add("window")
            if axes is top:
                _band_label(axes, window, "predicted\nwindow")
    top.set_yticks([0, 0.5, 1], ["0", "½", "1"])
    top.axhline(0.5, **style.REFERENCE)
    top.tick_params(labelbottom=False)
    bottom.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "¼", "½", "¾", "1"])
    bottom.axhline(SUCCESS_F1, **style.REFERENCE)
    cap = one_dimensional_f1_cap(budget, case.num_edges) if case.graph in MATCHINGS else 1.0
    if cap < SUCCESS_F1:
        top.axvspan(*edges[-2:], **style.IMPOSSIBLE)
        _band_label(top, edges[-2:], "$d_k$ = 1:\nimpossible")
    if cap < 1:
        drawn.add("theorem")
        bottom.fill_between(edges[-2:], cap, 2, **style.IMPOSSIBLE)
        middle = math.sqrt(edges[-2] * edges[-1])
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
        bottom.text(
            middle, (1.05 + cap) / 2, f"F1 ≤ {cap:.2f}", fontsize=6.5, ha="center", va="center", bbox=box
        )
    return drawn


def _head_ticks(axes: Axes, divisors: list[int], width: float) -> None:
    """A tick at every divisor, named where there is room on an axis of that many inches."""
    low, high = (math.log2(limit) for limit in axes.get_xlim())
    place = {h: width * (math.log2(h) - low) / (high - low) for h in divisors}
    named = [divisors[0]]
    for h in divisors[1:-1]:
        if place[h] - place[named[-1]] > 0.16 and place[divisors[-1]] - place[h] > 0.16:
            named.append(h)
    named.append(divisors[-1])
    axes.set_xticks(divisors, [f"{h}\n{divisors[-1] // h}" if h in named else "" for h in divisors])


def _band_label(axes: Axes, ends: Sequence[float], text: str) -> None:
    """A band's name on top of the panel, where no data is."""
    axes.text(
        math.sqrt(ends[0] * ends[1]),
        1.02,
        text,
        transform=axes.get_xaxis_transform(),
        fontsize=6.5,
        ha="center",
        va="bottom",
        linespacing=1.0,
    )
