"""What is proven about head counts in D-retrieval, and what a simple construction or control must give.

The theorem (Yu et al. 2025, arXiv 2510.06662, Theorem 2), for one attention layer read at a class token, D-retrieval
and M parameters in encoder and feed-forward networks whose weights are at most 1 in magnitude, error in the supremum:

1. ``h = D`` heads of per-head dimension 2 suffice with ``M <= C / eps^gamma``, gamma not depending on T;
2. ``h = s < D`` heads need ``M = Omega(1 / eps^k)`` with `exponent` k;
3. one head with ``n >= T d`` can copy the whole input (uniform attention), ``M <= C / eps^(1 + gamma)``.

Part 2 says nothing where k <= 0, that is up to the length `vacuous_length`. And it bounds a rate: its constant is not
known, its error is a supremum and its parameters are bounded, so no run at one size contradicts or confirms it.
Training runs *illustrate* it; the ones with k > 0 do so inside its range, the others outside.

Under "ours": predictions without free parameters for the `max` task and a linear encoder.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from jaxtyping import Float
from scipy.integrate import quad
from scipy.stats import norm


def exponent(length: int, num_heads: int, num_targets: int, per_head_dim: int) -> float:
    """Exponent k of the lower bound ``M = Omega(1 / eps^k)`` for ``num_heads < num_targets``.

    ``k = (T/4 - s - D + 1) / ((n + 1) s + 1) - 1`` (theorem, Yu et al. 2025). Where it is not positive the bound says
    nothing.

    Args:
        length: T.
        num_heads: s.
        num_targets: D.
        per_head_dim: n.

    Raises:
        ValueError: unless all are positive and ``num_heads < num_targets``.
    """
    _check(num_heads, num_targets, per_head_dim)
    if length < 1:
        raise ValueError(f"length: expected a positive integer, got {length}")
    return (length / 4 - num_heads - num_targets + 1) / ((per_head_dim + 1) * num_heads + 1) - 1


def vacuous_length(num_heads: int, num_targets: int, per_head_dim: int) -> int:
    """Longest length up to which the lower bound says nothing: ``4 ((n + 1) s + s + D)``; `exponent` is 0 there.

    Raises:
        ValueError: unless all are positive and ``num_heads < num_targets``.
    """
    _check(num_heads, num_targets, per_head_dim)
    return 4 * ((per_head_dim + 1) * num_heads + num_heads + num_targets)


def max_variance(length: int) -> float:
    """Variance of the maximum of ``length`` independent standard normal numbers, by quadrature.

    Raises:
        ValueError: unless ``length`` is positive.
    """
    if length < 1:
        raise ValueError(f"length: expected a positive integer, got {length}")
    return _max_variance(length)


@cache
def _max_variance(length: int) -> float:
    def density(z: float) -> float:
        return float(length * norm.pdf(z) * np.exp((length - 1) * norm.logcdf(z)))

    mean, second = (quad(lambda z, p=p: z**p * density(z), -12, 12, limit=400)[0] for p in (1, 2))
    return float(second - mean**2)


def uniform_attention_nmse(
    vectors: Float[np.ndarray, "D d"], length: int, variance: float | None = None
) -> float:
    """NMSE of the best read-out of the tokens' mean, for the `max` task (theorem, ours).

    With a linear encoder and uniform attention a model sees the mean token and nothing else. The deviations
    ``x^(t) - mean`` are independent of the mean (normal tokens), so ``E[y | mean] = <sum_i a_i, mean> + constant`` and
    ``NMSE = 1 - |sum_i a_i|^2 / (T Var y)``, whatever the read-out.

    Args:
        vectors: ``a_i``, one a row.
        length: T.
        variance: Var y; where the ``a_i`` are orthonormal it is D times `max_variance` and need not be given.

    Raises:
        ValueError: if a variance is needed and not given.
    """
    if variance is None:
        if not np.allclose(vectors @ vectors.T, np.eye(len(vectors)), rtol=0, atol=1e-12):
            raise ValueError("variance: expected a number where vectors are not orthonormal, got None")
        variance = len(vectors) * max_variance(length)
    return float(1 - np.square(vectors.sum(axis=0)).sum() / (length * variance))


def unread_nmse(num_heads: int, num_targets: int, length: int) -> float:
    """NMSE that fewer heads than targets reach by reading some targets exactly (ours).

    For the `max` task with orthonormal directions and a linear encoder: either every head retrieves one maximum and
    ``1 - h / D`` of the variance is left, or one head attends uniformly and tells of each unread maximum what the mean
    token tells (`uniform_attention_nmse`). Both are constructions, so the best model has at most the smaller value: an
    upper bound by construction (in the limit of sharp attention). That a trained model has *about* this value, since no
    head can read two maxima, is a prediction. 0 for ``num_heads >= num_targets``.

    Raises:
        ValueError: unless all are positive.
    """
    for name, value in (("num_heads", num_heads), ("num_targets", num_targets)):
        if value < 1:
            raise ValueError(f"{name}: expected a positive integer, got {value}")
    left = max(num_targets - num_heads, 0) / num_targets
    if num_heads >= num_targets:
        return left
    told = 1 / (length * max_variance(length))
    return min(left, (left + 1 / num_targets) * (1 - told))


def _check(num_heads: int, num_targets: int, per_head_dim: int) -> None:
    for name, value in (
        ("num_heads", num_heads),
        ("num_targets", num_targets),
        ("per_head_dim", per_head_dim),
    ):
        if value < 1:
            raise ValueError(f"{name}: expected a positive integer, got {value}")
    if num_heads >= num_targets:
        raise ValueError(f"num_heads: expected fewer than num_targets = {num_targets}, got {num_heads}")
