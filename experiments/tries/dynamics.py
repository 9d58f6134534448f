"""Points of the dynamics: one order of removal at one checkpoint of one run, and what a batch of them computes."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np

from experiments.points import Kind, Record
from experiments.tries.config import TriesConfig
from mha_jax.analysis import kept_heads, pruning_order, random_order, recomputed_order
from theory.problems import make_problem, seeded_rng
from theory.pruning import ablation_losses, kept_f1, scores_by_head
from theory.retrieval import RetrievalModel, TrainingOptions, Watched, max_task, watch
from theory.training import PLAIN, Channel
from theory.training.snapshots import joint_snapshots

Task = Literal["channel", "retrieval"]
Order = Literal["ablation", "importance", "random"]
ORDERS: dict[Task, tuple[Order, ...]] = {
    "channel": ("ablation", "random"),
    "retrieval": ("importance", "random"),
}
NUM_TRAIN, BATCH_SIZE, WIDTH = 8000, 100, 4


@dataclass(frozen=True)
class DynamicsPoint:
    """One order of removal at one checkpoint.

    Attributes:
        task: ``channel``: F1 at the best threshold on a permutation; ``retrieval``: 1 - NMSE on a sum of maxima.
        size: items m of the channel, tokens T of the retrieval.
        width: d of the items, or of a token.
        num_heads: H.
        head_dim: d_k, or the per-head dimension.
        num_targets: D of the retrieval; edges of the channel.
        num_steps: of the whole run.
        looks: steps of all checkpoints.
        learning_rate: of the optimiser.
        random_orders: over which ``random`` is averaged.
        steps: of this checkpoint.
        order: ``ablation``: the head whose removal costs least goes, again and again; ``importance``: ascending I_h,
            computed once at this checkpoint; ``random``.
        seed: of the run.
    """

    task: Task
    size: int
    width: int
    num_heads: int
    head_dim: int
    num_targets: int
    num_steps: int
    looks: tuple[int, ...]
    learning_rate: float
    random_orders: int
    steps: int
    order: Order
    seed: int


KIND = Kind(
    DynamicsPoint,
    frozenset(DynamicsPoint.__dataclass_fields__) | {"status", "reason", "scores", "heads", "seconds"},
    values=("steps", "order", "seed"),
)
"""A batch is all checkpoints, orders and seeds of one task. ``scores[i]`` is the score without i heads."""


def grid(config: TriesConfig) -> list[DynamicsPoint]:
    """All points of a configuration."""
    shared: list[tuple[Task, dict[str, int | float]]] = []
    if config.channel_heads:
        sizes = {"size": config.num_items, "width": config.d_model, "num_targets": config.num_items}
        heads = {"num_heads": config.channel_heads, "head_dim": config.channel_head_dim}
        training = {"num_steps": config.channel_steps, "learning_rate": config.learning_rate}
        shared.append(("channel", sizes | heads | training))
    if config.retrieval_targets:
        sizes = {"size": config.retrieval_length, "width": WIDTH, "num_targets": config.retrieval_targets}
        heads = {"num_heads": 2 * config.retrieval_targets, "head_dim": WIDTH}
        rate = config.retrieval_learning_rate
        training = {"num_steps": config.retrieval_steps, "learning_rate": rate}
        shared.append(("retrieval", sizes | heads | training))
    points = []
    for task, fields in shared:
        looks = tuple(round(share * fields["num_steps"]) for share in config.fractions)
        for steps in looks:
            for order in ORDERS[task]:
                for seed in range(config.dynamics_seeds):
                    given = {"task": task, "looks": looks, "random_orders": config.random_orders, **fields}
                    points.append(DynamicsPoint(steps=steps, order=order, seed=seed, **given))  # type: ignore[arg-type]
    return points


def program(points: Sequence[DynamicsPoint]) -> Hashable:
    """What a batch needs compiled."""
    return points[0].task, points[0].num_heads, points[0].head_dim, points[0].num_steps


def work_of(points: Sequence[DynamicsPoint]) -> float:
    """How much a batch costs, about, in the units of `experiments.tries.units.work_of`."""
    first = points[0]
    seeds = len({point.seed for point in points})
    return seeds * first.num_heads * first.num_steps / 1000


def compute(points: Sequence[DynamicsPoint]) -> list[Record]:
    """Train every seed once, and remove heads at every checkpoint."""
    started = time.perf_counter()
    seeds = list(dict.fromkeys(point.seed for point in points))
    curves = (_channel if points[0].task == "channel" else _retrieval)(points[0], seeds)
    records = []
    for point in points:
        found = curves(point)
        ok = found is not None and bool(np.isfinite(found[0]).all())
        records.append(
            asdict(point)
            | {
                "looks": list(point.looks),
                "status": "ok" if ok else "failed",
                "reason": None if ok else "diverged",
                "scores": [float(score) for score in found[0]] if ok and found else None,
                "heads": found[1] if ok and found else None,
            }
        )
    seconds = round((time.perf_counter() - started) / len(points), 3)
    return [record | {"seconds": seconds} for record in records]


def _channel(first: DynamicsPoint, seeds: Sequence[int]):
    problems = [
        make_problem(
            num_items=first.size,
            num_edges=first.num_targets,
            d_model=first.width,
            embedding="gaussian",
            graph="permutation",
            seed=seed,
        )
        for seed in seeds
    ]
    found = joint_snapshots(
        np.stack([problem.embeddings for problem in problems]),
        np.stack([problem.graph.adjacency() for problem in problems]),
        num_heads=first.num_heads,
        head_dim=first.head_dim,
        seeds=seeds,
        steps=first.looks,
        options=replace(PLAIN, learning_rate=first.learning_rate),
    )

    def curve(point: DynamicsPoint) -> tuple[np.ndarray, list[int] | None] | None:
        b = seeds.index(point.seed)
        channel: Channel = found[first.looks.index(point.steps)][b]
        if channel.reason is not None:
            return None
        adjacency = problems[b].graph.adjacency()
        scores = scores_by_head(problems[b].embeddings, channel.query_weights, channel.key_weights)
        if point.order == "random":
            orders = _random_orders(point)
        else:

            def losses(kept: np.ndarray) -> np.ndarray:
                return ablation_losses(scores, adjacency, kept[0])[None]

            orders = [recomputed_order(losses, 1, point.num_heads, range(point.num_heads + 1))]
        kept = [_left(order, point.num_heads) for order in orders]
        curves = [[kept_f1(scores, adjacency, row) for row in rows] for rows in kept]
        return np.mean(curves, axis=0), _heads(orders)

    return curve


def _retrieval(first: DynamicsPoint, seeds: Sequence[int]):
    task = max_task(first.num_targets, first.size, width=first.width)
    model = RetrievalModel(
        length=first.size, width=first.width, num_heads=first.num_heads, per_head_dim=first.head_dim
    )
    options = TrainingOptions(
        num_steps=first.num_steps,
        batch_size=BATCH_SIZE,
        num_train=NUM_TRAIN,
        warmup=min(100, first.num_steps // 10 + 1),
    )
    runs = watch(
        model, task, seeds=seeds, steps=first.looks, learning_rate=first.learning_rate, options=options
    )

    def curve(point: DynamicsPoint) -> tuple[np.ndarray, list[int] | None] | None:
        run: Watched = runs[seeds.index(point.seed)]
        look = first.looks.index(point.steps)
        if point.order == "random":
            orders = _random_orders(point)
        else:
            importance = run.importance(look)
            if not np.isfinite(importance).all():
                return None
            orders = [pruning_order(importance[None])]
        kept = np.concatenate([_left(order, point.num_heads) for order in orders])
        scores = run.scores(look, kept).reshape(len(orders), -1)
        return scores.mean(axis=0), _heads(orders)

    return curve


def _random_orders(point: DynamicsPoint) -> list[np.ndarray]:
    rng = seeded_rng(point.seed, "tries, random orders")
    return [random_order(1, point.num_heads, rng) for _ in range(point.random_orders)]


def _left(order: np.ndarray, num_heads: int) -> np.ndarray:
    """Which heads are left without the first 0, 1, ..., H of an order: (H + 1, H)."""
    return np.concatenate([kept_heads(order, count, 1, num_heads) for count in range(num_heads + 1)])


def _heads(orders: Sequence[np.ndarray]) -> list[int] | None:
    """The order, where there is one."""
    return orders[0].tolist() if len(orders) == 1 else None
