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
Lebesgue measure) it is needed: the sharp threshold is n - 1, not n.

*Theorem (ours), X of any rank.* With ``A = log P C``, P is the pattern of a head on X if and only if the columns of A
lie in the column space of X and its rows in that of [X, 1]; then of those with ``d_k >= rank(A)``, as above. Proof: the
logits are the S with ``S = Π S = S Π``, Π the projection on the column space. If they are of P, then ``A = S C``, so
rank(S) >= rank(A), the columns are as said, and ``A u = S u = 0`` for every u orthogonal to X and to 1. Conversely, if
1 lies in the column space, ``S = A``. If not, let ``o = 1 - Π 1``, so that ``1^T o = |o|^2``, and
``S = A (I - o 1^T / |o|^2)``: A up to a constant a row, columns as those of A, ``S o = 0``, and of no higher rank.

Matrices are arrays or nested lists of real, finite numbers; anything else is a ``ValueError`` that names the argument.
All is computed in float64. Results go out in the dtype that came in (whole numbers: float64), rounded once, and what
comes in is judged by the rounding of its own dtype.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from theory.rank._checks import Known, distributions, nonnegative, result_dtype, whole
from theory.rank._checks import matrix as checked_matrix
from theory.rank._inputs import fits, regauged, spans


class HeadWeights(NamedTuple):
    """Projections of one head: ``query`` and ``key``, both ``(d, d_k)``."""

    query: np.ndarray
    key: np.ndarray


def softmax(logits: ArrayLike) -> Float[np.ndarray, "n s"]:
    """Softmax along the rows of ``(n, s)`` logits.

    Raises:
        ValueError: unless they are a matrix of finite numbers.
    """
    known = checked_matrix("logits", logits)
    return _softmax(known.values).astype(known.dtype)


def head_pattern(inputs: ArrayLike, query: ArrayLike, key: ArrayLike) -> Float[np.ndarray, "n n"]:
    """The pattern of a head: ``softmax(X W_q (X W_k)^T / sqrt(d_k))``.

    Args:
        inputs: X, ``(n, d)``.
        query: W_q, ``(d, d_k)``.
        key: W_k, likewise.

    Raises:
        ValueError: other shapes, or numbers (or logits) that are not finite.
    """
    known = [
        checked_matrix(name, value) for name, value in (("inputs", inputs), ("query", query), ("key", key))
    ]
    x, w_q, w_k = (one.values for one in known)
    wanted = x.shape[1], w_q.shape[1]
    for name, weights in (("query", w_q), ("key", w_k)):
        if weights.shape != wanted:
            raise ValueError(f"{name}: expected shape (d, d_k) = {wanted}, got {weights.shape}")
    with np.errstate(over="ignore", invalid="ignore"):
        logits = (x @ w_q) @ (x @ w_k).T / float(np.sqrt(wanted[1]))
    if not np.isfinite(logits).all():
        raise ValueError("inputs, query, key: expected logits within float64, got some beyond it")
    return _softmax(logits).astype(result_dtype(*known))


def centred(logits: ArrayLike) -> Float[np.ndarray, "n s"]:
    """Logits of the same pattern, of mean 0 in every row: ``S C``. No logits of that pattern have a lower rank.

    Raises:
        ValueError: unless they are a matrix of finite numbers.
    """
    known = checked_matrix("logits", logits)
    return _centred(known.values).astype(known.dtype)


def centred_log(pattern: ArrayLike) -> Float[np.ndarray, "n s"]:
    """``log P C`` of an ``(n, s)`` pattern.

    Raises:
        ValueError: unless all entries are positive and every row sums to 1.
    """
    known = distributions("pattern", pattern)
    return _centred(np.log(known.values)).astype(known.dtype)


def numerical_rank(matrix: ArrayLike, tolerance: float | None = None) -> int:
    """Singular values above ``tolerance``; by default max(n, s) rounding errors of the largest one, in its dtype.

    Raises:
        ValueError: unless it is a matrix of finite numbers, and the tolerance one that is not negative.
    """
    known = checked_matrix("matrix", matrix)
    return _rank(known, np.linalg.svd(known.values, compute_uv=False), tolerance)


def _rank(known: Known, values: np.ndarray, tolerance: float | None = None) -> int:
    if tolerance is None:
        tolerance = float(max(known.values.shape) * known.eps * values.max())
    return int((values > nonnegative("tolerance", tolerance)).sum())


