"""Training on one large graph from contexts: the scores of a step are those of a few items, never of all pairs.

A permutation on 20,000 items has 4e8 pairs. Each step draws ``s`` sources without replacement and takes their targets
as the other side of the context: ``s^2`` pairs, of which ``s`` are edges, where as many pairs of random items would
hold ``s^2 / m``. What that does to the loss is undone by weights. With ``L`` edges that are wanted and ``m - L`` that
are free (another head holds them), ``a`` sources of the wanted and ``b`` of the others in each context:

- a wanted edge is in a context with probability ``a / L``; free edges have weight zero wherever they occur;
- a pair ``(u, v)`` that is no edge is in it when ``u`` and the source of ``v`` were drawn, two different items. They
  are both of the wanted with probability ``a (a - 1) / (L (L - 1))``, one of each kind with ``a b / (L (m - L))``, both
  of the others with ``b (b - 1) / ((m - L) (m - L - 1))``.

One over these times a pair's own weight makes the expectation of a step's loss, and of its gradient, that of all pairs
(ours; a test enumerates the contexts). In a permutation every item is the target of one source, so nothing is left out;
other graphs are refused.

The loss is that of `theory.training.joint` in the same parameters. A program runs a stretch of steps as one scan; the
state between two stretches is all there is, so a run can be written down and taken up there. A step's draws depend on
the seed and its number alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from theory.channel import max_over_heads, project, soft_max_over_heads
from theory.training.joint_loss import Params, penalties
from theory.training.joint_options import COLDEST, SETTLED, Setting
from theory.training.types import initial_factors


@dataclass(frozen=True)
class ContextOptions:
    """Settings of training in contexts.

    Attributes:
        num_sources: ``s``, drawn at every step.
        num_steps: of Adam.
        learning_rate: Adam's at the first step; it stays until `SETTLED` of the steps, then falls to zero in a half
            cosine.
        temperature: of the soft maximum at the first step, in units of logits; 0 for the hard maximum throughout.
        loss: "hinge" (squared) or "cross-entropy".
        positive_weight: weight of an edge; None for ``sqrt(non-edges / edges)``.
        init_scale: standard deviation of a head's initial scores, in whitened coordinates.
    """

    num_sources: int = 2048
    num_steps: int = 6000
    learning_rate: float = 0.01
    temperature: float = 5.0
    loss: str = "hinge"
    positive_weight: float | None = None
    init_scale: float = 1.0


class Task(NamedTuple):
    """What contexts are drawn of.

    Attributes:
        items: ``x (m, d)``.
        target: of every source ``(m,)``.
        order: sources, the wanted ones first ``(m,)``.
        wanted: how many are wanted, ``L``.
    """

    items: Float[Array, "m d"]
    target: Int[Array, " m"]
    order: Int[Array, " m"]
    wanted: Int[Array, ""]


class ContextState(NamedTuple):
    """Where a run is.

    Attributes:
        params: ``query``, ``key`` ``(h, d, k)`` (no ``key`` for a free matrix), ``log_scale``, ``offset``.
        optimiser: Adam's.
        step: steps taken.
    """

    params: Params
    optimiser: Any
    step: Int[Array, ""]


def _draw(key: Array, order: Int[Array, " m"], wanted: Int[Array, ""], a: int, b: int) -> Int[Array, " s"]:
    """Sources of a context: ``a`` of the wanted, then ``b`` of the others, without replacement."""
    place = jnp.arange(len(order))
    rank = jax.random.uniform(key, order.shape)
    _, first = jax.lax.top_k(jnp.where(place < wanted, rank, -1.0), a)
    _, rest = jax.lax.top_k(jnp.where(place < wanted, -1.0, rank), b)
    return order[jnp.concatenate([first, rest])]


def pair_weights(
    num_items: int, wanted: Array | int, a: int, b: int, positive_weight: Array | float
) -> Float[Array, "s s"]:
    """Weights of a context's pairs, over the sum of the weights of all pairs; edges are on the diagonal.

    Args:
        num_items: ``m``.
        wanted: ``L``, at least ``a``; ``m - L`` is at least ``b``.
        a: sources drawn of the wanted.
        b: sources drawn of the others.
        positive_weight: of an edge.
    """
    one = jnp.asarray(wanted, jnp.float32)
    other = num_items - one

    def inverse(count, drawn):  # of the probability that two of a kind are drawn
        return count * (count - 1.0) / max(drawn * (drawn - 1.0), 1.0)

    kind = jnp.arange(a + b) >= a
    mixed = one * other / max(a * b, 1)
    table = jnp.array([[0.0, 1.0], [1.0, 0.0]]) * mixed + jnp.diag(
        jnp.stack([inverse(one, a), inverse(other, b)])
    )
    weights = table[kind.astype(int)][:, kind.astype(int)]
    edge = jnp.where(kind, 0.0, positive_weight * one / max(a, 1))
    diagonal = jnp.eye(a + b, dtype=bool)
    total = positive_weight * one + num_items * (num_items - 1.0)
    return jnp.where(diagonal, edge[:, None], weights) / total


def context_loss(
    params: Params,
    items: Float[Array, "m d"],
    sources: Int[Array, " s"],
    target: Int[Array, " m"],
    weights: Float[Array, "s s"],
    setting: Setting,
    temperature: Float[Array, ""],
) -> Float[Array, ""]:
    """The loss of one context: of ``sources`` against their targets."""
    rows, columns = items[sources], items[target[sources]]
    queries = project(rows, params["query"])
    keys = project(columns, params["key"]) if "key" in params else columns[None]
    scale = jnp.exp(params["log_scale"])
    if setting.soft:
        logits = soft_max_over_heads(scale * queries, keys, temperature)
        logits = logits - temperature * np.log(len(queries))
    else:
        logits = scale * max_over_heads(queries, keys)[0]
    edges = jnp.eye(len(sources), dtype=bool)
    return jnp.sum(weights * penalties(logits - params["offset"], edges, setting))


def _optimiser(options: ContextOptions) -> Any:
    held = int(SETTLED * options.num_steps)
    rest = max(1, options.num_steps - held)
    fall = optax.cosine_decay_schedule(options.learning_rate, rest)
    return optax.adam(optax.join_schedules([optax.constant_schedule(options.learning_rate), fall], [held]))


def start(
    seed: int, d_model: int, num_heads: int, head_dim: int, options: ContextOptions, *, free: bool = False
) -> ContextState:
    """A state before the first step.

    Args:
        seed: of the initial weights.
        d_model: ``d``.
        num_heads: ``h``.
        head_dim: ``d_k``.
        options: settings.
        free: one head with a free matrix ``M = W_Q`` and ``W_K = 1``, from zero: a convex problem.

    Raises:
        ValueError: free with several heads or another width.
    """
    if free and (num_heads, head_dim) != (1, d_model):
        raise ValueError(f"free: expected one head of {d_model} dimensions, got {num_heads} of {head_dim}")
    scale = np.sqrt(options.init_scale) / head_dim**0.25
    names = [f"context training, head {i}" for i in range(num_heads)]
    (query,), (key,) = initial_factors(
        [seed], names, d_model=d_model, head_dim=head_dim, max_head_dim=head_dim, scale=scale
    )
    zero = jnp.zeros((), jnp.float32)
    params = {"query": jnp.asarray(query), "log_scale": zero, "offset": zero}
    if free:
        params["query"] = jnp.zeros_like(params["query"])
    else:
        params["key"] = jnp.asarray(key)
    return ContextState(params, _optimiser(options).init(params), jnp.zeros((), jnp.int32))


@partial(jax.jit, static_argnames=("options", "split", "length"))
def advance(
    state: ContextState,
    task: Task,
    seed: Int[Array, ""],
    *,
    options: ContextOptions,
    split: tuple[int, int],
    length: int,
) -> tuple[ContextState, Float[Array, " length"]]:
    """Take ``length`` steps.

    Args:
        state: where the run is.
        task: what contexts are drawn of.
        seed: of the draws.
        options: settings.
        split: sources drawn of the wanted and of the others, ``(a, b)``.
        length: steps.

    Returns:
        The state, and the loss of every step.
    """
    setting = Setting("max", options.temperature > 0, options.loss)
    optimiser = _optimiser(options)
    count = len(task.order)
    one = task.wanted.astype(jnp.float32)
    weight = (
        jnp.sqrt(count * (count - 1.0) / one)
        if options.positive_weight is None
        else jnp.float32(options.positive_weight)
    )
    weights = pair_weights(count, task.wanted, *split, weight)

    def step(carry, _):
        params, moments, i = carry
        sources = _draw(jax.random.fold_in(jax.random.key(seed), i), task.order, task.wanted, *split)
        left = jnp.maximum(1.0 - i / (SETTLED * options.num_steps), COLDEST)
        loss, gradient = jax.value_and_grad(context_loss)(
            params, task.items, sources, task.target, weights, setting, options.temperature * left
        )
        updates, moments = optimiser.update(gradient, moments)
        return (jax.tree.map(jnp.add, params, updates), moments, i + 1), loss

    end: Any
    end, losses = jax.lax.scan(step, tuple(state), length=length)
    return ContextState(*end), losses
