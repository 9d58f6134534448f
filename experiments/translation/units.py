"""What a batch of points computes: all seeds of a setting (or learning rates), trained in one program."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.checkpoints import Checkpoint
from experiments.operations import compiled_operations
from experiments.points import Record
from experiments.translation.counts import text_counts
from experiments.translation.model import ModelShape, parameters_of
from experiments.translation.plan import BaselinePoint, TextPoint, TranslationPoint, TuningPoint, shape_of
from experiments.translation.rows import Rows, TrainingRows
from experiments.translation.scoring import copy_bleu, held_out_bleu, perplexity
from experiments.translation.subwords import Encoded, encoded
from experiments.translation.training import Recipe, State, chunk, chunk_size, starts

KEPT_EVERY = 600.0
"""Seconds between two states of a training that are kept."""


class Trained(NamedTuple):
    """Models of one shape, side by side.

    Attributes:
        parameters: with a leading axis over models.
        flops_per_step: of one model, by XLA's count of the compiled program; None where that is not known: see
            `experiments.operations.compiled_operations`.
        seconds_per_step: of one model, without compiling.
    """

    parameters: Any
    flops_per_step: float | None
    seconds_per_step: float


def compute(points: Sequence[TranslationPoint | TextPoint]) -> list[Record]:
    """The records of a batch."""
    started = time.perf_counter()
    text = encoded(points[0].pairs, points[0].vocab_size)
    records = _records(points, text)
    seconds = round((time.perf_counter() - started) / len(points), 3)
    return [
        asdict(point) | record | {"seconds": seconds} for point, record in zip(points, records, strict=True)
    ]


def _records(points: Sequence[Any], text: Encoded) -> list[Record]:
    first = points[0]
    if isinstance(first, TextPoint):
        return [text_counts(text, point.length) for point in points]
    shape = shape_of(first, text.subwords.vocab_size)
    if isinstance(first, BaselinePoint):
        return [_baseline(point, shape, text) for point in points]
    checkpoint = checkpoint_of(points, text)
    records = _judged(points, shape, text, train(points, shape, text, checkpoint))
    checkpoint.remove()
    return records


def train(
    points: Sequence[TranslationPoint],
    shape: ModelShape,
    text: Encoded,
    checkpoint: Checkpoint | None = None,
) -> Trained:
    """Train a model for every point; they differ in seed or learning rate alone."""
    trained = None
    for _, trained in watched(points, shape, text, checkpoint):  # noqa: B007
        pass
    assert trained is not None
    return trained


def checkpoint_of(points: Sequence[TranslationPoint], text: Encoded) -> Checkpoint:
    """Where a training keeps its state; another one for another text or device."""
    key = {
        "points": [asdict(point) for point in points],
        "text": text.digest(),
        "device": jax.local_devices()[0].device_kind,
    }
    return Checkpoint("translation", key)


def watched(
    points: Sequence[TranslationPoint], shape: ModelShape, text: Encoded, checkpoint: Checkpoint | None = None
) -> Iterator[tuple[int, Trained]]:
    """`train`, with the number of steps and the models after every chunk of them.

    The parameters are given up for the next chunk: who wants to keep them makes a copy.

    Args:
        points: as of `train`.
        shape: of the models.
        text: to train on.
        checkpoint: where the state is kept every `KEPT_EVERY` seconds, and taken from: then the first number of steps
            is that of the state.
    """
    first = points[0]
    recipe = Recipe(first.num_steps, first.warmup)
    steps, rows, size = first.num_steps, first.rows, chunk_size(first.num_steps)
    streams = {
        seed: TrainingRows(text.train, first.length, seed)
        for seed in dict.fromkeys(point.seed for point in points)
    }
    rates = jnp.array([point.learning_rate for point in points], jnp.float32)
    states = starts(shape, jnp.stack([jax.random.key(point.seed) for point in points]))
    like = jax.ShapeDtypeStruct((len(points), size, rows, first.length), jnp.int32)
    compiled = chunk.lower(shape, recipe, rates, states, Rows(like, like, like, like)).compile()
    counted = compiled_operations(compiled, loops=1)["compiled_operations"]  # one step of the scan
    flops = None if counted is None else counted / len(points)
    done, seconds = 0, 0.0
    if checkpoint is not None and (kept := checkpoint.load()) is not None:
        states, done, seconds = _restored(states, kept)
        for stream in streams.values():
            stream.skip(done * rows)
        yield done, Trained(states.parameters, flops, seconds / done / len(points))
    saved = time.monotonic()
    while done < steps:
        made = {seed: stream.take(size * rows) for seed, stream in streams.items()}
        batches = _batches([made[point.seed] for point in points], size, rows)
        start = time.perf_counter()
        states, values = compiled(rates, states, batches)
        jax.block_until_ready(values)
        seconds += time.perf_counter() - start
        done += size
        if checkpoint is not None and time.monotonic() - saved >= KEPT_EVERY:
            checkpoint.save(_kept(states, done, seconds))
            saved = time.monotonic()
        yield done, Trained(states.parameters, flops, seconds / done / len(points))


def _kept(states: State, done: int, seconds: float) -> dict[str, np.ndarray]:
    """A state of training as arrays: the leaves of its tree, in order."""
    leaves = jax.tree.leaves(states._replace(key=jax.random.key_data(states.key)))
    arrays = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    return arrays | {"done": np.array(done), "seconds": np.array(seconds)}


def _restored(like: State, arrays: Mapping[str, np.ndarray]) -> tuple[State, int, float]:
    """What `_kept` kept, in the form of another state."""
    structure = jax.tree.structure(like)
    leaves = [jnp.asarray(arrays[f"leaf{i}"]) for i in range(structure.num_leaves)]
    states = jax.tree.unflatten(structure, leaves)
    states = states._replace(key=jax.random.wrap_key_data(states.key))
    return states, int(arrays["done"]), float(arrays["seconds"])


def _batches(per_point: Sequence[Rows], size: int, rows: int) -> Rows:
    """The rows of a chunk of steps, ``(models, steps, rows, length)``."""
    stacked = (np.stack(parts) for parts in zip(*per_point, strict=True))
    return Rows(*(part.reshape(len(part), size, rows, -1) for part in stacked))


def _judged(
    points: Sequence[TranslationPoint], shape: ModelShape, text: Encoded, trained: Trained
) -> list[Record]:
    length = points[0].length
    dev = perplexity(shape, trained.parameters, text.dev, length)
    test = perplexity(shape, trained.parameters, text.test, length)
    records = []
    for index, point in enumerate(points):
        parameters = jax.tree.map(lambda x, index=index: x[index], trained.parameters)
        ok = math.isfinite(dev[index])
        record: Record = {
            "status": "ok" if ok else "failed",
            "reason": None if ok else "diverged",
            "dev_perplexity": dev[index] if ok else None,
        }
        if not isinstance(point, TuningPoint):
            score, signature = held_out_bleu(shape, parameters, text, length) if ok else (None, None)
            record |= {
                "perplexity": test[index] if ok else None,
                "bleu": score,
                "signature": signature,
                "num_params": sum(leaf.size for leaf in jax.tree.leaves(parameters)),
                "flops_per_step": trained.flops_per_step,
                "seconds_per_step": round(trained.seconds_per_step, 5),
            }
        records.append(record)
    return records


def _baseline(point: TranslationPoint, shape: ModelShape, text: Encoded) -> Record:
    parameters = parameters_of(shape, jax.random.key(point.seed))
    [value] = perplexity(shape, jax.tree.map(lambda x: x[None], parameters), text.test, point.length)
    score, _ = held_out_bleu(shape, parameters, text, point.length)
    return {"untrained_perplexity": value, "untrained_bleu": score, "copy_bleu": copy_bleu(text)}
