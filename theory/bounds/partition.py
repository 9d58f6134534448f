r"""Many heads with their edges dealt out beforehand, and the law that plain joint descent follows.

Fixed even partition: each of ``h`` heads is given ``m'/h`` edges at random and must put all ``m^2 - m'``
non-edges below the common threshold; the other heads' edges do not bind it. With

    P_h = m^2 - m' (1 - 1/h),   f_h = (m'/h) / P_h,   n_h = P_h / alpha_c(f_h) = n(m'/h, m^2 - m')

the head dimension solves ``w2(d_k) = n_h`` and the budget is ``D_K = h d_k``. A *prediction* (ours) for this
partition, and an *upper estimate* of what the task needs, because heads may choose their edges. Infinite
means that this partition fails at ``d_k = d``, not that no channel exists.

Parameter count: the same with the parameters ``d_k (2 d - d_k)`` of a rank-``d_k`` matrix in place of its
width. An *empirical law* (ours) of plain joint descent at about 3 to 8 heads, not a limit of the channel.
"""

from typing import Any, overload

import numpy as np
from jaxtyping import Float

from theory._numbers import (
    Numbers,
    Result,
    Scalar,
    broadcast,
    edge_count,
    integer,
    integers,
    positive,
    result,
    solve_increasing,
)
from theory.bounds.gardner import requirement
from theory.bounds.width import head_dim_of, width_of


