"""A second experiment, as small as one can be: descent on a quadratic, and a search for the least number of steps."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from functools import partial

import jax
import jax.numpy as jnp

from experiments.engine import Experiment, Part
from experiments.points import Kind
from experiments.store import write_json

TRACED: list[tuple[int, int]] = []
"""Shapes for which the program was traced in this process."""


@dataclass(frozen=True)
class Point:
    width: int
    steps: int
    rate: float
    seed: int
    note: str | None = None


@dataclass(frozen=True)
class Delay:
    seconds: float
    seed: int


@dataclass(frozen=True)
class Config:
    """Fields of the toy.

    Attributes:
        widths: dimensions.
        rates: learning rates, all in one program.
        seeds: starts at every rate.
        goal: loss that the search wants.
        delays: batches that only wait so many seconds.
    """

    widths: tuple[int, ...] = (3, 5)
    rates: tuple[float, ...] = (0.1, 0.3)
    seeds: int = 2
    goal: float = 0.05
    delays: tuple[float, ...] = ()


@partial(jax.jit, static_argnames=("width", "steps"))
def descend(rates, seeds, *, width: int, steps: int):
    TRACED.append((width, steps))

    def one(rate, seed):
        start = jnp.cos(seed + jnp.arange(width, dtype=rate.dtype))
        return jnp.sum(((1.0 - rate) ** steps * start) ** 2)

    return jax.vmap(one)(rates, seeds)


def loss_by_hand(point) -> float:
    return sum(
        ((1 - point["rate"]) ** point["steps"] * math.cos(point["seed"] + i)) ** 2
        for i in range(point["width"])
    )


class Toy(Experiment[Config]):
    name = "toy"
    summary = "descent on a quadratic"
    presets = {"smoke": Config(widths=(3,)), "quick": Config()}  # noqa: RUF012
    kinds = {  # noqa: RUF012
        "points": Kind(
            Point, frozenset({"width", "steps", "rate", "seed", "loss", "seconds"}), values=("rate", "seed")
        ),
        "delays": Kind(Delay, frozenset({"seconds", "seed"})),
    }

    def batch(self, config, width, steps):
        return [Point(width, steps, rate, seed) for rate in config.rates for seed in range(config.seeds)]

    def points(self, config):
        grid = [point for width in config.widths for point in self.batch(config, width, 1)]
        return grid + [Delay(seconds, 0) for seconds in config.delays]

    def parts(self, config, ask):
        def search(width):
            steps = 1
            while max(record["loss"] for record in ask(self.batch(config, width, steps))) > config.goal:
                steps *= 2
            return steps

        searches = [Part(f"steps for width {w}", partial(search, w), points=12) for w in config.widths]
        return super().parts(config, ask) + searches

    def compute(self, points):
        first = points[0]
        if isinstance(first, Delay):
            time.sleep(first.seconds)
            return [asdict(point) for point in points]
        rates, seeds = jnp.array([p.rate for p in points]), jnp.array([float(p.seed) for p in points])
        losses = descend(rates, seeds, width=first.width, steps=first.steps)
        return [
            {k: v for k, v in asdict(p).items() if k != "note"}
            | {"loss": float(loss), "seconds": time.time()}
            for p, loss in zip(points, losses, strict=True)
        ]

    def summary_of(self, config, ask, rows):
        return {
            "widths": [
                {"width": w, "points": sum(r["width"] == w for r in rows["points"])} for w in config.widths
            ]
        }

    def group(self, point):
        return None if isinstance(point, Delay) else f"steps for width {point.width}"

    def estimate(self, points, records):
        done = [record["steps"] for record in records if record["loss"] <= 0.05]
        return f"steps = {min(done, default='?')}"

    def left_out(self, config):
        return [{"what": "rate 0", "why": "no descent", "how_to_get": "wait"}] if 0.0 in config.rates else []

    def plot(self, data, folder, stem):
        write_json(folder / f"{stem}-figure.json", len(data["records"]["points"]))
        return [folder / f"{stem}-figure.json"]


EXPERIMENT = Toy()
