"""NVIDIA's fused attention, through ``jax.nn``: what it can do of the contract, and the call.

Only what it honours to the letter is passed on. Masks, biases and lengths can leave a row without a key, which it does
not answer by zeros; its log-sum-exp is rounded to 16 bits and has no gradient; the rest it does not know.
"""

from typing import Any

import jax
import jax.extend.backend
import numpy as np
from jaxtyping import Array, Float

from mha_jax.masks import window_sides

_MIN_COMPUTE_CAPABILITY = 8.0
_MAX_HEAD_DIM = 128
_HEAD_DIM_MULTIPLE = 8


# Arguments that it does not honour, with the values that ask for nothing.
_REFUSED = {
    "bias": None,
    "mask": None,
    "query_seq_lengths": None,
    "key_value_seq_lengths": None,
    "query_offset": 0,
    "logits_soft_cap": None,
    "dropout_rate": 0,
    "precision": None,
    "return_residual": False,
}


def refusal(query: Array, key: Array, value: Array, **arguments: Any) -> str | None:
    """Why cudnn cannot do this call, with the argument's name first; None if it can.

    Args:
        query: (..., T, N, D).
        key: (..., S, K, D).
        value: (..., S, K, E).
        **arguments: all others of `mha_jax.dot_product_attention` that have passed its checks.
    """
    num_queries, num_keys, width = query.shape[-3], key.shape[-3], query.shape[-1]
    if query.dtype.name not in ("float16", "bfloat16"):
        return f"query: cudnn takes float16 and bfloat16, got {query.dtype}"
    for name, nothing in _REFUSED.items():
        given = arguments[name]
        if given is not nothing and not (isinstance(given, int | float | np.number) and given == nothing):
            return f"{name}: cudnn cannot honour it"
    if value.shape[-1] != width:
        return f"value: cudnn needs E = D = {width}, got E = {value.shape[-1]}"
    if width % _HEAD_DIM_MULTIPLE or width > _MAX_HEAD_DIM:
        return f"query: cudnn needs D a multiple of {_HEAD_DIM_MULTIPLE} up to {_MAX_HEAD_DIM}, got {width}"
    if 0 in query.shape or 0 in key.shape:
        return f"query, key: cudnn needs sizes above 0, got {query.shape}, {key.shape}"
    if not isinstance(arguments["scale"], int | float | np.number | None):
        return "scale: cudnn takes a known number, got an array"
    if arguments["local_window_size"] is not None:
        left, right = window_sides(arguments["local_window_size"], "local_window_size")
        if right != 0 and not arguments["is_causal"]:
            return f"local_window_size: cudnn has no window to the right, got {(left, right)}"
        if left < num_queries - num_keys:
            return f"local_window_size: cudnn has no rows without a key, got {(left, right)} with T > S"
    return _device_refusal()


def cudnn_attention(
    query: Float[Array, "*batch T N D"],
    key: Float[Array, "*batch S K D"],
    value: Float[Array, "*batch S K D"],
    *,
    scale: Any,
    is_causal: Any,
    local_window_size: Any,
    **ignored: Any,
) -> Float[Array, "*batch T N D"]:
    """The output, of a call for which there is no `refusal`."""
    banded = bool(is_causal) or local_window_size is not None
    if banded:  # nobody attends keys from T on, which may hold anything
        key, value = (x[..., : query.shape[-3], :, :] for x in (key, value))
    scale = None if scale is None else float(scale)
    window = None if local_window_size is None else window_sides(local_window_size, "local_window_size")

    def attend(q: Array, k: Array, v: Array) -> Array:
        if q.ndim > 4:
            return jax.vmap(attend)(q, k, v)
        return jax.nn.dot_product_attention(
            q, k, v, scale=scale, is_causal=banded, local_window_size=window, implementation="cudnn"
        )

    return attend(query, key, value)


def _device_refusal() -> str | None:
    backend = jax.default_backend()
    if backend != "gpu" or "cuda" not in jax.extend.backend.get_backend().platform_version.lower():
        return f"implementation: cudnn needs an NVIDIA GPU, got backend {backend!r}"
    capability = float(jax.devices()[0].compute_capability)
    if capability < _MIN_COMPUTE_CAPABILITY:
        return f"implementation: cudnn needs compute capability {_MIN_COMPUTE_CAPABILITY}, got {capability}"
    return None
