"""Plain joint training watched on its way: the channel at several steps of one run, from one compiled program.

The same loss, gradients and Adam as `theory.training.joint` under `PLAIN`, whose learning rate is constant: what a run
has learned at step n does not depend on how long it goes on. But here no run stops by itself, also not when its graph
is recovered, since what is asked is what training changes later on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from theory.training.joint import channels_of, initial_params
from theory.training.joint_loss import Params, Whole, edge_weight
from theory.training.joint_options import PLAIN, JointOptions, Setting
from theory.training.types import Channel, check_batch


@partial(jax.jit, static_argnames=("setting",))
def _snapshots(
    params: Params,
    embeddings: Float[Array, "b m d"],
    adjacency: Bool[Array, "b m m"],
    weight: Float[Array, ""],
    learning_rate: Float[Array, ""],
    lengths: Int[Array, " c"],
    *,
    setting: Setting,
) -> tuple[Params, Float[Array, "c b"]]:
    """Parameters and losses of all runs after every stretch of ``lengths`` steps, on a leading axis."""
    optimiser = optax.inject_hyperparams(optax.adam)(learning_rate=learning_rate)
    way = Whole()

    def step(carry, x, a):
        params, state, _ = carry
        loss, grads = way.loss_and_gradient(params, x, a, weight, setting, jnp.zeros_like(weight))
        updates, state = optimiser.update(grads, state)
        return jax.tree.map(jnp.add, params, updates), state, loss

    def stretch(carry, length):
        carry = jax.lax.fori_loop(
            0, length, lambda _, carry: jax.vmap(step)(carry, embeddings, adjacency), carry
        )
        return carry, (carry[0], carry[2])

    nothing = jnp.full((len(embeddings),), jnp.nan, jnp.float32)
    return jax.lax.scan(stretch, (params, jax.vmap(optimiser.init)(params), nothing), lengths)[1]


def joint_snapshots(
    embeddings: Float[np.ndarray, "b m d"],
    adjacency: Bool[np.ndarray, "b m m"],
    *,
    num_heads: int,
    head_dim: int,
    seeds: Sequence[int],
    steps: Sequence[int],
    options: JointOptions | None = None,
) -> list[list[Channel]]:
    """Channels of all problems at the given steps of their training.

    Args:
        embeddings: items of each problem ``(b, m, d)``, unit norm.
        adjacency: edges of each problem ``(b, m, m)``, [source, target].
        num_heads: heads ``h``.
        head_dim: key dimension of a head, ``d_k``.
        seeds: one per problem; they decide the initial weights, which are those of `theory.training.train_joint`.
        steps: ascending positive numbers of optimiser steps.
        options: settings, `theory.training.PLAIN` if None; only those of the loss, the initial weights and the
            learning rate are heeded.

    Returns:
        For every number of steps the channels, in the order of the problems; ``loss`` is that before the last step.

    Raises:
        ValueError: steps that are not such, a temperature (it falls towards an end), or as
            `theory.training.types.check_batch`.
    """
    options = options or PLAIN
    if Setting.of(options).soft:
        raise ValueError(f"temperature: expected 0, as of a run without an end, got {options.temperature}")
    check_batch(embeddings, adjacency, num_heads, head_dim, head_dim, seeds)
    if not steps or steps[0] < 1 or any(b <= a for a, b in pairwise(steps)):
        raise ValueError(f"steps: expected ascending positive integers, got {list(steps)}")
    weight = edge_weight(adjacency, options)
    params = initial_params(
        seeds,
        num_heads=num_heads,
        d_model=embeddings.shape[-1],
        head_dim=head_dim,
        max_head_dim=head_dim,
        scale=options.init_scale,
    )
    found, losses = jax.device_get(
        _snapshots(
            params,
            jnp.asarray(embeddings, jnp.float32),
            jnp.asarray(adjacency),
            jnp.float32(weight),
            jnp.float32(options.learning_rate),
            jnp.asarray(np.diff([0, *steps]), jnp.int32),
            setting=Setting.of(options),
        )
    )
    return [
        channels_of(
            {name: leaf[i] for name, leaf in found.items()},
            losses[i],
            np.full(len(seeds), taken),
            weight,
            head_dim,
            options,
        )
        for i, taken in enumerate(steps)
    ]
