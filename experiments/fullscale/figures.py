"""Figures of the `fullscale` experiment, drawn from what a run wrote, complete or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments import style
from experiments.drawing import Drawn
from experiments.fullscale.config import FREE, GREEDY, JOINT, PLAIN, RECOVERED
from experiments.reading import Record, records, select
from experiments.style import BLACK, BLUE, ORANGE, VERMILLION, Look

_LOOKS = {
    JOINT: style.TRAINERS["joint"],
    PLAIN: style.TRAINERS["plain"],
    GREEDY: style.TRAINERS["greedy"],
    FREE: Look("one free head", BLACK, "D"),
}
_ITEMS = {"gaussian": "Gaussian items", "minilm": "MiniLM's words", "minilm-pca": "MiniLM's words"}
_LINES = {4: "-", 12: (0, (4, 1.5))}


def _label(embedding: str) -> str:
    return _ITEMS.get(embedding, embedding)


def _line(heads: int) -> Any:
    return _LINES.get(heads, (0, (1, 1)))


def training(data: Mapping[str, Any]) -> Drawn:
    """Loss and missed edges against steps, at the budget with most runs (the larger one of two)."""
    points = [row for row in records(data, "points") if row["best_f1"] is not None and row["seed"] == 0]
    predictions = records(data, "predictions")
    if not points or not predictions:
        return None
    m = predictions[0]["num_items"]
    points = select(points, num_items=m)
    several = [row for row in points if row["trainer"] != FREE]
    embeddings = list(dict.fromkeys(row["embedding"] for row in points))
    if not several:
        return None
    count = {k: len(select(several, total_key_dim=k)) for k in {row["total_key_dim"] for row in several}}
    budget = max(count, key=lambda k: (count[k], k))
    shown = [*select(points, trainer=FREE), *select(several, total_key_dim=budget)]
    figure, grid = style.grid(2, len(embeddings), style.DOUBLE_WIDTH, 4.2, sharex=True, sharey="row")
    for column, embedding in zip(grid.T, embeddings, strict=True):
        for run in _by_run(select(shown, embedding=embedding)):
            look, line = _LOOKS[run[0]["trainer"]], _line(run[0]["num_heads"])
            if run[0]["trainer"] == FREE:
                line = "-"
            x = [row["steps"] / (row["num_heads"] if row["trainer"] == GREEDY else 1) for row in run]
            settings: dict[str, Any] = {
                "color": look.color,
                "marker": look.marker,
                "markerfacecolor": look.color if look.filled else "white",
                "linestyle": line,
                "linewidth": 1.0,
                "markersize": 3,
            }
            if run[0]["trainer"] != GREEDY:
                column[0].plot(x, [row["loss"] for row in run], **settings)
            missed = [max(row["missed"] + row["wrong"], 0.5) / m for row in run]
            column[1].plot(x, missed, **settings)
        column[0].set_title(_label(embedding))
        column[1].axhline(2 * (1 - RECOVERED), **style.REFERENCE)
        column[0].set_yscale("log")
        column[1].set_yscale("log")
        column[1].set_xlabel("steps of all heads, of each head where one by one")
    grid[0, 0].set_ylabel("loss of contexts")
    grid[1, 0].set_ylabel("wrong pairs an edge")
    present = {(row["trainer"], row["num_heads"]) for row in shown}
    handles = [
        style.handle(
            _LOOKS[name],
            _LOOKS[name].label + ("" if name == FREE else f", h = {h}"),
            linestyle="-" if name == FREE else _line(h),
        )
        for name, h in sorted(present, key=lambda pair: (list(_LOOKS).index(pair[0]), pair[1]))
    ]
    style.legend_below(figure, handles, 3)
    caption = (
        f"A permutation on {m:,} items, d = {points[0]['d_model']}: several heads at $D_K$ = {budget} and one free "
        f"head ($d_k$ = d). Above: loss of the steps between two looks (squared hinge; cross-entropy for plain "
        "descent, not to be compared). Below: missed edges and wrong non-edges of the best threshold over all pairs, "
        "for each edge of the graph; under the grey line F1 is about 0.99. The last point of one head is after its "
        "passes over all pairs. One seed."
    )
    return figure, caption


def _by_run(points: list[Record]) -> list[list[Record]]:
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for row in points:
        groups.setdefault((row["trainer"], row["num_heads"], row["total_key_dim"]), []).append(row)
    return [sorted(own, key=lambda row: row["stretch"]) for own in groups.values()]


def budgets(data: Mapping[str, Any]) -> Drawn:
    """F1 against the budget for every head count, with what was predicted."""
    runs = [row for row in records(data, "runs") if row["best_f1"] is not None and row["complete"]]
    runs = [row for row in runs if row["trainer"] != FREE]
    if not runs:
        return None
    predictions = {row["num_heads"]: row for row in records(data, "predictions")}
    counts = sorted({row["num_heads"] for row in runs})
    embeddings = list(dict.fromkeys(row["embedding"] for row in runs))
    figure, grid = style.grid(
        len(counts), len(embeddings), style.DOUBLE_WIDTH, 1.9 * len(counts) + 0.6, sharex=True, sharey=True
    )
    for axes_row, h in zip(grid, counts, strict=True):
        for axes, embedding in zip(axes_row, embeddings, strict=True):
            here = select(runs, num_heads=h, embedding=embedding)
            for name in (PLAIN, JOINT, GREEDY):
                own = sorted(select(here, trainer=name), key=lambda row: row["total_key_dim"])
                look = _LOOKS[name]
                axes.plot(
                    [row["total_key_dim"] for row in own],
                    [1.0005 - row["best_f1"] for row in own],
                    color=look.color,
                    marker=look.marker,
                    markerfacecolor=look.color if look.filled else "white",
                    linewidth=1.0,
                )
            for key, line in (("partition", style.PARTITION), ("parameter_count", style.PARAMETER_COUNT)):
                law = predictions[h][f"{key}_total_key_dim"]
                if law is not None:
                    axes.axvline(law, **line)
            axes.axhline(1 - RECOVERED, **style.REFERENCE)
            axes.set_yscale("log")
            axes.invert_yaxis()
            axes.set_title(f"{_label(embedding)}, h = {h}")
    for axes in grid[:, 0]:
        axes.set_ylabel("1 - F1")
    for axes in grid[-1]:
        axes.set_xlabel("total key dimension $D_K$")
    names = [name for name in (GREEDY, JOINT, PLAIN) if select(runs, trainer=name)]
    handles = [style.handle(_LOOKS[name]) for name in names]
    handles += [
        style.line_handle("fixed partition by width (prediction)", style.PARTITION),
        style.line_handle("parameter count (law)", style.PARAMETER_COUNT),
    ]
    style.legend_below(figure, handles, 3)
    first = runs[0]
    caption = (
        f"How far from recovered: one less the best-threshold F1 over all pairs, at the end of each run, on a "
        f"permutation of {first['num_items']:,} items, d = {first['d_model']} (better is up; perfect is drawn at "
        "0.0005). Grey: F1 of 0.99. Vertical lines: prediction for heads of a fixed even partition, and the parameter "
        "count."
    )
    return figure, caption


def one_head(data: Mapping[str, Any]) -> Drawn:
    """F1 of one free head against the number of items, with its ceiling."""
    rows = [row for row in records(data, "runs") if row["trainer"] == FREE and row["gradient"] is not None]
    if len({row["num_items"] for row in rows}) < 2:
        return None
    ceiling = records(data, "predictions")[0]["single_head_max_items"]
    figure, grid = style.grid(1, 1, style.COLUMN_WIDTH, 2.6)
    axes = grid[0, 0]
    looks = dict(
        zip(dict.fromkeys(row["embedding"] for row in rows), (BLUE, ORANGE, VERMILLION), strict=False)
    )
    handles = []
    for index, (embedding, color) in enumerate(looks.items()):
        own = sorted(select(rows, embedding=embedding, seed=0), key=lambda row: row["num_items"])
        look = Look(_label(embedding), color, style.MARKERS[index], filled=index == 0)
        line = "-" if index == 0 else (0, (4, 1.5))
        axes.plot(
            [row["num_items"] for row in own],
            [row["best_f1"] for row in own],
            color=color,
            marker=look.marker,
            markerfacecolor=color if look.filled else "white",
            linestyle=line,
            markersize=4 + 3 * index,
            zorder=3 - index,
        )
        handles.append(style.handle(look, linestyle=line))
    axes.axvline(ceiling, **style.PREDICTION)
    axes.set_ylim(*style.SHARE_LIMITS)
    axes.set_xlabel("items m")
    axes.set_ylabel("best F1 over all pairs")
    handles.append(style.line_handle("ceiling of one head (prediction)", style.PREDICTION))
    style.legend_below(figure, handles, 1)
    caption = (
        f"One head of full width ($d_k$ = d = {rows[0]['d_model']}), a free matrix trained by a convex loss, on "
        f"permutations of more and more items. Dashed: the {ceiling:,.0f} items that one head is predicted to hold."
    )
    return figure, caption


FIGURES = {"training": training, "budgets": budgets, "one-head": one_head}
"""What draws each figure, by name."""
