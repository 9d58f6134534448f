"""Joint training: all heads at once, by gradient descent on the maximum over heads.

The loss is binary cross-entropy on ``exp(log_scale) * max_i s_i(u, v) - offset`` over all ``m^2`` pairs, with edges
weighted by ``sqrt(non-edges / edges)`` unless told otherwise (without any weight the many non-edges hold the scores
down and more steps are needed). The weight shifts the logit at which an edge is as likely as not from 0 to its own
logarithm, and that is where the channel's threshold is put. Adam at a constant learning rate.

One compiled program serves every ``head_dim`` up to ``max_head_dim`` (see `theory.training.types`) and all seeds at
once. Every run watches itself: it freezes when its own threshold answers every pair right, when its loss has stopped
falling, or when it is no longer finite, and nothing of it changes afterwards, so a run does not depend on its
neighbours in the batch. Of a run that separated its graph at some look, the latest weights that did are the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from theory.channel import max_over_heads, project, sum_over_heads
from theory.problems import seeded_rng
from theory.training.types import Channel, check_batch, initial_factors

Params = dict[str, Array]


@dataclass(frozen=True)
class JointOptions:
    """Settings of joint training.

    Attributes:
        learning_rate: Adam's, constant.
        max_steps: cap on optimiser steps; a multiple of ``check_every`` is taken.
        check_every: steps between two looks at recovery and plateau.
        patience: checks without a new lowest loss (by at least ``min_fall``) after which a run stops.
        min_fall: relative fall of the mean loss between checks that counts as falling.
        positive_weight: weight of an edge in the loss; None for ``sqrt(non-edges / edges)``.
        init_scale: standard deviation of initial weights, for embeddings of unit norm.
        aggregation: "max", or "sum" as the control that cannot gain from heads.
    """

    learning_rate: float = 0.1
    max_steps: int = 6000
    check_every: int = 50
    patience: int = 10
    min_fall: float = 0.01
    positive_weight: float | None = None
    init_scale: float = 0.3
    aggregation: str = "max"


class _State(NamedTuple):
    params: Params
    kept: Params  # the latest that separate the graph; the latest of all while none did
    found: Bool[Array, ""]
    optimiser: Any
    lowest: Float[Array, ""]
    stale: Array
    steps: Array
    loss: Float[Array, ""]
    done: Bool[Array, ""]


def _scores(params: Params, embeddings: Float[Array, "m d"], aggregation: str) -> Float[Array, "m m"]:
    queries, keys = (project(embeddings, params[name]) for name in ("query", "key"))
    return max_over_heads(queries, keys)[0] if aggregation == "max" else sum_over_heads(queries, keys)


def _loss(
    params: Params,
    embeddings: Float[Array, "m d"],
    adjacency: Bool[Array, "m m"],
    weight: Float[Array, ""],
    aggregation: str,
) -> Float[Array, ""]:
    logits = jnp.exp(params["log_scale"]) * _scores(params, embeddings, aggregation) - params["offset"]
    signed = jnp.where(adjacency, -logits, logits)
    weights = jnp.where(adjacency, weight, 1.0)
    return jnp.sum(weights * jax.nn.softplus(signed)) / jnp.sum(weights)


def _judged(
    params: Params,
    embeddings: Float[Array, "m d"],
    adjacency: Bool[Array, "m m"],
    weight: Float[Array, ""],
    aggregation: str,
) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
    """Whether some threshold answers every pair right, and whether the channel's own does."""
    logits = jnp.exp(params["log_scale"]) * _scores(params, embeddings, aggregation) - params["offset"]
    lowest = jnp.min(logits, where=adjacency, initial=jnp.inf)
    highest = jnp.max(logits, where=~adjacency, initial=-jnp.inf)
    own = jnp.log(weight)
    return lowest > highest, (lowest > own) & (highest <= own)


class Ended(NamedTuple):
    """What training came to: channels, and the parameters that they are made of.

    Attributes:
        params: ``query`` and ``key`` ``(b, h, d, k)``, ``log_scale`` and ``offset`` ``(b,)``; training can go on from
            them, and from fewer heads of them.
        channels: one for each problem.
    """

    params: dict[str, np.ndarray]
    channels: list[Channel]


