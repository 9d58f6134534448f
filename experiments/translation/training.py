"""Training: all seeds of a setting in one program, which goes over chunks of steps by ``lax.scan``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jaxtyping import Array, Float, Int

from experiments.translation.model import ModelShape, apply, inputs_of, parameters_of
from experiments.translation.rows import Rows

STEP_UNIT = 10
"""Numbers of steps are multiples of it."""
SMOOTHING = 0.1
"""Of labels, as in Vaswani et al. 2017."""


@dataclass(frozen=True)
class Recipe:
    """How models are trained: Adam, linear warm-up, then a linear fall to nothing.

    Attributes:
        num_steps: of the optimiser, a multiple of `STEP_UNIT`.
        warmup: steps.
    """

    num_steps: int
    warmup: int


def chunk_size(num_steps: int) -> int:
    """Steps between two returns to Python."""
    return 5 * STEP_UNIT if num_steps % (5 * STEP_UNIT) == 0 else STEP_UNIT


class State(NamedTuple):
    """A model in training.

    Attributes:
        parameters: pytree.
        moments: of the optimiser.
        step: how many have been taken.
        key: of dropout.
    """

    parameters: Any
    moments: Any
    step: Int[Array, ""]
    key: Array


def losses(
    logits: Float[Array, "b t v"], labels: Int[Array, "b t"], smoothing: float
) -> tuple[Float[Array, "b t"], Float[Array, "b t"]]:
    """Cross-entropy with smoothed labels, and without, in nats, at every position."""
    norm = jax.nn.logsumexp(logits, axis=-1)
    right = norm - jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]
    return (1 - smoothing) * right + smoothing * (norm - logits.mean(-1)), right


def loss(shape: ModelShape, parameters: Any, batch: Rows, key: Array | None = None) -> Float[Array, ""]:
    """Mean smoothed cross-entropy of a batch, in nats a token."""
    rngs = nnx.Rngs(dropout=key) if key is not None and shape.dropout_rate > 0 else None
    labels, segments = batch.target, batch.target_segments
    model = apply(shape, parameters)
    logits = model(batch.source, inputs_of(labels, segments), batch.source_segments, segments, rngs=rngs)
    smooth, _ = losses(logits, labels, SMOOTHING)
    valid = segments > 0
    return jnp.where(valid, smooth, 0).sum() / valid.sum()


def optimiser() -> optax.GradientTransformation:
    """Adam of a unit rate, gradients clipped."""
    return optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_adam(b1=0.9, b2=0.98, eps=1e-9))


def schedule(recipe: Recipe, step: Int[Array, ""]) -> Float[Array, ""]:
    """Share of the peak learning rate."""
    up = (step + 1) / recipe.warmup
    down = (recipe.num_steps - step) / (recipe.num_steps - recipe.warmup)
    return jnp.minimum(jnp.minimum(up, down), 1.0)


def start(shape: ModelShape, key: Array) -> State:
    """Before the first step."""
    draw, drop = jax.random.split(key)
    parameters = parameters_of(shape, draw)
    return State(parameters, optimiser().init(parameters), jnp.zeros((), jnp.int32), drop)


def step(
    shape: ModelShape, recipe: Recipe, rate: Float[Array, ""], state: State, batch: Rows
) -> tuple[State, Array]:
    """One step of the optimiser, and the loss before it."""
    key = jax.random.fold_in(state.key, state.step)
    value, gradient = jax.value_and_grad(lambda p: loss(shape, p, batch, key))(state.parameters)
    updates, moments = optimiser().update(gradient, state.moments)
    factor = -rate * schedule(recipe, state.step)
    parameters = jax.tree.map(lambda p, u: p + factor * u, state.parameters, updates)
    return State(parameters, moments, state.step + 1, state.key), value


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def chunk(
    shape: ModelShape, recipe: Recipe, rates: Float[Array, " seeds"], states: State, batches: Rows
) -> tuple[State, Float[Array, "seeds steps"]]:
    """A chunk of steps for every seed; arrays of ``batches`` are ``(seeds, steps, rows, length)``."""

    def body(states: State, batch: Rows) -> tuple[State, Array]:
        return jax.vmap(partial(step, shape, recipe))(rates, states, batch)

    states, values = jax.lax.scan(body, states, jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), batches))
    return states, values.T


@partial(jax.jit, static_argnums=0)
def starts(shape: ModelShape, keys: Array) -> State:
    """`start` for every seed."""
    return jax.vmap(partial(start, shape))(keys)
