"""Figure of the conversion experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from experiments import style
from experiments.conversion.units import ORIGINAL
from experiments.drawing import Drawn
from experiments.reading import Record, records

_PARTS = {
    "keys": style.Look("keys alone", style.SKY, "^"),
    "values": style.Look("values alone", style.ORANGE, "v"),
    "both": style.Look("both: a smaller cache", style.BLUE, "o"),
}
_HEALED = style.Look("both, healed (above the original healed alike)", style.VERMILLION, "s", filled=False)
_NAMES = {"first": "first head", "mean": "mean", "svd": "SVD,\nweights", "svd_inputs": "SVD,\non text"}


def loss(data: Mapping[str, Any]) -> Drawn:
    """Excess loss of every merge, before and after healing, and the course of healing."""
    rows = [row for row in records(data, "conversions") if row["method"] != ORIGINAL]
    if not rows:
        return None
    points = records(data, "points")
    methods = [name for name in _NAMES if any(row["method"] == name for row in rows)]
    grid, axes = style.grid(1, 2, style.DOUBLE_WIDTH, 2.9, width_ratios=(1.5, 1))
    _excesses(axes[0, 0], rows, methods)
    _curves(axes[0, 1], points)
    handles = [style.handle(look, linestyle="none") for look in (*_PARTS.values(), _HEALED)]
    style.legend_below(grid, handles, 2)
    return grid, _caption(rows, points)


def _excesses(panel: Axes, rows: Sequence[Record], methods: Sequence[str]) -> None:
    shifts = {"keys": -0.24, "values": -0.08, "both": 0.08}
    for x, method in enumerate(methods):
        for row in rows:
            if row["method"] != method:
                continue
            shown = [("excess", _PARTS[row["part"]], shifts[row["part"]]), ("healed_excess", _HEALED, 0.24)]
            for name, look, shift in shown:
                if row[name] is not None:
                    bars = [row[f"{name}_low"]], [row[f"{name}_high"]]
                    style.interval_bars(panel, [x + shift], [row[name]], *bars, look)
    panel.axhline(0, **style.REFERENCE)
    panel.set_xticks(range(len(methods)), [_NAMES[name] for name in methods])
    panel.set_xlim(-0.5, len(methods) - 0.5)
    panel.set_ylabel("loss above the original\n(nats a token)")


_CURVES = {
    ORIGINAL: (style.BLACK, "-"),
    "first": (style.GREEN, (0, (4, 1))),
    "mean": (style.PURPLE, (0, (4, 1, 1, 1))),
    "svd": (style.ORANGE, (0, (1, 1))),
    "svd_inputs": (style.VERMILLION, (0, (5, 2))),
}


def _curves(panel: Axes, points: Sequence[Record]) -> None:
    for point in points:
        curve = point["train_losses"]
        if curve is None:
            continue
        smooth = [sum(curve[max(0, i - 4) : i + 1]) / (i + 1 - max(0, i - 4)) for i in range(len(curve))]
        color, dash = _CURVES[point["method"]]
        name = "original" if point["method"] == ORIGINAL else _NAMES[point["method"]].replace("\n", " ")
        panel.plot(range(1, len(curve) + 1), smooth, color=color, linestyle=dash, linewidth=1.0, label=name)
    panel.set_xlabel("step of healing")
    panel.set_ylabel("training loss (nats a token)")
    if panel.get_legend_handles_labels()[0]:
        panel.legend(loc="upper right")


def _caption(rows: Sequence[Record], points: Sequence[Record]) -> str:
    first = points[0]
    healed = [p for p in points if p["steps"]]
    steps = (
        f" Healed: Adam on the attention of all layers, {healed[0]['steps']} steps of {healed[0]['batch']} sequences, "
        "and the same for the original, from which its excess is taken. Right: training loss, mean of five steps."
        if healed
        else ""
    )
    return (
        f"Next-token loss of {first['model']} with the key/value heads of every layer merged to "
        f"{rows[0]['num_kv_heads']}, above that of the original, on {first['test_tokens']:,} tokens of held-out text; "
        f"bars: 95% over sequences of {first['length']}.{steps}"
    )


FIGURES = {"loss": loss}
"""What draws each figure, by name."""
