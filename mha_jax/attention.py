"""Scaled dot-product attention of many heads, with the arguments of ``jax.nn.dot_product_attention`` and more.

Same names, same layout ``(..., T, N, D)``, same top-left alignment of the causal mask. What ``jax.nn`` reads in more
than one way is refused here: a mask or bias has the query's rank and its own kind of dtype. A kernel
is written for one head of one example and mapped over heads and batch; query heads of a group share their keys by
being mapped with them, not by a copy of them, and query head ``n`` reads key/value head ``n // (N / K)``.

Implementations, and which one ``implementation=None`` takes, are listed in `dot_product_attention`. A named one
never falls back to another.

Letters: ``T`` query length, ``S`` key length, ``N`` query heads, ``K`` key/value heads, ``D`` head dimension of
queries and keys, ``E`` of values.
Source: Vaswani et al. 2017; grouped heads as in Ainslie et al. 2023.
"""

import math
from typing import Any, Literal, overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer, Real

from mha_jax._arguments import Sizes, check_sizes, checked_head_mask, merge_heads, prepare
from mha_jax._kernels.blocks import Axis, choose_blocks, read_once
from mha_jax._kernels.blockwise import Plan, blockwise_attention
from mha_jax._kernels.cudnn import cudnn_attention, refusal
from mha_jax._kernels.dense import dense_attention, dense_weights
from mha_jax._kernels.head import Operands, Options, map_heads

Implementation = Literal["dense", "xla", "blockwise", "cudnn"]
_ARGUMENTS = (
    "bias",
    "mask",
    "scale",
    "is_causal",
    "query_seq_lengths",
    "key_value_seq_lengths",
    "local_window_size",
    "query_offset",
    "logits_soft_cap",
    "dropout_rate",
    "dropout_key",
    "precision",
)
_Array = Array | np.ndarray
_Real = float | int | np.floating | np.integer
_Integer = int | np.integer


