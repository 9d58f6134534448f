"""Annealed training: a soft maximum over heads that hardens, several starts, then heads refitted one at a time.

Under a hard maximum an edge's first winner keeps it (`experiments.joint`). With a soft maximum
``T log sum exp(. / T)`` whose temperature falls from `temperature` to `coldest`, edges choose heads while heads form.
All heads are trained together on the squared hinge by Adam; what comes out is not exact, but who serves whom is good:
`theory.training.refit` makes channels of several such starts and keeps the best. A start costs little beside a refit.

What it finds is a channel that exists, checked as any other; that it finds none says nothing about capacity. (ours)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float

from theory.channel import head_scores, project
from theory.training.joint_loss import balanced_weight
from theory.training.refit import refit_heads
from theory.training.types import Channel, GreedyOptions, check_batch, initial_factors

Params = dict[str, Array]


@dataclass(frozen=True)
class AnnealedOptions:
    """Settings of annealed training.

    Attributes:
        restarts: starts of every problem; the one that misses fewest edges after its refit is kept.
        num_steps: of Adam, for each start.
        learning_rate: Adam's; it falls to a fiftieth once the temperature has settled.
        temperature: of the soft maximum at the start, in units of the hinge's margin.
        coldest: where it ends.
        settle: share of the steps until then.
        init_scale: standard deviation of initial weights.
        refit: settings of the fits and swaps that follow.
    """

    restarts: int = 4
    num_steps: int = 3000
    learning_rate: float = 0.1
    temperature: float = 5.0
    coldest: float = 0.05
    settle: float = 0.6
    init_scale: float = 0.3
    refit: GreedyOptions = field(default_factory=lambda: GreedyOptions(swap_passes=4, swap_below=0.1))


def _loss(params, x, edges, weight, temperature) -> Float[Array, ""]:
    """Weighted mean squared hinge of the soft maximum over heads."""
    scores = head_scores(project(x, params["query"]), project(x, params["key"]))
    best = temperature * jax.nn.logsumexp(jnp.exp(params["log_scale"]) * scores / temperature, axis=0)
    slack = jnp.maximum(1.0 - jnp.where(edges, 1.0, -1.0) * (best - params["offset"]), 0.0)
    weights = jnp.where(edges, weight, 1.0)
    return jnp.sum(weights * slack * slack) / jnp.sum(weights)


@partial(jax.jit, static_argnames=("options",))
def _anneal(
    params: Params,
    x: Float[Array, "b m d"],
    edges: Bool[Array, "b m m"],
    weight: Float[Array, ""],
    *,
    options: AnnealedOptions,
) -> Params:
    """Train all starts ``(b, r)`` of every problem."""
    steps, settled = options.num_steps, int(options.settle * options.num_steps)
    rate = optax.join_schedules(
        [
            optax.constant_schedule(options.learning_rate),
            optax.cosine_decay_schedule(options.learning_rate, steps - settled, 0.02),
        ],
        [settled],
    )
    optimiser = optax.adam(rate)

    def one(params, x, edges):
        def step(index, carry):
            params, state = carry
            left = jnp.maximum(0.0, 1.0 - index / settled)
            temperature = jnp.maximum(options.temperature * left, options.coldest)
            updates, state = optimiser.update(jax.grad(_loss)(params, x, edges, weight, temperature), state)
            return jax.tree.map(jnp.add, params, updates), state

        return jax.lax.fori_loop(0, steps, step, (params, optimiser.init(params)))[0]

    return jax.vmap(jax.vmap(one, in_axes=(0, None, None)))(params, x, edges)


def train_annealed(
    embeddings: Float[np.ndarray, "b m d"],
    adjacency: Bool[np.ndarray, "b m m"],
    *,
    num_heads: int,
    head_dim: int,
    seeds: Sequence[int],
    max_head_dim: int | None = None,
    options: AnnealedOptions | None = None,
) -> list[Channel]:
    """Train all heads together while a soft maximum hardens, then refit them; one channel per problem.

    Args:
        embeddings: items of each problem ``(b, m, d)``, unit norm.
        adjacency: edges of each problem ``(b, m, m)``, [source, target].
        num_heads: heads ``h``.
        head_dim: key dimension of a head, ``d_k``; columns beyond ``d_model`` are zero, since they add no rank.
        seeds: one per problem; they decide the starts.
        max_head_dim: width the program is compiled for; ``head_dim`` if None. It changes no run but by rounding.
        options: settings of the trainer.

    Returns:
        Channels in the order of the problems; all heads share the threshold 1.

    Raises:
        ValueError: as `theory.training.types.check_batch`, or steps too few to settle.
    """
    from theory.bounds import held_edges  # keeps the import of the trainers light

    options = options or AnnealedOptions()
    if options.restarts < 1 or not 1 <= int(options.settle * options.num_steps) < options.num_steps:
        raise ValueError(f"options: expected a restart and steps on both sides of settle, got {options}")
    items, d_model = embeddings.shape[1:]
    used = min(head_dim, d_model)
    width = min(d_model, head_dim if max_head_dim is None else max_head_dim)
    edges = check_batch(embeddings, adjacency, num_heads, used, width, seeds)
    tries = options.restarts
    query, key = initial_factors(
        seeds,
        [f"annealed training, restart {r}, head {i}" for r in range(tries) for i in range(num_heads)],
        d_model=d_model,
        head_dim=used,
        max_head_dim=width,
        scale=options.init_scale,
    )
    shape = len(seeds), tries, num_heads, d_model, width
    zeros = jnp.zeros(shape[:2], jnp.float32)
    params = {
        "query": jnp.asarray(query.reshape(shape)),
        "key": jnp.asarray(key.reshape(shape)),
        "log_scale": zeros,
        "offset": zeros,
    }
    weight = jnp.float32(balanced_weight(adjacency))
    ended = jax.device_get(
        _anneal(params, jnp.asarray(embeddings, jnp.float32), jnp.asarray(adjacency), weight, options=options)
    )
    return refit_heads(
        np.exp(ended["log_scale"])[:, :, None, None, None] * ended["query"],
        ended["key"],
        ended["offset"],
        embeddings,
        edges,
        head_dim=head_dim,
        target=float(held_edges(items, d_model, used)),
        options=options.refit,
    )
