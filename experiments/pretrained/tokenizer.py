"""Tokenisers of the pretrained models, by the library ``tokenizers``: from a ``tokenizer.json`` or a GGUF file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

_AFTER_SPACE = (("a", "b"), ("the", "cat"), ("a", "."), ("a", "1"))
_ATTACHED = (("a", "."), ("a", ","), ("a", ")"), ("1", "%"))
"""Pairs of texts by which a tokeniser is asked what it does with a text by itself."""


class TextTokenizer:
    """Text to ids, and words to ids that know their word.

    Tokenisers differ in what they make of a text that stands by itself: those of SentencePiece's kind (Llama 2) put a
    space before it, so that a full stop alone is another piece than one that is attached to a word. Where that is so,
    words are found in the whole text by their places, and not tokenised by themselves.

    Args:
        tokenizer: of the library ``tokenizers``; its padding and truncation are turned off.

    Raises:
        ValueError: if neither texts with a space before them nor texts without one can be joined: the pieces of a text
            then depend on what stands before a space.

    Attributes:
        prefix: ids that the model puts before a text, such as BERT's [CLS].
        suffix: ids that it puts behind, such as [SEP].
        special: ids of tokens that no text contains.
        punctuation: ids of the full stop and the comma, with and without a space before them, and attached to a word.
        adds_space: whether it puts a space before every text.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.encode_special_tokens = True  # a text that says "[MASK]" says these six characters
        self._tokenizer = tokenizer
        self.special = frozenset(
            id for id, token in tokenizer.get_added_tokens_decoder().items() if token.special
        )
        bare, whole = (tokenizer.encode("a", add_special_tokens=special).ids for special in (False, True))
        start = next(i for i in range(len(whole) - len(bare) + 1) if whole[i : i + len(bare)] == bare)
        self.prefix = tuple(whole[:start])
        self.suffix = tuple(whole[start + len(bare) :])
        tails = [self._attached(*pair) for pair in _ATTACHED]
        self.adds_space = any(
            tail is not None and tail != self.encode(text)
            for tail, (_, text) in zip(tails, _ATTACHED, strict=True)
        )
        self._joint = "" if self.adds_space else " "
        for first, second in _AFTER_SPACE:
            whole, parts = self.encode(f"{first} {second}"), (first, self._joint + second)
            if whole != [id for part in parts for id in self.encode(part)]:
                raise ValueError(
                    f"tokenizer: expected the pieces of {first!r} and of {second!r} in {first + ' ' + second!r}, got "
                    f"{self.pieces(whole)}"
                )
        pieces = [self.encode(text) for text in (".", " .", ",", " ,")]
        pieces += [tail for tail, (_, text) in zip(tails, _ATTACHED, strict=True) if tail and text in ".,"]
        self.punctuation = frozenset(ids[0] for ids in pieces if len(ids) == 1)

    def _attached(self, first: str, second: str) -> list[int] | None:
        """Ids of a text that is attached to another; None where a piece holds some of both."""
        found = self._tokenizer.encode(first + second, add_special_tokens=False)
        if any(start < len(first) < end for start, end in found.offsets):
            return None
        return [id for id, (start, _) in zip(found.ids, found.offsets, strict=True) if start >= len(first)]

    @property
    def vocab_size(self) -> int:
        """Number of ids, special ones included."""
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without those that the model puts around it."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of many texts, without those that the model puts around them."""
        return [found.ids for found in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    def encode_joined(self, texts: Iterable[str], least: int | None = None) -> list[int]:
        """Ids of texts joined by spaces, of the first ones that have ``least`` or of all; nothing is put around."""
        ids: list[int] = []
        for text in texts:
            ids += self.encode(f"{self._joint}{text}" if ids else text)
            if least is not None and len(ids) >= least:
                break
        return ids

    def around(self, ids: Sequence[int]) -> list[int]:
        """Ids with what the model puts around a text."""
        return [*self.prefix, *ids, *self.suffix]

    def encode_words(self, words: Sequence[str], spaces: Sequence[bool]) -> tuple[list[int], list[int]]:
        """Ids of a sentence given as words, and the word of every id.

        Each word is tokenised by itself, so that no piece is of two words. That is not possible for a tokeniser that
        `adds_space`: there the whole sentence is, and a piece that holds some of two words is of the first one.

        Args:
            words: in order.
            spaces: whether there is a space before each word; the first word's does not count.

        Returns:
            Ids with what the model puts around a text, and for each the index of its word, -1 where it has none. A
            word of which the tokeniser keeps nothing has no id.
        """
        texts = [
            f" {word}" if space and i else word
            for i, (word, space) in enumerate(zip(words, spaces, strict=True))
        ]
        if self.adds_space:
            found = self._tokenizer.encode("".join(texts), add_special_tokens=False)
            owner_at = [
                i for i, text in enumerate(texts) for _ in text
            ]  # the space before a word is the word's
            inner, owners = found.ids, [owner_at[start] for start, _ in found.offsets]
        else:
            pieces = self.encode_all(texts)
            inner = [id for own in pieces for id in own]
            owners = [i for i, own in enumerate(pieces) for _ in own]
        return self.around(inner), [-1] * len(self.prefix) + owners + [-1] * len(self.suffix)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What each id stands for, for people: a space before a piece is shown as it is."""
        names = (self._tokenizer.id_to_token(id) or "?" for id in ids)
        return [name.replace("Ġ", " ").replace("▁", " ").replace("Ċ", "\\n") for name in names]


def from_file(path: Path) -> TextTokenizer:
    """The tokeniser of a ``tokenizer.json``.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is broken.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path.parent}: expected {path.name}, got none")
    try:
        return TextTokenizer(Tokenizer.from_file(str(path)))
    except Exception as error:  # the library raises plain Exception
        raise ValueError(f"{path}: expected a tokenizer.json, got {error}") from None


def from_gguf_metadata(metadata: Mapping[str, Any]) -> TextTokenizer:
    """The byte-level BPE tokeniser in a GGUF file's metadata, of the kind ``smollm``: digits are split.

    Raises:
        NotImplementedError: for another kind.
    """
    kind = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if kind != ("gpt2", "smollm"):
        raise NotImplementedError(f"tokenizer.ggml: expected model 'gpt2' and pre 'smollm', got {kind}")
    if metadata.get("tokenizer.ggml.add_bos_token", False):
        raise NotImplementedError("tokenizer.ggml.add_bos_token: expected False, got True")
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: id for id, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(  # type: ignore[assignment]  (its stubs know no setter)
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    control = 3
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, metadata["tokenizer.ggml.token_type"], strict=True)
            if kind == control
        ]
    )
    return TextTokenizer(tokenizer)
