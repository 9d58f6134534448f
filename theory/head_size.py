r"""How many heads of a given size a graph needs, and where one head is as good as many.

A head of size ``d_k`` holds ``p`` edges of its own against all ``q = m^2 - m'`` non-edges when its squared Gaussian
width ``w2(d_k)`` is at least ``n(p, q)`` (`theory.bounds`). So edges dealt out evenly need ``h = m'/p`` heads:

    h(d_k) = m' / p,    w2(d_k) = n(p, m^2 - m')

a *prediction* (ours) for dealt edges, an upper estimate where heads choose theirs. With the ``d_k (2 d - d_k)``
parameters in place of the width it is the *empirical law* of joint descent. ``n(p, q)/p`` is about ``2 ln(q/p)`` and
falls as a head holds more, so both budgets fall faster than ``1/d`` and grow faster than ``m' ln m'``. Channels of
heads that choose their edges do not: the experiment `regimes` measures exponents near those of ``m ln m / d``.

One head against many: with ``D_1`` the budget of one head and ``D`` that of the best even partition into heads of at
least two dimensions, `gain` is ``D_1 / D``. It is 1 where few edges are asked of many dimensions, grows on the way to
the single head's ceiling and is infinite beyond.
"""

from __future__ import annotations

import math

from scipy.optimize import brentq

from theory.bounds import (
    matrix_width,
    partition_head_dim,
    partition_total_key_dim,
    single_head_max_items,
    width_requirement,
)

LEAST_HEAD_DIM = 2
"""A one-dimensional head holds two edges of a permutation at most (theorem): no partition that counts on it."""


def heads_of_size(num_items: int, num_edges: int, d_model: int, head_dim: int) -> float:
    """Heads of size ``head_dim`` over which the edges can be dealt out, by width (*prediction*, ours).

    Args:
        num_items: m.
        num_edges: m'.
        d_model: d.
        head_dim: d_k.

    Returns:
        h as a real number, at least 1.

    Raises:
        ValueError: a size out of range.
    """
    return _heads(num_items, num_edges, matrix_width(d_model, head_dim))


def heads_by_parameters(num_items: int, num_edges: int, d_model: int, head_dim: int) -> float:
    """The same with a head's parameters ``d_k (2 d - d_k)`` for its width (*empirical law* of joint descent).

    Args:
        num_items: m.
        num_edges: m'.
        d_model: d.
        head_dim: d_k.

    Returns:
        h as a real number, at least 1.

    Raises:
        ValueError: a size out of range.
    """
    matrix_width(d_model, head_dim)  # checks both
    k = min(head_dim, d_model)
    return _heads(num_items, num_edges, float(k * (2 * d_model - k)))


def _heads(num_items: int, num_edges: int, freedom: float) -> float:
    non_edges = num_items**2 - num_edges
    if not 1 <= num_edges <= num_items * (num_items - 1):
        raise ValueError(
            f"num_edges: expected an integer from 1 to m (m - 1) = {num_items * (num_items - 1)}, got {num_edges}"
        )

    def missing(own: float) -> float:
        return width_requirement(own, non_edges) - freedom

    if missing(float(num_edges)) <= 0:
        return 1.0
    own = brentq(missing, 1e-9, float(num_edges), xtol=1e-12)
    return num_edges / float(own)  # pyright: ignore[reportArgumentType]


def partition_budget(num_items: int, num_edges: int, d_model: int) -> tuple[float, int]:
    """Least budget of an even partition into heads of at least two dimensions, over all head counts, and its count.

    A *prediction* (ours). One head may be of one dimension: ``h = 1`` deals nothing out.

    Args:
        num_items: m.
        num_edges: m'.
        d_model: d.

    Returns:
        D_K as a real number, and h. ``(inf, 0)`` is not possible: with one edge a head every graph has a partition
        that is predicted to hold, unless d is too small for a single edge.

    Raises:
        ValueError: a size out of range.
    """
    best, heads = partition_head_dim(num_items, num_edges, d_model, 1), 1
    h, since = 2, 0
    while h <= num_edges and (since < 20 or math.isinf(best)):
        budget = max(float(LEAST_HEAD_DIM * h), partition_total_key_dim(num_items, num_edges, d_model, h))
        if budget < best:
            best, heads, since = budget, h, 0
        else:
            since += 1
        h += 1
    return best, heads


def gain(num_items: int, num_edges: int, d_model: int) -> float:
    """Predicted budget of one head over that of the best even partition: at least 1, infinite above the ceiling.

    A *prediction* (ours).

    Args:
        num_items: m.
        num_edges: m'.
        d_model: d.

    Raises:
        ValueError: a size out of range.
    """
    return (
        partition_head_dim(num_items, num_edges, d_model, 1)
        / partition_budget(num_items, num_edges, d_model)[0]
    )


def gain_boundary(d_model: int, least_gain: float) -> float:
    """Items of a permutation above which one head is predicted to need ``least_gain`` times the best budget.

    A *prediction* (ours): between 2 and the single head's ceiling. Linear between whole numbers of items.

    Args:
        d_model: d.
        least_gain: above 1.

    Raises:
        ValueError: a gain that is not above 1, or a size out of range.
    """
    if not least_gain > 1:
        raise ValueError(f"least_gain: expected a number above 1, got {least_gain}")
    ceiling = single_head_max_items(d_model)
    low, high = 2, max(3, math.ceil(ceiling))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if gain(middle, middle, d_model) >= least_gain else (middle, high)
    first, second = gain(low, low, d_model), gain(high, high, d_model)
    share = 1.0 if math.isinf(second) else (least_gain - first) / (second - first)
    return min(ceiling, low + share * (high - low))