@overload
def dot_product_attention(
    query: Float[_Array, "*batch T N D"],
    key: Float[_Array, "*batch S K D"],
    value: Float[_Array, "*batch S K E"],
    bias: Float[_Array, "..."] | None = None,
    mask: Bool[_Array, "..."] | None = None,
    *,
    scale: _Real | Real[_Array, ""] | None = ...,
    is_causal: bool | np.bool_ = ...,
    query_seq_lengths: Integer[_Array, "..."] | _Integer | None = ...,
    key_value_seq_lengths: Integer[_Array, "..."] | _Integer | None = ...,
    local_window_size: int | tuple[int, int] | None = ...,
    implementation: Implementation | None = ...,
    return_residual: Literal[False] = ...,
    query_offset: Integer[_Array, "..."] | _Integer = ...,
    logits_soft_cap: _Real | None = ...,
    dropout_rate: _Real = ...,
    dropout_key: Any = ...,
    head_mask: Real[_Array, "..."] | None = ...,
    precision: Any = ...,
) -> Float[Array, "*batch T N E"]: ...
@overload
def dot_product_attention(
    query: Float[_Array, "*batch T N D"],
    key: Float[_Array, "*batch S K D"],
    value: Float[_Array, "*batch S K E"],
    bias: Float[_Array, "..."] | None = None,
    mask: Bool[_Array, "..."] | None = None,
    *,
    scale: _Real | Real[_Array, ""] | None = ...,
    is_causal: bool | np.bool_ = ...,
    query_seq_lengths: Integer[_Array, "..."] | _Integer | None = ...,
    key_value_seq_lengths: Integer[_Array, "..."] | _Integer | None = ...,
    local_window_size: int | tuple[int, int] | None = ...,
    implementation: Implementation | None = ...,
    return_residual: Literal[True],
    query_offset: Integer[_Array, "..."] | _Integer = ...,
    logits_soft_cap: _Real | None = ...,
    dropout_rate: _Real = ...,
    dropout_key: Any = ...,
    head_mask: Real[_Array, "..."] | None = ...,
    precision: Any = ...,
) -> tuple[Float[Array, "*batch T N E"], Float[Array, "*batch T N"]]: ...
def dot_product_attention(
    query: Float[_Array, "*batch T N D"],
    key: Float[_Array, "*batch S K D"],
    value: Float[_Array, "*batch S K E"],
    bias: Float[_Array, "..."] | None = None,
    mask: Bool[_Array, "..."] | None = None,
    *,
    scale: _Real | Real[_Array, ""] | None = None,
    is_causal: bool | np.bool_ = False,
    query_seq_lengths: Integer[_Array, "..."] | _Integer | None = None,
    key_value_seq_lengths: Integer[_Array, "..."] | _Integer | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: Implementation | None = None,
    return_residual: bool = False,
    query_offset: Integer[_Array, "..."] | _Integer = 0,
    logits_soft_cap: _Real | None = None,
    dropout_rate: _Real = 0.0,
    dropout_key: Any = None,
    head_mask: Real[_Array, "..."] | None = None,
    precision: Any = None,
) -> Float[Array, "*batch T N E"] | tuple[Float[Array, "*batch T N E"], Float[Array, "*batch T N"]]:
    """Every query's mean of values, weighted by the softmax of its products with the keys.

    For query head n, which reads key/value head ``n // (N / K)``::

        score[t, s]  = scale * <query[t], key[s]>
        logit[t, s]  = logits_soft_cap * tanh(score / logits_soft_cap) + bias[t, s]   (the cap only if given)
        weight[t]    = softmax of logit[t] over the keys that t may attend
        output[t]    = head_mask[t] * sum_s dropout(weight[t])[s] value[s]

    Query t may attend key s where every restriction that is given allows it: ``mask`` is true, ``bias`` is not
    -inf, t and s are below their lengths, causality, the window. Promises beyond those of ``jax.nn``:

    - A row that may attend nothing gives output 0, log-sum-exp -inf and zero gradients.
    - A query that attends nothing, a key and a value that no query of the example attends in any head, may hold
      anything, NaN and inf included. What some query attends must be finite.
    - Logits, softmax and products are in ``promote_types(dtype, float32)``; one cast at the end.
    - T and S may be anything, 0 included; E may differ from D.
    - ``vmap`` and first derivatives in reverse mode (``vmap(grad)``, ``jacrev``) in every implementation; forward
      mode and higher derivatives (``jvp``, ``hessian``) in ``"dense"`` alone.

    Where one key takes nearly all of a row's weight, gradients of ``"blockwise"`` keep the rounding of the terms
    that cancel in ``"dense"``: about 1e-7 (float32) of ``|output gradient| |value| |key|``.

    Args:
        query: any number of batch axes before (T, N, D); floating point.
        key: K divides N. Of the query's dtype.
        value: of the query's dtype.
        bias: added to the logits; the query's rank, broadcasts to (..., N, T, S). Has a gradient, summed over the
            axes in which it is broadcast. An entry of -inf masks.
        mask: True attends; the query's rank, broadcasts to (..., N, T, S).
        scale: 1 / sqrt(D) if None. An array has a gradient.
        is_causal: query t, at position ``t + query_offset``, attends positions up to its own.
        query_seq_lengths: queries from here on attend nothing; broadcasts to the batch axes.
        key_value_seq_lengths: keys from here on are not attended; broadcasts to the batch axes.
        local_window_size: ``(left, right)``: query t attends positions from ``t + query_offset - left`` to
            ``t + query_offset + right``; one integer stands for both.
        implementation: ``"dense"`` (or ``"xla"``, its name in ``jax.nn``) has all weights in memory, O(T S).
            ``"blockwise"`` works on blocks with an online softmax and computes them again for the gradient:
            O(T + S) beside its arguments; blocks that are masked whole are left out. ``"cudnn"`` is that of
            ``jax.nn``, for float16 and bfloat16 on NVIDIA GPUs of compute capability 8 and up; causality, a
            window that looks back, a scale and a head mask are all it takes. None is ``"cudnn"`` where that can
            do the call and ``"blockwise"`` elsewhere, at every length.
        return_residual: also return the log-sum-exp of every row's logits.
        query_offset: position of query 0, for causality and the window; broadcasts to the batch axes.
        logits_soft_cap: see above; positive.
        dropout_rate: probability that a weight is dropped, in [0, 1); others are divided by ``1 - dropout_rate``.
        dropout_key: one key, split for every head of every example; needed if ``dropout_rate`` is not 0. What is
            dropped depends on the key and the position (t, s) alone, so that implementations agree.
        head_mask: multiplies the outputs of heads; broadcasts to (..., T, N). 0 removes a head.
        precision: of matrix products, as in ``jax.lax``.

    Returns:
        Output (..., T, N, E) in the query's dtype. With ``return_residual``, a pair of it and the log-sum-exp
        (..., T, N) in ``promote_types(dtype, float32)``, by which results over parts of the keys can be merged;
        both are differentiable.

    Raises:
        ValueError: an argument has a wrong shape, dtype or value; the message names it.
        NotImplementedError: the implementation that was named cannot do this; the message says what.
    """
    arguments = {
        "bias": bias,
        "mask": mask,
        "scale": scale,
        "is_causal": is_causal,
        "query_seq_lengths": query_seq_lengths,
        "key_value_seq_lengths": key_value_seq_lengths,
        "local_window_size": local_window_size,
        "query_offset": query_offset,
        "logits_soft_cap": logits_soft_cap,
        "dropout_rate": dropout_rate,
        "dropout_key": dropout_key,
        "precision": precision,
    }
    output, lse = attend(
        *(jnp.asarray(x) for x in (query, key, value)),
        implementation=implementation,
        return_residual=return_residual,
        head_mask=head_mask,
        **arguments,
    )
    return output if lse is None or not return_residual else (output, lse)


