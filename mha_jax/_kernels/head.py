"""What an attention kernel is given, and the logits of a tile of one head.

A kernel sees one head of one example: queries ``(T, D)``, keys ``(S, D)``, values ``(S, E)``. `map_heads` maps it
over leading axes; an axis of size 1 of an operand is shared, never repeated, which is how query heads of a group
share their keys and how masks and biases broadcast. No axis is merged with another, so that batch and heads stay
sharded as they came.

Restrictions of which key a query may attend are kept in the form that costs least: causality and windows are a
band ``lower <= s - t - offset <= upper``, lengths are scalars, and only a mask or bias that was given is an array.
They are evaluated for a tile (some rows, some columns) from the positions of its rows and columns, so the dense
kernel, with one tile, and the blockwise one, with many, cannot disagree. So is dropout: whether a weight is kept
depends on the head's key and its position alone.
"""

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.random import threefry2x32_p
from jaxtyping import Array, Bool, Float, Int32, UInt32

In = TypeVar("In")
Out = TypeVar("Out")


class Operands(NamedTuple):
    """Arrays of one head of one example, or of all of them with the same leading axes ``(..., K, G)``.

    Only the blockwise kernel takes keys and values as they came, ``(..., S, K, D)`` and ``(..., S, K, E)``.

    Attributes:
        query: (T, D), multiplied by the scale, in the dtype of the logits.
        key: (S, D), in the dtype of the logits.
        value: (S, E), in the dtype of the logits.
        bias: (T or 1, S or 1), in the dtype of the logits; -inf masks.
        mask: bool (T or 1, S or 1); True attends.
        offset: int32 scalar, position of query 0, added to what the band holds.
        query_length: int32 scalar; queries from here on attend nothing.
        key_length: int32 scalar; keys from here on are not attended.
        dropout_words: two uint32, the head's key; None for no dropout.
        read: which keys and values some query of the example attends; others may hold anything. Given only with keys
            and values as they came (`Plan.as_they_came`); None where all are finite.
    """

    query: Float[Array, "*heads T D"]
    key: Float[Array, "*heads S D"]
    value: Float[Array, "*heads S E"]
    bias: Float[Array, "*heads Tb Sb"] | None = None
    mask: Bool[Array, "*heads Tm Sm"] | None = None
    offset: Int32[Array, "*heads"] | None = None
    query_length: Int32[Array, "*heads"] | None = None
    key_length: Int32[Array, "*heads"] | None = None
    dropout_words: UInt32[Array, "*heads 2"] | None = None
    read: Bool[Array, "*heads S"] | None = None


class Options(NamedTuple):
    """What is known when the kernel is traced.

    Attributes:
        lower: least ``s - t - offset`` attended, None for no limit.
        upper: greatest ``s - t - offset`` attended, None for no limit.
        soft_cap: logits become ``soft_cap * tanh(logits / soft_cap)`` before the bias is added.
        dropout_rate: probability that a weight is dropped.
        precision: of the matrix products, as in ``jax.lax``.
    """

    lower: int | None = None
    upper: int | None = None
    soft_cap: float | None = None
    dropout_rate: float = 0.0
    precision: Any = None


def map_heads(kernel: Callable[[In], Out], operands: In, sizes: tuple[Any, ...]) -> Out:
    """Map a kernel of one head over leading axes of ``sizes``; operands share axes in which their size is 1."""
    if not sizes:
        return kernel(operands)
    axes = jax.tree.map(lambda x: 0 if x.shape[0] == sizes[0] else None, operands)
    own = jax.tree.map(lambda x: x if x.shape[0] == sizes[0] else x[0], operands)
    inner = jax.vmap(lambda each: map_heads(kernel, each, sizes[1:]), in_axes=(axes,), axis_size=sizes[0])
    return inner(own)


def tile_scores(operands: Operands, options: Options) -> Array:
    """Scores of a tile, soft-capped: what a bias is added to."""
    scores = product(operands.query, operands.key, (1, 1), options)
    if options.soft_cap is None:
        return scores
    return options.soft_cap * jnp.tanh(scores / options.soft_cap)


def tile_logits(scores: Array, operands: Operands, options: Options, rows: Array, columns: Array) -> Array:
    """Logits of a tile, -inf where masked.

    Args:
        scores: of the tile.
        operands: those of the tile's queries and keys; bias and mask are the tile's own.
        options: of the call.
        rows: int32, positions of the tile's queries.
        columns: int32, positions of the tile's keys.
    """
    logits = scores if operands.bias is None else scores + operands.bias
    visible = tile_visible(operands, options, rows, columns)
    return logits if visible is None else jnp.where(visible, logits, -jnp.inf)


def split_heads(x: Array, kv_heads: int) -> Array:
    """(..., T, N, D) to (..., K, G, T, D); of keys and values, which have K heads, to (..., K, 1, S, D)."""
    group = x.shape[-2] // kv_heads
    x = x.reshape(*x.shape[:-2], kv_heads, group, x.shape[-1])
    return jnp.moveaxis(x, -4, -2)


def zero_unless(read: Any, x: Array) -> Array:
    """``x`` (..., positions, width) where ``read`` (..., positions), which broadcasts, is true; else 0."""
    return jnp.where(read[..., None], x, jnp.zeros_like(x))


def product(left: Array, right: Array, contracted: tuple[int, int], options: Options) -> Array:
    """Product of two matrices, contracted over one axis of each."""
    dimensions = (((contracted[0],), (contracted[1],)), ((), ()))
    return lax.dot_general(left, right, dimensions, precision=options.precision)


def tile_visible(operands: Operands, options: Options, rows: Array, columns: Array) -> Array | None:
    """Which keys of a tile are attended, by everything but the bias. None: all of them.

    With leading axes, of which ``rows`` and ``columns`` have as many, it is that of every head.
    """
    tests = [] if operands.mask is None else [operands.mask]
    if options.lower is not None or options.upper is not None:
        distance = columns[..., None, :] - rows[..., :, None]
        if operands.offset is not None:
            distance = distance - operands.offset[..., None, None]
        if options.lower is not None:
            tests.append(distance >= options.lower)
        if options.upper is not None:
            tests.append(distance <= options.upper)
    if operands.query_length is not None:
        tests.append((rows < operands.query_length[..., None])[..., :, None])
    if operands.key_length is not None:
        tests.append((columns < operands.key_length[..., None])[..., None, :])
    return functools.reduce(operator.and_, tests) if tests else None


def drop(weights: Array, operands: Operands, options: Options, rows: Array, columns: Array) -> Array:
    """Weights of a tile after dropout: a kept one is divided by its probability to be kept.

    The 32 random bits of a weight are the cipher threefry-2x32 of its position (row, column) under the head's
    key: no matter which tile it is in, it meets the same fate.
    """
    if operands.dropout_words is None:
        return weights
    counters = jnp.broadcast_arrays(
        operands.dropout_words[0],
        operands.dropout_words[1],
        rows.astype(jnp.uint32)[:, None],
        columns.astype(jnp.uint32)[None, :],
    )
    bits, _ = threefry2x32_p.bind(*counters)
    dropped = bits < jnp.uint32(min(round(options.dropout_rate * 2**32), 2**32 - 1))
    return jnp.where(dropped, jnp.zeros_like(weights), weights / (1 - options.dropout_rate))
