"""Can one full-rank head hold a set of pairs? An exact, certified answer.

Items have embeddings `X (m, d)`. A head of full rank scores all pairs by `S = X M X^T` with a free matrix
`M (d, d)` and calls a pair an edge where `S > tau`. Is there an `(M, tau)` that puts every *positive* pair
above `tau` and every *negative* pair below it (pairs in neither mask are free)? In `(M, tau)` this asks for a
linear classifier of the features `phi = (x_u kron x_v, -1)`, a convex question with two kinds of proof:

- **separable** (a theorem per instance): a matrix and a threshold, checked from the weights alone.
- **inseparable** (a theorem per instance; Gordan's alternative): multipliers `lambda >= 0`, not all zero,
  with `sum lambda y phi = 0`, that is `X^T (y * lambda) X = 0` and `sum y lambda = 0`, where `y = +-1` is the
  label.

Both come out of one minimisation, `1/2 sum (1 - y (s - tau))_+^2` (the margin is 1 because the problem is
scale-free): it is zero where the pairs are separable, and elsewhere its residuals `(1 - y (s - tau))_+` are
the multipliers, since the gradient at the minimum is `-sum residual y phi = 0`. NumPy and SciPy in float64.

A certificate speaks about the pairs it was asked for. Where several heads share a graph, the failure of one
partition of the edges proves nothing about the graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float
from scipy import linalg

from theory.squared_hinge import EPS, Pairs, State, damped_factor, hessian_of, minimise, prepare, to_weights

Verdict = Literal["separable", "inseparable", "undecided"]

_STATIONARY = 1e-12  # relative gradient at which the minimisation has converged
_INSEPARABLE = 1e-10  # the largest margin, relative to max |x|^2, that a verdict "inseparable" leaves open


@dataclass(frozen=True, eq=False)
class Certificate:
    """The answer for one head, with what proves it.

    Attributes:
        verdict: "separable", "inseparable", or "undecided": neither proof was reached, to be counted apart.
        weights: The matrix `M (d, d)`, of unit Frobenius norm (zero if the minimiser is zero). Separating if
            the verdict says so, otherwise the direction of the last iterate.
        threshold: The threshold that goes with `weights`: halfway between the two classes of pairs.
        margin: Half the distance from the largest negative to the smallest positive score of `weights`.
            Positive if and only if `weights` separate.
        multipliers: `lambda (m, m)`, sum 1, zero on free pairs; None unless the verdict is "inseparable".
        residual: No matrix of unit Frobenius norm has a margin above this (see `multiplier_bound`): at
            rounding level for "inseparable", larger for "undecided", None where there are no multipliers.
        proven: True for "separable" (the scores' rounding errors are accounted for) and, for "inseparable",
            where exact multipliers are known to exist next to the rounded ones (see `certify_head`).
        loss: The squared hinge loss at the last iterate, at its own scale.
        iterations: Newton steps taken.
    """

    verdict: Verdict
    weights: Float[np.ndarray, "d d"]
    threshold: float
    margin: float
    multipliers: Float[np.ndarray, "m m"] | None
    residual: float | None
    proven: bool
    loss: float
    iterations: int


def certify_head(
    embeddings: Float[np.ndarray, "m d"],
    positive: Bool[np.ndarray, "m m"],
    negative: Bool[np.ndarray, "m m"],
    *,
    max_iterations: int = 200,
    warm_start: tuple[Float[np.ndarray, "d d"], float] | None = None,
) -> Certificate:
    """Decides whether one head of full rank can hold `positive` against `negative`, and proves it.

    *Separable* is returned if the smallest positive score exceeds the largest negative one, both computed
    from the returned weights, by more than a bound on the rounding errors of the scores.

    *Inseparable* is returned with multipliers `lambda`. For every `M` of unit Frobenius norm and every `tau`,

        min of y (s - tau)  <=  sum lambda y (s - tau) / sum lambda  =  (<G, M> - tau g) / sum lambda

    with `G = X^T (y * lambda) X`, `g = sum y lambda`. With a threshold beyond `R = max |x|^2 >= |s|` no
    margin is positive, so the margin is at most `(|G|_F + R |g|) / sum lambda`; that, with the rounding
    errors of `G` and `g` added, is `residual`. The verdict requires `residual <= 1e-10 R`; 1e-13 R is
    usual. This excludes every margin above rounding.

    It becomes a proof that no separating matrix exists at all (`proven`) as follows. If the features of the
    pairs with `lambda > 0` span the whole space, that is if `H = sum phi phi^T` over them has least
    eigenvalue `sigma > 0`, then adding `delta = -y phi^T H^-1 (G, -g)` to `lambda` makes both sums vanish
    exactly, and `|delta| <= |(G, g)| / sqrt(sigma)`. If every `lambda` in use is larger than that,
    `lambda + delta` is positive and Gordan's alternative applies. `sigma` is bounded by the success of a
    Cholesky factorisation of `H` minus a multiple of the identity larger than its backward error. `proven`
    stays False on degenerate instances, where `residual` alone speaks: embeddings that (nearly) fail to span
    the space, or a contradiction among a few pairs, say of one source (common in small dense problems, rare
    in permutation graphs near the ceiling).

    Args:
        embeddings: `X (m, d)`, finite, of any scale.
        positive: Pairs `(source, target)` that must score above the threshold; at least one.
        negative: Pairs that must score below it; at least one, disjoint from `positive`.
        max_iterations: Newton steps at most.
        warm_start: `(weights, threshold)` to start from, at the scale of margin 1.

    Returns:
        A `Certificate`.

    Raises:
        ValueError: If an argument is not as described.
    """
    pairs = prepare(embeddings, positive, negative)
    state = minimise(pairs, warm_start, max_iterations, _STATIONARY, stop_at_separation=True)
    weights = to_weights(pairs, state.matrix)
    norm = float(np.linalg.norm(weights))
    weights = weights / norm if norm > 0 else weights
    threshold, margin, rounding = _margin(pairs, weights)
    verdict: Verdict = "undecided"
    multipliers, residual, proven = None, None, False
    if margin > rounding:
        verdict, proven = "separable", True
    else:
        multipliers = _multipliers(pairs, state)
        scale = float(np.max(np.sum(pairs.embeddings**2, axis=1)))
        if multipliers is not None:
            residual = multiplier_bound(pairs.embeddings, positive, negative, multipliers)
        if residual is not None and residual <= _INSEPARABLE * scale and not state.separates:
            verdict, proven = "inseparable", _exact_multipliers_exist(pairs, multipliers)
        else:
            multipliers = None
    return Certificate(
        verdict=verdict,
        weights=weights,
        threshold=threshold,
        margin=margin,
        multipliers=multipliers,
        residual=residual,
        proven=proven,
        loss=0.5 * float(np.sum(state.residuals**2)),
        iterations=state.iterations,
    )


def multiplier_bound(
    embeddings: Float[np.ndarray, "m d"],
    positive: Bool[np.ndarray, "m m"],
    negative: Bool[np.ndarray, "m m"],
    multipliers: Float[np.ndarray, "m m"],
) -> float:
    """An upper bound on the margin of every matrix of unit Frobenius norm (theorem; ours, by weak duality).

    `(|X^T (y * lambda) X|_F + max |x|^2 |sum y lambda|) / sum lambda`, plus a bound on the rounding errors
    made here. Zero, up to them, exactly for Gordan's multipliers.

    Args:
        embeddings: `X (m, d)`.
        positive: Pairs with label +1.
        negative: Pairs with label -1.
        multipliers: `lambda (m, m)`, not negative, positive somewhere; entries on free pairs are ignored.

    Returns:
        The bound, at the scale of the scores.

    Raises:
        ValueError: If a multiplier is negative or not finite, or none is positive on a labelled pair.
    """
    labels = positive.astype(np.float64) - negative
    weights = np.where(labels != 0, multipliers, 0.0)
    if not np.all(np.isfinite(weights)) or np.any(weights < 0) or not np.any(weights > 0):
        raise ValueError("multipliers: expected finite numbers >= 0, one of them positive on a labelled pair")
    items = np.asarray(embeddings, np.float64)
    total = float(np.sum(weights))
    scale = float(np.max(np.sum(items**2, axis=1)))
    signed = labels * weights
    sums = float(np.linalg.norm(items.T @ signed @ items)) + scale * abs(float(np.sum(signed)))
    magnitude = float(np.linalg.norm(np.abs(items).T @ weights @ np.abs(items)))
    rounding = EPS * (2 * len(items) + 2) * (magnitude + scale * total)
    return (sums + rounding) / total


def _margin(pairs: Pairs, weights: np.ndarray) -> tuple[float, float, float]:
    """Threshold, margin, and a bound on the rounding error of the margin, from the weights alone."""
    items = pairs.embeddings
    scores = items @ weights @ items.T
    smallest, largest = float(np.min(scores[pairs.positive])), float(np.max(scores[pairs.negative]))
    magnitude = float(np.max(np.abs(items) @ np.abs(weights) @ np.abs(items).T))
    rounding = EPS * (2 * items.shape[1] + 4) * magnitude
    return 0.5 * (smallest + largest), 0.5 * (smallest - largest), rounding


def _multipliers(pairs: Pairs, state: State) -> np.ndarray | None:
    """The residuals plus the least squares correction that cancels their gradient; None if none is left.

    What the correction makes negative is set to zero: the bound is computed afterwards, so that this cannot
    mislead. The sum is 1.
    """
    total = np.sum(state.residuals)
    if not total > 0:
        return None
    multipliers, gradient = state.residuals / total, state.gradient / total
    active = multipliers > 0
    factor = damped_factor(hessian_of(pairs.basis, active, pairs.bias))
    for _ in range(2):
        step = linalg.cho_solve(factor, gradient, check_finite=False)
        move = step[:-1].reshape(state.matrix.shape)
        correction = pairs.basis @ move @ pairs.basis.T - pairs.bias * step[-1]
        multipliers = np.where(active, np.maximum(multipliers + pairs.labels * correction, 0.0), 0.0)
        signed = pairs.labels * multipliers
        gradient = np.append(-(pairs.basis.T @ signed @ pairs.basis).ravel(), pairs.bias * np.sum(signed))
    total = np.sum(multipliers)
    return multipliers / total if total > 0 else None


def _exact_multipliers_exist(pairs: Pairs, multipliers: np.ndarray | None) -> bool:
    """Whether exact multipliers lie within reach of the rounded ones: the argument in `certify_head`.

    In the given coordinates, scaled to `1/2 < max |x| <= 1`. Multipliers below 1e-4 of the mean are left as
    they are, and not used for the correction: the few that are tiny by chance would have to stay positive.
    """
    if multipliers is None:
        return False
    norm = float(np.sqrt(np.max(np.sum(pairs.embeddings**2, axis=1))))
    items = pairs.embeddings * 2.0 ** -np.ceil(np.log2(norm))  # exact
    bias = 0.25 * pairs.bias  # not above max |x|^2, so that the bound below covers both sums
    active = multipliers > 1e-4 * np.mean(multipliers[multipliers > 0])
    hessian = hessian_of(items, active, bias)
    # several times the rounding errors of the Hessian and the backward error of its factorisation
    shift = 4 * EPS * (len(hessian) + 2 * len(items)) * float(np.trace(hessian))
    hessian[np.diag_indices_from(hessian)] -= shift
    try:
        linalg.cholesky(hessian.T, lower=True, overwrite_a=True, check_finite=False)
    except linalg.LinAlgError:
        return False
    total = float(np.sum(multipliers))
    bound = total * multiplier_bound(items, pairs.positive, pairs.negative, multipliers)
    return bool(bound / np.sqrt(shift / 2) < np.min(multipliers[active]))
