"""Multi-head attention with its projections, as pure functions on a pytree of parameters.

Kernels are kept per head, so that a head can be read, removed or replaced by indexing the leading axis:

=========================  =================  ==============================================
``params[part][name]``     shape
=========================  =================  ==============================================
``query``  ``kernel``      ``(N, M, D)``      of every query head
``key``    ``kernel``      ``(K, M_kv, D)``   of every key/value head
``value``  ``kernel``      ``(K, M_kv, E)``
``out``    ``kernel``      ``(N, E, M_out)``  the output is the sum over heads
``query``  ``bias``        ``(N, D)``         with ``use_bias``; ``key``, ``value``: ``(K, D)``, ``(K, E)``
``out``    ``bias``        ``(M_out,)``       with ``use_bias``
``query_norm`` ``scale``   ``(D,)``           with ``qk_norm``; ``key_norm`` likewise
=========================  =================  ==============================================

Every size is free: ``N D`` need not be ``d_model``, ``E`` need not be ``D``, and ``K`` may be any divisor of ``N``
(``K = N``: MHA; ``1 < K < N``: GQA, Ainslie et al. 2023; ``K = 1``: MQA, Shazeer 2019).

Products are accumulated in float32 at least. The output projection contracts heads and features in one product,
so that with heads sharded over devices it costs one all-reduce.
"""

from collections.abc import Sequence
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, PRNGKeyArray, Real

from mha_jax._layers import (
    Params,
    add_bias,
    check_floating,
    check_floating_dtype,
    check_input,
    check_params,
    check_size,
    computation_dtype,
    default_head_dim,
    from_heads,
    init_kernel,
    rms_norm,
    to_heads,
)
from mha_jax.attention import attend
from mha_jax.cache import KVCache, append, mark_dropped
from mha_jax.rope import RotaryEmbedding, apply_rope, positions_from

_SHAPES = {
    "query": {"kernel": "N M D", "bias": "N D"},
    "key": {"kernel": "K M_kv D", "bias": "K D"},
    "value": {"kernel": "K M_kv E", "bias": "K E"},
    "out": {"kernel": "N E M_out", "bias": "M_out"},
    "query_norm": {"scale": "D"},
    "key_norm": {"scale": "D"},
}
_OPTIONAL = frozenset({"bias", "query_norm", "key_norm"})


def init_multi_head_attention(
    key: PRNGKeyArray,
    d_model: int,
    num_heads: int,
    *,
    head_dim: int | None = None,
    value_head_dim: int | None = None,
    num_kv_heads: int | None = None,
    d_kv: int | None = None,
    d_out: int | None = None,
    use_bias: bool = False,
    qk_norm: bool = False,
    dtype: DTypeLike = jnp.float32,
) -> Params:
    """Draws the parameters of multi-head attention; their layout: `mha_jax.projections`.

    Kernels are drawn as Flax draws those of its attention modules: from a normal truncated at two standard
    deviations, of variance 1 / fan-in (LeCun), where fan-in is the number of inputs summed into one output:
    ``M`` for queries, ``M_kv`` for keys and values, ``N E`` for the output. Biases are zero, scales one.

    Args:
        key: random key.
        d_model: width of the input of the queries, M.
        num_heads: query heads, N.
        head_dim: D. None: ``d_model / num_heads``, which must be whole.
        value_head_dim: E. None: ``head_dim``.
        num_kv_heads: K, a divisor of ``num_heads``. None: ``num_heads``.
        d_kv: width of the input of keys and values, M_kv. None: ``d_model``.
        d_out: width of the output, M_out. None: ``d_model``.
        use_bias: add biases to the projections.
        qk_norm: normalise every query and key head (`multi_head_attention`).
        dtype: of the parameters.

    Returns:
        Kernels of these shapes, and biases and scales as asked for (`mha_jax.projections`): ``query`` (N, M, D),
        ``key`` (K, M_kv, D), ``value`` (K, M_kv, E), ``out`` (N, E, M_out).

    Raises:
        ValueError: a size is not a positive integer, ``num_heads`` is no multiple of ``num_kv_heads``, ``d_model`` is
            no multiple of ``num_heads`` where ``head_dim`` is None, or the dtype is not floating point.
    """
    d_model, num_heads = check_size("d_model", d_model), check_size("num_heads", num_heads)
    head_dim = default_head_dim(d_model, num_heads) if head_dim is None else check_size("head_dim", head_dim)
    value_head_dim = head_dim if value_head_dim is None else check_size("value_head_dim", value_head_dim)
    num_kv_heads = num_heads if num_kv_heads is None else check_size("num_kv_heads", num_kv_heads)
    if num_heads % num_kv_heads:
        raise ValueError(f"num_kv_heads: expected a divisor of num_heads = {num_heads}, got {num_kv_heads}")
    d_kv = d_model if d_kv is None else check_size("d_kv", d_kv)
    d_out = d_model if d_out is None else check_size("d_out", d_out)
    dtype = check_floating_dtype("dtype", dtype)

    keys = jax.random.split(key, 4)
    query = {"kernel": init_kernel(keys[0], (num_heads, d_model, head_dim), dtype, contracted=(1,))}
    key_ = {"kernel": init_kernel(keys[1], (num_kv_heads, d_kv, head_dim), dtype, contracted=(1,))}
    value = {"kernel": init_kernel(keys[2], (num_kv_heads, d_kv, value_head_dim), dtype, contracted=(1,))}
    out = {"kernel": init_kernel(keys[3], (num_heads, value_head_dim, d_out), dtype, contracted=(0, 1))}
    if use_bias:
        for part in query, key_, value:
            part["bias"] = jnp.zeros((part["kernel"].shape[0], part["kernel"].shape[2]), dtype)
        out["bias"] = jnp.zeros((d_out,), dtype)
    params = {"query": query, "key": key_, "value": value, "out": out}
    if qk_norm:
        params |= {name: {"scale": jnp.ones((head_dim,), dtype)} for name in ("query_norm", "key_norm")}
    return params


