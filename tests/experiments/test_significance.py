"""Exact tests over seeds: against enumeration, and at the level they promise."""

import itertools

import numpy as np
import pytest

from experiments.significance import holm, sign_flip_p

SIGNS = np.array(list(itertools.product([-1, 1], repeat=8)))


@pytest.mark.parametrize("seed", range(5))
def test_all_flips_are_counted(seed):
    differences = np.random.default_rng(seed).integers(-3, 5, size=8)
    as_far = np.abs(SIGNS @ differences) >= abs(differences.sum())
    assert sign_flip_p(differences.tolist()) == as_far.mean()


def test_a_seed_is_one_observation_however_many_problems_share_it():
    """Sixteen wins to four are one thing where each has a seed of its own, another where eight seeds share them."""
    alone = sign_flip_p([1] * 16 + [-1] * 4)
    assert alone == pytest.approx(0.0118, abs=1e-4)  # the sign test
    assert sign_flip_p([0, 5, 4, 1, 1, 2, 0, -1]) == 0.125
    assert sign_flip_p([12]) == 1
    assert sign_flip_p([6] * 8) == 2 / 2**8  # as small as it gets
    assert sign_flip_p([0] * 8) == 1


def test_it_rejects_as_rarely_as_it_says():
    """Seeds that differ a lot, arms that do not: p <= 0.05 in no more than one case of twenty, over all signs."""
    sizes = np.array([7, 6, 5, 3, 2, 1, 1, 1])
    rejected = np.mean([sign_flip_p((signs * sizes).tolist()) <= 0.05 for signs in SIGNS])
    assert 0.02 < rejected <= 0.05


def test_many_seeds_are_counted_exactly():
    assert sign_flip_p([1] * 64) == 2.0**-63


def test_holm_multiplies_the_smallest_by_all_the_next_by_one_less():
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.5, 0.4]) == [0.8, 0.8]
    assert holm([0.01]) == [0.01]
    assert holm([]) == []


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="differences: expected whole numbers"):
        sign_flip_p([])
    with pytest.raises(ValueError, match="differences: expected whole numbers"):
        sign_flip_p([0.5])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="p_values: expected numbers in"):
        holm([1.5])