class Whole:
    """How a device that has whole problems computes: without others (`theory.training.sharded` has another way)."""

    def loss_and_gradient(self, params: Params, x, a, weight, aggregation: str) -> tuple[Array, Params]:
        """Loss of one problem, and its gradient."""
        return jax.value_and_grad(_loss)(params, x, a, weight, aggregation)

    def judged(self, params: Params, x, a, weight, aggregation: str) -> tuple[Array, Array]:
        """Whether some threshold answers every pair right, and whether the channel's own does."""
        return _judged(params, x, a, weight, aggregation)

    def all_done(self, done: Bool[Array, " b"]) -> Bool[Array, ""]:
        """Whether no run is left."""
        return jnp.all(done)


def optimise(
    params: Params,
    embeddings: Float[Array, "b m d"],
    adjacency: Bool[Array, "b t m"],
    weight: Float[Array, ""],
    learning_rate: Float[Array, ""],
    patience: Array,
    min_fall: Float[Array, ""],
    *,
    max_steps: int,
    check_every: int,
    aggregation: str,
    way: Whole,
) -> _State:
    """All runs of a batch, traced into one loop; ``way`` says how a problem's loss and gradient come about."""
    optimiser = optax.inject_hyperparams(optax.adam)(learning_rate=learning_rate)

    def step(carry, _, x, a):
        params, state = carry
        loss, grads = way.loss_and_gradient(params, x, a, weight, aggregation)
        updates, state = optimiser.update(grads, state)
        return (jax.tree.map(jnp.add, params, updates), state), loss

    def chunk(run: _State, x, a) -> _State:
        (params, state), losses = jax.lax.scan(
            partial(step, x=x, a=a), (run.params, run.optimiser), None, length=check_every
        )
        loss = jnp.mean(losses)
        fell = loss < run.lowest * (1.0 - min_fall)
        stale = jnp.where(fell, 0, run.stale + 1)
        separates, right = way.judged(params, x, a, weight, aggregation)
        kept = jax.tree.map(lambda old, new: jnp.where(separates | ~run.found, new, old), run.kept, params)
        done = right | (stale >= patience) | ~jnp.isfinite(loss)
        lowest = jnp.where(fell, loss, run.lowest)
        new = _State(
            params, kept, run.found | separates, state, lowest, stale, run.steps + check_every, loss, done
        )
        return jax.tree.map(lambda old, new: jnp.where(run.done, old, new), run, new)

    def start(params) -> _State:
        zero = jnp.zeros((), jnp.int32)
        infinity = jnp.array(jnp.inf, jnp.float32)
        no = jnp.array(False)
        return _State(params, params, no, optimiser.init(params), infinity, zero, zero, infinity, no)

    def unfinished(carry):
        taken, runs = carry
        return (taken < max_steps) & ~way.all_done(runs.done)

    def advance(carry):
        taken, runs = carry
        return taken + check_every, jax.vmap(chunk)(runs, embeddings, adjacency)

    return jax.lax.while_loop(unfinished, advance, (0, jax.vmap(start)(params)))[1]


@partial(jax.jit, static_argnames=("max_steps", "check_every", "aggregation"))
def _optimise(
    params: Params,
    embeddings: Float[Array, "b m d"],
    adjacency: Bool[Array, "b m m"],
    weight: Float[Array, ""],
    learning_rate: Float[Array, ""],
    patience: Array,
    min_fall: Float[Array, ""],
    *,
    max_steps: int,
    check_every: int,
    aggregation: str,
) -> _State:
    settings = {"max_steps": max_steps, "check_every": check_every, "aggregation": aggregation}
    scalars = weight, learning_rate, patience, min_fall
    return optimise(params, embeddings, adjacency, *scalars, **settings, way=Whole())


def initial_params(
    seeds: Sequence[int], *, num_heads: int, d_model: int, head_dim: int, max_head_dim: int, scale: float
) -> Params:
    """Draw the batch's initial weights, a pytree of arrays with a leading axis of seeds."""
    shape = d_model, head_dim, max_head_dim, scale
    factors = np.array(
        [
            [initial_factors(seeded_rng(seed, f"joint training, head {i}"), *shape) for i in range(num_heads)]
            for seed in seeds
        ]
    )
    zeros = jnp.zeros((len(seeds),), jnp.float32)
    return {
        "query": jnp.asarray(factors[:, :, 0]),
        "key": jnp.asarray(factors[:, :, 1]),
        "log_scale": zeros,
        "offset": zeros,
    }


