"""A small encoder-decoder (Vaswani et al. 2017) in Flax NNX on the project's attention layers.

As in the paper: sinusoidal positions added to the embeddings, one table of embeddings for both languages and the
output, two-layer networks of ReLU units, dropout. Not as in the paper: normalisation before each block and at the
ends, by the root mean square (it trains without long warm-up), and no biases. Head sizes are free of the width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from experiments.translation.subwords import BEGIN
from mha_jax.nnx import MultiHeadAttention

ATTENTIONS = ("encoder", "decoder", "source")
"""Kinds of attention layers: of the encoder and of the decoder to themselves, of the decoder to the source. Where heads
of a whole model are listed, first those of every layer of the first kind."""


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a model.

    Attributes:
        vocab_size: tokens of both languages together.
        d_model: width M.
        d_ff: hidden units of the two-layer networks.
        num_layers: of the encoder, and of the decoder.
        num_heads: h of every attention layer.
        head_dim: d_k, of queries and keys.
        value_head_dim: d_v.
        dropout_rate: of embeddings and of what each block adds.
    """

    vocab_size: int
    d_model: int
    d_ff: int
    num_layers: int
    num_heads: int
    head_dim: int
    value_head_dim: int
    dropout_rate: float = 0.0


class FeedForward(nnx.Module):
    """Two matrices with ReLU units between."""

    def __init__(self, d_model: int, d_ff: int, *, rngs: nnx.Rngs) -> None:
        self.inner = nnx.Linear(d_model, d_ff, use_bias=False, rngs=rngs)
        self.outer = nnx.Linear(d_ff, d_model, use_bias=False, rngs=rngs)

    def __call__(self, x: Float[Array, "... t m"]) -> Float[Array, "... t m"]:
        """The same at every position."""
        return self.outer(nnx.relu(self.inner(x)))


class Block(nnx.Module):
    """A layer of the encoder or, with attention to the source, of the decoder."""

    def __init__(self, shape: ModelShape, *, decoder: bool, rngs: nnx.Rngs) -> None:
        def attention() -> MultiHeadAttention:
            return MultiHeadAttention(
                d_model=shape.d_model,
                num_heads=shape.num_heads,
                head_dim=shape.head_dim,
                value_head_dim=shape.value_head_dim,
                rngs=rngs,
            )

        def norm() -> nnx.RMSNorm:
            return nnx.RMSNorm(shape.d_model, rngs=rngs)

        self.self_attention = attention()
        self.feed_forward = FeedForward(shape.d_model, shape.d_ff, rngs=rngs)
        self.self_norm, self.feed_forward_norm = norm(), norm()
        self.source_attention: Any = attention() if decoder else nnx.data(None)
        self.source_norm: Any = norm() if decoder else nnx.data(None)
        self.dropout = nnx.Dropout(shape.dropout_rate)

    def __call__(
        self,
        x: Float[Array, "b t m"],
        mask: Bool[Array, "b 1 t t2"],
        source: Float[Array, "b s m"] | None = None,
        source_mask: Bool[Array, "b 1 t s"] | None = None,
        *,
        head_masks: Sequence[Float[Array, "b t n"] | None] = (None, None),
        rngs: nnx.Rngs | None = None,
    ) -> Float[Array, "b t m"]:
        """Adds what each part computes; ``rngs`` are for dropout, None is without.

        ``head_masks`` multiply the outputs of heads, of self-attention and of attention to the source.
        """

        def drop(y: Array) -> Array:
            return y if rngs is None else self.dropout(y, deterministic=False, rngs=rngs)

        own, other = head_masks
        x = x + drop(self.self_attention(self.self_norm(x), mask=mask, head_mask=own))
        if source is not None:
            x = x + drop(
                self.source_attention(self.source_norm(x), source, mask=source_mask, head_mask=other)
            )
        return x + drop(self.feed_forward(self.feed_forward_norm(x)))


