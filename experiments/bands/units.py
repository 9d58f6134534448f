"""Points of the bands experiment and what a batch computes: all seeds of one configuration."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from experiments.bands.config import BandsConfig
from experiments.points import Kind, Record
from theory.embeddings import minilm_available, minilm_vectors, minilm_word_rows
from theory.graphs import from_edges, permutation_graph
from theory.problems import Problem, seeded_rng
from theory.recognition import channel_scores, evaluate
from theory.relations import (
    against_shuffled,
    counts_of,
    mean_overlap,
    random_overlap,
    random_overlaps,
    winning_heads,
)
from theory.training import train
from theory.word_relations import KINDS as RELATIONS
from theory.word_relations import load_word_relations

BY_KIND = "by-kind"


@dataclass(frozen=True)
class BandsPoint:
    """One trained channel on a graph of words.

    Attributes:
        graph: ``words``, or ``words-shuffled`` with the same words and no pair of the table.
        num_edges: pairs.
        d_model: d.
        num_heads: h.
        head_dim: d_k.
        embedding: a name of `theory.problems`.
        trainer: ``joint``, ``greedy``, or ``by-kind`` (one head for each kind, trained alone).
        shuffles: of kinds, and draws of random subspaces.
        seed: of words, graph and training.
    """

    graph: str
    num_edges: int
    d_model: int
    num_heads: int
    head_dim: int
    embedding: str
    trainer: str
    shuffles: int
    seed: int


KINDS = {
    "points": Kind(
        BandsPoint,
        frozenset(BandsPoint.__dataclass_fields__)
        | {"total_key_dim", "exact_recovery", "best_f1", "heads_used", "counts"}
        | {"information", "shuffled_mean", "shuffled_high", "p_value"}
        | {"query_overlap", "key_overlap", "random_overlap", "random_low", "random_high", "seconds"},
    )
}


def grid(config: BandsConfig) -> list[BandsPoint]:
    """All points of a configuration; none without the model whose embeddings they need."""
    if not minilm_available():
        return []
    arms = [("words", "joint", b) for b in config.joint]
    arms += [("words-shuffled", "joint", b) for b in config.joint]
    arms += [("words", "greedy", b) for b in config.greedy]
    arms += [("words", BY_KIND, b) for b in config.by_kind]
    points = []
    for graph, trainer, budget in arms:
        h = len(RELATIONS) if trainer == BY_KIND else config.num_heads
        sizes = config.num_pairs, config.d_model, h, budget // h
        settings = config.embedding, trainer, config.shuffles
        points += [BandsPoint(graph, *sizes, *settings, seed) for seed in range(config.seeds)]
    return points


def words_problem(num_pairs: int, d_model: int, embedding: str, graph: str, seed: int) -> Problem:
    """Pairs of words, as many of each kind: sources first, then targets, each in the order of kinds.

    Like ``words`` and ``words-shuffled`` of `theory.problems`, which draw from all kinds together: even numbers make
    heads of one kind problems of one size.

    Args:
        num_pairs: a multiple of the number of kinds.
        d_model: width.
        embedding: one of MiniLM's.
        graph: ``words``, or ``words-shuffled`` with the targets deranged.
        seed: of the pairs and of the shuffle.
    """
    relations, rng = load_word_relations(), seeded_rng(seed, "bands, words")
    kinds = np.array([RELATIONS.index(kind) for kind in relations.kinds])
    each = num_pairs // len(RELATIONS)
    chosen = np.concatenate(
        [rng.choice(np.flatnonzero(kinds == kind), each, replace=False) for kind in range(len(RELATIONS))]
    )
    labels = tuple(relations.sources[i] for i in chosen) + tuple(relations.targets[i] for i in chosen)
    edges = np.stack([np.arange(num_pairs)] * 2, axis=1)
    if graph == "words-shuffled":
        edges = permutation_graph(num_pairs, rng).edges
    row_of = minilm_word_rows()
    vectors = minilm_vectors(embedding, d_model)[[row_of[label] for label in labels]]
    return Problem(vectors, from_edges(2 * num_pairs, edges + np.array([0, num_pairs])), labels)


def kinds_of_sources(problem: Problem) -> np.ndarray:
    """The kind of relation that the source of every edge is listed with."""
    return problem.graph.edges[:, 0] // (problem.graph.num_edges // len(RELATIONS))


def compute(points: Sequence[BandsPoint]) -> list[Record]:
    """Train all seeds of one configuration and measure what their heads do."""
    first, started = points[0], time.perf_counter()
    problems = [
        words_problem(first.num_edges, first.d_model, first.embedding, first.graph, point.seed)
        for point in points
    ]
    found = trained(first, problems, [point.seed for point in points])
    records = [
        asdict(point) | measured(point, problem, *weights)
        for point, problem, weights in zip(points, problems, found, strict=True)
    ]
    seconds = round((time.perf_counter() - started) / len(points), 3)
    return [record | {"seconds": seconds} for record in records]


def trained(
    first: BandsPoint, problems: Sequence[Problem], seeds: Sequence[int]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Query and key weights of a channel for each problem."""
    if first.trainer == BY_KIND:
        return _one_head_a_kind(problems, seeds, first.head_dim)
    channels = train(
        "plain" if first.trainer == "joint" else "greedy",
        np.stack([problem.embeddings for problem in problems]),
        np.stack([problem.graph.adjacency() for problem in problems]),
        num_heads=first.num_heads,
        head_dim=first.head_dim,
        seeds=seeds,
        max_head_dim=_width(first.head_dim),
    )
    return [(channel.query_weights, channel.key_weights) for channel in channels]