def attend(
    query: Array,
    key: Array,
    value: Array,
    *,
    kept: tuple[tuple[Array, ...], Array] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
    head_mask: Any = None,
    **arguments: Any,
) -> tuple[Array, Array | None]:
    """`dot_product_attention` of arrays, for callers that keep keys and values in another form.

    Args:
        query: as there, like all other arguments.
        key: see there.
        value: see there.
        kept: where ``key`` and ``value`` come from: parts of the keys along their features, and the values, each
            ``(..., S, K, width)``, or of one head ``(..., S, width)``, of any floating dtype. Where blocks are read as
            they came, these are read, so that under ``jit`` nothing joins or casts all keys: an entry of a cache is
            read where it lies.
        implementation: see there.
        return_residual: see there.
        head_mask: see there.
        **arguments: all of the others.

    Returns:
        Output and, but for cuDNN, the log-sum-exp.
    """
    if implementation not in (None, "dense", "xla", "blockwise", "cudnn"):
        expected = "None, 'dense', 'xla', 'blockwise' or 'cudnn'"
        raise ValueError(f"implementation: expected {expected}, got {implementation!r}")
    sizes = check_sizes(query, key, value)
    arguments = (
        dict.fromkeys(_ARGUMENTS) | {"is_causal": False, "query_offset": 0, "dropout_rate": 0.0} | arguments
    )
    blocks = None if sizes.empty or implementation in ("dense", "xla") else _blocks(query, sizes)
    as_they_came = blocks is not None and read_once(*blocks)
    operands, options = prepare(query, key, value, sizes=sizes, as_they_came=as_they_came, **arguments)
    if as_they_came and kept is not None:
        operands = operands._replace(key=kept[0], value=kept[1])
    if implementation in (None, "cudnn"):
        reason = refusal(query, key, value, return_residual=return_residual, **arguments)
        if implementation == "cudnn" and reason is not None:
            raise NotImplementedError(reason)
        implementation = "cudnn" if reason is None else "blockwise"
    if implementation == "cudnn":
        output, lse = cudnn_attention(query, key, value, **arguments), None
    else:
        plan = blocks and Plan(options, sizes.heads, *blocks, as_they_came)
        output, lse = _over_heads(operands, options, sizes, plan)
    if head_mask is not None:
        output = output * checked_head_mask(head_mask, sizes, output.dtype)[..., None]
    return output.astype(query.dtype), lse


