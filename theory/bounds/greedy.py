r"""Heads of full rank that choose their edges one after the other: how large a permutation they hold.

With ``L`` edges left, the next head keeps those it scores best, ``p = L Q(z_c)``, and gives up the others.
Counting as for the smallest number of errors of a perceptron (Gardner and Derrida), one head after the
other, this asks for

    n = min_tau  L E[(tau - z)_+^2; z > z_c] + q E[(z - tau)_+^2],      q = m^2 - m,

weights, that is ``n = d^2`` at ``d_k = d``. Then ``L <- L - p`` and the next head; the last one has to keep
all that is left, ``n(L, q) <= d^2``. (To allow half an edge to be left over would add about two items.) At
the minimiser
``L E[(tau - z)_+; z > z_c] = q E[(z - tau)_+]``, so that

    n = L (Phi(tau) - Phi(z_c) - (tau - z_c) phi(z_c)) + q Q(tau).

A *prediction* (ours), and an optimistic one: replica symmetry fails for minimum-error problems, and what is
left after a head has chosen is no longer a random set.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, cast, overload

import numpy as np
from scipy.optimize import brentq

from theory._numbers import Numbers, Result, Scalar, broadcast, integer, result
from theory.bounds.gardner import single_head_max_items, width_requirement

_FAR = 37.0  # beyond it the normal tail is below the smallest normal float64


class KeptMoments(NamedTuple):
    """Partial moments of z ~ N(0, 1) at a cut and a threshold ``tau >= cut``."""

    share: float  # P(cut < z < tau)
    first: float  # E[tau - z; cut < z < tau]
    second: float  # E[(tau - z)^2; cut < z < tau]
    excess: float  # E[(z - tau)_+]
    tail: float  # P(z > tau)


def kept_moments(cut: float, tau: float) -> KeptMoments:
    """In closed form; the share is taken from the tail that does not cancel."""
    root = math.sqrt(0.5)
    tail = 0.5 * math.erfc(root * tau)
    if cut > 0:
        share = 0.5 * math.erfc(root * cut) - tail
    else:
        share = 0.5 * (math.erfc(-root * tau) - math.erfc(-root * cut))
    at_tau = math.exp(-0.5 * tau * tau) / math.sqrt(2 * math.pi)
    at_cut = math.exp(-0.5 * cut * cut) / math.sqrt(2 * math.pi)
    first = tau * share + at_tau - at_cut
    second = (1 + tau * tau) * share + tau * at_tau - (2 * tau - cut) * at_cut
    return KeptMoments(share, first, second, at_tau - tau * tail, tail)


def _root(function: Callable[[float], float], low: float, high: float, error: float = 1e-11) -> float:
    return cast(float, brentq(function, low, high, xtol=error))


def choosing_requirement(num_left: float, num_negative: float, cut: float) -> float:
    """Width needed to keep, of ``num_left`` edges, those that score above ``cut``."""
    # The requirement is stationary in tau: half the digits are enough.
    tau = _root(
        lambda t: num_left * (at := kept_moments(cut, t)).first - num_negative * at.excess, cut, _FAR, 1e-9
    )
    at = kept_moments(cut, tau)
    at_cut = math.exp(-0.5 * cut * cut) / math.sqrt(2 * math.pi)
    return num_left * (at.share - (tau - cut) * at_cut) + num_negative * at.tail


def _kept(num_left: float, num_negative: float, size: float) -> float:
    """Edges that the next head keeps: all of them, or those above the cut that ``size`` weights allow."""
    if float(width_requirement(num_left, num_negative)) <= size:
        return num_left
    cut = _root(lambda z: choosing_requirement(num_left, num_negative, z) - size, -_FAR / 2, 8.0)
    return 0.5 * num_left * math.erfc(math.sqrt(0.5) * cut)


def _last_requirement(num_items: float, d_model: int, num_heads: int) -> float:
    """What the last head is asked for, when the heads before it have chosen."""
    negative = num_items * (num_items - 1)
    left = num_items
    for _ in range(num_heads - 1):
        left -= _kept(left, negative, float(d_model**2))
    return float(width_requirement(left, negative)) if left > 0 else 0.0


@lru_cache(maxsize=1024)
def _max_items(d_model: int, num_heads: int) -> float:
    low = float(single_head_max_items(d_model))
    if num_heads == 1:
        return low
    high = 2 * low
    while _last_requirement(high, d_model, num_heads) < d_model**2:
        low, high = high, 2 * high
    return _root(lambda m: _last_requirement(m, d_model, num_heads) - d_model**2, low, high)


@overload
def greedy_max_items(d_model: Scalar, num_heads: Scalar) -> float: ...
@overload
def greedy_max_items(d_model: Numbers, num_heads: Numbers) -> Any: ...
def greedy_max_items(d_model: Numbers, num_heads: Numbers) -> Result:
    """Largest permutation that ``num_heads`` heads with ``d_k = d`` hold, choosing edges one by one.

    A *prediction* (ours; recursive Gardner-Derrida), optimistic by about a tenth. One head gives
    `single_head_max_items`.

    Args:
        d_model: d, an integer of at least 2.
        num_heads: h, a positive integer.

    Returns:
        Number of items as a real number.

    Raises:
        ValueError: a size out of range.
    """
    d, h = broadcast(d_model=integer("d_model", d_model, 2), num_heads=integer("num_heads", num_heads))
    values = [_max_items(int(a), int(b)) for a, b in zip(d.flat, h.flat, strict=True)]
    return result(np.array(values).reshape(d.shape))
