"""One attention layer trained to return the values of R targets, each in its own slot.

Keys and queries are made of the items' embeddings alone (`theory.relations.floors` says why that matters): weights are
the softmax over all items of ``exp(s_i) <x_u W_Q^i, x_j W_K^i> / sqrt(d_k)`` with a learned sharpness a head. Each head
returns the mixture of the values at full width; the read-out of all mixtures is one matrix, or an MLP of one hidden
layer (GELU). The loss is the mean squared error over slots and entries, on values drawn afresh at every step. Adam with
a linear warm-up and a cosine decay. All seeds of a configuration are trained in one compiled program.

With ``attention = "mixed"`` the weights are set, not trained (`mixing_weights`), and the read-out alone is trained:
what could be read where training does not find it.

What training finds bounds from above what the heads can do; what they cannot do is a matter for the floors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from mha_jax import attention_weights
from theory.problems import seeded_rng
from theory.relations.floors import exact_error
from theory.relations.several import Law, SeveralRelations, draw_values

Readout = Literal["linear", "mlp"]
READOUTS: tuple[Readout, ...] = ("linear", "mlp")
Attention = Literal["trained", "mixed"]
Params = dict[str, Any]
_WARMUP = 100
_TEST_PARTS = 16


@dataclass(frozen=True)
class RelationsModel:
    """Sizes of a model and of its training.

    Attributes:
        num_heads: h.
        head_dim: d_k.
        readout: one of `READOUTS`.
        value_dim: entries a of a value.
        hidden: units of an MLP read-out.
        law: of the values.
        attention: ``trained``, or ``mixed`` where it is set to `mixing_weights`.
        num_steps: optimiser steps.
        batch_size: draws of all values at a step.
        learning_rate: Adam's, at its highest.
        num_test: fresh draws of all values on which errors are measured; a multiple of 16.
    """

    num_heads: int
    head_dim: int
    readout: Readout = "linear"
    value_dim: int = 4
    hidden: int = 128
    law: Law = "gaussian"
    attention: Attention = "trained"
    num_steps: int = 1000
    batch_size: int = 16
    learning_rate: float = 0.03
    num_test: int = 256

    def __post_init__(self) -> None:
        for name in ("num_heads", "head_dim", "value_dim", "hidden", "num_steps", "batch_size", "num_test"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected a positive integer, got {getattr(self, name)}")
        if self.attention not in ("trained", "mixed"):
            raise ValueError(f"attention: expected 'trained' or 'mixed', got {self.attention!r}")
        if self.readout not in READOUTS:
            raise ValueError(f"readout: expected one of {READOUTS}, got {self.readout!r}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate: expected a positive number, got {self.learning_rate}")
        if self.num_test % _TEST_PARTS:
            raise ValueError(f"num_test: expected a multiple of {_TEST_PARTS}, got {self.num_test}")


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model and what it does on fresh values.

    Attributes:
        weights: ``p_i(u, j)``, ``(h, m, m)``.
        error: mean squared error over slots and entries; None where training diverged.
        standard_error: of ``error``, over the draws of values; None likewise.
        accuracy: share of slots whose answer is nearest, of all values in the context, to the target's.
        expected_error: the exact expectation of ``error`` for a linear read-out; None for an MLP.
    """

    weights: Float[np.ndarray, "h m m"]
    error: float | None
    standard_error: float | None
    accuracy: float | None
    expected_error: float | None


def initial_params(model: RelationsModel, d_model: int, num_relations: int, seed: int) -> Params:
    """Draw a model's parameters, float32: normal with variance 1 (queries, keys), 1 / fan-in (read-out)."""
    rng = seeded_rng(seed, "relations, weights")
    shape = model.num_heads, d_model, model.head_dim
    read, written = model.num_heads * model.value_dim, num_relations * model.value_dim

    def normal(*shape: int, fan_in: int = 1) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32)

    params: Params = {}
    if model.attention == "trained":
        params = {"query": normal(*shape), "key": normal(*shape)}
        params["log_sharpness"] = np.zeros(model.num_heads, np.float32)
    if model.readout == "linear":
        return params | {"readout": {"kernel": normal(read, written, fan_in=read)}}
    hidden = model.hidden
    out = {"kernel": normal(hidden, written, fan_in=hidden), "bias": np.zeros(written, np.float32)}
    first = {"kernel": normal(read, hidden, fan_in=read), "bias": np.zeros(hidden, np.float32)}
    return params | {"readout": {"hidden": first, "out": out}}


def head_weights(params: Params, embeddings: Float[Array, "m d"]) -> Float[Array, "h m m"]:
    """Every head's softmax rows over all items."""
    sharp = jnp.exp(params["log_sharpness"])[:, None, None]
    queries = jnp.einsum("md,hdk->mhk", embeddings, params["query"] * sharp)
    keys = jnp.einsum("md,hdk->mhk", embeddings, params["key"])
    return attention_weights(queries, keys)


def mixing_weights(targets: Int[np.ndarray, "R m"], num_heads: int) -> Float[np.ndarray, "h m m"]:
    """Weights with which ``num_heads`` heads mix all targets so that values of +1 and -1 can be told apart.

    Head i has the relations i, i + h, i + 2h, ... and spreads weights in the ratio 1 : 2 : 4 ... over their targets:
    every choice of signs gives another sum. Heads beyond R are those from the first on again.
    """
    num_relations, num_items = targets.shape
    weights = np.zeros((num_heads, num_items, num_items), np.float32)
    for head in range(num_heads):
        own = range(head % num_relations, num_relations, num_heads)
        for power, relation in enumerate(own):
            weights[head, np.arange(num_items), targets[relation]] = 2.0**power / (2.0 ** len(own) - 1)
    return weights


