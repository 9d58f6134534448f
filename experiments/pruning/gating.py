"""Hard-concrete gates on a pretrained model's heads, trained with the L0 penalty of Voita et al. 2019.

The gates alone are trained, the model is not (Voita et al. train both): so what they find is a set of heads to keep,
which can be held against the set that an order keeps. The loss is the next token's in a causal model; in an encoder it
is one minus the cosine to the whole model's embeddings (unlike for importance, that loss will do: gates start away from
its minimum).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from experiments.pretrained import ModelConfig, forward, sentence_embeddings
from experiments.pruning.losses import next_token_loss
from mha_jax import analysis

START = 2.0
"""First ``log_alpha``: gates are open with probability 0.94."""
LEARNING_RATE = 0.1


class Gates(NamedTuple):
    """Trained gates.

    Attributes:
        log_alpha: (L, N).
        settled: gates without noise (L, N).
        open_probability: (L, N).
        losses: of every step, without the penalty.
    """

    log_alpha: Float[np.ndarray, "L N"]
    settled: Float[np.ndarray, "L N"]
    open_probability: Float[np.ndarray, "L N"]
    losses: Float[np.ndarray, " steps"]


def train_gates(
    params: Any,
    config: ModelConfig,
    tokens: Int[Array, "k b t"],
    lengths: Int[Array, "k b"],
    *,
    penalty: float,
    num_steps: int,
    seed: int,
) -> Gates:
    """Train gates for every head; the model stays as it is.

    Args:
        params: of the model.
        config: of the model.
        tokens: batches, of which step i takes number i (modulo their number).
        lengths: of their sequences.
        penalty: what the expected share of open gates is multiplied by, in units of the loss.
        num_steps: optimiser steps (Adam).
        seed: of the gates' noise.
    """
    log_alpha, found = _train(
        params, config, tokens, lengths, jnp.float32(penalty), num_steps, jax.random.key(seed)
    )
    return Gates(
        np.asarray(log_alpha),
        np.asarray(analysis.settled_gates(log_alpha)),
        np.asarray(analysis.open_probability(log_alpha)),
        np.asarray(found),
    )


@partial(jax.jit, static_argnames=("config", "num_steps"))
def _train(
    params: Any,
    config: ModelConfig,
    tokens: Int[Array, "k b t"],
    lengths: Int[Array, "k b"],
    penalty: Float[Array, ""],
    num_steps: int,
    key: Array,
) -> tuple[Float[Array, "L N"], Float[Array, " steps"]]:
    shape = (config.num_layers, config.num_heads)
    optimiser = optax.adam(LEARNING_RATE)

    loss = partial(gate_loss, params, config, penalty=penalty)

    def step(state: tuple[Array, Any], inputs: tuple[Array, Array]) -> tuple[tuple[Array, Any], Array]:
        log_alpha, memory = state
        i, key = inputs
        batch = tokens[i % tokens.shape[0]], lengths[i % tokens.shape[0]]
        gradient, own = jax.grad(loss, has_aux=True)(log_alpha, batch, key)
        change, memory = optimiser.update(gradient, memory)
        return (log_alpha + change, memory), own  # pyright: ignore[reportOperatorIssue]

    start = jnp.full(shape, START, jnp.float32)
    inputs = jnp.arange(num_steps), jax.random.split(key, num_steps)
    (log_alpha, _), found = jax.lax.scan(step, (start, optimiser.init(start)), inputs)
    return log_alpha, found


def gate_loss(
    params: Any,
    config: ModelConfig,
    log_alpha: Float[Array, "L N"],
    batch: tuple[Int[Array, "b t"], Int[Array, " b"]],
    key: Array,
    *,
    penalty: Float[Array, ""] | float,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """What gates are trained on: `model_loss` and ``penalty`` times the expected share of open gates; the former alone.

    Args:
        params: of the model.
        config: of the model.
        log_alpha: of the gates.
        batch: tokens and lengths.
        key: of the gates' noise.
        penalty: in units of the loss.
    """
    own = model_loss(params, config, *batch, analysis.sample_gates(key, log_alpha))
    return own + penalty * analysis.open_penalty(log_alpha) / log_alpha.size, own


def model_loss(
    params: Any,
    config: ModelConfig,
    tokens: Int[Array, "b t"],
    lengths: Int[Array, " b"],
    gates: Float[Array, "L N"],
) -> Float[Array, ""]:
    """The part of it that the model pays, a token (or a sentence); see the module's docstring."""
    if config.causal:
        total, count = next_token_loss(params, config, tokens, lengths, gates)
        return total / count
    whole, gated = (
        sentence_embeddings(forward(params, config, tokens, lengths, head_mask=mask).hidden, lengths)
        for mask in (None, gates)
    )
    return 1 - (jax.lax.stop_gradient(whole) * gated).sum(-1).mean()
