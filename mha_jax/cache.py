"""Caches for decoding: what earlier tokens leave behind for later ones to attend.

A cache is a pytree of fixed capacity ``S``, so that a compiled step serves every length. ``length`` counts the
entries written; it is one number for the whole batch. (Sequences of their own lengths: `jax.vmap` over caches, or
prompts padded on the left, with a mask and positions.) Entries not yet written may hold anything.

Appending is one `jax.lax.dynamic_update_slice` an array: jit a decode step with the cache donated
(``donate_argnames="cache"``) and the cache is updated in place.

Past the capacity. Where the length is known, so outside `jax.jit` and `jax.vmap`, appending raises a ValueError.
Where it is traced, entries that do not fit are dropped, all others are written and kept, the length stops at the
capacity, and the output of every query whose own entry was dropped is NaN; `jax.experimental.checkify.checkify` around
the compiled function returns an error that names the cache.

Sizes: `bytes_per_token`.
"""

from typing import Literal, NamedTuple, TypeVar, get_args

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import checkify
from jax.typing import DTypeLike
from jaxtyping import Array, Bool

from mha_jax._layers import check_floating, check_floating_dtype, check_size

Kind = Literal["mha", "gqa", "mqa", "mla"]


class KVCache(NamedTuple):
    """Keys and values of MHA (``K = N``), GQA and MQA (``K = 1``).

    Attributes:
        key: ``(..., S, K, D)``, rotated and normalised as they are attended.
        value: ``(..., S, K, E)``.
        length: int32 scalar, entries written.
    """

    key: Array
    value: Array
    length: Array


class LatentCache(NamedTuple):
    """Latents of MLA: shared by all heads.

    Attributes:
        latent: ``(..., S, d_c)``, the compressed keys and values.
        rope_key: ``(..., S, d_R)``, the decoupled key, rotated.
        length: int32 scalar, entries written.
    """

    latent: Array
    rope_key: Array
    length: Array


Cache = TypeVar("Cache", KVCache, LatentCache)


def init_cache(
    capacity: int,
    num_kv_heads: int,
    head_dim: int,
    *,
    value_head_dim: int | None = None,
    batch_shape: tuple[int, ...] = (),
    dtype: DTypeLike = jnp.float32,
) -> KVCache:
    """An empty cache of keys and values.

    Args:
        capacity: entries it can hold, S.
        num_kv_heads: K.
        head_dim: D.
        value_head_dim: E. None: ``head_dim``.
        batch_shape: the batch axes; they may be empty.
        dtype: what entries are kept in, for example bfloat16; attention casts them to its own.

    Raises:
        ValueError: a size is not a positive integer, or the dtype is not floating point.
    """
    heads, width = check_size("num_kv_heads", num_kv_heads), check_size("head_dim", head_dim)
    value_width = width if value_head_dim is None else check_size("value_head_dim", value_head_dim)
    shape, dtype = _leading(batch_shape, capacity), check_floating_dtype("dtype", dtype)
    key, value = jnp.zeros((*shape, heads, width), dtype), jnp.zeros((*shape, heads, value_width), dtype)
    return KVCache(key, value, jnp.zeros((), jnp.int32))


def init_latent_cache(
    capacity: int,
    latent_dim: int,
    rope_dim: int,
    *,
    batch_shape: tuple[int, ...] = (),
    dtype: DTypeLike = jnp.float32,
) -> LatentCache:
    """An empty cache of latents.

    Args:
        capacity: entries it can hold, S.
        latent_dim: d_c.
        rope_dim: d_R.
        batch_shape: the batch axes; they may be empty.
        dtype: what entries are kept in.

    Raises:
        ValueError: a size is not a positive integer, or the dtype is not floating point.
    """
    latent_dim, rope_dim = check_size("latent_dim", latent_dim), check_size("rope_dim", rope_dim)
    shape, dtype = _leading(batch_shape, capacity), check_floating_dtype("dtype", dtype)
    return LatentCache(
        jnp.zeros((*shape, latent_dim), dtype), jnp.zeros((*shape, rope_dim), dtype), jnp.zeros((), jnp.int32)
    )


def capacity(cache: KVCache | LatentCache) -> int:
    """Entries that ``cache`` can hold."""
    return cache[0].shape[_token_axis(cache)]


def append(cache: Cache, first: Array, second: Array) -> Cache:
    """Writes the entries of one or more tokens behind those already there.

    Args:
        cache: a `KVCache` or a `LatentCache`.
        first: keys ``(..., T, K, D)``, or latents ``(..., T, d_c)``; cast to the dtype of the cache.
        second: values ``(..., T, K, E)``, or rotated keys ``(..., T, d_R)``.

    Returns:
        The cache with ``T`` more entries. What happens past the capacity: `mha_jax.cache`.

    Raises:
        ValueError: shapes do not agree, or the length is known and there is no room.
    """
    axis, room = _token_axis(cache), capacity(cache)
    count = _check_entries(cache, first, second, axis)
    message = "cache: expected room for {count} more entries, got {length} of {room} in use"
    if isinstance(cache.length, jax.core.Tracer):
        details = {"count": jnp.int32(count), "length": cache.length, "room": jnp.int32(room)}
        checkify.debug_check(cache.length + count <= room, message, **details)
    elif int(cache.length) + count > room:
        raise ValueError(message.format(count=count, length=int(cache.length), room=room))
    first = _write(cache[0], first, cache.length, axis)
    second = _write(cache[1], second, cache.length, axis)
    return type(cache)(first, second, jnp.minimum(cache.length + count, room))


