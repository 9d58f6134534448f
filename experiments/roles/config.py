"""What the roles experiment can be asked to do, and its presets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from experiments import checks
from experiments.pretrained import check_lengths, check_names, installed, load_tokenizer, sizes
from experiments.roles import dependency, text, treebank

RELATIONS = (
    "all",
    "case",
    "nsubj",
    "det",
    "advmod",
    "amod",
    "obj",
    "obl",
    "conj",
    "compound",
    "nmod",
    "cc",
    "mark",
    "aux",
    "cop",
    "nmod:poss",
    "xcomp",
    "advcl",
    "flat",
    "parataxis",
    "acl:relcl",
    "ccomp",
    "appos",
    "acl",
    "aux:pass",
    "nummod",
    "nsubj:pass",
    "discourse",
    "compound:prt",
)
"""Dependencies that are asked for: those with 100 words or more in the treebank, and particles. ``all``: every word
but roots and punctuation."""


@dataclass(frozen=True)
class RolesConfig:
    """Fields of the roles experiment; every one can be overridden on the command line.

    Attributes:
        models: ``minilm-l6``, ``smollm2-135m``, or folders that `experiments.pretrained` can load.
        text: a UTF-8 file of ten lines or more, of which every line is a passage and the last tenth is left out; empty:
            the English verses of ``make text``; ``sample``: a few sentences that come with the project.
        ud: a treebank in CoNLL-U, or a folder with one; empty: data/en_ewt-ud-dev.conllu.
        num_segments: pieces of the text, from passages at equal distances: at most as many as passages.
        segment_length: tokens of a segment, at most, and at most as many as each model has positions.
        control_segments: segments for the models with random weights.
        distance_segments: segments for the distances between heads.
        num_sentences: of the treebank, at equal distances, two or more: heads are chosen on the first half and measured
            on the second; 0: all.
        sentence_length: tokens of a sentence, at most, and at most as many as positions; longer ones are left out.
        repeated_sequences: random sequences for the induction score, of causal models.
        repeated_length: tokens of each, which are then repeated once: two or more.
    """

    models: tuple[str, ...] = ("minilm-l6", "smollm2-135m")
    text: str = ""
    ud: str = ""
    num_segments: int = 256
    segment_length: int = 128
    control_segments: int = 64
    distance_segments: int = 16
    num_sentences: int = 0
    sentence_length: int = 128
    repeated_sequences: int = 16
    repeated_length: int = 48


PRESETS = {
    "smoke": RolesConfig(
        models=("minilm-l6",),
        text=text.SAMPLE,
        num_segments=4,
        segment_length=32,
        control_segments=4,
        distance_segments=4,
        num_sentences=24,
        sentence_length=32,
    ),
    "quick": RolesConfig(),
    "paper": RolesConfig(
        num_segments=1000, control_segments=250, distance_segments=50, repeated_sequences=64
    ),
}


def resolve(config: RolesConfig, given: Collection[str]) -> RolesConfig:
    """Check a configuration.

    Raises:
        ValueError: naming a field, what was expected and what came.
        FileNotFoundError: if a file that it names is not there.
    """
    checks.positive(config, or_zero=("num_sentences",))
    checks.different(config)
    checks.some(config, "models")
    check_names(config.models)
    checks.least(config, segment_length=8, sentence_length=8, repeated_length=2)
    check_lengths(config, config.models, segment_length=1, sentence_length=1)
    causal = [name for name in config.models if sizes(name).causal]
    check_lengths(config, causal, repeated_length=2)
    for name in causal:
        if config.repeated_length > sizes(name).vocab_size:
            raise ValueError(
                f"repeated_length: expected at most the {sizes(name).vocab_size} tokens of {name}, "
                f"got {config.repeated_length}"
            )
    if text.available(config.text):
        number = len(text.passages(config.text))
        checks.most(config, "passages of the text", num_segments=number)
        checks.most(config, "passages of the text", control_segments=number, distance_segments=number)
    if config.num_sentences == 1:
        raise ValueError("num_sentences: expected two or more, half to choose on, or 0 for all, got 1")
    if treebank.available(config.ud):
        sentences = treebank.read(config.ud)
        checks.most(config, "sentences of the treebank", num_sentences=len(sentences))
        if len(sentences) < 2:
            raise ValueError("ud: expected a treebank of two or more sentences, half to choose on, got 1")
        if given:
            for model in filter(installed, config.models):
                _check_halves(config, model, dependency.chosen(sentences, config.num_sentences))
    return config


def _check_halves(config: RolesConfig, model: str, sentences: Sequence[treebank.Sentence]) -> None:
    tokenizer = load_tokenizer(model)
    for half in dependency.halves(sentences):
        tokens = (length for own in half for length in dependency.lengths(tokenizer, [own]))
        shortest = next(tokens)
        for length in tokens:  # no further than to the first one that fits
            if shortest <= config.sentence_length:
                break
            shortest = min(shortest, length)
        if shortest > config.sentence_length:
            raise ValueError(
                f"sentence_length: expected at least {shortest}, the tokens of the shortest sentence in a half of "
                f"the treebank, in {model}, got {config.sentence_length}"
            )
