"""Marks that several figures of `capacity` share."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from matplotlib.artist import Artist

from experiments import style
from experiments.capacity.figures_records import PARAMETER_COUNT, PARTITION

LINES = (
    (PARTITION, "prediction: fixed partition", style.PARTITION),
    (PARAMETER_COUNT, "law: parameter count", style.PARAMETER_COUNT),
)
"""What a budget is held against: its field in a transition, its name and its line."""


def handles_of(drawn: Collection[str]) -> list[Artist]:
    """Legend entries of those of `LINES` that are drawn, and of the area of the theorems."""
    handles: list[Artist] = [style.line_handle(label, line) for name, label, line in LINES if name in drawn]
    area = style.area_handle("impossible (theorems)", style.IMPOSSIBLE)
    return [*handles, area] if "theorems" in drawn else handles


def missed_handle() -> Artist:
    """Legend entry of the arrows of `arrow_up`."""
    arrow = style.Look("not reached up to $d_k = d$", style.GREY, r"$\uparrow$")
    return style.handle(arrow, linestyle="none", markersize=7)


def arrow_up(look: style.Look) -> dict[str, Any]:
    """Properties of an arrow from a budget that was not enough."""
    return {"arrowstyle": "->", "color": look.color, "linewidth": 1.0, "shrinkA": 0, "shrinkB": 0}
