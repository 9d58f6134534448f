r"""The least number of heads that hold a graph, exactly, where a graph is small enough to try everything.

*Full rank* (``d_k >= d``). Whether one head can own a set of edges (score them above a threshold and all non-edges
below; other edges are free) is a linear program in its matrix. Ownable sets are closed downwards, so that they are
found from small to large, and every matrix found owns a whole set with all its subsets. The least number of heads is a
set cover by maximal ownable sets: exact, from at most ``2^m'`` programs. It is a lower bound on the heads needed at
every smaller ``d_k``, since a matrix of low rank is a matrix.

*One dimension*, permutations, unit norm. A head owns at most two edges (`theory.bounds.one_dimensional_cap`), so the
least number is ``m`` minus the largest matching among the pairs it can own. Any single edge can be owned: ``w = x_u``,
``y = x_v`` score it 1, and every other pair less. For a pair (u, v), (s, t) with positive and negative factors,
``a = X w`` must be largest at u and least at s, and ``b = X y`` largest at v and least at t (else a non-edge scores as
high as an edge). With ``rho = -a_s / a_u`` and ``sigma = -b_t / b_v``, a head with ``rho sigma = 1`` scores both edges
alike and all else below: where the ranges of rho and sigma allow this the head is built and checked; that directions
with these extremes exist at all is necessary. Where the two counts agree the minimum is exact, else it is a bracket.

All of it is ours. Linear programs are solved by HiGHS in float64; a margin is called positive or not with a gap of
three orders of magnitude between, and what falls inside is counted as undecided.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import linprog

MAX_EDGES = 14
_POSITIVE, _ZERO = 1e-6, 1e-9  # margins at |M_ij| <= 1, unit norm


class FullRank(NamedTuple):
    """Sets of edges that one head of full rank can own.

    Attributes:
        ownable: by bit mask of the edges, in the order of ``np.argwhere(adjacency)``.
        undecided: sets whose margin was neither clearly positive nor zero; they count as not ownable.
        programs: linear programs solved.
    """

    ownable: Bool[np.ndarray, " sets"]
    undecided: int
    programs: int


class Bracket(NamedTuple):
    """Least number of heads: at least ``low``, at most ``high``; exact where they are equal."""

    low: int
    high: int


def _edges(adjacency: Bool[np.ndarray, "m m"]) -> Int[np.ndarray, "e 2"]:
    edges = np.argwhere(adjacency)
    if not 1 <= len(edges) <= MAX_EDGES:
        raise ValueError(f"adjacency: expected 1 to {MAX_EDGES} edges, got {len(edges)}")
    return edges


def full_rank_sets(embeddings: Float[np.ndarray, "m d"], adjacency: Bool[np.ndarray, "m m"]) -> FullRank:
    """Which sets of edges one head of full rank can own, by linear programs.

    Args:
        embeddings: items, one a row.
        adjacency: the graph, with at most 14 edges.

    Raises:
        ValueError: too many edges, or none.
    """
    edges = _edges(adjacency)
    number, d = len(edges), embeddings.shape[1]
    features = np.einsum("ua,vb->uvab", embeddings, embeddings).reshape(
        len(embeddings), len(embeddings), d * d
    )
    own, others = features[tuple(edges.T)], features[~adjacency]
    below = np.concatenate([others, -np.ones((len(others), 1)), np.zeros((len(others), 1))], axis=1)
    above = np.concatenate([-own, np.ones((number, 1)), np.ones((number, 1))], axis=1)
    goal = np.append(np.zeros(d * d + 1), -1.0)
    bounds = [(-1.0, 1.0)] * (d * d) + [(None, None), (None, 1.0)]
    masks = np.arange(2**number)
    ownable, known = np.zeros(2**number, bool), np.zeros(2**number, bool)
    ownable[0] = known[0] = True
    undecided = programs = 0
    for mask in sorted(range(1, 2**number), key=int.bit_count):
        if known[mask]:
            continue
        bits = [i for i in range(number) if mask >> i & 1]
        programs += 1
        found: Any = linprog(
            goal,
            A_ub=np.concatenate([below, above[bits]]),
            b_ub=np.zeros(len(below) + len(bits)),
            bounds=bounds,
        )
        matrix = found.x[: d * d]
        scores, highest = own @ matrix, float((others @ matrix).max())
        if float(scores[bits].min()) - highest > _POSITIVE:
            held = sum(1 << i for i in np.flatnonzero(scores - highest > _POSITIVE))
            subsets = (masks & ~held) == 0
            ownable[subsets] = known[subsets] = True
        else:
            undecided += bool(found.x[-1] > _ZERO)
            known[(masks & mask) == mask] = True
    return FullRank(ownable, undecided, programs)


def least_cover(ownable: Bool[np.ndarray, " sets"]) -> int | None:
    """Fewest sets of a downward closed family that together are everything; None where an edge is in no set."""
    masks = np.flatnonzero(ownable)
    number = len(ownable).bit_length() - 1
    maximal = np.array(
        [s for s in masks if not any(ownable[s | 1 << i] for i in range(number) if not s >> i & 1)], np.int64
    )
    reached, count = maximal, 1
    while len(ownable) - 1 not in reached:
        wider = np.unique(np.bitwise_or.outer(reached, maximal))
        if len(wider) == len(reached) and (wider == np.unique(reached)).all():
            return None
        reached, count = wider, count + 1
    return count


def _ratio_range(embeddings: np.ndarray, top: int, bottom: int) -> tuple[float, float] | None:
    """Range of ``-a_bottom / a_top`` over ``a = X w`` with its maximum at ``top``, its minimum at ``bottom``."""
    d = embeddings.shape[1]
    rest = np.delete(embeddings, [top, bottom], axis=0)
    # Variables w, rho; a_top = 1, a_bottom = -rho, all others strictly between.
    rows = np.concatenate(
        [
            np.concatenate([rest, np.zeros((len(rest), 1))], axis=1),
            np.concatenate([-rest, -np.ones((len(rest), 1))], axis=1),
        ]
    )
    limits = np.concatenate([np.full(len(rest), 1 - _POSITIVE), np.full(len(rest), -_POSITIVE)])
    equal = np.zeros((2, d + 1))
    equal[0, :d], equal[1, :d], equal[1, d] = embeddings[top], embeddings[bottom], 1.0
    ends = []
    for sign in (1.0, -1.0):
        found: Any = linprog(
            np.append(np.zeros(d), sign),
            A_ub=rows,
            b_ub=limits,
            A_eq=equal,
            b_eq=[1.0, 0.0],
            bounds=[(None, None)] * d + [(_POSITIVE, None)],
        )
        if found.status == 2:
            return None
        ends.append(float(found.x[-1]) if found.status == 0 else np.inf)
    return ends[0], ends[1]


def _direction(embeddings: np.ndarray, top: int, bottom: int, ratio: float) -> np.ndarray:
    """``w`` with ``a_top = 1``, ``a_bottom = -ratio`` and all others as far inside as can be."""
    d = embeddings.shape[1]
    rest = np.delete(embeddings, [top, bottom], axis=0)
    one = np.ones((len(rest), 1))
    rows = np.concatenate([np.concatenate([rest, one], axis=1), np.concatenate([-rest, one], axis=1)])
    equal = np.concatenate([embeddings[[top, bottom]], np.zeros((2, 1))], axis=1)
    found: Any = linprog(
        np.append(np.zeros(d), -1.0),
        A_ub=rows,
        b_ub=np.concatenate([np.ones(len(rest)), np.full(len(rest), ratio)]),
        A_eq=equal,
        b_eq=[1.0, -ratio],
        bounds=[(None, None)] * (d + 1),
    )
    return found.x[:d] if found.status == 0 else np.zeros(d)


def _largest_matching(pairs: Bool[np.ndarray, "e e"]) -> int:
    """Most disjoint pairs in a graph of at most 14 vertices."""

    @cache
    def most(left: int) -> int:
        if not left:
            return 0
        first = (left & -left).bit_length() - 1
        rest = left & ~(1 << first)
        with_first = [
            1 + most(rest & ~(1 << j)) for j in range(len(pairs)) if rest >> j & 1 and pairs[first, j]
        ]
        return max([most(rest), *with_first])

    return most((1 << len(pairs)) - 1)


def least_one_dimensional_heads(
    embeddings: Float[np.ndarray, "m d"], adjacency: Bool[np.ndarray, "m m"]
) -> Bracket:
    """Least number of heads with ``d_k = 1`` for a permutation: see the module's docstring.

    Args:
        embeddings: items of unit norm, ``d >= 2``.
        adjacency: a permutation without fixed points, on 3 to 14 items.

    Raises:
        ValueError: another graph, or items that are not of unit norm.
    """
    edges = _edges(adjacency)
    items = len(embeddings)
    if items < 3 or (adjacency.sum(axis=0) != 1).any() or (adjacency.sum(axis=1) != 1).any():
        raise ValueError("adjacency: expected a permutation on at least 3 items, got another graph")
    if not np.allclose(np.linalg.norm(embeddings, axis=1), 1.0):
        raise ValueError("embeddings: expected rows of unit norm, got others")
    ranges = {(u, s): _ratio_range(embeddings, u, s) for u in range(items) for s in range(items) if u != s}
    possible, sure = np.zeros((2, len(edges), len(edges)), bool)
    for i, (u, v) in enumerate(edges.tolist()):
        for j, (s, t) in enumerate(edges.tolist()):
            if i == j:
                continue
            rho, sigma = ranges[u, s], ranges[v, t]
            if rho is None or sigma is None:
                continue
            possible[i, j] = possible[j, i] = True
            low, high = max(rho[0], 1 / sigma[1]), min(rho[1], 1 / sigma[0])
            if low < high:
                ratio = 1.0 if low < 1 < high else low + 1.0 if np.isinf(high) else float(np.sqrt(low * high))
                a = embeddings @ _direction(embeddings, u, s, ratio)
                b = embeddings @ _direction(embeddings, v, t, 1 / ratio)
                scores = np.outer(a, b)
                held = min(scores[u, v], scores[s, t]) - scores[~adjacency].max()
                sure[i, j] |= held > _ZERO
                sure[j, i] = sure[i, j]
    return Bracket(items - _largest_matching(possible), items - _largest_matching(sure))
