"""Thresholds: the measured budget against the number of heads, and against its prediction at every size."""

import math
from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from experiments import style
from experiments.capacity.figures_marks import LINES, arrow_up, handles_of, missed_handle
from experiments.capacity.figures_records import (
    PARAMETER_COUNT,
    PARTITION,
    SUCCESS_F1,
    TRAINER_WORDS,
    Case,
    best_of,
    budget_floor,
    check_predictions,
    ends_of_lines,
    open_prediction,
    prediction_line,
    select,
    sweep_cases,
)
from experiments.drawing import Drawn
from experiments.reading import Record, listed, records, seed_range

_SHOWN = ("best", "joint", "plain")
_EXACT = style.Look("smallest exact channel", style.GREEN, "*")


def threshold(data: Mapping[str, Any]) -> Drawn:
    """Budget against the number of heads, and its caption; None where no threshold was measured."""
    transitions = [r for r in records(data, "transitions") if r["status"] != "not_run"]
    cases = sweep_cases(transitions)
    if not cases:
        return None
    check_predictions(transitions)
    alone = len(cases) == 1
    num_columns = 1 if alone else min(len(cases), 3)
    num_rows = math.ceil(len(cases) / num_columns)
    width = style.COLUMN_WIDTH if alone else style.DOUBLE_WIDTH
    figure, axes = style.grid(num_rows, num_columns, width, (1.45 if alone else 1.1) + 2.2 * num_rows)
    drawn: set[str] = set()  # what some panel shows
    for index, panel in enumerate(axes.flat):
        if index >= len(cases):
            panel.set_axis_off()
            continue
        here = select(transitions, cases[index])
        drawn |= _lines(panel, cases[index], here)
        rows_of = {"best": best_of(here)} | {n: select(here, trainer=n) for n in ("joint", "plain")}
        shown = [name for name, rows in rows_of.items() if rows]
        shift = (1.4 * max(*(r["num_heads"] for r in here), 2)) ** 0.016
        for position, name in enumerate(shown):
            rows, by = rows_of[name], shift ** (1.3 * (position - (len(shown) - 1) / 2))
            drawn.add(name)
            drawn |= {"missed"} if _measured(panel, rows, style.TRAINERS[name], by) else set()
        exact = {r["num_heads"]: r["smallest_exact"] for r in here if r.get("smallest_exact") is not None}
        for record in here:  # over trainers
            if record.get("smallest_exact") is not None:
                h = record["num_heads"]
                exact[h] = min(exact[h], record["smallest_exact"])
        if exact:
            drawn.add("exact")
            star = {"color": _EXACT.color, "markersize": 6.5, "zorder": 4}
            panel.plot(list(exact), list(exact.values()), _EXACT.marker, **star)
        if not alone:
            panel.set_title(cases[index].title)
        if index % num_columns == 0:
            panel.set_ylabel("total key dimension $D_K = h\\,d_k$")
        if index + num_columns >= len(cases):
            panel.set_xlabel("number of heads $h$")
    handles: list[Artist] = [style.handle(style.TRAINERS[n]) for n in _SHOWN if n in drawn]
    if "exact" in drawn:
        handles.append(style.handle(_EXACT, linestyle="none", markersize=6.5))
    handles += handles_of(drawn)
    handles += [missed_handle()] if "missed" in drawn else []
    style.legend_below(figure, handles, 2 if alone else 3)
    seeds = seed_range(
        r["num_seeds"] for case in cases for r in select(transitions, case) if r.get("num_seeds")
    )
    return figure, _caption(cases, drawn, seeds)


def _caption(cases: list[Case], drawn: set[str], seeds: str) -> str:
    """What a reader sees, and no more."""
    trainers = listed(TRAINER_WORDS[name] for name in _SHOWN if name in drawn)
    text = (
        f"The budget a graph needs against the number of heads: {'; '.join(c.description for c in cases)}. "
        f"*Measured*: the $D_K$ at which half of the seeds reach a best-threshold F1 of {SUCCESS_F1:g}, "
        f"with 95% intervals ({seeds}), for {trainers}"
    )
    if "missed" in drawn:
        text += "; arrows where half is not reached up to $d_k = d$, beyond which a wider head is no stronger"
    if "exact" in drawn:
        text += "; stars: the smallest $D_K$ at which some seed's channel recovered every pair, checked in float64"
    text += "."
    if PARTITION in drawn:
        text += (
            " *Prediction* (dashed): a fixed even partition of the edges, by width, an upper estimate for "
            "heads that choose their edges."
        )
    if PARAMETER_COUNT in drawn:
        text += " *Empirical law* (dotted): plain joint descent's parameter count."
    text += ends_of_lines({PARTITION, PARAMETER_COUNT} & drawn)
    if "theorems" in drawn:
        text += (
            " *Theorems* (hatched): no channel recovers every graph of the family there (counting, Warren) "
            "or, at $d_k = 1$, any (two edges a head)."
        )
    return text


