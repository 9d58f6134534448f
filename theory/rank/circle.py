"""Any permutation with heads of size 2: points on a circle, the logits it takes, and where arithmetic ends it.

Which token a head attends most is another question than the whole pattern, and rank answers it differently. With
``d_k = 1`` a query scores keys by ``u v_j``: only the keys of the largest and the smallest v are ever first, so two
distinct targets at most. With ``d_k = 2`` *any* permutation can be had: key j at angle 2 pi j / n of a circle, query
i at the angle of its target. Then the target's logit leads by ``beta (1 - cos(2 pi / n))``, where beta is the product
of the two radii, the largest logit. All other weights sum to at most ``miss`` once beta is about
``n^2 / (2 pi^2) ln(2 / miss)`` (`circle_scale` has it exactly): neighbours two and more steps away hardly count, so the
logarithm does not grow with n. No other arrangement in the plane needs much less (`planar_gap`, a theorem). Finite
precision ends it at long lengths (`guaranteed_length`).
"""

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import logsumexp

from theory.rank._checks import nonnegative, whole


def circle(
    targets: ArrayLike, num_keys: int | None = None
) -> tuple[Float[np.ndarray, "n 2"], Float[np.ndarray, "s 2"]]:
    """Unit queries and keys: query i points at key ``targets[i]`` (construction, ours).

    Multiply the logits by `circle_scale`. Targets need not be different.

    Args:
        targets: ``(n,)`` whole numbers: the key that each query is to attend.
        num_keys: s; as many as queries if None.

    Raises:
        ValueError: a target that is no key.
    """
    wanted = np.asarray(targets)
    if wanted.ndim != 1 or (wanted.size and wanted.dtype.kind not in "iu"):
        raise ValueError(
            f"targets: expected a row of whole numbers, got {wanted.dtype} of shape {wanted.shape}"
        )
    wanted = wanted.astype(np.int64)
    num_keys = len(wanted) if num_keys is None else whole("num_keys", num_keys, 1)
    if len(wanted) and not 0 <= wanted.min() <= wanted.max() < num_keys:
        raise ValueError(f"targets: expected keys 0 to {num_keys - 1}, got {wanted.min()} to {wanted.max()}")
    angles = 2 * np.pi * np.arange(num_keys) / max(1, num_keys)
    keys = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    return keys[wanted], keys


def circle_kl(num_keys: int, scale: float) -> float:
    """``-ln`` of the target's weight, in nats: what the construction is from a permutation, exactly (theorem, ours).

    ``ln sum_j exp(-beta (1 - cos(2 pi j / n)))``; beta is ``scale``.

    Raises:
        ValueError: fewer than 2 keys, or a scale that is negative or not finite.
    """
    whole("num_keys", num_keys, 2)
    nonnegative("scale", scale)
    halves = np.pi * np.arange(1, num_keys) / num_keys
    return float(np.log1p(np.exp(-2 * scale * np.sin(halves) ** 2).sum()))


def circle_scale(num_keys: int, miss: float) -> float:
    """The largest logit beta with which the others' weights sum to exactly ``miss`` (theorem, ours).

    For n >= 3 between ``ln((2 - 2 miss) / miss)`` and ``ln((2 - miss) / miss)``, both over ``1 - cos(2 pi / n)``: the
    two neighbours alone; and, as ``1 - cos(2 pi j / n)`` is at least j times that up to j = n / 2 (``sin(jx) / sin(x)``
    falls in x, to at least sqrt(j) at ``x = pi / (2 j)``), a geometric series on either side.

    Args:
        num_keys: n, at least 2.
        miss: in (0, 1 - 1/n), where 1 - 1/n is what uniform attention misses.

    Raises:
        ValueError: outside these.
    """
    whole("num_keys", num_keys, 2)
    _check_miss(miss, 1 - 1 / num_keys, f"{1 - 1 / num_keys:g}")
    leads = 2 * np.sin(np.pi * np.arange(1, num_keys) / num_keys) ** 2
    wanted = np.log(miss) - np.log1p(
        -miss
    )  # the others' weights over the target's, whose logarithms never underflow

    def excess(scale: float) -> float:
        return float(logsumexp(-scale * leads) - wanted)

    high = 1.001 * (np.log(2 - miss) - np.log(miss)) / gap(num_keys) + 1e-12
    if excess(0.0) <= 0:
        return 0.0  # uniform attention up to rounding
    root: Any = brentq(excess, 0.0, high)
    return float(root)


