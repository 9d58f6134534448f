"""Greedy training: head by head, each head choosing the edges it can hold.

A head alone must put its own edges above a threshold and every non-edge below it; edges of other heads do not bind it.
So heads can be fitted one after the other. Each starts from all edges that are left, minimises the squared hinge of its
own edges and all non-edges over its factors and its threshold, drops the worst-scored of its edges while some are on
the wrong side, and refits. The edges above all non-edges at the end are taken off; the next head gets the rest. The
best of several random starts is kept for each head. If few edges are missed at the end, every head in turn is refitted
to all edges that no other head holds, so that edges change hands and slack in the last heads is used. Last, heads are
rescaled to one threshold. Loss is the fraction of edges missed.

Far above what the head is predicted to hold (`target`) a quarter of its edges goes at a time, near it a sixteenth, one
in the refits at the end.

The search direction is L-BFGS's (optax). The step along it needs no matrix product: on a line the scores are
quadratic in the step, so two Newton steps on the exact one-dimensional loss are passes over three score matrices.
A generic zoom line search would run, at every step, until the slowest start of the batch is content.

With ``head_dim >= d_model`` a head is a free matrix and its fit is convex: `theory.training.convex_greedy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from theory.training.types import Channel, GreedyOptions, check_batch, initial_factors

Factors = dict[str, Array]


class _Head(NamedTuple):
    """A fitted head in the hinge's own scale; ``held`` are all edges above all non-edges, none where it diverged."""

    query: Float[Array, "d k"]
    key: Float[Array, "d k"]
    threshold: Float[Array, ""]
    held: Bool[Array, " e"]
    steps: Int[Array, ""]
    finite: Bool[Array, ""]


def _sums(*terms: Float[Array, "m n"]) -> tuple[Array, ...]:
    """Sum several matrices in one pass over their elements."""
    zeros = tuple(jnp.zeros((), term.dtype) for term in terms)
    return tuple(
        jax.lax.reduce(terms, zeros, lambda a, b: tuple(x + y for x, y in zip(a, b, strict=True)), (0, 1))
    )


def _hinge(factors: Factors, x: Float[Array, "m d"], y: Float[Array, "m m"], one: Float[Array, "m m"]):
    """Margin scores, half the squared hinge, and its gradient.

    ``y`` is 1 for own edges, -1 for non-edges, 0 for pairs that do not matter; ``one`` is 1, and -1 for those.
    """
    queries, keys = x @ factors["query"], x @ factors["key"]
    scores = queries @ keys.T - factors["threshold"]
    pull = -y * jnp.maximum(one - y * scores, 0.0)
    squares, total = _sums(pull * pull, pull)
    gradient = {"query": x.T @ (pull @ keys), "key": x.T @ (pull.T @ queries), "threshold": -total}
    return scores, 0.5 * squares, gradient


def _step_size(factors, direction, scores, loss, x, y, one, first) -> Float[Array, ""]:
    """Two Newton steps on the loss along ``direction``, from 1 (from a short step at the first iteration)."""
    queries, keys = x @ factors["query"], x @ factors["key"]
    d_queries, d_keys = x @ direction["query"], x @ direction["key"]
    linear = y * (
        jnp.concatenate([queries, d_queries], 1) @ jnp.concatenate([d_keys, keys], 1).T
        - direction["threshold"]
    )
    quadratic = y * (d_queries @ d_keys.T)
    slack = one - y * scores

    def evaluate(t):
        residual = jnp.maximum(slack - t * (linear + t * quadratic), 0.0)
        slope = linear + 2.0 * t * quadratic
        curvature = jnp.where(residual > 0.0, slope * slope - 2.0 * residual * quadratic, 0.0)
        return _sums(residual * residual, residual * slope, curvature)

    t = jnp.where(first, 1e-2 / (optax.tree.norm(direction) + 1e-12), 1.0)
    best, lowest = jnp.zeros_like(t), 2.0 * loss
    for _ in range(2):
        value, descent, curvature = evaluate(t)
        better = value < lowest
        best, lowest = jnp.where(better, t, best), jnp.where(better, value, lowest)
        newton = jnp.clip(t + descent / jnp.maximum(jnp.abs(curvature), 1e-12), 0.1 * t, 10.0 * t)
        t = jnp.where(better, newton, 0.25 * t)
    value, _, _ = evaluate(t)
    return jnp.where(value < lowest, t, jnp.where(best > 0.0, best, 0.1 * t))


