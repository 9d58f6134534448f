r"""How much one head can own, however it chooses: a theorem for Gaussian features.

If ``h`` heads hold a graph, one of them owns at least ``p = ceil(m'/h)`` edges: scores them above its threshold and all
``q = m^2 - m'`` non-edges below. Let the features of the ``m^2`` pairs be the rows of a matrix Phi with independent
N(0, 1) entries, and

    K_p = { s : for some tau, s <= tau on all non-edges and s >= tau on at least p edges },

a cone that is not convex (a union over sets of edges and over tau). Gordon's inequality needs no convexity of it:
``dist(Phi M, K_p) = min_{s in K_p} max_{|u| = 1} <u, Phi M - s>`` is a minimum over pairs (M, s) of a maximum over u.
For the d x d matrices M of rank ``d_k`` and unit norm, comparison with ``<g, u> + <H, M> - <u, s>`` gives

    P(some head of rank d_k owns p edges)  <=  2 P( dist(g, K_p) <= |H|_(d_k) ),

``g`` a standard normal vector of length m^2, ``H`` a d x d matrix of standard normals independent of it,
``|H|_(k)^2`` the sum of its k largest squared singular values. (The factor 2 is the price of the process's extra normal
variable: it is negative half of the time.) Choosing *which* edges is inside ``K_p``: no union bound over the
``C(m', p)`` sets is paid. Both sides are plain random numbers; the probability is computed by Monte-Carlo with a
fixed seed, which leaves a relative error of a few per cent.

Status: a *theorem* (ours, up to that Monte-Carlo error) for i.i.d. Gaussian features. The channel's features
``x_u x_v^T`` are dependent, and no comparison is known that covers them: there it is a *prediction*, and an optimistic
one for thin heads (one of rank 1 owns 2 edges of a permutation, by `one_dimensional_cap`). That heads share the
features and must own *different* edges is not used: with common features the processes of several heads cannot be
compared term by term.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Float

from theory._numbers import Scalar
from theory.bounds.free_choice import one_integer, sizes

_SEED = 20251130
_DRAWS = 1024


def owning_distance(
    edges: Float[np.ndarray, "n e"], others: Float[np.ndarray, "n q"], own: int
) -> Float[np.ndarray, " n"]:
    """Distance of each score vector from ``K_p``, the root of a minimum over tau.

    ``min_tau sum_p (tau - s)_+^2 + sum_q (s - tau)_+^2``.

    The ``p`` edges that score highest are the cheapest at every tau. Convex in tau: Newton steps inside a bracket.

    Args:
        edges: scores of the edges, one draw a row.
        others: scores of the non-edges.
        own: p, at most e.
    """
    top = -np.partition(-edges, own - 1, axis=1)[:, :own]
    low, high = top.min(axis=1), np.maximum(others.max(axis=1), top.max(axis=1))
    low = np.minimum(low, high)
    tau = 0.5 * (low + high)

    def parts(tau: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.maximum(tau[:, None] - top, 0.0), np.maximum(others - tau[:, None], 0.0)

    for _ in range(60):
        below, above = parts(tau)
        slope = below.sum(axis=1) - above.sum(axis=1)
        low, high = np.where(slope < 0, tau, low), np.where(slope < 0, high, tau)
        curvature = (below > 0).sum(axis=1) + (above > 0).sum(axis=1)
        step = tau - slope / np.maximum(curvature, 1)
        step = np.where((step >= low) & (step <= high), step, 0.5 * (low + high))
        if np.all(np.abs(step - tau) <= 1e-12 * (1 + np.abs(tau))):
            break
        tau = step
    below, above = parts(tau)
    return np.sqrt((below**2).sum(axis=1) + (above**2).sum(axis=1))


@lru_cache(maxsize=512)
def _distances(m: int, edges: int, own: int) -> np.ndarray:
    rng = np.random.default_rng((_SEED, m, edges, own))
    rows = max(1, 2**22 // (m * m))
    found = [
        owning_distance(rng.standard_normal((n, edges)), rng.standard_normal((n, m * m - edges)), own)
        for n in (min(rows, _DRAWS - start) for start in range(0, _DRAWS, rows))
    ]
    return np.sort(np.concatenate(found))


@lru_cache(maxsize=64)
def _norms(d: int) -> np.ndarray:
    """``|H|_(k)`` for k = 0 .. d, one draw a row."""
    rng = np.random.default_rng((_SEED, d))
    squares = np.linalg.svd(rng.standard_normal((_DRAWS, d, d)), compute_uv=False) ** 2
    return np.sqrt(np.concatenate([np.zeros((_DRAWS, 1)), np.cumsum(squares, axis=1)], axis=1))


def owning_probability(
    num_items: Scalar, num_edges: Scalar, d_model: Scalar, head_dim: Scalar, own: Scalar
) -> float:
    """Upper bound on the chance that a head can own ``own`` edges of its own choice. *Theorem* for Gaussian features.

    Args:
        num_items: m, an integer of at least 2.
        num_edges: m', a positive integer of at most m (m - 1).
        d_model: d, a positive integer.
        head_dim: d_k, a positive integer; more than d count as d.
        own: p, a positive integer of at most m'.

    Returns:
        ``min(1, 2 P(dist(g, K_p) <= |H|_(d_k)))`` over all pairs of 1,024 draws of each side.

    Raises:
        ValueError: a size out of range.
    """
    m, edges = sizes(num_items, num_edges)
    d, k, p = one_integer("d_model", d_model), one_integer("head_dim", head_dim), one_integer("own", own)
    if p > edges:
        raise ValueError(f"own: expected at most num_edges = {edges}, got {p}")
    norms = _norms(d)[:, min(k, d)]
    covered = np.searchsorted(_distances(m, edges, p), norms, side="right")
    return min(1.0, 2.0 * float(covered.mean()) / _DRAWS)


def gordon_total_key_dim(
    num_items: Scalar, num_edges: Scalar, d_model: Scalar, num_heads: Scalar, probability: float = 0.5
) -> float:
    """Least budget that leaves a graph a chance of more than ``probability``. *Theorem* for Gaussian features.

    With every smaller multiple of ``h``, at most that share of the instances can be held, by any channel: some head
    would have to own ``ceil(m'/h)`` edges (`owning_probability`). For the channel's features a *prediction*.

    Args:
        num_items: m, an integer of at least 2.
        num_edges: m', a positive integer of at most m (m - 1).
        d_model: d, a positive integer.
        num_heads: h, a positive integer.
        probability: in (0, 1).

    Returns:
        D_K, a multiple of h; inf where even ``d_k = d`` leaves no such chance.

    Raises:
        ValueError: an argument out of range.
    """
    m, edges = sizes(num_items, num_edges)
    d, h = one_integer("d_model", d_model), one_integer("num_heads", num_heads)
    if not 0 < probability < 1:
        raise ValueError(f"probability: expected a number in (0, 1), got {probability}")
    own = -(-edges // h)
    for k in range(1, d + 1):
        if owning_probability(m, edges, d, k, own) > probability:
            return float(h * k)
    return float(np.inf)
