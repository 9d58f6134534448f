"""Attention between words, and syntactic heads: does the word attended most hold the word's dependency?"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from mha_jax.analysis._maps import AnyArray, Total, at_least_single

OFFSETS = (-3, -2, -1, 1, 2)
"""Fixed offsets of the baseline (Clark et al. 2019; their 0, a word that depends on itself, never holds)."""
NOBODY = -1
"""Number of no word."""


def word_maps(
    weights: Float[AnyArray, "*batch T T"], words: Int[AnyArray, "..."], num_words: int
) -> Float[Array, "*batch W W"]:
    """Maps between words from maps between their pieces.

    Attention *to* a word is the sum over its pieces, attention *from* a word the mean over them. Weights of pieces
    that belong to no word (special symbols, padding) are left out, whatever they are, so rows may sum to less than 1.

    Source: Clark et al. 2019.

    Args:
        weights: attention maps; axes in front (heads, layers) are kept.
        words: for every piece the number of its word, 0 to ``num_words - 1``, or -1 for none. (T,): the same for
            all maps; or with the batch axes of the maps.
        num_words: W; words that no piece belongs to get zeros.

    Returns:
        Maps (..., W, W), in float32 or more.

    Raises:
        ValueError: an argument has a wrong shape or dtype.
    """
    weights, words = at_least_single(weights), jnp.asarray(words)
    if not jnp.issubdtype(words.dtype, jnp.integer):
        raise ValueError(f"words: expected integers, got {words.dtype}")
    if weights.ndim < 2 or weights.shape[-1] != weights.shape[-2]:
        raise ValueError(f"weights: expected maps (..., T, T) of self-attention, got {weights.shape}")
    shape = (*weights.shape[:-2], weights.shape[-1])
    if words.shape not in ((shape[-1],), shape):
        raise ValueError(f"words: expected shape {(shape[-1],)} or {shape}, got {words.shape}")
    words = jnp.broadcast_to(words, shape)
    inside = (words >= 0) & (words < num_words)
    weights = jnp.where(inside[..., :, None] & inside[..., None, :], weights, 0)
    member = jax.nn.one_hot(words, num_words, dtype=weights.dtype, axis=-1)
    pieces = jnp.maximum(member.sum(-2, keepdims=True), 1)
    return jnp.einsum("...tw,...ts,...sv->...wv", member / pieces, weights, member)


def attended_word(
    maps: Float[AnyArray, "*batch W W"], real: Bool[AnyArray, " W"] | None = None, *, attends: bool = True
) -> Int[Array, "*batch W"]:
    """For every word, the other word that its dependency is predicted to be with.

    Args:
        maps: maps between words.
        real: False for words that are not there; their weights may be anything.
        attends: True: the word that it attends most (a dependent looks at its head). False: the word by which it is
            attended most (a head looks at its dependent).

    Returns:
        Numbers of words, never that of the word itself; -1, nobody, where no other word is attended at all (as from
        the first word in a causal model: the largest of nothing but zeros is no choice), where the weights of real
        words are no numbers, and at words that are not there.

    Raises:
        ValueError: an argument has a wrong shape.
    """
    maps = jnp.asarray(maps)
    if maps.ndim < 2 or maps.shape[-1] != maps.shape[-2]:
        raise ValueError(f"maps: expected maps (..., W, W) between words, got {maps.shape}")
    size = maps.shape[-1]
    present = jnp.ones(size, bool) if real is None else jnp.asarray(real)
    if present.shape != (size,):
        raise ValueError(f"real: expected shape {(size,)}, got {present.shape}")
    others = present[None, :] & present[:, None] & ~jnp.eye(size, dtype=bool)
    oriented = maps if attends else maps.swapaxes(-1, -2)
    oriented = jnp.where(jnp.broadcast_to(others, maps.shape), oriented, 0)
    # The maximum is NaN where there is one, and then not above 0.
    return jnp.where(oriented.max(-1) > 0, oriented.argmax(-1), NOBODY)


def dependency_hits(
    predicted: Int[AnyArray, "*batch W"],
    heads: Int[AnyArray, " W"],
    relations: Int[AnyArray, " W"],
    num_relations: int,
) -> Total:
    """How often predictions are right, for every relation.

    Args:
        predicted: of `attended_word`; axes in front (heads, layers, directions) are kept. Nobody, -1, is never right.
        heads: the word that each word of a sentence depends on, -1 for the root.
        relations: the kind of each dependency, 0 to ``num_relations - 1``; -1 where it is not asked for (the root,
            punctuation, words that are not there).
        num_relations: R.

    Returns:
        Hits and words (..., R), to be added up over sentences.

    Raises:
        ValueError: shapes differ.
    """
    predicted, heads, relations = jnp.asarray(predicted), jnp.asarray(heads), jnp.asarray(relations)
    for name, array in (("heads", heads), ("relations", relations)):
        if array.shape != predicted.shape[-1:]:
            raise ValueError(f"{name}: expected shape {predicted.shape[-1:]}, got {array.shape}")
    of_relation = jax.nn.one_hot(relations, num_relations, dtype=jnp.float32)
    hits = (predicted == jnp.broadcast_to(heads, predicted.shape)) & (predicted > NOBODY)
    total = hits.astype(jnp.float32) @ of_relation
    return Total(total, jnp.broadcast_to(of_relation.sum(0), total.shape))


def offset_hits(
    heads: Int[AnyArray, " W"],
    relations: Int[AnyArray, " W"],
    num_relations: int,
    offsets: Sequence[int] = OFFSETS,
) -> Total:
    """How often the word at a fixed offset is the right one: the baseline of `dependency_hits`.

    Args:
        heads: as in `dependency_hits`.
        relations: as in `dependency_hits`.
        num_relations: R.
        offsets: 1 is the next word, -1 the previous one.

    Returns:
        Hits and words (offsets, R), to be added up over sentences.

    Raises:
        ValueError: shapes differ.
    """
    heads, relations = jnp.asarray(heads), jnp.asarray(relations)
    if heads.ndim != 1:
        raise ValueError(f"heads: expected shape (W,), got {heads.shape}")
    positions = jnp.arange(heads.shape[0])
    predicted = jnp.stack([positions + offset for offset in offsets])
    return dependency_hits(
        predicted, heads, relations, num_relations
    )  # before the first word: negative, nobody
