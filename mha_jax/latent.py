"""Multi-head latent attention (MLA): keys and values of all heads expanded from one small latent a token.

With input ``h`` (here ``x``) and per-head kernels (letters below):

- latent ``c = W^DKV h`` and one rotated key for all heads ``k^R = RoPE(W^KR h)``: all that a cache keeps;
- ``k_i = [W_i^UK c; k^R]``, ``v_i = W_i^UV c``;
- ``q_i = [W_i^UQ c^Q; RoPE(W_i^QR c^Q)]`` with ``c^Q = W^DQ h``, or ``c^Q = h`` where queries are not compressed;
- weights ``softmax(q_i . k_i / sqrt(D + d_R))``, output the sum over heads of ``W_i^O`` times head ``i``'s.

**Naive** form: as written. **Absorbed** form: ``(W_i^UQ c^Q) . (W_i^UK c) = (W_i^UK^T W_i^UQ c^Q) . c``, and
``W_i^UV`` is applied after the weighted sum, so that all heads attend the latents themselves: MQA with key
``[c; k^R]`` and value ``c``. No key or value of a head is ever built. A rotation of ``W_i^UK c`` would stand between
the two kernels, which is why RoPE has a key of its own. Both forms give the same numbers up to rounding; naive costs
less arithmetic for many queries (training, prompts), absorbed less memory and traffic for few (decoding).

==========================  =================  ====================================================
``params[part]["kernel"]``  shape              in the paper, transposed
==========================  =================  ====================================================
``latent``                  ``(M, d_c)``       ``W^DKV``
``rope_key``                ``(M, d_R)``       ``W^KR``
``key``                     ``(N, d_c, D)``    ``W_i^UK``
``value``                   ``(N, d_c, E)``    ``W_i^UV``
``query_latent``            ``(M, M_q)``       ``W^DQ``; left out where queries are not compressed
``query``                   ``(N, M_q, D)``    ``W_i^UQ``; ``M_q = M`` without ``query_latent``
``query_rope``              ``(N, M_q, d_R)``  ``W_i^QR``
``out``                     ``(N, E, M_out)``  ``W_i^O``
==========================  =================  ====================================================

With ``latent_norm``, ``latent_norm`` and ``query_latent_norm`` hold a ``scale`` of the latents' widths.

Source: DeepSeek-AI 2024, DeepSeek-V2 (arXiv 2405.04434), equations 9-11 and 14-19.
"""

from typing import Any, overload

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, Real

from mha_jax._layers import (
    Params,
    check_floating,
    check_floating_dtype,
    check_input,
    check_params,
    check_size,
    computation_dtype,
    default_head_dim,
    from_heads,
    init_kernel,
    product,
    rms_norm,
    to_heads,
)
from mha_jax.attention import attend
from mha_jax.cache import LatentCache, append, mark_dropped, written
from mha_jax.rope import RotaryEmbedding, apply_rope, positions_from

_SHAPES = {
    "latent": {"kernel": "M C"},
    "rope_key": {"kernel": "M R"},
    "key": {"kernel": "N C D"},
    "value": {"kernel": "N C E"},
    "query_latent": {"kernel": "M M_q"},
    "query": {"kernel": "N M_q D"},
    "query_rope": {"kernel": "N M_q R"},
    "out": {"kernel": "N E M_out"},
    "latent_norm": {"scale": "C"},
    "query_latent_norm": {"scale": "M_q"},
}
_OPTIONAL = frozenset({"query_latent", "latent_norm", "query_latent_norm"})


