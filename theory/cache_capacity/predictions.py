"""Cache that a fixed even partition is predicted to need, and the largest permutation that a cache holds."""

from __future__ import annotations

import numpy as np

from theory._numbers import (
    Numbers,
    Result,
    Values,
    broadcast,
    edge_count,
    integer,
    integers,
    positive,
    result,
    solve_increasing,
)
from theory.bounds import matrix_width
from theory.bounds.gardner import requirement
from theory.cache_capacity.parameters import Array, group_of, head_dim_of, latent_dim_of
from theory.cache_capacity.widths import by_table, each, latent_value, latent_width, shared_key_width


def _needed(
    num_items: Numbers, num_edges: Numbers, d_model: Numbers, num_heads: Numbers, **last: Array
) -> tuple[Array, Array, Array, Array]:
    """(n_h, d, h, last) in one shape."""
    m, edges, d, h, other = broadcast(
        num_items=integer("num_items", num_items, 2),
        **integers(num_edges=num_edges, d_model=d_model, num_heads=num_heads),
        **last,
    )
    return np.asarray(requirement(edge_count(edges, m) / h, m * m - edges)), d, h, other


def shared_key_cache_dims(
    num_items: Numbers, num_edges: Numbers, d_model: Numbers, num_heads: Numbers, num_kv_heads: Numbers
) -> Result:
    """Cached key dimensions ``C = g d_k`` at which a fixed even partition is held, by width.

    A *prediction* (ours), real; `theory.bounds.partition_total_key_dim` where ``g = h``. The theorem at ``d_k = 1``
    (`theory.bounds.one_dimensional_cap`) is not applied.

    Args:
        num_items: m, an integer of at least 2.
        num_edges: m', a positive integer of at most m (m - 1).
        d_model: d, a positive integer.
        num_heads: h, a positive integer.
        num_kv_heads: g, a divisor of h.

    Returns:
        C in (0, g d], or inf where this partition fails even at d_k = d.

    Raises:
        ValueError: a size out of range.
    """
    needed, d, h, g = _needed(
        num_items, num_edges, d_model, num_heads, num_kv_heads=integer("num_kv_heads", num_kv_heads)
    )
    return result(g * by_table(d, group_of(h, g), needed, _inverse))


def _inverse(width: np.ndarray, table: np.ndarray) -> np.ndarray:
    return np.interp(width, table, np.arange(len(table)), right=np.inf)


def latent_cache_dims(
    num_items: Numbers, num_edges: Numbers, d_model: Numbers, num_heads: Numbers, head_dim: Numbers
) -> Result:
    """Latent dimensions ``C = d_c`` at which a fixed even partition is held, by width, with heads of rank ``d_k``.

    A *prediction* (ours), real. Infinite where heads of that rank with keys of their own do not hold it either.

    Args:
        num_items: m, an integer of at least 2.
        num_edges: m', a positive integer of at most m (m - 1).
        d_model: d, a positive integer.
        num_heads: h, a positive integer.
        head_dim: d_k, a positive integer.

    Returns:
        d_c in (0, min(d, h d_k)], or inf.

    Raises:
        ValueError: a size out of range.
    """
    needed, d, h, k = _needed(
        num_items, num_edges, d_model, num_heads, head_dim=integer("head_dim", head_dim)
    )
    return result(each(_latent_dim, needed, d, h, k))


def _latent_dim(needed: float, d: float, h: float, k: float) -> float:
    k, low, high = min(k, d), 0, int(min(d, h * k))
    if float(matrix_width(int(d), k)) < needed:
        return np.inf
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if latent_value(int(d), int(h), int(k), middle) < needed else (low, middle)
    before = latent_value(int(d), int(h), int(k), low) if low else 0.0
    after = latent_value(int(d), int(h), int(k), high)
    return low + (needed - before) / (after - before)


