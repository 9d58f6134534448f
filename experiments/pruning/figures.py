"""Figures of the `pruning` experiment, drawn from what a complete run wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from experiments import style
from experiments.drawing import Drawn
from experiments.pruning.figures_heads import ablation, gates, importance
from experiments.pruning.records import TOLERATED, groups
from experiments.reading import Record, records, select
from experiments.style import BLUE, GREEN, PURPLE, SKY, VERMILLION, Look

_ORDERS = {
    "importance": Look("importance I_h, once", BLUE, "o"),
    "importance_recomputed": Look("importance I_h, at every step", SKY, "D"),
    "ablation": Look("loss of single ablation", PURPLE, "v"),
    "confidence": Look("confidence", VERMILLION, "s", filled=False),
    "random": Look("random (mean, range)", GREEN, "^", filled=False),
}
_PUBLISHED_ONSET = (0.2, 0.4)
LOSS_LABELS = {True: "1 - cosine to the whole model", False: "loss of next token / nats"}


def is_encoder(rows: Sequence[Record]) -> bool:
    """Whether rows of points or curves are of a model that embeds sentences."""
    return any(row["ranking"] is not None for row in rows)


def curves(data: Mapping[str, Any]) -> Drawn:
    """Loss against the share of heads removed, a panel for each model, and rankings of encoders."""
    by_model = groups(records(data, "curves"), "model")
    if not by_model:
        return None
    panels: list[tuple[str, str, list[Record]]] = []
    for (model,), rows in by_model.items():
        panels.append((model, "loss", list(rows)))
        if is_encoder(rows):
            panels.append((model, "ranking", list(rows)))
    # Beside one panel alone the legend finds no room but below, line by line.
    width, height = (style.DOUBLE_WIDTH, 2.7) if len(panels) > 1 else (style.COLUMN_WIDTH, 3.6)
    figure, grid = style.grid(1, len(panels), width, height)
    shown: list[str] = []
    for axes, (model, what, rows) in zip(grid[0], panels, strict=True):
        for order, look in _ORDERS.items():
            own = sorted(select(rows, order=order), key=lambda row: row["fraction_pruned"])
            own = [row for row in own if row[what] is not None]
            if own:
                shown.append(order)
                _curve(axes, own, what, look)
        if what == "loss":
            _onset(axes, rows)
            axes.set_ylabel(LOSS_LABELS[is_encoder(rows)])
        else:
            axes.set_ylabel("rank correlation of similarities")
        axes.set_title(model)
        axes.set_xlabel("heads removed")
        axes.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
        axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    handles: list[Any] = [style.handle(look) for order, look in _ORDERS.items() if order in shown]
    handles.append(style.area_handle("expected onset (20% to 40%)", style.WINDOW))
    handles.append(style.line_handle(f"{TOLERATED:.0%} of the rise", style.REFERENCE))
    style.legend_below(figure, handles, 3 if len(panels) > 1 else 1)
    seeds = max(row["num_seeds"] for row in records(data, "curves"))
    caption = (
        "Loss on held-out text when heads are masked in an order; nothing is trained again. "
        f"{_losses(by_model)} {_orders_said(shown, seeds)} Blue area: where the loss was expected to begin to rise "
        f"when heads go by importance; grey line: {TOLERATED:.0%} of what removing all heads costs."
    )
    return figure, caption


def speed(data: Mapping[str, Any]) -> Drawn:
    """Measured speed-ups beside those counted from products."""
    rows = records(data, "speedups")
    if not rows:
        return None
    models = list(groups(rows, "model"))
    figure, grid = style.grid(1, len(models), style.COLUMN_WIDTH * min(2, len(models)), 2.4, sharey=True)
    looks = {"heads": Look("heads", BLUE, "o"), "groups": Look("groups", VERMILLION, "s", filled=False)}
    for axes, (model,) in zip(grid[0], models, strict=True):
        own = select(rows, model=model)
        sizes = sorted({row["batch_size"] for row in own})
        for shift, (removal, look) in zip((-0.1, 0.1), looks.items(), strict=True):
            found = select(own, removal=removal)
            x = [sizes.index(row["batch_size"]) + shift for row in found]
            y, low, high = ([row[f"speedup{end}"] for row in found] for end in ("", "_low", "_high"))
            style.interval_bars(axes, x, y, low, high, look)
            for place, row in zip(x, found, strict=True):
                axes.plot(
                    [place - 0.09, place + 0.09],
                    [row["predicted_speedup"]] * 2,
                    **(style.PREDICTION | {"linestyle": "-"}),
                )
        axes.axhline(1, **style.REFERENCE)
        axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
        axes.set_xlim(-0.5, len(sizes) - 0.5)
        axes.set_xlabel(f"sequences of {own[0]['length']} tokens")
        axes.set_title(model)
    grid[0, 0].set_ylabel("speed-up")
    present = {row["removal"] for row in rows}
    handles: list[Any] = [
        style.handle(look, f"without half of the {look.label}", linestyle="none")
        for removal, look in looks.items()
        if removal in present
    ]
    handles.append(style.line_handle("by products", style.PREDICTION | {"linestyle": "-"}))
    style.legend_below(figure, handles, 3 if len(models) > 1 else 1)
    caption = (
        "Forward pass of the model with the weights of half of its heads removed (those of least "
        f"importance), against the whole model, on a CPU: median of the ratios of {rows[0]['rounds']} "
        "rounds, in which both ran in drawn order, with quartiles. Groups are query heads that share a "
        "key/value head. Short lines: ratio of the multiplications in matrix products."
    )
    return figure, caption


def _losses(by_model: Mapping[tuple[str, ...], Sequence[Record]]) -> str:
    """What the loss of each model is."""
    said = []
    for encodes, text in (
        (False, "next-token loss"),
        (
            True,
            "one minus the mean cosine between the sentence embeddings of the pruned and the whole model, and "
            "Spearman's correlation between the similarities of all pairs of sentences",
        ),
    ):
        models = [model for (model,), rows in by_model.items() if is_encoder(rows) == encodes]
        if models:
            said.append(f"{', '.join(f'*{model}*' for model in models)}: {text}.")
    return " ".join(said)


def _orders_said(shown: Sequence[str], seeds: int) -> str:
    """What the orders that are drawn are."""
    known = {
        "importance": "importance: I_h of Michel et al. 2019 on training text, once for all heads",
        "importance_recomputed": "at every step: I_h of the model that is left",
        "ablation": "single ablation: what each head costs alone on training text",
        "confidence": "confidence: mean largest weight",
        "random": f"random: mean and range of {seeds} orders" if seeds > 1 else "random: one order",
    }
    said = "; ".join(text for order, text in known.items() if order in shown)
    return f"{said[:1].upper()}{said[1:]}."


def _curve(axes: Axes, rows: Sequence[Record], what: str, look: Look) -> None:
    x, y = ([row[name] for row in rows] for name in ("fraction_pruned", what))
    low = high = [None] * len(rows)
    if rows[0]["num_seeds"] > 1:
        low, high = ([row[f"{what}_{end}"] for row in rows] for end in ("low", "high"))
    style.interval_bars(axes, x, y, low, high, look, linestyle="-", linewidth=0.7)


def _onset(axes: Axes, rows: Sequence[Record]) -> None:
    losses = {row["fraction_pruned"]: row["loss"] for row in rows}
    axes.axvspan(*_PUBLISHED_ONSET, **style.WINDOW)
    if {0.0, 1.0} <= set(losses):
        axes.axhline(losses[0.0] + TOLERATED * (losses[1.0] - losses[0.0]), **style.REFERENCE)


FIGURES = {
    "curves": curves,
    "importance": importance,
    "ablation": ablation,
    "gates": gates,
    "speed": speed,
}
"""What draws each figure, by name."""
