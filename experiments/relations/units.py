"""Points of the relations experiment and what a batch computes: all seeds of one configuration."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product

from experiments.points import Kind, Record
from experiments.relations.config import RelationsConfig
from theory.relations import (
    Attention,
    Law,
    Readout,
    RelationsModel,
    error_floor,
    make_relations,
    train_relations,
)


@dataclass(frozen=True)
class RelationsPoint:
    """One trained model.

    Attributes:
        num_relations: R.
        num_items: m.
        d_model: d.
        num_heads: h.
        total_key_dim: D_K, a multiple of h.
        readout: ``linear`` or ``mlp``.
        values: law of the values, ``gaussian`` or ``signs``.
        attention: ``trained``, or ``mixed`` where weights are set by hand and the read-out alone is trained.
        value_dim: entries of a value.
        hidden: units of an MLP; None where there is none.
        num_steps: of the optimiser.
        seed: of task, initial weights and values.
    """

    num_relations: int
    num_items: int
    d_model: int
    num_heads: int
    total_key_dim: int
    readout: Readout
    values: Law
    attention: Attention
    value_dim: int
    num_steps: int
    seed: int
    hidden: int | None = None


KINDS = {
    "points": Kind(
        RelationsPoint,
        frozenset(RelationsPoint.__dataclass_fields__)
        | {"status", "reason", "accuracy", "error", "standard_error", "expected_error"}
        | {"predicted_error_floor", "floor_binds", "seconds"},
    )
}


def grid(config: RelationsConfig) -> list[RelationsPoint]:
    """All points of a configuration."""
    arms: list[tuple[int, Readout, Law, Attention]] = []
    for budget in config.total_key_dim:
        arms.append((budget, "linear", "gaussian", "trained"))
    if config.mlp:
        first = config.total_key_dim[0]
        laws: tuple[Law, ...] = ("gaussian", "signs")
        kinds: tuple[Attention, ...] = ("trained", "mixed")
        for law, attention in product(laws, kinds):
            arms.append((first, "mlp", law, attention))
    return [
        RelationsPoint(
            num_relations=relations,
            num_items=config.num_items,
            d_model=config.d_model,
            num_heads=h,
            total_key_dim=budget,
            readout=readout,
            values=law,
            attention=attention,
            value_dim=config.value_dim,
            num_steps=config.num_steps,
            seed=seed,
            hidden=None if readout == "linear" else config.hidden,
        )
        for budget, readout, law, attention in arms
        for relations in config.num_relations
        for h in range(1, relations + config.extra_heads + 1)
        # Mixtures are of interest where a head has several targets.
        if budget % h == 0 and (attention == "trained" or h < relations)
        for seed in range(config.seeds)
    ]


def floor_binds(point: RelationsPoint) -> bool:
    """Whether the floor is a theorem for a point."""
    return point.readout == "linear" or point.values == "gaussian"


def compute(points: Sequence[RelationsPoint]) -> list[Record]:
    """Train all seeds of one configuration."""
    first, started = points[0], time.perf_counter()
    model = RelationsModel(
        num_heads=first.num_heads,
        head_dim=first.total_key_dim // first.num_heads,
        readout=first.readout,
        value_dim=first.value_dim,
        hidden=first.hidden or 1,
        law=first.values,
        attention=first.attention,
        num_steps=first.num_steps,
    )
    tasks = [make_relations(first.num_items, first.d_model, first.num_relations, p.seed) for p in points]
    runs = train_relations(model, tasks, [point.seed for point in points])
    seconds = round((time.perf_counter() - started) / len(points), 3)
    return [
        asdict(point)
        | {
            "status": "failed" if run.error is None else "ok",
            "reason": "diverged" if run.error is None else None,
            "accuracy": run.accuracy,
            "error": run.error,
            "standard_error": run.standard_error,
            "expected_error": run.expected_error,
            "predicted_error_floor": error_floor(point.num_relations, point.num_heads),
            "floor_binds": floor_binds(point),
            "seconds": seconds,
        }
        for point, run in zip(points, runs, strict=True)
    ]


def work_of(point: RelationsPoint) -> float:
    """How much a batch costs, about."""
    mixed = point.num_heads * point.num_items * point.value_dim
    read = (point.hidden or point.num_heads * point.value_dim) * point.value_dim * point.num_relations
    return point.num_items * (mixed + read) * point.num_steps / 1e6
