"""Benchmark of a sweep point: all seeds and widths through one program, against a loop that recompiles for each.

Ours is `theory.training.train_joint`: the seeds of a width as one batch, and one compiled program for all widths.
The baseline is what one would write first: for every seed and width its own Adam step (einsum, maximum over heads,
`jax.value_and_grad`, `optax.adam`), compiled anew and called in a Python loop. Both start from the same weights and
minimise the same loss. What counts is the whole, compilation included, since that is the point.

Ours is timed cold, which gives its compilation, and then warm, width by width in turn with the baseline, so that a
busy machine slows down both. Both take fewer steps than a sweep point has: the time of the steps is scaled up, that of
compilation is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Bool, Float

from theory.problems import make_problem
from theory.training import PLAIN, train_joint
from theory.training.joint import initial_params


@dataclass(frozen=True)
class SweepCase:
    """A sweep point: sizes, and how many of its steps are measured (a multiple of 50).

    ``target`` is the least speed-up that is wanted.
    """

    num_items: int = 256
    d_model: int = 32
    num_heads: int = 4
    head_dims: tuple[int, ...] = (4, 6, 8)
    seeds: int = 4
    steps: int = 1500
    measured_steps: int = 150
    target: float | None = 5.0


CASES = (SweepCase(), SweepCase(num_heads=8, head_dims=(2, 3, 4)))
Problems = tuple[Float[np.ndarray, "b m d"], Bool[np.ndarray, "b m m"]]


def _run_alone(case: SweepCase, head_dim: int, seed: int, problems: Problems) -> tuple[float, float, float]:
    """One run with its own program: seconds to compile and take a first step, seconds of the rest, and the loss."""
    options = PLAIN
    weight = float(np.sqrt(case.num_items - 1))
    drawn = initial_params(
        [seed],
        num_heads=case.num_heads,
        d_model=case.d_model,
        head_dim=head_dim,
        max_head_dim=head_dim,
        scale=options.init_scale,
    )
    params = {name: leaf[0] for name, leaf in drawn.items()}
    items, edges = jnp.asarray(problems[0][seed], jnp.float32), jnp.asarray(problems[1][seed])
    optimiser = optax.adam(options.learning_rate)

    def loss_of(params):
        queries = jnp.einsum("md,hdk->hmk", items, params["query"])
        keys = jnp.einsum("md,hdk->hmk", items, params["key"])
        scores = jnp.einsum("htk,hsk->hts", queries, keys).max(0)
        logits = jnp.exp(params["log_scale"]) * scores - params["offset"]
        weights = jnp.where(edges, weight, 1.0)
        return jnp.sum(weights * jax.nn.softplus(jnp.where(edges, -logits, logits))) / jnp.sum(weights)

    @jax.jit
    def step(params, state):
        loss, gradient = jax.value_and_grad(loss_of)(params)
        updates, state = optimiser.update(gradient, state)
        return optax.apply_updates(params, updates), state, loss

    start = time.perf_counter()
    params, state, loss = jax.block_until_ready(step(params, optimiser.init(params)))
    compiled = time.perf_counter()
    losses = [loss]
    for _ in range(case.measured_steps - 1):
        params, state, loss = step(params, state)
        losses.append(loss)
    jax.block_until_ready(params)
    rest = time.perf_counter() - compiled
    return compiled - start, rest, float(np.mean(losses[-options.check_every :]))


def _run_batch(case: SweepCase, head_dim: int, problems: Problems) -> tuple[float, list[float]]:
    """All seeds of a width through the program of all widths: seconds, and the losses."""
    start = time.perf_counter()
    channels = train_joint(
        *problems,
        num_heads=case.num_heads,
        head_dim=head_dim,
        seeds=range(case.seeds),
        max_head_dim=max(case.head_dims),
        options=replace(PLAIN, max_steps=case.measured_steps, patience=case.measured_steps),
    )
    seconds = time.perf_counter() - start
    if any(channel.steps != case.measured_steps for channel in channels):
        raise RuntimeError("a run of the sweep ended early: its time cannot be scaled, take a harder size")
    return seconds, [channel.loss for channel in channels]


def _record(case: SweepCase) -> dict[str, Any]:
    made = [
        make_problem(
            num_items=case.num_items,
            num_edges=case.num_items,
            d_model=case.d_model,
            embedding="gaussian",
            graph="permutation",
            seed=seed,
        )
        for seed in range(case.seeds)
    ]
    problems = np.stack([p.embeddings for p in made]), np.stack([p.graph.adjacency() for p in made])
    jax.clear_caches()
    cold = sum(_run_batch(case, head_dim, problems)[0] for head_dim in case.head_dims)
    warm, compiling, stepping = [], [], []
    losses: dict[str, list[float]] = {"ours": [], "loop": []}
    for head_dim in case.head_dims:
        seconds, found = _run_batch(case, head_dim, problems)
        warm.append(seconds)
        losses["ours"] += found
        runs = [_run_alone(case, head_dim, seed, problems) for seed in range(case.seeds)]
        compiling.append(sum(run[0] for run in runs))
        stepping.append(sum(run[1] for run in runs) * case.measured_steps / (case.measured_steps - 1))
        losses["loop"] += [run[2] for run in runs]
    scale = case.steps / case.measured_steps
    record: dict[str, Any] = asdict(case) | {
        "head_dims": list(case.head_dims),
        "ours_compiling_seconds": cold - sum(warm),
        "ours_stepping_seconds": scale * sum(warm),
        "loop_compiling_seconds": sum(compiling),
        "loop_stepping_seconds": scale * sum(stepping),
    }
    for name in ("ours", "loop"):
        record[f"{name}_seconds"] = record[f"{name}_compiling_seconds"] + record[f"{name}_stepping_seconds"]
        record[f"{name}_losses"] = losses[name]
    record["speed_over_loop"] = record["loop_seconds"] / record["ours_seconds"]
    record["step_speed_over_loop"] = [theirs / ours for theirs, ours in zip(stepping, warm, strict=True)]
    return record


def sweep_point_records(
    cases: Sequence[SweepCase] = CASES, progress: Callable[[str], None] = lambda _: None
) -> list[dict[str, Any]]:
    """Measure sweep points both ways.

    Args:
        cases: sizes.
        progress: told what is running.

    Returns:
        A record for each case. All ``*_seconds`` are of wall clock, for ``steps`` steps of every run, of which
        ``measured_steps`` were taken; ``speed_over_loop`` is the ratio of the totals, ``step_speed_over_loop`` that of
        the steps alone, for each width; ``*_losses`` are the mean losses of the last 50 steps of every run.

    Raises:
        RuntimeError: if a run recovers its graph within the measured steps, which then cannot be scaled.
    """
    records = []
    for case in cases:
        progress(f"sweep point: h={case.num_heads}, {len(case.head_dims)} widths of {case.seeds} seeds")
        records.append(_record(case))
    return records