def project_heads(
    params: Params,
    x_q: Float[Array, "... t m"],
    x_kv: Float[Array, "... s m_kv"] | None = None,
    *,
    rope: RotaryEmbedding | None = None,
    query_positions: Real[Array, "..."] | None = None,
    key_positions: Real[Array, "..."] | None = None,
    dtype: DTypeLike | None = None,
    precision: jax.lax.PrecisionLike = None,
) -> tuple[Float[Array, "... t n d"], Float[Array, "... s k d"], Float[Array, "... s k e"]]:
    """Queries, keys and values of every head, as attention takes them: projected, normalised, rotated.

    With `mha_jax.attention.attention_weights` this gives the attention maps of a layer.

    Args:
        params: see `init_multi_head_attention`.
        x_q: input of the queries ``(..., T, M)``.
        x_kv: input of keys and values ``(..., S, M_kv)``. None: ``x_q``.
        rope: rotates queries and keys by their positions. None: no rotation.
        query_positions: ``(T,)`` or ``(..., T)``. None: 0, 1, ..., T - 1.
        key_positions: ``(S,)`` or ``(..., S)``. None: ``query_positions`` where ``x_kv`` is None, else 0, ..., S - 1.
        dtype: of the computation and the results. None: what JAX promotes inputs and parameters to.
        precision: of the products, as in `jax.lax.dot`.

    Returns:
        query ``(..., T, N, D)``, key ``(..., S, K, D)``, value ``(..., S, K, E)``.

    Raises:
        ValueError: parameters or shapes do not agree, an input is not floating point, or positions are given
            without ``rope``.
    """
    inputs = _check_inputs(params, x_q, x_kv)
    dtype = computation_dtype(dtype, params, *inputs)

    def project(part: str, x: Array) -> Array:
        heads = to_heads(x, params[part]["kernel"], dtype, precision)
        heads = add_bias(heads, params[part].get("bias")).astype(dtype)
        norm = params.get(f"{part}_norm")
        return heads if norm is None else rms_norm(heads, norm["scale"])

    query, key, value = project("query", x_q), project("key", inputs[-1]), project("value", inputs[-1])
    if rope is None:
        for name, positions in ("query_positions", query_positions), ("key_positions", key_positions):
            if positions is not None:
                raise ValueError(f"{name}: expected None without rope, got positions")
        return query, key, value
    if key_positions is None and x_kv is None:
        key_positions = query_positions
    query_positions = positions_from(0, query.shape[-3]) if query_positions is None else query_positions
    key_positions = positions_from(0, key.shape[-3]) if key_positions is None else key_positions
    return apply_rope(query, query_positions, rope), apply_rope(key, key_positions, rope), value


