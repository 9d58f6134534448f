"""Where a phase transition lies: the 50% point of success over seeds, and the search that brackets it.

The threshold is the grid position (a head_dim; for a ceiling, a number of items) at which the probability
over seeds that a run succeeds crosses 1/2. Three rules keep it honest:

- The grid limits what is known. No fitted transition is steeper than the grid spacing resolves, and no
  interval is narrower than the bracket: the neighbouring positions between which success crosses 1/2.
- Seeds may be shared. When the same seed draws the same task at every position, results at different
  positions are correlated, and counting them as independent makes intervals too narrow. By default they
  count as fully shared.
- "Not reached" is a result (runs were made, at no position does half of them succeed); "not run" is none.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike
from scipy.optimize import brentq, isotonic_regression
from scipy.special import expit

_HALF_CHI2_95 = 1.9207294103470617  # half of the 95% quantile of chi-squared with one degree of freedom
_LOGIT_90 = math.log(9.0)  # a logistic curve of slope s rises from 10% to 90% over 2 log(9) / s
_REACH = 3  # positions on either side of the crossing that the logistic curve is fitted to


@dataclass(frozen=True)
class Threshold:
    """A 50% point with its 95% interval.

    Attributes:
        estimate: the grid position at which success crosses 1/2; None if not reached or not run.
        ci_low: lower end of the interval (0 where nothing limits it from below); None as for `estimate`.
        ci_high: upper end; None as for `estimate`, or where nothing limits it from above.
        slope: slope of the logit of success per unit of position, positive in either direction; None where
            no curve was fitted.
        status: "reached" if half of the runs or more succeed at some position, "not_reached" if at none,
            "not_run" without data.
        capped: whether success is 1/2 or more (after pooling) at *all* positions run. The crossing lies at
            `estimate`, the last position on that side, or beyond: "at most" `estimate` (with `decreasing`,
            "at least").
    """

    estimate: float | None
    ci_low: float | None
    ci_high: float | None
    slope: float | None
    status: Literal["reached", "not_reached", "not_run"]
    capped: bool = False

    def scaled(self, factor: float | int) -> "Threshold":
        """The same threshold in other units: all positions times `factor` (heads, to turn head_dim into D_K).

        Raises:
            ValueError: a factor that is not positive and finite.
        """
        if not (math.isfinite(factor) and factor > 0):
            raise ValueError(f"factor: expected a positive finite number, got {factor}")

        def times(value: float | None) -> float | None:
            return None if value is None else value * factor

        return replace(
            self,
            estimate=times(self.estimate),
            ci_low=times(self.ci_low),
            ci_high=times(self.ci_high),
            slope=None if self.slope is None else self.slope / factor,
        )


def fit_threshold(
    x: ArrayLike,
    successes: ArrayLike,
    trials: ArrayLike,
    *,
    decreasing: bool = False,
    shared_seeds: bool = True,
) -> Threshold:
    """The position at which success crosses 1/2, with a 95% interval, from counts (an estimate; ours).

    *Bracket.* An isotonic (monotone, pooled) fit of the success rates goes from below 1/2 to 1/2 or more
    between two neighbouring positions. The estimate is mu, moved between the last position where that fit is
    below 1/2 and the first where it is above, if it lies outside. So where success jumps from nothing to
    everything between neighbours, the estimate is their middle. The *first bracket* is the lowest position
    whose own rate is 1/2 or more, with the one before it; it differs from the isotonic one only if the rates
    are not monotone.

    *Model.* Near the bracket (the three positions on either side, so that a far plateau does not count)
    success at position x has probability `expit(s (x - mu))`. The slope s is bounded: the rise from 10% to
    90% takes at least the width of the bracket, and at most the larger of the position itself and twice the
    range fitted. mu and s maximise the binomial likelihood within these bounds.

    *Interval.* Profile likelihood of mu at 95%, joined with both brackets, never below 0. With
    `shared_seeds` the log-likelihood is divided by J / H >= 1, the variance of its score if seed i has one
    threshold at all positions, over that with independent runs (the usual correction of a composite
    likelihood). Both are approximations; the tests measure their coverage by simulation.

    *Special cases.* All positions succeed: `capped`, see `Threshold`; the interval then reaches down to 0
    (with `decreasing`: `ci_high` is None). Some position succeeds half of the time but the isotonic fit does
    not (success at a small position, failure at all larger ones): the crossing is interpolated in the first
    bracket and the interval reaches at least from there to the last position.

    Args:
        x: positive positions; repeated ones are added up. Order does not matter.
        successes: runs that succeeded at each position. A diverged run is a run that did not succeed.
        trials: runs at each position; positions without runs are ignored.
        decreasing: whether success falls with x (a ceiling in the number of items). All is mirrored: the
            estimate is where success falls through 1/2, and "lowest" above reads "highest".
        shared_seeds: whether runs at different positions share their seeds, hence their tasks.

    Raises:
        ValueError: lengths that differ, positions that are not positive and finite, counts that are not
            integers with `0 <= successes <= trials`.
    """
    positions, hits, runs = _merged(x, successes, trials)
    if positions.size == 0:
        return Threshold(None, None, None, None, "not_run")
    sign = -1.0 if decreasing else 1.0
    order = np.argsort(sign * positions)
    fit = _fit_increasing(sign * positions[order], hits[order], runs[order], shared_seeds)
    if fit is None:
        return Threshold(None, None, None, None, "not_reached")
    estimate, low, high, slope, capped = fit
    if decreasing:
        low, high = -high, -low
    ends = [max(low, 0.0) if math.isfinite(low) else 0.0, high if math.isfinite(high) else None]
    return Threshold(sign * estimate, ends[0], ends[1], slope, "reached", capped)


def search_threshold(
    evaluate: Callable[[int], tuple[int, int]],
    *,
    start: float | int | None,
    lowest: int,
    highest: int,
    decreasing: bool = False,
    spread: float | int = 0.15,
) -> dict[int, tuple[int, int]]:
    """Bracket the 50% point with few evaluations, around a prediction.

    The crossing is taken to lie around `start` with a Cauchy distribution in log x of half-width `spread`,
    and the next position is the one that comes closest to halving the probability that is left: close to the
    prediction it bisects, and where the prediction is wrong the heavy tail makes its steps grow. It ends
    with two neighbours x and x + 1 between which success crosses 1/2, or with the end of the grid. The
    positions asked for, and their order, are a function of the arguments and the answers alone, so a run
    that is resumed asks for the same ones.

    Without a prediction (`start` None or infinite: predicted to be out of reach), `highest` is asked for
    first; a grid that never succeeds then costs one evaluation, as it does when the prediction is beyond
    `highest`.

    Args:
        evaluate: runs one batch of seeds at a position and returns `(successes, trials)`; called at most once
            for a position. A diverged run is a trial that did not succeed.
        start: the predicted crossing, in units of the position, need not be an integer nor within the grid.
        lowest: first position of the grid, at least 1.
        highest: last position of the grid.
        decreasing: whether success falls with x.
        spread: relative error expected of the prediction.

    Returns:
        The answers by position, in the order in which they were asked for.

    Raises:
        ValueError: an empty grid, a start or spread that is not positive, or an answer that is not
            `0 <= successes <= trials` with `trials >= 1`.
    """
    if not 1 <= lowest <= highest:
        raise ValueError(f"lowest, highest: expected 1 <= lowest <= highest, got {lowest} and {highest}")
    if start is not None and not start > 0:
        raise ValueError(f"start: expected a positive number or None, got {start}")
    if not (math.isfinite(spread) and spread > 0):
        raise ValueError(f"spread: expected a positive finite number, got {spread}")
    grid = np.arange(lowest, highest + 1)
    centre = min(max(highest if start is None else start, lowest), highest)
    # Probability that the crossing lies at or below each position.
    below = 0.5 + np.arctan(np.log(grid / centre) / spread) / np.pi
    results: dict[int, tuple[int, int]] = {}
    left, right = -1, grid.size  # the crossing lies between these indices into the grid
    left_mass, right_mass = 0.0, 1.0
    while right - left > 1:
        distance = np.abs(below[left + 1 : right] - (left_mass + right_mass) / 2)
        index = left + 1 + int(np.argmin(np.round(distance, 12)))
        successes, trials = evaluate(int(grid[index]))
        if not (trials >= 1 and 0 <= successes <= trials):
            raise ValueError(
                f"evaluate({grid[index]}): expected 0 <= successes <= trials and trials >= 1, "
                f"got ({successes}, {trials})"
            )
        results[int(grid[index])] = (int(successes), int(trials))
        if (2 * successes >= trials) != decreasing:
            right, right_mass = index, float(below[index])
        else:
            left, left_mass = index, float(below[index])
    return results


def _merged(
    x: ArrayLike, successes: ArrayLike, trials: ArrayLike
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct positions with runs in ascending order, and the counts of repeated ones added up."""
    arrays = {
        "x": np.asarray(x, np.float64),
        "successes": np.asarray(successes),
        "trials": np.asarray(trials),
    }
    shapes = [array.shape for array in arrays.values()]
    if len(shapes[0]) != 1 or len(set(shapes)) != 1:
        raise ValueError(f"x, successes, trials: expected sequences of one length, got shapes {shapes}")
    positions, hits, runs = (array.astype(np.float64) for array in arrays.values())
    if not (np.isfinite(positions) & (positions > 0)).all():
        raise ValueError(f"x: expected positive finite positions, got {positions.tolist()}")
    if not ((hits == np.round(hits)) & (runs == np.round(runs)) & (hits >= 0) & (hits <= runs)).all():
        raise ValueError(
            "successes, trials: expected integers with 0 <= successes <= trials, "
            f"got {hits.tolist()} and {runs.tolist()}"
        )
    distinct, index = np.unique(positions[runs > 0], return_inverse=True)
    summed = [np.bincount(index, weights=w[runs > 0], minlength=distinct.size) for w in (hits, runs)]
    return distinct, summed[0], summed[1]


