"""What is measured: one checkpoint of one model without some of its heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments.points import Kind
from experiments.redundancy.config import RedundancyConfig, translation
from experiments.translation import plan
from experiments.translation.model import ATTENTIONS
from experiments.translation.plan import TranslationPoint

ORDERS = ("importance", "random", *ATTENTIONS)


@dataclass(frozen=True)
class RedundancyPoint:
    """One checkpoint of one model without some of its heads.

    Attributes:
        pairs: as in the configuration, like all that is not named here.
        num_heads: of every attention layer.
        seed: of the model.
        steps: of the checkpoint.
        order: ``importance``: ascending I_h at this checkpoint, of all heads; ``random``; ``encoder``, ``decoder``,
            ``source``: ascending I_h of the heads of this kind of attention, the others staying.
        fraction_pruned: of the heads that the order has, rounded up to whole ones.
        draw: of a random order; else 0.
    """

    pairs: str
    vocab_size: int
    d_model: int
    d_ff: int
    num_layers: int
    num_heads: int
    num_steps: int
    rows: int
    length: int
    warmup: int
    learning_rate: float
    looks: tuple[int, ...]
    num_scored: int
    num_translated: int
    seed: int
    steps: int
    order: str
    fraction_pruned: float
    draw: int = 0


KIND = Kind(
    RedundancyPoint,
    frozenset(RedundancyPoint.__dataclass_fields__)
    | {"status", "reason", "heads_left", "left_by_kind", "loss", "gain", "bleu", "seconds"},
    values=("steps", "order", "fraction_pruned", "draw"),
)
"""A batch is one model: all its checkpoints, orders and fractions."""


_SHARED = set(RedundancyPoint.__dataclass_fields__) & set(RedundancyConfig.__dataclass_fields__)
"""Fields that a point has from the configuration."""


def grid(config: RedundancyConfig) -> list[RedundancyPoint]:
    """All points of a configuration."""
    shared: dict[str, Any] = {name: getattr(config, name) for name in _SHARED}
    fractions = [i / config.fractions for i in range(config.fractions + 1)]
    points = []
    for seed in range(config.seeds):
        for steps in config.looks:
            for order in ORDERS:
                if order in ATTENTIONS and steps != config.looks[-1]:
                    continue
                for draw in range(config.random_orders if order == "random" else 1):
                    points += [
                        RedundancyPoint(
                            **shared, seed=seed, steps=steps, order=order, fraction_pruned=f, draw=draw
                        )
                        for f in fractions
                    ]
    return points


def training_of(point: RedundancyPoint) -> TranslationPoint:
    """The training of a point's model, as the experiment `translation` has it."""
    config = RedundancyConfig(**{name: getattr(point, name) for name in _SHARED})
    [setting] = plan.settings(translation(config))["A"]
    return replace(setting, learning_rate=point.learning_rate, seed=point.seed)


def work_of(points: Sequence[RedundancyPoint]) -> float:
    """How much a batch costs, about, in the units of `experiments.translation.plan.work_of`."""
    first = points[0]
    translated = sum(point.order != "random" for point in points) * first.num_translated
    return plan.work_of(training_of(first)) * (1 + translated / 10_000)
