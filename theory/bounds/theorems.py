r"""What no channel can beat, however it was found: four theorems.

- *Counting*. ``2 d D_K + 1`` parameters of ``p`` bits describe at most ``2^(p (2 d D_K + 1))`` channels.
- *Warren* (1968, theorem 3). N real polynomials of degree at most D in P <= N variables have at most
  ``(4 e D N / P)^P`` strict sign patterns. A channel's graph is a function of the signs of the ``N = h m^2``
  polynomials ``s_i(u, v) - tau``, of degree 2. Patterns may be taken to be strict: a graph is recovered by
  edges > tau >= non-edges, so a slightly larger tau makes all signs nonzero. Strict patterns are open,
  so the top block of each W_Q may be taken to be invertible and then, by the gauge ``W_Q A, W_K A^-T``, to be
  the identity; ``P = h d_k (2 d - d_k) + 1`` variables are left, tau among them. Rank ends at d: beyond
  ``d_k = d`` nothing changes. Where ``P > N`` Warren's theorem says nothing and ``2^N`` is the bound.
- *Cover* (1965). N points in n dimensions are split by hyperplanes, with a free threshold, in at most
  ``2 sum_{k <= n} C(N - 1, k)`` ways. One head of any d_k is a hyperplane in the ``d^2`` features of the
  ``m^2`` pairs; h heads give at most that number to the power h of graphs.
- *One dimension* (ours). See `one_dimensional_cap`.

The application of the first three to the key-query channel is ours too. Each compares a family's size with
the number of graphs that some budget can tell apart: below the bound, some graph of the family is out
of reach for the given embeddings. None says that a random one is.
"""

import math
from functools import lru_cache
from typing import Any, overload

import numpy as np
from jaxtyping import Bool, Int

from theory._numbers import (
    Numbers,
    Result,
    Scalar,
    Values,
    broadcast,
    integer,
    integers,
    nonnegative,
    positive,
    result,
)
from theory.graphs import log2_num_permutation_graphs

_SAFETY = 1 + 1e-12  # rounding must not turn "just possible" into "impossible"


@overload
def counting_bound(log2_num_graphs: Scalar, d_model: Scalar, bits_per_parameter: Scalar) -> float: ...
@overload
def counting_bound(log2_num_graphs: Numbers, d_model: Numbers, bits_per_parameter: Numbers) -> Any: ...
def counting_bound(log2_num_graphs: Numbers, d_model: Numbers, bits_per_parameter: Numbers) -> Result:
    """Least budget with enough bits to name every graph of a family. *Theorem*.

    ``D_K >= (log2 #graphs / p - 1) / (2 d)``, tau being one of the ``2 d D_K + 1`` parameters.

    Args:
        log2_num_graphs: size of the family in bits, at least 0.
        d_model: d, a positive integer.
        bits_per_parameter: p > 0, real.

    Returns:
        Bound on D_K as a real number, at least 0.

    Raises:
        ValueError: a number out of range.
    """
    bits, d, precision = broadcast(
        log2_num_graphs=nonnegative("log2_num_graphs", log2_num_graphs),
        d_model=integer("d_model", d_model),
        bits_per_parameter=positive("bits_per_parameter", bits_per_parameter),
    )
    return result(np.maximum((bits / precision - 1) / (2 * d), 0.0))


def log2_sign_patterns(num_polynomials: Values, num_variables: Values) -> Values:
    """Warren's bound for degree 2, in bits: ``min(N, P log2(8 e N / P))`` for P <= N, else N."""
    n, p = num_polynomials, np.minimum(num_variables, num_polynomials)
    return np.minimum(n, p * (math.log2(8 * math.e) + np.log2(n) - np.log2(p)))


@overload
def warren_bound(log2_num_graphs: Scalar, num_items: Scalar, d_model: Scalar, num_heads: Scalar) -> float: ...
@overload
def warren_bound(
    log2_num_graphs: Numbers, num_items: Numbers, d_model: Numbers, num_heads: Numbers
) -> Any: ...
def warren_bound(
    log2_num_graphs: Numbers, num_items: Numbers, d_model: Numbers, num_heads: Numbers
) -> Result:
    """Least budget of real parameters with enough sign patterns for a family. *Theorem*.

    The smallest ``d_k <= d`` with ``log2 #graphs <= min(N, P log2(8 e N / P))``, ``N = h m^2``,
    ``P = h d_k (2 d - d_k) + 1`` (Warren 1968; see the module's docstring), times ``h``.

    Args:
        log2_num_graphs: size of the family in bits, at least 0.
        num_items: m, a positive integer.
        d_model: d, a positive integer.
        num_heads: h, a positive integer.

    Returns:
        Bound on D_K, a multiple of h and at least h; inf where no budget recovers the whole family.

    Raises:
        ValueError: a number out of range.
    """
    bits, m, d, h = broadcast(
        log2_num_graphs=nonnegative("log2_num_graphs", log2_num_graphs),
        **integers(num_items=num_items, d_model=d_model, num_heads=num_heads),
    )

    def enough(head_dim: Values) -> Bool[np.ndarray, "..."] | np.bool:
        patterns = log2_sign_patterns(h * m * m, h * head_dim * (2 * d - head_dim) + 1)
        return bits <= _SAFETY * patterns

    low, high = np.zeros(d.shape), 1.0 * d  # the bound increases with d_k: bisection over integers
    while np.any(high - low > 1):
        middle = np.maximum(np.floor((low + high) / 2), 1.0)
        split = high - low > 1
        good = enough(middle)
        low, high = np.where(split & ~good, middle, low), np.where(split & good, middle, high)
    return result(np.where(enough(high), h * high, np.inf))


