"""How much of a corpus a run uses: pairs that are left out, cut, or in training and held out at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.points import Record
from experiments.translation.data import Corpus, Pair, corpus_of
from experiments.translation.rows import lengths_of
from experiments.translation.subwords import Encoded, encode

COUNTS = (
    "num_subwords",
    "train_pairs",
    "train_repeated",
    "train_too_long",
    "dev_pairs",
    "dev_repeated",
    "dev_cut",
    "dev_in_training",
    "test_pairs",
    "test_cut",
    "test_targets_cut",
    "test_in_training",
)
"""Names of `text_counts`."""


def text_counts(text: Encoded, length: int) -> Record:
    """Counts of pairs.

    Args:
        text: a corpus in subwords.
        length: of rows.

    Returns:
        ``num_subwords`` of the vocabulary; of each part its ``pairs``; ``train_too_long``: of these, what does not
        fit into a row and is not trained on; ``cut``: what does not fit and is cut where it is judged
        (``test_targets_cut``: of translations, which then end where they are cut); ``in_training``: held-out pairs
        that training has in the same form; ``repeated``: pairs of the user's file that are not in the part because
        they are held out later on.
    """
    corpus = text.corpus
    known = frozenset(corpus.train)
    counts = {"num_subwords": text.subwords.vocab_size}
    counts |= {"train_repeated": corpus.repeated[0], "dev_repeated": corpus.repeated[1]}
    for name in ("train", "dev", "test"):
        too_long = lengths_of(getattr(text, name)) >= length  # every side has an END
        counts[f"{name}_pairs"] = len(too_long)
        counts[f"{name}_{'too_long' if name == 'train' else 'cut'}"] = int(np.sum(too_long.any(axis=1)))
        if name == "test":
            counts["test_targets_cut"] = int(np.sum(too_long[:, 1]))
        if name != "train":
            counts[f"{name}_in_training"] = sum(pair in known for pair in getattr(corpus, name))
    return {name: counts[name] for name in COUNTS}


def check_fits(pairs: str, vocab_size: int, length: int) -> None:
    """Check before anything runs that there is a pair to train on.

    Raises:
        FileNotFoundError: as `corpus_of`.
        ValueError: as `corpus_of`; or if no pair fits into a row.
    """
    corpus = corpus_of(pairs)
    if _surely_fits(corpus.train, length):
        return
    text = encode(Corpus(corpus.source, corpus.train, corpus.dev[:1], corpus.test[:1]), vocab_size)
    longest = lengths_of(text.train).max(axis=1)
    if not (longest < length).any():
        raise ValueError(
            f"length: expected one that some pair fits into, so at least {longest.min() + 1}, got {length}"
        )


def _surely_fits(pairs: Sequence[Pair], length: int) -> bool:
    """Whether some pair fits even if every byte is a subword, with the space before the first and `END`."""
    return any(all(len(line.encode()) + 2 <= length for line in pair) for pair in pairs)
