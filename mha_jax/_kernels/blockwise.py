"""Attention in blocks with an online softmax: O(T + S) memory beside arguments and results, also for gradients.

Forwards, every block of queries visits its live blocks of keys and keeps, for each row, the greatest logit so far,
the sum of exponentials relative to it, and the sum of values weighted by them; when the greatest logit grows, both
sums are rescaled. What remains for the gradient are the arguments, the output, and for each row the greatest logit
and the sum of exponentials: the two halves of the log-sum-exp, which one number would round where it is large (under a
bias of -1e9 for a whole row, say).

Backwards, every block of keys visits its live blocks of queries. A tile's exponentials ``exp(logits - top)`` are
computed again; weights are these divided by the row's sum. With ``g`` the gradient of the output and ``delta = <g,
output> - gradient of lse`` for each row, the gradient of a logit is ``weight * (<g, value> - delta)``, and the rest are
matrix products. All are linear in ``(g, delta)``, so that these are divided by the sum rather than the tile. Gradients
of keys and values grow transposed, (D, keys), as products that need no transpose of a tile.

Where there is one block of queries, as in decoding, keys and values are read as they came (`Plan.as_they_came`): what
is not attended is zeroed, and heads are split, in the block that is visited, and no copy of all keys is made.

Loops over blocks are outside the map over heads and batch: which blocks are visited is decided once, and the gradient
of what heads share (keys of a group, a broadcast bias) is summed tile by tile. States are made from the
query (``zeros_like``), so that they are sharded as it is.

Source: Milakov and Gimelshein 2018 (online softmax); Dao et al. 2022, Dao 2023 (its gradient).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from mha_jax._kernels.blocks import Axis, Range, live_keys, live_queries
from mha_jax._kernels.head import (
    Operands,
    Options,
    drop,
    map_heads,
    product,
    split_heads,
    tile_logits,
    tile_scores,
    zero_unless,
)

State = TypeVar("State")


class Plan(NamedTuple):
    """What is known when the kernel is traced: options, sizes of the leading axes, blocks.

    ``as_they_came``: keys and values are ``(..., S, K, width)``, or ``(..., S, width)`` of one head, of any dtype. Keys
    may be several arrays, to be joined along their features. All hold anything where they are not ``Operands.read``.
    Every block of them is joined, split into heads, cast and zeroed where it is visited.
    """

    options: Options
    heads: tuple[Any, ...]
    queries: Axis
    keys: Axis
    as_they_came: bool = False


class PerRow(NamedTuple):
    """What the gradients need of a row: of its output and ``delta``, divided by the sum; its greatest logit."""

    grad: Array
    delta: Array
    top: Array


def blockwise_attention(
    operands: Operands, plan: Plan
) -> tuple[Float[Array, "*heads T E"], Float[Array, "*heads T"]]:
    """Output and log-sum-exp of all heads; 0 and -inf in rows without a key. Reverse mode only."""
    return _compiled(_varying_alike(operands), plan)


def _varying_alike(operands: Operands) -> Operands:
    """Operands that vary over the same axes of the mesh, in a ``shard_map``.

    A shared one (the keys, where query heads alone are split) is cast first, so that the kernel's gradients are the
    device's own; that of the cast sums them over devices.
    """
    axes = [jax.typeof(x).manual_axis_type.varying for x in jax.tree.leaves(operands)]
    union = frozenset().union(*axes)

    def cast(x: Array) -> Array:
        missing = union - jax.typeof(x).manual_axis_type.varying
        return lax.pcast(x, tuple(sorted(missing)), to="varying")

    return jax.tree.map(cast, operands)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _attention(operands: Operands, plan: Plan) -> tuple[Array, Array]:
    results, _ = _forward(operands, plan)
    return results


def _forward(operands: Operands, plan: Plan):
    """Output and log-sum-exp, and what their gradients need."""
    output, top, total = _online_softmax(operands, plan)
    lse = jnp.where(total == 0, -jnp.inf, top + jnp.log(jnp.where(total == 0, 1, total)))
    return (output, lse), (operands, output, top, total)


def _online_softmax(operands: Operands, plan: Plan) -> tuple[Array, Array, Array]:
    """Output, greatest logit and sum of exponentials of every row; 0, -inf and 0 of one without a key."""
    ranges = live_keys(operands, plan.options, plan.queries, plan.keys)
    axis = len(plan.heads)
    # With values divided by a power of two above their number, sums of them cannot overflow and nothing is rounded.
    share = 0.5 ** (plan.keys.size - 1).bit_length()
    if not plan.as_they_came:
        operands = operands._replace(value=operands.value * share)

    def visit(i, results):
        per_row = _block(operands.query, plan.queries, i, axis)[..., 0]
        weighted = _zeros(per_row, operands.value.shape[-1])
        state = jnp.full_like(per_row, -jnp.inf), jnp.zeros_like(per_row), weighted

        def accumulate(plan, j, state):
            tile = _tile(operands, plan, i, j)
            if plan.as_they_came:
                tile = tile._replace(value=tile.value * share)
            return map_heads(functools.partial(_accumulate, plan, i, j), (tile, *state), plan.heads)

        top, total, weighted = _visit(ranges, i, plan, plan.keys.number, accumulate, state)
        block = weighted / jnp.where(total == 0, 1, total)[..., None] / share, top, total
        return jax.tree.map(lambda x, b: _put(x, b, plan.queries.start(i), axis), results, block)

    rows = operands.query[..., 0]
    results = _zeros(rows, operands.value.shape[-1]), jnp.zeros_like(rows), jnp.zeros_like(rows)
    return _loop(0, plan.queries.number, plan.queries.number, visit, results)


def _accumulate(plan: Plan, i: Any, j: Any, head: tuple[Operands, Array, Array, Array]):
    """One tile of one head: its part in (greatest logit, sum of exponentials, weighted sum of values)."""
    tile, top, total, weighted = head
    _, logits = _logits(plan, i, j, tile)
    new_top = jnp.maximum(top, logits.max(-1))
    base = jnp.where(jnp.isneginf(new_top), 0, new_top)  # -inf - -inf would be NaN
    exponentials = jnp.exp(logits - base[:, None])
    shrink = jnp.exp(top - base)
    new_total = total * shrink + exponentials.sum(-1)
    kept = _drop(plan, i, j, tile, exponentials)
    new_weighted = weighted * shrink[:, None] + product(kept, tile.value, (1, 0), plan.options)
    return new_top, new_total, new_weighted


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _backward(plan: Plan, residuals: tuple[Operands, Array, Array, Array], cotangents: tuple[Array, Array]):
    operands, output, top, total = residuals
    ranges = live_queries(operands, plan.options, plan.queries, plan.keys)
    axis = len(plan.heads)
    per_row = _per_row(output, top, total, *cotangents)

    def visit(j, gradients):
        def add(plan, i, state):
            d_query, d_key, d_value, d_bias = state
            tile = _tile(operands, plan, i, j)
            rows = PerRow(*(_block(x, plan.queries, i, axis) for x in per_row))
            kernel = functools.partial(_gradients, plan, i, j)
            t_query, t_key, t_value, t_logits = map_heads(kernel, (tile, rows), plan.heads)
            starts = plan.queries.start(i), plan.keys.start(j)
            if tile.bias is not None:
                d_bias = _add_at(d_bias, _sum_to(t_logits, tile.bias.shape), starts)
            return (
                _add_at(d_query, t_query, (starts[0], 0)),
                d_key + _sum_to(t_key, d_key.shape),
                d_value + _sum_to(t_value, d_value.shape),
                d_bias,
            )

        d_query, d_key, d_value, d_bias = gradients
        block_key, block_value = (
            _transposed_zeros(_keys(x, operands, plan, j)) for x in (operands.key, operands.value)
        )
        state = d_query, block_key, block_value, d_bias
        d_query, block_key, block_value, d_bias = _visit(ranges, j, plan, plan.queries.number, add, state)
        d_key, d_value = (
            _add_keys(x, block.swapaxes(-1, -2), plan, j)
            for x, block in ((d_key, block_key), (d_value, block_value))
        )
        return d_query, d_key, d_value, d_bias

    floating = operands.query, operands.key, operands.value, operands.bias
    zeros = jax.tree.map(jnp.zeros_like, floating)
    d_query, d_key, d_value, d_bias = _loop(0, plan.keys.number, plan.keys.number, visit, zeros)
    nothing = Operands(*[None] * len(Operands._fields))  # pyright: ignore[reportArgumentType]
    return (nothing._replace(query=d_query, key=d_key, value=d_value, bias=d_bias),)


def _refuse(*_: Any):
    raise NotImplementedError(
        "implementation: 'blockwise' has first derivatives only; 'dense' has derivatives of any order"
    )


_backward.defvjp(_refuse, _refuse)
_attention.defvjp(_forward, _backward)
# Compiled once for a shape, also where it is called outside jit.
_compiled = jax.jit(_attention, static_argnums=1, inline=True)


def _per_row(output: Array, top: Array, total: Array, grad: Array, grad_lse: Array) -> PerRow:
    """What comes back to a row without a key, whose results are constants, goes no further, NaN included."""
    empty = total == 0
    share = 1 / jnp.where(empty, 1, total)
    grad = jnp.where(empty[..., None], 0, grad * share[..., None])
    delta = jnp.sum(grad * output, -1) - jnp.where(empty, 0, grad_lse * share)
    return PerRow(grad, delta, jnp.where(empty, 0, top))


def _gradients(plan: Plan, i: Any, j: Any, head: tuple[Operands, PerRow]):
    """One tile of one head: its gradients of query, of key and value (both transposed), and of logits."""
    tile, (grad, delta, top) = head
    options = plan.options
    if plan.queries.ragged:  # rows of the block before have been counted
        own = plan.queries.own(i)
        grad, delta = jnp.where(own[:, None], grad, 0), jnp.where(own, delta, 0)
    scores, logits = _logits(plan, i, j, tile)
    exponentials = jnp.exp(logits - top[:, None])
    d_weights = _drop(plan, i, j, tile, product(grad, tile.value, (1, 1), options))
    d_logits = exponentials * (d_weights - delta[:, None])
    d_scores = d_logits
    if options.soft_cap is not None:
        d_scores = d_logits * (1 - (scores / options.soft_cap) ** 2)
    d_value = product(grad, _drop(plan, i, j, tile, exponentials), (0, 0), options)
    d_query = product(d_scores, tile.key, (1, 0), options)
    d_key = product(tile.query, d_scores, (0, 0), options)
    return d_query, d_key, d_value, d_logits


def _logits(plan: Plan, i: Any, j: Any, tile: Operands) -> tuple[Array, Array]:
    """Scores of a tile, and logits, -inf also for keys that the block before had."""
    scores = tile_scores(tile, plan.options)
    logits = tile_logits(scores, tile, plan.options, plan.queries.positions(i), plan.keys.positions(j))
    if plan.keys.ragged:
        logits = jnp.where(plan.keys.own(j)[None, :], logits, -jnp.inf)
    return scores, logits


def _drop(plan: Plan, i: Any, j: Any, tile: Operands, weights: Array) -> Array:
    """A tile's weights after dropout."""
    return drop(weights, tile, plan.options, plan.queries.positions(i), plan.keys.positions(j))


