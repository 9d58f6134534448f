"""What the projections, the latent attention and the caches share: checks, dtypes, products, initialisation."""

import functools
import numbers
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array

Params = Mapping[str, Mapping[str, Array]]

RMS_EPSILON = 1e-6


def check_size(name: str, value: Any) -> int:
    """``value`` as an int, or a ValueError unless it is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(f"{name}: expected a positive integer, got {value!r}")
    return int(value)


def default_head_dim(d_model: int, num_heads: int) -> int:
    """``d_model / num_heads``, or a ValueError where that is not whole."""
    if d_model % num_heads:
        raise ValueError(
            f"head_dim: expected a size where num_heads = {num_heads} does not divide {d_model}, got None"
        )
    return d_model // num_heads


def check_floating(name: str, value: Any) -> None:
    """A ValueError unless ``value`` is a floating-point array."""
    dtype = getattr(value, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"{name}: expected a floating-point array, got {dtype or type(value).__name__}")


def check_floating_dtype(name: str, dtype: DTypeLike) -> np.dtype:
    """``dtype`` as JAX keeps it, or a ValueError unless it is floating point."""
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"{name}: expected a floating-point dtype, got {dtype!r}")
    return jax.dtypes.canonicalize_dtype(dtype)


def check_params(
    params: Params, shapes: Mapping[str, Mapping[str, str]], optional: frozenset[str]
) -> dict[str, int]:
    """Compares a pytree of parameters with its letters, and returns the size that each letter stands for.

    Args:
        params: ``{part: {name: array}}``.
        shapes: letters of every array, for example ``{"query": {"kernel": "N M D"}}``.
        optional: parts, and names of arrays, that may be missing.

    Raises:
        ValueError: a part or an array is missing or unknown, a rank or a size disagrees.
    """
    if unknown := set(params) - set(shapes):
        raise ValueError(f"params: expected parts {sorted(shapes)}, got {sorted(unknown)} as well")
    sizes: dict[str, int] = {}
    for part, arrays in shapes.items():
        if part not in params:
            if part in optional:
                continue
            raise ValueError(f"params: expected part {part!r}, got {sorted(params)}")
        if unknown := set(params[part]) - set(arrays):
            raise ValueError(f"params[{part!r}]: expected {sorted(arrays)}, got {sorted(unknown)} as well")
        for name, letters in arrays.items():
            if name not in params[part]:
                if name in optional:
                    continue
                raise ValueError(f"params[{part!r}]: expected {name!r}, got {sorted(params[part])}")
            _match(f"params[{part!r}][{name!r}]", params[part][name], letters.split(), sizes)
    return sizes


def _match(where: str, array: Array, letters: list[str], sizes: dict[str, int]) -> None:
    known = ", ".join(str(sizes.get(letter, letter)) for letter in letters)
    if array.ndim != len(letters):
        raise ValueError(f"{where}: expected shape ({known}), got {array.shape}")
    for letter, size in zip(letters, array.shape, strict=True):
        if size < 1 or sizes.setdefault(letter, size) != size:
            raise ValueError(f"{where}: expected shape ({known}) without empty axes, got {array.shape}")


def accumulation_dtype(dtype: DTypeLike) -> np.dtype:
    """float32, or ``dtype`` where that is wider; without JAX's promotion, which strict mode refuses."""
    return jnp.dtype(dtype) if jnp.finfo(dtype).bits >= 32 else jnp.dtype(jnp.float32)


def computation_dtype(dtype: DTypeLike | None, params: Params, *inputs: Array) -> np.dtype:
    """``dtype``, or where it is None what JAX promotes the inputs and the parameters to (as Flax does)."""
    if dtype is not None:
        return check_floating_dtype("dtype", dtype)
    return jnp.dtype(jnp.result_type(*inputs, *jax.tree.leaves(params)))


