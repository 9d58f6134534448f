"""The figure on copying: what attention does in a wide single head and in D heads, what is left to the read-out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import style
from experiments.reading import Record, records, select
from experiments.style import BLACK, BLUE, GREEN, ORANGE, VERMILLION, Look

_MODELS = {
    "heads": "D heads,\ntrained",
    "wide": "one wide head,\ntrained",
    "copy": "one wide head,\nkept uniform",
}
_TRAINED = Look("as trained", BLUE, "o")
_ABLATED = Look("uniform weights put in", VERMILLION, "s", filled=False)
_LENGTHS = ((BLUE, "o"), (GREEN, "^"), (ORANGE, "D"), (BLACK, "v"))


def copying(data: Mapping[str, Any]) -> tuple[Figure, str] | None:
    """Ablation of attention, and errors against the parameters of the read-out."""
    rows = [row for row in records(data, "curves") if row["best_nmse"]]
    copies = select(rows, curve="copy")
    if not copies or not select(rows, curve="heads"):
        return None
    lengths = sorted({row["length"] for row in copies})
    shown = lengths[len(lengths) // 2]
    figure, grid = style.grid(1, 2, style.DOUBLE_WIDTH, 2.9, sharey=True)
    _ablation(grid[0, 0], rows, shown)
    _parameters(grid[0, 1], rows, lengths)
    grid[0, 0].set_ylabel("NMSE on fresh samples")
    handles = [style.handle(look, linestyle="none") for look in (_TRAINED, _ABLATED)]
    handles += [
        style.handle(Look(f"T = {t}", color, marker), linestyle="none")
        for t, (color, marker) in zip(lengths, _LENGTHS, strict=False)
    ]
    handles += [
        style.handle(Look("D heads", style.GREY, "o", filled=False), linestyle=":"),
        style.handle(Look("one wide head, kept uniform", style.GREY, "o")),
    ]
    style.legend_below(figure, handles, 4)
    caption = (
        f"Left, T = {shown}, D = {copies[0]['num_targets']}: the best run of three models with its own attention "
        "and with uniform weights put in its place after training: D heads on a linear encoder; one head of "
        "n = T d on features e_t (x) x, trained freely; the same kept uniform in training too, so that its class "
        "token gets a copy of the input and all the work is the read-out's (each with the read-out that does "
        "best). Dotted: D heads trained with uniform attention. Right: error against the parameters of the "
        "read-out (one hidden layer), bars up to the median run: copying (filled) against D heads (open)."
    )
    return figure, caption


def _ablation(axes: Axes, rows: Sequence[Record], length: int) -> None:
    for x, curve in enumerate(_MODELS):
        row = min(select(rows, curve=curve, length=length), key=lambda row: row["best_nmse"], default=None)
        if row is not None:
            for look, value, shift in (
                (_TRAINED, "best_nmse", -0.1),
                (_ABLATED, "best_nmse_uniform", 0.1),
            ):
                style.interval_bars(axes, [x + shift], [row[value]], [None], [None], look)
    for row in select(rows, curve="heads-uniform", length=length):
        axes.axhline(row["best_nmse"], **(style.REFERENCE | {"linestyle": ":", "linewidth": 0.8}))
    axes.set_yscale("log")
    axes.set_xlim(-0.5, len(_MODELS) - 0.5)
    axes.set_xticks(range(len(_MODELS)), list(_MODELS.values()))
    axes.tick_params(axis="x", length=0)
    axes.set_title(f"attention removed, T = {length}")


def _parameters(axes: Axes, rows: Sequence[Record], lengths: Sequence[int]) -> None:
    for length, (color, marker) in zip(lengths, _LENGTHS, strict=False):
        for curve, filled, line in (("copy", True, "-"), ("heads", False, ":")):
            own = select(rows, curve=curve, length=length)
            own.sort(key=lambda row: row["num_readout_parameters"])
            x = [row["num_readout_parameters"] for row in own]
            best, median = ([row[f"{name}_nmse"] for row in own] for name in ("best", "median"))
            look = Look("", color, marker, filled=filled)
            style.interval_bars(axes, x, best, [None] * len(own), median, look, linestyle=line, linewidth=0.7)
    axes.set_xscale("log")
    axes.set_xlabel("parameters of the read-out")
    axes.set_title("the work moves into the read-out")
