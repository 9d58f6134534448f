"""Which attention patterns a head of size d_k can produce exactly, and the weights that do.

Rows are tokens throughout: ``X`` is ``(n, d)``, a head computes ``softmax(X W_q (X W_k)^T / sqrt(d_k))`` along rows,
without a mask, and a pattern ``P`` is a positive matrix whose rows sum to 1. (Bhojanapalli et al. 2020 write tokens
as columns and take the softmax down columns; transpose everything to compare.)

Softmax has a gauge: adding a constant to each row of the logits changes nothing. So the logits of P are
``log P + c 1^T`` for every vector c, and the question is how low their rank can be made by choice of c. With
``C = I - 1 1^T / n`` (subtract the mean of every row) the answer is ``rank(log P C)``, the *rank of the centred log*:

*Theorem (ours).* If X has rank n, P is the pattern of some head of size d_k if and only if ``rank(log P C) <= d_k``.
Proof: logits ``S = X (W_q W_k^T / sqrt(d_k)) X^T`` are all matrices of rank at most d_k, as X has a right inverse.
``S = log P + c 1^T`` gives ``S C = log P C``, so rank(S) >= rank(log P C); and ``c = -log P 1 / n`` gives equality.

The rank of a centred matrix is at most n - 1, so **d_k = n - 1 suffices for every P**, and for almost every P (in
Lebesgue measure) it is needed: the sharp threshold is n - 1, not n. Where X has a lower rank, logits have to lie in its
column space on both sides as well, and `required_head_dim` says whether any choice of c does that.

Matrices are arrays or nested lists of real, finite numbers; anything else is a ``ValueError`` that names the argument.
Whole numbers are taken as float64. Half precision is computed with in float32 and judged by its own rounding.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from theory.rank._checks import Known, distributions, nonnegative, whole
from theory.rank._checks import matrix as checked_matrix


class HeadWeights(NamedTuple):
    """Projections of one head: ``query`` and ``key``, both ``(d, d_k)``."""

    query: np.ndarray
    key: np.ndarray


def softmax(logits: ArrayLike) -> Float[np.ndarray, "n s"]:
    """Softmax along the rows of ``(n, s)`` logits, in their precision (float32 for half precision).

    Raises:
        ValueError: unless they are a matrix of finite numbers.
    """
    values = checked_matrix("logits", logits).values
    shifted = np.exp(values - values.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def head_pattern(inputs: ArrayLike, query: ArrayLike, key: ArrayLike) -> Float[np.ndarray, "n n"]:
    """The pattern of a head: ``softmax(X W_q (X W_k)^T / sqrt(d_k))``.

    Args:
        inputs: X, ``(n, d)``.
        query: W_q, ``(d, d_k)``.
        key: W_k, likewise.

    Raises:
        ValueError: other shapes, or numbers that are not finite.
    """
    x, w_q, w_k = (
        checked_matrix(name, value).values
        for name, value in (("inputs", inputs), ("query", query), ("key", key))
    )
    wanted = x.shape[1], w_q.shape[1]
    for name, weights in (("query", w_q), ("key", w_k)):
        if weights.shape != wanted:
            raise ValueError(f"{name}: expected shape (d, d_k) = {wanted}, got {weights.shape}")
    return softmax((x @ w_q) @ (x @ w_k).T / np.sqrt(wanted[1]))


def centred(logits: ArrayLike) -> Float[np.ndarray, "n s"]:
    """Logits of the same pattern, of mean 0 in every row: ``S C``. No logits of that pattern have a lower rank.

    Raises:
        ValueError: unless they are a matrix of finite numbers.
    """
    values = checked_matrix("logits", logits).values
    return values - values.mean(axis=-1, keepdims=True)


def centred_log(pattern: ArrayLike) -> Float[np.ndarray, "n s"]:
    """``log P C`` of an ``(n, s)`` pattern, in float64.

    Raises:
        ValueError: unless all entries are positive and every row sums to 1.
    """
    return centred(np.log(distributions("pattern", pattern).values))


def numerical_rank(matrix: ArrayLike, tolerance: float | None = None) -> int:
    """Singular values above ``tolerance``; by default max(n, s) rounding errors of the largest one, in its dtype.

    Raises:
        ValueError: unless it is a matrix of finite numbers, and the tolerance one that is not negative.
    """
    return _rank(checked_matrix("matrix", matrix), tolerance)


def _rank(known: Known, tolerance: float | None) -> int:
    values = np.linalg.svd(known.values, compute_uv=False)
    if tolerance is None:
        tolerance = float(max(known.values.shape) * known.eps * values.max())
    return int((values > nonnegative("tolerance", tolerance)).sum())


def log_tolerance(pattern: ArrayLike) -> float:
    """Below this, singular values of ``log P C`` may be rounding errors of P (in the dtype that P comes in).

    An entry of P is off by some ``eps (1 + |log P|)`` times itself, so its logarithm by as much; n such errors in a
    row, all of one sign, make a singular value of n times that. We allow 4.

    Raises:
        ValueError: unless P is positive with rows that sum to 1.
    """
    values, eps = distributions("pattern", pattern)
    return 4 * max(values.shape) * eps * (1 + float(np.abs(np.log(values)).max()))


def required_head_dim(
    pattern: ArrayLike,
    inputs: ArrayLike | None = None,
    *,
    tolerance: float | None = None,
) -> int | None:
    """The smallest head size that produces a pattern exactly (theorem, ours; see the module).

    Args:
        pattern: P, ``(n, n)``, positive, rows sum to 1. Its dtype tells how exactly it is known.
        inputs: X, ``(n, d)``; None for any X of rank n.
        tolerance: singular values up to this count as zero; not negative, finite; `log_tolerance` of P if None.

    Returns:
        0 to n - 1 (0 for uniform attention), or None where no head of any size does it on these inputs.

    Raises:
        ValueError: a pattern that is no positive row-stochastic square matrix, inputs of another length, or what is
            not finite.
    """
    tolerance = log_tolerance(pattern) if tolerance is None else nonnegative("tolerance", tolerance)
    logits = _logits(pattern, inputs, tolerance)
    return None if logits is None else numerical_rank(logits, tolerance)


def representable(
    pattern: ArrayLike,
    head_dim: int,
    inputs: ArrayLike | None = None,
    *,
    tolerance: float | None = None,
) -> bool:
    """Whether a head of size ``head_dim`` produces a pattern exactly; arguments as in `required_head_dim`.

    Raises:
        ValueError: for bad arguments.
    """
    whole("head_dim", head_dim, 1)
    required = required_head_dim(pattern, inputs, tolerance=tolerance)
    return required is not None and required <= head_dim


def representing_weights(
    pattern: ArrayLike,
    inputs: ArrayLike,
    head_dim: int,
    *,
    tolerance: float | None = None,
) -> HeadWeights:
    """Weights of a head that produces a pattern exactly (up to rounding).

    The logits ``S`` of least rank, ``S = A B^T`` by their singular value decomposition with ``n`` by ``d_k`` factors
    (columns of zeros where d_k is more than needed), and ``W_q = d_k^(1/4) X^+ A``, ``W_k = d_k^(1/4) X^+ B``.

    Raises:
        ValueError: where there are none (`representable`), or for bad arguments.
    """
    whole("head_dim", head_dim, 1)
    x = checked_matrix("inputs", inputs).values
    required = required_head_dim(pattern, inputs, tolerance=tolerance)
    if required is None:
        rank = np.linalg.matrix_rank(x)
        raise ValueError(
            f"inputs: expected rows that some head turns into this pattern, got rank {rank} for {len(x)} tokens"
        )
    if not max(1, required) <= head_dim:
        raise ValueError(f"head_dim: expected at least {max(1, required)} for this pattern, got {head_dim}")
    logits = _logits(pattern, inputs, np.inf)
    assert logits is not None  # no condition is checked at an infinite tolerance
    left, right = factors(logits, head_dim)
    back = head_dim**0.25 * np.linalg.pinv(x.astype(np.float64))
    return HeadWeights(back @ left, back @ right)


def factors(logits: ArrayLike, head_dim: int) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, "s k"]]:
    """Queries A and keys B with ``A B^T`` the best approximation of rank ``head_dim`` in the Frobenius norm.

    Singular values are shared evenly between the two; surplus columns are zero.

    Raises:
        ValueError: unless the logits are a matrix of finite numbers, and ``head_dim`` is 0 or more.
    """
    checked = checked_matrix("logits", logits).values
    left, values, right = np.linalg.svd(checked, full_matrices=False)
    kept = min(whole("head_dim", head_dim, 0), len(values))
    share = np.sqrt(values[:kept])
    query, key = (np.zeros((size, head_dim)) for size in checked.shape)
    query[:, :kept], key[:, :kept] = left[:, :kept] * share, right[:kept].T * share
    return query, key


def published_counter_example() -> tuple[Float[np.ndarray, "2 1"], Float[np.ndarray, "2 2"]]:
    """Inputs and a pattern of two tokens that no head of size d = 1 produces (Bhojanapalli et al. 2020, Theorem 1).

    ``X = [1, 0]`` and, transposed into rows, ``P = [[.5, .5], [.75, .25]]``: the second token's query is 0, so its
    row is uniform whatever the weights. The reason is X, whose rank is 1, not the head size: on two independent
    tokens a head of size 1 = n - 1 produces this P, as it does any.
    """
    return np.array([[1.0], [0.0]]), np.array([[0.5, 0.5], [0.75, 0.25]])


def _logits(pattern: ArrayLike, inputs: ArrayLike | None, tolerance: float) -> np.ndarray | None:
    """The logits of least rank that P has on these inputs; None if there are none.

    With Π the projection on the column space of X, logits have to satisfy ``Π S = S = S Π`` as well. If 1 lies in
    that space, then ``S = log P C`` is the choice of least rank, and there is none unless it satisfies both. If not,
    ``S Π = S`` leaves one choice of c: ``log P (1 - Π 1) / |1 - Π 1|^2``, negative.
    """
    log = np.log(distributions("pattern", pattern).values)
    n = len(log)
    if log.shape != (n, n):
        raise ValueError(f"pattern: expected a square matrix, got shape {log.shape}")
    if inputs is None:
        return centred(log)
    x, eps = checked_matrix("inputs", inputs)
    if len(x) != n:
        raise ValueError(f"inputs: expected {n} rows, one a token, got {len(x)}")
    basis, values, _ = np.linalg.svd(x.astype(np.float64), full_matrices=False)
    basis = basis[:, values > max(x.shape) * eps * values.max()]
    if basis.shape[1] == n:
        return centred(log)
    outside = 1 - basis @ basis.sum(axis=0)
    if np.abs(outside).max() <= n * eps:
        logits = centred(log)
    else:
        logits = log - (log @ outside / (outside @ outside))[:, None]
    left = logits - basis @ (basis.T @ logits)
    right = logits - (logits @ basis) @ basis.T
    return None if max(np.linalg.norm(left, 2), np.linalg.norm(right, 2)) > tolerance else logits