def optimise_jointly(
    params: Mapping[str, Array | np.ndarray],
    embeddings: Float[np.ndarray, "b m d"],
    adjacency: Bool[np.ndarray, "b m m"],
    head_dim: int,
    options: JointOptions,
) -> Ended:
    """Train all heads of every problem from ``params``.

    Args:
        params: ``query`` and ``key`` ``(b, h, d, k)``, ``log_scale`` and ``offset`` ``(b,)``.
        embeddings: ``(b, m, d)``.
        adjacency: ``(b, m, m)``, [source, target].
        head_dim: columns in use, at most ``k``.
        options: settings.
    """
    weight = edge_weight(adjacency, options)
    runs = jax.device_get(
        _optimise(
            {name: jnp.asarray(leaf) for name, leaf in params.items()},
            jnp.asarray(embeddings, jnp.float32),
            jnp.asarray(adjacency),
            jnp.float32(weight),
            jnp.float32(options.learning_rate),
            jnp.int32(options.patience),
            jnp.float32(options.min_fall),
            max_steps=options.max_steps,
            check_every=options.check_every,
            aggregation=options.aggregation,
        )
    )
    return Ended(runs.kept, channels_of(runs.kept, runs.loss, runs.steps, weight, head_dim, options))


def edge_weight(adjacency: Bool[np.ndarray, "b m m"], options: JointOptions) -> float:
    """Weight of an edge in the loss."""
    if options.positive_weight is not None:
        return options.positive_weight
    positive = float(adjacency[0].sum())
    return float(np.sqrt((adjacency[0].size - positive) / positive))


def channels_of(
    kept: Mapping[str, np.ndarray],
    loss: Float[np.ndarray, " b"],
    steps: Int[np.ndarray, " b"],
    weight: float,
    head_dim: int,
    options: JointOptions,
) -> list[Channel]:
    """The channels of runs that have ended, from the weights that they kept."""
    channels = []
    for b in range(len(loss)):
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            offset = kept["offset"][b] + np.log(weight)
            threshold = float(offset / np.exp(kept["log_scale"][b]))
        leaves = (loss[b], threshold, *(leaf[b] for leaf in kept.values()))
        finite = all(np.isfinite(leaf).all() for leaf in leaves)
        channels.append(
            Channel(
                query_weights=kept["query"][b, :, :, :head_dim],
                key_weights=kept["key"][b, :, :, :head_dim],
                threshold=threshold,
                loss=float(loss[b]),
                steps=int(steps[b]),
                learning_rate=options.learning_rate,
                reason=None
                if finite
                else f"loss, weights or threshold not finite after {int(steps[b])} steps",
            )
        )
    return channels


def train_joint(
    embeddings: Float[np.ndarray, "b m d"],
    adjacency: Bool[np.ndarray, "b m m"],
    *,
    num_heads: int,
    head_dim: int,
    seeds: Sequence[int],
    max_head_dim: int | None = None,
    options: JointOptions | None = None,
) -> list[Channel]:
    """Train all heads at once, one channel per problem.

    Args:
        embeddings: items of each problem ``(b, m, d)``, unit norm.
        adjacency: edges of each problem ``(b, m, m)``, [source, target].
        num_heads: heads ``h``.
        head_dim: key dimension of a head, ``d_k``.
        seeds: one per problem; they decide the initial weights.
        max_head_dim: width the program is compiled for; ``head_dim`` if None. It changes no run but by rounding.
        options: settings of the trainer.

    Raises:
        ValueError: as `theory.training.types.check_batch`.
    """
    options = options or JointOptions()
    width = head_dim if max_head_dim is None else max_head_dim
    check_batch(embeddings, adjacency, num_heads, head_dim, width, seeds)
    params = initial_params(
        seeds,
        num_heads=num_heads,
        d_model=embeddings.shape[-1],
        head_dim=head_dim,
        max_head_dim=width,
        scale=options.init_scale,
    )
    return optimise_jointly(params, embeddings, adjacency, head_dim, options).channels