def _fit_increasing(
    z: Float64[np.ndarray, " n"],
    hits: Float64[np.ndarray, " n"],
    runs: Float64[np.ndarray, " n"],
    shared: bool,
) -> tuple[float, float, float, float | None, bool] | None:
    """Estimate, interval, slope and cap where success rises with the signed position z; None: not reached."""
    rates = hits / runs
    if not (2 * hits >= runs).any():
        return None
    first = int(np.argmax(2 * hits >= runs))
    pooled = isotonic_regression(rates, weights=runs).x
    # Means of a pool are rounded: a pool of exactly 1/2 counts as 1/2.
    upper, above = (int(np.searchsorted(pooled, level)) for level in (0.5 - 1e-12, 0.5 + 1e-12))
    capped = upper == 0
    if upper == z.size:
        below, at = max(first - 1, 0), first
        share = (0.5 - rates[below]) / (rates[at] - rates[below]) if at > below else 1.0
        estimate = float(z[below] + share * (z[at] - z[below]))
        return estimate, float(z[below]) if at > below else -math.inf, float(z[-1]), None, False

    # From here on only the positions near the crossing: a plateau far away must not move it.
    near = slice(max(upper - _REACH, 0), upper + _REACH)
    if capped:
        width = float(np.diff(z).min()) if z.size > 1 else abs(float(z[0]))
    else:
        width = float(z[upper] - z[upper - 1])
    longest = max(2 * float(np.ptp(z[near])), abs(float(z[upper])), width)
    slopes = (2 * _LOGIT_90 / longest, 2 * _LOGIT_90 / width)
    mu, slope, low, high = _profile_interval(z[near], hits[near], runs[near], slopes, 10 * longest, shared)
    if capped:
        return float(z[0]), -math.inf, max(high, float(z[0])), None, True
    estimate = min(max(mu, float(z[upper - 1])), float(z[min(above, z.size - 1)]))
    low = min(low, float(z[upper - 1]), float(z[first - 1]) if first else -math.inf)
    return estimate, low, max(high, estimate, float(z[upper]), float(z[first])), slope, False


