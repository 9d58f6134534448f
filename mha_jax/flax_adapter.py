"""The attention kernels under the names that Flax's own modules use: `attention_fn`.

``flax.nnx.MultiHeadAttention`` and ``flax.linen.MultiHeadDotProductAttention`` take any function as ``attention_fn``
and call it by keyword. nnx passes every keyword it has, so a function that lacks one raises TypeError. linen passes
those it finds in the function's signature, so one that lacks ``mask``, or hides it in ``**kwargs``, silently attends
everywhere. Hence one function with every name of both written out, each honoured or refused.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Real, Shaped

from mha_jax.attention import Implementation, attention_weights, dot_product_attention

_Array = Array | np.ndarray
_SUBSTITUTES = {
    "einsum_dot_general": "another product in place of `jax.lax.dot_general`",
    "qk_attn_weights_einsum": "another einsum for the logits",
    "attn_weights_value_einsum": "another einsum for the weighted sum",
}


def attention_fn(
    query: Float[_Array, "*b t n d"],
    key: Float[_Array, "*b s k d"],
    value: Float[_Array, "*b s k e"],
    bias: Real[_Array, "..."] | None = None,
    mask: Shaped[_Array, "..."] | None = None,
    broadcast_dropout: bool = True,
    dropout_rng: Any = None,
    dropout_rate: float = 0.0,
    deterministic: bool | None = False,
    dtype: Any = None,
    precision: Any = None,
    module: Any = None,
    *,
    is_causal: bool = False,
    promote_dtype: Callable[..., Any] | None = None,
    force_fp32_for_softmax: bool = False,
    einsum_dot_general: Callable[..., Any] | None = None,
    qk_attn_weights_einsum: Callable[..., Any] | None = None,
    attn_weights_value_einsum: Callable[..., Any] | None = None,
    scale: float | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    logits_soft_cap: float | None = None,
    implementation: Implementation | None = None,
) -> Float[Array, "*b t n e"]:
    """Attention for Flax's own modules: give it to them as ``attention_fn``.

    ``nnx.MultiHeadAttention(..., attention_fn=attention_fn)`` or
    ``linen.MultiHeadDotProductAttention(..., attention_fn=attention_fn)``. The last four arguments are never passed by
    Flax: set them by ``functools.partial(attention_fn, implementation="blockwise")``.

    What differs from Flax's own function: a row that may attend nothing gives 0 (there, the mean of all values);
    logits and softmax are in float32 at least; a sown weight of a row without keys is 0; which entries dropout removes
    (the distribution is the same); the dtype of the output is that of the inputs also with ``force_fp32_for_softmax``.

    Args:
        query: queries.
        key: keys; ``n`` a multiple of ``k`` (grouped heads).
        value: values.
        bias: added to the logits; of the query's rank, broadcasts to ``(*b, n, t, s)``.
        mask: non-zero where a query may attend (Flax makes masks of floats); of the query's rank, broadcasts likewise.
        broadcast_dropout: one dropout mask ``(t, s)`` for all examples and heads, as Flax does by default. False: an
            own mask for each.
        dropout_rng: key of the dropout.
        dropout_rate: share of weights set to 0, in [0, 1).
        deterministic: no dropout, whatever the rate.
        dtype: inputs are cast to it; None: to their common dtype.
        precision: of both products.
        module: the Flax module in which to sow the weights (before dropout, as ``attention_weights``); they are
            computed once more, whole.
        is_causal: query ``i`` attends keys ``0..i``, from the top left as in Flax. Leave it off while decoding with
            Flax's cache: one query would attend key 0 alone, and its mask does the work.
        promote_dtype: casts ``(query, key, value)`` in place of the rule for ``dtype``.
        force_fp32_for_softmax: honoured always.
        einsum_dot_general: refused.
        qk_attn_weights_einsum: refused.
        attn_weights_value_einsum: refused.
        scale: of the logits; None: ``d ** -0.5``.
        local_window_size: as in `mha_jax.dot_product_attention`.
        logits_soft_cap: as in `mha_jax.dot_product_attention`.
        implementation: as in `mha_jax.dot_product_attention`.

    Returns:
        The output of every head, in the inputs' dtype.

    Raises:
        ValueError: an argument does not fit; see `mha_jax.dot_product_attention`.
        NotImplementedError: another einsum or product was given: the kernels do not call one.
    """
    substitutes = einsum_dot_general, qk_attn_weights_einsum, attn_weights_value_einsum
    for (name, what), given in zip(_SUBSTITUTES.items(), substitutes, strict=True):
        if given is not None:
            raise NotImplementedError(
                f"{name}: the kernels have their own matrix products and cannot use {what}"
            )
    arrays: tuple[Any, ...] = jnp.asarray(query), jnp.asarray(key), jnp.asarray(value)
    if promote_dtype is not None:
        arrays = promote_dtype(arrays, dtype=dtype)
    else:
        dtype = jnp.result_type(*arrays) if dtype is None else dtype
        arrays = tuple(x.astype(dtype) for x in arrays)
    bias = None if bias is None else jnp.asarray(bias)
    arrays = (*arrays, bias, None if mask is None else jnp.asarray(mask).astype(bool))
    options: dict[str, Any] = {
        "scale": scale,
        "is_causal": is_causal,
        "local_window_size": local_window_size,
        "logits_soft_cap": logits_soft_cap,
        "precision": precision,
    }
    if module is not None:
        weights = attention_weights(arrays[0], arrays[1], *arrays[3:], **options)
        module.sow(
            nnx.Intermediate if isinstance(module, nnx.Module) else "intermediates",
            "attention_weights",
            weights,
        )
    options["implementation"] = implementation
    if deterministic or dropout_rate == 0.0:
        return dot_product_attention(*arrays, **options)
    if dropout_rng is None:
        raise ValueError(f"dropout_rng: expected a key, as dropout_rate is {dropout_rate}, got None")
    options |= {"dropout_rate": dropout_rate, "dropout_key": dropout_rng}
    if broadcast_dropout:
        return _with_one_dropout_mask(arrays, options)
    return dot_product_attention(*arrays, **options)


def _with_one_dropout_mask(arrays: tuple[Any, ...], options: dict[str, Any]) -> Array:
    """The same dropout for all examples and heads: each is a call of its own with the same key."""
    # The checks of the kernel on the whole arrays, without computing anything.
    jax.eval_shape(functools.partial(dot_product_attention, **options), *arrays)
    query, key, value, bias, mask = arrays
    *batch, length, heads, dim = query.shape
    kv_heads = key.shape[-2]

    def grouped(
        x: Array | None,
    ) -> Array | None:  # (..., N or 1, T, S) to (..., K, G, T, S) or (..., 1, 1, T, S)
        if x is None:
            return None
        groups = (1, 1) if x.shape[-3] == 1 else (kv_heads, heads // kv_heads)
        return x.reshape(*x.shape[:-3], *groups, *x.shape[-2:])

    def one_head(query: Array, key: Array, value: Array, bias: Array | None, mask: Array | None) -> Array:
        bias, mask = (None if x is None else x[None] for x in (bias, mask))
        return dot_product_attention(query[:, None], key[:, None], value[:, None], bias, mask, **options)[
            :, 0
        ]

    queries = jnp.moveaxis(query.reshape(*batch, length, kv_heads, heads // kv_heads, dim), -4, -2)
    keys, values = (jnp.moveaxis(x, -3, -2)[..., None, :, :] for x in (key, value))
    operands = (queries, keys, values, grouped(bias), grouped(mask))
    outputs = _over_leading_axes(one_head, operands, query.ndim - 1)
    return jnp.moveaxis(outputs, -2, -4).reshape(*batch, length, heads, value.shape[-1])


def _over_leading_axes(
    function: Callable[..., Array], arrays: tuple[Array | None, ...], num_axes: int
) -> Array:
    """``function`` mapped over leading axes that broadcast against each other, without broadcasting the arrays."""
    if num_axes == 0:
        return function(*arrays)
    axes = tuple(None if x is None or x.shape[0] == 1 else 0 for x in arrays)
    arrays = tuple(
        x[0] if x is not None and axis is None else x for x, axis in zip(arrays, axes, strict=True)
    )

    def inner(*arrays: Array | None) -> Array:
        return _over_leading_axes(function, arrays, num_axes - 1)

    return inner(*arrays)[None] if set(axes) == {None} else jax.vmap(inner, in_axes=axes)(*arrays)
