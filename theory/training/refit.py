"""Heads refitted one at a time from weights that all heads found together.

Training all heads at once ends where many pairs are a little wrong. What it has found is who serves whom: here every
edge goes to the head that scores it best, each head is refitted to its edges alone against all non-edges (dropping the
worst-scored ones until no error is left), and heads then take in turn what no other head holds. The fits are those of
`theory.training.greedy`; only where they start differs.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from theory.training.greedy import _channels, _fit_head, _Head, _swap_edges
from theory.training.types import Channel, GreedyOptions


@partial(jax.jit, static_argnames=("options",))
def _refit(
    query: Float[Array, "b r h d k"],
    key: Float[Array, "b r h d k"],
    threshold: Float[Array, "b r"],
    x: Float[Array, "b m d"],
    edges: Int[Array, "b e 2"],
    target: Float[Array, ""],
    *,
    options: GreedyOptions,
) -> _Head:
    """All heads of the start that misses fewest edges once its heads are refitted; axes ``b``, head."""

    def start(query, key, threshold, x, edges):
        scores = jnp.einsum("mhk,nhk->hmn", *(jnp.einsum("md,hdk->mhk", x, w) for w in (query, key)))
        winner = jnp.argmax(scores[:, edges[:, 0], edges[:, 1]], axis=0)

        def one(query, key, index):
            factors = {"query": query, "key": key, "threshold": threshold}
            return _fit_head(factors, x, edges, winner == index, target, options)

        return jax.vmap(one)(query, key, jnp.arange(len(query)))

    def problem(query, key, threshold, x, edges):
        heads = jax.vmap(lambda q, k, t: start(q, k, t, x, edges))(query, key, threshold)
        best = jnp.argmax(jnp.sum(jnp.any(heads.held, axis=1), axis=1))
        return jax.tree.map(lambda leaf: leaf[best], heads)

    return jax.vmap(problem)(query, key, threshold, x, edges)


def refit_heads(
    query: Float[np.ndarray, "b r h d k"],
    key: Float[np.ndarray, "b r h d k"],
    threshold: Float[np.ndarray, "b r"],
    embeddings: Float[np.ndarray, "b m d"],
    edges: Int[np.ndarray, "b e 2"],
    *,
    head_dim: int,
    target: float,
    options: GreedyOptions,
) -> list[Channel]:
    """Turn ``r`` jointly trained starts of every problem into one channel: the best after refitting.

    Args:
        query: weights at the scale at which the squared hinge has margin 1.
        key: likewise.
        threshold: that goes with them.
        embeddings: items.
        edges: ``(source, target)`` of every problem.
        head_dim: columns of the channels returned.
        target: edges that one head is predicted to hold.
        options: settings of the fits and of the passes in which edges change hands.

    Returns:
        One channel per problem; heads share the threshold 1, loss is the fraction of edges missed.
    """
    arrays = jnp.asarray(embeddings, jnp.float32), jnp.asarray(edges)
    number, goal = edges.shape[1], jnp.float32(target)
    found = _refit(
        jnp.asarray(query),
        jnp.asarray(key),
        jnp.asarray(threshold),
        *arrays,
        goal,
        options=replace(options, coarse_drop=options.drop),
    )
    heads: list[_Head] = [jax.tree.map(lambda leaf, i=i: leaf[:, i], found) for i in range(query.shape[2])]
    left = ~jnp.any(found.held, axis=1)
    for _ in range(options.swap_passes):
        before = jnp.sum(left)
        for index in range(len(heads)):
            missed = jnp.sum(left, axis=1)
            active = (missed > 0) & (missed <= options.swap_below * number)
            if not active.any():
                break
            by_others = jnp.zeros_like(left)
            for i, head in enumerate(heads):
                by_others = by_others | head.held if i != index else by_others
            heads[index] = _swap_edges(heads[index], *arrays, by_others, active, goal, options=options)
            left = ~(by_others | heads[index].held)
        if jnp.sum(left) == before:
            break
    return _channels(jax.device_get(heads), np.asarray(left), len(heads), head_dim)