def gap(num_keys: int) -> float:
    """``1 - cos(2 pi / n)``: by how much the circle's target leads, for a largest logit of 1.

    Raises:
        ValueError: fewer than 2 keys.
    """
    whole("num_keys", num_keys, 2)
    return float(2 * np.sin(np.pi / num_keys) ** 2)  # 1 - cos would cancel at large n


def planar_gap(num_keys: int, bound: float) -> float:
    """The most by which all targets can lead at d_k = 2: ``B (1 - cos(2 pi / n))`` (theorem, ours).

    For any queries and keys in the plane with ``|q_i| |k_j| <= B``, and n queries with n different targets among n
    keys, some target's logit leads some other key's by no more than this; the circle attains it.

    Proof. Let all targets lead. Every key is then a strict maximum of some linear function over the keys: they are the
    n corners of a convex polygon, in a disc of the keys' largest norm r. At the corner k with neighbours a and b, a
    query of norm B / r leads both by at most B / r times the distance of k to the segment ab. With edges of lengths
    x, y at k, exterior angle t, and alpha + beta = t the angles of the triangle at a and b, that distance is at most
    ``sqrt(x y) sin(t / 2)``: the altitude is ``x sin(alpha) = y sin(beta)``, of geometric mean at most that; and if
    alpha > pi / 2 the distance is x = y sin(beta) / sin(alpha) and ``sin(beta) <= sin(alpha) sin(t / 2)^2``. The least
    of the n leads is at most their geometric mean, at most (perimeter / n) times the geometric mean of
    the sin(t / 2). The t / 2 sum to pi, so the latter is at most sin(pi / n) (ln sin is concave), and the perimeter of
    a convex n-gon in the disc at most ``2 n r sin(pi / n)``. Together ``2 B sin(pi / n)^2``.

    Raises:
        ValueError: fewer than 2 keys, or a bound that is negative or not finite.
    """
    return nonnegative("bound", bound) * gap(num_keys)


def least_planar_scale(num_keys: int, miss: float) -> float:
    """No head of size 2 gives every target of a permutation 1 - ``miss`` with ``|q_i| |k_j|`` below this (theorem).

    A target of weight 1 - miss leads each other key by at least ``ln((1 - miss) / miss)``; divide by `gap`
    (`planar_gap`, ours). Below miss = 1/2, where that is positive. The circle needs at most
    ``ln((2 - miss) / miss) / ln((1 - miss) / miss)`` times as much: 1.15 times at miss = 0.01.

    Raises:
        ValueError: unless ``0 < miss < 1/2`` and n >= 2.
    """
    _check_miss(miss, 0.5, "1/2")
    return float((np.log1p(-miss) - np.log(miss)) / gap(num_keys))


def guaranteed_length(storage_bits: int, arithmetic_bits: int = 24) -> int:
    """The longest permutation that the circle surely gets right, argmax by argmax, in finite precision (theorem, ours).

    Every coordinate of queries and keys is rounded to a significand of ``storage_bits`` (float32: 24, float16: 11,
    bfloat16: 8), the two products of a logit, their sum and its scaling to ``arithmetic_bits``. With unit roundoffs
    u and v (2^-bits) the logits, over their largest, are off by at most ``(1 + u)^2 (1 + v)^3 - 1``, and two of them
    keep their order where `gap` is more than twice that. Above this length it may still come out right.
    At least 1: with so few bits that not even two keys are told apart, one still is.

    Raises:
        ValueError: unless both are whole numbers of 1 to 1000 bits.
    """
    for name, bits in (("storage_bits", storage_bits), ("arithmetic_bits", arithmetic_bits)):
        whole(name, bits, 1, 1000)
    u, v = 2.0**-storage_bits, 2.0**-arithmetic_bits
    error = 2 * np.expm1(2 * np.log1p(u) + 3 * np.log1p(v))
    return int(np.ceil(np.pi / np.arcsin(np.sqrt(min(1.0, error / 2)))) - 1)


def _check_miss(miss: Any, most: float, said: str) -> None:
    number = np.asarray(miss)
    if number.ndim or number.dtype.kind not in "iuf" or not 0 < number < most:
        raise ValueError(f"miss: expected a number between 0 and {said}, got {miss!r}")
