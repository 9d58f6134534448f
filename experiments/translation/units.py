"""What a batch of points computes: all seeds of a setting (or learning rates), trained in one program."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.points import Record
from experiments.translation.data import Encoded, Rows, encoded, training_rows
from experiments.translation.model import ModelShape, parameters_of
from experiments.translation.plan import BaselinePoint, TranslationPoint, TuningPoint, shape_of
from experiments.translation.scoring import copy_bleu, held_out_bleu, perplexity
from experiments.translation.training import Recipe, chunk, chunk_size, starts


class Trained(NamedTuple):
    """Models of one shape, side by side.

    Attributes:
        parameters: with a leading axis over models.
        flops_per_step: of one model, by XLA's count of the compiled program.
        seconds_per_step: of one model, without compiling.
    """

    parameters: Any
    flops_per_step: float
    seconds_per_step: float


def compute(points: Sequence[TranslationPoint]) -> list[Record]:
    """The records of a batch."""
    started = time.perf_counter()
    first = points[0]
    text = encoded(first.pairs, first.vocab_size)
    shape = shape_of(first, text.subwords.vocab_size)
    if isinstance(first, BaselinePoint):
        records = [_baseline(point, shape, text) for point in points]
    else:
        trained = train(points, shape, text)
        records = _judged(points, shape, text, trained)
    seconds = round((time.perf_counter() - started) / len(points), 3)
    return [
        asdict(point) | record | {"seconds": seconds} for point, record in zip(points, records, strict=True)
    ]


def train(points: Sequence[TranslationPoint], shape: ModelShape, text: Encoded) -> Trained:
    """Train a model for every point; they differ in seed or learning rate alone."""
    trained = None
    for _, trained in watched(points, shape, text):  # noqa: B007
        pass
    assert trained is not None
    return trained


def watched(
    points: Sequence[TranslationPoint], shape: ModelShape, text: Encoded
) -> Iterator[tuple[int, Trained]]:
    """`train`, with the number of steps and the models after every chunk of them.

    The parameters are given up for the next chunk: who wants to keep them makes a copy.
    """
    first = points[0]
    recipe = Recipe(first.num_steps, first.warmup)
    steps, rows = first.num_steps, first.rows
    by_seed = {
        seed: training_rows(text.train, first.length, steps * rows, seed)
        for seed in dict.fromkeys(point.seed for point in points)
    }
    per_point = [by_seed[point.seed] for point in points]
    keys = jnp.stack([jax.random.key(point.seed) for point in points])
    rates = jnp.array([point.learning_rate for point in points], jnp.float32)
    states = starts(shape, keys)
    compiled, flops, seconds = None, 0.0, 0.0
    size = chunk_size(steps)
    for begin in range(0, steps, size):
        batches = _batches(per_point, begin, size, rows)
        if compiled is None:
            compiled = chunk.lower(shape, recipe, rates, states, batches).compile()
            flops = float((compiled.cost_analysis() or {}).get("flops", math.nan))
        start = time.perf_counter()
        states, values = compiled(rates, states, batches)
        jax.block_until_ready(values)
        seconds += time.perf_counter() - start
        done = begin + size
        yield done, Trained(states.parameters, flops / len(points), seconds / done / len(points))


def _batches(per_point: Sequence[Rows], begin: int, size: int, rows: int) -> Rows:
    """The rows of a chunk of steps, ``(models, steps, rows, length)``."""
    span = slice(begin * rows, (begin + size) * rows)
    stacked = (np.stack([part[span] for part in parts]) for parts in zip(*per_point, strict=True))
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
