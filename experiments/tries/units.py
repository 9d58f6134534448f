"""Points of the tries and what a batch of them computes: one training of H heads, cut and healed in several ways."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np

from experiments.capacity.units import compiled_width, packed
from experiments.points import Kind, Record
from experiments.tries.config import TriesConfig, head_dims
from experiments.tries.cutting import (
    CHOICES,
    RESTART,
    Batch,
    Choice,
    Cut,
    Trained,
    choose,
    cut_channel,
    heal,
    train_many,
)
from theory.problems import Problem, make_problem
from theory.pruning import best_f1
from theory.recognition import channel_scores, evaluate
from theory.training import Channel

Arm = Literal["direct", "pruned", "healed-steps", "healed-compute", "rewound", "resumed"]
HEALED_CHOICES: dict[Arm, tuple[Choice, ...]] = {
    "healed-steps": ("wins", "recomputed", "random"),
    "healed-compute": ("recomputed",),
}


@dataclass(frozen=True)
class TriesPoint:
    """One channel of ``num_heads`` heads, trained as such or cut from more.

    Attributes:
        num_items: m, and the number of edges: a permutation on Gaussian items.
        d_model: d.
        num_heads: h, in the end.
        head_dim: d_k.
        trained_heads: H, at first.
        first_steps: cap on steps of H heads.
        learning_rate: of both parts.
        arm: see the package's docstring.
        choice: how the kept heads are chosen; None where all are.
        heal_steps: cap on steps of the h heads left.
        restart: number of the initial weights.
        seed: of the problem and the weights.
    """

    num_items: int
    d_model: int
    num_heads: int
    head_dim: int
    trained_heads: int
    first_steps: int
    learning_rate: float
    arm: Arm
    choice: Choice | None
    heal_steps: int
    restart: int
    seed: int


_SCORES = ("micro_f1", "best_f1", "exact_recovery", "argmax_accuracy", "smallest_edge", "largest_non_edge")

KIND = Kind(
    TriesPoint,
    frozenset(TriesPoint.__dataclass_fields__)
    | {"total_key_dim", "status", "reason", "first_taken", "heal_taken", "head_steps", "head_steps_cap"}
    | {"first_f1", "cut_f1", "share_kept", "won", "seconds", *_SCORES},
    optional=frozenset({"channel"}),
    values=("arm", "choice", "heal_steps", "restart", "seed"),
)
"""A batch is one training: all that is made of it, for all seeds."""


def grid(config: TriesConfig) -> list[TriesPoint]:
    """All points, batch by batch."""
    return [
        replace(arm, restart=restart, seed=seed)
        for h in config.num_heads
        for k in head_dims(config, h)
        for arm in arms_of(config, h, k)
        for restart in range(config.restarts if arm.arm == "direct" else 1)
        for seed in range(config.seeds)
    ]


def arms_of(config: TriesConfig, num_heads: int, head_dim: int) -> list[TriesPoint]:
    """What is compared at one size: a point each, of seed 0."""
    steps = config.max_steps
    direct = TriesPoint(
        num_items=config.num_items,
        d_model=config.d_model,
        num_heads=num_heads,
        head_dim=head_dim,
        trained_heads=num_heads,
        first_steps=steps,
        learning_rate=config.learning_rate,
        arm="direct",
        choice=None,
        heal_steps=0,
        restart=0,
        seed=0,
    )
    arms = [direct, replace(direct, arm="resumed", first_steps=steps // 2, heal_steps=steps // 2)]
    for ratio in config.ratios:
        many = replace(direct, trained_heads=ratio * num_heads)
        arms += [replace(many, arm="pruned", choice=choice) for choice in CHOICES]
        arms.append(replace(many, arm="rewound", choice="recomputed", heal_steps=steps))
        first = {"healed-steps": steps // 2, "healed-compute": steps // (2 * ratio)}
        for arm, choices in HEALED_CHOICES.items():
            healed = replace(many, arm=arm, first_steps=first[arm], heal_steps=steps // 2)
            arms += [replace(healed, choice=choice) for choice in choices]
    return arms


def program(points: Sequence[TriesPoint]) -> Hashable:
    """What a batch needs compiled."""
    first = points[0]
    sizes = first.num_items, first.d_model, compiled_width(first.head_dim), first.num_heads
    return (*sizes, first.trained_heads, first.first_steps, len(points))


def work_of(points: Sequence[TriesPoint]) -> float:
    """How much a batch costs, about: head-steps of all its runs, in thousands."""
    first = points[0]
    runs = {(point.restart, point.seed) for point in points}
    head_steps = len(runs) * first.trained_heads * first.first_steps
    return (head_steps + sum(first.num_heads * point.heal_steps for point in points)) / 1000


def compute(points: Sequence[TriesPoint]) -> list[Record]:
    """Train H heads once for every seed (and restart), then cut and heal as the points say."""
    started = time.perf_counter()
    first = points[0]
    runs = list(dict.fromkeys((point.restart, point.seed) for point in points))
    place = {run: i for i, run in enumerate(runs)}
    batch = _batch(first, runs)
    trained = train_many(batch, first.trained_heads, first.first_steps)
    places = [place[point.restart, point.seed] for point in points]
    cuts = _cuts(points, places, batch, trained)
    channels: dict[int, Channel] = {}
    for kind in dict.fromkeys((point.arm == "rewound", point.heal_steps) for point in points):
        members = [
            i
            for i, point in enumerate(points)
            if (point.arm == "rewound", point.heal_steps) == kind and cuts[i] is not None
        ]
        own = [cut for i in members if (cut := cuts[i]) is not None]
        where = [places[i] for i in members]
        rewound, steps = kind
        if not members:
            continue
        if steps:
            made = heal(batch, trained.initial if rewound else trained.params, where, own, steps)
        else:
            made = [cut_channel(trained.channels[b], cut) for b, cut in zip(where, own, strict=True)]
        channels |= dict(zip(members, made, strict=True))
    records = []
    for i, point in enumerate(points):
        b = places[i]
        records.append(
            _record(
                point,
                trained.channels[b],
                cuts[i],
                channels.get(i),
                batch.embeddings[b],
                batch.adjacency[b],
            )
        )
    for i, record in enumerate(records):  # one channel of every batch can be checked again from the records
        if record["exact_recovery"]:
            record["channel"] = packed(channels[i])
            break
    seconds = round((time.perf_counter() - started) / len(points), 3)
    return [record | {"seconds": seconds} for record in records]


def _batch(first: TriesPoint, runs: Sequence[tuple[int, int]]) -> Batch:
    problems = {seed: problem_of(first, seed) for _, seed in runs}
    return Batch(
        embeddings=np.stack([problems[seed].embeddings for _, seed in runs]),
        adjacency=np.stack([problems[seed].graph.adjacency() for _, seed in runs]),
        seeds=[seed + RESTART * restart for restart, seed in runs],
        head_dim=first.head_dim,
        max_head_dim=compiled_width(first.head_dim),
        learning_rate=first.learning_rate,
    )


def problem_of(point: TriesPoint, seed: int) -> Problem:
    """The problem of a seed: the one that `capacity` has under it."""
    return make_problem(
        num_items=point.num_items,
        num_edges=point.num_items,
        d_model=point.d_model,
        embedding="gaussian",
        graph="permutation",
        seed=seed,
    )


def _cuts(
    points: Sequence[TriesPoint], places: Sequence[int], batch: Batch, trained: Trained
) -> list[Cut | None]:
    """The cut of every point, made once for each run and choice; None where the run diverged."""
    made: dict[tuple[int, Choice | None], Cut | None] = {}
    for point, b in zip(points, places, strict=True):
        if (b, point.choice) in made:
            continue
        channel = trained.channels[b]
        cut = None
        if channel.reason is None:
            sizes = point.num_heads, batch.embeddings[b], batch.adjacency[b]
            cut = choose(point.choice or "wins", channel, *sizes, point.seed)
        made[b, point.choice] = cut
    return [made[b, point.choice] for point, b in zip(points, places, strict=True)]


def _record(
    point: TriesPoint,
    trained: Channel,
    cut: Cut | None,
    channel: Channel | None,
    embeddings: np.ndarray,
    adjacency: np.ndarray,
) -> Record:
    """What came of a point, judged in float64 from the factors of the kept heads alone."""
    reason = trained.reason if channel is None else channel.reason
    healed = 0 if channel is None or not point.heal_steps else channel.steps
    record: Record = asdict(point) | {
        "total_key_dim": point.num_heads * point.head_dim,
        "status": "ok" if reason is None else "failed",
        "reason": reason,
        "first_taken": trained.steps,
        "heal_taken": healed,
        "head_steps": trained.steps * point.trained_heads + healed * point.num_heads,
        "head_steps_cap": point.first_steps * point.trained_heads + point.heal_steps * point.num_heads,
        "first_f1": None,
        "cut_f1": None if cut is None else cut.f1,
        "share_kept": None if cut is None else cut.share,
        "won": None if cut is None else cut.won.tolist(),
    }
    if cut is not None:
        whole = channel_scores(embeddings, trained.query_weights, trained.key_weights)
        record["first_f1"] = best_f1(whole, adjacency)
    if channel is None or reason is not None:
        return record | dict.fromkeys(_SCORES)
    scores = channel_scores(embeddings, channel.query_weights, channel.key_weights)
    recovery = evaluate(scores, adjacency, float(channel.threshold))
    return record | {name: getattr(recovery, name) for name in _SCORES}
