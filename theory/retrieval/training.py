"""Training of retrieval models: all seeds and all learning rates of one configuration in one compiled program.

Adam (gradients clipped to norm 1, linear warm-up, cosine decay to zero) on the squared error of standardised targets,
minibatches in turn from a fixed training set (independent samples, so their order carries nothing). A run is one seed
(its training set, test set) and one learning rate (its own initial weights: a restart). What is reported is what a
trainer finds: the least error of several runs bounds what the model can do from above, a large error is no proof that
it cannot.

Training data, test data and initial weights are drawn on the host, by generators of the seed and the purpose alone, so
runs do not depend on their neighbours in the batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int
from scipy.optimize import linear_sum_assignment

from theory.problems import seeded_rng
from theory.retrieval.model import Encoder, RetrievalModel, class_weights, initial_params, predict
from theory.retrieval.tasks import RetrievalTask, nmse

_TEST_BATCH = 250


@dataclass(frozen=True)
class TrainingOptions:
    """Settings of training.

    Attributes:
        learning_rates: one restart each.
        num_steps: optimiser steps.
        batch_size: samples of a step; divides ``num_train``.
        num_train: samples of the training set (8000 in the published experiment).
        num_test: fresh samples on which errors are measured (2000 there); a multiple of 250.
        warmup: steps over which the learning rate rises.
        uniform: keep attention uniform from the start (the control).
    """

    learning_rates: tuple[float, ...] = (1e-2, 3e-3)
    num_steps: int = 1500
    batch_size: int = 250
    num_train: int = 8000
    num_test: int = 2000
    warmup: int = 100
    uniform: bool = False

    def __post_init__(self) -> None:
        for name in ("num_steps", "batch_size", "num_train", "num_test", "warmup"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected a positive integer, got {getattr(self, name)}")
        if self.num_train % self.batch_size:
            raise ValueError(
                f"num_train: expected a multiple of batch_size = {self.batch_size}, got {self.num_train}"
            )
        if self.num_test % _TEST_BATCH:
            raise ValueError(f"num_test: expected a multiple of {_TEST_BATCH}, got {self.num_test}")
        if not self.learning_rates or min(self.learning_rates) <= 0:
            raise ValueError(f"learning_rates: expected positive numbers, got {self.learning_rates}")


@dataclass(frozen=True, eq=False)
class Run:
    """A trained model and how well it does on fresh samples.

    Attributes:
        seed: of data and weights.
        learning_rate: of the restart.
        params: as in `theory.retrieval.model`.
        nmse: mean squared error over variance of the target; None where training diverged.
        nmse_uniform: the same with the trained model's attention replaced by uniform weights.
        matched: ``matched[i]`` is how often the head assigned to target i reads most from the very token that attains
            the target; None for a target without a head. The assignment (one head for one target) maximises the sum.
            None for models of several layers.
        heads: the head assigned to each target.
    """

    seed: int
    learning_rate: float
    params: dict[str, Any]
    nmse: float | None
    nmse_uniform: float | None
    matched: tuple[float | None, ...] | None
    heads: tuple[int | None, ...] | None


def train(
    model: RetrievalModel,
    task: RetrievalTask,
    *,
    seeds: Sequence[int],
    options: TrainingOptions | None = None,
    compiled: RetrievalModel | None = None,
) -> list[Run]:
    """Train one model for every seed and learning rate.

    Args:
        model: its sizes.
        task: of the model's length and width.
        seeds: non-negative.
        options: settings; the defaults if None.
        compiled: sizes that the program is compiled for (`theory.retrieval.model.initial_params`).

    Returns:
        Runs, seed by seed, each in the order of the learning rates.

    Raises:
        ValueError: if task and model disagree, or a seed is negative or given twice.
    """
    options = options or TrainingOptions()
    if (task.length, task.width) != (model.length, model.width):
        raise ValueError(
            f"task: expected length and width {(model.length, model.width)}, got {(task.length, task.width)}"
        )
    if len(set(seeds)) < len(seeds) or min(seeds, default=0) < 0:
        raise ValueError(f"seeds: expected different non-negative integers, got {list(seeds)}")
    sets = [drawn_data(task, seed, options) for seed in seeds]
    train_inputs, train_targets, test_inputs, test_targets = (
        np.stack(part) for part in zip(*sets, strict=True)
    )
    means, deviations = train_targets.mean(axis=1), train_targets.std(axis=1)
    params = [
        [
            initial_params(model, seeded_rng(seed, f"retrieval, weights {restart}"), compiled)
            for restart in range(len(options.learning_rates))
        ]
        for seed in seeds
    ]
    scale = 0.0 if options.uniform else model.attention_scale
    trained, predictions, ablated, tops = _run(
        jax.tree.map(
            lambda *leaves: np.stack(leaves), *[jax.tree.map(lambda *x: np.stack(x), *p) for p in params]
        ),
        train_inputs,
        ((train_targets - means[:, None]) / deviations[:, None]).astype(np.float32),
        test_inputs,
        np.array(options.learning_rates, np.float32),
        np.float32(scale),
        encoder=model.encoder,
        num_steps=options.num_steps,
        batch_size=options.batch_size,
        warmup=options.warmup,
    )
    trained = jax.tree.map(np.asarray, trained)
    runs = []
    for s, seed in enumerate(seeds):
        for r, rate in enumerate(options.learning_rates):
            own = jax.tree.map(lambda leaf, s=s, r=r: leaf[s, r], trained)
            errors = [
                _error(outputs[s, r], means[s], deviations[s], test_targets[s])
                for outputs in (np.asarray(predictions), np.asarray(ablated))
            ]
            run = Run(seed, rate, own, errors[0], errors[1], None, None)
            if model.num_layers == 1 and errors[0] is not None:
                top = np.asarray(tops)[s, r].reshape(options.num_test, -1)[:, : model.num_heads]
                matched, heads = match_heads(top, task.retrieved(test_inputs[s])[1])
                run = replace(run, matched=matched, heads=heads)
            runs.append(run)
    return runs


def match_heads(
    top: Int[np.ndarray, "b h"], positions: Int[np.ndarray, "b D"]
) -> tuple[tuple[float | None, ...], tuple[int | None, ...]]:
    """Assign heads to targets so that they agree most often on the token.

    Args:
        top: the token that each head reads most from, for every sample.
        positions: the token that attains each target.

    Returns:
        For every target, the share of samples in which its head's token is the one, and the head; None, None where
        there are more targets than heads.
    """
    agreement = (top[:, :, None] == positions[:, None, :]).mean(axis=0)
    rows, columns = linear_sum_assignment(agreement, maximize=True)
    found = dict(zip(columns.tolist(), rows.tolist(), strict=True))
    heads = tuple(found.get(target) for target in range(positions.shape[1]))
    return (
        tuple(None if head is None else float(agreement[head, target]) for target, head in enumerate(heads)),
        heads,
    )


def drawn_data(task: RetrievalTask, seed: int, options: TrainingOptions) -> tuple[np.ndarray, ...]:
    """Training and test inputs and targets of a seed."""
    out: list[np.ndarray] = []
    for purpose, count in (("training", options.num_train), ("test", options.num_test)):
        inputs = task.sample(seeded_rng(seed, f"retrieval, {purpose} inputs"), count)
        out += [inputs, task.targets(inputs)]
    return tuple(out)


def _error(outputs: np.ndarray, mean: float, deviation: float, targets: np.ndarray) -> float | None:
    predictions = outputs.reshape(-1).astype(np.float64) * deviation + mean
    return nmse(predictions, targets) if np.isfinite(predictions).all() else None


def squared_error(
    params: dict[str, Any],
    inputs: Float[Array, "b t d"],
    targets: Float[Array, " b"],
    *,
    encoder: Encoder,
    scale: Float[Array, ""],
) -> Float[Array, ""]:
    """What training minimises: mean squared error of standardised targets."""
    outputs = jax.vmap(partial(predict, params, encoder=encoder, scale=scale))(inputs)
    return jnp.mean(jnp.square(outputs - targets))


def optimiser_of(rate: Float[Array, ""], warmup: int, num_steps: int) -> optax.GradientTransformation:
    """Adam with clipped gradients, a warm-up and a cosine decay to zero after ``num_steps``."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1.0, warmup, num_steps)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(lambda step: rate * schedule(step)))


