"""Benchmark of a run from end to end: where the time of a sweep goes, and how near its steps are to the machine's peak.

The run is a part of the preset ``quick`` through the engine itself, in this process: points in, a file of records out.
It is made twice, each time with nothing compiled in memory: first with an empty folder of compiled programs, then with
the folder that the first one left. Time of a run is split into compiling (with tracing, and with fetching what was
compiled before), computing (the rest of the batches), I/O (lines of the store, synced, and the final file) and the
rest (the engine). The share that is not computing is what a sweep costs beside its results.

One step of joint training, at the size of the run, is then taken apart: its operations at the rate of a large matrix
product, and what channel (maximum over heads, gradients routed to the winner), loss and optimiser take on top.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.capacity.config import PRESETS
from experiments.capacity.experiment import EXPERIMENT
from experiments.collecting import asker, checker, collect
from experiments.computing import work
from experiments.environment import cores, environment, programs_in
from experiments.files import json_values
from experiments.runner import Runner
from experiments.store import Line, Store, canonical, digest, write_json
from experiments.workers import InProcess
from theory.channel import max_over_heads, project
from theory.problems import make_problem
from theory.training import PLAIN, train_joint
from theory.training.joint import initial_params


@dataclass(frozen=True)
class RunCase:
    """A part of ``quick``: some of its head counts, its trainers and its seeds.

    ``target`` is the largest share of the time that may not be computing where programs are compiled already.
    """

    num_heads: tuple[int, ...] = (4,)
    seeds: int = 8
    max_steps: int = 6000
    head_dim: int = 6
    target: float = 0.15


CASES = (RunCase(),)


class _TimedStore(Store):
    """A store that knows how long writing took."""

    seconds = 0.0

    def put(self, *args: Any, **kwargs: Any) -> None:
        started = time.perf_counter()
        super().put(*args, **kwargs)
        self.seconds += time.perf_counter() - started


def _run(config: Any, folder: Path) -> dict[str, float]:
    """One run through the engine; seconds by what they went into."""
    jax.clear_caches()
    started = time.perf_counter()
    header = {"experiment": EXPERIMENT.name, "config": json_values(config)}
    store = _TimedStore(folder / "run.jsonl", header, checker(EXPERIMENT))
    with store:
        runner = Runner(store, InProcess(), partial(work, EXPERIMENT.name, {}), width=1)
        parts = EXPERIMENT.parts(config, asker(EXPERIMENT.kinds, runner.records))
        runner.run([part.run for part in parts])
        lines = {canonical(line.unit): line for line in store.lines()}
        writing = time.perf_counter()

        def get(unit: Any) -> Line | None:
            return lines.get(canonical(unit))

        rows, _, _ = collect(EXPERIMENT, config, digest(header["config"]), get)
        collected = time.perf_counter()
        write_json(folder / "run.json", rows)
        io = store.seconds + time.perf_counter() - collected
    wall = time.perf_counter() - started
    seconds = [line.notes["seconds"] for line in lines.values()]
    compiling = sum(spent["compiling"] for spent in seconds)
    computing = sum(spent["total"] for spent in seconds) - compiling
    return {
        "batches": len(lines),
        "seconds": wall,
        "compiling_seconds": compiling,
        "computing_seconds": computing,
        "io_seconds": io,
        "collecting_seconds": collected - writing,
        "rest_seconds": wall - compiling - computing - io - (collected - writing),
        "share_not_computing": 1.0 - computing / wall,
    }


def step_operations(num_items: int, d_model: int, num_heads: int, head_dim: int) -> int:
    """Operations of one step of joint training, of one seed, in matrix products.

    Forwards queries, keys and every head's score of every pair; backwards two products over all pairs for every head,
    and the gradients of both projections.
    """
    budget = num_heads * head_dim
    return 6 * num_items**2 * budget + 8 * num_items * d_model * budget


def _median_seconds(calls: dict[str, Callable[[], Any]], rounds: int = 7) -> dict[str, float]:
    """Median times of calls that take turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for round_ in range(rounds + 1):
        for name, call in calls.items():
            started = time.perf_counter()
            jax.block_until_ready(call())
            if round_:  # the first warms up
                times[name].append(time.perf_counter() - started)
    return {name: statistics.median(found) for name, found in times.items()}


