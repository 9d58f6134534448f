"""The best head that a run knows of: what one search found may serve another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from experiments.points import Record


def best_known(points: Sequence[Mapping[str, Any]]) -> list[Record]:
    """The points with ``kl`` and ``max_logit`` of the best head that any search of the run found for them.

    A search is not exhaustive, and a minimum over more heads is no larger: a head found for the same pattern (of the
    same seed) at a smaller size, or under a smaller bound, is one of a larger size (with columns of zeros) and of a
    larger bound or none. Where such a head is better than what the point's own search found, it counts.

    Args:
        points: records of `experiments.rank.units.RankPoint`; they stay as they are.

    Returns:
        As many, in their order. ``starts`` and ``steps_taken`` are still those of the point's own search.
    """
    problems: dict[tuple, list[Mapping[str, Any]]] = {}
    for row in points:
        problems.setdefault(_problem(row), []).append(row)
    return [{**row, **_counted(row, problems[_problem(row)])} for row in points]


def _problem(row: Mapping[str, Any]) -> tuple:
    return row["pattern"], row["n"], row["seed"]


def _counted(row: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> Record:
    served = [
        other
        for other in others
        if other["head_dim"] <= row["head_dim"] and _bound(other) <= _bound(row) and other["kl"] < row["kl"]
    ]
    best = min(served, key=lambda other: other["kl"], default=row)
    return {"kl": best["kl"], "max_logit": best["max_logit"]}


def _bound(row: Mapping[str, Any]) -> float:
    return inf if row["bound"] is None else row["bound"]
