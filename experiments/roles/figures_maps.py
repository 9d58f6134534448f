"""Figures of heads as points of the plane, and of single attention maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import style
from experiments.reading import records
from experiments.roles.claims import of_model
from experiments.roles.naming import NONE, ORDER
from experiments.roles.table import label, models
from experiments.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, YELLOW, Look

_LOOKS = {
    "induction": Look("induction", BLACK, "*"),
    "previous": Look("previous", BLUE, "v"),
    "next": Look("next", SKY, "^"),
    "self": Look("itself", PURPLE, "P"),
    "delimiter": Look("delimiter", VERMILLION, "s"),
    "first": Look("first token", ORANGE, "D"),
    "syntactic": Look("syntactic", GREEN, "X"),
    "positional": Look("fixed offset", YELLOW, "h"),
    "broad": Look("broad", GREY, "o", filled=False),
    NONE: Look("none of these", GREY, "."),
}
_COLUMNS = 4


def head_map(data: Mapping[str, Any]) -> tuple[Figure, str] | None:
    """Heads as points whose distances are about their divergences, by layer and by role."""
    found = [model for model in models(data) if of_model(records(data, "distances"), model)]
    if not found:
        return None
    figure, grid = style.grid(len(found), 2, style.DOUBLE_WIDTH, 0.5 + 2.6 * len(found))
    shown: set[str] = set()
    said = []
    for (left, right), model in zip(grid, found, strict=True):
        (row,) = of_model(records(data, "distances"), model)
        named = sorted(of_model(records(data, "roles"), model), key=lambda r: (r["layer"], r["head"]))
        x, y = np.array(row["x"]), np.array(row["y"])
        dots = left.scatter(x, y, c=[r["layer"] for r in named], cmap="viridis", s=11, linewidth=0)
        figure.colorbar(dots, ax=left, label="layer", pad=0.02, aspect=25)
        roles = np.array([r["role"] for r in named])
        for role in reversed(_LOOKS):
            own = roles == role
            if own.any():
                shown.add(role)
                _dots(right, x[own], y[own], _LOOKS[role])
        for axes, by in ((left, "layer"), (right, "role")):
            axes.set_title(f"{label(model)}: by {by}")
            axes.set_aspect("equal", adjustable="datalim")
            axes.tick_params(labelsize=6)
        for axes in (left, right):
            axes.set_xlabel("nats a token")
            axes.set_ylabel("nats a token")
        near = f"{row['same_layer']:.3f} within and {row['other_layers']:.3f} between layers"
        if row["same_group"] is not None:
            near = f"{row['same_group']:.3f} where keys and values are shared, {near}"
        said.append(f"{label(model)}: {near}; stress {row['stress']:.2f}, {row['num_tokens']:,} tokens")
    handles = [style.handle(_LOOKS[role], linestyle="none") for role in (*ORDER, NONE) if role in shown]
    style.legend_below(figure, handles, 5)
    caption = (
        "Heads as points: their distances are about the Jensen-Shannon divergences between their attention (mean over "
        "tokens, in nats; multidimensional scaling). Left by layer, right by role; a head of several roles is shown "
        f"under the first of the legend. Mean divergences: {'; '.join(said)}."
    )
    return figure, caption


def _dots(axes: Axes, x: np.ndarray, y: np.ndarray, look: Look) -> None:
    size = {"*": 60, ".": 12, "o": 12}.get(look.marker, 18)
    face = look.color if look.filled else "none"
    edge = BLACK if look.marker in "h" else look.color
    axes.scatter(x, y, marker=look.marker, s=size, facecolors=face, edgecolors=edge, linewidth=0.5)


def examples(data: Mapping[str, Any], model: str) -> tuple[Figure, str] | None:
    """The map of the most typical head of each role."""
    rows = of_model(records(data, "examples"), model)
    if not rows:
        return None
    columns = min(_COLUMNS, len(rows))
    lines = -(-len(rows) // columns)
    figure, grid = style.grid(lines, columns, style.DOUBLE_WIDTH, 0.3 + 2.0 * lines)
    for axes in grid.ravel()[len(rows) :]:
        axes.set_visible(False)
    mesh = None
    for axes, row in zip(grid.ravel(), rows, strict=False):
        weights = np.array(row["weights"])
        mesh = axes.imshow(weights, vmin=0, vmax=1, cmap="cividis", interpolation="nearest")
        axes.set_title(f"{_LOOKS[row['role']].label}: L{row['layer']}H{row['head']}")
        names = [token.strip() or "_" for token in row["tokens"]]
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=4)
        axes.set_yticks(range(len(names)), names, fontsize=4)
        axes.tick_params(length=0, pad=1)
    if mesh is not None:
        figure.colorbar(mesh, ax=grid.ravel().tolist(), shrink=0.6, aspect=30, pad=0.01, label="attention")
    caption = (
        f"{label(model)}: attention of the most typical head of each role (rows attend columns), on one sentence; of "
        "the induction head on its first tokens, repeated."
    )
    return figure, caption