def _visit(
    ranges: list[Range],
    own: Any,
    plan: Plan,
    count: int,
    body: Callable[[Plan, Any, State], State],
    state: State,
) -> State:
    """``body(plan, number, state)`` for the live blocks of block ``own``; without the band where it is not needed."""
    for begin, end, banded in ranges:
        each = plan if banded else plan._replace(options=plan.options._replace(lower=None, upper=None))
        first, last = jnp.asarray(begin)[own], jnp.asarray(end)[own]
        state = _loop(first, last, count, functools.partial(body, each), state)
    return state


def _loop(begin: Any, end: Any, count: int, body: Callable[[Any, State], State], state: State) -> State:
    """``body(number, state)`` for blocks in [begin, end); no loop where there is one block in all."""
    if count == 1:
        return body(0, state)
    return lax.fori_loop(jnp.int32(begin), jnp.int32(end), body, state)


def _tile(operands: Operands, plan: Plan, i: Any, j: Any) -> Operands:
    """The operands of block ``i`` of queries and block ``j`` of keys, of all heads."""
    axis = len(plan.heads)

    def pairs(x: Array | None) -> Array | None:
        return None if x is None else _block(_block(x, plan.queries, i, axis), plan.keys, j, axis + 1)

    return operands._replace(
        query=_block(operands.query, plan.queries, i, axis),
        key=_keys(operands.key, operands, plan, j),
        value=_keys(operands.value, operands, plan, j),
        bias=pairs(operands.bias),
        mask=pairs(operands.mask),
        read=None,
    )


