"""Head size and rank: which patterns a head of size d_k produces, exactly and nearly (Bhojanapalli et al. 2020).

Three questions are kept apart. *The exact pattern*: possible if and only if the rank of the centred log of P is at most
d_k (`exact`; theorem, ours). *The pattern of the largest weights*: two dimensions do for any permutation, at logits
that grow like n^2 (`circle`). *A near pattern, with or without bounded norms*: by optimisation (`approximation`).
`spectra` shows that the softmax of logits of rank d_k is itself not of rank d_k.

The published theorem, both ways, in rows (theirs are columns): if ``d_q = d_k = d >= n`` and X has rank n, every
positive row-stochastic P is the pattern of some weights (`representing_weights`; ours says that d_k = n - 1 is enough);
if ``d_q = d_k = d < n`` there are X and P that no weights serve (`published_counter_example`). The latter is for X of
rank below n; for X of rank n and d_k < n - 1 the matter is the rank of log P, and ``softmax(beta I)`` is an example.
"""

from theory.rank.approximation import (
    Approximation,
    best_approximations,
    bounded_permutation_kl,
    mean_kl,
    truncation,
)
from theory.rank.circle import (
    circle,
    circle_kl,
    circle_scale,
    gap,
    guaranteed_length,
    least_planar_scale,
    planar_gap,
)
from theory.rank.exact import (
    HeadWeights,
    centred,
    centred_log,
    factors,
    head_pattern,
    log_tolerance,
    numerical_rank,
    published_counter_example,
    representable,
    representing_weights,
    required_head_dim,
    softmax,
)
from theory.rank.patterns import PATTERNS
from theory.rank.spectra import Spectra, spectra

__all__ = [
    "PATTERNS",
    "Approximation",
    "HeadWeights",
    "Spectra",
    "best_approximations",
    "bounded_permutation_kl",
    "centred",
    "centred_log",
    "circle",
    "circle_kl",
    "circle_scale",
    "factors",
    "gap",
    "guaranteed_length",
    "head_pattern",
    "least_planar_scale",
    "log_tolerance",
    "mean_kl",
    "numerical_rank",
    "planar_gap",
    "published_counter_example",
    "representable",
    "representing_weights",
    "required_head_dim",
    "softmax",
    "spectra",
    "truncation",
]
