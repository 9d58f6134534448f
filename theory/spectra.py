"""How much of its rank a product of two thin matrices uses.

A head of key dimension ``k`` scores by ``W_q W_k^T``, ``d x d`` and of rank at most ``k``. Two measures of how evenly
its ``k`` singular values are used, both between 1 and ``k`` and free of scale:

- *effective rank*: the exponential of the entropy of ``sigma_i / sum sigma``;
- *stable rank*: ``sum sigma_i^2 / max sigma^2``, of the squares and of the largest alone: much smaller.

Float64 NumPy; the leading axes of every argument are a batch.
"""

import numpy as np
from jaxtyping import Float, Float64


def product_singular_values(
    left: Float[np.ndarray, "*batch d k"], right: Float[np.ndarray, "*batch d k"]
) -> Float64[np.ndarray, "*batch k"]:
    """Singular values of ``left @ right^T``, descending, without forming it: those of the product of the R factors.

    Raises:
        ValueError: fewer rows than columns, or shapes that differ.
    """
    if left.shape != right.shape or left.shape[-2] < left.shape[-1]:
        raise ValueError(
            f"left, right: expected one shape (..., d, k) with d >= k, got {left.shape}, {right.shape}"
        )
    triangles = [np.linalg.qr(side.astype(np.float64), mode="r") for side in (left, right)]
    return np.linalg.svd(triangles[0] @ np.swapaxes(triangles[1], -1, -2), compute_uv=False)


def effective_rank(singular_values: Float[np.ndarray, "*batch k"]) -> Float64[np.ndarray, "*batch"]:
    """Exponential of the entropy of the singular values' shares.

    Raises:
        ValueError: negative or undefined values, or none above zero.
    """
    values = _checked(singular_values)
    shares = values / values.sum(-1, keepdims=True)
    logs = np.log(np.where(shares > 0, shares, 1.0))
    return np.asarray(np.exp(-(shares * logs).sum(-1)))


def stable_rank(singular_values: Float[np.ndarray, "*batch k"]) -> Float64[np.ndarray, "*batch"]:
    """Squared Frobenius norm over squared spectral norm.

    Raises:
        ValueError: negative or undefined values, or none above zero.
    """
    values = _checked(singular_values)
    return np.asarray(np.square(values / values.max(-1, keepdims=True)).sum(-1))


def _checked(singular_values: np.ndarray) -> Float64[np.ndarray, "*batch k"]:
    values = np.asarray(singular_values, np.float64)
    if not (values.ndim and values.shape[-1] and (values >= 0).all() and (values.max(-1) > 0).all()):
        raise ValueError("singular_values: expected numbers of at least 0, one of each row above, got others")
    return values