def combine_heads(
    params: Params,
    heads: Float[Array, "... t n e"],
    *,
    dtype: DTypeLike | None = None,
    precision: jax.lax.PrecisionLike = None,
) -> Float[Array, "... t m_out"]:
    """The output projection: the sum over heads of every head's output times its kernel, in one product.

    Args:
        params: see `init_multi_head_attention`.
        heads: outputs of attention ``(..., T, N, E)``.
        dtype: of the result; sums are taken in float32 at least. None: what JAX promotes to.
        precision: of the product.

    Raises:
        ValueError: parameters or shapes do not agree.
    """
    sizes = sizes_of(params)
    check_floating("heads", heads)
    if heads.ndim < 3 or heads.shape[-2:] != (sizes["N"], sizes["E"]):
        raise ValueError(f"heads: expected shape (..., T, {sizes['N']}, {sizes['E']}), got {heads.shape}")
    dtype = computation_dtype(dtype, params, heads)
    output = from_heads(heads, params["out"]["kernel"], dtype, precision)
    return add_bias(output, params["out"].get("bias")).astype(dtype)


@overload
def multi_head_attention(
    params: Params, x_q: Array, x_kv: Array | None = None, *, cache: None = None, **options: Any
) -> Array: ...
@overload
def multi_head_attention(
    params: Params, x_q: Array, x_kv: Array | None = None, *, cache: KVCache, **options: Any
) -> tuple[Array, KVCache]: ...
def multi_head_attention(
    params: Params,
    x_q: Float[Array, "... t m"],
    x_kv: Float[Array, "... s m_kv"] | None = None,
    *,
    rope: RotaryEmbedding | None = None,
    query_positions: Real[Array, "..."] | None = None,
    key_positions: Real[Array, "..."] | None = None,
    cache: KVCache | None = None,
    dtype: DTypeLike | None = None,
    is_causal: bool | None = None,
    precision: jax.lax.PrecisionLike = None,
    query_offset: int | Int[Array, "..."] = 0,
    **options: Any,
) -> Float[Array, "... t m_out"] | tuple[Float[Array, "... t m_out"], KVCache]:
    """Projects inputs to heads, attends, and projects the heads' outputs back.

    Parameters with ``query_norm`` and ``key_norm`` divide every query and key by the root mean square of its ``D``
    features (plus 1e-6) and multiply by a learned scale that heads share, in float32 at least, before RoPE (as
    Qwen3 does).

    With a cache, queries are the tokens behind those already cached: query ``i`` stands at position ``length + i``,
    its key and value are appended, and it attends causally to everything up to itself. A sequence given in chunks
    of any lengths gives the outputs of the whole sequence given at once with ``is_causal=True``. Masks and biases
    have as many key columns as the cache has room for, whatever is written.

    Args:
        params: see `init_multi_head_attention`.
        x_q: input of the queries ``(..., T, M)``.
        x_kv: input of keys and values ``(..., S, M_kv)``. None: ``x_q``. With a cache, ``S = T``.
        rope: rotates queries and keys by their positions. None: no rotation.
        query_positions: for RoPE, ``(T,)`` or ``(..., T)``. None: ``query_offset`` (the cache's length) + 0, 1, ....
            Masks do not look at them.
        key_positions: likewise for the keys given now. None: ``query_positions`` with a cache, and where they are given
            without ``x_kv``; else 0, 1, ....
        cache: keys and values of earlier tokens, of the batch axes of ``x_q``. They are cast to ``dtype``.
        dtype: of the computation and the result. None: what JAX promotes inputs and parameters to.
        is_causal: None: causal exactly where there is a cache.
        precision: of all products, as in `jax.lax.dot`.
        query_offset: position of the first query, see `mha_jax.attention.dot_product_attention`.
        **options: the other arguments of `mha_jax.attention.dot_product_attention` but ``return_residual``.

    Returns:
        ``(..., T, M_out)``; with a cache, that and the cache with the new tokens appended.

    Raises:
        ValueError: parameters or shapes do not agree; with a cache: it has no room (`mha_jax.cache`), ``is_causal`` is
            False, or ``query_offset`` is given.
    """
    _check_inputs(params, x_q, x_kv)
    if options.pop("return_residual", False):
        raise ValueError("return_residual: expected False (it belongs to dot_product_attention), got True")
    if cache is not None:
        _check_cached(cache, x_q, x_kv, is_causal, query_offset)
        query_offset, is_causal = cache.length, True
    if rope is not None:
        query_positions, key_positions = attended_positions(
            x_q, x_kv, query_positions, key_positions, query_offset=query_offset, cached=cache is not None
        )
    query, key, value = project_heads(
        params,
        x_q,
        x_kv,
        rope=rope,
        query_positions=query_positions,
        key_positions=key_positions,
        dtype=dtype,
        precision=precision,
    )
    appended, kept = None, None
    if cache is not None:
        appended = append(cache, key, value)
        key, value = appended.key.astype(query.dtype), appended.value.astype(query.dtype)
        kept = (appended.key,), appended.value
    heads, _ = attend(
        query,
        key,
        value,
        kept=kept,
        is_causal=False if is_causal is None else is_causal,
        query_offset=query_offset,
        precision=precision,
        **options,
    )
    output = combine_heads(params, heads, dtype=query.dtype, precision=precision)
    if cache is None or appended is None:
        return output
    return mark_dropped(cache, output), appended