def init_latent_attention(
    key: PRNGKeyArray,
    d_model: int,
    num_heads: int,
    *,
    head_dim: int | None = None,
    value_head_dim: int | None = None,
    latent_dim: int | None = None,
    rope_dim: int | None = None,
    query_latent_dim: int | None = None,
    d_out: int | None = None,
    latent_norm: bool = False,
    dtype: DTypeLike = jnp.float32,
) -> Params:
    """Draws the parameters of latent attention; their layout: `mha_jax.latent`.

    Kernels are drawn as in `mha_jax.projections.init_multi_head_attention`: variance 1 / fan-in.

    Args:
        key: random key.
        d_model: width of the input, M.
        num_heads: N.
        head_dim: width of a head's query and key without the rotated part, D. None: ``d_model / num_heads``.
        value_head_dim: E. None: ``head_dim``.
        latent_dim: d_c. None: ``4 head_dim``, as in DeepSeek-V2.
        rope_dim: d_R, even. None: ``head_dim / 2``, as in DeepSeek-V2.
        query_latent_dim: width of compressed queries, d_c'. None: they are not compressed.
        d_out: width of the output, M_out. None: ``d_model``.
        latent_norm: divide latents (of the queries too, where compressed) by their root mean square and multiply
            by a learned scale.
        dtype: of the parameters.

    Raises:
        ValueError: a size is not a positive integer, ``d_model`` is no multiple of ``num_heads`` where ``head_dim`` is
            None, ``rope_dim`` is not even, or the dtype is not floating point.
    """
    d_model, num_heads = check_size("d_model", d_model), check_size("num_heads", num_heads)
    head_dim = default_head_dim(d_model, num_heads) if head_dim is None else check_size("head_dim", head_dim)
    value_head_dim = head_dim if value_head_dim is None else check_size("value_head_dim", value_head_dim)
    latent_dim = 4 * head_dim if latent_dim is None else check_size("latent_dim", latent_dim)
    if rope_dim is None and head_dim % 4:
        raise ValueError(
            f"rope_dim: expected an even number given where half of {head_dim} is none, got None"
        )
    rope_dim = head_dim // 2 if rope_dim is None else check_size("rope_dim", rope_dim)
    if rope_dim % 2:
        raise ValueError(f"rope_dim: expected an even number, got {rope_dim}")
    query_dim = d_model if query_latent_dim is None else check_size("query_latent_dim", query_latent_dim)
    d_out = d_model if d_out is None else check_size("d_out", d_out)
    dtype = check_floating_dtype("dtype", dtype)

    # Kernels and the axes that they sum over.
    kernels: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
        "latent": ((d_model, latent_dim), (0,)),
        "rope_key": ((d_model, rope_dim), (0,)),
        "key": ((num_heads, latent_dim, head_dim), (1,)),
        "value": ((num_heads, latent_dim, value_head_dim), (1,)),
        "query": ((num_heads, query_dim, head_dim), (1,)),
        "query_rope": ((num_heads, query_dim, rope_dim), (1,)),
        "out": ((num_heads, value_head_dim, d_out), (0, 1)),
    }
    if query_latent_dim is not None:
        kernels["query_latent"] = ((d_model, query_dim), (0,))
    keys = jax.random.split(key, len(kernels))
    params = {
        part: {"kernel": init_kernel(keys[i], shape, dtype, contracted=contracted)}
        for i, (part, (shape, contracted)) in enumerate(kernels.items())
    }
    if latent_norm:
        params["latent_norm"] = {"scale": jnp.ones((latent_dim,), dtype)}
    if latent_norm and query_latent_dim is not None:
        params["query_latent_norm"] = {"scale": jnp.ones((query_dim,), dtype)}
    return params


def project_latents(
    params: Params,
    x: Float[Array, "... s m"],
    *,
    rope: RotaryEmbedding | None = None,
    positions: Real[Array, "..."] | None = None,
    dtype: DTypeLike | None = None,
    precision: jax.lax.PrecisionLike = None,
) -> tuple[Float[Array, "... s c"], Float[Array, "... s r"]]:
    """What a cache keeps of every token: its latent ``(..., S, d_c)`` and its rotated key ``(..., S, d_R)``.

    Args:
        params: see `init_latent_attention`.
        x: input ``(..., S, M)``.
        rope: settings of RoPE. None: ``RotaryEmbedding()``.
        positions: ``(S,)`` or ``(..., S)``. None: 0, 1, ....
        dtype: of the computation and the results. None: what JAX promotes to.
        precision: of the products.

    Raises:
        ValueError: parameters or shapes do not agree, or ``x`` is not floating point.
    """
    check_input("x", x, sizes_of(params)["M"])
    dtype = computation_dtype(dtype, params, x)
    positions = positions_from(0, x.shape[-2]) if positions is None else positions
    latent = product("...tm,mc->...tc", x, params["latent"]["kernel"], dtype, precision).astype(dtype)
    if "latent_norm" in params:
        latent = rms_norm(latent, params["latent_norm"]["scale"])
    key = product("...tm,mr->...tr", x, params["rope_key"]["kernel"], dtype, precision).astype(dtype)
    return latent, apply_rope(key[..., None, :], positions, rope)[..., 0, :]


