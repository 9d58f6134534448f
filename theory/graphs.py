"""Relational graphs: which items are to be recognised as related, and how many such graphs there are.

A graph of the task has ``num_items`` items and ``num_edges`` directed edges. The diagonal is a non-edge, so a
graph is a pattern on all ``num_items**2`` pairs. Everything here is ours unless a docstring names a source.
"""

import csv
import io
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int
from scipy.special import betaln

_LOG2_E = 1.0 / math.log(2.0)
_SWITCH_SWEEPS = 32


@dataclass(frozen=True, eq=False)
class RelationalGraph:
    """A directed graph without self loops.

    Attributes:
        num_items: number of items ``m``.
        edges: ``(num_edges, 2)`` pairs (source, target), sorted lexicographically, int32, read-only.

    Raises:
        ValueError: if there is no item, or an edge is out of range, given twice, or a self loop.
    """

    num_items: int
    edges: Int[np.ndarray, "e 2"]

    def __post_init__(self) -> None:
        if self.num_items < 1:
            raise ValueError(f"num_items: expected a positive integer, got {self.num_items}")
        edges = _checked_shape(self.edges)
        outside = edges[((edges < 0) | (edges >= self.num_items)).any(axis=1)]
        if outside.size:
            raise ValueError(
                f"edges: expected items from 0 to {self.num_items - 1}, "
                f"got the edge {tuple(outside[0].tolist())}"
            )
        loops = edges[edges[:, 0] == edges[:, 1]]
        if loops.size:
            raise ValueError(f"edges: expected no self loops, got the edge {tuple(loops[0].tolist())}")
        edges = edges[np.lexsort((edges[:, 1], edges[:, 0]))]
        repeated = edges[1:][(edges[1:] == edges[:-1]).all(axis=1)]
        if repeated.size:
            raise ValueError(f"edges: expected distinct edges, got {tuple(repeated[0].tolist())} twice")
        edges = edges.astype(np.int32)
        edges.setflags(write=False)
        object.__setattr__(self, "edges", edges)

    @property
    def num_edges(self) -> int:
        """Number of edges ``m'``."""
        return self.edges.shape[0]

    def adjacency(self) -> Bool[np.ndarray, "m m"]:
        """Return the ``(num_items, num_items)`` matrix that is true at [source, target] of every edge."""
        matrix = np.zeros((self.num_items, self.num_items), dtype=bool)
        matrix[self.edges[:, 0], self.edges[:, 1]] = True
        return matrix


def _checked_shape(edges: np.ndarray) -> np.ndarray:
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise ValueError(
            f"edges: expected integers of shape (num_edges, 2), got {edges.dtype} of shape {edges.shape}"
        )
    return edges


def permutation_graph(num_items: int, rng: np.random.Generator) -> RelationalGraph:
    """Draw a derangement uniformly: one edge out of and into every item, no fixed points.

    Permutations are drawn until one has no fixed point (about e times, whatever the size).

    Raises:
        ValueError: if ``num_items`` is below 2, where no derangement exists.
    """
    if num_items < 2:
        raise ValueError(f"num_items: expected at least 2 for a derangement, got {num_items}")
    sources = np.arange(num_items)
    targets = rng.permutation(num_items)
    while (targets == sources).any():
        targets = rng.permutation(num_items)
    return RelationalGraph(num_items, np.stack([sources, targets], axis=1))


def regular_graph(num_items: int, degree: int, rng: np.random.Generator) -> RelationalGraph:
    """Draw a graph with ``degree`` edges out of and into every item and no self loops.

    Degree 1 is :func:`permutation_graph`, exactly uniform. Otherwise a randomly labelled circulant graph is
    mixed by a fixed number of sweeps of target switches, so that it always terminates; a sweep is symmetric
    (see ``_switch_sweep``), so that its stationary law is uniform, which the result approaches. A degree
    above ``(num_items - 1) / 2`` is drawn as the complement of a sparse one.

    Raises:
        ValueError: unless ``1 <= degree <= num_items - 1``.
    """
    _check_degree(num_items, degree)
    if degree == 1:
        return permutation_graph(num_items, rng)
    if 2 * degree > num_items - 1:
        matrix = ~np.eye(num_items, dtype=bool)
        if degree < num_items - 1:
            matrix &= ~regular_graph(num_items, num_items - 1 - degree, rng).adjacency()
        return RelationalGraph(num_items, np.argwhere(matrix))
    labels = rng.permutation(num_items)
    shifts = 1 + rng.choice(num_items - 1, size=degree, replace=False)
    items = np.repeat(np.arange(num_items), degree)
    sources = labels[items]
    targets = labels[(items + np.tile(shifts, num_items)) % num_items]
    for _ in range(_SWITCH_SWEEPS):
        targets = _switch_sweep(num_items, sources, targets, rng)
    return RelationalGraph(num_items, np.stack([sources, targets], axis=1))


