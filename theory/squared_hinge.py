"""The squared hinge loss of one full-rank head, minimised exactly by Newton's method.

`1/2 sum (1 - y (s - tau))_+^2` over labelled pairs of items, `s = x_u^T M x_v`, in a free matrix `M (d, d)`
and a threshold. Convex and piecewise quadratic: damped Newton steps with an exact line search end after 5 to
30 steps, rarely more. Each Hessian `sum over active pairs of phi phi^T`, `phi = (x_u kron x_v, -1)`, is built
from `d (d + 1) / 2` products of columns in `O(m^2 d^2 + m d^4)` instead of `O(pairs d^4)`; it has side
`d^2 + 1`, so that `d` up to about 40 is practical. The scheme and its constants are ours.

BLAS threads do not pay at these sizes, and cost a factor of ten or more where other programs run: set
`OPENBLAS_NUM_THREADS=1` (before NumPy is imported) and run problems side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import linalg

EPS = float(np.finfo(np.float64).eps)
_DAMPING = (1e-10, 1e-8, 1e-6)  # of the mean diagonal: makes the step of a singular Hessian the shortest one
_SEPARATED = 1e-12  # the gap between the classes, relative to the largest score, that counts as separating


@dataclass(frozen=True, eq=False)
class HingeFit:
    """A (near) minimiser of the squared hinge loss with margin 1.

    Attributes:
        weights: `M (d, d)`, at the scale of the loss.
        threshold: `tau`.
        loss: `1/2 sum (1 - y (s - tau))_+^2` over the labelled pairs.
        gradient: Norm of the gradient divided by the sum of the residuals, in the coordinates of the solver
            (embeddings with orthonormal columns); 0 if no residual is left.
        separates: Whether every positive score exceeds every negative one, by more than rounding.
        iterations: Newton steps taken.
    """

    weights: Float[np.ndarray, "d d"]
    threshold: float
    loss: float
    gradient: float
    separates: bool
    iterations: int


class Pairs(NamedTuple):
    """The instance in the solver's coordinates: `X = basis @ to_basis`, `basis` has orthonormal columns."""

    embeddings: np.ndarray  # X (m, d)
    basis: np.ndarray  # (m, r)
    to_basis: np.ndarray  # (r, d)
    from_basis: np.ndarray  # (d, r), right inverse of to_basis
    labels: np.ndarray  # (m, m): +1, -1, 0 for free pairs
    positive: np.ndarray
    negative: np.ndarray
    bias: float  # the threshold's feature is -bias, so that it is as long as the others over all pairs


