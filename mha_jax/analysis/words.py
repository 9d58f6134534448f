"""Attention between words, and syntactic heads: does the word attended most hold the word's dependency?"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int

from mha_jax.analysis._maps import AnyArray, Total, at_least_single
from mha_jax.masks import is_integer

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
        ValueError: an argument has a wrong shape or dtype, or a number, where it is known, is none of those allowed.
    """
    weights = jnp.asarray(weights)
    if not jnp.issubdtype(weights.dtype, jnp.floating):
        raise ValueError(f"weights: expected floating point, got {weights.dtype}")
    if weights.ndim < 2 or weights.shape[-1] != weights.shape[-2]:
        raise ValueError(f"weights: expected maps (..., T, T) of self-attention, got {weights.shape}")
    weights = at_least_single(weights)
    words = _numbers(words, "words", _length("num_words", num_words))
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
        ValueError: an argument has a wrong shape or dtype.
    """
    maps = jnp.asarray(maps)
    if not jnp.issubdtype(maps.dtype, jnp.floating):
        raise ValueError(f"maps: expected floating point, got {maps.dtype}")
    if maps.ndim < 2 or maps.shape[-1] != maps.shape[-2]:
        raise ValueError(f"maps: expected maps (..., W, W) between words, got {maps.shape}")
    size = maps.shape[-1]
    present = jnp.ones(size, bool) if real is None else jnp.asarray(real)
    if present.dtype != jnp.bool_:
        raise ValueError(f"real: expected booleans, got {present.dtype}")
    if present.shape != (size,):
        raise ValueError(f"real: expected shape {(size,)}, got {present.shape}")
    if not size:
        return jnp.full(maps.shape[:-1], NOBODY)  # there is no largest of nothing
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
        ValueError: shapes differ, an argument is not of integers, or a number of ``heads`` or ``relations``, where it
            is known, is none of those allowed.
    """
    predicted = _numbers(predicted, "predicted")
    if not predicted.ndim:
        raise ValueError("predicted: expected shape (..., W), got ()")
    heads = _numbers(heads, "heads", predicted.shape[-1])
    relations = _numbers(relations, "relations", _length("num_relations", num_relations))
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
        ValueError: as `dependency_hits`; or an offset is no integer.
    """
    heads, relations = jnp.asarray(heads), jnp.asarray(relations)
    if heads.ndim != 1:
        raise ValueError(f"heads: expected shape (W,), got {heads.shape}")
    if not len(offsets) or not all(map(is_integer, offsets)):
        raise ValueError(f"offsets: expected integers, one or more, got {offsets}")
    # Before the first word it is negative: nobody.
    predicted = np.arange(heads.shape[0]) + np.array(offsets)[:, None]
    return dependency_hits(predicted, heads, relations, num_relations)


def _length(name: str, value: Any) -> int:
    if not is_integer(value) or value < 0:
        raise ValueError(f"{name}: expected an integer, 0 or more, got {value!r}")
    return int(value)


def _numbers(array: Any, name: str, length: int | None = None) -> Int[Array, "..."]:
    """Integers; from -1 to below a length, if there is one and they are known."""
    array = jnp.asarray(array)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise ValueError(f"{name}: expected integers, got {array.dtype}")
    if length is not None and not isinstance(array, Tracer):
        values = np.asarray(array)
        wrong = values[(values < NOBODY) | (values >= length)]
        if wrong.size:
            raise ValueError(f"{name}: expected numbers from {NOBODY} to {length - 1}, got {wrong[0]}")
    return array