class Translator(nnx.Module):
    """The encoder-decoder.

    Example::

        model = Translator(shape, rngs=nnx.Rngs(0))
        logits = model(source, target_inputs, source_segments, target_segments)  # (B, T, vocab_size)
    """

    def __init__(self, shape: ModelShape, *, rngs: nnx.Rngs) -> None:
        """Draws parameters (from the stream ``params``)."""
        self.shape = shape
        scale = shape.d_model**-0.5
        table = scale * jax.random.normal(rngs.params(), (shape.vocab_size, shape.d_model))
        self.embedding = nnx.Param(table)
        self.encoder = nnx.List([Block(shape, decoder=False, rngs=rngs) for _ in range(shape.num_layers)])
        self.decoder = nnx.List([Block(shape, decoder=True, rngs=rngs) for _ in range(shape.num_layers)])
        self.encoder_norm = nnx.RMSNorm(shape.d_model, rngs=rngs)
        self.decoder_norm = nnx.RMSNorm(shape.d_model, rngs=rngs)
        self.dropout = nnx.Dropout(shape.dropout_rate)

    def __call__(
        self,
        source: Int[Array, "b s"],
        target_inputs: Int[Array, "b t"],
        source_segments: Int[Array, "b s"],
        target_segments: Int[Array, "b t"],
        *,
        head_mask: Float[Array, "a b t n"] | None = None,
        rngs: nnx.Rngs | None = None,
    ) -> Float[Array, "b t v"]:
        """Logits of the next token at every position of the targets.

        ``head_mask`` multiplies the outputs of heads, for every attention layer in the order of `ATTENTIONS`, where
        rows of sources and targets are of one length.
        """
        own: list[Any] = [None] * (3 * self.shape.num_layers) if head_mask is None else list(head_mask)
        depth = self.shape.num_layers
        encoded = self.encode(source, source_segments, head_masks=own[:depth], rngs=rngs)
        hidden = self.decode(
            encoded,
            source_segments,
            target_inputs,
            target_segments,
            head_masks=list(zip(own[depth : 2 * depth], own[2 * depth :], strict=True)),
            rngs=rngs,
        )
        return self.logits(hidden)

    def encode(
        self,
        source: Int[Array, "b s"],
        segments: Int[Array, "b s"],
        *,
        head_masks: Sequence[Float[Array, "b s n"] | None] | None = None,
        rngs: nnx.Rngs | None = None,
    ) -> Float[Array, "b s m"]:
        """What the decoder attends."""
        x = self.embed(source, positions_of(segments), rngs=rngs)
        mask = same_segment(segments, segments)
        own = [None] * len(self.encoder) if head_masks is None else head_masks
        for block, heads in zip(self.encoder, own, strict=True):
            x = block(x, mask, head_masks=(heads, None), rngs=rngs)
        return self.encoder_norm(x)

    def decode(
        self,
        encoded: Float[Array, "b s m"],
        source_segments: Int[Array, "b s"],
        inputs: Int[Array, "b t"],
        segments: Int[Array, "b t"],
        *,
        head_masks: Sequence[tuple[Array | None, Array | None]] | None = None,
        rngs: nnx.Rngs | None = None,
    ) -> Float[Array, "b t m"]:
        """What logits are made of, for all positions of the targets."""
        x = self.embed(inputs, positions_of(segments), rngs=rngs)
        causal = jnp.tril(jnp.ones((inputs.shape[-1],) * 2, bool))
        mask = same_segment(segments, segments) & causal[None, None]
        source_mask = same_segment(segments, source_segments)
        pairs = [(None, None)] * len(self.decoder) if head_masks is None else head_masks
        for block, heads in zip(self.decoder, pairs, strict=True):
            x = block(x, mask, encoded, source_mask, head_masks=heads, rngs=rngs)
        return self.decoder_norm(x)

    def logits(self, hidden: Float[Array, "b t m"]) -> Float[Array, "b t v"]:
        """Of the next token, by the transposed table of embeddings."""
        return hidden @ self.embedding.get_value().T

    def embed(
        self, tokens: Int[Array, "b t"], positions: Int[Array, "b t"], *, rngs: nnx.Rngs | None = None
    ) -> Float[Array, "b t m"]:
        """Embeddings and positions, added."""
        table = self.embedding.get_value()
        x = table[tokens] * self.shape.d_model**0.5
        x = x + sinusoids(positions, self.shape.d_model)
        return x if rngs is None else self.dropout(x, deterministic=False, rngs=rngs)


def same_segment(queries: Int[Array, "b t"], keys: Int[Array, "b s"]) -> Bool[Array, "b 1 t s"]:
    """Which queries attend which keys: those of their pair; an empty place attends nothing."""
    return ((queries[:, :, None] == keys[:, None]) & (queries > 0)[:, :, None])[:, None]


def positions_of(segments: Int[Array, "b t"]) -> Int[Array, "b t"]:
    """Places within each pair, from 0."""
    index = jnp.broadcast_to(jnp.arange(segments.shape[-1])[None], segments.shape)
    return index - jax.lax.cummax(jnp.where(_begins(segments), index, 0), axis=1)


def inputs_of(labels: Int[Array, "b t"], segments: Int[Array, "b t"]) -> Int[Array, "b t"]:
    """What the decoder reads to predict the labels: the label before, `BEGIN` at the start of each pair."""
    before = jnp.pad(labels[:, :-1], ((0, 0), (1, 0)))
    return jnp.where(_begins(segments), BEGIN, before)


def sinusoids(positions: Int[Array, "b t"], d_model: int) -> Float[Array, "b t m"]:
    """Vaswani et al. 2017: sine and cosine of geometrically spaced frequencies, the two in halves."""
    half = d_model // 2
    frequencies = jnp.exp(-jnp.log(10_000.0) * jnp.arange(half) / half)
    angles = positions[..., None] * frequencies[None, None]
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)


def _begins(segments: Array) -> Array:
    return segments != jnp.pad(segments[:, :-1], ((0, 0), (1, 0)), constant_values=-1)


def parameters_of(shape: ModelShape, key: Array) -> Any:
    """Drawn parameters, as a pytree."""
    return nnx.state(Translator(shape, rngs=nnx.Rngs(params=key)), nnx.Param)


def apply(shape: ModelShape, parameters: Any) -> Translator:
    """The model of given parameters."""
    model = nnx.eval_shape(lambda: Translator(shape, rngs=nnx.Rngs(0)))
    nnx.update(model, parameters)
    return model


def without_heads(shape: ModelShape, parameters: Any, kept: Bool[Array, "a n"]) -> Any:
    """Parameters of the model without some heads: what these would add is multiplied by zero.

    Args:
        shape: of the model.
        parameters: as of `parameters_of`.
        kept: for every attention layer, in the order of `ATTENTIONS`, which heads stay.
    """
    model = apply(shape, parameters)
    layers = [
        *(block.self_attention for block in model.encoder),
        *(block.self_attention for block in model.decoder),
        *(block.source_attention for block in model.decoder),
    ]
    for layer, heads in zip(layers, kept, strict=True):
        kernel = layer.out["kernel"]
        kernel.set_value(kernel.get_value() * heads[:, None, None])
    return nnx.state(model, nnx.Param)


def num_parameters(shape: ModelShape) -> int:
    """Parameters of a model, by its sizes."""
    width = shape.d_model
    attention = 2 * width * shape.num_heads * (shape.head_dim + shape.value_head_dim)
    blocks = shape.num_layers * (3 * attention + 4 * width * shape.d_ff + 5 * width)
    return shape.vocab_size * width + blocks + 2 * width
