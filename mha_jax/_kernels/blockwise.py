"""Attention in blocks with an online softmax: O(T + S) temporary memory, forwards and backwards.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from mha_jax._kernels.blocks import Axis, Blocks, live_keys, live_queries
from mha_jax._kernels.head import Operands, Options, drop, map_heads, product, tile_logits, tile_scores


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def blockwise_attention(operands: Operands, options: Options, heads: tuple[int, ...], blocks: Blocks):
    queries, keys = _axes(operands, blocks)
    begin, end = map(jnp.asarray, live_keys(operands, options, queries, keys))
    dtype = operands.query.dtype
    width = operands.value.shape[-1]

    def query_block(i, results):
        def key_block(j, state):
            tile = _tile(operands, queries, keys, i, j)
            kernel = functools.partial(_accumulate, options=options, queries=queries, keys=keys, i=i, j=j)
            return map_heads(kernel, (tile, *state), heads)

        rows = (*heads, queries.block)
        state = jnp.full(rows, -jnp.inf, dtype), jnp.zeros(rows, dtype), jnp.zeros((*rows, width), dtype)
        top, total, weighted = _loop(begin[i], end[i], key_block, state, keys.count)
        empty = total == 0
        total = jnp.where(empty, 1, total)
        lse = jnp.where(empty, -jnp.inf, top + jnp.log(total))
        output = weighted / total[..., None]
        return tuple(_write(r, x, queries.start(i), len(heads)) for r, x in zip(results, (output, lse), strict=True))

    shape = (*heads, queries.size)
    results = jnp.zeros((*shape, width), dtype), jnp.zeros(shape, dtype)
    return _loop(0, queries.count, query_block, results, queries.count)


def _accumulate(arguments, *, options, queries, keys, i, j):
    tile, top, total, weighted = arguments
    rows, columns = queries.positions(i), keys.positions(j)
    logits = tile_logits(tile_scores(tile, options), tile, options, rows, columns)
    if keys.ragged:
        logits = jnp.where(keys.own(j)[None, :], logits, -jnp.inf)
    new_top = jnp.maximum(top, logits.max(-1))
    finite_top = jnp.where(jnp.isneginf(new_top), 0, new_top)
    exponentials = jnp.exp(logits - finite_top[:, None])
    shrink = jnp.exp(top - finite_top)
    total = total * shrink + exponentials.sum(-1)
    exponentials = drop(exponentials, tile, options, rows, columns)
    weighted = weighted * shrink[:, None] + product(exponentials, tile.value, (1, 0), options)
    return new_top, total, weighted


def _forward(operands, options, heads, blocks):
    results = blockwise_attention(operands, options, heads, blocks)
    return results, (operands, *results)


def _backward(options, heads, blocks, residuals, cotangents):
    operands, output, lse = residuals
    grad, grad_lse = cotangents
    queries, keys = _axes(operands, blocks)
    begin, end = map(jnp.asarray, live_queries(operands, options, queries, keys))
    empty = jnp.isneginf(lse)
    grad = jnp.where(empty[..., None], 0, grad)
    delta = jnp.where(empty, 0, jnp.sum(grad * output, -1) - grad_lse)
    lse = jnp.where(empty, 0, lse)
    num = len(heads)

    def key_block(j, results):
        def query_block(i, state):
            tile = _tile(operands, queries, keys, i, j)
            per_row = tuple(_slice(x, queries.start(i), queries.block, num) for x in (grad, lse, delta))
            kernel = functools.partial(_gradients, options=options, queries=queries, keys=keys, i=i, j=j)
            d_query, d_key, d_value, d_bias = map_heads(kernel, (tile, *per_row), heads)
            all_query, so_far_key, so_far_value, all_bias = state
            all_query = _add(all_query, d_query, num, {num: queries.start(i)})
            if operands.bias is not None:
                d_bias = _sum_to(d_bias, (*operands.bias.shape[:num], *tile.bias.shape[num:]))
                where = {num: queries.start(i), num + 1: keys.start(j)}
                all_bias = _add(all_bias, d_bias, num, {a: x for a, x in where.items() if operands.bias.shape[a] > 1})
            return all_query, so_far_key + _sum_to(d_key, so_far_key.shape), so_far_value + _sum_to(d_value, so_far_value.shape), all_bias

        all_query, all_key, all_value, all_bias = results
        zero = lambda x: jnp.zeros((*x.shape[:num], x.shape[-1], keys.block), x.dtype)
        state = all_query, zero(operands.key), zero(operands.value), all_bias
        all_query, d_key, d_value, all_bias = _loop(begin[j], end[j], query_block, state, queries.count)
        all_key = _add(all_key, d_key.swapaxes(-1, -2), num, {num: keys.start(j)})
        all_value = _add(all_value, d_value.swapaxes(-1, -2), num, {num: keys.start(j)})
        return all_query, all_key, all_value, all_bias

    zeros = jax.tree.map(jnp.zeros_like, (operands.query, operands.key, operands.value, operands.bias))
    d_query, d_key, d_value, d_bias = _loop(0, keys.count, key_block, zeros, keys.count)
    nothing = Operands(*(None,) * len(Operands._fields))
    return (nothing._replace(query=d_query, key=d_key, value=d_value, bias=d_bias),)


blockwise_attention.defvjp(_forward, _backward)


def _gradients(arguments, *, options, queries, keys, i, j):
    tile, grad, lse, delta = arguments
    rows, columns = queries.positions(i), keys.positions(j)
    scores = tile_scores(tile, options)
    logits = tile_logits(scores, tile, options, rows, columns)
    if keys.ragged:
        logits = jnp.where(keys.own(j)[None, :], logits, -jnp.inf)
    if queries.ragged:
        logits = jnp.where(queries.own(i)[:, None], logits, -jnp.inf)
    weights = jnp.exp(logits - lse[:, None])
    d_weights = drop(product(grad, tile.value, (1, 1), options), tile, options, rows, columns)
    d_logits = weights * (d_weights - delta[:, None])
    d_scores = d_logits
    if options.soft_cap is not None:
        d_scores = d_logits * (1 - (scores / options.soft_cap) ** 2)
    d_query = product(d_scores, tile.key, (1, 0), options)
    d_key = product(tile.query, d_scores, (0, 0), options)
    d_value = product(grad, drop(weights, tile, options, rows, columns), (0, 0), options)
    return d_query, d_key, d_value, d_logits if tile.bias is not None else None


def _axes(operands, blocks):
    return Axis(operands.query.shape[-2], blocks.queries), Axis(operands.key.shape[-2], blocks.keys)


def _loop(begin, end, body, state, count):
    if count == 1 :
        return body(0, state)
    return lax.fori_loop(jnp.int32(begin), jnp.int32(end), body, state)


def _slice(x, start, size, axis):
    return x if x.shape[axis] == 1 and size!=1 else lax.dynamic_slice_in_dim(x, start, size, axis)


def _tile(operands: Operands, queries: Axis, keys: Axis, i, j) -> Operands:
    num = operands.query.ndim - 2
    q = lambda x: x if x is None or x.shape[num] == 1 else lax.dynamic_slice_in_dim(x, queries.start(i), queries.block, num)
    k = lambda x, axis: x if x is None or x.shape[axis] == 1 else lax.dynamic_slice_in_dim(x, keys.start(j), keys.block, axis)
    return operands._replace(
        query=q(operands.query),
        key=k(operands.key, num),
        value=k(operands.value, num),
        bias=k(q(operands.bias), num + 1),
        mask=k(q(operands.mask), num + 1),
    )


def _write(x, update, start, axis):
    return lax.dynamic_update_slice_in_dim(x, update, start, axis)


def _add(x, update, num, starts):
    sizes = list(update.shape)
    begin = [jnp.asarray(starts.get(a, 0), jnp.int32) for a in range(x.ndim)]
    return lax.dynamic_update_slice(x, lax.dynamic_slice(x, begin, sizes) + update, begin)


def _sum_to(x, shape):
    axes = tuple(a for a, (m, n) in enumerate(zip(x.shape, shape, strict=True)) if m != n)
    return x.sum(axes, keepdims=True) if axes else x