def log_tolerance(pattern: ArrayLike) -> float:
    """Below this, singular values of ``log P C`` may be rounding errors of P (in the dtype that P comes in).

    An entry of P is off by some ``eps (1 + |log P|)`` times itself (its logit was rounded, and so was its exponential),
    or by the least positive number where it is too small for the exponents of its dtype; its logarithm by as much. All
    of these together have at most the spectral norm of their Frobenius norm, if all signs conspire. We allow twice.

    Raises:
        ValueError: unless P is positive with rows that sum to 1.
    """
    return _log_tolerance(distributions("pattern", pattern))


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
        tolerance: by how much log P may be off, in spectral norm: singular values of its centred log up to this count
            as zero, and what X leaves out is judged by it; not negative, finite; `log_tolerance` of P if None.

    Returns:
        0 to n - 1 (0 for uniform attention), or None where no head of any size does it on these inputs. Both as far as
        rounding lets one tell: the least size of a pattern within the error of P, on inputs within that of X. What
        nearly dependent columns of X amplify into that error (`theory.rank._inputs`) is allowed for. Where 1 is in the
        column space of X up to the rounding of X (such as a large common offset in low precision) it is taken to lie
        in it: give X in float64 where its numbers are exact. Logits far larger than those of the centred log, which
        cancel in the softmax, leave P a larger error than its dtype tells: give a ``tolerance`` then.

    Raises:
        ValueError: a pattern that is no positive row-stochastic square matrix, inputs of another length, or what is
            not finite.
    """
    known = distributions("pattern", pattern)
    tolerance = _log_tolerance(known) if tolerance is None else nonnegative("tolerance", tolerance)
    log = _square_log(known)
    if inputs is not None and not fits(log, spans(_rows(inputs, len(log))), tolerance):
        return None
    return _rank(known, np.linalg.svd(log, compute_uv=False), tolerance)


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

    The centred log as ``A B^T`` by its singular value decomposition with ``n`` by ``d_k`` factors (columns of zeros
    where d_k is more than needed), B moved by the constant that X asks for (the theorem of the module), and
    ``W_q = d_k^(1/4) X^+ A``, ``W_k = d_k^(1/4) X^+ B``. The nearer 1 is to the column space of X without lying in it,
    the larger the weights.

    Raises:
        ValueError: where there are none (`representable`), or for bad arguments.
    """
    whole("head_dim", head_dim, 1)
    required = required_head_dim(pattern, inputs, tolerance=tolerance)
    known = distributions("pattern", pattern)
    log = _square_log(known)
    x = _rows(inputs, len(log))
    allowed = spans(x)
    if required is None:
        rank = len(log) - allowed.outside.shape[1]
        raise ValueError(
            f"inputs: expected rows that some head turns into this pattern, got rank {rank} for {len(log)} tokens"
        )
    if not max(1, required) <= head_dim:
        raise ValueError(f"head_dim: expected at least {max(1, required)} for this pattern, got {head_dim}")
    left, right = _factors(log, head_dim)
    back, dtype = head_dim**0.25 * allowed.inverse, result_dtype(known, x)
    return HeadWeights((back @ left).astype(dtype), (back @ regauged(right, allowed)).astype(dtype))


def factors(logits: ArrayLike, head_dim: int) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, "s k"]]:
    """Queries A and keys B with ``A B^T`` the best approximation of rank ``head_dim`` in the Frobenius norm.

    Singular values are shared evenly between the two; surplus columns are zero.

    Raises:
        ValueError: unless the logits are a matrix of finite numbers, and ``head_dim`` is 0 or more.
    """
    known = checked_matrix("logits", logits)
    query, key = _factors(known.values, whole("head_dim", head_dim, 0))
    return query.astype(known.dtype), key.astype(known.dtype)


def published_counter_example() -> tuple[Float[np.ndarray, "2 1"], Float[np.ndarray, "2 2"]]:
    """Inputs and a pattern of two tokens that no head of size d = 1 produces (Bhojanapalli et al. 2020, Theorem 1).

    ``X = [1, 0]`` and, transposed into rows, ``P = [[.5, .5], [.75, .25]]``: the second token's query is 0, so its
    row is uniform whatever the weights. The reason is X, whose rank is 1, not the head size: on two independent
    tokens a head of size 1 = n - 1 produces this P, as it does any.
    """
    return np.array([[1.0], [0.0]]), np.array([[0.5, 0.5], [0.75, 0.25]])


def _softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def _centred(logits: np.ndarray) -> np.ndarray:
    return logits - logits.mean(axis=-1, keepdims=True)


def _log_tolerance(known: Known) -> float:
    errors = known.eps * (1 - np.log(known.values)) + known.least / known.values
    return 2 * float(np.linalg.norm(errors))


def _square_log(known: Known) -> np.ndarray:
    """``log P C`` of a square pattern."""
    n, num_keys = known.values.shape
    if n != num_keys:
        raise ValueError(f"pattern: expected a square matrix, got shape {known.values.shape}")
    return _centred(np.log(known.values))


def _rows(inputs: ArrayLike, n: int) -> Known:
    known = checked_matrix("inputs", inputs)
    if len(known.values) != n:
        raise ValueError(f"inputs: expected {n} rows, one a token, got {len(known.values)}")
    return known


def _factors(logits: np.ndarray, head_dim: int) -> tuple[np.ndarray, np.ndarray]:
    left, values, right = np.linalg.svd(logits, full_matrices=False)
    kept = min(head_dim, len(values))
    share = np.sqrt(values[:kept])
    query, key = (np.zeros((size, head_dim)) for size in logits.shape)
    query[:, :kept], key[:, :kept] = left[:, :kept] * share, right[:kept].T * share
    return query, key
