"""`theory.rank.circle`: the construction, its scale, the theorem on the plane, finite precision."""

import inspect
import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from theory._numbers import positive
from theory.rank import (
    circle,
    circle_kl,
    circle_scale,
    gap,
    guaranteed_length,
    least_planar_scale,
    mean_kl,
    planar_gap,
    softmax,
)


def test_the_circle_serves_every_permutation_of_four_and_five():
    for n in (4, 5):
        scale = circle_scale(n, 0.01)
        for order in itertools.permutations(range(n)):
            query, key = circle(np.array(order))
            weights = softmax(scale * query @ key.T)
            np.testing.assert_allclose(weights[np.arange(n), order], 0.99, rtol=1e-10)
            assert (weights.argmax(axis=1) == order).all()


@pytest.mark.parametrize("n", [2, 3, 7, 64, 1000])
@pytest.mark.parametrize("miss", [0.3, 1e-3])
def test_the_scale_is_exact_and_lies_between_its_bounds(n, miss):
    scale = circle_scale(n, miss)
    query, key = circle(np.arange(n))
    weights = softmax(scale * query[:1] @ key.T)
    np.testing.assert_allclose(1 - weights[0, 0], miss, rtol=1e-8)
    hard = np.eye(n)[:1]
    np.testing.assert_allclose(circle_kl(n, scale), mean_kl(hard, weights), rtol=1e-7)
    low = np.log(min(2, n - 1) * (1 - miss) / miss) / gap(n)
    high = np.log((2 - miss) / miss) / gap(n)
    assert low * (1 - 1e-9) <= scale <= high * (1 + 1e-9)
    assert least_planar_scale(n, miss) <= scale * (1 + 1e-9)
    ratio = np.log((2 - miss) / miss) / np.log((1 - miss) / miss)
    assert scale <= ratio * least_planar_scale(n, miss) * (1 + 1e-9)


