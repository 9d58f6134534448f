"""Softmax heads with a null key, by the kernels of `mha_jax`: weights, and values routed by them.

Letters: ``h`` heads, ``l`` items of the context, ``k`` head_dim, ``e`` width of values.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from mha_jax import attention_weights, dot_product_attention


def softmax_weights(
    queries: Float[Array, "h l k"],
    keys: Float[Array, "h l k"],
    threshold: Float[Array, ""] | float,
    scale: Float[Array, ""] | float,
) -> Float[Array, "h l l_plus_1"]:
    """Attention weights of every head; the last column is the null key's.

    Args:
        queries: of every head and item.
        keys: of every head and item.
        threshold: score ``tau`` of the null key.
        scale: ``beta``, by which scores are multiplied.
    """
    query, key, bias = _with_null(queries, keys, threshold, scale)
    return attention_weights(query, key, bias, scale=1.0)


def routed_values(
    queries: Float[Array, "h l k"],
    keys: Float[Array, "h l k"],
    values: Float[Array, "l e"],
    threshold: Float[Array, ""] | float,
    scale: Float[Array, ""] | float,
) -> Float[Array, "l e"]:
    """Sum over heads of the values' means, weighted by `softmax_weights`; the null key's value is 0.

    Args:
        queries: of every head and item.
        keys: of every head and item.
        values: the same for all heads.
        threshold: score ``tau`` of the null key.
        scale: ``beta``, by which scores are multiplied.
    """
    query, key, bias = _with_null(queries, keys, threshold, scale)
    value = jnp.concatenate([values, jnp.zeros_like(values[:1])])[:, None]
    value = jnp.broadcast_to(value, (len(value), queries.shape[0], values.shape[1]))
    return dot_product_attention(query, key, value, bias, scale=1.0, implementation="dense").sum(axis=1)


def _with_null(
    queries: Array, keys: Array, threshold: Array | float, scale: Array | float
) -> tuple[Array, Array, Array]:
    """Queries ``(l, h, k)``, keys ``(l + 1, h, k)``, the last zero, and the bias that puts it at ``beta tau``."""
    query = jnp.swapaxes(queries * scale, 0, 1)
    key = jnp.pad(jnp.swapaxes(keys, 0, 1), ((0, 1), (0, 0), (0, 0)))
    bias = jnp.zeros((1, 1, len(key)), query.dtype).at[0, 0, -1].set(threshold * scale)
    return query, key, bias
