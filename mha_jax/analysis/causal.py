"""Scores of heads of causal language models: induction, previous token, attention sink.

They are the scores in use in work on such models; the definitions here are ours, since accounts differ in which
queries count: those that can score at all. A head that attends uniformly to what it may see scores about
``1 / (t + 1)`` at query t.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from mha_jax.analysis._maps import (
    AnyArray,
    Total,
    broadcast_bool,
    check_maps,
    check_tokens,
    first_real,
    real_before,
)
from mha_jax.analysis.shares import attention_share, key_selector, offset_selector


def induction_score(
    weights: Float[AnyArray, "*batch N T T"],
    token_ids: Int[AnyArray, "..."],
    tokens: Bool[AnyArray, "..."] | None = None,
) -> Total:
    """Attention to what came after earlier occurrences of the same token.

    Measure it on random tokens that are repeated: nothing but the repetition tells then where to look.

    Args:
        weights: attention maps of a causal model.
        token_ids: (..., T), broadcasts to the batch axes from the right.
        tokens: (..., T), False for padding, which counts neither as an earlier occurrence nor as what came after it.

    Returns:
        Sums over the queries that have such a key, for every head of every example (..., N).

    Raises:
        ValueError: an argument has a wrong shape or dtype; the message names it.
    """
    weights = check_maps(weights)
    real = check_tokens(tokens, "tokens", weights)
    selector = induction_selector(jnp.asarray(token_ids))
    selector = broadcast_bool(selector, "token_ids", (*real.shape, real.shape[-1]))
    selector &= (real & real_before(real))[..., None, :]
    return attention_share(weights, selector, real, queries=selector.any(-1))


def induction_selector(token_ids: Int[AnyArray, "*batch T"]) -> Bool[Array, "*batch T T"]:
    """Pairs of a query t and a key s < t whose predecessor is the same token as the query.

    Raises:
        ValueError: if the tokens are not integers.
    """
    ids = jnp.asarray(token_ids)
    if not jnp.issubdtype(ids.dtype, jnp.integer) or ids.ndim == 0:
        raise ValueError(f"token_ids: expected integers (..., T), got {ids.dtype} of shape {ids.shape}")
    size = ids.shape[-1]
    same = ids[..., :, None] == jnp.roll(ids, 1, axis=-1)[..., None, :]
    earlier = jnp.tril(jnp.ones((size, size), bool), k=-1) & (jnp.arange(size) > 0)[None, :]
    return same & jnp.broadcast_to(earlier, same.shape)


def previous_token_score(
    weights: Float[AnyArray, "*batch N T T"], tokens: Bool[AnyArray, "..."] | None = None
) -> Total:
    """Attention to the previous token, over the queries that have one.

    Args:
        weights: attention maps.
        tokens: (..., T), False for padding, on either side: a query behind padding has no previous token.

    Returns:
        Sums for every head of every example (..., N).

    Raises:
        ValueError: an argument has a wrong shape or dtype; the message names it.
    """
    weights = check_maps(weights)
    real = check_tokens(tokens, "tokens", weights)
    selector = offset_selector(weights.shape[-1], -1)
    return attention_share(weights, selector, real, queries=real_before(real))


def sink_score(
    weights: Float[AnyArray, "*batch N T T"], tokens: Bool[AnyArray, "..."] | None = None
) -> Total:
    """Attention to the first token, over all queries but itself (which in a causal model has no choice).

    Args:
        weights: attention maps.
        tokens: (..., T), False for padding, on either side: the first token is the first that is real.

    Returns:
        Sums for every head of every example (..., N).

    Raises:
        ValueError: an argument has a wrong shape or dtype; the message names it.
    """
    weights = check_maps(weights)
    real = check_tokens(tokens, "tokens", weights)
    first = first_real(real)
    return attention_share(weights, key_selector(first), real, queries=~first)