def check_input(name: str, x: Array, features: int) -> None:
    """A ValueError unless ``x`` is a floating-point array ``(..., T, features)``."""
    check_floating(name, x)
    if x.ndim < 2 or x.shape[-1] != features:
        raise ValueError(f"{name}: expected shape (..., T, {features}), got {x.shape}")


def product(spec: str, x: Array, kernel: Array, dtype: np.dtype, precision: jax.lax.PrecisionLike) -> Array:
    """The einsum of both in ``dtype``, accumulated in float32 at least, not yet cast back."""
    accumulator = accumulation_dtype(dtype)
    x, kernel = x.astype(dtype), kernel.astype(dtype)
    multiply = functools.partial(jnp.einsum, spec, precision=precision, preferred_element_type=accumulator)
    if dtype == accumulator:
        return multiply(x, kernel)
    # XLA on CPU lacks some products of narrow arrays into a wide one ("Unsupported element type for DotThunk").
    return jax.lax.platform_dependent(
        x,
        kernel,
        cpu=lambda *arrays: multiply(*(array.astype(accumulator) for array in arrays)),
        default=multiply,
    )


_FEW_ROWS = 16


def to_heads(x: Array, kernel: Array, dtype: np.dtype, precision: jax.lax.PrecisionLike) -> Array:
    """(..., T, M) times (N, M, D) of every head, (..., T, N, D); accumulated as `product` does.

    With few rows, as in decoding, heads are a batch axis of the product. As one product it would need the kernel as
    (M, N D), which a CPU copies at every call: twice the kernel's own bytes, more than all rows together.
    """
    if isinstance(x.size, int) and x.size <= _FEW_ROWS * x.shape[-1]:
        x = jnp.broadcast_to(x[..., None, :, :], (*x.shape[:-2], kernel.shape[0], *x.shape[-2:]))
        return jnp.moveaxis(product("...ntm,nmd->...ntd", x, kernel, dtype, precision), -3, -2)
    return product("...tm,nmd->...tnd", x, kernel, dtype, precision)


def from_heads(x: Array, kernel: Array, dtype: np.dtype, precision: jax.lax.PrecisionLike) -> Array:
    """(..., T, N, E) times (N, E, M) summed over heads, (..., T, M), as one product of matrices without a copy."""
    flat = kernel.reshape(-1, kernel.shape[-1])
    return product("...td,dm->...tm", x.reshape(*x.shape[:-2], flat.shape[0]), flat, dtype, precision)


def add_bias(x: Array, bias: Array | None) -> Array:
    """``x`` plus a bias of its last axes, in the dtype of ``x``."""
    if bias is None:
        return x
    return x + jnp.expand_dims(bias.astype(x.dtype), tuple(range(x.ndim - bias.ndim)))


def rms_norm(x: Array, scale: Array) -> Array:
    """Divides by the root mean square over the last axis; in float32 at least, in the dtype of ``x`` at the end."""
    wide = x.astype(accumulation_dtype(x.dtype))
    wide = wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + RMS_EPSILON)
    return (wide * jnp.expand_dims(scale.astype(wide.dtype), tuple(range(x.ndim - 1)))).astype(x.dtype)


def init_kernel(key: Array, shape: tuple[int, ...], dtype: np.dtype, *, contracted: tuple[int, ...]) -> Array:
    """A kernel of Flax's default variance, 1 / fan-in, drawn from a normal truncated at two standard deviations.

    Fan-in is the true one: the number of inputs summed into one output, the product of the ``contracted`` axes.
    (`flax.linen.DenseGeneral` and `flax.nnx.LinearGeneral` draw the same distribution.)
    """
    batch = (0,) if contracted == (1,) else ()
    outputs = tuple(i for i in range(len(shape)) if i not in (*contracted, *batch))
    initializer = jax.nn.initializers.lecun_normal(in_axis=contracted, out_axis=outputs, batch_axis=batch)
    return initializer(key, shape, dtype)
