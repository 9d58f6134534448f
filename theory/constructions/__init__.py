"""Explicit channels: weights written down from the edges, without training, and how well they must do.

`heads` builds them; `noise` has the variance of a head's score for every kind of pair and, from it, the probability
that a channel recovers its graph, the key dimension that takes, and the best block size; `precision` rounds any
channel's weights to p bits. The best construction known here is not a formula: heads fitted one after the other by
convex solves (`theory.training.convex_greedy`).
"""

from theory.constructions.heads import CONSTRUCTIONS, Construction, construct, signatures
from theory.constructions.noise import (
    KINDS_OF_PAIRS,
    best_num_heads,
    predicted_head_dim,
    score_variances,
    success_probability,
)
from theory.constructions.precision import balanced, bits_used, quantise

__all__ = [
    "CONSTRUCTIONS",
    "KINDS_OF_PAIRS",
    "Construction",
    "balanced",
    "best_num_heads",
    "bits_used",
    "construct",
    "predicted_head_dim",
    "quantise",
    "score_variances",
    "signatures",
    "success_probability",
]