def _limits(here: list[Record]) -> tuple[float, float]:
    """Limits of the budget axis that hold every mark."""
    marks = [r["num_heads"] * r["d_model"] for r in here if r["status"] == "not_reached"]
    for name in ("measured_total_key_dim", "ci_low", "ci_high", "smallest_exact"):
        marks += [r[name] for r in here if r.get(name)]  # without 0, which a logarithmic axis has not
    predictions = [open_prediction(r, name) for r in here for name in (PARTITION, PARAMETER_COUNT)]
    marks += [value for value in predictions if value is not None]
    marks = marks or [float(max(r["num_heads"] for r in here))]
    return min(marks) / 2, max(marks) * 1.45


def _lines(axes: Axes, case: Case, here: list[Record]) -> set[str]:
    """Axes, predictions and the theorems' area; says which of them can be seen."""
    limits = _limits(here)
    measured = sorted({r["num_heads"] for r in here})
    first, last = measured[0], measured[-1]
    if first == last:
        first, last = 1, max(last, 2)
    heads = np.arange(first, last + 1)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlim(first * 2**-0.3, last * 2**0.3)
    axes.set_ylim(*limits)
    style.plain_log_ticks(axes.xaxis, measured)
    style.plain_log_ticks(axes.yaxis, style.powers_of_two(*limits))
    counting = max((r["counting_bound"] for r in here if r.get("counting_bound") is not None), default=None)
    floor = np.array([budget_floor(case, int(h), counting) for h in heads])
    top = np.minimum(floor, 4 * limits[1])  # no budget at all: hatched to the top
    ends = np.concatenate([[0.5 * first], heads, [2.0 * last]])
    top = np.concatenate([top[:1] / 2, top, top[-1:] * 2])
    axes.fill_between(ends, limits[0] / 4, top, **style.IMPOSSIBLE)
    drawn = {"theorems"} if floor.max() > limits[0] else set()
    for name, _, look in LINES:
        values = prediction_line(name, case, heads)
        values = np.where(values >= floor, values, np.nan)  # it does not know the theorems
        if np.isfinite(values).sum() > 1:
            axes.plot(heads, values, zorder=2, **look)
            drawn.add(name)
    return drawn


def _measured(axes: Axes, rows: list[Record], look: style.Look, shift: float) -> bool:
    """Draw one trainer's thresholds; says whether some were not reached."""
    rows = sorted(rows, key=lambda r: r["num_heads"])
    reached = [r for r in rows if r["status"] == "reached" and r["measured_total_key_dim"] is not None]
    if reached:
        style.interval_bars(
            axes,
            [r["num_heads"] * shift for r in reached],
            [r["measured_total_key_dim"] for r in reached],
            [r["ci_low"] for r in reached],
            [r["ci_high"] for r in reached],
            look,
            linestyle="-",
        )
    missed = [r for r in rows if r["status"] == "not_reached"]
    for record in missed:
        x, y = record["num_heads"] * shift**2, record["num_heads"] * record["d_model"]
        axes.annotate("", xy=(x, y * 1.35), xytext=(x, y), arrowprops=arrow_up(look))
        face = look.color if look.filled else "white"
        axes.plot(x, y, look.marker, color=look.color, markerfacecolor=face, markersize=4, zorder=3)
    return bool(missed)


_CRITERIA = (
    ("F1 ≥ 0.99 (best threshold)", "measured_total_key_dim", "ci_low", "ci_high"),
    ("every pair (exact)", "exact_total_key_dim", "exact_ci_low", "exact_ci_high"),
    ("F1 ≥ 0.99 (trained threshold)", "trained_total_key_dim", "trained_ci_low", "trained_ci_high"),
)
_COMPARED = (
    ("best", PARTITION, "best trainer /\nfixed partition"),
    ("plain", PARAMETER_COUNT, "plain descent /\nparameter count"),
)