def _step(case: RunCase, num_items: int, d_model: int, peak: float) -> dict[str, float]:
    """Seconds of one step of all seeds, and of what it is made of."""
    heads, width = case.num_heads[0], case.head_dim
    problems = [
        make_problem(
            num_items=num_items,
            num_edges=num_items,
            d_model=d_model,
            embedding="gaussian",
            graph="permutation",
            seed=seed,
        )
        for seed in range(case.seeds)
    ]
    items = np.stack([problem.embeddings for problem in problems])
    edges = np.stack([problem.graph.adjacency() for problem in problems])
    shape = {"num_heads": heads, "d_model": d_model, "head_dim": width, "max_head_dim": width, "scale": 0.3}
    params = initial_params(range(case.seeds), **shape)
    x, a = jnp.asarray(items, jnp.float32), jnp.asarray(edges)
    steps = 50

    def scores(weights, x):
        return max_over_heads(*(project(x, weights[name]) for name in ("query", "key")))[0]

    def loss(weights, x, a):
        return jnp.mean(jax.nn.softplus(jnp.where(a, -scores(weights, x), scores(weights, x))))

    def repeated(function):
        """Many gradients in one program, each from weights that the last one moved, as in training."""

        def run(params, x, a):
            def body(_, params):
                return jax.tree.map(lambda p, g: p - 1e-6 * g, params, jax.grad(function)(params, x, a))

            return jax.lax.fori_loop(0, steps, body, params)

        return jax.jit(jax.vmap(run))

    channel, cross_entropy = repeated(lambda p, x, a: jnp.sum(scores(p, x))), repeated(loss)
    options = replace(PLAIN, max_steps=steps, check_every=steps, patience=steps)
    training = partial(
        train_joint, items, edges, num_heads=heads, head_dim=width, seeds=range(case.seeds), options=options
    )
    found = _median_seconds(
        {
            "channel": lambda: channel(params, x, a),
            "loss": lambda: cross_entropy(params, x, a),
            "training": lambda: [channel.loss for channel in training()],
        }
    )
    operations = case.seeds * step_operations(num_items, d_model, heads, width)
    seconds = {name: value / steps for name, value in found.items()}
    at_peak = operations / peak
    return {
        "step_operations": operations,
        "step_seconds": seconds["training"],
        "achieved_operations_per_second": operations / seconds["training"],
        "share_of_peak": at_peak / seconds["training"],
        "products_at_peak_seconds": at_peak,
        "channel_seconds": seconds["channel"] - at_peak,
        "loss_seconds": seconds["loss"] - seconds["channel"],
        "optimiser_seconds": seconds["training"] - seconds["loss"],
    }


def _record(case: RunCase, peak: float) -> dict[str, Any]:
    config = replace(
        PRESETS["quick"],
        num_heads=case.num_heads,
        seeds=case.seeds,
        max_steps=case.max_steps,
        total_key_dim=(),
        ceiling_d_model=(),
        arms=(),
    )
    (num_items, d_model), *_ = config.sizes()
    record = asdict(case) | {"num_heads": list(case.num_heads), "num_items": num_items, "d_model": d_model}
    with tempfile.TemporaryDirectory() as folder, programs_in(Path(folder) / "compiled"):
        for name in ("first", "again"):
            record[name] = _run(config, Path(folder) / name)
    return record | _step(case, num_items, d_model, peak)


def run_records(
    peak: float, progress: Callable[[str], None] = lambda _: None, cases: tuple[RunCase, ...] = CASES
) -> list[dict[str, Any]]:
    """Time runs from end to end.

    Args:
        peak: operations a second of a large matrix product on this machine.
        progress: told what is running.
        cases: which runs.
    """
    records = []
    for case in cases:
        progress(f"run from end to end: {case.num_heads} heads, {case.seeds} seeds")
        records.append(_record(case, peak) | {"cores": cores(), "xla_flags": environment()["xla_flags"]})
    return records
