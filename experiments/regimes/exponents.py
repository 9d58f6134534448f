"""Exponents of ``D_K ~ m^a d^-b`` by least squares in logarithms, with bootstrap intervals over sizes and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

_DRAWS = 4000
_SEED = 7


def fit(
    items: Float[np.ndarray, " n"], widths: Float[np.ndarray, " n"], budgets: Float[np.ndarray, " n"]
) -> tuple[float, float]:
    """``a`` and ``b`` of the plane through the logarithms (an empirical law).

    Raises:
        ValueError: if the sizes do not tell m from d, or a number is not positive.
    """
    for name, values in (("items", items), ("widths", widths), ("budgets", budgets)):
        if not (np.asarray(values) > 0).all():
            raise ValueError(f"{name}: expected positive numbers, got {values}")
    design = np.stack([np.ones(len(items)), np.log(items), -np.log(widths)], axis=1)
    solution, _, rank, _ = np.linalg.lstsq(design, np.log(budgets), rcond=None)
    if rank < 3:
        raise ValueError(
            f"items, widths: expected sizes that tell m from d, got {list(zip(items, widths, strict=True))}"
        )
    return float(solution[1]), float(solution[2])


def bootstrap(
    sizes: Sequence[tuple[int, int]],
    budgets: Sequence[Sequence[float]],
    predictions: Mapping[str, Sequence[float]],
) -> dict[str, dict[str, float]]:
    """Exponents measured and predicted at the same sizes, and of their differences, each with a 95% interval.

    Sizes are drawn with replacement, then seeds of each; a draw whose sizes do not tell m from d is made again. Every
    prediction is fitted to the same drawn sizes, so that differences are paired.

    Args:
        sizes: (m, d).
        budgets: of each size, one a seed.
        predictions: by name, of each size.

    Returns:
        By name (``measured`` first), ``a``, ``b``, their ``_low`` and ``_high``, and for predictions the same of
        ``a_minus`` and ``b_minus``, measured less predicted.

    Raises:
        ValueError: as `fit`.
    """
    m, d = np.array(sizes, float).T
    by_name = {name: np.array(values, float) for name, values in predictions.items()}
    means = np.array([np.mean(own) for own in budgets])
    points = {"measured": fit(m, d, means)} | {name: fit(m, d, own) for name, own in by_name.items()}
    rng = np.random.default_rng(_SEED)
    draws: dict[str, list[tuple[float, float]]] = {name: [] for name in points}
    while len(draws["measured"]) < _DRAWS:
        chosen = rng.integers(len(sizes), size=len(sizes))
        drawn = np.array([np.mean(rng.choice(budgets[i], size=len(budgets[i]))) for i in chosen])
        try:
            found = {"measured": fit(m[chosen], d[chosen], drawn)}
        except ValueError:
            continue
        found |= {name: fit(m[chosen], d[chosen], own[chosen]) for name, own in by_name.items()}
        for name, pair in found.items():
            draws[name].append(pair)
    every = {name: np.array(pairs) for name, pairs in draws.items()}
    rows = {}
    for name in points:
        row = _row(("a", "b"), points[name], every[name])
        if name != "measured":
            less = np.array(points["measured"]) - np.array(points[name])
            row |= _row(("a_minus", "b_minus"), less, every["measured"] - every[name])
        rows[name] = row
    return rows


def _row(names: Sequence[str], values: Sequence[float] | np.ndarray, draws: np.ndarray) -> dict[str, float]:
    low, high = np.quantile(draws, (0.025, 0.975), axis=0)
    row = {}
    for i, name in enumerate(names):
        row |= {name: float(values[i]), f"{name}_low": float(low[i]), f"{name}_high": float(high[i])}
    return row
