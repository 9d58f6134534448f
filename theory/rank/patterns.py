"""Patterns whose exact head size is known, row by row distributions over n keys, in float64."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from theory.rank._checks import whole
from theory.rank.exact import softmax

LENGTHS = (6, 70)
"""Fewest and most keys: a window leaves no key out below, a Gaussian band vanishes in float64 above."""

ON_TARGET = 0.99
"""Weight on the target of a soft permutation, and within the window of a band."""
LOW_RANK = 4
"""Rank of the logits of `low_rank`."""
BAND_WIDTH = 2
"""Half the width of a window; the standard deviation of a Gaussian band."""


def random(n: int, rng: np.random.Generator) -> Float[np.ndarray, "n n"]:
    """Rows drawn uniformly from all distributions: exact head size n - 1, almost surely."""
    whole("n", n, *LENGTHS)
    return rng.dirichlet(np.ones(n), n)


def low_rank(n: int, rng: np.random.Generator) -> Float[np.ndarray, "n n"]:
    """Softmax of Gaussian queries and keys of size 4, logits of variance 1: exact head size 4 (n > 4)."""
    whole("n", n, *LENGTHS)
    query, key = rng.standard_normal((2, n, LOW_RANK))
    return softmax(query @ key.T / np.sqrt(LOW_RANK))


def permutation(n: int, rng: np.random.Generator) -> Float[np.ndarray, "n n"]:
    """One key for every query, no key twice. Not positive: no head produces it, but d_k = 2 comes as near as wanted."""
    whole("n", n, *LENGTHS)
    return np.eye(n)[rng.permutation(n)]


def soft_permutation(n: int, rng: np.random.Generator) -> Float[np.ndarray, "n n"]:
    """A permutation with 0.99 on the target and the rest spread evenly: exact head size n - 1."""
    hard = permutation(n, rng)
    return ON_TARGET * hard + (1 - ON_TARGET) / (n - 1) * (1 - hard)


def gaussian_band(n: int, rng: np.random.Generator) -> Float[np.ndarray, "n n"]:
    """``P_ij ~ exp(-(i - j)^2 / (2 w^2))``, w = 2: exact head size 2 (n > 2), as ``-(i - j)^2 = 2 i j - j^2 - i^2``."""
    whole("n", n, *LENGTHS)
    offsets = np.subtract.outer(np.arange(n), np.arange(n))
    return softmax(-(offsets**2) / (2 * BAND_WIDTH**2))


def window_band(n: int, rng: np.random.Generator) -> Float[np.ndarray, "n n"]:
    """0.99 spread evenly over keys at most 2 away, the rest evenly over the others."""
    whole("n", n, *LENGTHS)
    near = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= BAND_WIDTH
    inside = near.sum(axis=1, keepdims=True)
    return np.where(near, ON_TARGET / inside, (1 - ON_TARGET) / (n - inside))


PATTERNS: dict[str, Callable[[int, np.random.Generator], np.ndarray]] = {
    "random": random,
    "low-rank": low_rank,
    "permutation": permutation,
    "soft-permutation": soft_permutation,
    "gaussian-band": gaussian_band,
    "window-band": window_band,
}
"""By name: a function of n (within `LENGTHS`; a ``ValueError`` else) and a generator, which bands leave alone."""
