"""Checked numbers in, plain numbers out: what every bound does with its arguments."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Shaped

Scalar = int | float | np.integer | np.floating
Numbers = Scalar | Shaped[np.ndarray, "..."]
"""What a bound accepts: one number, or an array that broadcasts against the other arguments."""
Result = float | Float[np.ndarray, "..."]
"""What a bound returns: a Python float where every argument was a scalar, else a float64 array."""
Values = Result
"""What is computed with in between: NumPy may turn an array without axes into a scalar."""


def checked(
    name: str,
    value: Numbers,
    expected: str,
    accepts: Callable[[Float[np.ndarray, "..."]], Bool[np.ndarray, "..."] | np.bool],
) -> Float[np.ndarray, "..."]:
    """Float64 copy of ``value``.

    Args:
        name: argument name for the message.
        value: one number or an array of any shape; booleans are not numbers here.
        expected: what the message says was expected.
        accepts: elementwise condition. It must be false at NaN, as every comparison is.

    Raises:
        ValueError: an element is not a number, or is not accepted.
    """
    raw = np.asarray(value)
    if not any(jnp.issubdtype(raw.dtype, kind) for kind in (jnp.integer, jnp.floating)):
        raise ValueError(f"{name}: expected {expected}, got {value!r}")
    array = raw.astype(np.float64)
    good = np.asarray(accepts(array))
    if not good.all():
        raise ValueError(f"{name}: expected {expected}, got {array[~good].flat[0]:g}")
    return array


def integer(name: str, value: Numbers, minimum: int = 1) -> Float[np.ndarray, "..."]:
    """Whole numbers from ``minimum`` to 2^53 (where float64 still holds each of them)."""
    expected = "a positive integer" if minimum == 1 else f"an integer of at least {minimum}"
    return checked(name, value, expected, lambda x: (x >= minimum) & (x <= 2.0**53) & (np.floor(x) == x))


def integers(**arguments: Numbers) -> dict[str, Float[np.ndarray, "..."]]:
    """Positive integers by the names of the arguments that they came by."""
    return {name: integer(name, value) for name, value in arguments.items()}


def positive(name: str, value: Numbers) -> Float[np.ndarray, "..."]:
    """Finite numbers above zero."""
    return checked(name, value, "a positive finite number", lambda x: (x > 0) & (x < np.inf))


def nonnegative(name: str, value: Numbers) -> Float[np.ndarray, "..."]:
    """Finite numbers not below zero."""
    return checked(name, value, "a finite number of at least 0", lambda x: (x >= 0) & (x < np.inf))


def broadcast(**arguments: Float[np.ndarray, "..."]) -> list[Float[np.ndarray, "..."]]:
    """The arrays in one common shape, in the order given.

    Raises:
        ValueError: the shapes do not broadcast; the message names the arguments.
    """
    shapes = [value.shape for value in arguments.values()]
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        names = ", ".join(arguments)
        raise ValueError(f"{names}: expected shapes that broadcast, got {shapes}") from None
    return [np.broadcast_to(value, shape) for value in arguments.values()]


def edge_count(
    num_edges: Float[np.ndarray, "..."], num_items: Float[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    """``num_edges`` where no graph of ``num_items`` without self loops is too small for it.

    Raises:
        ValueError: more than ``num_items (num_items - 1)`` edges.
    """
    bad = num_edges > num_items * (num_items - 1)
    if bad.any():
        items, edges = num_items[bad].flat[0], num_edges[bad].flat[0]
        raise ValueError(
            f"num_edges: expected at most num_items * (num_items - 1) = {items * (items - 1):g}, "
            f"got {edges:g}"
        )
    return num_edges


def result(array: Values) -> Result:
    """A Python float in place of an array without axes."""
    return array if isinstance(array, np.ndarray) and array.ndim else float(array)


def solve_increasing(
    function: Callable[[Values], Values], target: Values, low: Values, high: Values
) -> Values:
    """Elementwise ``x`` in ``[low, high]`` at which the increasing ``function`` reaches ``target``.

    Regula falsi with halved weights (Illinois), every third step a bisection, down to the last bits of
    float64; ``low`` or ``high`` where the target lies outside.
    """
    value_low, value_high = function(low) - target, function(high) - target
    low = np.where(value_high <= 0, high, low)
    high = np.where(value_low >= 0, np.minimum(low, high), high)
    side = np.zeros(np.shape(low))
    for turn in range(200):
        middle = 0.5 * (low + high)
        if np.all(high - low <= 4e-16 * np.abs(middle)):
            break
        span = value_high - value_low
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            guess = (low * value_high - high * value_low) / span
        x = np.where((guess > low) & (guess < high) & (turn % 3 < 2), guess, middle)
        value = function(x) - target
        below, above = value <= 0, value >= 0
        # The end that stays twice running counts half.
        value_high = np.where(above, value, np.where(below & (side < 0), 0.5 * value_high, value_high))
        value_low = np.where(below, value, np.where(above & (side > 0), 0.5 * value_low, value_low))
        low, high = np.where(below, x, low), np.where(above, x, high)
        side = np.where(below, -1.0, 1.0)
    return 0.5 * (low + high)
