"""`mha_jax.masks` against definitions written as loops, and their refusals."""

import inspect

import jax.numpy as jnp
import numpy as np
import pytest

from mha_jax import causal_mask, padding_mask, window_mask


@pytest.mark.parametrize(("num_queries", "num_keys"), [(3, 5), (5, 3), (1, 7), (7, 1), (0, 3), (3, 0)])
@pytest.mark.parametrize("offset", [0, 2, -2])
def test_causal_and_window_masks_are_their_definitions(num_queries, num_keys, offset):
    pairs = [[(t, s) for s in range(num_keys)] for t in range(num_queries)]

    def expected(rule):
        return np.array([[rule(s - t - offset) for t, s in row] for row in pairs], bool).reshape(
            num_queries, num_keys
        )

    found = causal_mask(num_queries, num_keys, query_offset=offset)
    assert found.dtype == bool
    np.testing.assert_array_equal(found, expected(lambda distance: distance <= 0))
    found = window_mask(num_queries, num_keys, (2, 1), query_offset=offset)
    assert found.dtype == bool
    np.testing.assert_array_equal(found, expected(lambda distance: -2 <= distance <= 1))
    found = window_mask(num_queries, num_keys, 1, query_offset=offset)
    np.testing.assert_array_equal(found, expected(lambda distance: abs(distance) <= 1))


def test_padding_mask():
    found = padding_mask(jnp.array([[0, 2], [5, 9]]), 5)
    assert found.dtype == bool
    np.testing.assert_array_equal(found.sum(-1), [[0, 2], [5, 5]])
    np.testing.assert_array_equal(found[0, 1], [True, True, False, False, False])
    np.testing.assert_array_equal(padding_mask(jnp.array(2), 3), [True, True, False])


@pytest.mark.parametrize(
    ("function", "args", "offset", "named"),
    [
        (causal_mask, (-1, 3), 0, "num_queries"),
        (causal_mask, (3, 2.0), 0, "num_keys"),
        (causal_mask, (3, True), 0, "num_keys"),
        (causal_mask, (3, 2), 1.5, "query_offset"),
        (window_mask, (3, 2, -1), 0, "window"),
        (window_mask, (3, 2, (1, -1)), 0, "window"),
        (window_mask, (3, 2, (1, 2, 3)), 0, "window"),
        (window_mask, (3, 2, True), 0, "window"),
    ],
)
def test_bad_arguments_are_refused_by_name(function, args, offset, named):
    with pytest.raises(ValueError, match=rf"^{named}: expected .*, got "):
        inspect.unwrap(function)(*args, query_offset=offset)


def test_a_bad_padding_mask_is_refused_by_name():
    with pytest.raises(ValueError, match=r"^lengths: expected integers, got float"):
        inspect.unwrap(padding_mask)(jnp.array([1.0]), 3)
    with pytest.raises(ValueError, match=r"^size: expected .*, got -1"):
        inspect.unwrap(padding_mask)(jnp.array([1]), -1)
