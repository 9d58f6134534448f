"""Which head finds which dependency, on a treebank, batch after batch: only counts are kept."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from experiments.points import Record
from experiments.pretrained import ModelConfig, PretrainedModel, TextTokenizer, forward
from experiments.pretrained.model import Params
from experiments.reading import wilson
from experiments.roles.treebank import Sentence
from mha_jax.analysis import OFFSETS, attended_word, dependency_hits, offset_hits, word_maps

DIRECTIONS = ("dependent to head", "head to dependent")
"""Who attends whom: a word attends the word it depends on, or is attended by it."""
BUCKETS = (16, 32, 64, 128, 256, 512, 1024)
"""Sentences are padded to one of these numbers of tokens, and of words."""
BATCH_TOKENS = 512
"""Tokens of a batch, padding included."""
_IGNORED = frozenset({"root", "punct"})


@dataclass(frozen=True)
class Encoded:
    """A sentence as arrays, or several on a leading axis.

    Attributes:
        tokens: ids ``(T,)``.
        length: number of them.
        owners: the word of every token, -1 where it has none.
        heads: the word that each word depends on, ``(W,)``, -1 for roots and where there is no word.
        relations: numbers of their kinds, -1 where not asked for.
        counted: whether a word counts under ``all``.
        num_words: of the sentence.
        half: 0 or 1.
    """

    tokens: np.ndarray
    length: np.ndarray
    owners: np.ndarray
    heads: np.ndarray
    relations: np.ndarray
    counted: np.ndarray
    num_words: np.ndarray
    half: np.ndarray


@dataclass(frozen=True)
class Counts:
    """What was counted.

    Attributes:
        hits: ``(half, L, N, direction, R)``.
        offset_hits: ``(half, offset, R)``.
        words: ``(half, R)``.
        sentences: that were measured, by half.
    """

    hits: np.ndarray
    offset_hits: np.ndarray
    words: np.ndarray
    sentences: tuple[int, int]


def chosen(sentences: Sequence[Sentence], count: int) -> list[Sentence]:
    """``count`` sentences at equal distances, at most as many as there are; all if it is 0."""
    count = count or len(sentences)
    return [sentences[i * len(sentences) // count] for i in range(count)]


def halves(sentences: Sequence[Sentence]) -> tuple[Sequence[Sentence], Sequence[Sentence]]:
    """The first half, for choosing heads, and the second, for reporting; the first has one more of an odd number."""
    middle = -(-len(sentences) // 2)
    return sentences[:middle], sentences[middle:]


def count(
    model: PretrainedModel,
    params: Params,
    sentences: Sequence[Sentence],
    relations: Sequence[str],
    length: int,
) -> Counts:
    """Count for every head, direction and relation how often it predicts the word that a word depends on.

    Args:
        model: its tokeniser cuts words into pieces, each word by itself.
        params: its parameters, or the control's.
        sentences: the first half of them are for choosing heads, the others for reporting.
        relations: kinds of dependencies; ``all`` is every word but roots and punctuation.
        length: sentences of more tokens are left out.
    """
    config, kinds = model.config, tuple(relations)
    hits = np.zeros((2, config.num_layers, config.num_heads, 2, len(kinds)))
    offsets, words = np.zeros((2, len(OFFSETS), len(kinds))), np.zeros((2, len(kinds)))
    measured = [0, 0]
    buckets: dict[int, list[Encoded]] = {}
    middle = len(halves(sentences)[0])

    def measure(own: list[Encoded], size: int) -> None:
        rows = BATCH_TOKENS // size or 1
        stacked = [
            np.stack([getattr(e, name) for e in own] + [getattr(_empty(size), name)] * (rows - len(own)))
            for name in Encoded.__dataclass_fields__
        ]
        found = _hits(
            params, config, Encoded(*stacked), len(kinds), kinds.index("all") if "all" in kinds else -1
        )
        for total, more in zip((hits, offsets, words), found, strict=True):
            total += np.asarray(more)

    for i, sentence in enumerate(sentences):
        encoded = encode(model.tokenizer, sentence, kinds, int(i >= middle), length)
        if encoded is None:
            continue
        measured[int(encoded.half)] += 1
        size = len(encoded.tokens)
        buckets.setdefault(size, []).append(encoded)
        if len(buckets[size]) == (BATCH_TOKENS // size or 1):
            measure(buckets.pop(size), size)
    for size, own in buckets.items():
        measure(own, size)
    return Counts(hits, offsets, words, (measured[0], measured[1]))


def lengths(tokenizer: TextTokenizer, sentences: Sequence[Sentence]) -> list[int]:
    """Tokens of each sentence, or its words where these are more."""
    pieces = [tokenizer.encode_words(own.words, own.spaces)[0] for own in sentences]
    return [max(len(ids), len(own.words)) for ids, own in zip(pieces, sentences, strict=True)]


def encode(
    tokenizer: TextTokenizer, sentence: Sentence, relations: Sequence[str], half: int, length: int
) -> Encoded | None:
    """A sentence as arrays of a bucket's size; None if it has more than ``length`` tokens, or more words."""
    ids, owners = tokenizer.encode_words(sentence.words, sentence.spaces)
    longest = max(len(ids), len(sentence.words))
    if longest > length:
        return None
    size = min(next((size for size in BUCKETS if size >= longest), longest), length)
    numbers = {name: number for number, name in enumerate(relations)}
    kinds = [-1 if r in _IGNORED else numbers.get(r, -1) for r in sentence.relations]
    return Encoded(
        _padded(ids, size, 0),
        np.array(len(ids), np.int32),
        _padded(owners, size, -1),
        _padded(sentence.heads, size, -1),
        _padded(kinds, size, -1),
        _padded([r not in _IGNORED for r in sentence.relations], size, False),
        np.array(len(sentence.words), np.int32),
        np.array(half, np.int32),
    )


