"""Which points the capacity experiment asks for: searches, head sweeps, ceilings.

Parts ask for points through a function, so a run that is resumed, a fresh one and the making of records from a finished
store are the same code. The searches depend on the answers and on nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from experiments.capacity.config import Arm, CapacityConfig
from experiments.capacity.units import RECOVERED_F1, TOGETHER, CeilingPoint, TrainedPoint
from experiments.engine import Ask, Part
from experiments.points import Record
from theory.bounds import (
    greedy_max_items,
    parameter_count_total_key_dim,
    partition_total_key_dim,
    single_head_max_items,
)
from theory.embeddings import MINILM_EMBEDDINGS, minilm_available
from theory.problems import check_problem, short_name
from theory.training import Trainer
from theory.transition import search_threshold

CEILING_GRID = (0.94, 0.97, 1.0, 1.03, 1.06, 1.09, 1.12)
"""Numbers of items tried for a ceiling, as multiples of the predicted one."""

CRITERIA: dict[str, Callable[[Record], bool]] = {
    "": lambda point: point["best_f1"] >= RECOVERED_F1,
    "exact_": lambda point: point["exact_recovery"],
    "trained_": lambda point: point["micro_f1"] >= RECOVERED_F1,
}
"""What counts as success, by the prefix of its fields in a transition."""


@dataclass(frozen=True)
class Curve:
    """One head count of one kind of problem: what a transition is located for."""

    num_items: int
    num_edges: int
    d_model: int
    num_heads: int
    embedding: str
    graph: str

    def points(self, config: CapacityConfig, trainer: Trainer, head_dim: int) -> list[TrainedPoint]:
        """All seeds at one head_dim; only settings that the trainer heeds are set."""
        joint = trainer in TOGETHER
        return [
            TrainedPoint(
                num_items=self.num_items,
                num_edges=self.num_edges,
                d_model=self.d_model,
                num_heads=self.num_heads,
                head_dim=head_dim,
                embedding=self.embedding,
                graph=self.graph,
                trainer=trainer,
                seed=seed,
                learning_rate=config.learning_rate if joint else None,
                max_steps=config.max_steps if joint else None,
                restarts=None if joint else config.restarts,
            )
            for seed in range(config.seeds)
        ]

    def predicted(self, trainer: str) -> float:
        """Where the search for a trainer's D_K* begins; infinite where success is not expected at any budget.

        The law of plain joint descent for ``plain``. For the others the fixed partition; where that fails at every
        budget but heads that choose their edges are predicted to hold the items, four fifths of the largest budget.
        """
        size = (self.num_items, self.num_edges, self.d_model, self.num_heads)
        if trainer == "plain":
            return parameter_count_total_key_dim(*size)
        fixed = partition_total_key_dim(*size)
        chosen = self.graph == "permutation" and self.num_heads > 1
        if math.isinf(fixed) and chosen and self.num_items <= greedy_max_items(self.d_model, self.num_heads):
            return 0.8 * self.num_heads * self.d_model
        return fixed


def curves(config: CapacityConfig) -> list[Curve]:
    """All head counts at all sizes, and the arms that can be run."""
    found = swept(config)
    for text in config.arms:
        arm = Arm.parse(text)
        if _why_left_out(arm) is None:
            edges = config.num_edges(arm.graph, arm.num_items)
            check_problem(
                num_items=arm.num_items,
                num_edges=edges,
                d_model=arm.d_model,
                embedding=arm.embedding,
                graph=arm.graph,
            )
            found.append(Curve(arm.num_items, edges, arm.d_model, arm.num_heads, arm.embedding, arm.graph))
    return found


def swept(config: CapacityConfig) -> list[Curve]:
    """Head counts at the sizes of the configuration, without its arms."""
    return [
        _curve(config, num_items, d_model, heads)
        for num_items, d_model in config.sizes()
        for heads in config.num_heads
    ]


def _curve(config: CapacityConfig, num_items: int, d_model: int, num_heads: int) -> Curve:
    """A head count at a size of the configuration, with its embedding and graph."""
    edges = config.num_edges(config.graph, num_items)
    return Curve(num_items, edges, d_model, num_heads, config.embedding, config.graph)


def left_out(config: CapacityConfig) -> list[Record]:
    """Arms that cannot be run here, why, and how to get what they need."""
    rows = []
    for text in config.arms:
        why = _why_left_out(Arm.parse(text))
        if why is not None:
            rows.append({"what": text, "why": why, "how_to_get": "make models"})
    return rows


def _why_left_out(arm: Arm) -> str | None:
    if arm.embedding in MINILM_EMBEDDINGS and not minilm_available():
        return "the MiniLM model is not installed"
    return None


def sweeps(config: CapacityConfig) -> list[tuple[int, Curve]]:
    """Head sweeps: each budget with a curve for every head count that divides it."""
    return [
        (total, _curve(config, num_items, d_model, heads))
        for num_items, d_model in config.sizes()
        for total in config.total_key_dim
        for heads in range(1, total + 1)
        if total % heads == 0
    ]


def ceiling_batches(config: CapacityConfig) -> list[list[CeilingPoint]]:
    """Points of the single head's ceilings: Gaussian items, permutation graphs."""
    return [
        [
            CeilingPoint(
                num_items=num_items,
                num_edges=num_items,
                d_model=d_model,
                embedding="gaussian",
                graph="permutation",
                seed=seed,
            )
            for seed in range(config.ceiling_seeds)
        ]
        for d_model in config.ceiling_d_model
        for num_items in sorted(
            {max(2, round(single_head_max_items(d_model) * factor)) for factor in CEILING_GRID}
        )
    ]