def test_a_step_of_j_is_at_least_j_steps():
    for n in range(2, 60):
        steps = np.arange(1, n // 2 + 1)
        assert (2 * np.sin(np.pi * steps / n) ** 2 >= steps * gap(n) * (1 - 1e-12)).all()


def test_the_scale_grows_like_the_square_of_the_length():
    for n in (1000, 4000):
        assert gap(n) == pytest.approx(2 * np.pi**2 / n**2, rel=1e-5)
        assert circle_scale(2 * n, 0.01) / circle_scale(n, 0.01) == pytest.approx(4, rel=1e-4)


def _leads(query, key):
    """By how much each query's own key leads the others, one row a case."""
    scores = np.einsum("bik,bjk->bij", query, key)
    own = np.einsum("bii->bi", scores).copy()
    np.einsum("bii->bi", scores)[:] = -np.inf
    return own - scores.max(axis=-1)


@pytest.mark.parametrize("n", [3, 4, 5, 8])
def test_no_keys_in_the_plane_lead_by_more_than_those_on_the_circle(n):
    """Best unit queries for random keys: the theorem's bound on the least lead, from near the circle and from afar.

    The best query of a key is a vertex of two half planes or the direction of the nearest point of a segment; a fine
    grid of directions misses at most (pi / 4000)^2 of a lead of at most 2.
    """
    rng = np.random.default_rng(n)
    angles = 2 * np.pi * np.arange(n) / n
    grid = np.linspace(0, 2 * np.pi, 4001)
    directions = np.stack([np.cos(grid), np.sin(grid)], axis=-1)
    best = -np.inf
    for noise in (1e-3, 1e-2, 0.1, 0.5):
        for _ in range(20):
            turned = angles + noise * rng.standard_normal(n)
            key = np.stack([np.cos(turned), np.sin(turned)], axis=-1)
            key *= (1 - noise * rng.random((n, 1))) if rng.random() < 0.5 else 1
            scores = directions @ key.T
            leads = []
            for target in range(n):
                others = np.delete(scores, target, axis=1).max(axis=1)
                leads.append((scores[:, target] - others).max())
            best = max(best, min(leads))
    assert best <= planar_gap(n, 1.0)
    assert best > 0.97 * planar_gap(n, 1.0)  # the search came near it


def test_the_circle_attains_the_bound_and_random_heads_stay_below():
    rng = np.random.default_rng(0)
    for n in (2, 5, 11):
        query, key = circle(np.arange(n))
        np.testing.assert_allclose(_leads(3.0 * query[None], key[None]), planar_gap(n, 3.0), rtol=1e-9)
        vectors = rng.standard_normal((2, 500, n, 2))
        vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
        assert _leads(*vectors).min(axis=1).max() <= planar_gap(n, 1.0) * (1 + 1e-12)


def test_one_dimension_serves_two_distinct_targets():
    """All sign patterns and orders of five keys on a line: only the ends are ever first."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        key = rng.standard_normal(5)
        firsts = {int(np.argmax(u * key)) for u in rng.standard_normal(50)}
        assert firsts <= {int(key.argmin()), int(key.argmax())}


def _rounded(vectors, bits):
    """Round to significands of so many bits."""
    mantissa, exponent = np.frexp(vectors)
    return np.ldexp(np.round(mantissa * 2**bits) / 2**bits, exponent)


@pytest.mark.parametrize("bits", [5, 8, 11])
def test_up_to_the_guaranteed_length_every_target_leads_and_far_above_some_do_not(bits):
    longest = guaranteed_length(bits)
    assert longest >= 8

    def all_right(n):
        query, key = (_rounded(x, bits) for x in circle(np.arange(n)))
        return (_leads(query[None], key[None]) > 0).all()

    assert all(all_right(n) for n in range(2, longest + 1))
    assert not all(all_right(n) for n in range(4 * longest, 4 * longest + 8))


@pytest.mark.parametrize("n", [2, 3, 10, 1000])
def test_scales_of_the_least_and_the_largest_miss(n):
    """Down to the least number of float64 the scale is that of the two neighbours; up to uniform it falls to 0."""
    neighbours = min(2, n - 1)
    for miss in (1e-12, 1e-300, 1e-310, 5e-324):
        alone = (np.log(neighbours) - np.log(miss)) / gap(n)
        assert circle_scale(n, miss) == pytest.approx(alone, rel=1e-9)
        assert circle_scale(n, miss) >= least_planar_scale(n, miss) * (1 - 1e-9) > 0
    most = 1 - 1 / n
    close = [circle_scale(n, miss) for miss in (0.9 * most, most * (1 - 1e-9), np.nextafter(most, 0))]
    assert close[0] > close[1] > 0.0 == pytest.approx(close[2], abs=1e-12)
    np.testing.assert_allclose(circle_kl(n, close[1]), -np.log1p(-most * (1 - 1e-9)), rtol=1e-12)


def test_numbers_of_half_precision_are_numbers():
    assert positive("miss", np.array(0.125, jnp.bfloat16)) == 0.125


@pytest.mark.parametrize("function", [circle_scale, least_planar_scale])
@pytest.mark.parametrize(
    "miss", ["a", None, [0.1], np.array([0.1, 0.2]), True, np.nan, np.inf, -0.1, 0.0, 0.95, 0.1j]
)
def test_a_miss_that_is_no_number_between_its_ends_is_refused_by_name(function, miss):
    with pytest.raises(ValueError, match=r"^miss: expected a number between 0 and"):
        inspect.unwrap(function)(10, miss)  # without the checks of the tests, as in use


def test_the_guaranteed_length_by_hand():
    # bfloat16: errors of 2 (2 / 256 + ...) = 0.0157, and 1 - cos(2 pi / 35) = 0.0161, 1 - cos(2 pi / 36) = 0.0152
    assert guaranteed_length(8) == 35
    assert gap(36) < 2 * ((1 + 2**-8) ** 2 - 1) < gap(35)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="targets: expected keys 0 to 2, got 0 to 3"):
        circle(np.array([0, 3, 1]))
    with pytest.raises(ValueError, match=r"miss: expected a number between 0 and 0\.75"):
        circle_scale(4, 0.75)
    with pytest.raises(ValueError, match="num_keys: expected at least 2, got 1"):
        gap(1)
    with pytest.raises(ValueError, match="miss: expected a number between 0 and 1/2"):
        least_planar_scale(4, 0.5)
