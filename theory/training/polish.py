"""Polish: gradient descent on all heads together that starts from the greedy channel instead of from noise.

Greedy training fixes each head before the next; where it leaves a few edges over, all heads together may still have
room for them. Plain joint training does not find that room: a channel that cannot hold every edge has its lowest
cross-entropy where many edges are a little wrong, so that descent trades a handful of edges far off for most of the
graph. Here the loss asks for the edges already held, for the non-edges, and for *one* edge more, the missed edge that
scores best; each time the channel holds more than before, that becomes what is asked for. The best channel is kept, so
that polish never holds fewer edges than its start.

Greedy heads share the threshold 1, with margins around 0.01: the logit scale is fixed where such margins show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from theory.channel import max_over_heads, project
from theory.training.greedy import train_greedy
from theory.training.types import Channel, GreedyOptions

Params = dict[str, Array]


@dataclass(frozen=True)
class PolishOptions:
    """Settings of polish.

    Attributes:
        learning_rate: Adam's, constant.
        logit_scale: logits are this times score minus threshold.
        max_steps: cap on optimiser steps; a multiple of ``check_every`` is taken.
        check_every: steps between two looks at which edges are held.
        patience: checks without one more edge after which a run stops.
    """

    learning_rate: float = 0.003
    logit_scale: float = 300.0
    max_steps: int = 10_000
    check_every: int = 50
    patience: int = 60


class _Held(NamedTuple):
    """What a channel holds: edges above all non-edges, and the threshold halfway between the two."""

    edges: Bool[Array, "m m"]
    number: Int[Array, ""]
    threshold: Float[Array, ""]


class _State(NamedTuple):
    params: Params
    optimiser: Any
    best: Params
    held: _Held
    stale: Int[Array, ""]
    steps: Int[Array, ""]
    done: Bool[Array, ""]


def _scores(params: Params, embeddings: Float[Array, "m d"]) -> Float[Array, "m m"]:
    return max_over_heads(project(embeddings, params["query"]), project(embeddings, params["key"]))[0]


def _held(scores: Float[Array, "m m"], adjacency: Bool[Array, "m m"]) -> _Held:
    highest = jnp.max(scores, where=~adjacency, initial=-jnp.inf)
    edges = adjacency & (scores > highest)
    lowest = jnp.min(scores, where=edges, initial=jnp.inf)
    return _Held(edges, jnp.sum(edges), 0.5 * (lowest + highest))


def _loss(
    params: Params,
    embeddings: Float[Array, "m d"],
    adjacency: Bool[Array, "m m"],
    asked: Bool[Array, "m m"],
    logit_scale: Float[Array, ""],
) -> Float[Array, ""]:
    """Cross-entropy, at the scale of scores, on the edges asked for and all non-edges."""
    logits = logit_scale * (_scores(params, embeddings) - params["threshold"])
    losses = jax.nn.softplus(jnp.where(adjacency, -logits, logits))
    return jnp.sum(jnp.where(asked | ~adjacency, losses, 0.0)) / logit_scale


@partial(jax.jit, static_argnames=("options",))
def _polish(
    params: Params,
    embeddings: Float[Array, "b m d"],
    adjacency: Bool[Array, "b m m"],
    *,
    options: PolishOptions,
) -> _State:
    optimiser = optax.adam(options.learning_rate)
    scale = jnp.float32(options.logit_scale)

    def chunk(run: _State, x, a) -> _State:
        scores = _scores(run.params, x)
        missed = jnp.where(a & ~run.held.edges, scores, -jnp.inf)
        asked = run.held.edges | (a & (missed >= jnp.max(missed)))

        def step(carry, _):
            params, state = carry
            updates, state = optimiser.update(jax.grad(_loss)(params, x, a, asked, scale), state)
            return (jax.tree.map(jnp.add, params, updates), state), None

        (params, state), _ = jax.lax.scan(step, (run.params, run.optimiser), None, length=options.check_every)
        scores = _scores(params, x)
        now = _held(scores, a)
        more = (now.number > run.held.number) & jnp.all(jnp.isfinite(scores))
        best, held = jax.tree.map(lambda p, q: jnp.where(more, p, q), (params, now), (run.best, run.held))
        stale = jnp.where(more, 0, run.stale + 1)
        done = jnp.all(held.edges == a) | (stale >= options.patience) | ~jnp.all(jnp.isfinite(scores))
        new = _State(params, state, best, held, stale, run.steps + options.check_every, done)
        return jax.tree.map(lambda old, new: jnp.where(run.done, old, new), run, new)

    def start(params, x, a) -> _State:
        zero = jnp.zeros((), jnp.int32)
        held = _held(_scores(params, x), a)
        done = jnp.all(held.edges == a)
        return _State(params, optimiser.init(params), params, held, zero, zero, done)

    def unfinished(carry):
        taken, runs = carry
        return (taken < options.max_steps) & ~jnp.all(runs.done)

    def advance(carry):
        taken, runs = carry
        return taken + options.check_every, jax.vmap(chunk)(runs, embeddings, adjacency)

    return jax.lax.while_loop(unfinished, advance, (0, jax.vmap(start)(params, embeddings, adjacency)))[1]


def train_polish(
    embeddings: Float[np.ndarray, "b m d"],
    adjacency: Bool[np.ndarray, "b m m"],
    *,
    num_heads: int,
    head_dim: int,
    seeds: Sequence[int],
    max_head_dim: int | None = None,
    options: PolishOptions | None = None,
    greedy_options: GreedyOptions | None = None,
) -> list[Channel]:
    """Train head by head, then all heads together; one channel per problem.

    A channel in which polish holds no more edges than greedy training did is the greedy one, unchanged. Loss is the
    fraction of edges that are not above all non-edges; steps count both parts. Heads that are zero in the greedy
    channel (it did not need them) stay zero.

    Args:
        embeddings: items of each problem ``(b, m, d)``, unit norm.
        adjacency: edges of each problem ``(b, m, m)``, [source, target].
        num_heads: heads ``h``.
        head_dim: key dimension of a head, ``d_k``.
        seeds: one per problem; they decide the random starts of greedy training, all that is random here.
        max_head_dim: width the program is compiled for; ``head_dim`` if None. It changes no run but by rounding.
        options: settings of polish.
        greedy_options: settings of the greedy start.

    Raises:
        ValueError: as `theory.training.types.check_batch`.
    """
    options = options or PolishOptions()
    started = train_greedy(
        embeddings,
        adjacency,
        num_heads=num_heads,
        head_dim=head_dim,
        seeds=seeds,
        max_head_dim=max_head_dim,
        options=greedy_options,
    )
    padding = ((0, 0), (0, 0), (0, 0), (0, (max_head_dim or head_dim) - head_dim))
    params = {
        "query": jnp.asarray(np.pad(np.stack([channel.query_weights for channel in started]), padding)),
        "key": jnp.asarray(np.pad(np.stack([channel.key_weights for channel in started]), padding)),
        "threshold": jnp.ones(len(started), jnp.float32),
    }
    runs = jax.device_get(
        _polish(params, jnp.asarray(embeddings, jnp.float32), jnp.asarray(adjacency), options=options)
    )
    edges = adjacency.sum(axis=(1, 2))
    channels = []
    for b, channel in enumerate(started):
        missed = float(1.0 - runs.held.number[b] / edges[b])
        if channel.reason is None and missed < channel.loss:
            channel = replace(
                channel,
                query_weights=runs.best["query"][b, ..., :head_dim],
                key_weights=runs.best["key"][b, ..., :head_dim],
                threshold=float(runs.held.threshold[b]),
                loss=missed,
            )
        channels.append(
            replace(channel, steps=channel.steps + int(runs.steps[b]), learning_rate=options.learning_rate)
        )
    return channels
