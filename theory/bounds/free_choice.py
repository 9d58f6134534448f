r"""Heads that choose their edges: two lower estimates of what that can save.

A fixed partition (`theory.bounds.partition`) binds each head to edges it did not choose. Two ways to count with free
choice, both for i.i.d. Gaussian features, both *estimates* (ours), no theorems: each can err in either direction for
the channel's features, and the exact minima of `theory.exact` show by how much.

*Maximum of heads* (replica-symmetric). Write ``z_1 .. z_h`` for independent normal scores of a pair. The cheapest way
to make an edge right is to lift its best head to tau; a non-edge costs every head that scores it above tau. The squared
distance of the scores from the right ones, summed over heads, must be within the heads' widths:

    h w2 = min_tau  m' E[(tau - max_i z_i)_+^2] + h (m^2 - m') E[(z - tau)_+^2]

With common features for all heads this is not Gordon's inequality, so not a theorem for h > 1 even with Gaussian
features (for one head's share it is: `theory.bounds.gordon`).

*First moment*. The expected number of even partitions that are held is at most ``h^m' P^h``, ``P`` the chance that one
head holds a fixed share ``p = m'/h`` against the ``q = m^2 - m'`` non-edges. The labels' cone has intrinsic volumes
with ``E (1 - 2 xi)^(-J/2) = E exp(xi dist^2)`` (the Steiner formula, J the codimension), and ``n`` dimensions meet it
where ``J <= n``; so by Chernoff, with ``lambda = e^(2t)`` and to leading order in the exponent,

    log P = min_t  t n + max_tau  p log A(tau) + q log A(-tau)
    A(tau) = E exp(-(lambda - 1)/2 (tau - z)_+^2)
           = Q(tau) + lambda^(-1/2) e^(-(lambda-1) tau^2 / (2 lambda)) Phi(tau / sqrt(lambda))

and the requirement ``n`` solves ``(m'/h) ln h + log P = 0``: below it not one partition is expected to be held (heads
counted as independent). A head of low rank has ``n = w2(d_k)``, as everywhere here.

At ``h = 1`` both are `theory.bounds.width_requirement`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_ndtr

from theory._numbers import Scalar, edge_count, integer
from theory.bounds.gardner import width_requirement
from theory.bounds.width import head_dim_of

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(400)
_TAUS = np.linspace(-6.0, 6.0, 601)
_REACH = 10.0  # standard deviations; beyond it the normal tail is 1e-23


def one_integer(name: str, value: Scalar, minimum: int = 1) -> int:
    """A checked Python integer.

    Raises:
        ValueError: not one integer of at least ``minimum``.
    """
    number = integer(name, value, minimum)
    if number.ndim:
        raise ValueError(f"{name}: expected one number, got an array of shape {number.shape}")
    return int(number)


def sizes(num_items: Scalar, num_edges: Scalar) -> tuple[int, int]:
    """Both as checked Python integers."""
    m, e = one_integer("num_items", num_items, 2), one_integer("num_edges", num_edges)
    edge_count(np.asarray(float(e)), np.asarray(float(m)))
    return m, e


def lifting_cost(tau: float, num_heads: int) -> float:
    """``E[(tau - max_{i <= h} z_i)_+^2] = 2 int_0^inf x Phi(tau - x)^h dx``."""
    length = tau + _REACH
    x = 0.5 * length * (_NODES + 1)
    return float(length * np.sum(_WEIGHTS * x * np.exp(num_heads * log_ndtr(tau - x))))


@lru_cache(maxsize=4096)
def _max_of_heads(m: int, edges: int, h: int) -> float:
    def cost(tau: float) -> float:
        return edges / h * lifting_cost(tau, h) + (m * m - edges) * lifting_cost(-tau, 1)

    found: Any = minimize_scalar(cost, bounds=(-8.0, 8.0), method="bounded", options={"xatol": 1e-10})
    return float(found.fun)


def max_of_heads_requirement(num_items: Scalar, num_edges: Scalar, num_heads: Scalar) -> float:
    """Squared Gaussian width that each head needs by the replica-symmetric count; an *estimate*.

    ``min_tau (m'/h) E[(tau - max_i z_i)_+^2] + (m^2 - m') E[(z - tau)_+^2]``; see the module's docstring.

    Args:
        num_items: m, an integer of at least 2.
        num_edges: m', a positive integer of at most m (m - 1).
        num_heads: h, a positive integer.

    Returns:
        w2 in degrees of freedom.

    Raises:
        ValueError: a size out of range.
    """
    return _max_of_heads(*sizes(num_items, num_edges), one_integer("num_heads", num_heads))


def _log_lifted(log_lambda: float, tau: np.ndarray) -> np.ndarray:
    """``log A(tau)`` of the module's docstring."""
    shrink = math.exp(-log_lambda)
    inside = -0.5 * log_lambda - 0.5 * (1 - shrink) * tau * tau + log_ndtr(tau * math.sqrt(shrink))
    return np.logaddexp(log_ndtr(-tau), inside)


