"""Points of the pruning experiment, and the grid of those that are known before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from experiments.points import Kind
from experiments.pretrained import sizes
from experiments.pruning.config import PruningConfig

SHARES = ("previous", "next", "self", "first", "delimiter")


@dataclass(frozen=True)
class MeasuredPoint:
    """What all points have: a model, and the text that it is measured on.

    Attributes:
        model: as `experiments.pretrained.load` takes it.
        text: as in the configuration.
        num_tokens: likewise.
        length: likewise.
    """

    model: str
    text: str
    num_tokens: int
    length: int


@dataclass(frozen=True)
class HeadPoint(MeasuredPoint):
    """Scores of one head: importance, confidence, and where it looks.

    Attributes:
        layer: from 0.
        head: from 0.
    """

    layer: int
    head: int


@dataclass(frozen=True)
class PrunedPoint(MeasuredPoint):
    """The loss when a fraction of the heads is removed in an order.

    Attributes:
        order: of `experiments.pruning.config.ORDERS`.
        fraction_pruned: of all heads, rounded up to a whole number of them.
        seed: of a random order; else 0.
    """

    order: str
    fraction_pruned: float
    seed: int = 0


@dataclass(frozen=True)
class AblatedPoint(MeasuredPoint):
    """The loss without one head, or with one head alone in its layer.

    Attributes:
        ablation: ``single`` or ``all_but_one``.
        layer: the head's.
        head: which.
    """

    ablation: Literal["single", "all_but_one"]
    layer: int
    head: int


@dataclass(frozen=True)
class GatePoint(MeasuredPoint):
    """The gate of one head.

    Attributes:
        penalty: of the expected share of open gates, in units of the loss.
        num_steps: optimiser steps.
        sequences: of a step.
        layer: the head's.
        head: which.
    """

    penalty: float
    num_steps: int
    sequences: int
    layer: int
    head: int


@dataclass(frozen=True)
class MatchedPoint(MeasuredPoint):
    """The loss with as many heads as some gates leave, those of most importance: known when the gates are trained.

    Attributes:
        heads_left: of all layers, exactly.
    """

    heads_left: int


@dataclass(frozen=True)
class TimedPoint(MeasuredPoint):
    """One round of timing a model, whole (``fraction_pruned`` 0) or without some of its heads.

    Attributes:
        removal: ``heads`` or ``groups``.
        batch_size: sequences.
        fraction_pruned: of the heads (or groups).
        seed: number of the round.
    """

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
    "matched": Kind(
        MatchedPoint, frozenset(_fields(MatchedPoint) | {"loss", "ranking"}), values=("heads_left",)
    ),
    "timings": Kind(
        TimedPoint,
        frozenset(_fields(TimedPoint) | {"heads_left", "kv_heads_left", "parameters", "products"})
        | {"loss", "difference", "scale", "seconds"},
        values=("fraction_pruned", "seed"),
    ),
}


def grid(config: PruningConfig) -> list[Any]:
    """All points of a configuration but those that gates ask for (`matched`)."""
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


def matched(gate: GatePoint, heads_left: int) -> MatchedPoint:
    """What the heads that gates leave are held against."""
    return MatchedPoint(gate.model, gate.text, gate.num_tokens, gate.length, heads_left)