def answers(
    params: Params, weights: Float[Array, "h m m"], values: Float[Array, "b m a"], num_relations: int
) -> Float[Array, "b m R a"]:
    """What is in every item's slots."""
    mixed = jnp.einsum("hmn,bna->bmha", weights, values)
    read = mixed.reshape(*mixed.shape[:2], -1)
    readout = params["readout"]
    if "kernel" in readout:
        out = read @ readout["kernel"]
    else:
        first, last = readout["hidden"], readout["out"]
        hidden = jax.nn.gelu(read @ first["kernel"] + first["bias"][None, None])
        out = hidden @ last["kernel"] + last["bias"][None, None]
    return out.reshape(*out.shape[:2], num_relations, values.shape[-1])


def _wanted(values: Float[Array, "b m a"], targets: Int[Array, "R m"]) -> Float[Array, "b m R a"]:
    return values[:, targets.T]


@partial(jax.jit, static_argnames=("model",))
def _run(
    params: Params,
    embeddings: Float[Array, "s m d"],
    targets: Int[Array, "s R m"],
    fixed: Float[Array, "s h m m"],
    keys: Array,
    learning_rate: Float[Array, ""],
    *,
    model: RelationsModel,
) -> tuple[Params, Array, Array, Array]:
    """Trained parameters, weights, and on the test draws each draw's mean squared error and share of right slots."""
    num_items, num_relations = embeddings.shape[1], targets.shape[1]
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1.0, _WARMUP, max(model.num_steps, _WARMUP + 1))
    optimiser = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adam(lambda step: learning_rate * schedule(step))
    )

    def one(params, x, t, fixed, key):
        def weights_of(params):
            return head_weights(params, x) if model.attention == "trained" else fixed

        def loss(params, values):
            out = answers(params, weights_of(params), values, num_relations)
            return jnp.mean(jnp.square(out - _wanted(values, t)))

        def step(carry, index):
            params, state = carry
            values = draw_values(
                jax.random.fold_in(key, index), model.law, (model.batch_size, num_items, model.value_dim)
            )
            updates, state = optimiser.update(jax.grad(loss)(params, values), state)
            return (jax.tree.map(jnp.add, params, updates), state), None

        state = optimiser.init(params)
        (params, _), _ = jax.lax.scan(step, (params, state), jnp.arange(model.num_steps))
        weights = weights_of(params)

        def judge(index):
            count = model.num_test // _TEST_PARTS
            key_of_part = jax.random.fold_in(key, model.num_steps + index)
            values = draw_values(key_of_part, model.law, (count, num_items, model.value_dim))
            out, wanted = answers(params, weights, values, num_relations), _wanted(values, t)
            squares = jnp.square(out - wanted)

            def distance(item):
                return jnp.sum(jnp.square(out - values[:, item, None, None, :]), axis=-1)

            nearest = jnp.min(jax.lax.map(distance, jnp.arange(num_items)), axis=0)
            # Equal values are equally near, and right: compared with room for rounding.
            right = jnp.sum(squares, axis=-1) <= nearest * (1 + 1e-5) + 1e-6
            return jnp.mean(squares, axis=(1, 2, 3)), jnp.mean(right, axis=(1, 2))

        errors, rights = jax.lax.map(judge, jnp.arange(_TEST_PARTS))
        return params, weights, errors.reshape(-1), rights.reshape(-1)

    return jax.vmap(one)(params, embeddings, targets, fixed, keys)


def train_relations(
    model: RelationsModel, tasks: Sequence[SeveralRelations], seeds: Sequence[int]
) -> list[Trained]:
    """Train one model for each task of a batch.

    Args:
        model: sizes and settings.
        tasks: of one shape.
        seeds: one a task; they decide initial weights and the values drawn.

    Raises:
        ValueError: if there is not one seed a task.
    """
    if len(tasks) != len(seeds) or not tasks:
        raise ValueError(
            f"seeds: expected one for each of {len(tasks)} tasks, at least one, got {len(seeds)}"
        )
    num_relations, d_model = tasks[0].targets.shape[0], tasks[0].embeddings.shape[1]
    drawn = [initial_params(model, d_model, num_relations, seed) for seed in seeds]
    params, weights, errors, rights = jax.device_get(
        _run(
            jax.tree.map(lambda *leaves: np.stack(leaves), *drawn),
            np.stack([task.embeddings for task in tasks]).astype(np.float32),
            np.stack([task.targets for task in tasks]).astype(np.int32),
            np.stack([mixing_weights(task.targets, model.num_heads) for task in tasks]),
            jnp.stack([jax.random.key(seed) for seed in seeds]),
            np.float32(model.learning_rate),
            model=model,
        )
    )
    out = []
    for s, task in enumerate(tasks):
        own = jax.tree.map(lambda leaf, s=s: leaf[s], params)
        if not all(np.isfinite(leaf).all() for leaf in (*jax.tree.leaves(own), errors[s])):
            out.append(Trained(weights[s], None, None, None, None))
            continue
        exact = None
        if model.readout == "linear":
            kernel = own["readout"]["kernel"].reshape(
                model.num_heads, model.value_dim, num_relations, model.value_dim
            )
            exact = exact_error(weights[s], kernel.transpose(2, 3, 0, 1), task.targets)
        spread = float(errors[s].std(ddof=1) / np.sqrt(errors[s].size))
        out.append(Trained(weights[s], float(errors[s].mean()), spread, float(rights[s].mean()), exact))
    return out