def latent_heads(
    params: Params,
    x: Float[Array, "... t m"],
    latent: Float[Array, "... s c"],
    rope_key: Float[Array, "... s r"],
    *,
    absorbed: bool,
    rope: RotaryEmbedding | None = None,
    positions: Real[Array, "..."] | None = None,
    dtype: DTypeLike | None = None,
    precision: jax.lax.PrecisionLike = None,
) -> tuple[Float[Array, "... t n q"], Float[Array, "... s k q"], Float[Array, "... s k v"]]:
    """Queries, keys and values as attention takes them, in either form; the scale is ``1 / sqrt(D + d_R)`` in both.

    Args:
        params: see `init_latent_attention`.
        x: input of the queries ``(..., T, M)``.
        latent: ``(..., S, d_c)``, of `project_latents`.
        rope_key: ``(..., S, d_R)``, of `project_latents`.
        absorbed: which form.
        rope: settings of RoPE. None: ``RotaryEmbedding()``.
        positions: of the queries, ``(T,)`` or ``(..., T)``. None: 0, 1, ....
        dtype: of the computation and the results. None: what JAX promotes to.
        precision: of the products.

    Returns:
        Naive: ``(..., T, N, D + d_R)``, ``(..., S, N, D + d_R)``, ``(..., S, N, E)``.
        Absorbed: ``(..., T, N, d_c + d_R)``, ``(..., S, 1, d_c + d_R)``, ``(..., S, 1, d_c)``.

    Raises:
        ValueError: parameters or shapes do not agree, or an array is not floating point.
    """
    sizes = sizes_of(params)
    for name, array, size in (
        ("x", x, sizes["M"]),
        ("latent", latent, sizes["C"]),
        ("rope_key", rope_key, sizes["R"]),
    ):
        check_input(name, array, size)
    for name, array in ("latent", latent), ("rope_key", rope_key):
        expected = (*x.shape[:-2], latent.shape[-2])
        if array.shape[:-1] != expected:
            raise ValueError(f"{name}: expected batch and token axes {expected}, got {array.shape[:-1]}")
    dtype = computation_dtype(dtype, params, x)
    positions = positions_from(0, x.shape[-2]) if positions is None else positions
    latent, rope_key = latent.astype(dtype), rope_key.astype(dtype)

    def multiply(spec: str, array: Array, part: str) -> Array:
        return product(spec, array, params[part]["kernel"], dtype, precision).astype(dtype)

    compressed = multiply("...tm,mq->...tq", x, "query_latent") if "query_latent" in params else x
    if "query_latent_norm" in params:
        compressed = rms_norm(compressed, params["query_latent_norm"]["scale"])
    content, rotated = (
        to_heads(compressed, params[part]["kernel"], dtype, precision).astype(dtype)
        for part in ("query", "query_rope")
    )
    rotated = apply_rope(rotated, positions, rope)
    shared = rope_key[..., None, :]
    if absorbed:
        query = jnp.concatenate([multiply("...tnd,ncd->...tnc", content, "key"), rotated], axis=-1)
        key = jnp.concatenate([latent[..., None, :], shared], axis=-1)
        return query, key, latent[..., None, :]
    key = multiply("...sc,ncd->...snd", latent, "key")
    shared = jnp.broadcast_to(shared, (*key.shape[:-1], shared.shape[-1]))
    key = jnp.concatenate([key, shared], axis=-1)
    return jnp.concatenate([content, rotated], axis=-1), key, multiply("...sc,nce->...sne", latent, "value")