def _profile_interval(
    z: Float64[np.ndarray, " n"],
    hits: Float64[np.ndarray, " n"],
    runs: Float64[np.ndarray, " n"],
    slopes: tuple[float, float],
    reach: float,
    shared: bool,
) -> tuple[float, float, float, float]:
    """Maximum of the likelihood (mu, slope) and the ends of the profile interval of mu, infinite if open.

    The profile has one peak (the log-likelihood is concave in slope and intercept, and what is allowed is
    convex there), and its derivative is that of the likelihood at the best slope, so all three are roots.
    Few points are left, and plain floats are faster than arrays of six.
    """
    points = list(zip(z.tolist(), hits.tolist(), runs.tolist(), strict=True))
    first, last = float(z[0]) - reach, float(z[-1]) + reach

    def excess(mu):  # successes beyond those expected: negative where mu is too small
        slope = _best_slope(mu, points, slopes)
        return sum(hit - run * (0.5 + 0.5 * math.tanh(0.5 * slope * (at - mu))) for at, hit, run in points)

    def likelihood(mu):
        slope = _best_slope(mu, points, slopes)
        logits = [(slope * (at - mu), hit, run) for at, hit, run in points]
        return sum(hit * t - run * (max(t, 0.0) + math.log1p(math.exp(-abs(t)))) for t, hit, run in logits)

    if excess(first) >= 0:
        mu = first
    elif excess(last) <= 0:
        mu = last
    else:
        mu = float(brentq(excess, first, last, xtol=1e-12 * reach))  # pyright: ignore[reportArgumentType]
    slope = _best_slope(mu, points, slopes)
    factor = _shared_seed_factor(mu, slope, z, runs) if shared else 1.0
    level = likelihood(mu) - _HALF_CHI2_95 * factor
    ends = [-math.inf, math.inf]
    for side, outside in enumerate((first, last)):
        if likelihood(outside) < level:
            end = brentq(lambda at: likelihood(at) - level, mu, outside, xtol=1e-12 * reach)
            ends[side] = float(end)  # pyright: ignore[reportArgumentType]
    return mu, slope, ends[0], ends[1]


