"""Which points the cache experiment asks for: thresholds of designs, budgets, conversions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from experiments.cache.config import CacheConfig, Design, Trainer
from experiments.cache.conversion import ConversionPoint
from experiments.cache.units import SharedPoint, num_params
from experiments.capacity.units import RECOVERED_F1
from experiments.engine import Ask, Part
from experiments.points import Record
from theory.bounds import partition_head_dim
from theory.cache_capacity import (
    latent_cache_dims,
    latent_parameter_cache_dims,
    shared_key_cache_dims,
    shared_key_parameter_cache_dims,
)
from theory.transition import search_threshold

CRITERIA: dict[str, Callable[[Record], bool]] = {
    "": lambda point: point["best_f1"] >= RECOVERED_F1,
    "exact_": lambda point: point["exact_recovery"],
}
"""What counts as success, by the prefix of its fields in a transition; thresholds are searched for the first."""


@dataclass(frozen=True)
class Curve:
    """One design of one size: what a threshold is located for. Its width (d_k, or d_c of a latent) is what varies."""

    design: Design
    num_items: int
    d_model: int
    num_heads: int
    num_kv_heads: int
    latent_rank: int | None
    embedding: str

    def points(self, config: CacheConfig, trainer: Trainer, width: int) -> list[SharedPoint]:
        """All seeds at one width; only settings that the trainer heeds are set."""
        joint = trainer == "joint"
        return [
            SharedPoint(
                design=self.design,
                trainer=trainer,
                num_items=self.num_items,
                d_model=self.d_model,
                num_heads=self.num_heads,
                num_kv_heads=self.num_kv_heads,
                head_dim=width if self.latent_rank is None else self.latent_rank,
                latent_dim=None if self.latent_rank is None else width,
                embedding=self.embedding,
                seed=seed,
                learning_rate=config.learning_rate if joint else None,
                max_steps=config.max_steps if joint else None,
                restarts={"joint": None, "greedy": config.greedy_restarts, "alternate": config.restarts}[
                    trainer
                ],
            )
            for seed in range(config.seeds)
        ]

    def width_of(self, point: Record) -> int:
        """The width of a record."""
        return point["head_dim"] if self.latent_rank is None else point["latent_dim"]

    @property
    def largest_width(self) -> int:
        """Beyond it nothing is gained."""
        if self.latent_rank is None:
            return self.d_model
        return min(self.d_model, self.num_heads * self.latent_rank)

    @property
    def predicted_cache_dims(self) -> float:
        """By width, for a fixed partition."""
        size = (self.num_items, self.num_items, self.d_model, self.num_heads)
        if self.latent_rank is None:
            return float(shared_key_cache_dims(*size, self.num_kv_heads))
        return float(latent_cache_dims(*size, self.latent_rank))

    @property
    def parameter_cache_dims(self) -> float:
        """By the parameter count: the law of joint training, extrapolated to shared keys."""
        size = (self.num_items, self.num_items, self.d_model, self.num_heads)
        if self.latent_rank is None:
            return float(shared_key_parameter_cache_dims(*size, self.num_kv_heads))
        return float(latent_parameter_cache_dims(*size, self.latent_rank))

    def trainers(self, trainers: Iterable[Trainer]) -> list[Trainer]:
        """Those that this design has."""
        return [trainer for trainer in trainers if trainer != "greedy" or self.design == "mha"]

    @property
    def name(self) -> str:
        """For people."""
        kind = self.design.upper()
        if self.design == "gqa":
            kind += f" of {self.num_kv_heads}"
        if self.latent_rank is not None:
            kind += f" of rank {self.latent_rank}"
        return f"{kind}, {self.num_heads} heads, {self.num_items} items, d = {self.d_model}"


def designs(config: CacheConfig, num_items: int, d_model: int, num_heads: int) -> list[Curve]:
    """All designs of a number of query heads."""
    found = []

    def add(design: Design, num_kv_heads: int, latent_rank: int | None = None) -> None:
        if design in config.designs:
            size = (num_items, d_model, num_heads)
            found.append(Curve(design, *size, num_kv_heads, latent_rank, config.embedding))

    add("mha", num_heads)
    for g in sorted(config.num_kv_heads, reverse=True):
        if 1 < g < num_heads and num_heads % g == 0:
            add("gqa", g)
    if num_heads > 1:
        add("mqa", 1)
        own = float(partition_head_dim(num_items, num_items, d_model, num_heads))
        rank = d_model if math.isinf(own) else min(d_model, math.ceil(config.latent_rank * own))
        add("mla", 1, max(rank, 2))
    return found


def curves(config: CacheConfig) -> list[tuple[Curve, list[Trainer]]]:
    """Every design whose threshold is located, with its trainers."""
    found: dict[Curve, list[Trainer]] = {}
    first = config.num_heads[0]
    for num_items, d_model in config.sizes():
        for heads in config.num_heads:
            trainers = config.trainers if heads == first else config.further_trainers
            for curve in designs(config, num_items, d_model, heads):
                found.setdefault(curve, curve.trainers(trainers))
    for num_items in config.frontier_items:
        for curve in designs(config, num_items, config.d_model[0], first):
            found.setdefault(curve, curve.trainers(config.further_trainers))
    return [(curve, trainers) for curve, trainers in found.items() if trainers]


def budgets(config: CacheConfig) -> list[tuple[str, int, Curve, int]]:
    """Designs at equal cache and at equal parameters: kind of budget, its size, the design, its width there.

    At a cache that a design cannot use to the last dimension (g does not divide it) it is left out.
    """
    found: list[tuple[str, int, Curve, int]] = []
    num_items, d_model = config.sizes()[0]
    for heads in config.num_heads:
        for curve in designs(config, num_items, d_model, heads):
            per_width = curve.num_kv_heads if curve.latent_rank is None else 1
            for budget in config.cache_budgets:
                if budget % per_width == 0 and budget // per_width <= curve.largest_width:
                    found.append(("cache", budget, curve, budget // per_width))
            for budget in config.parameter_budgets:
                fitting = [
                    width
                    for width in range(1, curve.largest_width + 1)
                    if num_params(curve.points(config, "alternate", width)[0]) <= budget
                ]
                if fitting:
                    found.append(("parameters", budget, curve, fitting[-1]))
    return found


def budget_trainers(config: CacheConfig, curve: Curve) -> list[Trainer]:
    """Trainers at equal budgets: those that look for the best channel."""
    known = dict.fromkeys((*config.trainers, *config.further_trainers))
    return [trainer for trainer in curve.trainers(known) if trainer != "joint"] or ["joint"]


def conversions(config: CacheConfig) -> list[list[ConversionPoint]]:
    """Batches of layers that are converted: to every number of key heads below the query heads."""
    heads = config.num_heads[0]
    if not config.conversion_items or heads < 2:
        return []
    groups = [g for g in config.num_kv_heads if 1 < g < heads and heads % g == 0]
    return [
        [
            ConversionPoint(
                num_items=config.conversion_items,
                d_model=config.d_model[0],
                num_heads=heads,
                num_kv_heads=g,
                head_dim=config.conversion_head_dim,
                embedding=config.embedding,
                learning_rate=config.learning_rate,
                max_steps=config.max_steps,
                steps=config.conversion_steps,
                seed=seed,
            )
            for seed in range(config.seeds)
        ]
        for g in (*sorted(groups, reverse=True), 1)
    ]


SEARCH_BATCHES = 4
"""How many widths a search tries, about."""


def parts(config: CacheConfig, ask: Ask) -> list[Part]:
    """The experiment as parts: searches, then budgets, then conversions; what the figures need most first."""
    found: list[tuple[float, Part]] = []
    cost = {"greedy": 1.0, "joint": 3.0, "alternate": 6.0}
    for curve, trainers in curves(config):
        work = float(curve.num_items**2 * curve.num_heads)
        for trainer in trainers:
            name = f"{trainer}: threshold of {curve.name}"

            def locate(curve: Curve = curve, trainer: Trainer = trainer) -> list[Record]:
                return search(config, curve, trainer, ask)

            weight = SEARCH_BATCHES * cost[trainer] * work
            found.append((weight, Part(name, locate, SEARCH_BATCHES * config.seeds, weight)))
    for kind, budget, curve, width in budgets(config):
        work = float(curve.num_items**2 * curve.num_heads)
        for trainer in budget_trainers(config, curve):
            name = f"{trainer}: {curve.name}, at {budget} of {kind}"
            points = curve.points(config, trainer, width)
            part = Part(name, lambda points=points: ask(points), len(points), cost[trainer] * work)
            found.append((100 * cost[trainer] * work, part))
    for batch in conversions(config):
        work = float(batch[0].num_items ** 2 * batch[0].num_heads)
        name = f"conversion to {batch[0].num_kv_heads} of {batch[0].num_heads} key heads"
        found.append((math.inf, Part(name, lambda batch=batch: ask(batch), len(batch), 12 * work)))
    return [part for _, part in sorted(found, key=lambda part: part[0])]


def search(config: CacheConfig, curve: Curve, trainer: Trainer, ask: Ask) -> list[Record]:
    """Bracket a trainer's threshold for one design, from its prediction on; the points that it took."""
    points: list[Record] = []

    def evaluate(width: int) -> tuple[int, int]:
        rows = ask(curve.points(config, trainer, width))
        points.extend(rows)
        return successes(rows, CRITERIA[""]), len(rows)

    predicted = curve.parameter_cache_dims if trainer == "joint" else curve.predicted_cache_dims
    start = predicted / (curve.num_kv_heads if curve.latent_rank is None else 1)
    search_threshold(
        evaluate, start=start if math.isfinite(start) else None, lowest=1, highest=curve.largest_width
    )
    return points


def successes(points: Sequence[Record], success: Callable[[Record], bool]) -> int:
    """A run that diverged is a run that did not succeed."""
    return sum(point["status"] == "ok" and success(point) for point in points)
