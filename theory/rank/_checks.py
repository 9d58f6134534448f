"""Checked arguments: what every function of the package accepts, and what it does with them."""

import functools
from collections.abc import Callable
from operator import index
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from theory._numbers import checked


class Known(NamedTuple):
    """A matrix to compute with, in float64, and how exactly its numbers are known.

    Attributes:
        values: in float64.
        dtype: that it came in, and that results go out in; float64 for whole numbers.
    """

    values: Float[np.ndarray, "n s"]
    dtype: np.dtype

    @property
    def eps(self) -> float:
        """Relative spacing of numbers in the dtype."""
        return float(jnp.finfo(self.dtype).eps)

    @property
    def least(self) -> float:
        """The least positive number of the dtype: how far apart numbers too small for its exponent are."""
        return float(jnp.finfo(self.dtype).smallest_subnormal)


def result_dtype(*matrices: Known) -> np.dtype:
    """What a result of several matrices goes out in: theirs, promoted as JAX does."""
    return np.dtype(functools.reduce(jnp.promote_types, [known.dtype for known in matrices]))


def matrix(
    name: str,
    value: ArrayLike,
    expected: str = "finite numbers",
    accepts: Callable[[Any], Any] = np.isfinite,
) -> Known:
    """A matrix of numbers, none of them a boolean or complex.

    Args:
        name: of the argument, for the message.
        value: array, or nested lists.
        expected: what the message says of its numbers.
        accepts: elementwise condition. It must be false at NaN and where there is no end.

    Raises:
        ValueError: naming the argument, what was expected and what came.
    """
    try:
        raw = np.asarray(value)
    except ValueError:
        raise ValueError(f"{name}: expected rows of one length, got {type(value).__name__}") from None
    whole = bool(jnp.issubdtype(raw.dtype, jnp.integer))
    if not whole and not jnp.issubdtype(raw.dtype, jnp.floating):
        raise ValueError(f"{name}: expected {expected}, got an array of {raw.dtype}")
    if raw.ndim != 2 or not raw.size:
        raise ValueError(f"{name}: expected a matrix with rows and columns, got shape {raw.shape}")
    dtype = np.dtype(np.float64) if whole or raw.dtype.itemsize >= 8 else raw.dtype
    values = raw.astype(np.float64)
    good = accepts(values)
    if not good.all():
        raise ValueError(f"{name}: expected {expected}, got {values[~good][0]:g} among them")
    return Known(values, dtype)


def distributions(name: str, value: ArrayLike, *, positive: bool = True) -> Known:
    """Rows that sum to 1, up to the rounding of the dtype that they come in, and to a tenth in any.

    Args:
        name: of the argument.
        value: ``(n, s)``.
        positive: whether zeros are refused.

    Raises:
        ValueError: as `matrix`, or a row does not sum to 1.
    """
    if positive:
        known = matrix(name, value, "positive numbers", lambda x: (x > 0) & (x < np.inf))
    else:
        known = matrix(name, value, "non-negative numbers", lambda x: (x >= 0) & (x < np.inf))
    error = float(np.abs(known.values.sum(axis=-1) - 1).max())
    if error > min(8 * known.values.shape[-1] * known.eps, 0.1):
        raise ValueError(f"{name}: expected rows that sum to 1, got a row off by {error:.1e}")
    return known


def whole(name: str, value: int, least: int, most: int | None = None) -> int:
    """A whole number from ``least`` on.

    Raises:
        ValueError: something else.
    """
    expected = "a positive integer" if least == 1 else f"at least {least}"
    if most is not None:
        expected = f"{least} to {most}"
    try:
        number = index(value)
    except TypeError:
        raise ValueError(f"{name}: expected {expected}, got {value!r}") from None
    if isinstance(value, bool) or number < least or (most is not None and number > most):
        raise ValueError(f"{name}: expected {expected}, got {value}")
    return number


def nonnegative(name: str, value: float) -> float:
    """A finite number that is not negative.

    Raises:
        ValueError: something else.
    """
    expected = "a non-negative number that is finite"
    array = checked(name, value, expected, lambda x: (x >= 0) & (x < np.inf))
    if array.ndim:
        raise ValueError(f"{name}: expected {expected}, got an array of shape {array.shape}")
    return float(array)