def written(cache: KVCache | LatentCache) -> Bool[Array, " s"]:
    """Which of the cache's places hold an entry."""
    return jnp.arange(capacity(cache), dtype=jnp.int32) < cache.length


def dropped(cache: KVCache | LatentCache, count: int) -> Bool[Array, " t"]:
    """Which of the next ``count`` entries do not fit into ``cache``."""
    return cache.length + jnp.arange(count, dtype=jnp.int32) >= capacity(cache)


def mark_dropped(cache: KVCache | LatentCache, output: Array) -> Array:
    """``output`` ``(..., T, M)`` of the tokens appended to ``cache``, NaN where their own entry was dropped.

    ``cache`` is the one before appending. Where its length is known nothing can have been dropped.
    """
    if not isinstance(cache.length, jax.core.Tracer):
        return output
    mask = dropped(cache, output.shape[-2])[:, None]
    return jnp.where(jnp.broadcast_to(mask, output.shape), jnp.nan, output)


def bytes_per_token(
    kind: Kind,
    *,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    value_head_dim: int | None = None,
    latent_dim: int | None = None,
    rope_dim: int | None = None,
    num_layers: int = 1,
    dtype: DTypeLike = jnp.float32,
) -> int:
    """Bytes that one token occupies in the caches of a model.

    ======  ==========================================================  ==========================
    kind    elements (with l layers, n_h heads, n_g kv heads)           needs
    ======  ==========================================================  ==========================
    mha     ``2 n_h d_h l``                                             ``num_heads, head_dim``
    gqa     ``2 n_g d_h l``                                             ``num_kv_heads, head_dim``
    mqa     ``2 d_h l``                                                 ``head_dim``
    mla     ``(d_c + d_h^R) l``                                         ``latent_dim, rope_dim``
    ======  ==========================================================  ==========================

    Where ``value_head_dim`` is given, ``2 d_h`` is ``d_h + d_v``. Sizes that a kind does not need are ignored, so
    that one configuration can be priced for all kinds.

    Raises:
        ValueError: the kind is unknown, a size that it needs is missing, or a size is not a positive integer.

    Source: DeepSeek-AI 2024, DeepSeek-V2 (arXiv 2405.04434), table 1.
    """
    if kind not in get_args(Kind):
        raise ValueError(f"kind: expected one of {get_args(Kind)}, got {kind!r}")
    if kind == "mla":
        elements = check_size("latent_dim", latent_dim) + check_size("rope_dim", rope_dim)
    else:
        heads = 1
        if kind != "mqa":
            name, heads = ("num_heads", num_heads) if kind == "mha" else ("num_kv_heads", num_kv_heads)
            heads = check_size(name, heads)
        width = check_size("head_dim", head_dim)
        value_width = width if value_head_dim is None else check_size("value_head_dim", value_head_dim)
        elements = heads * (width + value_width)
    return elements * check_size("num_layers", num_layers) * check_floating_dtype("dtype", dtype).itemsize


def _leading(batch_shape: tuple[int, ...], capacity: int) -> tuple[int, ...]:
    return (*(check_size("batch_shape", size) for size in batch_shape), check_size("capacity", capacity))


def _token_axis(cache: KVCache | LatentCache) -> int:
    if not isinstance(cache, KVCache | LatentCache):
        raise ValueError(f"cache: expected a KVCache or a LatentCache, got {type(cache).__name__}")
    return -3 if isinstance(cache, KVCache) else -2


def _check_entries(cache: KVCache | LatentCache, first: Array, second: Array, axis: int) -> int:
    """The number of new entries; a ValueError unless both fit the cache's arrays but for the token axis."""
    if jnp.shape(cache.length) != ():
        raise ValueError(
            f"cache: expected one length for the whole batch, got shape {jnp.shape(cache.length)}"
        )
    count = first.shape[axis] if first.ndim >= -axis else None
    for name, held, new in zip(cache._fields, cache[:2], (first, second), strict=False):
        check_floating(name, new)
        expected = list(held.shape)
        expected[axis] = count
        if count is None or new.shape != tuple(expected):
            letters = ["T" if i == held.ndim + axis else str(size) for i, size in enumerate(held.shape)]
            raise ValueError(f"{name}: expected shape ({', '.join(letters)}), got {new.shape}")
    return count or 0


def _write(held: Array, new: Array, length: Array, axis: int) -> Array:
    """``held`` with ``new`` at positions ``length`` onwards; what would lie past the end is dropped.

    `lax.dynamic_update_slice` moves a slice that does not fit back until it does, which would overwrite earlier
    entries. So the slice is filled for the place it will be moved to: entries held there, then new ones.
    """
    axis += held.ndim
    room = held.shape[axis]
    new = lax.slice_in_dim(new, 0, min(new.shape[axis], room), axis=axis).astype(held.dtype)
    count = new.shape[axis]
    start = jnp.minimum(length, room - count)
    kept = length - start  # entries of the slice that stay as they are, 0 where everything fits
    before = lax.dynamic_slice_in_dim(held, start, count, axis)
    padding = [(0, 0)] * held.ndim
    padding[axis] = (count, 0)
    moved = lax.dynamic_slice_in_dim(jnp.pad(new, padding), count - kept, count, axis)
    place = lax.broadcasted_iota(jnp.int32, new.shape, axis)
    return lax.dynamic_update_slice_in_dim(held, jnp.where(place < kept, before, moved), start, axis)