def log_held_probability(width: float, num_positive: float, num_negative: float) -> float:
    """Log of the chance that ``width`` degrees of freedom separate ``p`` from ``q`` Gaussian patterns.

    Leading order in the exponent; 0 from `width_requirement` on. See the module's docstring.

    Args:
        width: n > 0.
        num_positive: p > 0.
        num_negative: q > 0.
    """

    def exponent(t: float) -> float:
        log_lambda = 2 * float(t)
        values = num_positive * _log_lifted(log_lambda, _TAUS)
        values += num_negative * _log_lifted(log_lambda, -_TAUS)
        at = min(max(int(np.argmax(values)), 1), len(values) - 2)
        left, middle, right = values[at - 1 : at + 2]
        # The top of the parabola through three points of the grid.
        bend = 2 * middle - left - right
        return t * width + float(middle + (right - left) ** 2 / (8 * bend) if bend > 0 else middle)

    found: Any = minimize_scalar(exponent, bounds=(0.0, 8.0), method="bounded", options={"xatol": 1e-7})
    return min(0.0, float(found.fun))


@lru_cache(maxsize=4096)
def _first_moment(m: int, edges: int, h: int) -> float:
    p, q = edges / h, float(m * m - edges)
    most = float(width_requirement(p, q))
    if h == 1:
        return most
    choices = p * math.log(h)
    return float(
        cast(float, brentq(lambda n: choices + log_held_probability(n, p, q), 1e-6 * most, most, xtol=1e-6))
    )


def first_moment_requirement(num_items: Scalar, num_edges: Scalar, num_heads: Scalar) -> float:
    """Squared Gaussian width at which one held partition is expected; an *estimate*.

    Arguments, result and errors as in `max_of_heads_requirement`; see the module's docstring.
    """
    return _first_moment(*sizes(num_items, num_edges), one_integer("num_heads", num_heads))


def _budget(requirement: Callable[..., float], m: Scalar, e: Scalar, d: Scalar, h: Scalar) -> float:
    width = np.asarray(float(one_integer("d_model", d)))
    return float(h * head_dim_of(width, np.asarray(requirement(m, e, h))))


def max_of_heads_total_key_dim(
    num_items: Scalar, num_edges: Scalar, d_model: Scalar, num_heads: Scalar
) -> float:
    """Budget ``D_K = h d_k`` with ``w2(d_k)`` = `max_of_heads_requirement`; an *estimate*, inf beyond d_k = d.

    Raises:
        ValueError: a size out of range.
    """
    return _budget(max_of_heads_requirement, num_items, num_edges, d_model, num_heads)


def first_moment_total_key_dim(
    num_items: Scalar, num_edges: Scalar, d_model: Scalar, num_heads: Scalar
) -> float:
    """Budget ``D_K = h d_k`` with ``w2(d_k)`` = `first_moment_requirement`; an *estimate*, inf beyond d_k = d.

    Raises:
        ValueError: a size out of range.
    """
    return _budget(first_moment_requirement, num_items, num_edges, d_model, num_heads)