def _empty(size: int) -> Encoded:
    none = np.array(0, np.int32)
    minus = np.full(size, -1, np.int32)
    return Encoded(np.zeros(size, np.int32), none, minus, minus, minus, np.zeros(size, bool), none, none)


def _padded(values: Sequence[int], size: int, fill: int) -> np.ndarray:
    array = np.full(size, fill, bool if isinstance(fill, bool) else np.int32)
    array[: len(values)] = values
    return array


jax.tree_util.register_dataclass(Encoded, list(Encoded.__dataclass_fields__), [])


@partial(jax.jit, static_argnames=("config", "num_relations", "every"))
def _hits(
    params: Params, config: ModelConfig, batch: Encoded, num_relations: int, every: int
) -> tuple[Array, Array, Array]:
    """Counts by half, as in `Counts`; ``every`` is the number of the relation ``all``, or -1."""
    tokens, lengths = jnp.asarray(batch.tokens), jnp.asarray(batch.length)
    weights = forward(params, config, tokens, lengths, return_weights=True).weights
    assert weights is not None
    size = tokens.shape[1]

    def sentence(maps: Array, own: Encoded) -> tuple[Array, Array, Array]:
        between = word_maps(maps, own.owners, size)
        real = jnp.arange(size) < own.num_words
        predicted = jnp.stack([attended_word(between, real, attends=way) for way in (True, False)], axis=2)
        hits = dependency_hits(predicted, own.heads, own.relations, num_relations)
        base = offset_hits(own.heads, own.relations, num_relations)
        if every >= 0:
            all_of_them = jnp.where(own.counted, every, -1)
            hits += dependency_hits(predicted, own.heads, all_of_them, num_relations)
            base += offset_hits(own.heads, all_of_them, num_relations)
        return hits.total, base.total, base.count[0]

    hits, base, words = jax.vmap(sentence, in_axes=(1, 0))(weights, batch)
    half = jax.nn.one_hot(batch.half, 2)
    by_half = partial(jnp.einsum, "bh,b...->h...", half)
    return by_half(hits), by_half(base), by_half(words)


def rows(model: str, relations: Sequence[str], counts: Counts) -> Iterator[Record]:
    """One record a relation: the head, the direction and the offset that were best on the first half, on the second.

    Of equal ones the first. Without words of a relation in one of the halves, nulls.
    """
    for r, relation in enumerate(relations):
        row: Record = {"model": model, "relation": relation, "count": int(counts.words[1, r])}
        names = (
            "layer",
            "head",
            "direction",
            "accuracy",
            "ci_low",
            "ci_high",
            "best_offset",
            "offset_accuracy",
        )
        if not counts.words[:, r].all():
            yield row | dict.fromkeys(names)
            continue
        first = counts.hits[0, ..., r]
        layer, head, direction = map(int, np.unravel_index(first.argmax(), first.shape))
        offset = int(counts.offset_hits[0, :, r].argmax())
        hits, words = int(counts.hits[1, layer, head, direction, r]), int(counts.words[1, r])
        values = (
            layer,
            head,
            DIRECTIONS[direction],
            hits / words,
            *wilson(hits, words),
            OFFSETS[offset],
            float(counts.offset_hits[1, offset, r] / words),
        )
        yield row | dict(zip(names, values, strict=True))
