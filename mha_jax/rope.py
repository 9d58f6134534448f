"""Rotary position embedding (RoPE): pairs of features of a query or key, rotated by angles that grow with position.

Feature pair ``i`` of a head is a point of the plane, turned by ``position * base ** (-2 i / dims)``. Turning a
query at ``t`` and a key at ``s`` leaves their product a function of ``t - s`` alone.

Two layouts of the pairs are in use, and weights trained with one are wrong with the other:

- ``"half"``: pair ``i`` is features ``(i, i + dims / 2)``, as in GPT-NeoX and Llama's Hugging Face weights;
- ``"interleaved"``: pair ``i`` is features ``(2 i, 2 i + 1)``, as in the paper.

They differ by a permutation of the rotated features: ``half(x[p]) = interleaved(x)[p]`` for
``p = [0, 2, ..., 1, 3, ...]``.

Source: Su et al. 2021, RoFormer (arXiv 2104.09864), equations 14-15 and 34.
"""

import dataclasses
import numbers
from typing import Literal, get_args

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Int32, Real

from mha_jax._layers import accumulation_dtype, check_floating

Style = Literal["half", "interleaved"]


@dataclasses.dataclass(frozen=True)
class RotaryEmbedding:
    """Settings of RoPE; hashable, so that it can be a static argument.

    Attributes:
        base: positive number; the slowest pair turns by about ``1 / base`` a position.
        dims: the first ``dims`` features of a head are rotated and the rest left as they are (partial rotary
            embedding); a positive even number. None: all of them.
        style: layout of the pairs, see `mha_jax.rope`.

    Raises:
        ValueError: a setting is outside its range.
    """

    base: float | int = 10_000.0
    dims: int | None = None
    style: Style = "half"

    def __post_init__(self) -> None:
        if (
            not isinstance(self.base, numbers.Real)
            or isinstance(self.base, bool)
            or not 0 < self.base < np.inf
        ):
            raise ValueError(f"base: expected a positive number, got {self.base!r}")
        if self.dims is not None:
            integer = isinstance(self.dims, numbers.Integral) and not isinstance(self.dims, bool)
            if not integer or self.dims < 1 or self.dims % 2:
                raise ValueError(f"dims: expected a positive even integer or None, got {self.dims!r}")
        if self.style not in get_args(Style):
            raise ValueError(f"style: expected one of {get_args(Style)}, got {self.style!r}")

    def rotated_dims(self, head_dim: int) -> int:
        """How many of a head's ``head_dim`` features are rotated.

        Raises:
            ValueError: ``dims`` is larger than ``head_dim``, or None where ``head_dim`` is odd.
        """
        if self.dims is not None and self.dims > head_dim:
            raise ValueError(f"dims: expected at most the head dimension {head_dim}, got {self.dims}")
        if self.dims is None and head_dim % 2:
            raise ValueError(
                f"dims: expected an even number given where the head dimension ({head_dim}) is odd, got None"
            )
        return head_dim if self.dims is None else int(self.dims)


def apply_rope(
    x: Float[Array, "... t n d"], positions: Real[Array, "..."], rotary: RotaryEmbedding | None = None
) -> Float[Array, "... t n d"]:
    """Rotates queries or keys by their positions.

    Angles, sines and the rotation are computed in float32, or in float64 where ``x`` is float64, and cast to
    the dtype of ``x`` once. In float32 the fastest pair's angle is exact up to position 2^24 and any other is off
    by about 1e-7 of itself: 0.01 radians after 100,000.

    Args:
        x: queries or keys ``(..., T, N, D)``; heads share positions.
        positions: whole or fractional positions, ``(T,)``, or ``(..., T)`` broadcastable to the batch axes of
            ``x``.
        rotary: settings. None: ``RotaryEmbedding()``.

    Returns:
        Array of the shape and dtype of ``x``.

    Raises:
        ValueError: ``x`` has fewer than three axes or is not floating point, ``positions`` do not broadcast,
            ``rotary`` is something else, or the rotated dimensions do not fit the head dimension.
    """
    rotary = RotaryEmbedding() if rotary is None else rotary
    if not isinstance(rotary, RotaryEmbedding):
        raise ValueError(f"rotary: expected a RotaryEmbedding or None, got {rotary!r}")
    check_floating("x", x)
    if x.ndim < 3:
        raise ValueError(f"x: expected shape (..., T, N, D), got {x.shape}")
    dims = rotary.rotated_dims(x.shape[-1])
    dtype = accumulation_dtype(x.dtype)
    rates = jnp.asarray(float(rotary.base) ** (-np.arange(0, dims, 2, dtype=np.float64) / dims), dtype)
    positions = _broadcastable(positions, x.shape[:-2]).astype(dtype)
    angles = positions[..., None, None] * jnp.expand_dims(rates, tuple(range(x.ndim - 1)))
    cos, sin = jnp.cos(angles), jnp.sin(angles)

    rotated = x[..., :dims].astype(dtype)
    if rotary.style == "half":
        first, second = rotated[..., : dims // 2], rotated[..., dims // 2 :]
    else:
        first, second = rotated[..., 0::2], rotated[..., 1::2]
    first, second = first * cos - second * sin, first * sin + second * cos
    if rotary.style == "half":
        rotated = jnp.concatenate([first, second], axis=-1)
    else:
        rotated = jnp.stack([first, second], axis=-1).reshape(rotated.shape)
    return jnp.concatenate([rotated.astype(x.dtype), x[..., dims:]], axis=-1)


def positions_from(offset: int | Int[Array, "..."], count: int) -> Int32[Array, "... t"]:
    """``offset, offset + 1, ...``, ``count`` of them, for every offset."""
    steps = jnp.arange(count, dtype=jnp.int32)
    offset = jnp.asarray(offset, jnp.int32)[..., None]
    return offset + jnp.expand_dims(steps, tuple(range(offset.ndim - 1)))


def _broadcastable(positions: Array, shape: tuple[int, ...]) -> Array:
    """Positions with as many axes as ``shape``, of size one or of its sizes: angles shared by a batch stay shared."""
    positions = jnp.asarray(positions)
    pairs = zip(positions.shape[-2::-1], shape[-2::-1], strict=False)
    fits = 1 <= positions.ndim <= len(shape) and positions.shape[-1] == shape[-1]
    if not fits or any(got not in (1, want) for got, want in pairs):
        wanted = f"({shape[-1]},) or one that broadcasts to {shape}"
        raise ValueError(f"positions: expected shape {wanted}, got {positions.shape}")
    return positions.reshape((1,) * (len(shape) - positions.ndim) + positions.shape)