def _minimise(factors: Factors, x, y, one, iterations):
    """L-BFGS on the squared hinge until it vanishes, is flat, or ``iterations`` have been taken."""
    lbfgs = optax.scale_by_lbfgs(memory_size=10)

    def unfinished(carry):
        _, _, i, (_, loss, gradient) = carry
        return (i < iterations) & (loss > 0.0) & (optax.tree.norm(gradient) > 1e-3 * jnp.sqrt(loss))

    def advance(carry):
        factors, state, i, (scores, loss, gradient) = carry
        ascent, state = lbfgs.update(gradient, state, factors)
        direction = jax.tree.map(jnp.negative, ascent)
        t = _step_size(factors, direction, scores, loss, x, y, one, i == 0)
        factors = jax.tree.map(lambda a, b: a + t * b, factors, direction)
        return factors, state, i + 1, _hinge(factors, x, y, one)

    # optax makes one of its buffers in the default precision: in float32 this program is the same with 64-bit JAX.
    state = jax.tree.map(
        lambda leaf: leaf.astype(x.dtype) if leaf.dtype == jnp.float64 else leaf, lbfgs.init(factors)
    )
    start = (factors, state, jnp.zeros((), jnp.int32), _hinge(factors, x, y, one))
    factors, _, taken, (scores, loss, _) = jax.lax.while_loop(unfinished, advance, start)
    return factors, scores, taken, jnp.isfinite(loss)


def _fit_head(
    factors: Factors,
    x: Float[Array, "m d"],
    edges: Int[Array, "e 2"],
    wanted: Bool[Array, " e"],
    target: Float[Array, ""],
    options: GreedyOptions,
) -> _Head:
    """Fit one head from given factors to as many of the wanted edges as it can hold."""
    source, sink = edges[:, 0], edges[:, 1]
    non_edges = -jnp.ones((len(x), len(x)), jnp.float32).at[source, sink].set(0.0)

    def highest_non_edge(scores):
        return jnp.max(jnp.where(non_edges < 0.0, scores, -jnp.inf))

    def unfinished(carry):
        _, _, rounds, done, *_ = carry
        return ~done & (rounds < options.max_rounds)

    def advance(carry):
        factors, own, rounds, _, steps, _, _ = carry
        size = jnp.sum(own)
        coarse = size > 2.0 * target
        y = non_edges.at[source, sink].set(own.astype(jnp.float32))
        one = jnp.where(y == 0.0, jnp.float32(-1.0), jnp.float32(1.0))
        iterations = jnp.where(coarse, options.coarse_iterations, options.iterations)
        factors, scores, taken, finite = _minimise(factors, x, y, one, iterations)
        edge_scores = scores[source, sink]
        wrong = jnp.sum(own & (edge_scores <= highest_non_edge(scores) + options.gap))
        portion = size // jnp.where(coarse, options.coarse_drop, options.drop)
        number = jnp.minimum(wrong, jnp.maximum(portion, 1))
        ranked = jnp.sort(jnp.where(own, edge_scores, jnp.inf))
        cut = ranked[jnp.minimum(number, ranked.size - 1)]
        keep = own & (edge_scores >= cut) & (number < size)
        own = jnp.where(wrong > 0, keep, own)
        done = (wrong == 0) | ~jnp.any(own) | ~finite
        return factors, own, rounds + 1, done, steps + taken, scores, finite

    zero = jnp.zeros((), jnp.int32)
    scores = jnp.zeros((len(x), len(x)), jnp.float32)
    start = (factors, wanted, zero, ~jnp.any(wanted), zero, scores, jnp.array(True))
    factors, _, _, _, steps, scores, finite = jax.lax.while_loop(unfinished, advance, start)
    edge_scores, highest = scores[source, sink], highest_non_edge(scores)
    held = edge_scores > highest + options.gap
    lowest = jnp.min(jnp.where(held, edge_scores, jnp.inf))
    threshold = factors["threshold"] + 0.5 * (lowest + highest)
    # Only a positive threshold can be rescaled to the common one.
    held = held & (threshold > 0.0) & finite
    threshold = jnp.where(jnp.any(held), threshold, 1.0)
    return _Head(factors["query"], factors["key"], threshold, held, steps, finite)


def _random_starts(
    seeds: Sequence[int], head: int, restarts: int, d_model: int, head_dim: int, max_head_dim: int
) -> Factors:
    """Starts of one head for every problem and restart, a pytree of arrays with these two leading axes."""
    query, key = initial_factors(
        seeds,
        [f"greedy training, head {head}, restart {r}" for r in range(restarts)],
        d_model=d_model,
        head_dim=head_dim,
        max_head_dim=max_head_dim,
        scale=(d_model / head_dim) ** 0.25,
    )
    threshold = jnp.ones((len(seeds), restarts), jnp.float32)
    return {"query": jnp.asarray(query), "key": jnp.asarray(key), "threshold": threshold}


@partial(jax.jit, static_argnames=("options",))
def _add_head(
    starts: Factors,
    x: Float[Array, "b m d"],
    edges: Int[Array, "b e 2"],
    left: Bool[Array, "b e"],
    target: Float[Array, ""],
    *,
    options: GreedyOptions,
) -> _Head:
    """The next head of every problem: all its starts (axes ``b``, restart) as one program, the best one returned."""

    def one(starts, x, edges, left):
        tries = jax.vmap(lambda factors: _fit_head(factors, x, edges, left, target, options))(starts)
        best = jnp.argmax(jnp.sum(tries.held & left[None], axis=1))
        return jax.tree.map(lambda leaf: leaf[best], tries)

    return jax.vmap(one)(starts, x, edges, left)


