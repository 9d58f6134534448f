"""Points of the retrieval experiment and what a batch computes: all seeds and learning rates of one configuration."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from experiments.points import Kind, Record
from experiments.retrieval.config import RetrievalConfig
from theory.retrieval import (
    Encoder,
    RetrievalModel,
    RetrievalTask,
    TrainingOptions,
    exponent,
    general_task,
    max_task,
    train,
    uniform_attention_nmse,
    unread_nmse,
)

BATCH_SIZE = 100
NUM_TEST = 2000
MLP_WIDTH = 32
"""Hidden units of an MLP encoder, and of the read-out where nothing else is said (the paper's "hidden dimension")."""


@dataclass(frozen=True)
class RetrievalPoint:
    """One trained model.

    Attributes:
        task: ``max`` or ``general``; ``memorise`` is ``max`` read by one head of ``n = T d`` on features e_t (x) x.
        num_targets: D.
        length: T.
        width: d.
        num_heads: h.
        per_head_dim: n.
        encoder: ``linear``, ``mlp`` or ``product``.
        num_layers: L.
        readout_width: hidden units of the read-out.
        attention: ``trained``, or ``uniform`` where it is kept so from the start.
        num_steps: of the optimiser.
        num_train: training samples.
        learning_rate: of the optimiser.
        seed: of data and initial weights.
        directions: of ``max`` and ``memorise``, None elsewhere.
    """

    task: Literal["max", "general", "memorise"]
    num_targets: int
    length: int
    width: int
    num_heads: int
    per_head_dim: int
    encoder: Encoder
    num_layers: int
    readout_width: int
    attention: Literal["trained", "uniform"]
    num_steps: int
    num_train: int
    learning_rate: float
    seed: int
    directions: str | None = None


KINDS = {
    "points": Kind(
        RetrievalPoint,
        frozenset(RetrievalPoint.__dataclass_fields__)
        | {"status", "reason", "nmse", "nmse_uniform", "matched", "predicted_nmse", "exponent"}
        | {"num_parameters", "num_readout_parameters", "seconds"},
        values=("learning_rate", "seed"),
    )
}


def token_width(num_targets: int) -> int:
    """d: 4 as in the paper, or D where there are more targets."""
    return max(4, num_targets)


def curves(config: RetrievalConfig) -> list[tuple[str, RetrievalPoint]]:
    """Every model of a configuration with the name of the curve it belongs to; learning rate and seed are 0.

    A model may belong to several curves; it is trained once.
    """
    models: list[tuple[str, RetrievalPoint]] = []
    most = config.arm_targets
    near = [most + shift for shift in config.arm_heads if most + shift >= 1]

    def add(curve: str, heads: Iterable[int], num_targets: int, length: int, **changes: Any) -> None:
        width = token_width(num_targets)
        base = RetrievalPoint(
            task="max",
            directions="orthonormal",
            num_targets=num_targets,
            length=length,
            width=width,
            num_heads=1,
            per_head_dim=width,
            encoder="linear",
            num_layers=1,
            readout_width=MLP_WIDTH,
            attention="trained",
            num_steps=config.num_steps,
            num_train=config.num_train,
            learning_rate=0.0,
            seed=0,
        )
        models.extend((curve, replace(base, num_heads=h, **changes)) for h in heads)

    for length in config.lengths:
        for targets in config.num_targets:
            add("main", range(1, targets + config.extra_heads + 1), targets, length)
        add("uniform", [1], most, length, attention="uniform")
    for length in config.random_lengths:
        add("random", near, most, length, directions="random")
    for length in config.fixed_width_lengths:
        for h in near:
            add("fixed-width", [h], most, length, per_head_dim=config.fixed_width // h)
    for length in config.mlp_lengths:
        add("mlp", near, most, length, encoder="mlp")
        add("mlp-uniform", [most], most, length, encoder="mlp", attention="uniform")
        add("mlp-beside", near, most, length)
    for length in config.two_layer_lengths:
        for targets in config.num_targets:
            if targets % 2 == 0:
                # Every layer writes beside what it reads: 2 D dimensions are enough for that, at every head count.
                heads = range(1, targets + 1)
                add("two-layer", heads, targets, length, num_layers=2, per_head_dim=2 * targets)
    for length in config.general_lengths:
        add("general", near, most, length, task="general", directions=None, encoder="mlp")
    for length in config.copy_lengths:
        long = {"num_train": config.copy_num_train}
        copying = {
            "task": "memorise",
            "encoder": "product",
            "per_head_dim": length * token_width(most),
        } | long
        for units in config.copy_widths:
            add("copy", [1], most, length, readout_width=units, attention="uniform", **copying)
            add("wide", [1], most, length, readout_width=units, **copying)
        for units in config.head_widths:
            add("heads", [most], most, length, readout_width=units, **long)
        widest = max(config.head_widths)
        add("heads-uniform", [most], most, length, readout_width=widest, attention="uniform", **long)
    return models


def runs_of(config: RetrievalConfig, model: RetrievalPoint) -> list[RetrievalPoint]:
    """The points of one model: every seed with every learning rate."""
    rates = config.copy_learning_rates if model.task == "memorise" else config.learning_rates
    return [replace(model, learning_rate=rate, seed=seed) for seed in range(config.seeds) for rate in rates]


def grid(config: RetrievalConfig) -> list[RetrievalPoint]:
    """All points of a configuration, each once."""
    models = dict.fromkeys(model for _, model in curves(config))
    return [point for model in models for point in runs_of(config, model)]


def compute(points: Sequence[RetrievalPoint]) -> list[Record]:
    """Train all seeds and learning rates of one configuration."""
    first = points[0]
    started = time.perf_counter()
    task, model = task_of(first), model_of(first)
    seeds = list(dict.fromkeys(point.seed for point in points))
    rates = tuple(dict.fromkeys(point.learning_rate for point in points))
    options = TrainingOptions(
        learning_rates=rates,
        num_steps=first.num_steps,
        batch_size=BATCH_SIZE,
        num_train=first.num_train,
        num_test=NUM_TEST,
        warmup=min(100, first.num_steps // 10 + 1),
        uniform=first.attention == "uniform",
    )
    runs = train(model, task, seeds=seeds, options=options, compiled=compiled_model(first))
    by_name = {(run.seed, run.learning_rate): run for run in runs}
    seconds = round((time.perf_counter() - started) / len(points), 3)
    shared = {
        "predicted_nmse": predicted_nmse(first),
        "exponent": _exponent(first),
        "num_parameters": model.num_parameters,
        "num_readout_parameters": model.num_readout_parameters,
        "seconds": seconds,
    }
    records = []
    for point in points:
        run = by_name[point.seed, point.learning_rate]
        records.append(
            asdict(point)
            | {
                "status": "failed" if run.nmse is None else "ok",
                "reason": "diverged" if run.nmse is None else None,
                "nmse": run.nmse,
                "nmse_uniform": run.nmse_uniform,
                "matched": None if run.matched is None else list(run.matched),
            }
            | shared
        )
    return records


def task_of(point: RetrievalPoint) -> RetrievalTask:
    """The task of a point."""
    if point.task == "general":
        return general_task(point.num_targets, point.length, width=point.width, window=point.length // 2)
    return max_task(
        point.num_targets, point.length, width=point.width, directions=point.directions or "orthonormal"
    )


def model_of(point: RetrievalPoint) -> RetrievalModel:
    """The model of a point. Positions are learned where the task has sets of them."""
    return RetrievalModel(
        length=point.length,
        width=point.width,
        num_heads=point.num_heads,
        per_head_dim=point.per_head_dim,
        encoder=point.encoder,
        encoder_width=MLP_WIDTH,
        readout_width=point.readout_width,
        num_layers=point.num_layers,
        positions=point.task == "general",
    )


def compiled_model(point: RetrievalPoint) -> RetrievalModel:
    """What the point's program is compiled for: with surplus heads, so that one program serves a curve.

    Short sequences are cheap and get six heads or eight, whatever they use; long ones the next even number.
    """
    model = model_of(point)
    if point.task == "memorise":
        return model
    step = 2 if point.length >= 64 or point.num_layers > 1 else 6 if point.num_heads <= 6 else 8
    return replace(model, num_heads=-(-point.num_heads // step) * step)


def program(points: Sequence[RetrievalPoint]) -> Hashable:
    """What a batch needs compiled."""
    first = points[0]
    return len(points), first.num_steps, first.num_train, first.attention, compiled_model(first)


def work_of(point: RetrievalPoint) -> float:
    """How much a batch costs, about: multiplications for one sample, times steps, in millions."""
    model = compiled_model(point)
    keys = point.length * (1 if point.num_layers == 1 else point.length)
    tokens = keys * 2 * model.num_heads * model.feature_dim
    if point.encoder == "mlp":
        tokens += point.length * point.width * MLP_WIDTH
    return (tokens + model.num_readout_parameters) * point.num_steps / 1e6


def predicted_nmse(point: RetrievalPoint) -> float | None:
    """What is predicted without a free parameter, for a linear encoder and orthonormal directions; else None."""
    if point.encoder != "linear" or point.directions != "orthonormal" or point.num_layers > 1:
        return None
    if point.attention == "uniform":
        return uniform_attention_nmse(task_of(point).vectors, point.length)
    return unread_nmse(point.num_heads, point.num_targets, point.length)


def _exponent(point: RetrievalPoint) -> float | None:
    """The lower bound's exponent; None for D heads or more, and several layers, of which it says nothing."""
    if point.num_heads >= point.num_targets or point.num_layers > 1:
        return None
    return exponent(point.length, point.num_heads, point.num_targets, point.per_head_dim)
