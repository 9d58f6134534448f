"""Tests of paired differences between seeds: exact sign flips, and Holm's correction for several comparisons."""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction


def sign_flip_p(differences: Sequence[int]) -> float:
    """Two-sided p-value of a sum of paired differences: under how many flips of their signs it is as large.

    The unit is what is independent, such as a seed: where several problems share a seed, its difference is of all of
    them together, so that they are flipped together. If the two sides can be exchanged in every unit, all ``2 ** n``
    assignments of signs are equally likely; they are counted, all of them, without drawing any. No p-value is below
    ``2 / 2 ** n``.

    Args:
        differences: one whole number for each unit.

    Returns:
        Share of the assignments whose sum is at least as far from 0 as the observed one.

    Raises:
        ValueError: if there are none, or some are not whole numbers.
    """
    if not differences or any(int(value) != value for value in differences):
        raise ValueError(f"differences: expected whole numbers, one or more, got {list(differences)}")
    sums = Counter({0: 1})
    for value in differences:
        flipped: Counter[int] = Counter()
        for total, ways in sums.items():
            flipped[total + int(value)] += ways
            flipped[total - int(value)] += ways
        sums = flipped
    observed = abs(sum(differences))
    far = sum(ways for total, ways in sums.items() if abs(total) >= observed)
    return float(Fraction(far, 2 ** len(differences)))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for being some of several, in their order, by Holm: they need not be independent.

    Below a level they are so at once with that probability at most, if there is nothing to find anywhere.

    Raises:
        ValueError: if one is not in [0, 1].
    """
    if not all(0 <= p <= 1 for p in p_values):
        raise ValueError(f"p_values: expected numbers in [0, 1], got {list(p_values)}")
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected
