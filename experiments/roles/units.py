"""Points of the roles experiment and what a batch computes: all heads of one model, or all relations."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.points import Kind, Record
from experiments.pretrained import PretrainedModel, load, random_weights, sizes
from experiments.roles import dependency, mds, measure, text, treebank
from experiments.roles.config import RELATIONS, RolesConfig

CONTROL_SEED = 0
EXAMPLE = "She opened the letter slowly, read it twice, and put it back into her coat."
"""Sentence of the example maps, written for this project."""
REPEATED_WORDS = 8
"""Tokens of it that are repeated for induction heads."""
SCORES = (
    "previous",
    "next",
    "first",
    "delimiter",
    "self",
    "entropy",
    "confidence",
    "induction",
    "separator",
    "punctuation",
    "uniform_entropy",
    "offset",
    "offset_share",
    "sink",
    "previous_random",
)
"""Scores of a head; null where one does not apply."""


@dataclass(frozen=True)
class HeadPoint:
    """One head.

    Attributes:
        model: as in the configuration.
        layer: from 0.
        head: from 0.
        text: as in the configuration; None where there is none.
        num_segments: of the text; None without one.
        segment_length: likewise.
        repeated_sequences: for the scores on repeated tokens; None where the model is not causal.
        repeated_length: likewise.
    """

    model: str
    layer: int
    head: int
    text: str | None = None
    num_segments: int | None = None
    segment_length: int | None = None
    repeated_sequences: int | None = None
    repeated_length: int | None = None


@dataclass(frozen=True)
class ControlHeadPoint(HeadPoint):
    """One head of the model with random weights."""


@dataclass(frozen=True)
class DependencyPoint:
    """One relation of a treebank, in one model.

    Attributes:
        model: as in the configuration.
        relation: of `RELATIONS`.
        ud: as in the configuration.
        num_sentences: likewise.
        sentence_length: likewise.
    """

    model: str
    relation: str
    ud: str
    num_sentences: int
    sentence_length: int


@dataclass(frozen=True)
class ControlPoint(DependencyPoint):
    """One relation, in the model with random weights."""


@dataclass(frozen=True)
class DistancePoint:
    """The distances between all heads of a model, on a text."""

    model: str
    text: str
    num_segments: int
    segment_length: int


@dataclass(frozen=True)
class ExamplePoint:
    """The map of one head on an example."""

    model: str
    role: str
    layer: int
    head: int


_HEAD = frozenset({"model", "layer", "head", "num_tokens", *SCORES})
_DEPENDENCY = frozenset(
    {"model", "relation", "layer", "head", "direction", "accuracy", "ci_low", "ci_high"}
) | {
    "best_offset",
    "offset_accuracy",
    "count",
}
_DISTANCES = frozenset(DistancePoint.__dataclass_fields__) - {"text", "num_segments", "segment_length"} | {
    "num_tokens",
    "x",
    "y",
    "stress",
    "same_group",
    "same_layer",
    "other_layers",
    "packed",
}
KINDS = {
    "heads": Kind(HeadPoint, _HEAD, values=("layer", "head")),
    "control_heads": Kind(ControlHeadPoint, _HEAD, values=("layer", "head")),
    "dependency": Kind(DependencyPoint, _DEPENDENCY, values=("relation",)),
    "controls": Kind(ControlPoint, _DEPENDENCY, values=("relation",)),
    "distances": Kind(DistancePoint, _DISTANCES, values=("num_segments",)),
    "examples": Kind(
        ExamplePoint,
        frozenset({"model", "role", "layer", "head", "tokens", "weights"}),
        values=("role", "layer", "head"),
    ),
}


def head_points(config: RolesConfig, model: str, *, control: bool = False) -> list[HeadPoint]:
    """All heads of a model; none where nothing can be measured."""
    size = sizes(model)
    there = text.available(config.text)
    if not there and not size.causal:
        return []
    segments = config.control_segments if control else config.num_segments
    kind = ControlHeadPoint if control else HeadPoint
    return [
        kind(
            model,
            layer,
            head,
            config.text if there else None,
            segments if there else None,
            config.segment_length if there else None,
            config.repeated_sequences if size.causal else None,
            config.repeated_length if size.causal else None,
        )
        for layer in range(size.num_layers)
        for head in range(size.num_heads)
    ]


def dependency_points(config: RolesConfig, model: str, *, control: bool = False) -> list[DependencyPoint]:
    """All relations; none without a treebank."""
    if not treebank.available(config.ud):
        return []
    kind = ControlPoint if control else DependencyPoint
    return [
        kind(model, relation, config.ud, config.num_sentences, config.sentence_length)
        for relation in RELATIONS
    ]


def distance_points(config: RolesConfig, model: str) -> list[DistancePoint]:
    """The distances between heads; none without a text."""
    if not text.available(config.text):
        return []
    return [DistancePoint(model, config.text, config.distance_segments, config.segment_length)]


def compute(points: Sequence[Any]) -> list[Record]:
    """The records of a batch."""
    first = points[0]
    model = load(first.model)
    if isinstance(first, HeadPoint):
        return _heads(model, points)
    if isinstance(first, DependencyPoint):
        return _dependencies(model, points)
    if isinstance(first, DistancePoint):
        return [_distances(model, first)]
    return _examples(model, points)


def _parameters(model: PretrainedModel, *, control: bool) -> Mapping[str, Any]:
    return random_weights(model.params, CONTROL_SEED) if control else model.params


def _heads(model: PretrainedModel, points: Sequence[HeadPoint]) -> list[Record]:
    first = points[0]
    params = _parameters(model, control=isinstance(first, ControlHeadPoint))
    scores: dict[str, Any] = {}
    if first.text is not None and first.num_segments and first.segment_length:
        passages = text.passages(first.text)
        pieces = text.segments(model.tokenizer, passages, first.segment_length, first.num_segments)
        scores = measure.text_scores(model, params, pieces, first.segment_length)
        for name in _not_of(model):
            del scores[name]
    num_tokens = scores.pop("num_tokens", None)
    if first.repeated_sequences and first.repeated_length:
        scores |= measure.repeated_scores(model, params, first.repeated_sequences, first.repeated_length)
    records = []
    for point in points:
        row: Record = {"model": point.model, "layer": point.layer, "head": point.head}
        for name in SCORES:
            row[name] = None if name not in scores else _rounded(scores[name][point.layer, point.head])
        if row["offset"] is not None:
            row["offset"] = int(row["offset"])
        records.append(row | {"num_tokens": num_tokens})
    return records


def _not_of(model: PretrainedModel) -> list[str]:
    """Scores on a text that do not apply: a causal model sees nothing behind a token, and only there is a sink."""
    names = ["next"] if model.config.causal else ["sink"]
    return names if model.tokenizer.suffix else [*names, "separator"]


def _dependencies(model: PretrainedModel, points: Sequence[DependencyPoint]) -> list[Record]:
    first = points[0]
    params = _parameters(model, control=isinstance(first, ControlPoint))
    sentences = dependency.chosen(treebank.read(first.ud), first.num_sentences)
    relations = [point.relation for point in points]
    counts = dependency.count(model, params, sentences, relations, first.sentence_length)
    return list(dependency.rows(first.model, relations, counts))


def _distances(model: PretrainedModel, point: DistancePoint) -> Record:
    passages = text.passages(point.text)
    pieces = text.segments(model.tokenizer, passages, point.segment_length, point.num_segments)
    found, num_tokens = measure.distances(model, pieces, point.segment_length)
    places, stress = mds.scale(found)
    return {
        "model": point.model,
        "num_tokens": num_tokens,
        "x": [_rounded(value) for value in places[:, 0]],
        "y": [_rounded(value) for value in places[:, 1]],
        "stress": _rounded(stress),
        "packed": pack(found),
    } | near_and_far(found, model.config.num_heads, model.config.num_kv_heads)


def near_and_far(found: np.ndarray, num_heads: int, num_kv_heads: int) -> dict[str, float | None]:
    """Mean distances between heads that share keys and values, other heads of a layer, and heads of different layers.

    None where there are no such pairs.
    """
    number = np.arange(len(found))
    layer, group = number // num_heads, number // (num_heads // num_kv_heads)
    first, second = np.triu_indices(len(found), 1)
    together, shared = layer[first] == layer[second], group[first] == group[second]
    pairs = {"same_group": shared, "same_layer": together & ~shared, "other_layers": ~together}
    values = found[first, second]
    return {name: _rounded(values[own].mean()) if own.any() else None for name, own in pairs.items()}


def _examples(model: PretrainedModel, points: Sequence[ExamplePoint]) -> list[Record]:
    most = model.config.max_length
    (whole,) = text.segments(model.tokenizer, (EXAMPLE,), most, 1)
    repeated = (2 * model.tokenizer.encode(EXAMPLE)[:REPEATED_WORDS])[:most]
    records = []
    for point in points:
        ids = repeated if point.role == "induction" else whole
        (weights,) = measure.maps(model, ids, [(point.layer, point.head)])
        row = {"model": point.model, "role": point.role, "layer": point.layer, "head": point.head}
        records.append(
            row
            | {"tokens": model.tokenizer.pieces(ids), "weights": np.round(weights.astype(float), 3).tolist()}
        )
    return records


def pack(distances: np.ndarray) -> str:
    """The upper triangle of a symmetric matrix, row by row, as base64 of little-endian float16."""
    return base64.b64encode(distances[np.triu_indices(len(distances), 1)].astype("<f2").tobytes()).decode()


def unpack(packed: str) -> np.ndarray:
    """The symmetric matrix, with a diagonal of 0."""
    values = np.frombuffer(base64.b64decode(packed), "<f2").astype(float)
    size = round((1 + np.sqrt(1 + 8 * len(values))) / 2)
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size, 1)] = values
    return matrix + matrix.T


def _rounded(value: Any) -> float:
    return round(float(value), 6)
