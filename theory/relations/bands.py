"""Do heads take relations, each in a band of its own? Measures on a trained channel.

*Information*: which head wins each edge (`theory.channel.max_over_heads`), against the kind of relation the edge is of.
Normalised mutual information is 0 for independent labels only in expectation of infinitely many edges; what chance
gives at this number of edges is found by shuffling the kinds.

*Overlap*: the mean squared cosine of the principal angles between the column spaces of two heads' weights, 1 for the
same subspace, 0 for orthogonal ones. For independent uniformly random subspaces of dimensions a and b in d dimensions
the mean is ``max(a, b) / d`` exactly (`random_overlap`, a = b); heads with bands of their own are below it. The column
space of ``W_Q`` does not depend on the gauge ``W_Q A, W_K A^-T``. It is taken as it is, also where embeddings are not
isotropic.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from theory.channel import max_over_heads, project


def winning_heads(
    embeddings: Float[np.ndarray, "m d"],
    query_weights: Float[np.ndarray, "h d k"],
    key_weights: Float[np.ndarray, "h d k"],
    edges: Int[np.ndarray, "e 2"],
) -> Int[np.ndarray, " e"]:
    """The head with the best score of each edge ``(source, target)``, in float32."""
    x, q, k = (jnp.asarray(array, jnp.float32) for array in (embeddings, query_weights, key_weights))
    head = np.asarray(max_over_heads(project(x, q), project(x, k))[1])
    return head[edges[:, 0], edges[:, 1]].astype(np.int64)


def counts_of(first: Int[np.ndarray, " e"], second: Int[np.ndarray, " e"]) -> Int[np.ndarray, "a b"]:
    """How often labels come together; both numbered from 0."""
    table = np.zeros((first.max() + 1, second.max() + 1), np.int64)
    np.add.at(table, (first, second), 1)
    return table


def normalised_mutual_information(table: Int[np.ndarray, "a b"]) -> float:
    """``2 I(A; B) / (H(A) + H(B))`` of counts: 1 where either label tells the other, 0 where both are constant.

    Raises:
        ValueError: counts that are negative or all zero.
    """
    if table.size == 0 or table.min() < 0 or table.sum() == 0:
        raise ValueError("table: expected counts, not all zero")
    joint = table / table.sum()
    rows, columns = joint.sum(axis=1), joint.sum(axis=0)
    total = _entropy(rows) + _entropy(columns)
    return 0.0 if total == 0 else float(2 * (total - _entropy(joint.ravel())) / total)


def _entropy(p: Float[np.ndarray, " n"]) -> float:
    positive = p[p > 0]
    return float(-(positive * np.log(positive)).sum())


class Shuffled(NamedTuple):
    """Normalised mutual information beside what chance gives.

    Attributes:
        value: of the labels as they are.
        mean: over shuffles.
        high: 97.5% quantile of the shuffles.
        p_value: share of shuffles, counting the labels themselves as one, with at least this value.
    """

    value: float
    mean: float
    high: float
    p_value: float


def against_shuffled(
    first: Int[np.ndarray, " e"], second: Int[np.ndarray, " e"], count: int, rng: np.random.Generator
) -> Shuffled:
    """Compare with ``count`` shuffles of the second labels.

    Raises:
        ValueError: labels of different lengths, or no shuffles.
    """
    if count < 1:
        raise ValueError(f"count: expected a positive integer, got {count}")
    value = normalised_mutual_information(counts_of(first, second))
    chance = [normalised_mutual_information(counts_of(first, rng.permutation(second))) for _ in range(count)]
    above = sum(other >= value - 1e-12 for other in chance)
    return Shuffled(
        value, float(np.mean(chance)), float(np.quantile(chance, 0.975)), (1 + above) / (1 + count)
    )


def principal_cosines(
    first: Float[np.ndarray, "d a"], second: Float[np.ndarray, "d b"]
) -> Float[np.ndarray, " c"]:
    """Cosines of the principal angles between two column spaces, descending; of full column rank."""
    bases = [np.linalg.qr(matrix.astype(np.float64))[0] for matrix in (first, second)]
    return np.clip(np.linalg.svd(bases[0].T @ bases[1], compute_uv=False), 0.0, 1.0)


def mean_overlap(weights: Float[np.ndarray, "h d k"]) -> float:
    """Mean squared cosine of the principal angles, over all pairs of heads.

    Raises:
        ValueError: fewer than two heads, or heads wider than the embeddings.
    """
    if len(weights) < 2 or weights.shape[2] > weights.shape[1]:
        raise ValueError(f"weights: expected two heads or more, d_k of at most d, got shape {weights.shape}")
    return float(np.mean([np.square(principal_cosines(a, b)).mean() for a, b in combinations(weights, 2)]))


def random_overlap(d_model: int, head_dim: int) -> float:
    """Expectation of `mean_overlap` for independent uniformly random subspaces: ``d_k / d``, exactly.

    ``E tr(P_a P_b) = a b / d``, divided by the number of angles (theorem).
    """
    return head_dim / d_model


def random_overlaps(
    num_heads: int, d_model: int, head_dim: int, count: int, rng: np.random.Generator
) -> Float[np.ndarray, " n"]:
    """`mean_overlap` of ``count`` draws of random heads."""
    return np.array([mean_overlap(rng.standard_normal((num_heads, d_model, head_dim))) for _ in range(count)])
