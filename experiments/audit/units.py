"""Points of the audit and what a batch computes: all heads, or all layers, of one model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from experiments.audit.config import AuditConfig
from experiments.audit.graphs import content_positions, contexts_of, most_attended, type_graph
from experiments.audit.weights import query_key_weights, random_singular_values, table_rank
from experiments.points import Kind, Record
from experiments.pretrained import PretrainedModel, installed, load, sizes
from experiments.roles.text import available
from theory.bounds import partition_max_edges, partition_total_key_dim
from theory.spectra import effective_rank, product_singular_values, stable_rank


@dataclass(frozen=True)
class LayerPoint:
    """Weights of one layer.

    Attributes:
        model: its name or folder.
        random_draws: heads of random weights beside it.
        layer: counted from 0.
    """

    model: str
    random_draws: int
    layer: int


@dataclass(frozen=True)
class GraphPoint:
    """Attention of one layer on a text.

    Attributes:
        model: its name or folder.
        text: a file, empty for the verses, or ``sample``.
        num_contexts: pieces of it.
        length: tokens of a piece.
        growth: parts at which edges are counted.
        layer: counted from 0.
    """

    model: str
    text: str
    num_contexts: int
    length: int
    growth: tuple[float, ...]
    layer: int


_SIZES = {"num_heads", "num_kv_heads", "head_dim", "d_model", "vocab_size", "total_key_dim", "table_rank"}

KINDS = {
    "layers": Kind(
        LayerPoint,
        frozenset(LayerPoint.__dataclass_fields__)
        | _SIZES
        | {"effective_rank", "stable_rank", "random_effective_rank", "random_stable_rank"}
        | {"vocab_edges", "vocab_edges_at_rank", "seconds"},
        values=("layer",),
    ),
    "graphs": Kind(
        GraphPoint,
        frozenset(GraphPoint.__dataclass_fields__)
        | _SIZES
        | {"items", "edges", "counts", "sink_share", "self_share", "opportunities", "recurrence", "baseline"}
        | {"held_edges", "held_edges_at_rank", "needed_total_key_dim", "needed_at_rank", "seconds"},
        values=("layer",),
    ),
}
"""A batch is all layers of a model."""


def grid(config: AuditConfig) -> list[LayerPoint | GraphPoint]:
    """All points: those of models that are installed, and of the text if it is there."""
    points: list[LayerPoint | GraphPoint] = []
    for name in config.models:
        if not installed(name):
            continue
        layers = range(sizes(name).num_layers)
        points += [LayerPoint(name, config.random_draws, layer) for layer in layers]
        if available(config.text):
            points += [
                GraphPoint(name, config.text, config.num_contexts, config.length, config.growth, layer)
                for layer in layers
            ]
    return points


def compute(points: Sequence[LayerPoint] | Sequence[GraphPoint]) -> list[Record]:
    """The records of all layers of a model."""
    started = time.perf_counter()
    model = load(points[0].model)
    records = [_layer(model, p) if isinstance(p, LayerPoint) else {} for p in points]
    if isinstance(points[0], GraphPoint):
        records = _graphs(model, [p for p in points if isinstance(p, GraphPoint)])
    shared = _sizes(model)
    seconds = round((time.perf_counter() - started) / len(points), 3)
    return [
        _plain(asdict(point)) | shared | record | {"seconds": seconds}
        for point, record in zip(points, records, strict=True)
    ]


def _plain(fields: Record) -> Record:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}


def _sizes(model: PretrainedModel) -> Record:
    config = model.config
    return {
        "num_heads": config.num_heads,
        "num_kv_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "d_model": config.d_model,
        "vocab_size": config.vocab_size,
        "total_key_dim": config.num_heads * config.head_dim,
        "table_rank": table_rank(model),
    }


def _held(model: PretrainedModel, num_items: int) -> tuple[float, float]:
    """Edges of a random graph on so many items that a layer holds: at the width, and at the table's rank."""
    config = model.config
    widths = config.d_model, max(1, round(table_rank(model)))
    return tuple(partition_max_edges(num_items, d, config.num_heads, config.head_dim) for d in widths)  # type: ignore[return-value]


def _layer(model: PretrainedModel, point: LayerPoint) -> Record:
    query, key = query_key_weights(model)
    values = product_singular_values(query[point.layer], key[point.layer])
    config = model.config
    drawn = random_singular_values(config.d_model, config.head_dim, point.random_draws, point.layer)
    held = _held(model, config.vocab_size)
    return {
        "effective_rank": effective_rank(values).tolist(),
        "stable_rank": stable_rank(values).tolist(),
        "random_effective_rank": effective_rank(drawn).tolist(),
        "random_stable_rank": stable_rank(drawn).tolist(),
        "vocab_edges": held[0],
        "vocab_edges_at_rank": held[1],
    }


def _graphs(model: PretrainedModel, points: Sequence[GraphPoint]) -> list[Record]:
    first, config = points[0], model.config
    contexts = contexts_of(model.tokenizer, first.text, first.num_contexts, first.length)
    content = content_positions(model, contexts)
    attended = most_attended(model, contexts)
    widths = config.d_model, max(1, round(table_rank(model)))
    records = []
    for point in points:
        found = type_graph(contexts, content, attended[point.layer], causal=config.causal, parts=point.growth)
        held = _held(model, found.items)
        needed = [
            partition_total_key_dim(found.items, found.edges, d, config.num_heads) if found.edges else 0.0
            for d in widths
        ]
        records.append(
            {
                "items": found.items,
                "edges": found.edges,
                "counts": found.growth,
                "sink_share": found.sink_share,
                "self_share": found.self_share,
                "opportunities": found.opportunities,
                "recurrence": found.recurrence,
                "baseline": found.baseline,
                "held_edges": held[0],
                "held_edges_at_rank": held[1],
                "needed_total_key_dim": needed[0] if np.isfinite(needed[0]) else None,
                "needed_at_rank": needed[1] if np.isfinite(needed[1]) else None,
            }
        )
    return records
