"""Orders of pruning and the masks that come of them."""

import inspect

import numpy as np
import pytest

from mha_jax import analysis

SCORES = np.array([[0.3, 0.1, 0.6], [0.2, 0.2, 0.05]])


def test_the_least_score_goes_first_and_of_equals_the_earlier():
    np.testing.assert_array_equal(analysis.pruning_order(SCORES), [5, 1, 3, 4, 0, 2])


def test_the_best_of_every_layer_can_be_kept_for_last():
    order = analysis.pruning_order(SCORES, least_per_layer=1)
    np.testing.assert_array_equal(order, [5, 1, 4, 0, 3, 2])
    kept = analysis.kept_heads(order, 4, 2, 3)
    np.testing.assert_array_equal(kept, [[False, False, True], [True, False, False]])
    np.testing.assert_array_equal(
        analysis.pruning_order(SCORES, least_per_layer=3), analysis.pruning_order(SCORES)
    )


def test_scores_are_computed_anew_from_what_is_left():
    asked = []

    def score(kept):
        asked.append(kept.copy())
        # Head 2 matters until head 5 is gone; then it is what matters least.
        values = SCORES.copy()
        if not kept[1, 2]:
            values[0, 2] = 0
        return values

    order = analysis.recomputed_order(score, 2, 3, [0, 1, 3, 6])
    np.testing.assert_array_equal(order, [5, 2, 1, 3, 4, 0])
    assert [int(kept.sum()) for kept in asked] == [6, 5, 3]
    fixed = analysis.recomputed_order(lambda kept: SCORES, 2, 3, [0, 2, 6])
    np.testing.assert_array_equal(fixed, analysis.pruning_order(SCORES))


def test_a_random_order_has_every_head_once_and_every_place_alike():
    rng = np.random.default_rng(0)
    orders = np.array([analysis.random_order(2, 3, rng) for _ in range(600)])
    np.testing.assert_array_equal(np.sort(orders, axis=1), np.tile(np.arange(6), (600, 1)))
    first = np.bincount(orders[:, 0], minlength=6) / 600
    assert np.abs(first - 1 / 6).max() < 5 * np.sqrt(1 / 6 * 5 / 6 / 600)


@pytest.mark.parametrize(
    ("fraction", "total", "count"), [(0, 7, 0), (0.1, 270, 27), (0.1, 72, 8), (1, 72, 72), (0.3, 10, 3)]
)
def test_a_fraction_of_heads_is_rounded_up(fraction, total, count):
    assert analysis.num_pruned(fraction, total) == count


def test_masks_of_ablations():
    single = analysis.single_heads(2, 3)
    assert single.shape == (6, 2, 3)
    np.testing.assert_array_equal(single[4], [[True, True, True], [True, False, True]])
    one = analysis.all_but_one(2, 3)
    np.testing.assert_array_equal(one[4], [[True, True, True], [False, True, False]])
    np.testing.assert_array_equal(one[2], [[False, False, True], [True, True, True]])


@pytest.mark.parametrize(
    ("name", "function", "arguments"),
    [
        ("scores", analysis.pruning_order, (np.ones(3),)),
        ("scores", analysis.pruning_order, (np.full((2, 3), np.nan),)),
        ("counts", analysis.recomputed_order, (lambda kept: SCORES, 2, 3, [0, 3])),
        ("counts", analysis.recomputed_order, (lambda kept: SCORES, 2, 3, [0, 3, 2, 6])),
        ("score", analysis.recomputed_order, (lambda kept: SCORES.T, 2, 3, [0, 6])),
        ("fraction", analysis.num_pruned, (1.5, 10)),
        ("fraction", analysis.num_pruned, (True, 4)),
        ("total", analysis.num_pruned, (0.5, -4)),
        ("total", analysis.num_pruned, (0.5, 4.0)),
        ("count", analysis.kept_heads, (np.arange(3), 4, 2, 3)),
        ("count", analysis.kept_heads, (np.arange(3), 1.5, 2, 3)),
        ("order", analysis.kept_heads, (np.array([6]), 1, 2, 3)),
        ("order", analysis.kept_heads, ([0, 0, 0, 0], 2, 2, 3)),
        ("order", analysis.kept_heads, ([0, 1.5], 2, 2, 3)),
    ],
)
def test_errors_name_the_argument(name, function, arguments):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        inspect.unwrap(function)(*arguments)


def test_the_least_of_a_layer_is_at_most_all_of_it():
    with pytest.raises(ValueError, match="least_per_layer: expected an integer from 0 to 3, got 4"):
        analysis.pruning_order(SCORES, least_per_layer=4)
