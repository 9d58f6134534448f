"""Points of the pruning experiment and what a batch of them computes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from experiments.points import Kind, Record
from experiments.pretrained import forward, sizes
from experiments.pruning.config import PruningConfig
from experiments.pruning.data import pairs, sequences
from experiments.pruning.gating import train_gates
from experiments.pruning.removal import forward_removed, kept_groups, num_parameters, products, remove_heads
from experiments.pruning.subject import Subject, subject, text_of
from mha_jax import analysis
from theory.problems import seeded_rng

SHARES = ("previous", "next", "self", "first", "delimiter")


@dataclass(frozen=True)
class HeadPoint:
    """Scores of one head: importance, confidence, and where it looks.

    Attributes:
        model: as `experiments.pretrained.load` takes it.
        text: as in the configuration.
        num_tokens: likewise.
        length: likewise.
        layer: from 0.
        head: from 0.
    """

    model: str
    text: str
    num_tokens: int
    length: int
    layer: int
    head: int


@dataclass(frozen=True)
class PrunedPoint:
    """The loss when a fraction of the heads is removed in an order.

    Attributes:
        model: as in `HeadPoint`, like the next three.
        text: see there.
        num_tokens: see there.
        length: see there.
        order: of `experiments.pruning.config.ORDERS`.
        fraction_pruned: of all heads, rounded up to a whole number of them.
        seed: of a random order; else 0.
    """

    model: str
    text: str
    num_tokens: int
    length: int
    order: str
    fraction_pruned: float
    seed: int = 0


@dataclass(frozen=True)
class AblatedPoint:
    """The loss without one head, or with one head alone in its layer.

    Attributes:
        model: as in `HeadPoint`, like the next three.
        text: see there.
        num_tokens: see there.
        length: see there.
        ablation: ``single`` or ``all_but_one``.
        layer: the head's.
        head: which.
    """

    model: str
    text: str
    num_tokens: int
    length: int
    ablation: Literal["single", "all_but_one"]
    layer: int
    head: int


@dataclass(frozen=True)
class GatePoint:
    """The gate of one head.

    Attributes:
        model: as in `HeadPoint`, like the next three.
        text: see there.
        num_tokens: see there.
        length: see there.
        penalty: of the expected share of open gates, in units of the loss.
        num_steps: optimiser steps.
        sequences: of a step.
        layer: the head's.
        head: which.
    """

    model: str
    text: str
    num_tokens: int
    length: int
    penalty: float
    num_steps: int
    sequences: int
    layer: int
    head: int


@dataclass(frozen=True)
class TimedPoint:
    """One round of timing a model, whole (``fraction_pruned`` 0) or without some of its heads.

    Attributes:
        model: as in `HeadPoint`, like the next three.
        text: see there.
        num_tokens: see there.
        length: see there.
        removal: ``heads`` or ``groups``.
        batch_size: sequences.
        fraction_pruned: of the heads (or groups).
        seed: number of the round.
    """

    model: str
    text: str
    num_tokens: int
    length: int
    removal: str
    batch_size: int
    fraction_pruned: float
    seed: int


def _fields(point: type) -> set[str]:
    return set(point.__dataclass_fields__)


KINDS = {
    "heads": Kind(
        HeadPoint,
        frozenset(_fields(HeadPoint) | {"importance", "confidence", "entropy", "induction", *SHARES}),
        values=("layer", "head"),
    ),
    "points": Kind(
        PrunedPoint,
        frozenset(_fields(PrunedPoint) | {"heads_left", "loss", "ranking", "seconds"}),
        values=("fraction_pruned",),
    ),
    "ablations": Kind(
        AblatedPoint,
        frozenset(_fields(AblatedPoint) | {"loss", "ranking", "increase"}),
        values=("layer", "head"),
    ),
    "gates": Kind(
        GatePoint,
        frozenset(
            _fields(GatePoint) | {"gate", "open_probability", "heads_left", "loss", "ranking", "seconds"}
        ),
        values=("layer", "head"),
    ),
    "timings": Kind(
        TimedPoint,
        frozenset(_fields(TimedPoint) | {"heads_left", "kv_heads_left", "parameters", "products"})
        | {"loss", "difference", "scale", "seconds"},
        values=("fraction_pruned", "seed"),
    ),
}


def grid(config: PruningConfig) -> list[Any]:
    """All points of a configuration; the longest batches first."""
    points: list[Any] = []
    for model in config.models:
        shared: dict[str, Any] = {"model": model, "text": config.text}
        shared |= {"num_tokens": config.num_tokens, "length": config.length}
        size = sizes(model)
        num_layers, num_heads, num_kv_heads = size.num_layers, size.num_heads, size.num_kv_heads
        places: list[dict[str, Any]] = [
            {"layer": i, "head": j} for i in range(num_layers) for j in range(num_heads)
        ]
        if model in config.ablated_models:
            points += [
                AblatedPoint(**shared, ablation=kind, **place)
                for kind in ("single", "all_but_one")
                for place in places
            ]
        if model in config.gated_models:
            own: dict[str, Any] = {"num_steps": config.gate_steps, "sequences": config.gate_sequences}
            points += [
                GatePoint(**shared, penalty=penalty, **own, **place)
                for penalty in config.gate_penalties
                for place in places
            ]
        fractions = [i / config.steps for i in range(config.steps + 1)]
        for order in config.orders:
            for seed in range(config.random_orders if order == "random" else 1):
                points += [
                    PrunedPoint(**shared, order=order, fraction_pruned=f, seed=seed) for f in fractions
                ]
        if model in config.timed_models:
            points += [
                TimedPoint(**shared, removal=removal, batch_size=size, fraction_pruned=fraction, seed=seed)
                for removal in config.removals
                if removal == "heads" or num_kv_heads < num_heads
                for size in config.batch_sizes
                for fraction in (0.0, config.removed_fraction)
                for seed in range(config.rounds)
            ]
        points += [HeadPoint(**shared, **place) for place in places]
    return points


def compute(points: Sequence[Any]) -> list[Record]:
    """The records of one batch."""
    first = points[0]
    own = subject(first.model, first.text, first.num_tokens, first.length)
    return _COMPUTE[type(first)](own, points)


def _heads(own: Subject, points: Sequence[HeadPoint]) -> list[Record]:
    found: dict[str, Any] = {"importance": own.importance()} | own.measures()
    names = ("importance", "confidence", "entropy", "induction", *SHARES)
    return [
        asdict(p) | {name: _number(found[name][p.layer, p.head]) if name in found else None for name in names}
        for p in points
    ]


def order_of(own: Subject, point: PrunedPoint, counts: Sequence[int]) -> np.ndarray:
    """All heads of a model in the order in which a point's order removes them."""
    if point.order == "importance":
        return analysis.pruning_order(own.importance())
    if point.order == "importance_recomputed":
        return analysis.recomputed_order(own.importance, *own.shape, counts)
    if point.order == "confidence":
        return analysis.pruning_order(own.measures()["confidence"])
    if point.order == "ablation":
        return analysis.pruning_order(own.ablation())
    return analysis.random_order(*own.shape, seeded_rng(point.seed, "order of heads"))


