"""`theory.spectra`: ranks with known values, and singular values without the product."""

import numpy as np
import pytest

from theory.spectra import effective_rank, product_singular_values, stable_rank


def test_singular_values_are_those_of_the_product():
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((2, 3, 11, 4))
    dense = np.linalg.svd(left @ np.swapaxes(right, 1, 2), compute_uv=False)
    found = product_singular_values(left, right)
    assert found.shape == (3, 4)
    np.testing.assert_allclose(found, dense[:, :4], rtol=1e-12)
    assert (dense[:, 4:] < 1e-12 * dense[:, :1]).all()
    np.testing.assert_allclose(product_singular_values(left, left), np.linalg.svd(left)[1] ** 2, rtol=1e-12)


def test_ranks_of_known_spectra():
    values = np.array([[2.0, 2, 2, 2], [3, 0, 0, 0], [1, 1, 0, 0], [4, 2, 2, 0]])
    entropy = 0.5 * np.log(2) + 2 * 0.25 * np.log(4)
    np.testing.assert_allclose(effective_rank(values), [4, 1, 2, np.exp(entropy)], rtol=1e-12)
    np.testing.assert_allclose(stable_rank(values), [4, 1, 2, 1.5], rtol=1e-12)
    for measure in (effective_rank, stable_rank):
        np.testing.assert_allclose(measure(1e-200 * values), measure(values), rtol=1e-12)


@pytest.mark.parametrize("values", [[[0.0, 0.0]], [[1.0, -1.0]], [[np.nan]]])
def test_what_is_no_spectrum_is_refused(values):
    for measure in (effective_rank, stable_rank):
        with pytest.raises(ValueError, match="singular_values: expected"):
            measure(np.array(values))


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"left, right: expected one shape \(..., d, k\) with d >= k"):
        product_singular_values(np.ones((3, 5)), np.ones((3, 5)))
