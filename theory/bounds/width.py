r"""One head of low rank: the squared Gaussian width of the matrices of rank ``d_k``.

What limits a head of key dimension ``d_k < d`` is not its ``d_k (2 d - d_k)`` parameters but

    w2(d_k) = E sum_{i <= d_k} sigma_i(G)^2,     G a d x d matrix of independent N(0, 1),

the mean squared length of the projection of G on the matrices of rank ``d_k``. Edges are held when ``w2``
is at least `theory.bounds.gardner.width_requirement`. "Not held below it" is a *theorem* for i.i.d. Gaussian
features (by Gordon's inequality, ours); that it is nearly tight, for the channel's features, is a
*prediction* (ours).

``w2`` itself is a number, not a model. ``d <= 32``: Monte-Carlo with fixed seed, each draw scaled to
``sum sigma_i^2 = d^2`` (length and direction of G are independent, so this is exact and takes variance away);
standard error about 0.1% at d_k = 1, less above. Beyond, with ``a`` from the quarter-circle law,

    k/d = (2/pi)(a - sin a cos a)
    w2  = d^2 (2a - sin(4a)/2) / pi  +  d (sin^2 a + (2a cos 2a - sin 2a) / pi)  +  (d/32)^(1/3) r(k)

The first term is the law of large numbers; the second its 1/d correction for real matrices (density
delta(x - R)/4 + delta(x)/4 - 1/(pi sqrt(R^2 - x^2)) of singular values on [0, R], R = 2 sqrt(d)); ``r`` is
what the first two leave at d = 32, carried over by the scaling of the largest singular values, whose
squares lie at ``4d + O(d^(1/3))``. The first term alone is 1.4% low at d = 32, d_k = 1 and 0.3% at
d_k = d/2. With all three, Monte-Carlo at d = 64 and 128 is met within its error (0.1% at d_k = 1).
"""

from functools import lru_cache
from typing import Any, overload

import numpy as np
from jaxtyping import Float

from theory._numbers import (
    Numbers,
    Result,
    Scalar,
    broadcast,
    integer,
    positive,
    result,
    solve_increasing,
)
from theory.bounds.gardner import requirement

MONTE_CARLO_MAX_D_MODEL = 32
_SEED = 20250929
_DRAWS = 8192


