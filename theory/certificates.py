"""Can one full-rank head hold a set of pairs? An exact, certified answer.

Items have embeddings `X (m, d)`. A head of full rank scores all pairs by `S = X M X^T` with a free matrix `M (d, d)`
and calls a pair an edge where `S > tau`. Is there an `(M, tau)` that puts every *positive* pair above `tau` and every
*negative* pair below it (pairs in neither mask are free)? In `(M, tau)` this is a question about a linear classifier
without a bias of its own on the features `phi = (x_u kron x_v, -1)`, hence convex, and it has two kinds of proof:

- **separable** (a theorem per instance): a matrix and a threshold, checked from the weights alone.
- **inseparable** (a theorem per instance; Gordan's alternative): multipliers `lambda >= 0`, not all zero, with
  `sum lambda y phi = 0`, that is `X^T (y * lambda) X = 0` and `sum y lambda = 0`, where `y = +-1` is the label.

Both come out of one minimisation, `1/2 sum (1 - y (s - tau))_+^2` (the margin is 1 because the problem is scale-free):
it is zero where the pairs are separable, and elsewhere its residuals `(1 - y (s - tau))_+` are the multipliers, since
the gradient at the minimum is `-sum residual y phi = 0`. Everything here is NumPy/SciPy in float64.

The minimiser is Newton's method on the piecewise quadratic, with an exact line search; each Hessian
`sum over active pairs of phi phi^T` is built from `d (d + 1) / 2` products of columns in `O(m^2 d^2 + m d^4)` instead of
`O(pairs d^4)`. The scheme and its constants are ours; it takes 5 to 30 steps. The matrices are of side `d^2 + 1`, so
that `d` up to about 40 is practical. BLAS threads do not pay at these sizes: set `OPENBLAS_NUM_THREADS=1` (before NumPy
is imported) and run problems side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import linalg

Verdict = Literal["separable", "inseparable", "undecided"]

_EPS = float(np.finfo(np.float64).eps)
_DAMPING = 1e-10  # of the mean diagonal of the Hessian: makes the step of a singular Hessian the shortest one
_STATIONARY = 1e-12  # relative gradient at which the minimisation has converged
_INSEPARABLE = 1e-10  # the largest margin, relative to max |x|^2, that a verdict "inseparable" leaves open


@dataclass(frozen=True, eq=False)
class Certificate:
    """The answer for one head, with what proves it.

    Attributes:
        verdict: "separable", "inseparable", or "undecided" (neither proof was reached: count these separately).
        weights: The matrix `M (d, d)`, of unit Frobenius norm (zero if the minimiser is zero). Separating if the
            verdict says so, otherwise the direction of the last iterate.
        threshold: The threshold that goes with `weights`: halfway between the two classes of pairs.
        margin: Half the distance from the largest negative to the smallest positive score of `weights`. Positive if
            and only if `weights` separate.
        multipliers: `lambda (m, m)`, sum 1, zero on free pairs; None unless the verdict is "inseparable".
        residual: No matrix of unit Frobenius norm has a margin above this (see `multiplier_bound`): at rounding level
            for "inseparable", large for "undecided", None for "separable".
        proven: True for "separable" (the scores' rounding errors are accounted for) and, for "inseparable", where
            exact multipliers are known to exist next to the rounded ones (see `certify_head`).
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


@dataclass(frozen=True, eq=False)
class HingeFit:
    """A (near) minimiser of the squared hinge loss with margin 1.

    Attributes:
        weights: `M (d, d)`, at the scale of the loss.
        threshold: `tau`.
        loss: `1/2 sum (1 - y (s - tau))_+^2` over the labelled pairs.
        gradient: Norm of the gradient divided by the sum of the residuals, in the coordinates of the solver
            (embeddings with orthonormal columns); 0 if no residual is left.
        separates: Whether every positive score exceeds every negative one.
        iterations: Newton steps taken.
    """

    weights: Float[np.ndarray, "d d"]
    threshold: float
    loss: float
    gradient: float
    separates: bool
    iterations: int


class _Pairs(NamedTuple):
    """The instance in the solver's coordinates: `X = basis @ to_basis`, `basis` has orthonormal columns."""

    embeddings: np.ndarray  # X (m, d)
    basis: np.ndarray  # (m, r)
    to_basis: np.ndarray  # (r, d)
    from_basis: np.ndarray  # (d, r), right inverse of to_basis
    labels: np.ndarray  # (m, m): +1, -1, 0 for free pairs
    positive: np.ndarray
    negative: np.ndarray
    bias: float  # the threshold's feature is -bias, so that it is as long as the others over all pairs


class _State(NamedTuple):
    matrix: np.ndarray  # (r, r), in the solver's coordinates
    threshold: float
    residuals: np.ndarray  # (m, m)
    gradient: np.ndarray  # (r^2 + 1,)
    relative: float
    separates: bool
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

    *Separable* is returned if the smallest positive score exceeds the largest negative one, both computed from the
    returned weights, by more than a bound on the rounding errors of the scores.

    *Inseparable* is returned with multipliers `lambda`. For every `M` of unit Frobenius norm and every `tau`,

        min over pairs of y (s - tau)  <=  sum lambda y (s - tau) / sum lambda  =  (<G, M> - tau g) / sum lambda

    with `G = X^T (y * lambda) X`, `g = sum y lambda`. A threshold beyond `R = max |x|^2 >= |s|` serves no pair better
    than `+-R`, so the margin is at most `(|G|_F + R |g|) / sum lambda`, and the rounding errors of `G` and `g` are
    added to it: that is `residual`. The verdict requires `residual <= 1e-10 R`; 1e-13 R is usual. This excludes every
    margin above rounding. It becomes a proof that no separating matrix exists at all (`proven`) as follows. If the
    features of the pairs with `lambda > 0` span the whole space, that is if `H = sum phi phi^T` over them has least
    eigenvalue `sigma > 0`, then `delta = -y phi^T H^-1 (G, g)` turns `lambda` into a vector whose sums vanish exactly,
    and `|delta| <= |(G, g)| / sqrt(sigma)`. If every `lambda` in use is larger than that, `lambda + delta` is positive
    and Gordan's alternative applies. `sigma` is bounded by the success of a Cholesky factorisation of `H` minus a
    multiple of the identity larger than its backward error. `proven` stays False on degenerate instances (embeddings
    that do not span the space; a contradiction among a few pairs), where `residual` alone speaks.

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
    pairs = _prepare(embeddings, positive, negative)
    state = _minimise(pairs, warm_start, max_iterations, _STATIONARY, stop_at_separation=True)
    weights = _to_weights(pairs, state.matrix)
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
        if residual is not None and residual <= _INSEPARABLE * scale:
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

    `(|X^T (y * lambda) X|_F + max |x|^2 |sum y lambda|) / sum lambda`, plus a bound on the rounding errors made here.
    Zero, up to them, exactly for Gordan's multipliers.

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
    rounding = _EPS * (2 * len(items) + 2) * (magnitude + scale * total)
    return (sums + rounding) / total


def minimise_squared_hinge(
    embeddings: Float[np.ndarray, "m d"],
    positive: Bool[np.ndarray, "m m"],
    negative: Bool[np.ndarray, "m m"],
    *,
    tolerance: float = 1e-9,
    max_iterations: int = 200,
    warm_start: tuple[Float[np.ndarray, "d d"], float] | None = None,
    stop_at_separation: bool = False,
) -> HingeFit:
    """Minimises `1/2 sum (1 - y (s - tau))_+^2` over the labelled pairs, `s = X M X^T`, in `M` and `tau`.

    Args:
        embeddings: `X (m, d)`, finite.
        positive: Pairs with label +1; at least one.
        negative: Pairs with label -1; at least one, disjoint from `positive`.
        tolerance: Stop at this `HingeFit.gradient`.
        max_iterations: Newton steps at most.
        warm_start: `(weights, threshold)` to start from: a fit of nearly the same pairs saves half of the steps.
        stop_at_separation: Stop as soon as the iterate separates the pairs, whatever its loss.

    Returns:
        The last iterate, a `HingeFit`.

    Raises:
        ValueError: If an argument is not as described.
    """
    if not 0 <= tolerance < 1:
        raise ValueError(f"tolerance: expected a number in [0, 1), got {tolerance}")
    pairs = _prepare(embeddings, positive, negative)
    state = _minimise(pairs, warm_start, max_iterations, tolerance, stop_at_separation=stop_at_separation)
    return HingeFit(
        weights=_to_weights(pairs, state.matrix),
        threshold=state.threshold,
        loss=0.5 * float(np.sum(state.residuals**2)),
        gradient=state.relative,
        separates=state.separates,
        iterations=state.iterations,
    )


def fit_full_rank_head(
    embeddings: Float[np.ndarray, "m d"],
    own: Bool[np.ndarray, "m m"],
    negative: Bool[np.ndarray, "m m"],
    *,
    warm_start: tuple[Float[np.ndarray, "d d"], float] | None = None,
) -> HingeFit:
    """The squared hinge fit of one head for a greedy trainer, as fast as it can be had.

    Stops as soon as the head holds all its pairs, or at a relative gradient of 1e-4: enough to tell which of `own`
    score worst. Drop those, and call again with `warm_start=(fit.weights, fit.threshold)`.

    Args:
        embeddings: `X (m, d)`, finite.
        own: Pairs the head must score above its threshold; at least one.
        negative: Pairs it must score below; at least one. Edges of other heads are in neither mask.
        warm_start: The fit before the last pairs were dropped.

    Returns:
        A `HingeFit`; `separates` says whether the head holds `own` (a caller re-checks its final channel).

    Raises:
        ValueError: If an argument is not as described.
    """
    return minimise_squared_hinge(
        embeddings, own, negative, tolerance=1e-4, max_iterations=60, warm_start=warm_start, stop_at_separation=True
    )


def _prepare(embeddings: np.ndarray, positive: np.ndarray, negative: np.ndarray) -> _Pairs:
    """Checks the arguments and changes to orthonormal coordinates, dropping directions that no item has."""
    if embeddings.ndim != 2 or 0 in embeddings.shape or not np.all(np.isfinite(embeddings)):
        raise ValueError(f"embeddings: expected a finite array (m, d), not empty, got shape {embeddings.shape}")
    num_items = len(embeddings)
    for name, mask in (("positive", positive), ("negative", negative)):
        if mask.shape != (num_items, num_items) or mask.dtype != np.bool_:
            expected = f"a boolean mask of shape {(num_items, num_items)}"
            raise ValueError(f"{name}: expected {expected}, got {mask.dtype} {mask.shape}")
        if not np.any(mask):
            raise ValueError(f"{name}: expected at least one pair, got none")
    if np.any(positive & negative):
        count = int(np.sum(positive & negative))
        raise ValueError(f"negative: expected no pair in common with positive, got {count}")
    items = np.asarray(embeddings, np.float64)
    left, singular, right = np.linalg.svd(items, full_matrices=False)
    rank = int(np.sum(singular > max(items.shape) * _EPS * singular[0]))
    if rank == 0:
        raise ValueError("embeddings: expected at least one item that is not zero, got only zeros")
    left, singular, right = left[:, :rank], singular[:rank], right[:rank]
    return _Pairs(
        embeddings=items,
        basis=np.ascontiguousarray(left),
        to_basis=singular[:, None] * right,
        from_basis=right.T / singular,
        labels=positive.astype(np.float64) - negative,
        positive=positive,
        negative=negative,
        bias=1.0 / num_items,
    )


def _to_weights(pairs: _Pairs, matrix: np.ndarray) -> np.ndarray:
    return pairs.from_basis @ matrix @ pairs.from_basis.T


def _minimise(
    pairs: _Pairs,
    warm_start: tuple[np.ndarray, float] | None,
    max_iterations: int,
    tolerance: float,
    *,
    stop_at_separation: bool,
) -> _State:
    """Damped Newton steps with exact line searches until stationary, separating, stalled or out of steps."""
    if max_iterations < 1:
        raise ValueError(f"max_iterations: expected a positive integer, got {max_iterations}")
    basis, rank, d_model = pairs.basis, pairs.basis.shape[1], pairs.embeddings.shape[1]
    matrix, threshold = np.zeros((rank, rank)), 0.0
    if warm_start is not None:
        weights, threshold = np.asarray(warm_start[0], np.float64), float(warm_start[1])
        if weights.shape != (d_model, d_model) or not np.all(np.isfinite(weights)) or not np.isfinite(threshold):
            raise ValueError(f"warm_start: expected finite (weights {(d_model, d_model)}, threshold)")
        matrix = pairs.to_basis @ weights @ pairs.to_basis.T
    labelled = pairs.labels != 0
    iterations, stalled, last_loss = 0, 0, np.inf
    while True:
        scores = basis @ matrix @ basis.T
        slack = np.where(labelled, 1.0 - pairs.labels * (scores - threshold), 0.0)
        residuals = np.maximum(slack, 0.0)
        signed = pairs.labels * residuals
        gradient = np.append(-(basis.T @ signed @ basis).ravel(), pairs.bias * np.sum(signed))
        total = float(np.sum(residuals))
        relative = float(np.linalg.norm(gradient)) / total if total > 0 else 0.0
        separates = bool(np.min(scores[pairs.positive]) > np.max(scores[pairs.negative]))
        loss = float(np.sum(residuals**2))
        stalled = stalled + 1 if loss >= last_loss * (1 - 1e-14) else 0
        last_loss = loss
        done = relative <= tolerance or stalled >= 3 or (stop_at_separation and separates)
        if done or iterations >= max_iterations:
            return _State(matrix, threshold, residuals, gradient, relative, separates, iterations)
        factor = _damped_factor(_hessian(basis, residuals > 0, pairs.bias))
        step = -linalg.cho_solve(factor, gradient, check_finite=False)
        move, shift = step[:-1].reshape(rank, rank), float(step[-1]) * pairs.bias
        change = -(pairs.labels * (basis @ move @ basis.T - shift))[labelled]
        length = _line_search(slack[labelled], change)
        matrix, threshold = matrix + length * move, threshold + length * shift
        iterations += 1


def _hessian(basis: np.ndarray, active: np.ndarray, bias: float) -> np.ndarray:
    """`sum over active pairs of phi phi^T`, side `r^2 + 1`, `phi = (b_u kron b_v, -bias)`.

    The entry `((a, b), (c, e))` is `sum_uv active_uv (b_ua b_uc) (b_vb b_ve)`: one product of matrices over the
    `r (r + 1) / 2` products of two columns, and a permutation of its entries.
    """
    rank = basis.shape[1]
    rows, columns = np.tril_indices(rank)
    products = basis[:, rows] * basis[:, columns]
    weights = active.astype(np.float64)
    grams = products.T @ (weights @ products)
    place = np.empty((rank, rank), np.intp)
    place[rows, columns] = place[columns, rows] = np.arange(len(rows))
    place = place.ravel()
    full = grams[place[:, None], place].reshape(rank, rank, rank, rank).transpose(0, 2, 1, 3)
    hessian = np.empty((rank**2 + 1, rank**2 + 1))
    hessian[:-1, :-1] = full.reshape(rank**2, rank**2)
    hessian[-1, :-1] = hessian[:-1, -1] = -bias * (basis.T @ weights @ basis).ravel()
    hessian[-1, -1] = bias**2 * np.sum(weights)
    return hessian


def _damped_factor(hessian: np.ndarray) -> tuple[np.ndarray, bool]:
    hessian[np.diag_indices_from(hessian)] += _DAMPING * np.trace(hessian) / len(hessian)
    return linalg.cho_factor(hessian.T, lower=True, overwrite_a=True, check_finite=False)


def _line_search(slack: np.ndarray, change: np.ndarray) -> float:
    """The step that minimises `sum (slack + t change)_+^2`: a root of its piecewise linear derivative."""
    low, high, length = 0.0, np.inf, 1.0
    for _ in range(60):
        value = slack + length * change
        active = value > 0
        slope = float(value[active] @ change[active])
        curvature = float(change[active] @ change[active])
        if slope == 0:
            break
        low, high = (length, high) if slope < 0 else (low, length)
        previous, length = length, length - slope / curvature
        if not low < length < high:
            length = 0.5 * (low + high) if np.isfinite(high) else 2 * previous
        if abs(length - previous) <= 1e-14 * previous:
            break
    return length


def _margin(pairs: _Pairs, weights: np.ndarray) -> tuple[float, float, float]:
    """Threshold, margin, and a bound on the rounding error of the margin, from the weights alone."""
    items = pairs.embeddings
    scores = items @ weights @ items.T
    smallest, largest = float(np.min(scores[pairs.positive])), float(np.max(scores[pairs.negative]))
    magnitude = float(np.max(np.abs(items) @ np.abs(weights) @ np.abs(items).T))
    rounding = _EPS * (2 * items.shape[1] + 4) * magnitude
    return 0.5 * (smallest + largest), 0.5 * (smallest - largest), rounding


def _multipliers(pairs: _Pairs, state: _State) -> np.ndarray | None:
    """The residuals, moved by the least squares correction that cancels their gradient, sum 1; None if none is left.

    What the correction makes negative is set to zero: the bound is computed afterwards, so that this cannot mislead.
    """
    total = np.sum(state.residuals)
    if not total > 0:
        return None
    multipliers, gradient = state.residuals / total, state.gradient / total
    active = multipliers > 0
    factor = _damped_factor(_hessian(pairs.basis, active, pairs.bias))
    for _ in range(2):
        step = linalg.cho_solve(factor, gradient, check_finite=False)
        move = step[:-1].reshape(state.matrix.shape)
        correction = pairs.basis @ move @ pairs.basis.T - pairs.bias * step[-1]
        multipliers = np.where(active, np.maximum(multipliers + pairs.labels * correction, 0.0), 0.0)
        signed = pairs.labels * multipliers
        gradient = np.append(-(pairs.basis.T @ signed @ pairs.basis).ravel(), pairs.bias * np.sum(signed))
    total = np.sum(multipliers)
    return multipliers / total if total > 0 else None


def _exact_multipliers_exist(pairs: _Pairs, multipliers: np.ndarray | None) -> bool:
    """Whether exact multipliers lie within reach of the rounded ones: the argument in `certify_head`.

    In the given coordinates, scaled to `max |x| = 1`. Multipliers below 1e-8 of the largest are left as they are.
    """
    if multipliers is None:
        return False
    norm = float(np.sqrt(np.max(np.sum(pairs.embeddings**2, axis=1))))
    items = pairs.embeddings / norm
    active = multipliers > 1e-8 * np.max(multipliers)
    hessian = _hessian(items, active, pairs.bias)
    shift = 4 * _EPS * len(hessian) * float(np.trace(hessian))  # several times the backward error of both steps
    hessian[np.diag_indices_from(hessian)] -= shift
    try:
        linalg.cholesky(hessian.T, lower=True, overwrite_a=True, check_finite=False)
    except linalg.LinAlgError:
        return False
    total = float(np.sum(multipliers))
    bound = total * multiplier_bound(items, pairs.positive, pairs.negative, multipliers)
    return bound / np.sqrt(shift / 2) < float(np.min(multipliers[active]))