def attention_weights(
    query: Float[_Array, "*batch T N D"],
    key: Float[_Array, "*batch S K D"],
    bias: Float[_Array, "..."] | None = None,
    mask: Bool[_Array, "..."] | None = None,
    *,
    scale: _Real | Real[_Array, ""] | None = None,
    is_causal: bool | np.bool_ = False,
    query_seq_lengths: Integer[_Array, "..."] | _Integer | None = None,
    key_value_seq_lengths: Integer[_Array, "..."] | _Integer | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    query_offset: Integer[_Array, "..."] | _Integer = 0,
    logits_soft_cap: _Real | None = None,
    dropout_rate: _Real = 0.0,
    dropout_key: Any = None,
    precision: Any = None,
) -> Float[Array, "*batch N T S"]:
    """The weights of `dot_product_attention`, by the code of its dense implementation.

    Args:
        query: as in `dot_product_attention`, like all other arguments.
        key: see there.
        bias: see there.
        mask: see there.
        scale: see there.
        is_causal: see there.
        query_seq_lengths: see there.
        key_value_seq_lengths: see there.
        local_window_size: see there.
        query_offset: see there.
        logits_soft_cap: see there.
        dropout_rate: see there; 0 gives the softmax itself.
        dropout_key: see there.
        precision: see there.

    Returns:
        Weights (..., N, T, S), in the query's dtype. Rows sum to 1, or to 0 where a row may attend nothing.

    Raises:
        ValueError: an argument has a wrong shape, dtype or value; the message names it.
    """
    query, key = jnp.asarray(query), jnp.asarray(key)
    sizes = check_sizes(query, key, key)
    operands, options = prepare(
        query,
        key,
        key,
        bias=bias,
        mask=mask,
        sizes=sizes,
        scale=scale,
        is_causal=is_causal,
        query_seq_lengths=query_seq_lengths,
        key_value_seq_lengths=key_value_seq_lengths,
        local_window_size=local_window_size,
        query_offset=query_offset,
        logits_soft_cap=logits_soft_cap,
        dropout_rate=dropout_rate,
        dropout_key=dropout_key,
        precision=precision,
    )
    if sizes.empty:
        return jnp.zeros(sizes.logits, query.dtype)
    weights, _ = map_heads(lambda head: dense_weights(head, options), operands, sizes.heads)
    return weights.reshape(sizes.logits).astype(query.dtype)


def _blocks(query: Array, sizes: Sizes) -> tuple[Axis, Axis]:
    itemsize = 8 if query.dtype == jnp.float64 else 4
    return choose_blocks(sizes.queries, sizes.keys, math.prod(sizes.heads), itemsize, jax.default_backend())


def _over_heads(operands: Operands, options: Options, sizes: Sizes, plan: Plan | None) -> tuple[Array, Array]:
    """Output (..., T, N, E) and log-sum-exp (..., T, N), in blocks by a plan, dense without one."""
    if sizes.empty:
        rows = operands.query[..., 0]
        output = jnp.zeros((*rows.shape, operands.value.shape[-1]), rows.dtype)
        lse = jnp.full_like(rows, -jnp.inf)
    elif plan is not None:
        output, lse = blockwise_attention(operands, plan)
    else:
        output, lse = map_heads(lambda head: dense_attention(head, options), operands, sizes.heads)
    return merge_heads(output, sizes), merge_heads(lse, sizes)