def _switch_sweep(
    num_items: int, sources: Int[np.ndarray, "e"], targets: Int[np.ndarray, "e"], rng: np.random.Generator
) -> Int[np.ndarray, "e"]:
    """Exchange the targets of random pairs of edges wherever that keeps the graph simple.

    Edges are paired at random and every pair takes part with probability 1/2. A pair that takes part
    touches its two present and its two proposed edges, every other edge touches itself; a pair is exchanged
    when all four that it touches are touched once and none is a loop. What is touched does not change by an
    exchange, hence the way back has the same probability: the sweep is symmetric and leaves the uniform law
    as it is. A single switch alone has positive probability, and so has standing still.
    """
    order = rng.permutation(sources.size)
    half = sources.size // 2
    first, second = order[:half], order[half : 2 * half]
    takes_part = rng.random(half) < 0.5
    first, second = first[takes_part], second[takes_part]
    swapped_first = sources[first] * num_items + targets[second]
    swapped_second = sources[second] * num_items + targets[first]
    present = sources * num_items + targets
    touched, count = np.unique(np.concatenate([present, swapped_first, swapped_second]), return_counts=True)
    crowded = np.zeros(num_items * num_items, dtype=bool)
    crowded[touched] = count > 1
    crowded[:: num_items + 1] = True
    free = ~(
        crowded[swapped_first] | crowded[swapped_second] | crowded[present[first]] | crowded[present[second]]
    )
    first, second = first[free], second[free]
    result = targets.copy()
    result[first], result[second] = targets[second], targets[first]
    return result


def random_graph(num_items: int, num_edges: int, rng: np.random.Generator) -> RelationalGraph:
    """Draw uniformly among all graphs with exactly ``num_edges`` edges and no self loops.

    Raises:
        ValueError: unless ``1 <= num_edges <= num_items * (num_items - 1)``.
    """
    _check_num_edges(num_items, num_edges)
    chosen = rng.choice(num_items * (num_items - 1), size=num_edges, replace=False)
    sources, targets = np.divmod(chosen, num_items - 1)
    targets = targets + (targets >= sources)
    return RelationalGraph(num_items, np.stack([sources, targets], axis=1))


def zipf_degrees(num_items: int, num_edges: int) -> Int[np.ndarray, " m"]:
    """Degrees proportional to 1, 1/2, 1/3, ..., at most ``num_items // 2``, that sum to ``num_edges``.

    The constant of proportionality is the one whose degrees, cut at the largest allowed, have this sum; they are
    rounded by largest remainders. Descending; the last may be 0.

    Raises:
        ValueError: unless ``1 <= num_edges <= num_items * (num_items // 2)``.
    """
    cap = num_items // 2
    if num_items < 2:
        raise ValueError(f"num_items: expected at least 2, got {num_items}")
    if not 1 <= num_edges <= num_items * cap:
        raise ValueError(
            f"num_edges: expected an integer from 1 to num_items * (num_items // 2) = {num_items * cap}, "
            f"got {num_edges}"
        )
    ranks = np.arange(1, num_items + 1)
    low, high = 0.0, float(cap * num_items)
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.minimum(cap, middle / ranks).sum() < num_edges else (low, middle)
    wanted = np.minimum(cap, high / ranks)
    degrees = np.floor(wanted).astype(np.int64)
    for index in np.argsort(degrees - wanted, kind="stable"):
        if degrees.sum() == num_edges:
            break
        degrees[index] += degrees[index] < cap
    return np.sort(degrees)[::-1]


def hub_graph(num_items: int, num_edges: int, rng: np.random.Generator) -> RelationalGraph:
    """Draw a graph whose out-degrees are :func:`zipf_degrees`: a few sources have most of the edges.

    Which item has which degree is drawn uniformly, and so is every item's set of targets among the others: uniform
    among all graphs without self loops whose out-degrees are these numbers in some order.

    Raises:
        ValueError: as :func:`zipf_degrees`.
    """
    degrees = zipf_degrees(num_items, num_edges)
    sources = np.repeat(rng.permutation(num_items), degrees)
    targets = np.concatenate([rng.choice(num_items - 1, size=k, replace=False) for k in degrees if k])
    return RelationalGraph(num_items, np.stack([sources, targets + (targets >= sources)], axis=1))


def from_edges(num_items: int, edges: Iterable[Sequence[int]] | np.ndarray) -> RelationalGraph:
    """Make a graph from (source, target) pairs in any order; raises as :class:`RelationalGraph` does."""
    array = edges if isinstance(edges, np.ndarray) else np.asarray(list(edges))
    if array.size == 0:
        array = np.zeros((0, 2), dtype=np.int64)
    return RelationalGraph(num_items, _checked_shape(array))


