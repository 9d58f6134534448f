"""The single head's ceiling, and real embeddings and relations beside random ones."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.ticker import MaxNLocator

from experiments import style
from experiments.capacity.figures_marks import arrow_up, missed_handle
from experiments.capacity.figures_records import (
    PARTITION,
    SUCCESS_F1,
    TRAINER_WORDS,
    best_of,
    case_of,
    check_predictions,
    ends_of_lines,
    open_prediction,
    select,
    sweep_cases,
)
from experiments.drawing import Drawn
from experiments.reading import Record, listed, records, seed_range, wilson
from theory import bounds


def ceiling(data: Mapping[str, Any]) -> Drawn:
    """Recovery by one head against the number of items, and its caption; None without exact solves."""
    points = records(data, "ceiling_points")
    keys = sorted({(p["d_model"], p["embedding"], p["graph"]) for p in points})
    if not keys:
        return None
    measured = {(r["d_model"], r["embedding"], r["graph"]): r for r in records(data, "ceilings")}
    several = len({key[1:] for key in keys}) > 1
    num_columns = min(len(keys), 3)
    num_rows = math.ceil(len(keys) / num_columns)
    width = style.COLUMN_WIDTH if num_columns == 1 else style.DOUBLE_WIDTH
    figure, axes = style.grid(num_rows, num_columns, width, 0.95 + 1.75 * num_rows, sharey=True)
    undecided, seeds = 0, []
    for index, panel in enumerate(axes.flat):
        if index >= len(keys):
            panel.set_axis_off()
            continue
        d_model, embedding, graph = keys[index]
        here = [p for p in points if (p["d_model"], p["embedding"], p["graph"]) == keys[index]]
        counts = _verdicts(here)
        undecided += sum(count[2] for count in counts.values())
        seeds += [sum(count) for count in counts.values()]
        _ceiling_panel(panel, d_model, counts, measured.get(keys[index]))
        arm = f" ({embedding}, {graph})" if several else ""
        panel.set_title(f"$d$ = {d_model}{arm}")
        panel.set_xlabel("number of items $m$")
        if index % num_columns == 0:
            panel.set_ylabel("graphs one head\ncan recover")
    handles = [
        style.handle(style.TRAINERS["convex"], linestyle="none"),
        style.line_handle("predicted share", style.PREDICTION),
        style.line_handle("predicted ceiling $m_c$", _CEILING_LINE),
    ]
    if undecided:
        look = style.Look("undecided", style.GREY, "x")
        handles.append(style.handle(look, linestyle="none"))
    style.legend_below(figure, handles, 2 if num_columns == 1 else len(handles))
    arms = "; ".join(dict.fromkeys(f"{graph} graphs, {embedding} embeddings" for _, embedding, graph in keys))
    covers = ", ".join(
        f"{bounds.cover_max_items(d)} at d = {d}" for d in dict.fromkeys(key[0] for key in keys)
    )
    extra = (
        f" Undecided solves ({undecided}) are drawn as crosses (their share) and are in no point; an "
        "interval runs from all of them failing to all of them succeeding."
        if undecided
        else " No solve was undecided."
    )
    caption = (
        f"The ceiling of a single head, whatever its key dimension ({arms}). *Measured*: share of graphs "
        "that some matrix $W_Q W_K^\\top$ separates, decided exactly by a convex solve, with Wilson's 95% "
        f"intervals ({seed_range(seeds)} a point). *Prediction*: Φ((d² − n₁) / 0.95 d) with the width n₁ "
        "that Gardner's capacity asks for (dashed; 0.95 is a measured constant), and the ceiling m_c at its "
        "half (dotted). *Theorem* (Cover): no head recovers every permutation of more than this many "
        f"items: {covers}.{extra}"
    )
    return figure, caption


_CEILING_LINE: dict[str, Any] = {**style.PREDICTION, "linestyle": (0, (1.2, 1.4))}


def _verdicts(points: list[Record]) -> dict[int, tuple[int, int, int]]:
    """(separable, inseparable, undecided) by number of items."""
    names = ("separable", "inseparable", "undecided")
    sizes = sorted({p["num_items"] for p in points})
    return {
        m: (counts[0], counts[1], counts[2])
        for m in sizes
        for counts in [[sum(p["num_items"] == m and p["verdict"] == name for p in points) for name in names]]
    }


def _ceiling_panel(
    axes: Axes, d_model: int, counts: dict[int, tuple[int, int, int]], summary: Record | None
) -> None:
    look = style.TRAINERS["convex"]
    decided = {m: c for m, c in counts.items() if c[0] + c[1]}
    if decided:
        low = [wilson(s, s + f + u)[0] for s, f, u in decided.values()]
        high = [wilson(s + u, s + f + u)[1] for s, f, u in decided.values()]
        shares = [s / (s + f) for s, f, _ in decided.values()]
        style.interval_bars(axes, decided, shares, low, high, look)
    for m, (s, f, u) in counts.items():
        if u:
            axes.plot(m, u / (s + f + u), "x", color=style.GREY, zorder=3)
    predicted = float(bounds.single_head_max_items(d_model))
    low, high = min([*counts, predicted]), max([*counts, predicted])
    margin = 0.06 * (high - low) + 1
    low, high = max(2.0, low - margin), high + margin
    m = np.linspace(low, high, 200)
    # The prediction is for whole numbers; between them it is the line through its neighbours.
    whole = np.arange(max(2, math.floor(low)), math.ceil(high) + 1)
    shares = np.asarray(bounds.convex_success_probability(whole, whole, d_model))
    axes.plot(m, np.interp(m, whole, shares), zorder=2, **style.PREDICTION)
    axes.axvline(predicted, zorder=1, **_CEILING_LINE)
    axes.axhline(0.5, **style.REFERENCE)
    axes.set_xlim(low, high)
    axes.set_ylim(*style.SHARE_LIMITS)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.set_yticks([0, 0.5, 1], ["0", "½", "1"])
    limit = int(bounds.cover_max_items(d_model))
    lines = [f"predicted {predicted:.1f}", f"not all graphs\nbeyond {limit}\n(theorem) →"]
    if summary is not None and summary.get("measured_num_items") is not None:
        lines.insert(0, f"measured {summary['measured_num_items']:.1f}")
    axes.text(0.99, 0.97, "\n".join(lines), transform=axes.transAxes, fontsize=6.5, ha="right", va="top")
    if limit < high:
        axes.axvspan(limit, high, **style.IMPOSSIBLE)


ARMS = {
    "gaussian": "Gaussian",
    "orthonormal": "orthonormal",
    "minilm": "MiniLM",
    "minilm-pca": "MiniLM\nPCA",
    "minilm-pca-whitened": "MiniLM\nwhitened",
}
_GRAPHS = {"permutation": "random", "words": "word\nrelations", "words-shuffled": "words\nshuffled"}


def real_arms(data: Mapping[str, Any]) -> list[list[Record]]:
    """Transitions of each arm, at one number of heads: the tasks that are not swept, after those that are.

    In the order of d. The number of heads is the one at which most of them were measured. A swept task is an
    arm where its size is that of another arm. Empty where only one embedding and graph was run.
    """
    transitions = [r for r in records(data, "transitions") if r["status"] != "not_run"]
    if len({(r["embedding"], r["graph"]) for r in transitions}) < 2:
        return []
    swept = sweep_cases(transitions)
    others = [case for case in dict.fromkeys(case_of(r) for r in transitions) if case not in swept]
    if others:
        heads_of = [{r["num_heads"] for r in select(transitions, case)} for case in others]
        heads = max(sorted(set().union(*heads_of)), key=lambda h: sum(h in have for have in heads_of))
        sizes = {(case.num_items, case.d_model) for case in others}
        swept = [case for case in swept if (case.num_items, case.d_model) in sizes]
    else:
        heads = max(r["num_heads"] for r in transitions)
    rows = [select(transitions, case, num_heads=heads) for case in [*swept, *others]]
    return sorted((row for row in rows if row), key=lambda row: row[0]["d_model"])


def real(data: Mapping[str, Any]) -> Drawn:
    """Budgets on real embeddings and relations, and its caption; None where one embedding and graph is all there is."""
    arms = real_arms(data)
    if not arms:
        return None
    check_predictions(r for arm in arms for r in arm)
    width = style.COLUMN_WIDTH if len(arms) <= 5 else style.DOUBLE_WIDTH
    figure, grid = style.grid(1, 1, width, 3.0)
    axes = grid[0, 0]
    highest = 1.0
    drawn: list[str] = []
    missed, missing, labels = False, False, []
    for x, arm in enumerate(arms):
        partition = open_prediction(arm[0], PARTITION)
        here = [] if partition is None else [partition]
        highest = max(highest, *here, 1.0)
        missing |= partition is None
        if partition is not None:
            axes.plot([x - 0.4, x + 0.4], [partition, partition], zorder=2, **style.PARTITION)
        series = [("best", best_of(arm), -0.2), ("joint", select(arm, trainer="joint"), 0.2)]
        for name, rows, shift in series:
            for record in rows:
                drawn += [name] if name not in drawn else []
                missed |= record["status"] == "not_reached"
                top, label = _arm_mark(axes, x + shift, record, name, partition)
                highest = max(highest, top)
                labels += [(label, here)] if label is not None else []
    axes.set_xlim(-0.55, len(arms) - 0.45)
    axes.set_ylim(0, 1.12 * highest)
    several = len({arm[0]["d_model"] for arm in arms}) > 1
    sizes = [f"\n$d$ = {arm[0]['d_model']}" if several else "" for arm in arms]
    axes.set_xticks(
        range(len(arms)), [_arm_label(arm[0]) + size for arm, size in zip(arms, sizes, strict=True)]
    )
    axes.tick_params(axis="x", length=0, labelsize=6.5 if len(arms) >= 5 else 7)
    heads = arms[0][0]["num_heads"]
    axes.set_ylabel(f"$D_K$ needed by {heads} heads")
    handles = [style.handle(style.TRAINERS[name], linestyle="none") for name in drawn]
    predicted = any(open_prediction(arm[0], PARTITION) is not None for arm in arms)
    if predicted:
        handles.append(style.line_handle("prediction, random graph", style.PARTITION))
    handles += [missed_handle()] if missed else []
    style.legend_below(figure, handles, 2)
    _lift_off_lines(figure, axes, labels)
    names = "; ".join(case_of(arm[0]).description for arm in arms)
    seeds = seed_range(r["num_seeds"] for arm in arms for r in arm if r.get("num_seeds"))
    caption = (
        f"Real embeddings and relations beside random ones, {heads} heads: {names}. *Measured*: the $D_K$ "
        f"at which half of the seeds reach a best-threshold F1 of {SUCCESS_F1:g}, with 95% intervals "
        f"({seeds})" + (f", for {listed(TRAINER_WORDS[name] for name in drawn)}" if drawn else "")
    )
    if missed:
        caption += "; arrows where half is not reached up to $d_k = d$"
    caption += "."
    if predicted:
        caption += (
            " *Prediction* (dashed, fixed partition) is that of a random graph of the same size on random "
            "embeddings."
        )
        caption += ends_of_lines({PARTITION}) if missing else ""
    if labels:
        caption += " Numbers are measured over predicted."
    graphs = {arm[0]["graph"] for arm in arms}
    if "words" in graphs:
        caption += " A word graph joins words by real relations."
    if "words-shuffled" in graphs:
        caption += " A shuffled one joins the same words at random."
    return figure, caption


def _lift_off_lines(
    figure: Figure, axes: Axes, labels: list[tuple[Annotation, list[float]]], gap: float = 1.5
) -> None:
    """Move each label up, in points, until it is off the horizontal lines of its arm."""
    figure.draw_without_rendering()
    for label, values in labels:
        for value in sorted(values):
            line = axes.transData.transform((0, value))[1]
            box = label.get_window_extent()
            pixels = figure.dpi / 72
            if box.y0 - gap * pixels < line < box.y1 + gap * pixels:
                x, y = label.xyann
                label.xyann = (x, y + (line - box.y0) / pixels + gap)


def _arm_mark(
    axes: Axes, x: float, record: Record, name: str, prediction: float | None
) -> tuple[float, Annotation | None]:
    """Draw one measurement with its ratio; returns how high it reaches, and the ratio's label."""
    look = style.TRAINERS[name]
    value = record["measured_total_key_dim"]
    if record["status"] == "not_reached" or value is None:
        top = float(record["num_heads"] * record["d_model"])
        axes.plot(x, top, look.marker, color=look.color, markerfacecolor="white", zorder=3)
        axes.annotate("", xy=(x, 1.15 * top), xytext=(x, top), arrowprops=arrow_up(look))
        return 1.15 * top, None
    style.interval_bars(axes, [x], [value], [record["ci_low"]], [record["ci_high"]], look)
    top = max(value, record["ci_high"] or value)
    if prediction:
        text = f"{value / prediction:.2f}"
        place = {"xytext": (0, 4), "textcoords": "offset points", "ha": "center", "va": "bottom"}
        return top, axes.annotate(text, xy=(x, top), fontsize=6.5, color=look.color, zorder=5, **place)
    return top, None


def _arm_label(record: Record) -> str:
    embedding, graph = str(record["embedding"]), str(record["graph"])
    if graph == "permutation":
        return ARMS.get(embedding, embedding)
    if embedding.startswith("minilm"):
        return _GRAPHS.get(graph, graph)
    return f"{ARMS.get(embedding, embedding)}\n{_GRAPHS.get(graph, graph)}"
