"""Winning heads, mutual information, principal angles: against enumeration, closed forms and draws."""

import numpy as np
import pytest
from scipy.linalg import subspace_angles

from theory.embeddings import gaussian_unit_norm
from theory.relations import (
    against_shuffled,
    counts_of,
    mean_overlap,
    normalised_mutual_information,
    principal_cosines,
    random_overlap,
    random_overlaps,
    winning_heads,
)


@pytest.mark.float64
def test_the_winner_has_the_best_score():
    rng = np.random.default_rng(0)
    x = gaussian_unit_norm(9, 5, rng)
    q, k = rng.standard_normal((2, 3, 5, 2))
    edges = np.array([[0, 3], [4, 4], [8, 1]])
    scores = np.stack([(x @ q[i]) @ (x @ k[i]).T for i in range(3)])
    expected = scores[:, edges[:, 0], edges[:, 1]].argmax(axis=0)
    assert winning_heads(x, q, k, edges).tolist() == expected.tolist()


def test_information_of_known_tables():
    assert normalised_mutual_information(np.array([[5, 0], [0, 7]])) == pytest.approx(1)
    assert normalised_mutual_information(np.array([[2, 4], [3, 6]])) == pytest.approx(0, abs=1e-12)
    assert normalised_mutual_information(np.array([[3]])) == 0
    # One label splits one of two equal classes in half: I = ln 2, H = ln 2 and 1.5 ln 2.
    assert normalised_mutual_information(np.array([[2, 0, 0], [0, 1, 1]])) == pytest.approx(2 / 2.5)
    assert counts_of(np.array([0, 2, 2]), np.array([1, 0, 0])).tolist() == [[0, 1], [0, 0], [2, 0]]


def test_shuffles_know_what_chance_gives():
    """p-values of independent labels are even: of 200, 5% are below 1/20; four standard deviations of that share."""
    rng = np.random.default_rng(1)
    p = [
        against_shuffled(rng.integers(3, size=40), rng.integers(3, size=40), 39, rng).p_value
        for _ in range(200)
    ]
    assert np.mean(np.array(p) <= 0.05) <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / 200)
    assert np.mean(p) == pytest.approx(0.5, abs=4 * np.sqrt(1 / 12 / 200) + 1 / 40)
    labels = np.repeat([0, 1, 2], 20)
    found = against_shuffled(labels, labels[::-1], 50, rng)
    assert found.value == pytest.approx(1)
    assert found.p_value == pytest.approx(1 / 51)
    assert 0 < found.mean < found.high < 0.3


def test_cosines_are_those_of_the_principal_angles():
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((7, 3)), rng.standard_normal((7, 2))
    np.testing.assert_allclose(principal_cosines(a, b), np.cos(np.sort(subspace_angles(a, b))), atol=1e-12)
    np.testing.assert_allclose(principal_cosines(a, a @ rng.standard_normal((3, 3))), 1, atol=1e-7)
    eye = np.eye(6)
    assert mean_overlap(np.stack([eye[:, :3], eye[:, 3:]])) == pytest.approx(0, abs=1e-12)
    assert mean_overlap(np.stack([eye[:, :3], eye[:, 1:4], eye[:, 3:]])) == pytest.approx(
        (2 / 3 + 0 + 1 / 3) / 3
    )


@pytest.mark.parametrize(("d", "k"), [(10, 2), (9, 6)])
def test_random_subspaces_overlap_as_predicted(d, k):
    drawn = random_overlaps(2, d, k, 400, np.random.default_rng(3))
    assert drawn.mean() == pytest.approx(random_overlap(d, k), abs=4 * drawn.std() / 20)


def test_refuses():
    with pytest.raises(ValueError, match="table: expected counts"):
        normalised_mutual_information(np.zeros((2, 2), np.int64))
    with pytest.raises(ValueError, match="count: expected a positive integer, got 0"):
        against_shuffled(np.zeros(2, np.int64), np.zeros(2, np.int64), 0, np.random.default_rng(0))
    with pytest.raises(ValueError, match="weights: expected two heads or more"):
        mean_overlap(np.ones((1, 4, 2)))