def _keys(x: Array | tuple[Array, ...], operands: Operands, plan: Plan, j: Any) -> Array:
    """Block ``j`` of keys or values, (..., K, 1, keys, width), finite, in the dtype of the logits."""
    if isinstance(x, tuple):
        return jnp.concatenate([_keys(part, operands, plan, j) for part in x], axis=-1)
    axis = len(plan.heads)
    if not plan.as_they_came:
        return _block(x, plan.keys, j, axis)
    block = _block(x, plan.keys, j, axis - 2)
    block = block[..., None, :] if x.ndim == axis else block
    block = split_heads(block, plan.heads[-2]).astype(operands.query.dtype)
    return block if operands.read is None else zero_unless(_block(operands.read, plan.keys, j, axis), block)


def _add_keys(x: Any, block: Array, plan: Plan, j: Any) -> Any:
    """Adds to block ``j`` of the gradient of keys or values what came for (..., K, 1, keys, width)."""
    if isinstance(x, tuple):
        ends = np.cumsum([part.shape[-1] for part in x])[:-1].tolist()
        parts = jnp.split(block, ends, axis=-1)
        return tuple(_add_keys(*pair, plan, j) for pair in zip(x, parts, strict=True))
    if not plan.as_they_came:
        return _add_at(x, block, (plan.keys.start(j), 0))
    axis = len(plan.heads) - 2
    block = jnp.moveaxis(block[..., 0, :, :], -2, -3).astype(x.dtype)
    block = block[..., 0, :] if x.ndim == axis + 2 else block
    return _put(x, _block(x, plan.keys, j, axis) + block, plan.keys.start(j), axis)