class State(NamedTuple):
    """An iterate of the solver."""

    matrix: np.ndarray  # (r, r), in the solver's coordinates
    threshold: float
    residuals: np.ndarray  # (m, m)
    gradient: np.ndarray  # (r^2 + 1,)
    relative: float
    separates: bool
    iterations: int


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
        warm_start: `(weights, threshold)` to start from, say a fit of nearly the same pairs.
        stop_at_separation: Stop as soon as the iterate separates the pairs, whatever its loss.

    Returns:
        The last iterate, a `HingeFit`.

    Raises:
        ValueError: If an argument is not as described.
    """
    if not 0 <= tolerance < 1:
        raise ValueError(f"tolerance: expected a number in [0, 1), got {tolerance}")
    pairs = prepare(embeddings, positive, negative)
    state = minimise(pairs, warm_start, max_iterations, tolerance, stop_at_separation=stop_at_separation)
    return HingeFit(
        weights=to_weights(pairs, state.matrix),
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

    Stops as soon as the head holds all its pairs, or at a relative gradient of 1e-4: enough to tell which of
    `own` score worst. Drop those, and call again with `warm_start=(fit.weights, fit.threshold)`.

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
        embeddings,
        own,
        negative,
        tolerance=1e-4,
        max_iterations=60,
        warm_start=warm_start,
        stop_at_separation=True,
    )


def prepare(embeddings: np.ndarray, positive: np.ndarray, negative: np.ndarray) -> Pairs:
    """Checks the arguments and changes to orthonormal coordinates, dropping directions that no item has."""
    if embeddings.ndim != 2 or 0 in embeddings.shape or not np.all(np.isfinite(embeddings)):
        raise ValueError(
            f"embeddings: expected a finite array (m, d), not empty, got shape {embeddings.shape}"
        )
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
    rank = int(np.sum(singular > max(items.shape) * EPS * singular[0]))
    if rank == 0:
        raise ValueError("embeddings: expected at least one item that is not zero, got only zeros")
    left, singular, right = left[:, :rank], singular[:rank], right[:rank]
    return Pairs(
        embeddings=items,
        basis=np.ascontiguousarray(left),
        to_basis=singular[:, None] * right,
        from_basis=right.T / singular,
        labels=positive.astype(np.float64) - negative,
        positive=positive,
        negative=negative,
        bias=1.0 / num_items,
    )


def to_weights(pairs: Pairs, matrix: np.ndarray) -> np.ndarray:
    """The matrix in the coordinates of the embeddings."""
    return pairs.from_basis @ matrix @ pairs.from_basis.T


def minimise(
    pairs: Pairs,
    warm_start: tuple[np.ndarray, float] | None,
    max_iterations: int,
    tolerance: float,
    *,
    stop_at_separation: bool,
) -> State:
    """Damped Newton steps with exact line searches until stationary, separating, stalled or out of steps."""
    if max_iterations < 1:
        raise ValueError(f"max_iterations: expected a positive integer, got {max_iterations}")
    basis, rank, d_model = pairs.basis, pairs.basis.shape[1], pairs.embeddings.shape[1]
    matrix, threshold = np.zeros((rank, rank)), 0.0
    if warm_start is not None:
        weights, threshold = np.asarray(warm_start[0], np.float64), float(warm_start[1])
        if (
            weights.shape != (d_model, d_model)
            or not np.all(np.isfinite(weights))
            or not np.isfinite(threshold)
        ):
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
        gap = float(np.min(scores[pairs.positive]) - np.max(scores[pairs.negative]))
        separates = gap > _SEPARATED * float(np.max(np.abs(scores)))
        loss = float(np.sum(residuals**2))
        stalled = stalled + 1 if loss >= last_loss * (1 - 1e-14) else 0
        last_loss = loss
        done = relative <= tolerance or stalled >= 3 or (stop_at_separation and separates)
        if done or iterations >= max_iterations:
            return State(matrix, threshold, residuals, gradient, relative, separates, iterations)
        factor = damped_factor(hessian_of(basis, residuals > 0, pairs.bias))
        step = -linalg.cho_solve(factor, gradient, check_finite=False)
        move, shift = step[:-1].reshape(rank, rank), float(step[-1]) * pairs.bias
        change = -(pairs.labels * (basis @ move @ basis.T - shift))[labelled]
        length = _line_search(slack[labelled], change)
        matrix, threshold = matrix + length * move, threshold + length * shift
        iterations += 1


def hessian_of(basis: np.ndarray, active: np.ndarray, bias: float) -> np.ndarray:
    """`sum over active pairs of phi phi^T`, side `r^2 + 1`, `phi = (b_u kron b_v, -bias)`.

    The entry `((a, b), (c, e))` is `sum_uv active_uv (b_ua b_uc) (b_vb b_ve)`: one product of matrices over
    the `r (r + 1) / 2` products of two columns, and a permutation of its entries.
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


def damped_factor(hessian: np.ndarray) -> tuple[np.ndarray, bool]:
    """Cholesky factor, for `scipy.linalg.cho_solve`, of the Hessian with the least damping that suffices.

    Raises:
        numpy.linalg.LinAlgError: If none does (the matrix is not finite, or not positive semidefinite).
    """
    damped = hessian.copy()
    for damping in _DAMPING:
        np.fill_diagonal(damped, np.diagonal(hessian) + damping * np.trace(hessian) / len(hessian))
        try:
            return linalg.cho_factor(damped.T, lower=True, check_finite=False)
        except linalg.LinAlgError:
            continue
    raise linalg.LinAlgError("the Hessian is not positive semidefinite")


def _line_search(slack: np.ndarray, change: np.ndarray) -> float:
    """The step that minimises `sum (slack + t change)_+^2`: a root of its piecewise linear derivative."""
    low, high, length = 0.0, np.inf, 1.0
    for _ in range(60):
        value = slack + length * change
        active = value > 0
        slope = float(value[active] @ change[active])
        curvature = float(change[active] @ change[active])
        if slope == 0 or curvature == 0:
            break
        low, high = (length, high) if slope < 0 else (low, length)
        previous, length = length, length - slope / curvature
        if not low < length < high:
            length = 0.5 * (low + high) if np.isfinite(high) else 2 * previous
        if abs(length - previous) <= 1e-14 * previous:
            break
    return length
