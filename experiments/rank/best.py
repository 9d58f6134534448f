"""The best head that a run knows of: what one search found may serve another one, and so may a construction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np

from experiments.points import Record
from theory.rank import bounded_permutation_kl, circle_kl, circle_scale

CIRCLE_KL = 1e-10
"""Nats at which an unbounded circle is taken for a permutation: logits may grow until they are as few as wanted."""
ROUNDING = 1e-12
"""Nats by which a construction has to be better than what was found, to count as better."""


class Head(NamedTuple):
    """A head of one pattern, by what counts here.

    Attributes:
        head_dim: its size.
        bound: on its norms; infinite for none.
        kl: its divergence.
        max_logit: the largest magnitude of its logits; None where it is not known.
    """

    head_dim: int
    bound: float
    kl: float
    max_logit: float | None


def best_known(points: Sequence[Mapping[str, Any]]) -> list[Record]:
    """The points with ``kl`` and ``max_logit`` of the best head that is known for them, and ``search_kl``.

    A search is not exhaustive, and a minimum over more heads is no larger: a head known for the same pattern (of the
    same seed) at a smaller size, or under a smaller bound, is one of a larger size (with columns of zeros) and of a
    larger bound or none. Where such a head is better than what the point's own search found, it counts. ``search_kl``
    is of the best that a search found, ``kl`` of the best of these and of `constructions`.

    Args:
        points: records of `experiments.rank.units.RankPoint`; they stay as they are.

    Returns:
        As many, in their order. ``starts`` and ``steps_taken`` are still those of the point's own search.
    """
    problems: dict[tuple, list[Mapping[str, Any]]] = {}
    for row in points:
        problems.setdefault(_problem(row), []).append(row)
    heads = {key: ([_found(row) for row in own], constructions(own)) for key, own in problems.items()}
    return [{**row, **_counted(row, *heads[_problem(row)])} for row in points]


def constructions(points: Sequence[Mapping[str, Any]]) -> list[Head]:
    """Heads for one pattern that are known without a search.

    Uniform attention; logits cut to their rank; for permutations, under each bound of the points, points on a circle
    (`theory.rank.circle`) and the corners of a simplex (`theory.rank.bounded_permutation_kl`).
    """
    first = points[0]
    n, heads = first["n"], [Head(1, 0.0, first["uniform_kl"], 0.0)]
    for row in points:
        if row["truncated_kl"] is not None:
            heads.append(Head(row["head_dim"], inf, max(0.0, row["truncated_kl"]), None))
    if first["pattern"] != "permutation":
        return heads
    for bound in {_bound(row) for row in points}:
        if bound < inf:
            heads.append(Head(2, bound, circle_kl(n, bound), bound))
            heads.append(Head(n - 1, bound, bounded_permutation_kl(n, bound), bound))
        else:
            scale = circle_scale(n, -float(np.expm1(-CIRCLE_KL)))
            heads.append(Head(2, bound, CIRCLE_KL, scale))
    return heads


def _problem(row: Mapping[str, Any]) -> tuple:
    return row["pattern"], row["n"], row["seed"]


def _found(row: Mapping[str, Any]) -> Head:
    return Head(row["head_dim"], _bound(row), row["kl"], row["max_logit"])


def _counted(row: Mapping[str, Any], found: Sequence[Head], constructed: Sequence[Head]) -> Record:
    search = min(_serving(row, found), key=lambda head: head.kl)
    best = search
    for head in _serving(row, constructed):
        if head.kl < best.kl - ROUNDING:
            best = head
    return {"kl": best.kl, "max_logit": best.max_logit, "search_kl": search.kl}


def _serving(row: Mapping[str, Any], heads: Sequence[Head]) -> list[Head]:
    return [head for head in heads if head.head_dim <= row["head_dim"] and head.bound <= _bound(row)]


def _bound(row: Mapping[str, Any]) -> float:
    return inf if row["bound"] is None else row["bound"]
