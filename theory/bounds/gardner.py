r"""One head of full rank: Gardner's capacity with a free threshold, and the ceiling that follows.

A head with ``d_k >= d`` is a linear classifier on the ``d^2`` features ``x_u x_v^T`` with a threshold of
its own. For isotropic Gaussian features and labels drawn independently of them, ``p`` positive and ``q``
negative patterns become separable when the number of weights passes

    n(p, q) = min_tau  p E[(tau - z)_+^2] + q E[(z - tau)_+^2],        z ~ N(0, 1).

The minimiser obeys ``p E[(tau - z)_+] = q E[(z - tau)_+]``: it is the ``q / (p + q)``-expectile of
``N(0, 1)``. Inserting this leaves a sum of positive terms, which is what the code evaluates:

    n(p, q) = p Phi(tau) + q Q(tau) = p (Phi(tau) + E[(tau - z)_+] Q(tau) / E[(z - tau)_+]).

``alpha_c(f) = 1 / n(f, 1 - f)`` is Gardner's capacity (Gardner 1988, her result for patterns of unequal
classes, there with the threshold as a bias). At ``f = 1/2`` it is Cover's 2 (Cover 1965).

Status: a *theorem* for i.i.d. Gaussian features (in the limit of many weights), a *prediction* for the
features of a key-query channel, which are products and share their factors. The application to the
channel, and the widths of the transition, are ours.
"""

from typing import Any, NamedTuple, overload

import numpy as np
from jaxtyping import Float
from scipy.special import erfcx, ndtr

from theory._numbers import (
    Numbers,
    Result,
    Scalar,
    Values,
    broadcast,
    checked,
    edge_count,
    integer,
    integers,
    nonnegative,
    positive,
    result,
    solve_increasing,
)

_MEASURED_WIDTH = 0.95  # standard deviation of the transition in d^2, in units of d


class _Moments(NamedTuple):
    """The normal law at a threshold t >= 0; ``outside`` and ``above`` in units of phi(t)."""

    t: Values
    density: Values  # phi(t)
    inside: Values  # Phi(t)
    outside: Values  # Q(t) / phi(t)
    below: Values  # E[(t - z)_+]
    above: Values  # E[(z - t)_+] / phi(t); the subtraction loses t^2 units in the last place, t < 55


def _moments(t: Values) -> _Moments:
    density, inside = np.exp(-0.5 * t * t) / np.sqrt(2 * np.pi), ndtr(t)
    outside = np.sqrt(np.pi / 2) * erfcx(t / np.sqrt(2))
    return _Moments(t, density, inside, outside, t * inside + density, 1 - t * outside)


def _balance(log_ratio: Values) -> _Moments:
    """Moments at the t >= 0 where E[(z - t)_+] / E[(t - z)_+] = exp(log_ratio) <= 1: Newton in a bracket."""
    low, high = np.zeros_like(log_ratio), np.full_like(log_ratio, 64.0)
    t = np.sqrt(2 * np.log1p(np.exp(np.minimum(-log_ratio, 700.0))))
    at = _moments(t)
    for _ in range(100):
        value = np.log(at.above / at.below) - 0.5 * t * t - 0.5 * np.log(2 * np.pi) - log_ratio
        low, high = np.where(value >= 0, t, low), np.where(value >= 0, high, t)
        step = t + value / (at.outside / at.above + at.inside / at.below)
        step = np.where((step >= low) & (step <= high), step, 0.5 * (low + high))
        done = np.abs(step - t) <= 1e-13 * (1 + t)  # Newton squares the error once more
        t = step
        at = _moments(t)
        if done.all():
            break
    return at


def requirement(p: Values, q: Values) -> Values:
    """`width_requirement` of checked arrays: n(p, q), for p and q >= 0 of one shape."""
    rare, common = np.minimum(p, q), np.maximum(p, q)
    some = rare > 0
    safe_rare, safe_common = np.where(some, rare, 1.0), np.where(some, common, 1.0)
    at = _balance(np.log(safe_rare) - np.log(safe_common))
    return np.where(some, safe_rare * (at.inside + at.below * at.outside / at.above), 0.0)


