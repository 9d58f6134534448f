"""Points, and what a batch of them computes: one stretch of one run, from the state in which the last one ended."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.checkpoints import Checkpoint
from experiments.fullscale.config import FREE, GREEDY, JOINT, PLAIN, FullscaleConfig
from experiments.points import Kind, Record
from theory.bounds import held_edges
from theory.problems import make_problem
from theory.recognition_tiled import recover_tiled
from theory.single_head_large import large_margin_bound, minimise_over_all_pairs, whitened
from theory.training.contexts import ContextOptions, ContextState, Task, advance, start
from theory.training.contexts_greedy import fit_large_head

INIT_SCALE = 0.3
TEMPERATURE = 2.0
FREE_RATE = 0.1
GREED = 0.75
"""Share of what a head is predicted to hold that a greedy one asks for, if that is more than its even share."""


@dataclass(frozen=True)
class StretchPoint:
    """One stretch of one run.

    Attributes:
        trainer: ``joint``, ``plain``, ``greedy`` (a stretch is a head) or ``one-head`` (the last one is of passes).
        embedding: of the items.
        num_items: ``m``.
        d_model: ``d``.
        num_heads: ``h``.
        head_dim: ``d_k``.
        num_sources: of a context.
        num_steps: of the run; of each head of ``greedy``.
        num_stretches: of the run.
        passes: over all pairs, in the last stretch of ``one-head``.
        stretch: from 0.
        seed: of items, graph, weights and contexts.
    """

    trainer: str
    embedding: str
    num_items: int
    d_model: int
    num_heads: int
    head_dim: int
    num_sources: int
    num_steps: int
    num_stretches: int
    passes: int
    stretch: int
    seed: int


_MADE = {"status", "reason", "total_key_dim", "steps", "loss", "best_f1", "missed", "wrong", "above_all"}
_MADE |= {"exact", "dtype", "held", "gradient", "margin", "margin_bound", "seconds"}
KINDS = {
    "points": Kind(StretchPoint, frozenset(StretchPoint.__dataclass_fields__) | _MADE, values=("seed",)),
}


def chains(config: FullscaleConfig) -> list[list[StretchPoint]]:
    """Every run of a configuration as its stretches, in the order in which they are worth most."""
    runs = []
    for seed in range(config.seeds):
        free = [(FREE, e, m, 1, config.d_model) for m in config.free_items for e in config.embeddings]
        several = [
            (trainer, embedding, config.num_items, h, budget // h)
            for trainer in config.trainers
            for budget in config.budgets
            for embedding in config.embeddings
            for h in config.head_counts
            if budget % h == 0
        ]
        lead = 2 * len(config.head_counts)
        for trainer, embedding, items, h, k in [
            *several[:1],
            *free[:1],
            *several[1:lead],
            *free[1:],
            *several[lead:],
        ]:
            passes = config.passes if trainer == FREE else 0
            number = {GREEDY: h, FREE: config.stretches + bool(passes)}.get(trainer, config.stretches)
            first = StretchPoint(
                trainer, embedding, items, config.d_model, h, k, config.num_sources,
                config.greedy_steps if trainer == GREEDY else config.num_steps,
                number, passes, 0, seed,
            )  # fmt: skip
            runs.append([replace(first, stretch=i) for i in range(number)])
    return runs


def step_cost(point: StretchPoint) -> tuple[float, float]:
    """Operations of a step, and bytes that a run holds at most (scores of a context, states, a tile of a look).

    A product of scores is made five times under the soft maximum (forwards for the maximum and for the shares,
    backwards for the shares and both factors), three times under the hard one; projections three times.
    """
    s, d, m = point.num_sources, point.d_model, point.num_items
    width = point.head_dim * (1 if point.trainer == GREEDY else point.num_heads)
    times = 5 if point.trainer == JOINT and point.num_heads > 1 else 3
    operations = 2.0 * times * s * s * width + 12.0 * s * d * width * (0.5 if point.trainer == FREE else 1.0)
    memory = 4.0 * (8 * s * s + 2 * m * d + 12 * d * width) + 8.0 * 3 * 512 * m + 8.0 * 4 * m * width
    return operations, memory


State = dict[str, Any]
"""Arrays of a run between two stretches, and scalars."""


class Instance(NamedTuple):
    """A seed's items, graph, and items in whitened coordinates."""

    embeddings: np.ndarray
    target: np.ndarray
    items: np.ndarray
    back: np.ndarray


