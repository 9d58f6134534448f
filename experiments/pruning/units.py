"""What a batch of points of the pruning experiment computes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from experiments.points import Record
from experiments.pretrained import forward
from experiments.pruning.data import gate_batches, text_of
from experiments.pruning.gating import train_gates
from experiments.pruning.points import (
    SHARES,
    AblatedPoint,
    GatePoint,
    HeadPoint,
    MatchedPoint,
    PrunedPoint,
    TimedPoint,
)
from experiments.pruning.removal import forward_removed, kept_groups, num_parameters, products, remove_heads
from experiments.pruning.subject import Subject, subject
from mha_jax import analysis
from theory.problems import seeded_rng


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


def _matched(own: Subject, points: Sequence[MatchedPoint]) -> list[Record]:
    order = analysis.pruning_order(own.importance())
    return [
        asdict(p) | asdict(own.measure(analysis.kept_heads(order, own.num_heads - p.heads_left, *own.shape)))
        for p in points
    ]


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
    first = points[0]
    data = gate_batches(
        own.model.tokenizer,
        text_of(first.text),
        first.num_steps,
        first.sequences,
        first.length,
        causal=own.model.config.causal,
    )
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
    MatchedPoint: _matched,
    TimedPoint: _timed,
}


def _number(value: Any) -> float | None:
    value = float(value)
    return value if np.isfinite(value) else None
