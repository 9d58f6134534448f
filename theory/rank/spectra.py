"""Singular values of logits and of their softmax, side by side.

"The attention matrix has rank at most d_k" is false. The *logits* have: they are a product of an ``n x d_k`` and a
``d_k x n`` matrix. Their softmax is ``exp`` of each entry, rows rescaled, and exp of each entry does not keep a low
rank. Already at d_k = 1 it is of full rank, for all queries a_i that differ and all keys b_j that differ:
``exp(a_i b_j)`` is a strictly totally positive kernel (theorem, classical: Karlin 1968; from memory), so every minor,
and with it the determinant, is positive once rows and columns are sorted; rescaling rows by positive numbers changes
no rank. In floating point many of these singular values may lie below rounding, which is another statement.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from theory.rank._checks import matrix
from theory.rank.exact import numerical_rank, softmax


class Spectra(NamedTuple):
    """Singular values, largest first, of one head's ``logits`` and of their softmax, the ``weights``."""

    logits: np.ndarray
    weights: np.ndarray
    logits_rank: int
    weights_rank: int


def spectra(logits: ArrayLike) -> Spectra:
    """Both spectra of ``(n, s)`` logits, with ranks as float64 tells them (`numerical_rank`'s own tolerance).

    Raises:
        ValueError: unless the logits are a matrix of finite numbers.
    """
    wide = matrix("logits", logits).values.astype(np.float64)
    weights = softmax(wide)
    values = [np.linalg.svd(array, compute_uv=False) for array in (wide, weights)]
    return Spectra(values[0], values[1], numerical_rank(wide), numerical_rank(weights))