@overload
def width_requirement(num_positive: Scalar, num_negative: Scalar) -> float: ...
@overload
def width_requirement(num_positive: Numbers, num_negative: Numbers) -> Any: ...
def width_requirement(num_positive: Numbers, num_negative: Numbers) -> Result:
    """``n(p, q) = min_tau p E[(tau - z)_+^2] + q E[(z - tau)_+^2]``: squared Gaussian width a head needs.

    A set of matrices can put ``p`` pairs above one threshold and ``q`` below it when its squared Gaussian
    width is at least ``n(p, q)``. "Not below ``n``" is a *theorem* for i.i.d. Gaussian features (Gordon's
    inequality); that ``n`` suffices, and both for the channel's features, is a *prediction* (ours).

    Args:
        num_positive: p, real, at least 0.
        num_negative: q, real, at least 0.

    Returns:
        n in degrees of freedom (a squared width); symmetric, increasing in both, 0 where either is 0.

    Raises:
        ValueError: a negative, infinite or undefined number.
    """
    p, q = nonnegative("num_positive", num_positive), nonnegative("num_negative", num_negative)
    return result(requirement(*broadcast(num_positive=p, num_negative=q)))


def _fraction(value: Numbers) -> Float[np.ndarray, "..."]:
    return checked("positive_fraction", value, "a number in [0, 1]", lambda x: (x >= 0) & (x <= 1))


@overload
def gardner_capacity(positive_fraction: Scalar) -> float: ...
@overload
def gardner_capacity(positive_fraction: Numbers) -> Any: ...
def gardner_capacity(positive_fraction: Numbers) -> Result:
    """Patterns per weight that a perceptron with a free threshold separates.

    ``1 / alpha_c(f) = f Phi(tau) + (1 - f) Q(tau)`` at the minimiser, a *theorem* for Gaussian patterns
    with independent labels in the limit of many weights (Gardner 1988), here a *prediction*.

    Args:
        positive_fraction: f in [0, 1], the share of positive patterns.

    Returns:
        alpha_c, symmetric under f -> 1 - f, 2 at f = 1/2, infinite at 0 and 1. Relative error below 1e-12
        for f down to 1e-300.

    Raises:
        ValueError: f outside [0, 1] or NaN.
    """
    f = _fraction(positive_fraction)
    n = requirement(f, 1 - f)
    return result(np.where(n > 0, 1 / np.where(n > 0, n, 1.0), np.inf))


@overload
def gardner_threshold(positive_fraction: Scalar) -> float: ...
@overload
def gardner_threshold(positive_fraction: Numbers) -> Any: ...
def gardner_threshold(positive_fraction: Numbers) -> Result:
    """The threshold that the capacity is reached with: the ``1 - f`` expectile of N(0, 1).

    Args:
        positive_fraction: f in [0, 1], the share of positive patterns.

    Returns:
        tau in units of the scores' standard deviation, odd under f -> 1 - f, +inf at 0, -inf at 1.

    Raises:
        ValueError: f outside [0, 1] or NaN.
    """
    f = _fraction(positive_fraction)
    rare = np.minimum(f, 1 - f)
    some = rare > 0
    safe = np.where(some, rare, 0.5)
    size = np.where(some, _balance(np.log(safe) - np.log1p(-safe)).t, np.inf)
    return result(np.where(f <= 0.5, size, -size))


