"""Where a head looks: shares of its attention that go to chosen keys.

The share of a selector M is the sum of weights over its pairs, divided by the number of queries that count (all real
tokens, also those for which M selects nothing, such as the last one's next). This is the definition of Clark et al.
2019 in their code: their averages divide by the number of tokens of a segment, from delimiters by that of delimiters.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from mha_jax.analysis._maps import (
    AnyArray,
    Total,
    broadcast_bool,
    check_maps,
    check_tokens,
    counted,
    first_real,
    total_over_queries,
)
from mha_jax.masks import is_integer


def attention_share(
    weights: Float[AnyArray, "*batch N T T"],
    selector: Bool[AnyArray, "..."],
    tokens: Bool[AnyArray, "..."] | None = None,
    *,
    queries: Bool[AnyArray, "..."] | None = None,
) -> Total:
    """Attention that goes to selected pairs of query and key.

    Args:
        weights: attention maps.
        selector: pairs (T, T) of query and key, with batch axes in front where examples differ; the keys alone are
            a selector by `key_selector`.
        tokens: (..., T), False for padding, which counts neither as a query nor as a key; broadcasts to the batch
            axes from the right, so that one mask (B, T) serves maps (L, B, N, T, T). All real if None.
        queries: (..., T), False for queries that are left out. None leaves none out.

    Returns:
        Sums over queries for every head of every example, (..., N); the share is their `Total.mean`.

    Raises:
        ValueError: an argument has a wrong shape or dtype; the message names it.
    """
    weights, _, queries = counted(weights, tokens, queries)
    size = weights.shape[-1]
    selector = jnp.asarray(selector)
    if selector.ndim < 2 or selector.shape[-2] not in (1, size):
        raise ValueError(f"selector: expected pairs (..., {size}, {size}), got {selector.shape}")
    selector = broadcast_bool(selector, "selector", (*weights.shape[:-3], size, size))
    return total_over_queries(jnp.where(selector[..., None, :, :], weights, 0).sum(-1), queries)


def attention_shares(
    weights: Float[AnyArray, "*batch N T T"],
    tokens: Bool[AnyArray, "..."] | None = None,
    *,
    delimiters: Bool[AnyArray, "..."] | None = None,
    queries: Bool[AnyArray, "..."] | None = None,
) -> dict[str, Total]:
    """Attention to the previous and the next token, to itself, to the first real token and to delimiters.

    Args:
        weights: attention maps.
        tokens: as in `attention_share`.
        delimiters: (..., T), True at separators, punctuation, or whatever else is asked about.
        queries: as in `attention_share`.

    Returns:
        ``previous``, ``next``, ``self``, ``first`` and, where delimiters are given, ``delimiter``; each as in
        `attention_share`.

    Raises:
        ValueError: as `attention_share`.
    """
    weights = check_maps(weights)
    size = weights.shape[-1]
    selectors = {
        "previous": offset_selector(size, -1),
        "next": offset_selector(size, 1),
        "self": offset_selector(size, 0),
        "first": key_selector(first_real(check_tokens(tokens, "tokens", weights))),
    }
    if delimiters is not None:
        selectors["delimiter"] = key_selector(delimiters)
    return {name: attention_share(weights, s, tokens, queries=queries) for name, s in selectors.items()}


def offset_selector(num_tokens: int, offset: int) -> Bool[Array, "T T"]:
    """Pairs in which the key stands ``offset`` after the query: -1 the previous token, 1 the next, 0 itself.

    Raises:
        ValueError: if a number is no integer, or that of tokens is negative.
    """
    if not is_integer(num_tokens) or num_tokens < 0:
        raise ValueError(f"num_tokens: expected a non-negative integer, got {num_tokens!r}")
    if not is_integer(offset):
        raise ValueError(f"offset: expected an integer, got {offset!r}")
    return jnp.eye(num_tokens, k=int(offset), dtype=bool)


def key_selector(keys: Bool[AnyArray, "*batch T"]) -> Bool[Array, "*batch 1 T"]:
    """Pairs of any query with these keys.

    Raises:
        ValueError: if they are not booleans.
    """
    chosen = jnp.asarray(keys)
    if chosen.dtype != jnp.bool_:
        raise ValueError(f"keys: expected booleans, got {chosen.dtype}")
    return chosen[..., None, :]
