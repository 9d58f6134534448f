"""Numbers of `theory.bounds` for the page: tables it cannot compute itself, points it is checked against."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from theory.bounds import (
    counting_bound,
    matrix_width,
    one_dimensional_cap,
    parameter_count_total_key_dim,
    partition_total_key_dim,
    warren_bound,
)
from theory.graphs import log2_num_permutation_graphs

D_MODEL = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Widths of the slider."""
NUM_HEADS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Head counts of the slider."""
NUM_ITEMS = (
    16,
    24,
    32,
    48,
    64,
    96,
    128,
    192,
    256,
    384,
    512,
    768,
    1024,
    2048,
    4096,
    8192,
    16384,
    32768,
    65536,
    131072,
)
"""Item counts of the slider."""
TOTAL_KEY_DIM = tuple(round(2 ** (i / 4)) for i in range(8, 57))
"""Budgets of the slider: 4 to 16,384."""
BITS = 32.0
"""A weight's bits, for the counting bound."""
TABLE_MAX = 32
"""Largest width whose table is from random matrices."""


def width_tables() -> dict[str, list[float]]:
    """``w2(k)``, ``k = 0 .. d``, for the slider's widths of at most `TABLE_MAX`."""
    return {
        str(d): [0.0, *np.asarray(matrix_width(d, np.arange(1, d + 1))).tolist()]
        for d in D_MODEL
        if d <= TABLE_MAX
    }


def point(num_items: int, d_model: int, num_heads: int) -> dict[str, Any]:
    """All bounds for a permutation, by the names that the page's script gives them; None for infinite."""
    bits = log2_num_permutation_graphs(num_items)
    cap = 2 * num_heads if one_dimensional_cap(num_heads) < num_items else num_heads
    values = {
        "counting": counting_bound(bits, d_model, BITS),
        "warren": warren_bound(bits, num_items, d_model, num_heads),
        "cap": float(cap),
        "partition": partition_total_key_dim(num_items, num_items, d_model, num_heads),
        "parameters": parameter_count_total_key_dim(num_items, num_items, d_model, num_heads),
    }
    theorem = max(values[name] for name in ("counting", "warren", "cap"))
    values |= {"theorem": theorem}
    sizes = {"items": num_items, "d": d_model, "heads": num_heads}
    return sizes | {name: float(value) if np.isfinite(value) else None for name, value in values.items()}


def points(every: int = 1) -> list[dict[str, Any]]:
    """`point` on the sliders' grid, or on every so-manieth of its points."""
    places: Iterable[tuple[int, int, int]] = (
        (m, d, h) for m in NUM_ITEMS for d in D_MODEL for h in NUM_HEADS
    )
    return [point(*place) for index, place in enumerate(places) if index % every == 0]