def _width(head_dim: int) -> int:
    return 1 << (head_dim - 1).bit_length()


def _one_head_a_kind(
    problems: Sequence[Problem], seeds: Sequence[int], head_dim: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Heads at their common threshold 1, each fitted to the edges of one kind against all other pairs.

    Edges of other kinds are among these: a head keeps them out.
    """
    adjacency = []
    for problem in problems:
        edges, kinds = problem.graph.edges, kinds_of_sources(problem)
        for kind in range(len(RELATIONS)):
            own = np.zeros_like(problem.graph.adjacency())
            own[tuple(edges[kinds == kind].T)] = True
            adjacency.append(own)
    each = len(RELATIONS)
    channels = train(
        "greedy",
        np.repeat(np.stack([problem.embeddings for problem in problems]), each, axis=0),
        np.stack(adjacency),
        num_heads=1,
        head_dim=head_dim,
        seeds=[seed for seed in seeds for _ in RELATIONS],
        max_head_dim=_width(head_dim),
    )
    heads = [channels[i : i + each] for i in range(0, len(channels), each)]
    return [
        (
            np.concatenate([channel.query_weights for channel in own]),
            np.concatenate([channel.key_weights for channel in own]),
        )
        for own in heads
    ]


def measured(point: BandsPoint, problem: Problem, queries: np.ndarray, keys: np.ndarray) -> Record:
    """Recovery, what the winning heads say about kinds, and how the heads' subspaces lie."""
    recovery = evaluate(channel_scores(problem.embeddings, queries, keys), problem.graph.adjacency(), 0.0)
    winners = winning_heads(problem.embeddings, queries, keys, problem.graph.edges)
    kinds = kinds_of_sources(problem)
    shuffled = against_shuffled(winners, kinds, point.shuffles, seeded_rng(point.seed, "bands, shuffles"))
    used = np.unique(winners)
    record: Record = {
        "total_key_dim": point.num_heads * point.head_dim,
        "exact_recovery": recovery.exact_recovery,
        "best_f1": recovery.best_f1,
        "heads_used": len(used),
        "counts": counts_of(winners, kinds).tolist(),
        "information": shuffled.value,
        "shuffled_mean": shuffled.mean,
        "shuffled_high": shuffled.high,
        "p_value": shuffled.p_value,
        "random_overlap": random_overlap(point.d_model, point.head_dim),
    }
    names = ("query_overlap", "key_overlap", "random_low", "random_high")
    if len(used) < 2:
        return record | dict.fromkeys(names)
    rng = seeded_rng(point.seed, "bands, subspaces")
    draws = min(200, point.shuffles)
    chance = random_overlaps(len(used), point.d_model, point.head_dim, draws, rng)
    low, high = np.quantile(chance, [0.025, 0.975])
    values = mean_overlap(queries[used]), mean_overlap(keys[used]), float(low), float(high)
    return record | dict(zip(names, values, strict=True))