@overload
def latent_attention(
    params: Params, x: Array, *, absorbed: bool = False, cache: None = None, **options: Any
) -> Array: ...
@overload
def latent_attention(
    params: Params, x: Array, *, absorbed: bool = False, cache: LatentCache, **options: Any
) -> tuple[Array, LatentCache]: ...
def latent_attention(
    params: Params,
    x: Float[Array, "... t m"],
    *,
    absorbed: bool = False,
    rope: RotaryEmbedding | None = None,
    positions: Real[Array, "..."] | None = None,
    cache: LatentCache | None = None,
    dtype: DTypeLike | None = None,
    is_causal: bool | None = None,
    scale: float | int | Real[Array, ""] | None = None,
    precision: jax.lax.PrecisionLike = None,
    **options: Any,
) -> Float[Array, "... t m_out"] | tuple[Float[Array, "... t m_out"], LatentCache]:
    """Multi-head latent attention of a sequence on itself, or on a cache of latents and itself.

    With a cache, tokens stand behind those already cached and attend causally, as in
    `mha_jax.projections.multi_head_attention`: a sequence in chunks of any lengths, each in either form, gives the
    outputs of the whole sequence.

    Args:
        params: see `init_latent_attention`.
        x: input ``(..., T, M)``.
        absorbed: attend the latents themselves rather than keys and values of every head (`mha_jax.latent`).
        rope: settings of RoPE. None: ``RotaryEmbedding()``.
        positions: for RoPE, ``(T,)`` or ``(..., T)``. None: 0, 1, ..., behind the cache's length. Masks do not look at
            them.
        cache: latents of earlier tokens, of the batch axes of ``x``. They are cast to ``dtype``.
        dtype: of the computation and the result. None: what JAX promotes input and parameters to.
        is_causal: None: causal exactly where there is a cache.
        scale: of the scores. None: ``1 / sqrt(D + d_R)``, in both forms.
        precision: of all products, as in `jax.lax.dot`.
        **options: the other arguments of `mha_jax.attention.dot_product_attention` but ``return_residual`` and
            ``query_offset``.

    Returns:
        ``(..., T, M_out)``; with a cache, that and the cache with the new tokens appended.

    Raises:
        ValueError: parameters or shapes do not agree; with a cache: it has no room (`mha_jax.cache`), or
            ``is_causal`` is False.
    """
    sizes = sizes_of(params)
    check_input("x", x, sizes["M"])
    for name in "return_residual", "query_offset":
        if name in options:
            raise ValueError(f"{name}: expected not to be given (it belongs to dot_product_attention)")
    if cache is not None and not isinstance(cache, LatentCache):
        raise ValueError(f"cache: expected a LatentCache, got {type(cache).__name__}")
    if cache is not None and is_causal is not None and not is_causal:
        raise ValueError("is_causal: expected True or None with a cache, got False")
    dtype = computation_dtype(dtype, params, x)
    offset = 0 if cache is None else cache.length
    positions = positions_from(offset, x.shape[-2]) if positions is None else positions
    settings: dict[str, Any] = {"rope": rope, "positions": positions, "dtype": dtype, "precision": precision}

    latent, rope_key = project_latents(params, x, **settings)
    appended, kept = None, None
    if cache is not None:
        appended = append(cache, latent, rope_key)
        latent, rope_key = appended.latent, appended.rope_key
        if absorbed:
            kept = (latent, rope_key), latent
        else:
            # Entries not yet written would reach the gradients of the kernels that expand them, as 0 * NaN.
            latent = jnp.where(written(appended)[:, None], latent, 0)
    query, key, value = latent_heads(params, x, latent, rope_key, absorbed=absorbed, **settings)
    if scale is None:
        scale = (sizes["D"] + sizes["R"]) ** -0.5
    heads, _ = attend(
        query,
        key,
        value,
        kept=kept,
        scale=scale,
        is_causal=cache is not None if is_causal is None else is_causal,
        query_offset=offset,
        precision=precision,
        **options,
    )
    output = combine_latent_heads(params, heads, absorbed=absorbed, dtype=dtype, precision=precision)
    if cache is None or appended is None:
        return output
    return mark_dropped(cache, output), appended


def combine_latent_heads(
    params: Params,
    heads: Float[Array, "... t n v"],
    *,
    absorbed: bool,
    dtype: DTypeLike | None = None,
    precision: jax.lax.PrecisionLike = None,
) -> Float[Array, "... t m_out"]:
    """The output projection, for outputs of attention in either form.

    Args:
        params: see `init_latent_attention`.
        heads: ``(..., T, N, E)``, or absorbed ``(..., T, N, d_c)``.
        absorbed: which form.
        dtype: of the result; sums are taken in float32 at least. None: what JAX promotes to.
        precision: of the products.

    Raises:
        ValueError: parameters or shapes do not agree.
    """
    sizes = sizes_of(params)
    width = sizes["C" if absorbed else "E"]
    check_floating("heads", heads)
    if heads.ndim < 3 or heads.shape[-2:] != (sizes["N"], width):
        raise ValueError(f"heads: expected shape (..., T, {sizes['N']}, {width}), got {heads.shape}")
    dtype = computation_dtype(dtype, params, heads)
    if absorbed:
        heads = product("...tnc,nce->...tne", heads, params["value"]["kernel"], dtype, precision)
    return from_heads(heads, params["out"]["kernel"], dtype, precision).astype(dtype)


def sizes_of(params: Params) -> dict[str, int]:
    """Sizes of latent attention by their letters.

    Raises:
        ValueError: the parameters are not those of latent attention, or disagree.
    """
    sizes = check_params(params, _SHAPES, _OPTIONAL)
    if "query_latent" not in params:
        if "query_latent_norm" in params:
            raise ValueError("params: expected part 'query_latent' to go with 'query_latent_norm'")
        if sizes["M_q"] != sizes["M"]:
            raise ValueError(
                f"params['query']['kernel']: expected M_q = M = {sizes['M']}, got {sizes['M_q']}"
            )
    return sizes
