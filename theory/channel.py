"""Scores of the key-query channel: the maximum over heads in one pass, and its controls.

Head ``i`` scores the pair ``(t, s)`` by ``<q_i[t], k_i[s]>``; the channel's score is the maximum over heads.
Written as an einsum this needs an array of shape ``(h, t, s)``, once forwards and twice backwards. Here heads
are visited a few at a time and only the best score so far and its head are kept; backwards, the gradient of a
pair goes to the head that won it, again a head at a time. Temporary memory is O(t s), or O(tile s) beside
inputs and outputs where rows are tiled.

All functions are pure JAX, differentiable in reverse mode, and work under ``jit`` and ``vmap``. Nothing here
sets a matmul precision: set ``jax_default_matmul_precision`` to ``"highest"`` where a device rounds products.

Letters: ``h`` heads, ``t`` queries (sources), ``s`` keys (targets), ``k`` head_dim, ``m`` items,
``d`` d_model.
Source: ours.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int32

# Up to this head_dim a block of heads is scored by outer products inside one fused loop, which writes nothing
# but the best score; above, a matrix product for each head is as fast or faster (measured on CPU).
_OUTER_MAX_HEAD_DIM = 4
# Multiply-adds unrolled in the fused loop. 8 to 32 are within a third of each other; more compile slower.
_OUTER_UNROLL = 16


def head_scores(queries: Float[Array, "h t k"], keys: Float[Array, "h s k"]) -> Float[Array, "h t s"]:
    """Scores of every head: the reference, in O(h t s) memory.

    Args:
        queries: ``q_i[t]``.
        keys: ``k_i[s]``.

    Returns:
        ``scores[i, t, s] = <q_i[t], k_i[s]>``.

    Raises:
        ValueError: an axis is empty, shapes do not agree, or dtypes are not both float32 or both float64.
    """
    _check(queries, keys)
    return jnp.einsum("htk,hsk->hts", queries, keys)


def sum_over_heads(queries: Float[Array, "h t k"], keys: Float[Array, "h s k"]) -> Float[Array, "t s"]:
    """Sum of all heads' scores: the control, as one matrix product.

    Theorem: the sum equals *one* head of width ``h k`` whose query and key are the heads' concatenated, hence
    has rank at most ``h k``. Without a non-linearity for each head, more heads cannot help.

    Args:
        queries: ``q_i[t]``.
        keys: ``k_i[s]``.

    Returns:
        ``scores[t, s] = sum_i <q_i[t], k_i[s]>``.

    Raises:
        ValueError: as in `head_scores`.
    """
    _check(queries, keys)
    return _concatenate_heads(queries) @ _concatenate_heads(keys).T


def project(embeddings: Float[Array, "m d"], weights: Float[Array, "h d k"]) -> Float[Array, "h m k"]:
    """Every item's query (or key) in every head.

    Args:
        embeddings: one row for each item.
        weights: ``W_Q^i`` (or ``W_K^i``) of every head.

    Returns:
        ``embeddings @ weights[i]`` for every head ``i``.

    Raises:
        ValueError: an axis is empty or shapes do not agree.
    """
    if embeddings.ndim != 2 or 0 in embeddings.shape:
        raise ValueError(f"embeddings: expected a non-empty array (items, d_model), got {embeddings.shape}")
    if weights.ndim != 3 or 0 in weights.shape or weights.shape[1] != embeddings.shape[1]:
        expected = f"(heads, {embeddings.shape[1]}, head_dim)"
        raise ValueError(f"weights: expected a non-empty array {expected}, got {weights.shape}")
    return jnp.einsum("md,hdk->hmk", embeddings, weights)


def max_over_heads(
    queries: Float[Array, "h t k"], keys: Float[Array, "h s k"], *, tile: int | None = None
) -> tuple[Float[Array, "t s"], Int32[Array, "t s"]]:
    """The channel: each pair's best score over heads, and the head that gives it.

    Never builds an array of size ``h t s``, forwards or backwards. The gradient of ``scores[t, s]`` goes to
    the winning head alone: ``dq_i = (g * [head == i]) k_i``, ``dk_i = (g * [head == i])^T q_i``. ``head`` is
    an integer and has no gradient. Reverse mode only (own VJP): no ``jvp``, no second derivatives.

    Ties go to the lowest head, also backwards. A NaN score of any head makes the pair's score NaN, and the
    lowest head with a NaN wins it, so a diverged run cannot pass unseen (as ``jnp.max`` and ``jnp.argmax``).

    Args:
        queries: ``q_i[t]``, float32 or float64.
        keys: ``k_i[s]``, of the same dtype.
        tile: rows (queries) worked on at a time, any positive number; temporary memory is then O(tile s)
            beside arrays as large as the inputs and the outputs. None: all rows at once, O(t s).
            Where there is one head there are no temporaries and ``tile`` has no effect.

    Returns:
        ``scores[t, s] = max_i <q_i[t], k_i[s]>`` and ``head[t, s]``, the lowest ``i`` that attains it.

    Raises:
        ValueError: as in `head_scores`, or ``tile`` is not a positive integer.
    """
    _check(queries, keys)
    if tile is not None and (isinstance(tile, bool) or not isinstance(tile, int | np.integer) or tile < 1):
        raise ValueError(f"tile: expected a positive integer or None, got {tile!r}")
    rows = queries.shape[1]
    return _max_over_heads(queries, keys, rows if tile is None else min(int(tile), rows))


def soft_max_over_heads(
    queries: Float[Array, "h t k"], keys: Float[Array, "h s k"], temperature: Float[Array, ""] | float
) -> Float[Array, "t s"]:
    """The soft maximum over heads, ``T log sum_i exp(s_i / T)``: above the maximum by at most ``T log h``.

    Every head gets a share of a pair's gradient, ``softmax(s / T)_i``, and not the winner alone. As `max_over_heads` it
    never builds an array of size ``h t s``: heads are scored again where their share is needed. The temperature is a
    setting and gets no gradient (zero). Reverse mode only.

    Args:
        queries: ``q_i[t]``, float32 or float64.
        keys: ``k_i[s]``, of the same dtype.
        temperature: ``T``, positive, in units of scores.

    Returns:
        ``T log sum_i exp(<q_i[t], k_i[s]> / T)``; NaN where some head's score is.

    Raises:
        ValueError: as in `head_scores`.
    """
    _check(queries, keys)
    return _soft_max_over_heads(queries, keys, jnp.asarray(temperature, queries.dtype))


def _check(queries: Array, keys: Array) -> None:
    """Refuse what is not (h, t, k) and (h, s, k), non-empty, of one dtype."""
    if queries.ndim != 3 or 0 in queries.shape:
        raise ValueError(f"queries: expected a non-empty array (heads, items, head_dim), got {queries.shape}")
    heads, _, width = queries.shape
    if keys.ndim != 3 or 0 in keys.shape or keys.shape[0] != heads or keys.shape[2] != width:
        raise ValueError(f"keys: expected a non-empty array ({heads}, items, {width}), got {keys.shape}")
    if queries.dtype not in (jnp.float32, jnp.float64):
        raise ValueError(f"queries: expected float32 or float64, got {queries.dtype}")
    if keys.dtype != queries.dtype:
        raise ValueError(f"keys: expected the queries' dtype {queries.dtype}, got {keys.dtype}")


def _concatenate_heads(x: Array) -> Array:
    """(h, m, k) to (m, h k)."""
    heads, items, width = x.shape
    return x.transpose(1, 0, 2).reshape(items, heads * width)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _max_over_heads(queries: Array, keys: Array, tile: int) -> tuple[Array, Array]:
    heads, rows, _ = queries.shape
    columns = keys.shape[1]
    if heads == 1:
        return queries[0] @ keys[0].T, jnp.zeros((rows, columns), jnp.int32)
    if tile == rows:
        return _best(queries, keys)

    def write(start, size, outputs):
        scores, head = _best(lax.dynamic_slice_in_dim(queries, start, size, axis=1), keys)
        return (
            lax.dynamic_update_slice_in_dim(outputs[0], scores, start, axis=0),
            lax.dynamic_update_slice_in_dim(outputs[1], head, start, axis=0),
        )

    empty = jnp.zeros((rows, columns), queries.dtype), jnp.zeros((rows, columns), jnp.int32)
    return _over_rows(write, rows, tile, empty)


def _forward(queries: Array, keys: Array, tile: int):
    outputs: Any = _max_over_heads(queries, keys, tile)
    return outputs, (queries, keys, outputs[1])


def _backward(tile: int, residuals: tuple[Array, Array, Array], cotangents: tuple[Array, Any]):
    queries, keys, head = residuals
    grad, _ = cotangents  # the head is an integer: its cotangent is empty
    heads, rows, _ = queries.shape
    if heads == 1:
        return (grad @ keys[0])[None], (grad.T @ queries[0])[None]
    if tile == rows:
        return _routed(queries, keys, head, grad)

    def add(start, size, gradients):
        grad_queries, grad_keys = _routed(
            lax.dynamic_slice_in_dim(queries, start, size, axis=1),
            keys,
            lax.dynamic_slice_in_dim(head, start, size, axis=0),
            lax.dynamic_slice_in_dim(grad, start, size, axis=0),
        )
        return (
            lax.dynamic_update_slice_in_dim(gradients[0], grad_queries, start, axis=1),
            gradients[1] + grad_keys,
        )

    return _over_rows(add, rows, tile, (jnp.zeros_like(queries), jnp.zeros_like(keys)))


_max_over_heads.defvjp(_forward, _backward)


@jax.custom_vjp
def _soft_max_over_heads(queries: Array, keys: Array, temperature: Array) -> Array:
    return _soft_forward(queries, keys, temperature)[0]


def _soft_forward(queries: Array, keys: Array, temperature: Array):
    outputs: Any = _max_over_heads(queries, keys, queries.shape[1])
    best = outputs[0]

    def add(total, head):
        q, k = head
        return total + jnp.exp((q @ k.T - best) / temperature), None

    total, _ = lax.scan(add, jnp.zeros_like(best), (queries, keys))
    soft = best + temperature * jnp.log(total)
    return soft, (queries, keys, temperature, soft)


def _soft_backward(residuals: tuple[Array, Array, Array, Array], grad: Array):
    queries, keys, temperature, soft = residuals

    def visit(_, head):
        q, k = head
        own = grad * jnp.exp((q @ k.T - soft) / temperature)
        return None, (own @ k, q.T @ own)

    _, (grad_queries, grad_keys) = lax.scan(visit, None, (queries, keys))
    return grad_queries, grad_keys.transpose(0, 2, 1), jnp.zeros_like(temperature)


_soft_max_over_heads.defvjp(_soft_forward, _soft_backward)


def _over_rows(step, rows: int, tile: int, state):
    """Apply ``step(start, size, state)`` to every block of ``tile`` rows, then to the rest."""
    whole, rest = divmod(rows, tile)
    state = lax.fori_loop(0, whole, lambda block, state: step(block * tile, tile, state), state)
    return step(whole * tile, rest, state) if rest else state


@jax.jit
def _best(queries: Array, keys: Array) -> tuple[Array, Array]:
    """Best score and head of all pairs, scanning over blocks of heads."""
    heads, rows, width = queries.shape
    columns = keys.shape[1]
    outer = width <= _OUTER_MAX_HEAD_DIM
    # Every product of a block is held at once: few, as memory must not grow with the heads.
    products = 4 if heads <= 4 else 2
    block = _OUTER_UNROLL // width if outer else products
    num_blocks = -(-heads // block)
    block = -(-heads // num_blocks)  # as even as can be
    # The last block is filled up with copies of the last head, which cannot beat it.
    index = np.minimum(np.arange(num_blocks * block), heads - 1)

    def blocked(x: Array) -> Array:
        x = x if index.size == heads else x[index]
        return x.reshape(num_blocks, block, *x.shape[1:])

    transposed = queries.transpose(0, 2, 1) if outer else queries
    blocks = blocked(transposed), blocked(keys.transpose(0, 2, 1)), blocked(jnp.asarray(index, jnp.int32))

    def visit(state, following):
        best, (block_queries, block_keys, block_heads) = state
        for a in range(block):
            q, k = block_queries[a], block_keys[a]
            best = _better(best, _outer_sum(q, k) if outer else q @ k, block_heads[a])
        return (best, following), None

    # The next block is part of the state: XLA would fuse a slice taken in the step into the loop over pairs,
    # which then does not vectorise.
    first = jax.tree.map(lambda x: x[0], blocks)
    following = jax.tree.map(lambda x: jnp.roll(x, -1, axis=0), blocks)
    worst = jnp.full((rows, columns), -jnp.inf, queries.dtype), jnp.zeros((rows, columns), jnp.int32)
    (best, _), _ = lax.scan(visit, (worst, first), following)
    return best


def _outer_sum(queries: Array, keys: Array) -> Array:
    """``queries.T @ keys`` for (k, t) and (k, s), as elementwise operations that fuse with their use."""
    total = queries[0][:, None] * keys[0][None, :]
    for j in range(1, queries.shape[0]):
        total = total + queries[j][:, None] * keys[j][None, :]
    return total


def _better(best: tuple[Array, Array], score: Array, head: Array) -> tuple[Array, Array]:
    """Put in a score that is larger, or is the first NaN."""
    best_score, best_head = best
    wins = ~(score <= best_score) & (best_score == best_score)
    return jnp.where(wins, score, best_score), jnp.where(wins, head, best_head)


@jax.jit
def _routed(queries: Array, keys: Array, head: Array, grad: Array) -> tuple[Array, Array]:
    """Gradients of queries and keys, each pair's routed to its winner, scanning over heads.

    The key's gradient is the product (k, t)(t, s), transposed afterwards: the transpose of the masked (t, s)
    gradient is then never formed, which makes the backward pass up to twice as fast.
    """

    def visit(_, xs):
        q_transposed, k, i = xs
        own = jnp.where(head == i, grad, jnp.zeros((), grad.dtype))
        return None, (own @ k, q_transposed @ own)

    index = jnp.arange(queries.shape[0], dtype=jnp.int32)
    _, (grad_queries, grad_keys) = lax.scan(visit, None, (queries.transpose(0, 2, 1), keys, index))
    return grad_queries, grad_keys.transpose(0, 2, 1)
