"""How widely a head looks: entropy and confidence."""

import jax.numpy as jnp
from jax.scipy.special import xlogy
from jaxtyping import Array, Bool, Float

from mha_jax.analysis._maps import (
    AnyArray,
    Scalar,
    Total,
    check_tokens,
    counted,
    option,
    total_over_queries,
)


def attention_entropy(
    weights: Float[AnyArray, "*batch N T T"],
    tokens: Bool[AnyArray, "..."] | None = None,
    *,
    queries: Bool[AnyArray, "..."] | None = None,
    smoothing: Scalar = 0.0,
    is_causal: bool = False,
) -> Total:
    """Entropy of attention in nats: ``-sum_s a[t, s] log a[t, s]`` for query t.

    Source: Clark et al. 2019, whose code smooths with 1e-4: ``a <- (1 - smoothing) a + smoothing / n``, where n is
    the number of keys that the query may attend. Uniform attention has log n, attention to one key 0. Weights of
    exactly 0 have gradient 0.

    Args:
        weights: attention maps.
        tokens: (..., T), False for padding; broadcasts to the batch axes from the right.
        queries: (..., T), False for queries that are left out.
        smoothing: in [0, 1); may be traced.
        is_causal: a query may attend itself and what comes before; matters for the smoothing alone.

    Returns:
        Sums over queries for every head of every example, (..., N).

    Raises:
        ValueError: an argument has a wrong shape, dtype or value; the message names it.
    """
    weights, tokens, queries = counted(weights, tokens, queries)
    smoothed = smooth(weights, tokens, smoothing, is_causal)
    return total_over_queries(entropy_terms(smoothed).sum(-1), queries)


def confidence(
    weights: Float[AnyArray, "*batch N T T"],
    tokens: Bool[AnyArray, "..."] | None = None,
    *,
    queries: Bool[AnyArray, "..."] | None = None,
    keys: Bool[AnyArray, "..."] | None = None,
) -> Total:
    """The largest weight of a query, whose mean over tokens is a head's confidence.

    Source: Voita et al. 2019, who leave out the end-of-sentence symbol; here masks say what is left out.

    Args:
        weights: attention maps.
        tokens: (..., T), False for padding; broadcasts to the batch axes from the right.
        queries: (..., T), False for queries that are left out, such as special symbols.
        keys: (..., T), False for keys that do not compete for the maximum.

    Returns:
        Sums over queries for every head of every example, (..., N).

    Raises:
        ValueError: an argument has a wrong shape or dtype; the message names it.
    """
    weights, _, queries = counted(weights, tokens, queries)
    keys = check_tokens(keys, "keys", weights)
    largest = jnp.where(keys[..., None, None, :], weights, 0).max(-1, initial=0)
    return total_over_queries(largest, queries)


def entropy_terms(probabilities: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """``-p log p``, whose slope is taken as 0 where p is exactly 0 (it is infinite there): masked keys stay masked."""
    safe = jnp.where(probabilities == 0, 1, probabilities)
    return -xlogy(safe, safe)


def smooth(
    weights: Float[Array, "... N T T"], tokens: Bool[Array, "... T"], smoothing: Scalar, is_causal: bool
) -> Float[Array, "... N T T"]:
    """Maps mixed with uniform ones over the keys that each query may attend; padded keys stay 0.

    Raises:
        ValueError: if the smoothing is known and not in [0, 1).
    """
    share = option(smoothing, "smoothing", lambda s: 0 <= s < 1, "a number in [0, 1)", weights.dtype)
    if isinstance(share, float) and not share:
        return weights
    size = tokens.shape[-1]
    allowed = jnp.broadcast_to(tokens[..., None, :], (*tokens.shape, size))
    if is_causal:
        allowed &= jnp.broadcast_to(jnp.tril(jnp.ones((size, size), bool)), allowed.shape)
    count = jnp.maximum(allowed.sum(-1, keepdims=True, dtype=weights.dtype), 1)
    uniform = allowed.astype(weights.dtype) / count
    return (1 - share) * weights + share * uniform[..., None, :, :]
