"""What every measure of attention maps shares: arguments checked and brought to one shape, sums that add up."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

AnyArray = Array | np.ndarray
"""An array of JAX or NumPy."""
Scalar = float | np.floating | Float[Array, ""]
"""A number, known or traced."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Total:
    """A sum over tokens and the number of terms, so that a corpus can be measured piece by piece.

    Measures give one for every head of every example: ``(total_1 + total_2).mean()`` is over all tokens of both,
    ``total.over(axis)`` adds up an axis, and the mean over examples of each one's mean is ``total.mean().mean(axis)``.

    Attributes:
        total: sums (..., N).
        count: numbers of terms, of the same shape and dtype.
    """

    total: Any  # arrays, and while JAX transforms a tree whatever it puts in their place
    count: Any

    def __add__(self, other: "Total") -> "Total":
        """Sums and numbers of two pieces, of the same shape."""
        return Total(self.total + other.total, self.count + other.count)

    def over(self, axis: int | tuple[int, ...]) -> "Total":
        """Added up over an axis (or several), such as that of examples."""
        return Total(self.total.sum(axis), self.count.sum(axis))

    def mean(self) -> Float[Array, "..."]:
        """Sum over number; NaN where there are no terms."""
        some = self.count > 0
        return jnp.where(some, self.total / jnp.where(some, self.count, 1), jnp.nan)


def check_maps(weights: Any) -> Float[Array, "... N T T"]:
    """Maps of self-attention as an array of JAX.

    Raises:
        ValueError: if they are not floating point (..., N, T, T).
    """
    weights = jnp.asarray(weights)
    if not jnp.issubdtype(weights.dtype, jnp.floating):
        raise ValueError(f"weights: expected floating point, got {weights.dtype}")
    if weights.ndim < 3 or weights.shape[-1] != weights.shape[-2]:
        raise ValueError(f"weights: expected maps (..., N, T, T) of self-attention, got {weights.shape}")
    return weights


def check_tokens(mask: Any, name: str, weights: Float[Array, "... N T T"]) -> Bool[Array, "... T"]:
    """A mask of tokens with the batch axes of the maps; all True where it is None.

    Raises:
        ValueError: if it is not boolean or does not broadcast to (..., T).
    """
    shape = (*weights.shape[:-3], weights.shape[-1])
    if mask is None:
        return jnp.ones(shape, bool)
    return broadcast_bool(mask, name, shape)


def broadcast_bool(mask: Any, name: str, shape: tuple[int, ...]) -> Bool[Array, "..."]:
    """A boolean array of this shape; axes missing in front are those in which it is the same.

    Raises:
        ValueError: if it is not boolean or does not broadcast.
    """
    mask = jnp.asarray(mask)
    if mask.dtype != jnp.bool_:
        raise ValueError(f"{name}: expected booleans, got {mask.dtype}")
    if mask.ndim == 0 or mask.shape[-1] != shape[-1]:
        raise ValueError(f"{name}: expected a shape that broadcasts to {shape}, got {mask.shape}")
    try:
        return jnp.broadcast_to(mask, shape)
    except ValueError:
        raise ValueError(f"{name}: expected a shape that broadcasts to {shape}, got {mask.shape}") from None


def at_least_single(array: Any) -> Array:
    """An array of JAX in its own precision, or in float32 where it has less: sums of many terms need more bits."""
    array = jnp.asarray(array)
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))


def option(value: Scalar, name: str, allowed: Callable[[float], bool], expected: str, dtype: Any) -> Any:
    """An option as a Python number; one that is traced, and cannot be checked, as it is, in a dtype.

    Raises:
        ValueError: if it is known and not allowed.
    """
    if isinstance(value, Tracer):
        return value.astype(dtype)
    if not allowed(float(value)):
        raise ValueError(f"{name}: expected {expected}, got {value!r}")
    return float(value)


def real_before(tokens: Bool[Array, "... T"]) -> Bool[Array, "... T"]:
    """Places whose previous place holds a real token."""
    return jnp.concatenate([jnp.zeros_like(tokens[..., :1]), tokens[..., :-1]], axis=-1)


def first_real(tokens: Bool[Array, "... T"]) -> Bool[Array, "... T"]:
    """The first token that is no padding; nowhere True where all are padding."""
    return tokens & (jnp.cumsum(tokens, axis=-1) == 1)


def counted(
    weights: Any, tokens: Any, queries: Any
) -> tuple[Float[Array, "... N T T"], Bool[Array, "... T"], Bool[Array, "... T"]]:
    """Maps that are 0 where query or key is padding, the real tokens, and the queries that count.

    In half precision a long row would not add up: maps come in float32 or more.
    """
    weights = at_least_single(check_maps(weights))
    tokens = check_tokens(tokens, "tokens", weights)
    queries = tokens & check_tokens(queries, "queries", weights)
    pairs = tokens[..., None, :, None] & tokens[..., None, None, :]
    return jnp.where(pairs, weights, 0), tokens, queries


def total_over_queries(per_query: Float[Array, "... N T"], queries: Bool[Array, "... T"]) -> Total:
    """Sums over the queries that count."""
    total = jnp.where(queries[..., None, :], per_query, 0).sum(-1)
    count = jnp.broadcast_to(queries.sum(-1, dtype=total.dtype)[..., None], total.shape)
    return Total(total, count)
