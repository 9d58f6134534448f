r"""How noisy the scores of a constructed head are, and what follows: predictions (ours), without free parameters.

Pairs (u, v) are of five kinds for a head: its own edges; *in-in*, u a source and v a target of the block but of
different edges; *in-out*, *out-in* (v in the block alone); *out-out*. For independent random unit vectors the
variances of the score around 1 (own) or 0 (others) are, with n = B - 1,

| pair | matched filter | one-sided | zero-forcing, e = 1 / (d - B - 1) |
|---|---|---|---|
| own | (2n/d + n(n-1)/d^2)/k + n/d^2 | w + n/(dk) | 0 |
| in-in | (1 + 2(n-1)/d + (n^2-n+1)/d^2)/k + 2/d + (n-1)/d^2 | 1/k + (1+w)/d + (n-1)/(dk) | 1/k |
| in-out | (n/d + n^2/d^2)/k + 1/d + n/d^2 | (1+w)/d + n/(dk) | e + n e/k |
| out-in | as in-out | 1/k + n/(dk) | as in-out |
| out-out | B n/(d^2 k) + B/d^2 | B/(dk) | B e^2 + B n e^2/k |

where k is d_k and ``w = 2 (1/k - 1/d) d/(d + 2)`` is the variance of ``(d/k) |P x|^2`` for a random projection P.
Those of the first two columns are exact; of zero-forcing e is the mean of an inverse Wishart matrix, which unit norms
change a little. Large B gives ``(1 + b)^2`` forms with b = B/d: the matched filter's floor ``1/d`` and ``b/d``, which
no d_k lowers, and zero-forcing's ``e``, which diverges as B comes near d.

*Success*, that some threshold separates all edges from all non-edges, is predicted as if all scores were independent
and normal (in-in pairs of zero-forcing: signatures collide with probability ``2^-k``, exactly). Neither is true:
scores of one query share its noise, and products of two cosines have heavier tails. How far that goes is measured.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from scipy.special import log_ndtr

from theory.constructions.heads import CONSTRUCTIONS, Construction

KINDS_OF_PAIRS = ("own", "in-in", "in-out", "out-in", "out-out")


def score_variances(
    construction: Construction, d_model: int, head_dim: int, block_size: int
) -> dict[str, float]:
    """Variance of a head's score by kind of pair; the table of the module.

    Args:
        construction: a name.
        d_model: d.
        head_dim: d_k.
        block_size: edges B of the head.

    Raises:
        ValueError: an unknown construction, a size that is not positive; for zero-forcing a block above d - 2.
    """
    if construction not in CONSTRUCTIONS:
        raise ValueError(f"construction: expected one of {CONSTRUCTIONS}, got {construction!r}")
    for name, value in (("d_model", d_model), ("head_dim", head_dim), ("block_size", block_size)):
        if value < 1:
            raise ValueError(f"{name}: expected a positive integer, got {value}")
    d, k, n = d_model, head_dim, block_size - 1
    if construction == "matched-filter":
        values = (
            (2 * n / d + n * (n - 1) / d**2) / k + n / d**2,
            (1 + 2 * (n - 1) / d + (n * n - n + 1) / d**2) / k + 2 / d + (n - 1) / d**2,
            (n / d + n * n / d**2) / k + 1 / d + n / d**2,
            (n / d + n * n / d**2) / k + 1 / d + n / d**2,
            (n + 1) * n / (d**2 * k) + (n + 1) / d**2,
        )
    elif construction == "one-sided":
        w = 2 * (1 / k - 1 / d) * d / (d + 2)
        values = (
            w + n / (d * k),
            1 / k + (1 + w) / d + (n - 1) / (d * k),
            (1 + w) / d + n / (d * k),
            1 / k + n / (d * k),
            (n + 1) / (d * k),
        )
    else:
        if block_size > d - 2:
            raise ValueError(f"block_size: expected at most d_model - 2 = {d - 2}, got {block_size}")
        e = 1 / (d - block_size - 1)
        values = (0.0, 1 / k, e + n * e / k, e + n * e / k, (n + 1) * e**2 * (1 + n / k))
    return dict(zip(KINDS_OF_PAIRS, values, strict=True))


def success_probability(
    construction: Construction, num_items: int, d_model: int, num_heads: int, head_dim: int
) -> float:
    """Predicted probability that a construction recovers a random permutation of ``num_items`` exactly.

    ``integral of P(all other pairs of all heads < tau) dP(lowest own score <= tau)``. An edge has to be found by the
    head that owns it. With blocks of one edge every construction but the one-sided succeeds always, at any head
    dimension: the score of an edge is 1, all others are products of two cosines.

    Args:
        construction: a name.
        num_items: m, the edges too.
        d_model: d.
        num_heads: h, blocks of m/h edges.
        head_dim: d_k.

    Raises:
        ValueError: as `score_variances`; more heads than items.
    """
    if not 1 <= num_heads <= num_items:
        raise ValueError(f"num_heads: expected 1 to num_items = {num_items}, got {num_heads}")
    if num_heads == num_items and construction != "one-sided":
        return 1.0
    small, more = divmod(num_items, num_heads)
    tau = np.linspace(0.0, 2.0, 2001)[1:]
    log_below, log_above = np.zeros_like(tau), np.zeros_like(tau)
    for size, count in ((small, num_heads - more), (small + 1, more)):
        if count:
            variances = score_variances(construction, d_model, head_dim, size)
            pairs = _counts(num_items, size)
            for kind, number in pairs.items():
                if kind == "in-in" and construction == "zero-forcing":
                    log_below += count * number * math.log1p(-(2.0 ** -min(head_dim, 1000)))
                elif number:
                    log_below += count * number * log_ndtr(tau / math.sqrt(variances[kind]))
            log_above += count * size * _log_above(tau, variances["own"])
    below = np.exp(log_below)
    if construction == "zero-forcing":  # every own score is 1
        return float(below[np.argmin(np.abs(tau - 1.0))])
    above = np.exp(log_above)
    steps = -np.diff(above, prepend=1.0, append=0.0)
    middle = np.concatenate([below[:1], (below[1:] + below[:-1]) / 2, below[-1:]])
    return float(np.sum(steps * middle))


def _counts(num_items: int, block_size: int) -> dict[str, int]:
    """Non-edges of a permutation by kind, for a head; edges of other heads do not bind it."""
    rest = num_items - block_size
    return {
        "in-in": block_size * (block_size - 1),
        "in-out": block_size * rest,
        "out-in": block_size * rest,
        "out-out": rest * rest - rest,
    }


def _log_above(tau: Float[np.ndarray, " t"], variance: float) -> Float[np.ndarray, " t"]:
    if variance == 0:
        return np.where(tau < 1.0, 0.0, -np.inf)
    return log_ndtr((1.0 - tau) / math.sqrt(variance))


@lru_cache(maxsize=4096)
def predicted_head_dim(
    construction: Construction, num_items: int, d_model: int, num_heads: int
) -> int | None:
    """Least ``d_k <= d`` at which success is predicted at least half of the time; None where there is none.

    More than d dimensions would be no other channel: the rank of a head ends there.

    Raises:
        ValueError: as `success_probability`.
    """
    if construction == "zero-forcing" and -(-num_items // num_heads) > d_model - 2:
        return None

    def enough(head_dim: int) -> bool:
        return success_probability(construction, num_items, d_model, num_heads, head_dim) >= 0.5

    if not enough(d_model):
        return None
    low, high = 0, d_model
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def best_num_heads(
    construction: Construction, num_items: int, d_model: int, num_heads: tuple[int, ...]
) -> int | None:
    """The head count of those given with the least predicted ``D_K = h d_k``; None where none is predicted to do."""
    budgets = {
        h: h * head_dim
        for h in num_heads
        if (head_dim := predicted_head_dim(construction, num_items, d_model, h)) is not None
    }
    return min(budgets, key=lambda h: (budgets[h], h), default=None)