def read_edges(path: str | os.PathLike[str], num_items: int | None = None) -> RelationalGraph:
    """Read a graph from a CSV file of two integer columns, source and target.

    The first line may be a header. Items are counted from 0; ``num_items`` is the largest index plus one
    when it is not given. Empty lines are skipped.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if a line is not two integers, there is no edge, or the edges are not a graph.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"path: expected a CSV file of edges, got {str(path)!r}, which is no file")
    edges: list[tuple[int, int]] = []
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"path: expected UTF-8 text in {str(path)!r}, got: {error}") from None
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise ValueError(
            f"path: expected comma-separated values in line {reader.line_num} of {str(path)!r}, got: {error}"
        ) from None
    for line, row in rows:
        if not row:
            continue
        try:
            source, target = (int(cell) for cell in row)
        except ValueError:
            if line == 1 and len(row) == 2 and not any(map(_is_number, row)):
                continue
            raise ValueError(
                f"path: expected two integers, source and target, in line {line} "
                f"of {str(path)!r}, got {','.join(row)!r}"
            ) from None
        edges.append((source, target))
    if not edges:
        raise ValueError(f"path: expected at least one edge in {str(path)!r}, got none")
    if num_items is None:
        num_items = 1 + max(max(edge) for edge in edges)
    try:
        return from_edges(max(num_items, 1), edges)
    except ValueError as error:
        raise ValueError(f"{error} (in {str(path)!r})") from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def log2_num_permutation_graphs(num_items: int) -> float:
    """Return log2 of the number of derangements, ``round(num_items! / e)`` (theorem, exact).

    Raises:
        ValueError: if ``num_items`` is below 2.
    """
    if num_items < 2:
        raise ValueError(f"num_items: expected at least 2 for a derangement, got {num_items}")
    if num_items < 20:
        return math.log2(_num_derangements(num_items))
    # The next term of the alternating series, 1/(num_items + 1)!, is below float64's resolution.
    return _log2_factorial(num_items) - _LOG2_E


def _num_derangements(num_items: int) -> int:
    previous, count = 1, 0
    for n in range(2, num_items + 1):
        previous, count = count, (n - 1) * (count + previous)
    return count


def log2_num_random_graphs(num_items: int, num_edges: int) -> float:
    """Return ``log2 C(num_items (num_items - 1), num_edges)``, the graphs of :func:`random_graph` (exact).

    Raises:
        ValueError: unless ``1 <= num_edges <= num_items * (num_items - 1)``.
    """
    _check_num_edges(num_items, num_edges)
    return _log2_binomial(num_items * (num_items - 1), num_edges)


def log2_num_regular_graphs(num_items: int, degree: int) -> float:
    """Return a proven lower bound on log2 of the number of graphs of :func:`regular_graph` (theorem).

    Such a graph is a union of ``degree`` disjoint 1-factors. The first may be any derangement; each later
    one is a permutation in a 0/1 matrix with ``s = num_items - 1 - k`` ones in every row and column, and
    there are at least ``num_items! (s / num_items)^num_items`` of them (van der Waerden's bound, proved by
    Egorychev and by Falikman). A graph arises from at most ``prod_k (k!)^(num_items / k)``, ``k <=
    degree``, orderings (Bregman and Minc). The complement (without the diagonal) has as many graphs: the
    better of the two bounds is returned. Exact for degrees 1, ``num_items - 2`` and ``num_items - 1``.

    Raises:
        ValueError: unless ``1 <= degree <= num_items - 1``.
    """
    _check_degree(num_items, degree)

    def bound(factors: int) -> float:
        if factors == 0:
            return 0.0
        total = log2_num_permutation_graphs(num_items)
        for k in range(1, factors):
            total += _log2_factorial(num_items) + num_items * math.log2((num_items - 1 - k) / num_items)
            total -= num_items / (k + 1) * _log2_factorial(k + 1)
        return total

    return max(bound(degree), bound(num_items - 1 - degree), 0.0)


def log2_num_hub_graphs(num_items: int, num_edges: int) -> float:
    """Return log2 of the number of graphs of :func:`hub_graph` (exact): degrees' orders, times sets of targets.

    Raises:
        ValueError: as :func:`zipf_degrees`.
    """
    degrees = zipf_degrees(num_items, num_edges)
    total = _log2_factorial(num_items)
    for count in np.unique(degrees, return_counts=True)[1]:
        total -= _log2_factorial(int(count))
    return total + sum(_log2_binomial(num_items - 1, int(k)) for k in degrees)


def _log2_factorial(n: int) -> float:
    return math.lgamma(n + 1) * _LOG2_E


def _log2_binomial(n: int, k: int) -> float:
    # By the beta function: differences of log-gammas of n ~ 1e9 would cost seven digits.
    return max(0.0, -(math.log1p(n) + float(betaln(n - k + 1, k + 1))) * _LOG2_E)


def _check_degree(num_items: int, degree: int) -> None:
    if num_items < 2:
        raise ValueError(f"num_items: expected at least 2, got {num_items}")
    if not 1 <= degree <= num_items - 1:
        raise ValueError(
            f"degree: expected an integer from 1 to num_items - 1 = {num_items - 1}, got {degree}"
        )


def _check_num_edges(num_items: int, num_edges: int) -> None:
    if num_items < 2:
        raise ValueError(f"num_items: expected at least 2, got {num_items}")
    if not 1 <= num_edges <= num_items * (num_items - 1):
        raise ValueError(
            "num_edges: expected an integer from 1 to num_items * (num_items - 1) = "
            f"{num_items * (num_items - 1)}, got {num_edges}"
        )
