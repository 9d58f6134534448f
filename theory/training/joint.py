"""Joint training: all heads at once, by gradient descent on the maximum over heads.

Under a hard maximum the gradient of a pair reaches its winning head alone: who wins an edge is decided by the accident
of initial weights, and training only fits that partition (`experiments.joint` measures it). Therefore the default
*anneals*: a soft maximum over heads whose temperature falls linearly to a hundredth over the first 60% of the steps,
so that every head sees every pair until late, and a squared hinge, ``max(0, 1 - y (l - b))^2`` on the logits
``l = exp(log_scale) * score``, which lets go of pairs that are right. `theory.training.PLAIN` is joint training as it
is usually done: the hard maximum and binary cross-entropy on ``l - b`` throughout, stopped where the loss falls no
more.

The loss is a mean over all ``m^2`` pairs, with edges weighted by ``sqrt(non-edges / edges)`` unless told otherwise
(without any weight the many non-edges hold the scores down and more steps are needed). For cross-entropy the weight
shifts the logit at which an edge is as likely as not from 0 to its own logarithm, and that is where the channel's
threshold is put; the hinge has it at 0. Adam at a constant learning rate.

One compiled program serves every ``head_dim`` up to ``max_head_dim`` (see `theory.training.types`) and all seeds at
once. Every run watches itself: it freezes when its own threshold answers every pair right (under the hard maximum,
also while the soft one is trained), when its loss has stopped falling where ``patience`` is given, or when it is no
longer finite, and nothing of it changes afterwards, so a run does not depend on its neighbours in the batch. Of a run
that separated its graph at some look, the latest weights that did are the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from theory.training.joint_loss import Params, Whole, edge_weight
from theory.training.joint_options import COLDEST, SETTLED, JointOptions, Setting
from theory.training.types import Channel, check_batch, initial_factors


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


class Ended(NamedTuple):
    """What training came to: channels, and the parameters that they are made of.

    Attributes:
        params: ``query`` and ``key`` ``(b, h, d, k)``, ``log_scale`` and ``offset`` ``(b,)``; training can go on from
            them, and from fewer heads of them.
        channels: one for each problem.
    """

    params: dict[str, np.ndarray]
    channels: list[Channel]


class Scalars(NamedTuple):
    """Numbers that a compiled program takes as they come.

    Attributes:
        weight: of an edge.
        learning_rate: Adam's.
        patience: looks.
        min_fall: of the mean loss between looks.
        temperature: at the first step.
    """

    weight: Array | np.ndarray
    learning_rate: Array | np.ndarray
    patience: Array | np.ndarray
    min_fall: Array | np.ndarray
    temperature: Array | np.ndarray


def scalars_of(weight: float, options: JointOptions) -> Scalars:
    """The numbers of these options."""
    patience = np.iinfo(np.int32).max if options.patience is None else options.patience
    return Scalars(
        np.asarray(weight, np.float32),
        np.asarray(options.learning_rate, np.float32),
        np.asarray(patience, np.int32),
        np.asarray(options.min_fall, np.float32),
        np.asarray(options.temperature, np.float32),
    )


def static_of(options: JointOptions) -> dict[str, Any]:
    """What a program is compiled for."""
    return {
        "max_steps": options.max_steps,
        "check_every": options.check_every,
        "setting": Setting.of(options),
    }


def optimise(
    params: Params,
    embeddings: Float[Array, "b m d"],
    adjacency: Bool[Array, "b t m"],
    scalars: Scalars,
    *,
    max_steps: int,
    check_every: int,
    setting: Setting,
    way: Whole,
) -> _State:
    """All runs of a batch, traced into one loop; ``way`` says how a problem's loss and gradient come about."""
    optimiser = optax.inject_hyperparams(optax.adam)(learning_rate=scalars.learning_rate)
    weight, warmest = jnp.asarray(scalars.weight), jnp.asarray(scalars.temperature)

    def step(carry, index, x, a):
        params, state = carry
        progress = index.astype(warmest.dtype) / (SETTLED * max_steps)
        left = jnp.maximum(1.0 - progress, COLDEST)
        loss, grads = way.loss_and_gradient(params, x, a, weight, setting, warmest * left)
        updates, state = optimiser.update(grads, state)
        return (jax.tree.map(jnp.add, params, updates), state), loss

    def chunk(run: _State, x, a, taken) -> _State:
        (params, state), losses = jax.lax.scan(
            partial(step, x=x, a=a), (run.params, run.optimiser), taken + jnp.arange(check_every)
        )
        loss = jnp.mean(losses)
        fell = loss < run.lowest * (1.0 - scalars.min_fall)
        stale = jnp.where(fell, 0, run.stale + 1)
        separates, right = way.judged(params, x, a, weight, setting)
        kept = jax.tree.map(lambda old, new: jnp.where(separates | ~run.found, new, old), run.kept, params)
        done = right | (stale >= scalars.patience) | ~jnp.isfinite(loss)
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
        following = jax.vmap(partial(chunk, taken=taken))(runs, embeddings, adjacency)
        return taken + check_every, following

    return jax.lax.while_loop(unfinished, advance, (jnp.zeros((), jnp.int32), jax.vmap(start)(params)))[1]


@partial(jax.jit, static_argnames=("max_steps", "check_every", "setting"))
def _optimise(
    params: Params,
    embeddings: Float[Array, "b m d"],
    adjacency: Bool[Array, "b m m"],
    scalars: Scalars,
    *,
    max_steps: int,
    check_every: int,
    setting: Setting,
) -> _State:
    static = {"max_steps": max_steps, "check_every": check_every, "setting": setting}
    return optimise(params, embeddings, adjacency, scalars, **static, way=Whole())


def initial_params(
    seeds: Sequence[int], *, num_heads: int, d_model: int, head_dim: int, max_head_dim: int, scale: float
) -> Params:
    """Draw the batch's initial weights, a pytree of arrays with a leading axis of seeds."""
    names = [f"joint training, head {i}" for i in range(num_heads)]
    query, key = initial_factors(
        seeds, names, d_model=d_model, head_dim=head_dim, max_head_dim=max_head_dim, scale=scale
    )
    zeros = jnp.zeros((len(seeds),), jnp.float32)
    return {"query": jnp.asarray(query), "key": jnp.asarray(key), "log_scale": zeros, "offset": zeros}


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
            scalars_of(weight, options),
            **static_of(options),
        )
    )
    return Ended(runs.kept, channels_of(runs.kept, runs.loss, runs.steps, weight, head_dim, options))


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
            offset = kept["offset"][b] + (0.0 if options.loss == "hinge" else np.log(weight))
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
        ValueError: as `theory.training.types.check_batch`, or a setting that is none.
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
