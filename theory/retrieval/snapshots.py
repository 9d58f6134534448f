"""A retrieval model watched on its way, and what it is worth without some of its heads.

Training is that of `theory.retrieval.training`, one run for each seed. Heads are removed by a factor 0 on their output,
values' share of the encoder's bias included, without training again; the score of what is left is ``1 - NMSE`` on fresh
samples, 1 for a perfect answer and 0 for the mean of the targets. Importance is Michel et al.'s (2019): the mean over
samples of the absolute derivative of a sample's loss with respect to that factor, on training samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from mha_jax.analysis import head_importance
from theory.problems import seeded_rng
from theory.retrieval.model import Encoder, RetrievalModel, initial_params, predict
from theory.retrieval.tasks import RetrievalTask
from theory.retrieval.training import (
    TrainingOptions,
    drawn_data,
    minibatch_step,
    optimiser_of,
    squared_error,
)

IMPORTANCE_SAMPLES = 500


@dataclass(frozen=True, eq=False)
class Watched:
    """One seed's model at several steps of its training, on data that stays.

    Attributes:
        model: its sizes; one layer.
        steps: optimiser steps at which it was looked at.
        params: of every look, arrays with the looks in front.
        train_inputs: the first `IMPORTANCE_SAMPLES` of the training set.
        train_targets: standardised.
        test_inputs: fresh samples.
        test_targets: standardised by the training set's mean and deviation.
    """

    model: RetrievalModel
    steps: tuple[int, ...]
    params: Mapping[str, Any]
    train_inputs: Float[np.ndarray, "b t d"]
    train_targets: Float[np.ndarray, " b"]
    test_inputs: Float[np.ndarray, "c t d"]
    test_targets: Float[np.ndarray, " c"]

    def importance(self, look: int) -> Float[np.ndarray, " h"]:
        """I_h of every head at one look, of norm 1 over the heads."""
        return np.asarray(_importance(self._at(look), self.train_inputs, self.train_targets, **self._static))

    def scores(self, look: int, kept: Bool[np.ndarray, "k h"]) -> Float[np.ndarray, " k"]:
        """``1 - NMSE`` on fresh samples with some heads alone, for each row of ``kept``."""
        masks = jnp.asarray(kept, jnp.float32)
        outputs = np.asarray(_outputs(self._at(look), self.test_inputs, masks, **self._static), np.float64)
        targets = self.test_targets.astype(np.float64)
        return 1.0 - np.square(outputs - targets[None]).mean(axis=1) / targets.var()

    def _at(self, look: int) -> Any:
        return jax.tree.map(lambda leaf: leaf[look], self.params)

    @property
    def _static(self) -> dict[str, Any]:
        return {"encoder": self.model.encoder, "scale": self.model.attention_scale}


def watch(
    model: RetrievalModel,
    task: RetrievalTask,
    *,
    seeds: Sequence[int],
    steps: Sequence[int],
    learning_rate: float,
    options: TrainingOptions,
) -> list[Watched]:
    """Train one model of one layer for every seed, and keep it at the given steps.

    Args:
        model: its sizes.
        task: of the model's length and width.
        seeds: non-negative, different; they decide data and initial weights, as in `theory.retrieval.train`.
        steps: ascending positive numbers, the last at most ``options.num_steps``.
        learning_rate: of all runs; those of ``options`` are not heeded.
        options: settings. The learning rate falls to zero at ``num_steps``, whatever the last of ``steps`` is.

    Raises:
        ValueError: if task and model disagree, the model has several layers, or steps are not such.
    """
    if (task.length, task.width) != (model.length, model.width):
        raise ValueError(
            f"task: expected length and width {(model.length, model.width)}, got {(task.length, task.width)}"
        )
    if model.num_layers != 1:
        raise ValueError(f"model: expected one layer, got {model.num_layers}")
    ascending = bool(steps) and steps[0] >= 1 and all(a < b for a, b in pairwise(steps))
    if not ascending or steps[-1] > options.num_steps:
        raise ValueError(
            f"steps: expected ascending numbers from 1 to {options.num_steps}, got {list(steps)}"
        )
    sets = [drawn_data(task, seed, options) for seed in seeds]
    inputs, targets, test_inputs, test_targets = (np.stack(part) for part in zip(*sets, strict=True))
    mean, deviation = targets.mean(axis=1)[:, None], targets.std(axis=1)[:, None]
    standardised = ((targets - mean) / deviation).astype(np.float32)
    params = [initial_params(model, seeded_rng(seed, "retrieval, weights 0")) for seed in seeds]
    kept = _watch(
        jax.tree.map(lambda *leaves: np.stack(leaves), *params),
        inputs,
        standardised,
        np.float32(learning_rate),
        np.float32(0.0 if options.uniform else model.attention_scale),
        jnp.asarray(np.diff([0, *steps]), jnp.int32),
        encoder=model.encoder,
        num_steps=options.num_steps,
        batch_size=options.batch_size,
        warmup=options.warmup,
    )
    kept = jax.tree.map(np.asarray, kept)
    few = slice(IMPORTANCE_SAMPLES)
    return [
        Watched(
            model=model,
            steps=tuple(steps),
            params=jax.tree.map(lambda leaf, s=s: leaf[s], kept),
            train_inputs=inputs[s, few],
            train_targets=standardised[s, few],
            test_inputs=test_inputs[s],
            test_targets=((test_targets[s] - mean[s]) / deviation[s]).astype(np.float32),
        )
        for s in range(len(seeds))
    ]


@partial(jax.jit, static_argnames=("encoder", "num_steps", "batch_size", "warmup"))
def _watch(
    params: dict[str, Any],
    train_inputs: Float[Array, "s b t d"],
    train_targets: Float[Array, "s b"],
    learning_rate: Float[Array, ""],
    scale: Float[Array, ""],
    lengths: Int[Array, " c"],
    *,
    encoder: Encoder,
    num_steps: int,
    batch_size: int,
    warmup: int,
) -> Any:
    """Parameters of all seeds after every stretch of ``lengths`` steps: leading axes (seed, stretch)."""
    loss = partial(squared_error, encoder=encoder, scale=scale)
    optimiser = optimiser_of(learning_rate, warmup, num_steps)

    def one(params, inputs, targets):
        def stretch(carry, length):
            index, state = carry

            def step(i, state):
                return minibatch_step(optimiser, loss, state, index + i, inputs, targets, batch_size)

            state = jax.lax.fori_loop(0, length, step, state)
            return (index + length, state), state[0]

        start = (jnp.zeros((), jnp.int32), (params, optimiser.init(params)))
        return jax.lax.scan(stretch, start, lengths)[1]

    return jax.vmap(one)(params, train_inputs, train_targets)


def _masked(params: Mapping[str, Any], mask: Float[Array, " h"]) -> dict[str, Any]:
    """The same model with every head's output multiplied by a number."""
    [layer] = params["layers"]
    out = {"kernel": layer["out"]["kernel"] * mask[:, None, None]}
    return {**params, "layers": [{**layer, "out": out}]}