def _block(x: Array, blocks: Axis, number: Any, axis: int) -> Array:
    """A block of ``x`` along an axis, all of it where there is one block or the axis is shared."""
    if blocks.number == 1 or x.shape[axis] == 1:
        return x
    return lax.dynamic_slice_in_dim(x, blocks.start(number), blocks.block, axis)


def _put(x: Array, block: Array, start: Any, axis: int) -> Array:
    return lax.dynamic_update_slice_in_dim(x, block, start, axis)


def _add_at(x: Array, block: Array, start: tuple[Any, Any]) -> Array:
    """Add a block to ``x`` where it starts in the last two axes; an axis in which it is whole starts at 0."""
    last = (0 if n == m else s for s, n, m in zip(start, block.shape[-2:], x.shape[-2:], strict=True))
    where = [jnp.asarray(s, jnp.int32) for s in (*[0] * (x.ndim - 2), *last)]
    return lax.dynamic_update_slice(x, lax.dynamic_slice(x, where, block.shape) + block, where)


def _sum_to(x: Array, shape: tuple[Any, ...]) -> Array:
    """Sum over the axes that have size 1 in ``shape``."""
    axes = tuple(i for i, (n, m) in enumerate(zip(x.shape, shape, strict=True)) if n != m)
    return x.sum(axes, keepdims=True) if axes else x


def _zeros(rows: Array, width: int) -> Array:
    """Zeros (..., width), sharded as ``rows`` (...)."""
    return jnp.broadcast_to(jnp.zeros_like(rows)[..., None], (*rows.shape, width))


def _transposed_zeros(x: Array) -> Array:
    return jnp.zeros_like(x.swapaxes(-1, -2))