def minibatch_step(optimiser, loss, carry, index, inputs, targets, batch_size: int):
    """One optimiser step on minibatch ``index``: they are taken in turn."""
    params, state = carry
    start = (index * batch_size) % inputs.shape[0]
    batch = (jax.lax.dynamic_slice_in_dim(x, start, batch_size) for x in (inputs, targets))
    updates, state = optimiser.update(jax.grad(loss)(params, *batch), state)
    return jax.tree.map(jnp.add, params, updates), state


@partial(jax.jit, static_argnames=("encoder", "num_steps", "batch_size", "warmup"))
def _run(
    params: dict[str, Any],
    train_inputs: Float[Array, "s b t d"],
    train_targets: Float[Array, "s b"],
    test_inputs: Float[Array, "s c t d"],
    learning_rates: Float[Array, "r"],
    scale: Float[Array, ""],
    *,
    encoder: Encoder,
    num_steps: int,
    batch_size: int,
    warmup: int,
) -> tuple[Any, Array, Array, Array]:
    """Trained parameters, predictions with and without attention, and each head's first token, on the test set.

    Everything has leading axes (seed, restart) but the arguments; data is shared by restarts.
    """
    loss = partial(squared_error, encoder=encoder, scale=scale)

    def one(params, rate, inputs, targets, tests):
        optimiser = optimiser_of(rate, warmup, num_steps)

        def step(carry, index):
            return minibatch_step(optimiser, loss, carry, index, inputs, targets, batch_size), None

        (params, _), _ = jax.lax.scan(step, (params, optimiser.init(params)), jnp.arange(num_steps))

        def judge(inputs):
            normal, uniform = (
                jax.vmap(partial(predict, params, encoder=encoder, scale=factor))(inputs)
                for factor in (scale, jnp.zeros_like(scale))
            )
            if len(params["layers"]) > 1:
                return normal, uniform, normal
            weights = jax.vmap(partial(class_weights, params, encoder=encoder, scale=scale))(inputs)
            return normal, uniform, jnp.argmax(weights, axis=-1)

        parts = tests.reshape(-1, _TEST_BATCH, *tests.shape[1:])
        return params, *jax.lax.map(judge, parts)

    over_rates = jax.vmap(one, in_axes=(0, 0, None, None, None))
    return jax.vmap(over_rates, in_axes=(0, None, 0, 0, 0))(
        params, learning_rates, train_inputs, train_targets, test_inputs
    )