def attended_positions(
    x_q: Array,
    x_kv: Array | None,
    query_positions: Array | None,
    key_positions: Array | None,
    *,
    query_offset: int | Array,
    cached: bool,
) -> tuple[Array, Array]:
    """Positions for RoPE as `multi_head_attention` fills them in; ``query_offset`` is the cache's length with one."""
    together = cached or (x_kv is None and query_positions is not None)
    if query_positions is None:
        query_positions = positions_from(query_offset, x_q.shape[-2])
    if key_positions is None:
        keys = x_q if x_kv is None else x_kv
        key_positions = query_positions if together else positions_from(0, keys.shape[-2])
    return query_positions, key_positions


def select_heads(params: Params, heads: Sequence[int]) -> Params:
    """The parameters of a layer that has only some of the query heads, in the order given.

    Its output is that of the whole layer with a head mask of one at ``heads`` and zero elsewhere. Key/value heads that
    no kept head uses are removed too.

    Args:
        params: see `init_multi_head_attention`.
        heads: indices of query heads, each at most once, each in ``0 ... N - 1``.

    Raises:
        ValueError: ``heads`` is empty, repeats an index or is out of range; or, with grouped heads, key/value heads
            would not be used by equally many consecutive query heads.
    """
    sizes = sizes_of(params)
    indices = np.asarray(heads)
    valid = indices.ndim == 1 and indices.size and np.issubdtype(indices.dtype, np.integer)
    if (
        not valid
        or len(set(indices.tolist())) != indices.size
        or indices.min() < 0
        or indices.max() >= sizes["N"]
    ):
        raise ValueError(f"heads: expected different indices in 0 ... {sizes['N'] - 1}, got {heads!r}")
    used = indices // (sizes["N"] // sizes["K"])
    kv_heads = used[np.sort(np.unique(used, return_index=True)[1])]
    if indices.size % kv_heads.size or (used != np.repeat(kv_heads, indices.size // kv_heads.size)).any():
        raise ValueError(
            "heads: expected equally many consecutive query heads of every key/value head that is kept, "
            f"got {heads!r} of key/value heads {used.tolist()}"
        )
    rows = {"query": indices, "key": kv_heads, "value": kv_heads}
    selected = {part: {name: array[rows[part]] for name, array in params[part].items()} for part in rows}
    return {**params, **selected, "out": {**params["out"], "kernel": params["out"]["kernel"][indices]}}


def sizes_of(params: Params) -> dict[str, int]:
    """Sizes of multi-head attention by their letters.

    Raises:
        ValueError: the parameters are not those of multi-head attention, or disagree.
    """
    sizes = check_params(params, _SHAPES, _OPTIONAL)
    if sizes["N"] % sizes["K"]:
        raise ValueError(f"params: expected N a multiple of K, got N = {sizes['N']}, K = {sizes['K']}")
    return sizes


def _check_inputs(params: Params, x_q: Array, x_kv: Array | None) -> tuple[Array, ...]:
    """The inputs there are: ``x_kv`` is the last of them."""
    sizes = sizes_of(params)
    inputs = (x_q,) if x_kv is None else (x_q, x_kv)
    check_input("x_q", x_q, sizes["M"])
    check_input("x_q" if x_kv is None else "x_kv", inputs[-1], sizes["M_kv"])
    if inputs[-1].shape[:-2] != x_q.shape[:-2]:
        raise ValueError(
            f"x_kv: expected the batch axes of x_q, {x_q.shape[:-2]}, got {inputs[-1].shape[:-2]}"
        )
    return inputs


def _check_cached(
    cache: Any, x_q: Array, x_kv: Array | None, is_causal: bool | None, query_offset: Any
) -> None:
    if not isinstance(cache, KVCache):
        raise ValueError(f"cache: expected a KVCache, got {type(cache).__name__}")
    if is_causal is not None and not is_causal:
        raise ValueError("is_causal: expected True or None with a cache, got False")
    if not isinstance(query_offset, int) or query_offset != 0:
        raise ValueError(f"query_offset: expected 0 with a cache, whose length it is, got {query_offset!r}")
    if x_kv is not None and x_kv.shape[-2] != x_q.shape[-2]:
        raise ValueError(
            f"x_kv: expected as many tokens as x_q with a cache, {x_q.shape[-2]}, got {x_kv.shape[-2]}"
        )
