"""Attention of one head with all its weights in memory: O(T S), differentiable to any order and in any mode.

The reference among the implementations, the one that can return its weights, and the fastest one for short
sequences. The softmax has its own derivative, which needs the weights alone: nothing else of size (T, S) is kept
for the backward pass, and a row without a key gets weights, output and gradients of zero rather than 0 / 0.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mha_jax._kernels.head import Operands, Options, drop, product, tile_logits, tile_scores


def dense_attention(operands: Operands, options: Options) -> tuple[Float[Array, "T E"], Float[Array, "T"]]:
    """Output and log-sum-exp of one head of one example; 0 and -inf in rows without a key."""
    weights, lse = dense_weights(operands, options)
    output = product(weights, operands.value, (1, 0), options)
    # Such an output is a constant: what comes back to it, NaN included, goes no further.
    return jnp.where(jnp.isneginf(lse)[:, None], jnp.zeros_like(output), output), lse


def dense_weights(operands: Operands, options: Options) -> tuple[Float[Array, "T S"], Float[Array, "T"]]:
    """Weights, after dropout if there is any, and log-sum-exp of one head of one example."""
    rows = jnp.arange(operands.query.shape[0], dtype=jnp.int32)
    columns = jnp.arange(operands.key.shape[0], dtype=jnp.int32)
    weights, lse = _softmax(tile_logits(tile_scores(operands, options), operands, options, rows, columns))
    return drop(weights, operands, options, rows, columns), lse


@jax.custom_jvp
def _softmax(logits: Float[Array, "T S"]) -> tuple[Float[Array, "T S"], Float[Array, "T"]]:
    """Softmax and log-sum-exp of rows; zeros and -inf in a row of -inf.

    Differentiating the formula itself would give 0 * inf = NaN in such a row.
    """
    top = jnp.max(logits, axis=-1, keepdims=True)
    top = jnp.where(jnp.isneginf(top), jnp.zeros_like(top), top)
    exponentials = jnp.exp(logits - top)
    total = jnp.sum(exponentials, axis=-1, keepdims=True)
    empty = total == 0
    total = jnp.where(empty, jnp.ones_like(total), total)
    lse = jnp.where(empty, -jnp.inf, jnp.log(total) + top)
    return exponentials / total, lse[:, 0]


@_softmax.defjvp
def _softmax_jvp(primals, tangents):
    weights, lse = _softmax(*primals)
    (tangent,) = tangents
    weighted = weights * tangent
    mean = jnp.sum(weighted, axis=-1)
    return (weights, lse), (weighted - weights * mean[:, None], mean)
