"""What the figures and tables of `capacity` read out of a run's records."""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.reading import Record, wilson
from theory import bounds
from theory.problems import log2_family_size

SUCCESS_F1 = 0.99
"""Best-threshold F1 from which a run counts as having recovered its graph."""
MATCHINGS = ("permutation", "words", "words-shuffled")
"""Graphs with at most one edge out of and into an item: the cap on one-dimensional heads holds."""
TRAINERS = ("greedy", "polish", "convex", "joint", "plain")
"""In the order in which they are drawn."""
TRAINER_WORDS = {
    "best": "the best trainer",
    "greedy": "training head by head (each head chooses its edges)",
    "polish": "joint descent from what training head by head found",
    "convex": "exact convex solves",
    "joint": "joint training on a maximum that hardens",
    "plain": "plain joint descent",
}
"""For captions."""


@dataclass(frozen=True, order=True)
class Case:
    """One task: size, embedding and graph; what is swept is the number of heads and the budget."""

    num_items: int
    num_edges: int
    d_model: int
    embedding: str
    graph: str

    @property
    def title(self) -> str:
        """For panels."""
        edges = "" if self.graph == "permutation" else f", {self.num_edges} edges"
        return f"{self.num_items} items{edges}, d = {self.d_model}"

    @property
    def description(self) -> str:
        """For captions."""
        return f"{self.title} ({self.graph} graphs, {self.embedding} embeddings)"


@dataclass(frozen=True)
class Rate:
    """How many of a configuration's runs recovered their graph; failed runs are counted apart."""

    successes: int
    trials: int
    failed: int
    scores: tuple[float, ...]

    @property
    def share(self) -> float:
        """Of the runs that did not fail."""
        return self.successes / self.trials

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's, 95%."""
        return wilson(self.successes, self.trials)


def case_of(record: Record) -> Case:
    """The task that a point, transition or head sweep belongs to."""
    return Case(*(record[name] for name in ("num_items", "num_edges", "d_model", "embedding", "graph")))


def sweep_cases(transitions: Iterable[Record]) -> list[Case]:
    """Tasks measured at several head counts, by size; all tasks where there is none."""
    heads: dict[Case, set[int]] = {}
    for record in transitions:
        heads.setdefault(case_of(record), set()).add(record["num_heads"])
    several = [case for case, values in heads.items() if len(values) > 1]
    return sorted(several or heads, key=lambda case: (case.d_model, case))


def select(rows: Iterable[Record], case: Case | None = None, **fields: Any) -> list[Record]:
    """Records of a task with these values."""
    return [
        row
        for row in rows
        if (case is None or case_of(row) == case)
        and all(row.get(key) == value for key, value in fields.items())
    ]


def trainers_of(rows: Iterable[Record]) -> list[str]:
    """Trainers with records, in drawing order, without the combined `best`."""
    found = {row["trainer"] for row in rows} - {"best"}
    return [name for name in TRAINERS if name in found] + sorted(found - set(TRAINERS))


def best_of(transitions: list[Record]) -> list[Record]:
    """The best trainer's transitions; empty where one kind of joint training is all there is: the same numbers."""
    if trainers_of(transitions) in (["joint"], ["plain"]):
        return []
    return select(transitions, trainer="best")


def rates(points: Iterable[Record], key: str) -> dict[int, Rate]:
    """Success rates by the value of ``key``, increasing; a value at which every run failed is left out."""
    groups: dict[int, list[Record]] = {}
    for point in points:
        groups.setdefault(point[key], []).append(point)
    out = {}
    for value in sorted(groups):
        scores = tuple(
            p["best_f1"] for p in groups[value] if p["status"] == "ok" and p["best_f1"] is not None
        )
        if scores:
            successes = sum(score >= SUCCESS_F1 for score in scores)
            out[value] = Rate(successes, len(scores), len(groups[value]) - len(scores), scores)
    return out


def ends_of_lines(drawn: Collection[str]) -> str:
    """A caption's sentence on where the predictions and laws that are drawn have no line, with a space before."""
    which = {0: "", 1: " It is", 2: " Neither is"}[len(drawn)]
    return (
        which
        and f"{which}{' not' if len(drawn) == 1 else ''} drawn where it is infinite or the theorems exclude it."
    )


def budget_floor(case: Case, num_heads: int, counting: float | None) -> float:
    """Least D_K that the theorems leave open at ``num_heads`` heads; inf where they exclude every budget.

    The largest of the counting bound (as recorded; it needs a precision), Warren's bound, and ``h`` itself
    or, where heads of one dimension hold too few edges, ``2 h``: budgets are multiples of ``h``.
    """
    one_dimensional = case.graph in MATCHINGS and bounds.one_dimensional_cap(num_heads) < case.num_edges
    floor = max(counting or 0.0, num_heads * (2.0 if one_dimensional else 1.0))
    bits = log2_family_size(case.graph, case.num_items, case.num_edges)
    if bits is not None:
        floor = max(floor, float(bounds.warren_bound(bits, case.num_items, case.d_model, num_heads)))
    return floor


PARTITION, PARAMETER_COUNT = "partition_total_key_dim", "parameter_count_total_key_dim"
"""What a budget is held against: fields of a transition, named as the functions of `theory.bounds`."""


def prediction_line(name: str, case: Case, heads: np.ndarray) -> np.ndarray:
    """The function of `theory.bounds` with that name at these head counts, NaN where infinite."""
    bound = {
        PARTITION: bounds.partition_total_key_dim,
        PARAMETER_COUNT: bounds.parameter_count_total_key_dim,
    }[name]
    values = np.asarray(bound(case.num_items, case.num_edges, case.d_model, heads), dtype=np.float64)
    return np.where(np.isfinite(values), values, np.nan)


def is_excluded(record: Record, name: str) -> bool:
    """Whether a recorded prediction or law is a budget that the theorems exclude: it does not know them."""
    floor = budget_floor(case_of(record), record["num_heads"], record.get("counting_bound"))
    return record.get(name) is not None and record[name] < floor


def open_prediction(record: Record, name: str) -> float | None:
    """A recorded prediction or law; None where it is infinite or the theorems exclude it."""
    return None if is_excluded(record, name) else record.get(name)


def check_predictions(transitions: Iterable[Record]) -> None:
    """Lines are drawn from `theory.bounds`, the rest from records: they must say the same.

    Raises:
        ValueError: a recorded prediction differs from today's, by more than 1e-6 of it.
    """
    for record in transitions:
        case, heads = case_of(record), np.array([record["num_heads"]])
        for name in (PARTITION, PARAMETER_COUNT):
            if name not in record:
                continue
            now = float(prediction_line(name, case, heads)[0])
            then = math.nan if record[name] is None else float(record[name])
            if not np.isclose(now, then, rtol=1e-6, atol=0, equal_nan=True):
                raise ValueError(
                    f"records: expected {name} = {now:.6g} at num_heads = {heads[0]} for "
                    f"{case.description}, got {then:.6g}; the prediction has changed since: run it again"
                )