def log2_dichotomies(num_points: int, num_features: int) -> float:
    """Bits of Cover's count ``2 sum_{k <= n} C(N - 1, k)`` for N points in n dimensions, free threshold."""
    rest = num_points - 1
    if num_features >= rest:
        return float(num_points)
    k = np.arange(1, num_features + 1, dtype=np.float64)
    # Partial sums of log ratios: no difference of large log-factorials.
    log_binomials = np.concatenate([[0.0], np.cumsum(np.log((rest - k + 1) / k))])
    top = log_binomials.max()
    return 1.0 + (float(top) + math.log(np.exp(log_binomials - top).sum())) / math.log(2)


@lru_cache(maxsize=256)
def _cover_max_items(d_model: int, num_heads: int) -> int:
    def possible(m: int) -> bool:
        limit = num_heads * log2_dichotomies(m * m, d_model**2)
        return log2_num_permutation_graphs(m) <= _SAFETY * limit

    low, high = 1, 2
    while possible(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if possible(middle) else (low, middle)
    return low


@overload
def cover_max_items(d_model: Scalar, num_heads: Scalar = ...) -> int: ...
@overload
def cover_max_items(d_model: Numbers, num_heads: Numbers = ...) -> Any: ...
def cover_max_items(d_model: Numbers, num_heads: Numbers = 1) -> int | Int[np.ndarray, "..."]:
    """Largest m for which Cover's count does not yet exclude all permutations. *Theorem*.

    Beyond it some permutation (derangement) of m items is out of reach of ``num_heads`` heads of any key
    dimension: ``log2 D(m) > h log2(2 sum_{k <= d^2} C(m^2 - 1, k))`` (Cover 1965). Memory is O(d^2).

    Args:
        d_model: d, a positive integer.
        num_heads: h, a positive integer.

    Returns:
        m, a Python int for scalars, else an int64 array.

    Raises:
        ValueError: a size that is not a positive integer.
    """
    d, h = broadcast(d_model=integer("d_model", d_model), num_heads=integer("num_heads", num_heads))
    values = [_cover_max_items(int(a), int(b)) for a, b in zip(d.flat, h.flat, strict=True)]
    return values[0] if d.ndim == 0 else np.array(values, dtype=np.int64).reshape(d.shape)


@overload
def one_dimensional_cap(num_heads: Scalar) -> int: ...
@overload
def one_dimensional_cap(num_heads: Numbers) -> Any: ...
def one_dimensional_cap(num_heads: Numbers) -> int | Int[np.ndarray, "..."]:
    """Most edges of a permutation that ``num_heads`` heads with ``d_k = 1`` hold: 2 each. *Theorem* (ours).

    Such a head scores ``a_u b_v``. Let it hold edges (u, v) and (s, t) of a permutation, or of any matching;
    (u, t) and (s, v) are then non-edges. If tau >= 0, each held edge has two factors of one sign. Two
    edges of the same sign give ``(a_u b_v)(a_s b_t) > tau^2 >= (a_u b_t)(a_s b_v)``, but the products are
    equal; so there is one edge a sign at most. If tau < 0, then on all non-edges the factors differ in
    sign. From three items on the non-edges connect all sources and targets, so they differ on edges too and
    ``(a_u b_v)(a_s b_t) < tau^2 <= (a_u b_t)(a_s b_v)``: one edge at most; two items have two edges in all.
    Hence ``D_K >= m'/2`` at ``d_k = 1``. In other graphs edges that share an item may be held together.

    Args:
        num_heads: h, a positive integer.

    Returns:
        2 h, a Python int for scalars, else an int64 array.

    Raises:
        ValueError: num_heads is not a positive integer.
    """
    h = integer("num_heads", num_heads)
    return 2 * int(h) if h.ndim == 0 else 2 * h.astype(np.int64)


def one_dimensional_f1_cap(num_heads: Scalar, num_edges: Scalar) -> float:
    """Largest F1 of ``num_heads`` heads with ``d_k = 1`` on a matching, at any threshold. *Theorem* (ours).

    It extends `one_dimensional_cap` to channels that make mistakes. Give each edge that is
    found to a head that scores it above tau and, within the head, to one of two classes: for tau >= 0 by
    the sign that its two factors share; for tau < 0 those with both factors negative, and all the rest (0
    counts as positive). For edges (u, v), (s, t) of one class at least one of the non-edges (u, t), (s, v)
    scores above tau too. For tau >= 0, and for tau < 0 where both have factors of the same two opposite
    signs, because the products ``(a_u b_v)(a_s b_t)`` and ``(a_u b_t)(a_s b_v)`` are equal; else because one
    of the two non-edges has factors of one sign, whose product is not below 0.

    In a matching different pairs of edges have different such non-edges. So T edges found come with at least
    ``sum_c T_c (T_c - 1) / 2`` false ones, over ``2 h`` classes c, which is least when they are dealt out
    evenly. The cap is the largest ``2 T / (T + false + num_edges)`` over T.

    Args:
        num_heads: h.
        num_edges: edges of the matching.

    Returns:
        F1, 1 where ``2 h >= num_edges``.

    Raises:
        ValueError: a size that is not a positive integer.
    """
    classes = 2 * int(integer("num_heads", num_heads))
    edges = int(integer("num_edges", num_edges))
    found = np.arange(1, edges + 1)
    each, rest = np.divmod(found, classes)
    false = classes * (each * (each - 1) // 2) + rest * each
    return float(np.max(2 * found / (found + false + edges)))
