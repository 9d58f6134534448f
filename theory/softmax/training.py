"""Softmax channels trained end to end on contexts: to recognise neighbours, or to have their values come out.

A context is a random subset of the items. For each of its items the answer is the neighbour, if it is in the context,
else none. Two tasks:

- ``weights``: the answer is read off the attention weights: a pair is an edge where some head puts more than a half
  on it. Binary cross-entropy of the largest weight over heads, edges weighted as in `theory.training.joint`.
- ``values``: every item's value is its own embedding, without parameters; the summed output of the heads is compared
  with all ``m`` items, and with "none" at a learned logit. Cross-entropy over ``m + 1`` answers. What helps here can
  only be queries, keys, and the null key's score.

Adam with a cosine decay, new contexts at every step, all seeds in one program. Judged on contexts of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from theory.channel import project
from theory.problems import seeded_rng
from theory.softmax.heads import routed_values, softmax_weights
from theory.training.joint import initial_params
from theory.training.types import check_batch

Task = Literal["weights", "values"]
TASKS: tuple[Task, ...] = ("weights", "values")
Params = dict[str, Array]


@dataclass(frozen=True)
class SoftmaxOptions:
    """Settings of training.

    Attributes:
        context_size: items of a context.
        num_contexts: contexts of a step.
        num_steps: optimiser steps.
        learning_rate: Adam's, at the start.
        init_scale: standard deviation of initial weights, for embeddings of unit norm.
    """

    context_size: int = 48
    num_contexts: int = 4
    num_steps: int = 2000
    learning_rate: float = 0.05
    init_scale: float = 0.3


@dataclass(frozen=True, eq=False)
class SoftmaxChannel:
    """A trained softmax channel.

    Attributes:
        query_weights: ``(h, d, k)``.
        key_weights: ``(h, d, k)``.
        threshold: score of the null key.
        scale: ``beta``.
        none_logit: logit of "none" over that of an item at cosine 1, of ``values``; 0 elsewhere.
        logit_scale: factor of the output's products with items, of ``values``.
        loss: at the last step.
    """

    query_weights: Float[np.ndarray, "h d k"]
    key_weights: Float[np.ndarray, "h d k"]
    threshold: float
    scale: float
    none_logit: float
    logit_scale: float
    loss: float


def sample_contexts(key: Array, num_items: int, context_size: int, num_contexts: int) -> Int[Array, "n l"]:
    """Contexts of distinct items in random order."""
    return jax.vmap(lambda k: jax.random.permutation(k, num_items)[:context_size])(
        jax.random.split(key, num_contexts)
    )


def _heads(params: Params, x: Float[Array, "l d"]) -> tuple[Array, Array]:
    return project(x, params["query"]), project(x, params["key"])


def item_logits(params: Params, items: Float[Array, "m d"], context: Int[Array, " l"]) -> Float[Array, "l n"]:
    """``values``: logits of every answer, the ``m`` items and then "none", for each item of a context."""
    x = items[context]
    queries, keys = _heads(params, x)
    out = routed_values(queries, keys, x, params["threshold"], jnp.exp(params["log_scale"]))
    logits = jnp.exp(params["log_logit_scale"]) * (out @ items.T)
    none = jnp.broadcast_to(params["offset"], (len(context), 1))
    return jnp.concatenate([logits, none], axis=1)


def pair_log_weights(
    params: Params, items: Float[Array, "m d"], context: Int[Array, " l"]
) -> Float[Array, "l l"]:
    """``weights``: log of the largest weight over heads, for each pair of a context."""
    queries, keys = _heads(params, items[context])
    weights = softmax_weights(queries, keys, params["threshold"], jnp.exp(params["log_scale"]))
    return jnp.log(jnp.maximum(jnp.max(weights[..., :-1], axis=0), 1e-30))


def _loss(
    params: Params,
    items: Float[Array, "m d"],
    adjacency: Bool[Array, "m m"],
    contexts: Int[Array, "n l"],
    edge_weight: Float[Array, ""],
    task: Task,
) -> Float[Array, ""]:
    if task == "values":

        def one(context):
            answers = context_answers(adjacency, context)
            log_p = jax.nn.log_softmax(item_logits(params, items, context))
            return -jnp.mean(jnp.take_along_axis(log_p, answers[:, None], axis=1))

    else:

        def one(context):
            log_p = pair_log_weights(params, items, context)
            edges = adjacency[context][:, context]
            # log(1 - p), kept finite where p rounds to 1
            log_q = jnp.log(-jnp.expm1(jnp.minimum(log_p, -1e-6)))
            weights = jnp.where(edges, edge_weight, 1.0)
            return -jnp.sum(weights * jnp.where(edges, log_p, log_q)) / jnp.sum(weights)

    return jnp.mean(jax.vmap(one)(contexts))


def context_answers(adjacency: Bool[Array, "m m"], context: Int[Array, " l"]) -> Int[Array, " l"]:
    """For each item of a context its neighbour in it, ``m`` where it has none there."""
    num_items = len(adjacency)
    present = jnp.zeros((num_items,), bool).at[context].set(True)
    edges = adjacency[context] & present[None, :]
    return jnp.where(jnp.any(edges, axis=1), jnp.argmax(edges, axis=1), num_items)


@partial(jax.jit, static_argnames=("task", "options"))
def _train(
    params: Params,
    keys: Array,
    items: Float[Array, "b m d"],
    adjacency: Bool[Array, "b m m"],
    edge_weight: Float[Array, ""],
    *,
    task: Task,
    options: SoftmaxOptions,
) -> tuple[Params, Float[Array, " b"]]:
    schedule = optax.cosine_decay_schedule(options.learning_rate, options.num_steps)
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))

    def one(params, key, x, a):
        def step(carry, index):
            params, state = carry
            contexts = sample_contexts(
                jax.random.fold_in(key, index), len(x), options.context_size, options.num_contexts
            )
            loss, grads = jax.value_and_grad(_loss)(params, x, a, contexts, edge_weight, task)
            updates, state = optimiser.update(grads, state)
            return (jax.tree.map(jnp.add, params, updates), state), loss

        start = params, optimiser.init(params)
        (params, _), losses = jax.lax.scan(step, start, jnp.arange(options.num_steps))
        return params, jnp.mean(losses[-50:])

    return jax.vmap(one)(params, keys, items, adjacency)


def train_softmax(
    task: Task,
    embeddings: Float[np.ndarray, "b m d"],
    adjacency: Bool[np.ndarray, "b m m"],
    *,
    num_heads: int,
    head_dim: int,
    seeds: Sequence[int],
    options: SoftmaxOptions | None = None,
) -> list[SoftmaxChannel]:
    """Train one softmax channel for each problem of a batch.

    Args:
        task: a name in `TASKS`.
        embeddings: items of each problem ``(b, m, d)``, unit norm.
        adjacency: edges of each problem ``(b, m, m)``, at most one out of every item.
        num_heads: heads ``h``.
        head_dim: key dimension of a head, ``d_k``.
        seeds: one per problem; they decide initial weights and contexts.
        options: settings.

    Raises:
        ValueError: another task, a context that is too large, several edges out of an item, or as
            `theory.training.types.check_batch`.
    """
    options = options or SoftmaxOptions()
    if task not in TASKS:
        raise ValueError(f"task: expected one of {TASKS}, got {task!r}")
    check_batch(embeddings, adjacency, num_heads, head_dim, head_dim, seeds)
    num_items, d_model = embeddings.shape[1:]
    if not 2 <= options.context_size <= num_items:
        raise ValueError(f"context_size: expected 2 to num_items = {num_items}, got {options.context_size}")
    if (adjacency.sum(axis=2) > 1).any():
        raise ValueError("adjacency: expected at most one edge out of every item, got several")
    shape = {"num_heads": num_heads, "d_model": d_model, "head_dim": head_dim, "max_head_dim": head_dim}
    drawn = initial_params(seeds, **shape, scale=options.init_scale)
    ones = jnp.ones((len(seeds),), jnp.float32)
    params = {
        "query": drawn["query"],
        "key": drawn["key"],
        "threshold": 0.5 * ones,
        "log_scale": 1.0 * ones,
        "log_logit_scale": 2.0 * ones,
        "offset": 4.0 * ones,
    }
    draws = [int(seeded_rng(seed, "softmax contexts").integers(2**31)) for seed in seeds]
    edges = (
        adjacency[0].sum() * options.context_size / num_items
    )  # of a context, about, were all targets in it
    weight = np.sqrt(options.context_size**2 / edges)
    trained, losses = jax.device_get(
        _train(
            params,
            jnp.stack([jax.random.key(draw) for draw in draws]),
            jnp.asarray(embeddings, jnp.float32),
            jnp.asarray(adjacency),
            jnp.float32(weight),
            task=task,
            options=options,
        )
    )
    return [
        SoftmaxChannel(
            query_weights=trained["query"][b],
            key_weights=trained["key"][b],
            threshold=float(trained["threshold"][b]),
            scale=float(np.exp(trained["log_scale"][b])),
            none_logit=float(trained["offset"][b]),
            logit_scale=float(np.exp(trained["log_logit_scale"][b])),
            loss=float(losses[b]),
        )
        for b in range(len(seeds))
    ]
