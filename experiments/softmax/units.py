"""Points of the softmax experiment and what a batch computes: all seeds of one configuration."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from experiments.points import Kind, Record
from experiments.softmax.config import SoftmaxConfig
from theory.problems import make_problem, seeded_rng
from theory.recognition import evaluate
from theory.softmax import (
    TASKS,
    Margin,
    Rates,
    SoftmaxOptions,
    absent_output,
    channel_margin,
    decode_direction,
    draw_contexts,
    head_scores_of,
    item_rates,
    neighbours,
    one_owner_error,
    one_owner_heads,
    pair_rates,
    shared_output,
    sufficient_scale,
    train_softmax,
    weights_on,
)
from theory.training import train

ERROR = 0.1
"""Distance from the neighbour's value for which the scale of a transplanted channel is sufficient."""
SCALED_MARGINS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0)
"""``beta gamma`` at which outputs are compared with their bounds."""


@dataclass(frozen=True)
class SoftmaxPoint:
    """One trained channel.

    Attributes:
        arm: greedy, joint, weights or values.
        num_items: ``m``.
        d_model: ``d``.
        total_key_dim: ``D_K``.
        num_heads: ``h``.
        context_size: ``l``.
        num_test: contexts on which it is judged.
        seed: of everything that is drawn.
        num_contexts: contexts of a step; None where training takes all pairs.
        num_steps: of end-to-end training; None elsewhere.
        learning_rate: of it.
    """

    arm: str
    num_items: int
    d_model: int
    total_key_dim: int
    num_heads: int
    context_size: int
    num_test: int
    seed: int
    num_contexts: int | None = None
    num_steps: int | None = None
    learning_rate: float | None = None


@dataclass(frozen=True)
class LemmaPoint:
    """One constructed channel with one owner an edge, looked at over a range of scales.

    Attributes:
        num_items: ``m``.
        d_model: ``d``, also the size of a head.
        num_heads: ``h``.
        context_size: ``l``.
        num_test: contexts.
        seed: of items, graph and contexts.
    """

    num_items: int
    d_model: int
    num_heads: int
    context_size: int
    num_test: int
    seed: int


_OUTPUTS = {"scaled_margins", "worst_error", "error_bound", "worst_absent", "absent_bound"}
KINDS = {
    "points": Kind(
        SoftmaxPoint,
        frozenset(SoftmaxPoint.__dataclass_fields__)
        | {"status", "reason", "head_dim", "f1", "accuracy", "pairs_best_f1", "exact_recovery", "seconds"}
        | {"margin", "one_owner", "most_owners", "scale", "softmax_f1", "softmax_accuracy", "values_accuracy"}
        | {"largest_excess"},
    ),
    "lemma": Kind(
        LemmaPoint,
        frozenset(LemmaPoint.__dataclass_fields__) | {"constructed", "margin", "seconds"} | _OUTPUTS,
    ),
}


def grid(config: SoftmaxConfig) -> list[SoftmaxPoint | LemmaPoint]:
    """All points of a configuration."""
    points: list[SoftmaxPoint | LemmaPoint] = []
    for total in config.total_key_dims:
        for heads in config.head_counts:
            if total % heads:
                continue
            for arm in config.arms:
                trained = {
                    "num_contexts": config.num_contexts,
                    "num_steps": config.num_steps,
                    "learning_rate": config.learning_rate,
                }
                points += [
                    SoftmaxPoint(
                        arm=arm,
                        num_items=config.num_items,
                        d_model=config.d_model,
                        total_key_dim=total,
                        num_heads=heads,
                        context_size=config.context_size,
                        num_test=config.num_test,
                        seed=seed,
                        **(trained if arm in ("weights", "values") else {}),
                    )
                    for seed in range(config.seeds)
                ]
    for heads in config.lemma_heads:
        points += [
            LemmaPoint(config.lemma_items, config.d_model, heads, config.lemma_context, config.num_test, seed)
            for seed in range(config.seeds)
        ]
    return points


def work_of(point: SoftmaxPoint | LemmaPoint) -> float:
    """How much a batch costs, about, in seconds."""
    if isinstance(point, LemmaPoint):
        return 1.0
    if point.num_steps is None:
        return 3.0 + 0.3 * point.num_heads
    return 2.0 + point.num_steps / 1000 * (1 + 0.5 * point.num_heads)


def compute(points: Sequence[Any]) -> list[Record]:
    """All seeds of one configuration."""
    started = time.perf_counter()
    records = _lemma(points) if isinstance(points[0], LemmaPoint) else _trained(points)
    seconds = round((time.perf_counter() - started) / len(points), 3)
    return [asdict(p) | r | {"seconds": seconds} for p, r in zip(points, records, strict=True)]