def scaling(data: Mapping[str, Any]) -> Drawn:
    """Measured over predicted budgets, and its caption; None where no threshold has a finite prediction beside it."""
    transitions = records(data, "transitions")
    cases = sweep_cases(r for r in transitions if r["status"] != "not_run")
    series: dict[tuple[int, int, Case], list[tuple[float, float, float | None, float | None]]] = {}
    for row, (trainer, prediction, _) in enumerate(_COMPARED):
        for column, (_, value, low, high) in enumerate(_CRITERIA):
            for case in cases:
                here = select(transitions, case)
                rows = best_of(here) if trainer == "best" else select(here, trainer=trainer)
                ratios = [
                    (r["num_heads"], r[value] / by, *_ratios(r, low, high, by))
                    for r in sorted(rows, key=lambda r: r["num_heads"])
                    if r.get(value) is not None and (by := open_prediction(r, prediction)) is not None
                ]
                if ratios:
                    series[row, column, case] = ratios
    if not series:
        return None
    used_rows = sorted({row for row, _, _ in series})
    height = 0.95 + 1.35 * len(used_rows)
    figure, axes = style.grid(
        len(used_rows), len(_CRITERIA), style.DOUBLE_WIDTH, height, sharex=True, sharey="row"
    )
    shown = [case for case in cases if any(key[2] == case for key in series)]
    looks = {case: _size_look(i, len(shown), case) for i, case in enumerate(shown)}
    heads = sorted({h for ratios in series.values() for h, *_ in ratios})
    for position, row in enumerate(used_rows):
        for column, (title, *_) in enumerate(_CRITERIA):
            panel = axes[position, column]
            panel.set_xscale("log", base=2)
            panel.set_xlim(heads[0] / 1.3, heads[-1] * 1.3)
            style.plain_log_ticks(panel.xaxis, heads)
            panel.axhline(1, zorder=1, **(style.PARTITION, style.PARAMETER_COUNT)[row])
            if position == 0:
                panel.set_title(title)
            if position == len(used_rows) - 1:
                panel.set_xlabel("number of heads $h$")
            for i, case in enumerate(shown):
                if (row, column, case) in series:
                    h, ratio, low, high = zip(*series[row, column, case], strict=True)
                    shift = 2 ** (0.05 * (i - (len(shown) - 1) / 2))
                    style.interval_bars(
                        panel,
                        [x * shift for x in h],
                        ratio,
                        low,
                        high,
                        looks[case],
                        linestyle="-",
                        linewidth=0.8,
                    )
        axes[position, 0].set_ylabel(_COMPARED[row][2])
        top = max(
            high or ratio for key, ratios in series.items() if key[0] == row for _, ratio, _, high in ratios
        )
        axes[position, 0].set_ylim(0, max(1.25, 1.08 * top))
    handles = [style.handle(look, linewidth=0.8) for look in looks.values()]
    equal = (("measured = prediction", style.PARTITION), ("measured = empirical law", style.PARAMETER_COUNT))
    handles += [style.line_handle(*equal[row]) for row in used_rows]
    style.legend_below(figure, handles, min(len(handles), 4))
    seeds = seed_range(
        r["num_seeds"] for case in shown for r in select(transitions, case) if r.get("num_seeds")
    )
    compared = (
        "the best trainer over the fixed-partition *prediction* (an upper estimate, so that below 1 is "
        "possible)",
        "plain joint descent over the *empirical law* of the parameter count",
    )
    places = ("Above, ", "below, ") if len(used_rows) > 1 else ("Shown is ",)
    parts = "; ".join(place + compared[row] for place, row in zip(places, used_rows, strict=True))
    divided = " or ".join(("prediction", "law")[row] for row in used_rows)
    caption = (
        f"Measured over predicted budget: {'; '.join(c.description for c in shown)}; {seeds}. "
        f"Columns are three criteria for a success: F1 of {SUCCESS_F1:g} at the best threshold (the one "
        f"used elsewhere), every pair right, F1 of {SUCCESS_F1:g} at the threshold that was trained. "
        f"*Measured*: 50% points with 95% intervals. {parts}. Missing are head counts at which the {divided} "
        "is infinite or excluded by the theorems, and criteria that half of the seeds met at no budget that was "
        "run: budgets were searched for the first criterion alone, so that the other two may be met above "
        "them."
    )
    return figure, caption


def _ratios(record: Record, low: str, high: str, by: float) -> tuple[float | None, float | None]:
    ends = record.get(low), record.get(high)
    first, last = (None if end is None else end / by for end in ends)
    return first, last


def _size_look(index: int, count: int, case: Case) -> style.Look:
    """Sizes in the order of d run from dark to light, so that a drift with size shows."""
    shade = matplotlib.colormaps["viridis"](0.85 * index / max(1, count - 1))
    return style.Look(
        f"$m$ = {case.num_items}, $d$ = {case.d_model}",
        to_hex(shade),
        style.MARKERS[index % len(style.MARKERS)],
        filled=index % 2 == 0,
    )
