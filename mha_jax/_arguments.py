"""From the arguments of a call to what kernels are given: checks, the heads' layout, and what nobody reads.

Every check raises ``ValueError`` with the argument's name, what was expected and what came. `prepare` then brings
each array to the layout of the kernels, ``(..., K, G, rows, columns)``, where axes of size 1 are shared.

A position that no query of the call attends (padding, say) may hold anything, NaN included. Multiplying it by a
weight of zero would not remove a NaN, so that such queries, keys and values are set to zero here, once for each
example, and their gradients with them. Where a kernel reads every key once (``as_they_came``), keys and values stay
as they are, and the kernel does the same to each block of them: a step of decoding copies no cache.
"""

import functools
import math
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mha_jax._kernels.head import Operands, Options, split_heads, tile_visible, zero_unless
from mha_jax.masks import is_integer, window_sides

# No position, offset or side of a window is farther: sums of any three stay in int32.
_FAR = 2**29
_FLOATS = ("float16", "bfloat16", "float32", "float64")


class Sizes(NamedTuple):
    """Sizes of a call: ``heads`` are the leading axes of the kernels' operands, ``(*batch, K, G)``."""

    batch: tuple[Any, ...]  # integers, or symbolic ones
    queries: int
    keys: int
    kv_heads: int
    group: int

    @property
    def heads(self) -> tuple[Any, ...]:
        return (*self.batch, self.kv_heads, self.group)

    @property
    def logits(self) -> tuple[Any, ...]:
        """``(..., N, T, S)``."""
        return (*self.batch, self.kv_heads * self.group, self.queries, self.keys)

    @property
    def empty(self) -> bool:
        """Whether there is no pair of a query and a key."""
        return 0 in (*self.batch, self.queries, self.keys)


