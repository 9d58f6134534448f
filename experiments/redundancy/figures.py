"""Figures of the `redundancy` experiment, drawn from what a run wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from experiments import style
from experiments.drawing import Drawn, checkpoint_look
from experiments.reading import Record, records, select
from experiments.redundancy.claims import KEPT, LATE, by_time
from experiments.style import BLACK, BLUE, GREEN, ORANGE, VERMILLION, Look

_KINDS = {
    "importance": Look("all kinds", BLACK, "o"),
    "encoder": Look("encoder", BLUE, "s"),
    "decoder": Look("decoder", GREEN, "^"),
    "source": Look("source", VERMILLION, "D"),
}
_RANDOM = Look("random order, at the end", ORANGE, "x")
_PUBLISHED = {"color": BLACK, "marker": "*", "linestyle": "none", "markerfacecolor": "white", "markersize": 8}


def dynamics(data: Mapping[str, Any]) -> Drawn:
    """BLEU and gain kept against heads removed by I_h: a line for each checkpoint."""
    rows = records(data, "curves")
    own = {name: by_time(rows, "importance", name) for name in ("bleu", "gain")}
    if not own["gain"]:
        return None
    names = [name for name in own if own[name]]
    figure, grid = style.grid(1, len(names), style.DOUBLE_WIDTH, 2.9, sharey=True)
    steps = [curve["steps"] for curve in own["gain"]]
    handles = {}
    for axes, name in zip(grid[0], names, strict=True):
        for curve in own[name]:
            look = checkpoint_look(steps.index(curve["steps"]), len(steps), curve["fraction_trained"])
            handles[curve["steps"]] = style.handle(look)
            _line(axes, curve, name, look)
        if name == "gain" and (chance := by_time(rows, "random", name)):
            _line(axes, chance[-1], name, _RANDOM)
            handles[0] = style.handle(_RANDOM)
        if name == "bleu":
            axes.plot([100 * LATE], [KEPT], **_PUBLISHED)
            handles[-1] = style.line_handle("published, late (Michel et al. 2019)", _PUBLISHED)
        axes.plot([0, 100], [1, 0], **style.REFERENCE)
        axes.set_title("BLEU" if name == "bleu" else "gain over the frequencies of subwords")
        axes.set_xlabel("heads removed, least important first (%)")
    top = max(max(curve[f"{name}_kept_high"]) for name in names for curve in own[name])
    grid[0][0].set_ylim(-0.05, max(1.1, top) + 0.03)
    grid[0][0].set_ylabel("share kept")
    order = [step for step in sorted(handles) if step > 0] + [step for step in (0, -1) if step in handles]
    style.legend_below(figure, [handles[step] for step in order], 4)
    caption = (
        f"Share of BLEU (left) and of the gain, nats per subword below the frequencies of subwords, that a translation "
        f"model of {rows[0]['num_heads']} heads keeps without some of them, at checkpoints of its training; removed in "
        f"the order of I_h at that time, nothing trained again. {_seeds(rows)}; bars: the least and the most of the "
        "models. BLEU only where whole models have more than 1 on average; where it is small, shares of it are noisy. "
        "Thin grey: in proportion to the heads left. Star: 85% "
        "without 40%, published for a model of six layers on IWSLT."
    )
    return figure, caption


def kinds(data: Mapping[str, Any]) -> Drawn:
    """BLEU kept at the end when heads of one kind of attention are removed."""
    rows = records(data, "curves")
    ends = {name: by_time(rows, name, "bleu") for name in _KINDS}
    if not all(ends.values()):
        return None
    figure, grid = style.grid(1, 1, style.COLUMN_WIDTH, 2.8)
    axes = grid[0][0]
    for name, look in _KINDS.items():
        _line(axes, ends[name][-1], "bleu", look)
    axes.plot([0, 100], [1, 0], **style.REFERENCE)
    axes.set_xlabel("heads of the kind removed (%)")
    axes.set_ylabel("share of BLEU kept")
    axes.set_ylim(-0.05, 1.12)
    style.legend_below(figure, [style.handle(look) for look in _KINDS.values()], 2)
    caption = (
        "Share of BLEU kept at the end of training when heads of one kind of attention alone are removed, least "
        f"important first: encoder and decoder attend themselves, source: the decoder attends the encoder. "
        f"{_seeds(rows)}; bars: the least and the most of the models. Thin grey: in proportion to the heads left."
    )
    return figure, caption


def _line(axes: Axes, curve: Record, name: str, look: Look) -> None:
    style.interval_bars(
        axes,
        [100 * fraction for fraction in curve["fraction_pruned"]],
        curve[f"{name}_kept"],
        curve[f"{name}_kept_low"],
        curve[f"{name}_kept_high"],
        look,
        linestyle="-",
        linewidth=0.9,
        markersize=3,
    )


def _seeds(rows: Sequence[Record]) -> str:
    count = select(rows, order="importance")[0]["seeds"]
    return f"Means over {count} models" if count > 1 else "One model"


FIGURES = {"dynamics": dynamics, "kinds": kinds}
"""What draws each figure, by name."""