def _share_requirement(
    num_items: Numbers, num_edges: Numbers, d_model: Numbers, num_heads: Numbers
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """(n_h, d, h) of one head's share, in one shape."""
    m, edges, d, h = broadcast(
        num_items=integer("num_items", num_items, 2),
        **integers(num_edges=num_edges, d_model=d_model, num_heads=num_heads),
    )
    return np.asarray(requirement(edge_count(edges, m) / h, m * m - edges)), d, h


@overload
def partition_head_dim(num_items: Scalar, num_edges: Scalar, d_model: Scalar, num_heads: Scalar) -> float: ...
@overload
def partition_head_dim(
    num_items: Numbers, num_edges: Numbers, d_model: Numbers, num_heads: Numbers
) -> Any: ...
def partition_head_dim(
    num_items: Numbers, num_edges: Numbers, d_model: Numbers, num_heads: Numbers
) -> Result:
    """Head dimension at which a fixed even partition of the edges is held, by width.

    A *prediction* (ours); see the module's docstring. It is a real number and may be below 1, where even
    one dimension is more than the width asks for; that ``d_k = 1`` holds two edges a head at most is not
    applied here.

    Args:
        num_items: m, an integer of at least 2.
        num_edges: m', a positive integer of at most m (m - 1).
        d_model: d, a positive integer.
        num_heads: h, a positive integer.

    Returns:
        d_k in (0, d], or inf where this partition fails even at d_k = d.

    Raises:
        ValueError: a size out of range.
    """
    needed, d, _ = _share_requirement(num_items, num_edges, d_model, num_heads)
    return result(head_dim_of(d, needed))


@overload
def partition_total_key_dim(
    num_items: Scalar, num_edges: Scalar, d_model: Scalar, num_heads: Scalar
) -> float: ...
@overload
def partition_total_key_dim(
    num_items: Numbers, num_edges: Numbers, d_model: Numbers, num_heads: Numbers
) -> Any: ...
def partition_total_key_dim(
    num_items: Numbers, num_edges: Numbers, d_model: Numbers, num_heads: Numbers
) -> Result:
    """Budget ``D_K = h d_k`` of `partition_head_dim`.

    A *prediction* (ours) for a fixed partition, an upper estimate where heads choose their edges. With many
    heads it may lie below ``2 h``, where ``d_k = 1`` and `theory.bounds.one_dimensional_cap` excludes it: that
    theorem is not applied here.

    Args:
        num_items: m, an integer of at least 2.
        num_edges: m', a positive integer of at most m (m - 1).
        d_model: d, a positive integer.
        num_heads: h, a positive integer.

    Returns:
        D_K as a real number, or inf where this partition fails.

    Raises:
        ValueError: a size out of range.
    """
    needed, d, h = _share_requirement(num_items, num_edges, d_model, num_heads)
    return result(h * head_dim_of(d, needed))


@overload
def parameter_count_total_key_dim(
    num_items: Scalar, num_edges: Scalar, d_model: Scalar, num_heads: Scalar
) -> float: ...
@overload
def parameter_count_total_key_dim(
    num_items: Numbers, num_edges: Numbers, d_model: Numbers, num_heads: Numbers
) -> Any: ...
def parameter_count_total_key_dim(
    num_items: Numbers, num_edges: Numbers, d_model: Numbers, num_heads: Numbers
) -> Result:
    """Budget at which the heads' parameters equal what a fixed even partition asks for.

    ``D_K = h d_k`` with ``d_k (2 d - d_k) = n_h``. An *empirical law* (ours) of plain joint descent;
    better trainers stay far below it.

    Args:
        num_items: m, an integer of at least 2.
        num_edges: m', a positive integer of at most m (m - 1).
        d_model: d, a positive integer.
        num_heads: h, a positive integer.

    Returns:
        D_K as a real number, or inf where ``n_h > d^2``, more than any head has.

    Raises:
        ValueError: a size out of range.
    """
    needed, d, h = _share_requirement(num_items, num_edges, d_model, num_heads)
    rest = np.maximum(d * d - needed, 0)
    return result(np.where(needed <= d * d, h * needed / (d + np.sqrt(rest)), np.inf))


@overload
def partition_max_edges(num_items: Scalar, d_model: Scalar, num_heads: Scalar, head_dim: Scalar) -> float: ...
@overload
def partition_max_edges(
    num_items: Numbers, d_model: Numbers, num_heads: Numbers, head_dim: Numbers
) -> Any: ...
def partition_max_edges(
    num_items: Numbers, d_model: Numbers, num_heads: Numbers, head_dim: Numbers
) -> Result:
    """Edges of a random graph that a layer holds by a fixed even partition: the inverse of `partition_head_dim`.

    The least ``m'`` with ``n_h(m') >= w2(d_k)``. A *prediction* (ours); see the module's docstring. ``n_h`` is concave
    in ``m'`` (a minimum over thresholds of linear functions), so that it crosses on its way up or not at all.

    Args:
        num_items: m, an integer of at least 2.
        d_model: d, a positive integer.
        num_heads: h, a positive integer.
        head_dim: d_k > 0, real.

    Returns:
        m' as a real number, at most m (m - 1): every graph on the items, where the width is never exceeded.

    Raises:
        ValueError: a size out of range.
    """
    m, d, h, k = broadcast(
        num_items=integer("num_items", num_items, 2),
        **integers(d_model=d_model, num_heads=num_heads),
        head_dim=positive("head_dim", head_dim),
    )
    return max_edges(m, h, width_of(d, k))


def max_edges(num_items: Numbers, num_heads: Numbers, width: Numbers) -> Result:
    """The same for heads that have a squared Gaussian width of ``width`` each, whatever they are made of.

    Args:
        num_items: m, an integer of at least 2.
        num_heads: h, a positive integer.
        width: w2 > 0 of one head.

    Returns:
        m' as a real number, at most m (m - 1).

    Raises:
        ValueError: a size out of range.
    """
    m, h, w2 = broadcast(
        num_items=integer("num_items", num_items, 2),
        num_heads=integer("num_heads", num_heads),
        width=positive("width", width),
    )

    def needed(edges: Any) -> Any:
        return requirement(edges / h, m * m - edges)

    low, high = np.zeros(m.shape), m * (m - 1.0)
    most = high
    for _ in range(120):  # a third less each time: to the last bits
        left, right = low + (high - low) / 3, high - (high - low) / 3
        up = needed(left) < needed(right)
        low, high = np.where(up, left, low), np.where(up, high, right)
    peak = 0.5 * (low + high)
    return result(np.where(needed(peak) <= w2, most, solve_increasing(needed, w2, np.zeros(m.shape), peak)))