@partial(jax.jit, static_argnames=("options",))
def _swap_edges(
    head: _Head,
    x: Float[Array, "b m d"],
    edges: Int[Array, "b e 2"],
    by_others: Bool[Array, "b e"],
    active: Bool[Array, " b"],
    target: Float[Array, ""],
    *,
    options: GreedyOptions,
) -> _Head:
    """Refit one head of every problem to all edges that no other head holds; keep it where no more are missed.

    What it cannot hold goes one edge at a time: this is where a single edge decides.
    """
    options = replace(options, drop=edges.shape[1])

    def one(head, x, edges, by_others, active):
        factors = {"query": head.query, "key": head.key, "threshold": head.threshold}
        new = _fit_head(factors, x, edges, active & ~by_others, target, options)
        better = active & (jnp.sum(new.held | by_others) >= jnp.sum(head.held | by_others))
        new = new._replace(steps=head.steps + new.steps)
        old = head._replace(steps=new.steps)
        return jax.tree.map(lambda a, b: jnp.where(better, a, b), new, old)

    return jax.vmap(one)(head, x, edges, by_others, active)


def train_greedy(
    embeddings: Float[np.ndarray, "b m d"],
    adjacency: Bool[np.ndarray, "b m m"],
    *,
    num_heads: int,
    head_dim: int,
    seeds: Sequence[int],
    max_head_dim: int | None = None,
    options: GreedyOptions | None = None,
) -> list[Channel]:
    """Train heads one after the other, one channel per problem. All heads share the threshold 1.

    Args:
        embeddings: items of each problem ``(b, m, d)``, unit norm.
        adjacency: edges of each problem ``(b, m, m)``, [source, target].
        num_heads: heads ``h``. Heads that are not needed are zero.
        head_dim: key dimension of a head, ``d_k``; columns beyond ``d_model`` are zero, since they add no rank.
        seeds: one per problem; they decide the random starts (convex fits have none).
        max_head_dim: width the program is compiled for; ``head_dim`` if None. It changes no run but by rounding.
        options: settings of the trainer.

    Raises:
        ValueError: as `theory.training.types.check_batch`.
    """
    from theory.bounds import held_edges  # keeps the import of the trainers light
    from theory.training.convex_greedy import train_convex

    options = options or GreedyOptions()
    d_model = embeddings.shape[-1]
    width = min(d_model, head_dim if max_head_dim is None else max_head_dim)
    used = min(head_dim, d_model)
    edges = check_batch(embeddings, adjacency, num_heads, used, width, seeds)
    target = float(held_edges(embeddings.shape[1], d_model, used))
    if head_dim >= d_model and d_model <= options.convex_max_d_model:
        return train_convex(
            embeddings, adjacency, num_heads=num_heads, head_dim=head_dim, target=target, options=options
        )
    arrays = (jnp.asarray(embeddings, jnp.float32), jnp.asarray(edges))
    heads: list[_Head] = []
    left = jnp.ones(edges.shape[:2], bool)
    for index in range(num_heads):
        starts = _random_starts(seeds, index, options.restarts, d_model, used, width)
        head = _add_head(starts, *arrays, left, jnp.float32(target), options=options)
        heads.append(head)
        left = left & ~head.held
        if not left.any():
            break
    for index in options.swap_passes * list(range(len(heads))):
        missed = jnp.sum(left, axis=1)
        active = (missed > 0) & (missed <= options.swap_below * edges.shape[1])
        if not active.any():
            break
        by_others = jnp.zeros_like(left)
        for i, head in enumerate(heads):
            by_others = by_others | head.held if i != index else by_others
        heads[index] = _swap_edges(
            heads[index], *arrays, by_others, active, jnp.float32(target), options=options
        )
        left = ~(by_others | heads[index].held)
    return _channels(jax.device_get(heads), np.asarray(left), num_heads, head_dim)


def _channels(
    heads: list[_Head], left: Bool[np.ndarray, "b e"], num_heads: int, head_dim: int
) -> list[Channel]:
    """Rescale heads to the common threshold 1 and fill up with zeros to the shape asked for."""
    batch, d_model, width = heads[0].query.shape
    columns = min(width, head_dim)
    query = np.zeros((batch, num_heads, d_model, head_dim), np.float32)
    key = np.zeros_like(query)
    for i, head in enumerate(heads):
        holds = head.held.any(axis=1)[:, None, None]
        scaled = np.where(holds, head.query / head.threshold[:, None, None], 0.0)
        query[:, i, :, :columns] = scaled[..., :columns]
        key[:, i, :, :columns] = np.where(holds, head.key, 0.0)[..., :columns]
    reasons: list[str | None] = [None] * batch
    for b in range(batch):
        diverged = [i for i, head in enumerate(heads) if not head.finite[b]]
        if diverged:
            reasons[b] = f"loss of head {diverged[0]} not finite"
        elif not (np.isfinite(query[b]).all() and np.isfinite(key[b]).all()):
            reasons[b] = "weights not finite"
    return [
        Channel(
            query_weights=query[b],
            key_weights=key[b],
            threshold=1.0,
            loss=float(left[b].mean()),
            steps=int(sum(head.steps[b] for head in heads)),
            learning_rate=None,
            reason=reasons[b],
        )
        for b in range(batch)
    ]