def check_sizes(query: Array, key: Array, value: Array) -> Sizes:
    """Sizes of (..., T, N, D), (..., S, K, D) and (..., S, K, E), or ValueError.

    Raises:
        ValueError: shapes or dtypes do not go together.
        NotImplementedError: a length is symbolic (`jax.export`).
    """
    if query.ndim < 3 or 0 in query.shape[-2:]:
        raise ValueError(f"query: expected (..., T, N, D) with N, D > 0, got {query.shape}")
    *batch, queries, heads, width = query.shape
    if key.ndim != query.ndim or key.shape[:-3] != tuple(batch) or key.shape[-1] != width:
        wanted = ", ".join([*map(str, batch), "S", "K", str(width)])
        raise ValueError(f"key: expected ({wanted}) to go with query {query.shape}, got {key.shape}")
    keys, kv_heads = key.shape[-3:-1]
    if kv_heads == 0 or heads % kv_heads:
        raise ValueError(f"key: expected a number of heads (axis -2) that divides {heads}, got {kv_heads}")
    if value.ndim != key.ndim or value.shape[:-1] != key.shape[:-1]:
        wanted = ", ".join([*map(str, key.shape[:-1]), "E"])
        raise ValueError(f"value: expected ({wanted}) to go with key {key.shape}, got {value.shape}")
    if query.dtype.name not in _FLOATS:
        raise ValueError(f"query: expected one of {', '.join(_FLOATS)}, got {query.dtype}")
    for name, x in ("key", key), ("value", value):
        if x.dtype != query.dtype:
            raise ValueError(f"{name}: expected the query's dtype {query.dtype}, got {x.dtype}")
    if not isinstance(queries, int) or not isinstance(keys, int):
        raise NotImplementedError(
            f"query, key: lengths must be known when the call is traced (batch axes need not), got {query.shape}, "
            f"{key.shape}"
        )
    return Sizes(tuple(batch), queries, keys, kv_heads, heads // kv_heads)


def prepare(
    query: Array,
    key: Array,
    value: Array,
    *,
    sizes: Sizes,
    as_they_came: bool = False,
    bias: Any,
    mask: Any,
    scale: Any,
    is_causal: Any,
    query_seq_lengths: Any,
    key_value_seq_lengths: Any,
    local_window_size: Any,
    query_offset: Any,
    logits_soft_cap: Any,
    dropout_rate: Any,
    dropout_key: Any,
    precision: Any,
) -> tuple[Operands, Options]:
    """What the kernels are given, from the arguments of `mha_jax.dot_product_attention`.

    Keys and values are split into heads, cast and zeroed where unread; ``as_they_came``, the blockwise kernel does so.
    """
    dtype = jnp.float64 if query.dtype == jnp.float64 else jnp.float32
    lower, upper = _band(is_causal, local_window_size)
    if query_offset is None:
        raise ValueError("query_offset: expected an integer or integers, got None")
    offset = _integers(query_offset, "query_offset", sizes, least=-_FAR, greatest=_FAR)
    if is_integer(offset):  # known: part of the band
        lower = None if lower is None else lower + offset
        upper = None if upper is None else upper + offset
        offset = None
    rate = _checked_rate(dropout_rate, dropout_key)
    options = Options(lower, upper, _checked_cap(logits_soft_cap), rate, precision)
    operands = Operands(
        query=split_heads(query, sizes.kv_heads).astype(dtype)
        * _checked_scale(scale, query.shape[-1], dtype),
        key=key,
        value=value,
        bias=_checked_bias(bias, sizes, dtype),
        mask=_checked_mask(mask, sizes),
        offset=None if lower is None and upper is None else _scalars(offset, sizes),
        query_length=_scalars(
            _integers(query_seq_lengths, "query_seq_lengths", sizes, least=0, greatest=sizes.queries), sizes
        ),
        key_length=_scalars(
            _integers(key_value_seq_lengths, "key_value_seq_lengths", sizes, least=0, greatest=sizes.keys),
            sizes,
        ),
        dropout_words=_dropout_words(dropout_key, sizes) if rate else None,
    )
    queries, keys = _read(operands, options, sizes)
    operands = operands._replace(query=_zero_unless(queries, operands.query))
    if as_they_came:
        known = isinstance(keys, np.ndarray) and keys.all()
        return operands._replace(read=None if known else jnp.asarray(keys)), options
    key, value = (_zero_unless(keys, split_heads(x, sizes.kv_heads).astype(dtype)) for x in (key, value))
    return operands._replace(key=key, value=value), options


def merge_heads(x: Array, sizes: Sizes) -> Array:
    """(..., K, G, T, *rest) of the kernels to (..., T, N, *rest)."""
    axis = len(sizes.batch)
    x = jnp.moveaxis(x, axis + 2, axis)
    return x.reshape(*x.shape[: axis + 1], sizes.kv_heads * sizes.group, *x.shape[axis + 3 :])


def checked_head_mask(head_mask: Any, sizes: Sizes, dtype: Any) -> Array:
    """The head mask, (..., T, N)."""
    wanted = (*sizes.batch, sizes.queries, sizes.kv_heads * sizes.group)
    head_mask = jnp.asarray(head_mask)
    if _is(head_mask, jnp.complexfloating) or not _broadcasts(head_mask.shape, wanted):
        raise ValueError(
            f"head_mask: expected real numbers that broadcast to (..., T, N) = {wanted}, "
            f"got {head_mask.dtype} {head_mask.shape}"
        )
    return jnp.broadcast_to(head_mask.astype(dtype), wanted)


def _band(is_causal: Any, window: Any) -> tuple[int | None, int | None]:
    """Least and greatest ``s - t`` that is attended."""
    if not isinstance(is_causal, bool | np.bool_):
        raise ValueError(f"is_causal: expected a bool, got {is_causal!r}")
    if window is None:
        return None, 0 if is_causal else None
    left, right = (min(side, _FAR) for side in window_sides(window, "local_window_size"))
    return -left, 0 if is_causal else right


def _integers(x: Any, name: str, sizes: Sizes, *, least: int, greatest: int) -> Any:
    """None, an int, or int32 of the batch's axes (of size 1 where shared), clipped to [least, greatest]."""
    if x is None:
        return None
    if is_integer(x):
        return min(max(int(x), least), greatest)
    x = (
        x if isinstance(x, jax.Array) else np.asarray(x)
    )  # JAX would cut 64 bits to 32 before they are clipped
    if not _is(x, jnp.integer) or not _broadcasts(x.shape, sizes.batch):
        raise ValueError(
            f"{name}: expected an integer or integers that broadcast to the batch {sizes.batch}, "
            f"got {x.dtype} {x.shape}"
        )
    limits = jnp.iinfo(x.dtype)
    x = jnp.asarray(x.clip(max(least, limits.min), min(greatest, limits.max)).astype(np.int32))
    return x.reshape((1,) * (len(sizes.batch) - x.ndim) + x.shape)


def _scalars(x: Any, sizes: Sizes) -> Array | None:
    """One int32 for each example, in the layout of the kernels, (..., 1, 1)."""
    if x is None:
        return None
    if is_integer(x):
        return jnp.full((1,) * len(sizes.heads), x, jnp.int32)
    return x[..., None, None]


def _checked_scale(scale: Any, width: int, dtype: Any) -> Any:
    if scale is None:
        return 1 / math.sqrt(width)
    scale = jnp.asarray(scale)
    if scale.shape != () or not (_is(scale, jnp.floating) or _is(scale, jnp.integer)):
        raise ValueError(f"scale: expected a real number or None, got {scale.dtype} {scale.shape}")
    return scale.astype(dtype)


def _checked_cap(cap: Any) -> float | None:
    if cap is None:
        return None
    value = _number(cap)
    if value is None or not 0 < value < math.inf:
        raise ValueError(f"logits_soft_cap: expected a positive, finite number or None, got {cap!r}")
    return value


def _checked_rate(rate: Any, key: Any) -> float:
    value = _number(rate)
    if value is None or not 0 <= value < 1:
        raise ValueError(f"dropout_rate: expected a number in [0, 1), got {rate!r}")
    if value > 0 and key is None:
        raise ValueError(f"dropout_key: expected a key where dropout_rate is {rate}, got None")
    return value


def _number(x: Any) -> float | None:
    """A number that is known when the call is traced; None for anything else."""
    if isinstance(x, bool | np.bool_ | str | bytes):
        return None
    try:
        return float(x)
    except (TypeError, ValueError):  # also an array of many numbers, or one that is traced
        return None


def _dropout_words(key: Any, sizes: Sizes) -> Array:
    """Two random words for every head of every example."""
    try:
        if not (isinstance(key, jax.Array) and _is(key, jax.dtypes.prng_key)):
            key = jax.random.wrap_key_data(jnp.asarray(key))
    except (TypeError, ValueError):
        raise ValueError(f"dropout_key: expected a key of jax.random, got {key!r}") from None
    if key.shape != ():
        raise ValueError(f"dropout_key: expected one key, got keys of shape {key.shape}")
    return jax.random.bits(key, (*sizes.heads, 2), jnp.uint32)


def _checked_bias(bias: Any, sizes: Sizes, dtype: Any) -> Array | None:
    if bias is None:
        return None
    bias = jnp.asarray(bias)
    if not _is(bias, jnp.floating):
        raise ValueError(f"bias: expected floating point, got {bias.dtype}")
    return _group_pairs(bias, "bias", sizes).astype(dtype)


def _checked_mask(mask: Any, sizes: Sizes) -> Array | None:
    if mask is None:
        return None
    mask = jnp.asarray(mask)
    if mask.dtype != jnp.bool_:
        raise ValueError(f"mask: expected bool, got {mask.dtype}")
    return _group_pairs(mask, "mask", sizes)


def _group_pairs(x: Array, name: str, sizes: Sizes) -> Array:
    """Mask or bias, (..., N or 1, T or 1, S or 1), to (..., K or 1, G or 1, T or 1, S or 1)."""
    wanted = sizes.logits
    if x.ndim != len(wanted) or not _broadcasts(x.shape, wanted):
        raise ValueError(
            f"{name}: expected {len(wanted)} axes that broadcast to (..., N, T, S) = {wanted}, got {x.shape}"
        )
    heads = (1, 1) if x.shape[-3] == 1 else (sizes.kv_heads, sizes.group)
    return x.reshape(*x.shape[:-3], *heads, *x.shape[-2:])


def _is(x: Array | np.ndarray, kind: Any) -> bool:
    return jnp.issubdtype(x.dtype, kind)


def _broadcasts(shape: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    """Whether an array of ``shape`` broadcasts to ``wanted``."""
    if len(shape) > len(wanted):
        return False
    return all(n in (1, m) for n, m in zip(shape[::-1], wanted[::-1], strict=False))


def _read(operands: Operands, options: Options, sizes: Sizes) -> tuple[Any, Any]:
    """Which queries attend something (..., 1, 1, T), and which keys are attended (..., 1, 1, S)."""
    if operands.mask is None and operands.bias is None:
        return _read_by_position(operands, options, sizes)
    if (allowed := _allowed_keys(operands)) is not None:
        return _read_by_keys(allowed, operands, options, sizes)
    return _read_by_pairs(operands, options, sizes)


def _zero_unless(read: Array | np.ndarray, x: Array) -> Array:
    """`zero_unless`, which leaves ``x`` alone where it is known that everything is read."""
    return x if isinstance(read, np.ndarray) and read.all() else zero_unless(read, x)


def _read_by_pairs(operands: Operands, options: Options, sizes: Sizes) -> tuple[Array, Array]:
    """Which queries attend something and which keys are attended, in any head, where there is a mask or bias."""
    ones = (1,) * len(sizes.heads)
    rows = jnp.arange(sizes.queries, dtype=jnp.int32).reshape(*ones, -1)
    columns = jnp.arange(sizes.keys, dtype=jnp.int32).reshape(*ones, -1)
    visible = tile_visible(operands, options, rows, columns)
    if operands.bias is not None:
        finite = operands.bias != -jnp.inf
        visible = finite if visible is None else visible & finite
    visible = jnp.asarray(visible)
    return visible.any((-4, -3, -1), keepdims=True)[..., 0], visible.any((-4, -3, -2), keepdims=True)[
        ..., 0, :
    ]


def _read_by_keys(allowed: Array, operands: Operands, options: Options, sizes: Sizes) -> tuple[Array, Array]:
    """The same where mask and bias are of keys alone, as padding is: in O(T + S) memory, also with a band.

    A query attends something if its stretch of the band, from ``first`` to before ``stop``, has an allowed key: if
    the number of allowed keys before ``stop`` is larger than that before ``first``.

    Args:
        allowed: bool (..., K or 1, G or 1, S or 1), by mask and bias.
        operands: of the call.
        options: of the call.
        sizes: of the call.
    """
    queries, keys = _read_by_position(operands, options, sizes)
    allowed = allowed.any((-3, -2), keepdims=True)
    allowed = jnp.broadcast_to(allowed, (*allowed.shape[:-1], sizes.keys))
    before = jnp.cumsum(allowed, axis=-1, dtype=jnp.int32)
    before = jnp.concatenate([jnp.zeros_like(before[..., :1]), before], axis=-1)
    rows = jnp.arange(sizes.queries, dtype=jnp.int32).reshape((1,) * len(sizes.heads) + (-1,))
    if operands.offset is not None:
        rows = rows + operands.offset[..., None]
    first = jnp.zeros_like(rows) if options.lower is None else jnp.clip(rows + options.lower, 0, sizes.keys)
    stop = jnp.full_like(rows, sizes.keys)
    if options.upper is not None:
        stop = jnp.clip(rows + (options.upper + 1), 0, sizes.keys)
    if operands.key_length is not None:
        stop = jnp.minimum(stop, operands.key_length[..., None])
    shape = jnp.broadcast_shapes(before.shape[:-1], stop.shape[:-1])
    before = jnp.broadcast_to(before, (*shape, before.shape[-1]))
    first, stop = (jnp.broadcast_to(x, (*shape, sizes.queries)) for x in (first, stop))
    found = jnp.take_along_axis(before, stop, axis=-1) > jnp.take_along_axis(before, first, axis=-1)
    return found & queries, allowed & keys


def _allowed_keys(operands: Operands) -> Array | None:
    """Keys allowed by mask and bias, (..., K or 1, G or 1, S or 1); None where they depend on the query."""
    arrays = [x for x in (operands.mask, operands.bias) if x is not None]
    if any(x.shape[-2] != 1 for x in arrays):
        return None
    tests = [x if x.dtype == jnp.bool_ else x != -jnp.inf for x in arrays]
    return functools.reduce(operator.and_, tests)[..., 0, :]


def _read_by_position(operands: Operands, options: Options, sizes: Sizes) -> tuple[Any, Any]:
    """The same where there is neither: by arithmetic on positions, at the time of tracing if all is known."""
    dynamic = (operands.offset, operands.query_length, operands.key_length)
    xp = np if all(x is None for x in dynamic) else jnp
    offset, num_queries, num_keys = (
        default if x is None else x[..., None]
        for x, default in zip(dynamic, (0, sizes.queries, sizes.keys), strict=True)
    )
    ones = (1,) * len(sizes.heads)
    rows = xp.arange(sizes.queries, dtype=xp.int32).reshape(*ones, -1)
    columns = xp.arange(sizes.keys, dtype=xp.int32).reshape(*ones, -1)

    def some_between(first, last, count):
        """Whether some position in [0, count) lies in [first, last], where None is no limit."""
        first = 0 if first is None else xp.maximum(first, 0)
        last = count - 1 if last is None else xp.minimum(last, count - 1)
        return first <= last

    def shifted(positions, limit, sign):
        return None if limit is None else positions + sign * (limit + offset)

    queries = (rows < num_queries) & some_between(
        shifted(rows, options.lower, 1), shifted(rows, options.upper, 1), num_keys
    )
    keys = (columns < num_keys) & some_between(
        shifted(columns, options.upper, -1), shifted(columns, options.lower, -1), num_queries
    )
    return queries, keys