SEARCH_BATCHES = 5
"""How many head dims a search tries, about."""


def parts(config: CapacityConfig, ask: Ask) -> list[Part]:
    """The experiment as parts: searches, points of head sweeps, points of ceilings.

    Cheap parts come first, ``greedy`` thresholds before the others, then arms, head sweeps, ``plain`` and ``polish``,
    so that a run which is stopped has finished as much as possible of what the figures need most.
    """
    found: list[tuple[float, Part]] = []
    arms = [curve for curve in curves(config) if curve not in swept(config)]
    for curve in curves(config):
        for trainer in threshold_trainers(config, curve):
            name = f"{trainer}: threshold of {curve.num_heads} heads, {place(curve)}"

            def locate(curve: Curve = curve, trainer: Trainer = trainer) -> list[Record]:
                return search(config, curve, trainer, ask)

            place_in_line = (9 if curve in arms else 1) * {
                "greedy": 3,
                "joint": 30,
                "plain": 50,
                "polish": 50,
            }[trainer]
            part = Part(name, locate, SEARCH_BATCHES * config.seeds, SEARCH_BATCHES * _work(curve))
            found.append((place_in_line * _work(curve), part))
    for total, curve in sweeps(config):
        for trainer in sweep_trainers(config):
            name = f"{trainer}: {curve.num_heads} heads at D_K = {total}, {place(curve)}"
            points = curve.points(config, trainer, total // curve.num_heads)
            part = Part(name, lambda points=points: ask(points), len(points), _work(curve))
            found.append((40 * _work(curve), part))
    for batch in ceiling_batches(config):
        name = f"one head, exactly: {batch[0].num_items} items, d = {batch[0].d_model}"
        squared = float(batch[0].num_items ** 2)
        found.append((squared, Part(name, lambda batch=batch: ask(batch), len(batch), 0.3 * squared)))
    return [part for _, part in sorted(found, key=lambda part: part[0])]


def sweep_trainers(config: CapacityConfig) -> list[Trainer]:
    """Trainers of head sweeps: beside others, ``polish``, the costliest, and ``plain`` locate thresholds only."""
    return [t for t in config.trainers if t not in ("polish", "plain")] or list(config.trainers)


def threshold_trainers(config: CapacityConfig, curve: Curve) -> list[Trainer]:
    """Trainers whose thresholds are located: in arms, without ``plain`` where there is another."""
    if curve in swept(config):
        return list(config.trainers)
    return [trainer for trainer in config.trainers if trainer != "plain"] or list(config.trainers)


def _work(curve: Curve) -> float:
    """Work of one batch, up to a factor."""
    return float(curve.num_items**2 * (curve.num_heads + 2))


def place(curve: Curve) -> str:
    """Size, items and graph of a curve, for people."""
    return f"{curve.num_items} items, d = {curve.d_model}, {short_name(curve.embedding)}, {short_name(curve.graph)}"


def search(config: CapacityConfig, curve: Curve, trainer: Trainer, ask: Ask) -> list[Record]:
    """Bracket a trainer's threshold for one head count, from its prediction on; the points that it took."""
    points: list[Record] = []

    def evaluate(head_dim: int) -> tuple[int, int]:
        records = ask(curve.points(config, trainer, head_dim))
        points.extend(records)
        return successes(records, CRITERIA[""]), len(records)

    start = curve.predicted(trainer) / curve.num_heads
    search_threshold(evaluate, start=start if math.isfinite(start) else None, lowest=1, highest=curve.d_model)
    return points


def successes(points: Iterable[Record], success: Callable[[Record], bool]) -> int:
    """A run that diverged is a run that did not succeed."""
    return sum(point["status"] == "ok" and success(point) for point in points)