@overload
def transition_width(num_positive: Scalar, num_negative: Scalar) -> float: ...
@overload
def transition_width(num_positive: Numbers, num_negative: Numbers) -> Any: ...
def transition_width(num_positive: Numbers, num_negative: Numbers) -> Result:
    """Standard deviation, in degrees of freedom, of the point where the labels become separable.

    Separability of Gaussian patterns is the question whether a random subspace meets a fixed cone, whose
    conic intrinsic volumes have mean ``n(p, q)`` and a variance ``V`` that is the variance of the number
    of patterns pushed onto the threshold, counting how the threshold itself moves:

        V = p Var(1[z < tau] + c (tau - z)_+) + q Var(1[z > tau] - c (z - tau)_+),  c = (q - p) phi(tau) / n.

    P(separable by N weights) ~ Phi((N - n) / sqrt(V)). At p = q, V = n / 2, which is Cover's binomial. A
    *prediction* without free parameters (ours), of order sqrt(n): 0.947, 0.991, 1.019 times d at the single
    head's ceiling at d = 16, 24, 32.

    Args:
        num_positive: p > 0, real.
        num_negative: q > 0, real.

    Returns:
        sqrt(V).

    Raises:
        ValueError: a number that is not positive and finite.
    """
    p, q = broadcast(
        num_positive=positive("num_positive", num_positive),
        num_negative=positive("num_negative", num_negative),
    )
    rare, common = np.minimum(p, q), np.maximum(p, q)
    at = _balance(np.log(rare) - np.log(common))
    outside, above = at.density * at.outside, at.density * at.above
    below_squared = (1 + at.t**2) * at.inside + at.t * at.density
    above_squared = at.density * ((1 + at.t**2) * at.outside - at.t)
    c = (common - rare) * at.density / requirement(rare, common)
    variance = rare * (
        at.inside + 2 * c * at.below + c * c * below_squared - (at.inside + c * at.below) ** 2
    ) + common * (outside - 2 * c * above + c * c * above_squared - (outside - c * above) ** 2)
    return result(np.sqrt(variance))


@overload
def single_head_max_items(d_model: Scalar) -> float: ...
@overload
def single_head_max_items(d_model: Numbers) -> Any: ...
def single_head_max_items(d_model: Numbers) -> Result:
    """Largest permutation that one head holds, whatever its key dimension.

    The ``m`` at which ``n_1 = n(m, m^2 - m) = d^2``: the diagonal is a non-edge, so there are ``m^2`` pairs.
    A *prediction* (ours, by Gardner's capacity): 50% of permutations of that size are recovered.

    Args:
        d_model: d, a positive integer.

    Returns:
        m_c as a real number.

    Raises:
        ValueError: d_model is not a positive integer.
    """
    d = integer("d_model", d_model)
    size = d * d
    # n >= p for f <= 1/2, so that m = d^2 is never below the root.
    low, high = np.ones_like(size), np.maximum(size, 2.0)
    return result(solve_increasing(lambda m: requirement(m, m * m - m), size, low, high))


@overload
def convex_success_probability(num_items: Scalar, num_edges: Scalar, d_model: Scalar) -> float: ...
@overload
def convex_success_probability(num_items: Numbers, num_edges: Numbers, d_model: Numbers) -> Any: ...
def convex_success_probability(num_items: Numbers, num_edges: Numbers, d_model: Numbers) -> Result:
    """Chance that one head with ``d_k >= d`` recovers a random graph: ``Phi((d^2 - n_1) / (0.95 d))``.

    ``n_1 = n(m', m^2 - m')``. Centre: a *prediction* (ours, by Gardner's capacity). Width: 0.95 d as seen
    at d = 16; `transition_width` gives it without a constant.

    Args:
        num_items: m, an integer of at least 2.
        num_edges: m', a positive integer of at most m (m - 1).
        d_model: d, a positive integer.

    Returns:
        Probability in [0, 1].

    Raises:
        ValueError: a size that is not a positive integer, or more edges than pairs.
    """
    m, edges, d = broadcast(
        num_items=integer("num_items", num_items, 2),
        **integers(num_edges=num_edges, d_model=d_model),
    )
    needed = requirement(edge_count(edges, m), m * m - edges)
    return result(ndtr((d * d - needed) / (_MEASURED_WIDTH * d)))
