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
from theory.rank.exact import softmax


class Spectra(NamedTuple):
    """Singular values, largest first, of one head's ``logits`` and of their softmax, the ``weights``."""

    logits: np.ndarray
    weights: np.ndarray
    logits_rank: int
    weights_rank: int


def spectra(logits: ArrayLike) -> Spectra:
    """Both spectra of ``(n, s)`` logits, in their dtype, by which ranks are judged (`numerical_rank`'s own tolerance).

    Raises:
        ValueError: unless the logits are a matrix of finite numbers.
    """
    known = matrix("logits", logits)
    values = [np.linalg.svd(array, compute_uv=False) for array in (known.values, softmax(known.values))]
    # The weights are computed in float64, but from logits that are known in their own dtype.
    floor = max(known.values.shape) * known.eps
    ranks = [int((found > floor * found.max()).sum()) for found in values]
    return Spectra(values[0].astype(known.dtype), values[1].astype(known.dtype), ranks[0], ranks[1])
