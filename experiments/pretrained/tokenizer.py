"""Tokenisers of the pretrained models, by the library ``tokenizers``: from a ``tokenizer.json`` or a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers


class TextTokenizer:
    """Text to ids, and words to ids that know their word.

    Args:
        tokenizer: of the library ``tokenizers``; its padding and truncation are turned off.

    Attributes:
        prefix: ids that the model puts before a text, such as BERT's [CLS].
        suffix: ids that it puts behind, such as [SEP].
        special: ids of tokens that no text contains.
        punctuation: ids of the full stop and the comma, with and without a space before them.
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
        pieces = (self.encode(text) for text in (".", " .", ",", " ,"))
        self.punctuation = frozenset(ids[0] for ids in pieces if len(ids) == 1)

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

    def around(self, ids: Sequence[int]) -> list[int]:
        """Ids with what the model puts around a text."""
        return [*self.prefix, *ids, *self.suffix]

    def encode_words(self, words: Sequence[str], spaces: Sequence[bool]) -> tuple[list[int], list[int]]:
        """Ids of a sentence given as words, each tokenised by itself, and the word of every id.

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
        pieces = self.encode_all(texts)
        ids = self.around([id for own in pieces for id in own])
        owners = [i for i, own in enumerate(pieces) for _ in own]
        return ids, [-1] * len(self.prefix) + owners + [-1] * len(self.suffix)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What each id stands for, for people: a space before a piece is shown as it is."""
        names = (self._tokenizer.id_to_token(id) or "?" for id in ids)
        return [name.replace("Ġ", " ").replace("Ċ", "\\n") for name in names]


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