def monte_carlo_width(
    d_model: int, num_draws: int, rng: np.random.Generator
) -> tuple[Float[np.ndarray, " d_plus_1"], Float[np.ndarray, " d_plus_1"]]:
    """Mean and standard error of ``w2(k)`` for ``k = 0 .. d`` from ``num_draws`` random matrices."""
    total = np.zeros(d_model + 1)
    total_squared = np.zeros(d_model + 1)
    batch = max(1, 2**20 // d_model**2)
    for start in range(0, num_draws, batch):
        matrices = rng.standard_normal((min(batch, num_draws - start), d_model, d_model))
        squares = np.linalg.eigvalsh(np.swapaxes(matrices, 1, 2) @ matrices)[:, ::-1]
        squares = np.maximum(squares, 0) * (d_model**2 / squares.sum(axis=1, keepdims=True))
        partial = np.cumsum(squares, axis=1)
        total[1:] += partial.sum(axis=0)
        total_squared[1:] += (partial**2).sum(axis=0)
    mean = total / num_draws
    variance = np.maximum(total_squared / num_draws - mean**2, 0)
    mean[d_model] = float(d_model) ** 2
    return mean, np.sqrt(variance / num_draws)


def asymptotic_width(d_model: int) -> Float[np.ndarray, " d_plus_1"]:
    """The first two terms of the expansion in the module's docstring, for ``k = 0 .. d``."""
    k = np.arange(d_model + 1) / d_model
    low, high = np.zeros_like(k), np.full_like(k, np.pi / 2)
    a = solve_increasing(lambda x: (2 / np.pi) * (x - np.sin(x) * np.cos(x)), k, low, high)
    leading = (2 * a - np.sin(4 * a) / 2) / np.pi
    correction = np.sin(a) ** 2 + (2 * a * np.cos(2 * a) - np.sin(2 * a)) / np.pi
    table = d_model**2 * leading + d_model * correction
    table[0], table[-1] = 0.0, float(d_model) ** 2
    return table


@lru_cache(maxsize=256)
def _table(d_model: int) -> Float[np.ndarray, " d_plus_1"]:
    """w2(k) for k = 0 .. d, increasing; computed once a process."""
    small = MONTE_CARLO_MAX_D_MODEL
    if d_model <= small:
        table, _ = monte_carlo_width(d_model, _DRAWS, np.random.default_rng((_SEED, d_model)))
    else:
        table = asymptotic_width(d_model)
        residual = _table(small) - asymptotic_width(small)
        table[: small + 1] += (d_model / small) ** (1 / 3) * residual
    table.setflags(write=False)
    return table


def width_of(d: Float[np.ndarray, "..."], head_dim: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """`matrix_width` of checked arrays."""
    out = np.empty(d.shape)
    for value in np.unique(d):
        here = d == value
        table = _table(int(value))
        out[here] = np.interp(head_dim[here], np.arange(len(table)), table)
    return out


def head_dim_of(d: Float[np.ndarray, "..."], width: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Inverse of `width_of` in head_dim; infinite where even d_k = d is not enough."""
    out = np.empty(d.shape)
    for value in np.unique(d):
        here = d == value
        table = _table(int(value))
        out[here] = np.interp(width[here], table, np.arange(len(table)), right=np.inf)
    return out


@overload
def matrix_width(d_model: Scalar, head_dim: Scalar) -> float: ...
@overload
def matrix_width(d_model: Numbers, head_dim: Numbers) -> Any: ...
def matrix_width(d_model: Numbers, head_dim: Numbers) -> Result:
    """Squared Gaussian width ``w2`` of the ``d x d`` matrices of rank ``head_dim``.

    Linear in ``head_dim`` between integers (and from 0 at 0): continuous and strictly increasing up to
    ``d^2`` at ``head_dim = d``, constant beyond. See the module's docstring for how it is computed.

    Args:
        d_model: d, a positive integer.
        head_dim: d_k > 0, real.

    Returns:
        w2 in degrees of freedom.

    Raises:
        ValueError: d_model is not a positive integer, or head_dim not a positive number.
    """
    d, k = broadcast(d_model=integer("d_model", d_model), head_dim=positive("head_dim", head_dim))
    return result(width_of(d, k))


@overload
def held_edges(num_items: Scalar, d_model: Scalar, head_dim: Scalar) -> float: ...
@overload
def held_edges(num_items: Numbers, d_model: Numbers, head_dim: Numbers) -> Any: ...
def held_edges(num_items: Numbers, d_model: Numbers, head_dim: Numbers) -> Result:
    """How many edges of its own one head holds against all non-edges of a permutation.

    The ``p`` at which ``w2(d_k) = n(p, q)`` with ``q = m^2 - m``: a *prediction* (ours) for a fixed set of
    edges, the 50% point. A head that may choose its edges among more holds more; a head with ``d_k = 1``
    holds at most 2 (a theorem, `theory.bounds.one_dimensional_cap`, which is not applied here).

    Args:
        num_items: m, an integer of at least 2.
        d_model: d, a positive integer.
        head_dim: d_k > 0, real.

    Returns:
        p as a real number, at most m: a permutation has no more edges.

    Raises:
        ValueError: a size out of range.
    """
    m, d, k = broadcast(
        num_items=integer("num_items", num_items, 2),
        d_model=integer("d_model", d_model),
        head_dim=positive("head_dim", head_dim),
    )
    held = solve_increasing(lambda p: requirement(p, m * m - m), width_of(d, k), np.zeros(m.shape), 1.0 * m)
    return result(held)
