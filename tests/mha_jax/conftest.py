"""Settings of the tests of attention beyond those of every test."""

import jax
import pytest


@pytest.fixture
def strict():
    """No silent promotion of dtypes, and an error where a NaN comes out of a compiled function or an operation."""
    with jax.numpy_dtype_promotion("strict"), jax.debug_nans(True):
        yield