@partial(jax.jit, static_argnames=("encoder",))
def _outputs(
    params: Mapping[str, Any],
    inputs: Float[Array, "b t d"],
    masks: Float[Array, "k h"],
    *,
    encoder: Encoder,
    scale: Float[Array, ""] | float,
) -> Float[Array, "k b"]:
    def with_mask(mask):
        own = _masked(params, mask)
        return jax.vmap(partial(predict, own, encoder=encoder, scale=scale))(inputs)

    return jax.vmap(with_mask)(masks)


@partial(jax.jit, static_argnames=("encoder",))
def _importance(
    params: Mapping[str, Any],
    inputs: Float[Array, "b t d"],
    targets: Float[Array, " b"],
    *,
    encoder: Encoder,
    scale: Float[Array, ""] | float,
) -> Float[Array, " h"]:
    [layer] = params["layers"]

    def loss(mask: Float[Array, "1 b 1 h"]) -> Float[Array, ""]:
        def one(mask, x, y):
            return jnp.square(predict(_masked(params, mask), x, encoder=encoder, scale=scale) - y)

        return jax.vmap(one)(mask[0, :, 0], inputs, targets).sum()

    ones = jnp.ones((1, len(inputs), 1, layer["out"]["kernel"].shape[0]), inputs.dtype)
    return head_importance(loss, ones)[0]