def _pruned(own: Subject, points: Sequence[PrunedPoint]) -> list[Record]:
    started = time.perf_counter()
    counts = [analysis.num_pruned(point.fraction_pruned, own.num_heads) for point in points]
    order = order_of(own, points[0], sorted({0, *counts, own.num_heads}))
    records = []
    for point, count in zip(points, counts, strict=True):
        found = own.measure(analysis.kept_heads(order, count, *own.shape))
        records.append(asdict(point) | {"heads_left": own.num_heads - count} | asdict(found))
    seconds = round((time.perf_counter() - started) / len(points), 3)
    return [record | {"seconds": seconds} for record in records]


def _ablated(own: Subject, points: Sequence[AblatedPoint]) -> list[Record]:
    whole = own.measure(np.ones(own.shape, bool))
    make = analysis.single_heads if points[0].ablation == "single" else analysis.all_but_one
    masks = make(*own.shape)
    records = []
    for point in points:
        found = own.measure(masks[point.layer * own.shape[1] + point.head])
        records.append(asdict(point) | asdict(found) | {"increase": found.loss - whole.loss})
    return records


def _gated(own: Subject, points: Sequence[GatePoint]) -> list[Record]:
    started = time.perf_counter()
    first, tokenizer, words = points[0], own.model.tokenizer, text_of(points[0].text)
    if own.model.config.causal:
        batch = max(1, first.sequences // 4)  # sequences are four times as long as sentences, about
        data = sequences(tokenizer, words.train, first.num_steps * batch, first.length, batch)
    else:
        count = first.num_steps * first.sequences // 2
        data = pairs(tokenizer, words.train_sentences, count, first.length, max(1, first.sequences // 2))
    gates = train_gates(
        own.model.params,
        own.model.config,
        jnp.asarray(data.tokens),
        jnp.asarray(data.lengths),
        penalty=first.penalty,
        num_steps=first.num_steps,
        seed=0,
    )
    kept = gates.settled > 0
    shared = asdict(own.measure(kept)) | {"heads_left": int(kept.sum())}
    shared["seconds"] = round(time.perf_counter() - started, 3)
    return [
        asdict(p)
        | {"gate": _number(gates.settled[p.layer, p.head])}
        | {"open_probability": _number(gates.open_probability[p.layer, p.head])}
        | shared
        for p in points
    ]


def _kept(own: Subject, point: TimedPoint, fraction: float) -> Bool[np.ndarray, "L N"]:
    if point.removal == "groups":
        return kept_groups(own.importance(), own.model.config.num_kv_heads, fraction)
    order = analysis.pruning_order(own.importance())
    return analysis.kept_heads(order, analysis.num_pruned(fraction, own.num_heads), *own.shape)


def _timed(own: Subject, points: Sequence[TimedPoint]) -> list[Record]:
    """Whole and pruned models in drawn order, each of them once a round."""
    first, params, config = points[0], own.model.params, own.model.config
    shape = (first.batch_size, first.length)
    tokens = jnp.asarray(np.resize(own.test.tokens[own.test.words], shape))
    lengths = jnp.full(first.batch_size, first.length)
    models, shared = {}, {}
    for fraction in dict.fromkeys(point.fraction_pruned for point in points):
        kept = _kept(own, first, fraction)
        removed = remove_heads(params, config, kept)
        run = partial(forward_removed, removed, config, tokens, lengths)
        models[fraction] = run
        masked = forward(params, config, tokens, lengths, head_mask=jnp.asarray(kept, jnp.float32))
        ours, theirs = (o.hidden if o.logits is None else o.logits for o in (run(), masked))
        shared[fraction] = {
            "heads_left": int(kept.sum()),
            "kv_heads_left": int(kept.reshape(kept.shape[0], config.num_kv_heads, -1).any(-1).sum()),
            "parameters": num_parameters(removed),
            "products": products(removed, config, first.length),
            "loss": own.measure(kept).loss,
            "difference": float(jnp.abs(ours - theirs).max()),
            "scale": float(jnp.abs(theirs).max()),
        }
    seconds: dict[tuple[float, int], float] = {}
    rng = seeded_rng(0, "turns of timing")
    for turn in dict.fromkeys(point.seed for point in points):
        for i in rng.permutation(len(models)):
            fraction = list(models)[i]
            started = time.perf_counter()
            jax.block_until_ready(models[fraction]())
            seconds[fraction, turn] = time.perf_counter() - started
    return [
        asdict(p) | shared[p.fraction_pruned] | {"seconds": round(seconds[p.fraction_pruned, p.seed], 6)}
        for p in points
    ]


_COMPUTE: dict[type, Any] = {
    HeadPoint: _heads,
    PrunedPoint: _pruned,
    AblatedPoint: _ablated,
    GatePoint: _gated,
    TimedPoint: _timed,
}


def _number(value: Any) -> float | None:
    value = float(value)
    return value if np.isfinite(value) else None
