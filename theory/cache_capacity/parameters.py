"""Degrees of freedom of heads that share their keys, what they cache, and what a budget of either pays for."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from theory._numbers import (
    Numbers,
    Result,
    Values,
    broadcast,
    integer,
    integers,
    nonnegative,
    positive,
    result,
    solve_increasing,
)

Array = Float[np.ndarray, "..."]


def group_of(num_heads: Array, num_kv_heads: Array) -> Array:
    """Query heads of one key head.

    Raises:
        ValueError: key heads that do not divide the query heads.
    """
    bad = num_heads % num_kv_heads != 0
    if np.any(bad):
        heads, keys = num_heads[bad].flat[0], num_kv_heads[bad].flat[0]
        raise ValueError(f"num_kv_heads: expected a divisor of num_heads = {heads:g}, got {keys:g}")
    return np.asarray(num_heads / num_kv_heads)


def shared_key_parameters(
    d_model: Numbers, num_heads: Numbers, num_kv_heads: Numbers, head_dim: Numbers
) -> Result:
    """Degrees of freedom of ``h`` heads with ``g`` key heads: ``h d d_k + g d_k (d - d_k)``, constant beyond d.

    Args:
        d_model: d, a positive integer.
        num_heads: h, a positive integer.
        num_kv_heads: g, a divisor of h.
        head_dim: d_k > 0, real.

    Raises:
        ValueError: a size out of range.
    """
    d, h, g, k = broadcast(
        **integers(d_model=d_model, num_heads=num_heads, num_kv_heads=num_kv_heads),
        head_dim=positive("head_dim", head_dim),
    )
    group_of(h, g)
    k = np.minimum(k, d)
    return result(h * d * k + g * k * (d - k))


def latent_parameters(d_model: Numbers, num_heads: Numbers, head_dim: Numbers, latent_dim: Numbers) -> Result:
    """Degrees of freedom of ``h`` heads that read a latent: ``h d_k (d + d_c - d_k) + d_c (d - d_c)``.

    A latent wider than ``min(d, h d_k)`` is one of that width; a head dimension beyond ``d_c`` is one of ``d_c``.

    Args:
        d_model: d, a positive integer.
        num_heads: h, a positive integer.
        head_dim: d_k > 0, real.
        latent_dim: d_c > 0, real.

    Raises:
        ValueError: a size out of range.
    """
    d, h, k, c = broadcast(
        **integers(d_model=d_model, num_heads=num_heads),
        head_dim=positive("head_dim", head_dim),
        latent_dim=positive("latent_dim", latent_dim),
    )
    return result(count_latent(d, h, k, c))


def count_latent(d: Values, h: Values, k: Values, c: Values) -> Values:
    """`latent_parameters` of checked arrays."""
    c = np.minimum(c, np.minimum(d, h * k))
    k = np.minimum(k, c)
    return h * k * (d + c - k) + c * (d - c)


def cached_dims(num_kv_heads: Numbers, head_dim: Numbers, value_head_dim: Numbers = 0) -> Result:
    """Dimensions that ``g`` key heads keep of a token: ``g (d_k + d_v)``; ``d_v = 0`` for keys alone.

    (A latent serves keys and values alike: it keeps ``d_c``, with values or without.)

    Args:
        num_kv_heads: g, a positive integer.
        head_dim: d_k > 0, real.
        value_head_dim: d_v, real, at least 0.

    Raises:
        ValueError: a size out of range.
    """
    g, k, v = broadcast(
        num_kv_heads=integer("num_kv_heads", num_kv_heads),
        head_dim=positive("head_dim", head_dim),
        value_head_dim=nonnegative("value_head_dim", value_head_dim),
    )
    return result(g * (k + v))


def head_dim_of(parameters: Values, d: Values, h: Values, g: Values) -> Values:
    """`shared_key_head_dim` of checked arrays, infinite beyond d_k = d."""
    linear = d * (h + g)
    root = np.sqrt(np.maximum(linear**2 - 4 * g * parameters, 0))
    return np.where(parameters <= h * d * d, 2 * parameters / (linear + root), np.inf)


def shared_key_head_dim(
    d_model: Numbers, num_heads: Numbers, num_kv_heads: Numbers, num_parameters: Numbers
) -> Result:
    """Head dimension that a budget of parameters pays for: the inverse of `shared_key_parameters`.

    Args:
        d_model: d, a positive integer.
        num_heads: h, a positive integer.
        num_kv_heads: g, a divisor of h.
        num_parameters: degrees of freedom > 0, real.

    Returns:
        d_k in (0, d], d for any larger budget.

    Raises:
        ValueError: a size out of range.
    """
    d, h, g, p = broadcast(
        **integers(d_model=d_model, num_heads=num_heads, num_kv_heads=num_kv_heads),
        num_parameters=positive("num_parameters", num_parameters),
    )
    group_of(h, g)
    return result(np.minimum(head_dim_of(p, d, h, g), d))


def latent_dim_of(parameters: Values, d: Values, h: Values, k: Values) -> Values:
    """`latent_dim_of_parameters` of checked arrays, infinite beyond the largest latent of use."""
    high = np.minimum(d, h * k)
    enough = parameters <= count_latent(d, h, k, high)
    found = solve_increasing(
        lambda c: count_latent(d, h, k, np.asarray(c)), parameters, np.zeros_like(d), high
    )
    return np.where(enough, found, np.inf)


def latent_dim_of_parameters(
    d_model: Numbers, num_heads: Numbers, head_dim: Numbers, num_parameters: Numbers
) -> Result:
    """Latent dimensions that a budget of parameters pays for, at heads of rank ``d_k``: inverse of `latent_parameters`.

    Args:
        d_model: d, a positive integer.
        num_heads: h, a positive integer.
        head_dim: d_k, a positive integer.
        num_parameters: degrees of freedom > 0, real.

    Returns:
        d_c in (0, min(d, h d_k)], the upper end for any larger budget.

    Raises:
        ValueError: a size out of range.
    """
    d, h, k, p = broadcast(
        **integers(d_model=d_model, num_heads=num_heads, head_dim=head_dim),
        num_parameters=positive("num_parameters", num_parameters),
    )
    return result(np.minimum(latent_dim_of(p, d, h, k), np.minimum(d, h * k)))
