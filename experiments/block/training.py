"""Training of blocks: all seeds of one configuration in one program, fresh contexts at every step."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, Float, Int

from experiments.block.model import Attention, Block


class Shape(NamedTuple):
    """What a program is compiled for.

    Attributes:
        d_model: ``d``.
        num_heads: ``h``.
        head_dim: ``d_k``.
        value_head_dim: of every head.
        mlp_width: hidden units.
        attention: trained, frozen or removed.
        context_size: ``l``.
        num_contexts: of a step.
        num_steps: of the optimiser.
        num_test: contexts on which the block is judged.
        planted: contexts are ``l / 2`` random items and their neighbours instead of ``l`` random items.
    """

    d_model: int
    num_heads: int
    head_dim: int
    value_head_dim: int
    mlp_width: int
    attention: Attention
    context_size: int
    num_contexts: int
    num_steps: int
    num_test: int
    planted: bool


class Trained(NamedTuple):
    """What came of every seed.

    Attributes:
        accuracy: share of right answers on fresh contexts.
        present_accuracy: the same where the neighbour is in the context.
        absent_accuracy: the same where it is not.
        present: share of queries whose neighbour is in the context.
        loss: at the end of training.
    """

    accuracy: Float[np.ndarray, " s"]
    present_accuracy: Float[np.ndarray, " s"]
    absent_accuracy: Float[np.ndarray, " s"]
    present: Float[np.ndarray, " s"]
    loss: Float[np.ndarray, " s"]


def new_block(shape: Shape, key: Array) -> Block:
    """A block with fresh parameters."""
    return Block(
        d_model=shape.d_model,
        num_heads=shape.num_heads,
        head_dim=shape.head_dim,
        value_head_dim=shape.value_head_dim,
        mlp_width=shape.mlp_width,
        attention=shape.attention,
        rngs=nnx.Rngs(key),
    )


def num_parameters(shape: Shape) -> int:
    """Trained numbers of a block; those that are held at zero, or not reached, are not counted."""
    model = nnx.eval_shape(lambda: new_block(shape, jax.random.key(0)))
    count = sum(leaf.size for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))
    attention = sum(leaf.size for leaf in jax.tree.leaves(nnx.state(model.attention, nnx.Param)))
    if shape.attention == "removed":
        return count - attention - 3 * shape.d_model  # the null token and the norm with it
    return count - (
        2 * shape.d_model * shape.num_heads * shape.head_dim if shape.attention == "frozen" else 0
    )


def sample_contexts(
    key: Array, neighbour: Int[Array, " m"], shape: Shape, number: int
) -> tuple[Int[Array, "n l"], Int[Array, "n l"]]:
    """Contexts, and the answers of their items: the neighbour if it is there, else ``m``."""
    num_items = len(neighbour)

    def one(key):
        first, second = jax.random.split(key)
        order = jax.random.permutation(first, num_items)
        if shape.planted:
            chosen = order[: shape.context_size // 2]
            there = jnp.zeros((num_items,), bool).at[chosen].set(True).at[neighbour[chosen]].set(True)
            # Where the neighbour of a chosen item was chosen too, random items fill up.
            rank = jnp.where(there, -1.0, jax.random.uniform(second, (num_items,)))
            context = jnp.argsort(rank)[: shape.context_size]
        else:
            context = order[: shape.context_size]
        present = jnp.zeros((num_items,), bool).at[context].set(True)[neighbour[context]]
        return context, jnp.where(present, neighbour[context], num_items)

    return jax.vmap(one)(jax.random.split(key, number))


def train_blocks(
    shape: Shape,
    items: Float[np.ndarray, "s m d"],
    neighbour: Int[np.ndarray, "s m"],
    seeds: list[int],
    learning_rate: float,
) -> Trained:
    """Train one block for each seed and judge it on contexts of its own.

    Args:
        shape: of blocks and contexts.
        items: embeddings of every seed; scaled to norm ``sqrt(d)`` here, as LayerNorm would have them.
        neighbour: of every item of every seed.
        seeds: of weights and contexts.
        learning_rate: Adam's, at its highest.
    """
    scaled = (items * np.sqrt(shape.d_model)).astype(np.float32)
    keys = jnp.stack([jax.random.key(seed) for seed in seeds])
    found = _run(
        keys, jnp.asarray(scaled), jnp.asarray(neighbour, jnp.int32), jnp.float32(learning_rate), shape
    )
    return Trained(*jax.device_get(found))


@partial(jax.jit, static_argnames=("shape",))
def _run(
    keys: Array,
    items: Float[Array, "s m d"],
    neighbour: Int[Array, "s m"],
    learning_rate: Float[Array, ""],
    shape: Shape,
) -> tuple[Array, ...]:
    graph = nnx.split(nnx.eval_shape(lambda: new_block(shape, jax.random.key(0))))[0]
    warmup = max(1, min(100, shape.num_steps // 10))
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1.0, warmup, shape.num_steps)
    optimiser = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adam(lambda step: learning_rate * schedule(step))
    )

    def logits_of(params, rest, x, contexts):
        return nnx.merge(graph, params, rest)(x[contexts], x)

    def one(key, x, target):
        start, draws, tests = jax.random.split(key, 3)
        _, params, rest = nnx.split(new_block(shape, start), nnx.Param, ...)

        def loss_of(params, contexts, answers):
            log_p = jax.nn.log_softmax(logits_of(params, rest, x, contexts))
            return -jnp.mean(jnp.take_along_axis(log_p, answers[..., None], axis=-1))

        def step(carry: Any, index: Array):
            params, state = carry
            drawn = sample_contexts(jax.random.fold_in(draws, index), target, shape, shape.num_contexts)
            loss, grads = jax.value_and_grad(loss_of)(params, *drawn)
            updates, state = optimiser.update(grads, state, params)
            return (optax.apply_updates(params, updates), state), loss

        (params, _), losses = jax.lax.scan(
            step, (params, optimiser.init(params)), jnp.arange(shape.num_steps)
        )
        contexts, answers = sample_contexts(tests, target, shape, shape.num_test)
        said = jax.lax.map(lambda c: jnp.argmax(logits_of(params, rest, x, c[None])[0], axis=-1), contexts)
        right, there = said == answers, answers < len(x)
        return (
            jnp.mean(right),
            jnp.mean(right, where=there),
            jnp.mean(right, where=~there),
            jnp.mean(there),
            jnp.mean(losses[-50:]),
        )

    return jax.vmap(one)(keys, items, neighbour)
