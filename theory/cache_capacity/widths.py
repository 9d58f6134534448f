r"""Gaussian widths of heads that share their keys: groups with one key map, and latents.

``r`` query heads that share one key map ``W_K (d, d_k)`` are one ``r d x d`` matrix of rank ``d_k``, the stack of
their ``M_i = W_Q^i W_K^T``. What a head of the group has at its disposal is the squared Gaussian width of that set,
shared out among ``r`` heads:

    w2 = (1/r) E sum_{j <= d_k} sigma_j(G)^2,     G an r d x d matrix of independent N(0, 1);

``r = 1`` is `theory.bounds.matrix_width`. With latents the keys of all ``h`` heads are read off one projection of
width ``d_c``, and each ``M_i`` has rank ``d_k`` with its rows in that common subspace:

    w2 = (1/h) E max_P sum_i sum_{j <= d_k} sigma_j(G_i P)^2,     P a d x d_c matrix with orthonormal columns.

Both are numbers, not models; that edges are held where the width is at least `theory.bounds.width_requirement` is the
*prediction* (ours), as for one head.

Groups: ``d <= 32`` by Monte-Carlo with fixed seed (the Gram matrix drawn by Bartlett's decomposition, each draw
scaled to its mean total, which is exact and takes variance away). Beyond, with ``phi`` from the law of Marchenko and
Pastur, ``m = r + 1``, ``s = 2 sqrt(r)`` and eigenvalues ``d (m + s cos(theta))``:

    k/d = (1/2pi) int_0^phi s^2 sin^2 / (m + s cos)
    w2  = d^2 (phi - sin phi cos phi) / pi  +  (d s/r) ((1 - cos phi)/4 + (phi cos phi - sin phi) / (2 pi))
          +  (d/32)^(1/3) r(k)

law of large numbers, its 1/d correction for real matrices (1/4 of an eigenvalue at each edge less an arcsine law),
and what the two leave at ``d = 32``, carried over as in `theory.bounds.width`.

Latents: the maximum is sought by alternation (each head's top ``d_k`` left vectors, then the top ``d_c`` right
vectors of what they project on) from two starts: a *lower* estimate of the width, exact where ``d_c <= d_k`` (one
group of heads with ``d_c`` dimensions) and where ``d_c >= min(d, h d_k)`` (heads with own keys), which are taken from
there. Beyond ``d = 64`` a smaller problem of the same proportions is solved, and scaled by ``d^2``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from jaxtyping import Float

from theory._numbers import (
    Numbers,
    Result,
    broadcast,
    integers,
    positive,
    result,
)
from theory.bounds import matrix_width
from theory.cache_capacity.parameters import Array, group_of

MONTE_CARLO_MAX_D_MODEL = 32
LATENT_MAX_D_MODEL = 64
_SEED = 20240507
_DRAWS = 4096
_LATENT_HEADS = 128
_ALTERNATIONS = 12
_GRID = 20001


def monte_carlo_group_width(
    d_model: int, group: int, num_draws: int, rng: np.random.Generator
) -> tuple[Float[np.ndarray, " d_plus_1"], Float[np.ndarray, " d_plus_1"]]:
    """Mean and standard error of a head's width in a group of ``group`` heads, for ``d_k = 0 .. d``."""
    total, total_squared = np.zeros(d_model + 1), np.zeros(d_model + 1)
    batch = max(1, 2**20 // d_model**2)
    freedom = group * d_model - np.arange(d_model)
    for start in range(0, num_draws, batch):
        size = min(batch, num_draws - start)
        lower = np.tril(rng.standard_normal((size, d_model, d_model)), -1)
        diagonal = np.sqrt(rng.chisquare(freedom, (size, d_model)))
        lower[:, np.arange(d_model), np.arange(d_model)] = diagonal
        squares = np.linalg.eigvalsh(lower @ np.swapaxes(lower, 1, 2))[:, ::-1]
        squares = np.maximum(squares, 0) * (d_model**2 / squares.sum(axis=1, keepdims=True))
        partial = np.cumsum(squares, axis=1)
        total[1:] += partial.sum(axis=0)
        total_squared[1:] += (partial**2).sum(axis=0)
    mean = total / num_draws
    variance = np.maximum(total_squared / num_draws - mean**2, 0)
    mean[d_model] = float(d_model) ** 2
    return mean, np.sqrt(variance / num_draws)


def asymptotic_group_width(d_model: int, group: int) -> Float[np.ndarray, " d_plus_1"]:
    """The first two terms of the expansion in the module's docstring, for ``d_k = 0 .. d``."""
    theta = np.linspace(0, np.pi, _GRID)
    middle, half = group + 1.0, 2 * np.sqrt(group)
    below = middle + half * np.cos(theta)
    # At group = 1 the spectrum reaches 0, where sin^2 / (1 + cos) = 1 - cos.
    density = 2 * (1 - np.cos(theta)) if group == 1 else (half * np.sin(theta)) ** 2 / below
    steps = 0.5 * (density[1:] + density[:-1]) * (theta[1] - theta[0])
    share = np.r_[0.0, np.cumsum(steps)] / (2 * np.pi)
    phi = np.interp(np.arange(d_model + 1) / d_model, share / share[-1], theta)
    leading = (phi - np.sin(phi) * np.cos(phi)) / np.pi
    correction = half * ((1 - np.cos(phi)) / 4 + (phi * np.cos(phi) - np.sin(phi)) / (2 * np.pi))
    table = d_model**2 * leading + d_model / group * correction
    table[0], table[-1] = 0.0, float(d_model) ** 2
    return table


@lru_cache(maxsize=256)
def group_table(d_model: int, group: int) -> Float[np.ndarray, " d_plus_1"]:
    """A head's width in a group of ``group`` heads that share their keys, for ``d_k = 0 .. d``; once a process."""
    small = MONTE_CARLO_MAX_D_MODEL
    if group == 1:
        table = np.r_[0.0, matrix_width(d_model, np.arange(1, d_model + 1))]
    elif d_model <= small:
        rng = np.random.default_rng((_SEED, d_model, group))
        table, _ = monte_carlo_group_width(d_model, group, _DRAWS, rng)
    else:
        table = asymptotic_group_width(d_model, group)
        residual = group_table(small, group) - asymptotic_group_width(small, group)
        table[: small + 1] += (d_model / small) ** (1 / 3) * residual
    table.setflags(write=False)
    return table


def best_subspace_width(
    matrices: Float[np.ndarray, "b h d d"], head_dim: int, latent_dim: int, alternations: int = _ALTERNATIONS
) -> Float[np.ndarray, " b"]:
    """``max_P (1/h) sum_i sum_{j <= d_k} sigma_j(G_i P)^2`` for every draw, as far as alternation finds it.

    Args:
        matrices: ``G_i`` of every draw.
        head_dim: ``d_k``, at most ``latent_dim``.
        latent_dim: ``d_c``, at most ``d``.
        alternations: steps from either start.
    """
    grams = np.swapaxes(matrices, 2, 3) @ matrices
    # One start is best for d_c = d_k, the other for d_c = h d_k: the rows of all heads, and those that each would take.
    _, right = np.linalg.eigh(grams)
    own = matrices @ right[..., -head_dim:]
    starts = [grams.sum(axis=1), _projected(matrices, own)]
    best = np.zeros(len(matrices))
    for start in starts:
        gram = start
        for _ in range(alternations):
            basis = np.linalg.eigh(gram)[1][..., -latent_dim:]
            images = matrices @ basis[:, None]
            values, vectors = np.linalg.eigh(np.swapaxes(images, 2, 3) @ images)
            best = np.maximum(best, values[..., -head_dim:].sum(axis=(1, 2)) / matrices.shape[1])
            gram = _projected(matrices, images @ vectors[..., -head_dim:])
    return best


def _projected(
    matrices: Float[np.ndarray, "b h d d"], left: Float[np.ndarray, "b h d k"]
) -> Float[np.ndarray, "b d d"]:
    """``sum_i G_i^T U_i U_i^T G_i`` where ``U_i`` are the columns of ``left``, orthogonal, scaled to unit length."""
    left = left / np.linalg.norm(left, axis=2, keepdims=True)
    rows = np.swapaxes(left, 2, 3) @ matrices
    rows = rows.reshape(len(rows), -1, rows.shape[-1])
    return np.swapaxes(rows, 1, 2) @ rows


@lru_cache(maxsize=4096)
def latent_value(d_model: int, num_heads: int, head_dim: int, latent_dim: int) -> float:
    """A head's width with ``d_c = latent_dim`` cached dimensions, all integers; once a process."""
    head_dim, latent_dim = min(head_dim, d_model), min(latent_dim, d_model)
    if latent_dim <= head_dim:
        return float(group_table(d_model, num_heads)[latent_dim])
    own_keys = float(matrix_width(d_model, head_dim))
    if latent_dim >= min(d_model, num_heads * head_dim):
        return own_keys
    one_group = float(group_table(d_model, num_heads)[head_dim])
    if d_model <= LATENT_MAX_D_MODEL:
        value = _latent_monte_carlo(d_model, num_heads, head_dim, latent_dim)
    else:
        small_k = max(min(head_dim, 3), round(1.5 * LATENT_MAX_D_MODEL * head_dim / d_model))
        small_d = max(small_k, round(d_model * small_k / head_dim))
        small_c = min(max(latent_dim * small_k / head_dim, small_k), small_d)
        low = int(small_c)
        ends = [_latent_monte_carlo(small_d, num_heads, small_k, c) for c in (low, min(low + 1, small_d))]
        value = (ends[0] + (small_c - low) * (ends[1] - ends[0])) * (d_model / small_d) ** 2
    return min(max(value, one_group), own_keys)


@lru_cache(maxsize=4096)
def _latent_monte_carlo(d_model: int, num_heads: int, head_dim: int, latent_dim: int) -> float:
    draws = max(2, -(-_LATENT_HEADS // num_heads))
    rng = np.random.default_rng((_SEED, d_model, num_heads))
    matrices = rng.standard_normal((draws, num_heads, d_model, d_model))
    matrices *= d_model / np.sqrt((matrices**2).sum(axis=(2, 3), keepdims=True))
    return float(best_subspace_width(matrices, head_dim, latent_dim).mean())


def shared_key_width(
    d_model: Numbers, num_heads: Numbers, num_kv_heads: Numbers, head_dim: Numbers
) -> Result:
    """Squared Gaussian width at the disposal of one of ``h`` heads with ``g`` key heads; see the module's docstring.

    Linear in ``head_dim`` between integers, constant beyond ``d``. `theory.bounds.matrix_width` where ``g = h``.

    Args:
        d_model: d, a positive integer.
        num_heads: h, a positive integer.
        num_kv_heads: g, a divisor of h.
        head_dim: d_k > 0, real.

    Returns:
        w2 in degrees of freedom.

    Raises:
        ValueError: a size out of range.
    """
    d, h, g, k = broadcast(
        **integers(d_model=d_model, num_heads=num_heads, num_kv_heads=num_kv_heads),
        head_dim=positive("head_dim", head_dim),
    )
    return result(by_table(d, group_of(h, g), k, lambda k, table: np.interp(k, np.arange(len(table)), table)))


def by_table(
    d: Array, group: Array, values: Array, look_up: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> Array:
    """Look values up in the table of their width and group."""
    out = np.empty(d.shape)
    for size, heads in {*zip(d.ravel().tolist(), group.ravel().tolist(), strict=True)}:
        here = (d == size) & (group == heads)
        out[here] = look_up(values[here], group_table(int(size), int(heads)))
    return out


def latent_width(d_model: Numbers, num_heads: Numbers, head_dim: Numbers, latent_dim: Numbers) -> Result:
    """Squared Gaussian width at the disposal of one of ``h`` heads that read a latent; see the module's docstring.

    Linear in ``latent_dim`` between integers. A head's rank is ``d_c`` where that is below ``d_k``.

    Args:
        d_model: d, a positive integer.
        num_heads: h, a positive integer.
        head_dim: d_k, a positive integer.
        latent_dim: d_c > 0, real.

    Returns:
        w2 in degrees of freedom, a lower estimate (by alternation) between ``d_k < d_c < min(d, h d_k)``.

    Raises:
        ValueError: a size out of range.
    """
    d, h, k, c = broadcast(
        **integers(d_model=d_model, num_heads=num_heads, head_dim=head_dim),
        latent_dim=positive("latent_dim", latent_dim),
    )
    return result(each(_latent_width, d, h, k, c))


def _latent_width(d: float, h: float, k: float, c: float) -> float:
    low = min(int(c), int(d))
    ends = [latent_value(int(d), int(h), int(k), min(end, int(d))) for end in (low, low + 1)]
    return ends[0] + (min(c, d) - low) * (ends[1] - ends[0])


def each(function: Callable[..., float], *arrays: Array) -> Array:
    """A function of numbers at every place of arrays of one shape."""
    rows = zip(*(array.ravel().tolist() for array in arrays), strict=True)
    return np.array([function(*row) for row in rows], np.float64).reshape(arrays[0].shape)
