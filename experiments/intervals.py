"""Intervals of differences, and what they decide: yes, no, or None where they leave it open.

A 95% interval of a difference that holds both what is claimed and its contrary decides nothing. Overlap of two
intervals is no such test: with two means of equal error it asks for 1.4 times the difference. Every interval is of one
comparison; none is widened for how many others are made beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from scipy import stats


class Interval(NamedTuple):
    """A number and its interval."""

    value: float
    low: float
    high: float


def student(values: Sequence[float]) -> Interval:
    """The mean with Student's 95% interval; of one value without ends that tell anything (infinite ones)."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return Interval(mean, -math.inf, math.inf)
    half = float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))
    return Interval(mean, mean - half, mean + half)


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Interval | None:
    """Mean difference ``first - second`` over shared seeds, with Student's 95% interval of the differences.

    It is right whether or not what the seeds share (here the order of the data) moves both in the same direction.

    Args:
        first: results by seed.
        second: results by seed.

    Returns:
        None with fewer than two shared seeds.
    """
    both = sorted(set(first) & set(second))
    if len(both) < 2:
        return None
    return student([first[seed] - second[seed] for seed in both])


def welch(first: Sequence[float], second: Sequence[float]) -> Interval | None:
    """Difference of means ``first - second`` of independent samples, with Welch's 95% interval.

    Returns:
        None where one of them is a single value.
    """
    if min(len(first), len(second)) < 2:
        return None
    means = [math.fsum(values) / len(values) for values in (first, second)]
    found = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
    return Interval(means[0] - means[1], float(found.low), float(found.high))


def difference(first: Interval, second: Interval) -> Interval:
    """``first - second`` of independent estimates, by square-and-add: Newcombe's for shares with Wilson's intervals."""
    value = first.value - second.value
    low = value - math.hypot(first.value - first.low, second.high - second.value)
    high = value + math.hypot(first.high - first.value, second.value - second.low)
    return Interval(value, low, high)


def ratio(first: Interval, second: Interval) -> Interval:
    """``first / second`` of positive independent estimates: `difference` of their logarithms."""
    logs = [Interval(*(math.log(end) for end in value)) for value in (first, second)]
    return Interval(*(math.exp(end) for end in difference(logs[0], logs[1])))


def median_interval(values: Iterable[float]) -> tuple[float, float] | None:
    """A distribution-free interval of the median, of at least 95%: between order statistics, by the sign test.

    Returns:
        None with fewer than six values: not even their range is one of 95%.
    """
    ordered = sorted(values)
    outside = int(stats.binom.ppf(0.025, len(ordered), 0.5))  # so many may lie below the lower end
    if outside < 1:
        return None
    return ordered[outside - 1], ordered[-outside]


def signed(found: Interval, form: str = ".2f") -> str:
    """``+0.89 [+0.10, +1.68]``."""
    return f"{found.value:+{form}} [{found.low:+{form}}, {found.high:+{form}}]"


def at_most(limit: float, low: float | None, high: float | None) -> bool | None:
    """Whether a number with this interval is at most ``limit``; None where it lies on both sides, or is none."""
    if low is None or high is None:
        return None
    return True if high <= limit else False if low > limit else None


def at_least(limit: float, low: float | None, high: float | None) -> bool | None:
    """Whether a number with this interval is at least ``limit``; None where it lies on both sides, or is none."""
    if low is None or high is None:
        return None
    return True if low >= limit else False if high < limit else None


def above(limit: float, low: float | None, high: float | None) -> bool | None:
    """Whether a number with this interval is above ``limit``; None where it lies on both sides, or is none."""
    found = at_most(limit, low, high)
    return None if found is None else not found


def below(limit: float, low: float | None, high: float | None) -> bool | None:
    """Whether a number with this interval is below ``limit``; None where it lies on both sides, or is none."""
    found = at_least(limit, low, high)
    return None if found is None else not found


def every(found: Iterable[bool | None]) -> bool | None:
    """No where one is no, yes where all are yes, else open."""
    found = list(found)
    return False if False in found else None if None in found else True


def some(found: Iterable[bool | None]) -> bool | None:
    """Yes where one is yes, no where all are no, else open."""
    found = list(found)
    return True if True in found else None if None in found else False