def problem_of(point: SoftmaxPoint | LemmaPoint) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Items, adjacency and test contexts of a point's seed."""
    made = make_problem(
        num_items=point.num_items,
        num_edges=point.num_items,
        d_model=point.d_model,
        embedding="gaussian",
        graph="permutation",
        seed=point.seed,
    )
    rng = seeded_rng(point.seed, "softmax test contexts")
    contexts = draw_contexts(point.num_items, point.context_size, point.num_test, rng)
    return made.embeddings, made.graph.adjacency(), contexts


def _trained(points: Sequence[SoftmaxPoint]) -> list[Record]:
    first = points[0]
    drawn = [problem_of(point) for point in points]
    embeddings, adjacency = (np.stack(part) for part in list(zip(*drawn, strict=True))[:2])
    seeds = [point.seed for point in points]
    heads, head_dim = first.num_heads, first.total_key_dim // first.num_heads
    if first.arm in ("greedy", "joint"):
        name = "plain" if first.arm == "joint" else "greedy"
        channels = train(name, embeddings, adjacency, seeds=seeds, num_heads=heads, head_dim=head_dim)
        return [_channel_record(p, d, c) for p, d, c in zip(points, drawn, channels, strict=True)]
    assert first.num_contexts is not None
    assert first.num_steps is not None
    assert first.learning_rate is not None
    options = SoftmaxOptions(
        first.context_size, first.num_contexts, first.num_steps, learning_rate=first.learning_rate
    )
    task = TASKS[[str(known) for known in TASKS].index(first.arm)]
    trained = train_softmax(
        task, embeddings, adjacency, seeds=seeds, options=options, num_heads=heads, head_dim=head_dim
    )
    return [_softmax_record(p, d, c) for p, d, c in zip(points, drawn, trained, strict=True)]


def _empty(point: SoftmaxPoint) -> Record:
    names = KINDS["points"].fields - set(SoftmaxPoint.__dataclass_fields__) - {"seconds"}
    head_dim = point.total_key_dim // point.num_heads
    return dict.fromkeys(names) | {"status": "ok", "reason": None, "head_dim": head_dim}


def _channel_record(point: SoftmaxPoint, drawn: tuple[np.ndarray, ...], channel: Any) -> Record:
    """A channel of the maximum, and its weights put into softmax heads where it is exact."""
    items, edges, contexts = drawn
    record = _empty(point)
    if channel.reason is not None:
        return record | {"status": "failed", "reason": channel.reason}
    scores = head_scores_of(items, channel.query_weights, channel.key_weights)
    best = scores.max(axis=0)
    found = evaluate(best, edges, channel.threshold)
    rates = pair_rates(edges, contexts, _on_contexts(best > found.best_threshold, contexts))
    margin = channel_margin(scores, edges)
    record |= {
        "f1": rates.f1,
        "accuracy": rates.accuracy,
        "pairs_best_f1": found.best_f1,
        "exact_recovery": found.exact_recovery,
        "margin": margin.margin / abs(margin.threshold),
    }
    return record | (transplant(items, edges, contexts, scores, margin) if found.exact_recovery else {})


def _on_contexts(pairs: np.ndarray, contexts: np.ndarray) -> np.ndarray:
    return pairs[contexts[:, :, None], contexts[:, None, :]]


def transplant(
    items: np.ndarray, edges: np.ndarray, contexts: np.ndarray, scores: np.ndarray, margin: Margin
) -> Record:
    """An exact channel as softmax heads at the sufficient scale: its answers, and the largest excess over a bound."""
    heads, size = len(scores), contexts.shape[1]
    one_owner = margin.one_owner_margin > 0
    gamma = margin.one_owner_margin if one_owner else margin.margin
    scale = sufficient_scale(gamma, size, heads, ERROR)
    owners = np.zeros(len(items), int)
    owners[np.argwhere(edges)[:, 0]] = margin.owners
    maps = [weights_on(scores, context, margin.threshold, scale) for context in contexts]
    outputs = np.stack([w.sum(axis=0) @ items[c] for w, c in zip(maps, contexts, strict=True)])
    wanted = neighbours(edges, contexts)
    rates = pair_rates(edges, contexts, np.stack([w.max(axis=0) > 0.5 for w in maps]))
    routed = item_rates(edges, contexts, decode_direction(outputs, items))
    excess = -np.inf
    for context, weights, out, target in zip(contexts, maps, outputs, wanted, strict=True):
        kappa = np.where(context[None, :] == target[:, None], weights.sum(axis=0), 0.0).sum(axis=1)
        for t, u in enumerate(context):
            length = excess_of(
                out[t], kappa[t], items, target[t], int(owners[u]), gamma * scale, size, heads, one_owner
            )
            excess = max(excess, length)
    return {
        "one_owner": bool(one_owner),
        "most_owners": int(margin.owners.max()),
        "scale": scale * abs(margin.threshold),
        "softmax_f1": rates.f1,
        "softmax_accuracy": rates.accuracy,
        "values_accuracy": routed.accuracy,
        "largest_excess": float(excess),
    }


def excess_of(
    out: np.ndarray,
    kappa: float,
    items: np.ndarray,
    target: int,
    owners: int,
    scaled_margin: float,
    size: int,
    heads: int,
    one_owner: bool,
) -> float:
    """How far one query's output is above its bound; not positive where the theorems hold."""
    decay = math.exp(-scaled_margin)
    if target == len(items):
        return float(np.linalg.norm(out)) - absent_output(decay, size, heads)
    if one_owner:
        return float(np.linalg.norm(out - items[target])) - one_owner_error(decay, size, heads)
    promise = shared_output(decay, size, heads, int(owners))
    error = float(np.linalg.norm(out - kappa * items[target])) - promise.error
    return max(error, promise.kappa_low - kappa, kappa - promise.kappa_high)


def _softmax_record(point: SoftmaxPoint, drawn: tuple[np.ndarray, ...], channel: Any) -> Record:
    """A channel trained end to end."""
    items, edges, contexts = drawn
    record = _empty(point)
    leaves = (channel.query_weights, channel.key_weights, channel.threshold, channel.scale, channel.loss)
    if not all(np.isfinite(leaf).all() for leaf in leaves):
        return record | {"status": "failed", "reason": "weights or loss not finite"}
    scores = head_scores_of(items, channel.query_weights, channel.key_weights)
    maps = [weights_on(scores, context, channel.threshold, channel.scale) for context in contexts]
    rates: Rates
    if point.arm == "weights":
        rates = pair_rates(edges, contexts, np.stack([w.max(axis=0) > 0.5 for w in maps]))
    else:
        outputs = np.stack([w.sum(axis=0) @ items[c] for w, c in zip(maps, contexts, strict=True)])
        logits = channel.logit_scale * outputs @ items.T
        none = logits.max(axis=-1) <= channel.none_logit
        rates = item_rates(edges, contexts, np.where(none, len(items), logits.argmax(axis=-1)))
    return record | {"f1": rates.f1, "accuracy": rates.accuracy}


def _lemma(points: Sequence[LemmaPoint]) -> list[Record]:
    records = []
    for point in points:
        items, edges, contexts = problem_of(point)
        heads = one_owner_heads(items, edges, point.num_heads)
        record: Record = dict.fromkeys(sorted(_OUTPUTS)) | {"constructed": heads is not None, "margin": None}
        if heads is not None:
            scores = items @ heads @ items.T
            margin = channel_margin(scores, edges)
            record |= {"margin": margin.one_owner_margin / margin.threshold}
            record |= _worst(items, edges, contexts, scores, margin)
        records.append(record)
    return records


def _worst(
    items: np.ndarray, edges: np.ndarray, contexts: np.ndarray, scores: np.ndarray, margin: Margin
) -> Record:
    """Largest distance from the neighbour's value, and largest output without one, at every scale."""
    heads, size = len(scores), contexts.shape[1]
    wanted = neighbours(edges, contexts)
    values = np.concatenate([items, np.zeros_like(items[:1])])[wanted]
    lists: dict[str, list[float]] = {name: [] for name in _OUTPUTS}
    for scaled in SCALED_MARGINS:
        scale, decay = scaled / margin.one_owner_margin, math.exp(-scaled)
        maps = [weights_on(scores, context, margin.threshold, scale) for context in contexts]
        outputs = np.stack([w.sum(axis=0) @ items[c] for w, c in zip(maps, contexts, strict=True)])
        distance = np.linalg.norm(outputs - values, axis=-1)
        there = wanted < len(items)
        lists["scaled_margins"].append(scaled)
        lists["worst_error"].append(float(distance[there].max()))
        lists["error_bound"].append(one_owner_error(decay, size, heads))
        lists["worst_absent"].append(float(distance[~there].max()))
        lists["absent_bound"].append(absent_output(decay, size, heads))
    return dict(lists)