def instance_of(point: StretchPoint) -> Instance:
    """The problem of a point."""
    problem = make_problem(
        num_items=point.num_items,
        num_edges=point.num_items,
        d_model=point.d_model,
        embedding=point.embedding,
        graph="permutation",
        seed=point.seed,
    )
    target = np.empty(point.num_items, np.int32)
    target[problem.graph.edges[:, 0]] = problem.graph.edges[:, 1]
    return Instance(problem.embeddings, target, *whitened(problem.embeddings))


def options_of(point: StretchPoint) -> ContextOptions:
    """Settings of a point's run. Adam's rate is the standard deviation of the initial weights."""
    rate = FREE_RATE if point.trainer == FREE else math.sqrt(INIT_SCALE) / point.head_dim**0.25
    return ContextOptions(
        num_sources=point.num_sources,
        num_steps=point.num_steps,
        learning_rate=rate,
        temperature=TEMPERATURE if point.trainer == JOINT else 0.0,
        loss="cross-entropy" if point.trainer == PLAIN else "hinge",
        init_scale=INIT_SCALE,
    )


def compute(points: Sequence[StretchPoint]) -> list[Record]:
    """One stretch of each run."""
    records = []
    for point in points:
        started = time.perf_counter()
        instance = instance_of(point)
        arrays = _after(point, instance)
        record = _judged(point, instance, arrays)
        records.append(asdict(point) | record | {"seconds": round(time.perf_counter() - started, 3)})
    return records


def _after(point: StretchPoint, instance: Instance) -> State:
    """The state after a point's stretch, from the disk, or computed from the one before it."""
    checkpoint = Checkpoint("fullscale", asdict(point))
    found = checkpoint.load()
    if found is not None:
        return found
    before = _after(replace(point, stretch=point.stretch - 1), instance) if point.stretch else None
    if point.trainer == GREEDY:
        arrays = _one_more_head(point, instance, before)
    elif point.trainer == FREE and point.passes and point.stretch == point.num_stretches - 1:
        assert before is not None
        arrays = _passes(point, instance, before)
    else:
        arrays = _steps(point, instance, before)
    checkpoint.save(arrays)
    return arrays


def _begin(point: StretchPoint) -> ContextState:
    free = point.trainer == FREE
    return start(point.seed, point.d_model, point.num_heads, point.head_dim, options_of(point), free=free)


def _steps(point: StretchPoint, instance: Instance, before: State | None) -> State:
    state: Any = _begin(point)
    if before is not None:
        leaves = [jnp.asarray(before[f"leaf{i}"]) for i in range(len(jax.tree.leaves(state)))]
        state = jax.tree.unflatten(jax.tree.structure(state), leaves)
    count = point.num_items
    task = Task(
        jnp.asarray(instance.items, jnp.float32),
        jnp.asarray(instance.target),
        jnp.arange(count, dtype=jnp.int32),
        jnp.int32(count),
    )
    taken = point.num_stretches - (1 if point.trainer == FREE and point.passes else 0)
    state, losses = advance(
        state,
        task,
        jnp.int32(point.seed),
        options=options_of(point),
        split=(point.num_sources, 0),
        length=point.num_steps // taken,
    )
    state, losses = jax.device_get((state, losses))
    scale = np.exp(state.params["log_scale"])
    arrays = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
    eye = np.eye(point.d_model, dtype=np.float32)[None]
    return arrays | {
        "query": scale * state.params["query"],
        "key": state.params.get("key", eye),
        "threshold": state.params["offset"],
        "loss": np.mean(losses),
        "steps": state.step,
    }


