"""Losses of a model as functions of a mask of its heads, compiled once for each model and shape."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from experiments.pretrained import ModelConfig, forward, sentence_embeddings
from mha_jax import analysis
from mha_jax.analysis import Total

CONTRAST = 20.0
"""What similarities are multiplied by in the contrastive loss, as in the model's own training."""


def next_token_loss(
    params: Any,
    config: ModelConfig,
    tokens: Int[Array, "b t"],
    lengths: Int[Array, " b"],
    head_mask: Float[Array, "*mask"],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Negative log-likelihood of every next token: the sum in nats, and how many there are."""
    logits = forward(params, config, tokens, lengths, head_mask=head_mask).logits
    assert logits is not None  # callers have checked that the model is causal
    loss = jax.nn.logsumexp(logits[:, :-1], axis=-1)
    loss -= jnp.take_along_axis(logits[:, :-1], tokens[:, 1:, None], axis=-1)[..., 0]
    real = jnp.arange(1, tokens.shape[1])[None, :] < lengths[:, None]
    return jnp.where(real, loss, 0).sum(), real.sum(dtype=loss.dtype)


def contrastive_loss(
    params: Any,
    config: ModelConfig,
    tokens: Int[Array, "b t"],
    lengths: Int[Array, " b"],
    head_mask: Float[Array, "*mask"],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Cross-entropy of finding each sentence's neighbour among those of the batch, both ways; sum and number.

    The first half of the batch are sentences, the second half their neighbours, in the same order.
    """
    hidden = forward(params, config, tokens, lengths, head_mask=head_mask).hidden
    first, second = jnp.split(sentence_embeddings(hidden, lengths), 2)
    logits = CONTRAST * first @ second.T
    right = jnp.diagonal(logits)
    loss = (jax.nn.logsumexp(logits, axis=0) + jax.nn.logsumexp(logits, axis=1) - 2 * right) / 2
    return loss.sum(), jnp.asarray(float(loss.size), loss.dtype)


def training_loss(config: ModelConfig) -> Any:
    """The loss that importance is computed with."""
    return next_token_loss if config.causal else contrastive_loss


@partial(jax.jit, static_argnames="config")
def mean_loss(
    params: Any,
    config: ModelConfig,
    tokens: Int[Array, "k b t"],
    lengths: Int[Array, "k b"],
    head_mask: Float[Array, "L N"],
) -> Float[Array, ""]:
    """`training_loss` over all batches, a token (or a sentence)."""
    loss = training_loss(config)
    sums, counts = jax.lax.map(lambda batch: loss(params, config, *batch, head_mask), (tokens, lengths))
    return sums.sum() / counts.sum()


@partial(jax.jit, static_argnames="config")
def embeddings(
    params: Any,
    config: ModelConfig,
    tokens: Int[Array, "k b t"],
    lengths: Int[Array, "k b"],
    head_mask: Float[Array, "L N"],
) -> Float[Array, "k b m"]:
    """Sentence embeddings of all batches."""

    def one(batch: tuple[Array, Array]) -> Array:
        return sentence_embeddings(forward(params, config, *batch, head_mask=head_mask).hidden, batch[1])

    return jax.lax.map(one, (tokens, lengths))


@partial(jax.jit, static_argnames="config")
def importance(
    params: Any,
    config: ModelConfig,
    tokens: Int[Array, "k b t"],
    lengths: Int[Array, "k b"],
    kept: Float[Array, "L N"],
) -> Total:
    """Absolute derivatives of `training_loss` in the heads' outputs, token by token, over all batches."""
    loss = training_loss(config)

    def add(total: Total, batch: tuple[Array, Array]) -> tuple[Total, None]:
        tokens, lengths = batch
        real = jnp.arange(tokens.shape[1])[None, :] < lengths[:, None]
        shape = (config.num_layers, *tokens.shape, config.num_heads)
        mask = jnp.broadcast_to(kept[:, None, None, :], shape)
        _, gradients = analysis.head_gradients(lambda mask: loss(params, config, *batch, mask)[0], mask)
        return total + analysis.importance_total(gradients, real), None

    zeros = jnp.zeros(kept.shape, kept.dtype)
    return jax.lax.scan(add, Total(zeros, zeros), (tokens, lengths))[0]


@partial(jax.jit, static_argnames="config")
def measures(
    params: Any,
    config: ModelConfig,
    tokens: Int[Array, "k b t"],
    lengths: Int[Array, "k b"],
    queries: Bool[Array, "k b t"],
    delimiters: Bool[Array, "k b t"],
) -> dict[str, Total]:
    """Confidence, entropy and shares of every head, over all batches.

    ``queries`` are those that count for the confidence; all real tokens do for the rest.
    """

    def one(batch: tuple[Array, ...]) -> dict[str, Total]:
        tokens, lengths, queries, delimiters = batch
        weights = forward(params, config, tokens, lengths, return_weights=True).weights
        assert weights is not None
        real = jnp.arange(tokens.shape[1])[None, :] < lengths[:, None]
        found = analysis.attention_shares(weights, real, delimiters=delimiters)
        found["confidence"] = analysis.confidence(weights, real, queries=queries)
        found["entropy"] = analysis.attention_entropy(weights, real)
        if config.causal:
            found["induction"] = analysis.induction_score(weights, tokens, real)
        return {name: total.over(1) for name, total in found.items()}

    totals = jax.lax.map(one, (tokens, lengths, queries, delimiters))
    return {name: total.over(0) for name, total in totals.items()}
