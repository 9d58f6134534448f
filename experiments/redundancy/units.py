"""What a batch computes: one model is trained, and heads are removed at every checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from experiments.points import Record
from experiments.redundancy.points import RedundancyPoint, training_of
from experiments.redundancy.scores import frequency_loss, importance
from experiments.translation.model import ATTENTIONS, ModelShape, without_heads
from experiments.translation.plan import shape_of
from experiments.translation.rows import single
from experiments.translation.scoring import bleu, perplexity
from experiments.translation.search import translate
from experiments.translation.subwords import Encoded, encoded
from experiments.translation.units import watched
from mha_jax.analysis import kept_heads, num_pruned, pruning_order, random_order
from theory.problems import seeded_rng


@dataclass(frozen=True)
class Checkpoint:
    """A model at a time of its training.

    Attributes:
        parameters: without a leading axis.
        importance: I_h of its heads, (A, N).
    """

    parameters: Any
    importance: Float[np.ndarray, "a n"]


def compute(points: Sequence[RedundancyPoint]) -> list[Record]:
    """The records of one model."""
    started = time.perf_counter()
    first = points[0]
    training = training_of(first)
    text = encoded(first.pairs, first.vocab_size)
    shape = shape_of(training, text.subwords.vocab_size)
    scored = text.train[:: max(1, len(text.train) // first.num_scored)][: first.num_scored]
    found: dict[int, Checkpoint] = {}
    for steps, trained in watched([training], shape, text):
        if steps in first.looks:
            parameters = jax.tree.map(lambda x: np.asarray(x[0]), trained.parameters)
            found[steps] = Checkpoint(parameters, importance(shape, parameters, scored, first.length))
    baseline = frequency_loss(text.train, text.test, text.subwords.vocab_size)
    records = []
    for group in _groups(points):
        records += _judged(group, found[group[0].steps], shape, text, baseline)
    seconds = round((time.perf_counter() - started) / len(points), 3)
    return [record | {"seconds": seconds} for record in records]


def _groups(points: Sequence[RedundancyPoint]) -> Iterable[list[RedundancyPoint]]:
    """Points of one checkpoint and order, in their order."""
    groups: dict[Any, list[RedundancyPoint]] = {}
    for point in points:
        groups.setdefault((point.steps, point.order, point.draw), []).append(point)
    return groups.values()


def _judged(
    points: Sequence[RedundancyPoint],
    checkpoint: Checkpoint,
    shape: ModelShape,
    text: Encoded,
    baseline: float,
) -> list[Record]:
    first = points[0]
    masks = np.stack([kept(point, checkpoint.importance) for point in points])
    remove: Callable[[Any], Any] = jax.vmap(partial(without_heads, shape, checkpoint.parameters))
    pruned = remove(jnp.asarray(masks, jnp.float32))
    losses = np.log(perplexity(shape, pruned, text.test, first.length))
    records = []
    for i, point in enumerate(points):
        ok = bool(np.isfinite(losses[i]))
        own = jax.tree.map(lambda x, i=i: x[i], pruned)
        translated = ok and point.order != "random"
        records.append(
            asdict(point)
            | {
                "looks": list(point.looks),
                "status": "ok" if ok else "failed",
                "reason": None if ok else "diverged",
                "heads_left": int(masks[i].sum()),
                "left_by_kind": masks[i].reshape(len(ATTENTIONS), -1).sum(-1).tolist(),
                "loss": float(losses[i]) if ok else None,
                "gain": baseline - float(losses[i]) if ok else None,
                "bleu": translated_bleu(shape, own, text, point) if translated else None,
            }
        )
    return records


def kept(point: RedundancyPoint, scores: Float[np.ndarray, "a n"]) -> Bool[np.ndarray, "a n"]:
    """Which heads a point leaves."""
    layers, heads = scores.shape
    if point.order == "random":
        rng = seeded_rng(point.draw, f"redundancy, order of heads of model {point.seed}")
        order = random_order(layers, heads, rng)
    else:
        order = pruning_order(scores)
    if point.order in ATTENTIONS:
        depth = layers // len(ATTENTIONS)
        begin = ATTENTIONS.index(point.order) * depth
        order = np.array([head for head in order if begin <= head // heads < begin + depth])
    return kept_heads(order, num_pruned(point.fraction_pruned, len(order)), layers, heads)


def translated_bleu(shape: ModelShape, parameters: Any, text: Encoded, point: RedundancyPoint) -> float:
    """BLEU of held-out pairs at equal distances."""
    count = min(point.num_translated, len(text.test))
    chosen = [i * len(text.test) // count for i in range(count)]
    rows = single([text.test[i] for i in chosen], point.length)
    found = [text.subwords.decode(tokens) for tokens in translate(shape, parameters, rows)]
    return bleu(found, [text.corpus.test[i][1] for i in chosen])[0]
