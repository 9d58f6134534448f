"""Figures of the `translation` experiment, drawn from what a run wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from experiments import style
from experiments.drawing import Drawn
from experiments.reading import Record, listed, records, seed_range, select
from experiments.style import BLACK, BLUE, GREEN, PURPLE, VERMILLION, Look
from experiments.translation.published import ARMS, BASE
from experiments.translation.table import cut_note, held_out, within

_OURS = Look("measured here", BLUE, "o")
_PUBLISHED = Look("published (Vaswani et al. 2017, Table 3)", BLACK, "*", filled=False)
_FIXED = Look("fixed head size (M)", VERMILLION, "s")
_HEADS = Look("F: heads of one size", GREEN, "^")
_KEYS = Look("B: size of queries and keys", PURPLE, "D")


def heads(data: Mapping[str, Any]) -> Drawn:
    """Arm A: perplexity and BLEU against the number of heads, over those of the standard setting.

    Where that is not in the arm, over those of the head count with the least perplexity. Published values are shown
    where there are some of the same head count; BLEU where there is any.
    """
    rows = _rows(data, "A")
    if len(rows) < 2:
        return None
    best = min(rows, key=lambda row: row["perplexity"])
    [base] = select(rows, num_heads=data["config"]["standard_heads"]) or [best]
    count = base["num_heads"]
    published = next((row for row in ARMS["A"] if row.num_heads == count), None)
    names = ["perplexity", *(["bleu"] if base["bleu"] else [])]
    figure, grid = style.grid(
        1, len(names), style.DOUBLE_WIDTH if len(names) > 1 else style.COLUMN_WIDTH, 2.7
    )
    for axes, name in zip(grid[0], names, strict=True):
        at, word = base[name], "perplexity" if name == "perplexity" else "BLEU"
        _points(axes, rows, "num_heads", name, _OURS, over=at)
        title = f"{word} here {at:.3g}"
        if published is not None:
            stars = [(row.num_heads, getattr(row, name) / getattr(published, name)) for row in ARMS["A"]]
            axes.plot(*zip(*stars, strict=True), **_star())
            title += f", published {getattr(published, name):g}"
        axes.axhline(1, **style.REFERENCE)
        _log2(axes, [row["num_heads"] for row in rows], "heads h")
        axes.set_ylabel(f"{word} over that at h = {count}")
        axes.set_title(f"{title}, at h = {count}")
    style.legend_below(figure, [style.handle(_OURS), *([_star_handle()] if published is not None else [])], 2)
    stars = "Stars: English-German, width 512, six layers, 100,000 steps, newstest2013. "
    caption = (
        f"Head count h at a fixed width {rows[0]['d_model']} (d_k = d_v = width / h), on {held_out(data)}. "
        f"{_intervals(rows, *names)} Everything is divided by the mean at h = {count} as if that were exact: its own "
        f"spread is in no other bar. {stars if published is not None else ''}Low perplexity and high BLEU are good."
        f"{'' if len(names) > 1 else ' BLEU is 0 and not shown.'}"
    )
    return figure, caption


def arms(data: Mapping[str, Any]) -> Drawn:
    """Arms B, F, M and S: perplexity."""
    keys, counts = _rows(data, "B"), _rows(data, "F")
    fixed, split = _rows(data, "M"), _rows(data, "S")
    standard = data["config"]["standard_heads"]
    split += [row for row in _rows(data, "A") if fixed and row["num_heads"] == standard]
    split_look = Look(f"standard split (S, and A at h = {standard})", BLUE, "o")
    panels = [panel for panel in (keys, counts, fixed) if len(panel) > 1]
    if not panels:
        return None
    figure, grid = style.grid(1, len(panels), style.DOUBLE_WIDTH, 2.8)
    handles = []
    for axes, rows in zip(grid[0], panels, strict=True):
        axes.set_ylabel("perplexity")
        if rows is keys:
            _points(axes, rows, "head_dim", "perplexity", _KEYS)
            _log2(axes, [row["head_dim"] for row in rows], r"size of queries and keys $d_k$")
            axes.set_title(f"B: h = {rows[0]['num_heads']}, $d_v$ = {rows[0]['value_head_dim']}")
            handles.append(style.handle(_KEYS))
            base = select(rows, head_dim=rows[0]["value_head_dim"])
            if base:
                scale = base[0]["perplexity"] / BASE.perplexity
                width = rows[0]["value_head_dim"] / BASE.value_head_dim
                stars = [(row.head_dim * width, row.perplexity * scale) for row in ARMS["B"]]
                axes.plot(*zip(*stars, strict=True), **_star())
                handles.append(_star_handle())
        elif rows is counts:
            _points(axes, rows, "num_heads", "perplexity", _HEADS)
            _log2(axes, [row["num_heads"] for row in rows], "heads h")
            axes.set_title(f"F: $d_k$ = $d_v$ = {rows[0]['head_dim']}, width {rows[0]['d_model']}")
            handles.append(style.handle(_HEADS))
        else:
            for own, look in ((rows, _FIXED), (split, split_look)):
                _points(axes, own, "num_params", "perplexity", look)
                handles.append(style.handle(look))
                for row in own:
                    label = f"{row['d_model']}: {row['num_heads']} x {row['head_dim']}"
                    place, side = ((6, 3), "left") if own is rows else ((0, -12), "center")
                    axes.annotate(
                        label, (row["num_params"], row["perplexity"]), place, textcoords="offset points",
                        fontsize=6, ha=side,
                    )  # fmt: skip
            axes.set_xscale("log")
            ticks = sorted({row["num_params"] for row in split})
            style.plain_log_ticks(axes.xaxis, ticks)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1e6:.2f}")
            axes.set_xlabel("parameters (millions)")
            axes.set_title("M, S: width: heads x size")
            axes.margins(x=0.25, y=0.2)
    style.legend_below(figure, handles, 3)
    shown = [row for panel in panels for row in panel]
    divisors = [str(divisor) for divisor in data["config"]["divisors"]]
    caption = (
        f"Perplexity on {held_out(data)}. B: d_k alone, values and everything else as in the standard setting; stars: "
        "published, at d_k over d_v and scaled to agree where d_k = d_v. F: heads of one size, whatever the width: "
        f"parameters grow with h. M: the width divided by {listed(divisors)}, with heads of the standard size, "
        f"{listed(divisors)} times as many, against standard splits with as many parameters. "
        f"{_intervals(shown, 'perplexity')}"
    )
    return figure, caption


def _rows(data: Mapping[str, Any], arm: str) -> list[Record]:
    key = {"B": "head_dim", "M": "num_params", "S": "num_params"}.get(arm, "num_heads")
    rows = [row for row in records(data, "settings") if row["arm"] == arm and row["perplexity"] is not None]
    return sorted(rows, key=lambda row: row[key])


def _points(axes: Axes, rows: Sequence[Record], x: str, name: str, look: Look, over: float = 1.0) -> None:
    def scaled(end: str) -> list[Any]:
        return [None if row[name] is None else _end(row, name, end, over) for row in rows]

    places = [row[x] for row in rows]
    style.interval_bars(
        axes, places, scaled(""), scaled("_low"), scaled("_high"), look, linestyle="-", linewidth=0.7
    )


def _log2(axes: Axes, ticks: Sequence[float], label: str) -> None:
    axes.set_xscale("log", base=2)
    style.plain_log_ticks(axes.xaxis, sorted(set(ticks)))
    axes.set_xlabel(label)


def _star() -> dict[str, Any]:
    return {
        "color": _PUBLISHED.color,
        "marker": _PUBLISHED.marker,
        "markerfacecolor": "white",
        "markersize": 7,
        "linestyle": "none",
        "zorder": 4,
    }


def _star_handle() -> Any:
    return style.handle(_PUBLISHED, linestyle="none", markersize=7)


def _end(row: Record, name: str, end: str, over: float) -> float | None:
    value = row[f"{name}{end}"] if not end else within(row, name)[end == "_high"]
    return None if value is None else value / over


def _intervals(rows: Sequence[Record], *names: str) -> str:
    seeds = seed_range(row["runs"] - row["failed"] for row in rows)
    if all(row["perplexity_low"] is None for row in rows):
        return f"Points: {seeds}, so no intervals."
    return f"Points: means of {seeds}, bars: Student's 95% intervals{cut_note(rows, *names)}."


FIGURES = {"heads": heads, "arms": arms}
"""What draws each figure, by name."""