def _passes(point: StretchPoint, instance: Instance, before: State) -> State:
    fit = minimise_over_all_pairs(
        instance.items,
        instance.target,
        before["query"][0],
        float(before["threshold"]),
        weight=edge_weight(point),
        passes=point.passes,
    )
    return {
        "query": fit.matrix[None],
        "key": before["key"],
        "threshold": np.float64(fit.threshold),
        "loss": np.float64(fit.losses[-1]),
        "steps": before["steps"],
        "gradient": np.float64(fit.gradient),
    }


def edge_weight(point: StretchPoint) -> float:
    """Weight of an edge where nothing else is said: ``sqrt(non-edges / edges)``."""
    return math.sqrt(point.num_items - 1.0)


def _one_more_head(point: StretchPoint, instance: Instance, before: State | None) -> State:
    h, m, d, k = point.num_heads, point.num_items, point.d_model, point.head_dim
    shape = (h, d, k)
    query, key = np.zeros(shape), np.zeros(shape)
    left = np.ones(m, bool)
    if before is not None:
        query, key, left = before["query"].copy(), before["key"].copy(), before["left"].copy()
    loss = 0.0
    if left.any():
        number = int(left.sum())
        goal = min(
            number, max(math.floor(GREED * held_edges(m, d, k)), math.ceil(number / (h - point.stretch)))
        )
        head = fit_large_head(
            instance.items,
            instance.target,
            left,
            head_dim=k,
            goal=goal,
            seed=1000 * point.seed + point.stretch,
            options=options_of(point),
        )
        query[point.stretch], key[point.stretch] = head.query, head.key
        left, loss = left & ~head.held, head.loss
    steps = point.num_steps * (point.stretch + 1)
    return {
        "query": query,
        "key": key,
        "left": left,
        "threshold": np.float64(1.0),
        "loss": np.float64(loss),
        "steps": np.int64(steps),
    }


def _judged(point: StretchPoint, instance: Instance, arrays: State) -> Record:
    """Measures over all pairs, from the weights alone; in float64 at the end of a run."""
    last = point.stretch == point.num_stretches - 1
    loss = float(arrays["loss"])
    record: Record = {
        "status": "ok",
        "reason": None,
        "total_key_dim": point.num_heads * point.head_dim,
        "steps": int(arrays["steps"]),
        "dtype": "float64" if last else "float32",
    } | dict.fromkeys(
        (
            "loss",
            "best_f1",
            "missed",
            "wrong",
            "above_all",
            "exact",
            "held",
            "gradient",
            "margin",
            "margin_bound",
        )
    )
    weights = [instance.back @ arrays[name].astype(np.float64) for name in ("query", "key")]
    if not (math.isfinite(loss) and all(np.isfinite(w).all() for w in weights)):
        return record | {"status": "failed", "reason": "loss or weights not finite"}
    found = recover_tiled(
        instance.embeddings, weights[0], weights[1], instance.target, dtype=np.float64 if last else np.float32
    )
    record |= {
        "loss": loss,
        "best_f1": found.best_f1,
        "missed": found.missed,
        "wrong": found.wrong,
        "above_all": found.above_all,
        "exact": found.exact,
    }
    if "left" in arrays:
        record["held"] = int(point.num_items - arrays["left"].sum())
    if "gradient" in arrays:
        matrix = weights[0][0] @ weights[1][0].T
        gap = found.smallest_edge - found.largest_non_edge
        record |= {
            "gradient": float(arrays["gradient"]),
            "margin": 0.5 * gap / float(np.linalg.norm(matrix)),
            "margin_bound": large_margin_bound(
                instance.embeddings,
                instance.target,
                matrix,
                float(arrays["threshold"]),
                weight=edge_weight(point),
            ),
        }
    return record
