"""The logits that inputs of any rank allow, as far as rounding lets one tell."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from theory.rank._checks import Known


class Spans(NamedTuple):
    """Where logits of inputs X have to lie, with how exactly X says so.

    Attributes:
        inverse: pseudo-inverse of X.
        outside: an orthonormal basis of what is orthogonal to the columns of X.
        ones: the part of 1 in that; None where 1 lies in the column space.
        lean: sine of the angle by which the column space may be off, for the rounding of X: its error over the least
            singular value that counts (Wedin). From 1 on X says nothing.
    """

    inverse: Float[np.ndarray, "d n"]
    outside: Float[np.ndarray, "n r"]
    ones: Float[np.ndarray, " n"] | None
    lean: float


def spans(inputs: Known) -> Spans:
    """Column space of X and what is left of 1 beside it.

    Every entry may be off by two rounding errors; singular values up to the Frobenius norm of these count as zero, and
    X is off by them too.
    """
    x = inputs.values
    left, values, right = np.linalg.svd(x)
    floor = 2 * inputs.eps * float(np.linalg.norm(x))
    rank = int((values > floor).sum())
    dropped = values[rank] if rank < len(values) else 0.0
    lean = (dropped + floor) / values[rank - 1] if rank else np.inf if x.any() else 0.0
    outside = left[:, rank:]
    ones = outside @ outside.sum(axis=0)
    apart = float(np.linalg.norm(ones)) > np.sqrt(len(x)) * lean
    inverse = (right[:rank].T / values[:rank]) @ left[:, :rank].T
    return Spans(inverse, outside, ones if apart else None, float(lean))


def regauged(keys: Float[np.ndarray, "n k"], allowed: Spans) -> Float[np.ndarray, "n k"]:
    """Keys of the same pattern, all logits of which vanish on the part of 1 that X lacks."""
    ones = allowed.ones
    return keys if ones is None else keys - (ones @ keys / (ones @ ones))[None, :]


def fits(centred: Float[np.ndarray, "n n"], allowed: Spans, tolerance: float) -> bool:
    """Whether ``A = log P C``, off by ``tolerance`` in spectral norm, gives logits that the inputs allow.

    Both conditions of the theorem (`theory.rank.exact`) are judged by the error of A and by what the lean of the
    column space makes of logits S of that size: neither divides by the distance of 1 from the column space.
    """
    outside, ones = allowed.outside, allowed.ones
    if not outside.size or allowed.lean >= 1:
        return True
    columns = outside.T @ centred
    rows, logits = centred @ outside, centred
    if ones is not None:
        along = outside.T @ ones / np.linalg.norm(ones)
        rows = rows - np.outer(rows @ along, along)
        logits = centred - (centred @ ones / (ones @ ones))[:, None]
    size = float(np.linalg.norm(logits, 2))
    most = max(float(np.linalg.norm(part, 2)) for part in (columns, rows))
    return most <= tolerance + allowed.lean * size