def shared_key_parameter_cache_dims(
    num_items: Numbers, num_edges: Numbers, d_model: Numbers, num_heads: Numbers, num_kv_heads: Numbers
) -> Result:
    """Cached key dimensions at which a head's share of the parameters equals what a fixed even partition asks for.

    `theory.bounds.parameter_count_total_key_dim` where ``g = h``, there an *empirical law* of joint gradient descent;
    elsewhere its extrapolation, a *prediction* (ours).

    Args:
        num_items: m, an integer of at least 2.
        num_edges: m', a positive integer of at most m (m - 1).
        d_model: d, a positive integer.
        num_heads: h, a positive integer.
        num_kv_heads: g, a divisor of h.

    Returns:
        C as a real number, or inf where ``n_h > d^2``.

    Raises:
        ValueError: a size out of range.
    """
    needed, d, h, g = _needed(
        num_items, num_edges, d_model, num_heads, num_kv_heads=integer("num_kv_heads", num_kv_heads)
    )
    group_of(h, g)
    return result(g * head_dim_of(h * needed, d, h, g))


def latent_parameter_cache_dims(
    num_items: Numbers, num_edges: Numbers, d_model: Numbers, num_heads: Numbers, head_dim: Numbers
) -> Result:
    """Latent dimensions at which a head's share of the parameters equals what a fixed even partition asks for.

    A *prediction* (ours): the law of joint training (`theory.bounds.parameter_count_total_key_dim`) extrapolated.

    Args:
        num_items: m, an integer of at least 2.
        num_edges: m', a positive integer of at most m (m - 1).
        d_model: d, a positive integer.
        num_heads: h, a positive integer.
        head_dim: d_k, a positive integer.

    Returns:
        d_c as a real number, or inf where heads of that rank have too few parameters with keys of their own.

    Raises:
        ValueError: a size out of range.
    """
    needed, d, h, k = _needed(
        num_items, num_edges, d_model, num_heads, head_dim=integer("head_dim", head_dim)
    )
    return result(latent_dim_of(h * needed, d, h, k))


def _max_items(width: Values, h: Values) -> Values:
    """The permutation whose share of one of ``h`` heads asks for ``width``."""
    high = np.maximum(h * width, 2.0)  # n(p, q) >= p for p <= q
    return np.asarray(solve_increasing(lambda m: requirement(m / h, m * m - m), width, np.ones_like(h), high))


def shared_key_max_items(
    d_model: Numbers, num_heads: Numbers, num_kv_heads: Numbers, cache_dims: Numbers
) -> Result:
    """Largest permutation that ``h`` heads with ``g`` key heads hold at a cache of ``C = g d_k`` key dimensions.

    The inverse of `shared_key_cache_dims`: a *prediction* (ours) for a fixed even partition, a lower estimate where
    heads choose their edges.

    Args:
        d_model: d, a positive integer.
        num_heads: h, a positive integer.
        num_kv_heads: g, a divisor of h.
        cache_dims: C > 0, real; beyond g d more does not help.

    Returns:
        m as a real number, the number of items and of edges.

    Raises:
        ValueError: a size out of range.
    """
    d, h, g, c = broadcast(
        **integers(d_model=d_model, num_heads=num_heads, num_kv_heads=num_kv_heads),
        cache_dims=positive("cache_dims", cache_dims),
    )
    width = np.asarray(shared_key_width(d, h, g, c / g))
    return result(_max_items(width, h))


def latent_max_items(d_model: Numbers, num_heads: Numbers, head_dim: Numbers, latent_dim: Numbers) -> Result:
    """Largest permutation that ``h`` heads of rank ``d_k`` hold with a latent of ``d_c`` dimensions.

    The inverse of `latent_cache_dims`; see `shared_key_max_items`.

    Args:
        d_model: d, a positive integer.
        num_heads: h, a positive integer.
        head_dim: d_k, a positive integer.
        latent_dim: d_c > 0, real.

    Returns:
        m as a real number, the number of items and of edges.

    Raises:
        ValueError: a size out of range.
    """
    width = np.asarray(latent_width(d_model, num_heads, head_dim, latent_dim))
    h = np.broadcast_to(integer("num_heads", num_heads), width.shape)
    return result(_max_items(width, h))