def _best_slope(mu: float, points: list[tuple[float, float, float]], slopes: tuple[float, float]) -> float:
    """The slope within its bounds that makes the likelihood at mu largest.

    The log-likelihood is concave in the slope. Where its derivative has one sign a bound is best; otherwise
    Newton's method finds its root, with bisection where that would leave the interval that holds it.
    """
    arms = [(at - mu, hit, run) for at, hit, run in points]
    low, high = slopes
    slope = slopes[0]
    for step in range(100):
        gradient = curvature = 0.0
        for arm, hit, run in arms:
            p = 0.5 + 0.5 * math.tanh(0.5 * slope * arm)
            gradient += arm * (hit - run * p)
            curvature += run * arm * arm * p * (1 - p)
        if step == 0:
            if gradient <= 0:
                return slope
            slope = slopes[1]
            continue
        if step == 1 and gradient >= 0:
            return slope
        low, high = (slope, high) if gradient > 0 else (low, slope)
        newton = slope + gradient / curvature if abs(gradient) < slopes[1] * curvature else low
        before, slope = slope, newton if low < newton < high else (low + high) / 2
        if abs(slope - before) <= 1e-12 * slope:
            break
    return slope


def _shared_seed_factor(
    mu: float, slope: float, z: Float64[np.ndarray, " n"], runs: Float64[np.ndarray, " n"]
) -> float:
    """J / H: variance of the score if a seed has one threshold everywhere, over that of independent runs.

    With one threshold a seed, success at a position implies success at all larger ones: the covariance of
    the counts is the number of common seeds times `min(p_i, p_j) - p_i p_j`, which is the binomial variance
    for i = j.
    """
    p = expit(slope * (z - mu))
    common = np.minimum(runs[:, None], runs[None, :])
    covariance = common * (np.minimum(p[:, None], p[None, :]) - p[:, None] * p[None, :])
    independent = np.trace(covariance)
    return max(float(covariance.sum() / independent), 1.0) if independent > 0 else 1.0
