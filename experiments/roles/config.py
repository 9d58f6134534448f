"""What the roles experiment can be asked to do, and its presets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from experiments import checks
from experiments.pretrained import WHEELS, check_names
from experiments.pretrained.tensors import read_json
from experiments.roles import text, treebank

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
        text: a UTF-8 file, of which every line is a passage; empty: the English verses of ``make text``; ``sample``: a
            few sentences that come with the project.
        ud: a treebank in CoNLL-U, or a folder with one; empty: data/en_ewt-ud-dev.conllu.
        num_segments: pieces of the text, from passages at equal distances.
        segment_length: tokens of a segment, at most.
        control_segments: segments for the models with random weights.
        distance_segments: segments for the distances between heads.
        num_sentences: of the treebank, at equal distances; 0: all.
        sentence_length: tokens of a sentence, at most; longer ones are left out.
        repeated_sequences: random sequences for the induction score, of causal models.
        repeated_length: tokens of each, which are then repeated once.
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
    for name in config.models:
        sizes(name)
    checks.least(config, segment_length=8, sentence_length=8)
    if config.text:
        text.passages(config.text)
    if config.ud:
        treebank.read(config.ud)
    return config


class Sizes(NamedTuple):
    """What the plan of a run needs to know of a model."""

    num_layers: int
    num_heads: int
    causal: bool


_SIZES = {"minilm-l6": Sizes(6, 12, False), "smollm2-135m": Sizes(30, 9, True)}
assert set(_SIZES) == set(WHEELS)


def sizes(model: str) -> Sizes:
    """Sizes of a model, without its weights.

    Raises:
        FileNotFoundError: if it is a folder without a ``config.json``.
        ValueError: if that is no JSON object or does not say them.
    """
    if model in _SIZES:
        return _SIZES[model]
    path = Path(model) / "config.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"models: expected {', '.join(_SIZES)} or folders with a config.json, got {model!r}"
        )
    try:
        values = read_json(path)
    except ValueError as error:
        raise ValueError(f"models: {error}") from None
    layers: Any = values.get("num_hidden_layers", values.get("n_layer"))
    heads: Any = values.get("num_attention_heads", values.get("n_head"))
    if not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in (layers, heads)):
        raise ValueError(f"models: expected numbers of layers and heads in {path}, got {layers!r}, {heads!r}")
    return Sizes(layers, heads, values.get("model_type") != "bert")
