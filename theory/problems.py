"""One seed's task: items with embeddings and a graph to recognise on them, by the names that users type.

An embedding is ``gaussian``, ``orthonormal``, ``minilm``, ``minilm-pca``, ``minilm-pca-whitened`` or a
file; a graph is ``permutation``, ``regular``, ``random``, ``hubs``, ``words``, ``words-shuffled`` or a file of edges.
Embeddings and graph are drawn by independent generators that depend on the seed and the purpose alone:
changing one leaves the other as it was.
"""

import functools
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from theory.embeddings import (
    MINILM_EMBEDDINGS,
    gaussian_unit_norm,
    load_embeddings,
    minilm_tokens,
    minilm_vectors,
    minilm_word_rows,
    orthonormal,
    unit_norm,
)
from theory.graphs import (
    RelationalGraph,
    from_edges,
    hub_graph,
    log2_num_hub_graphs,
    log2_num_permutation_graphs,
    log2_num_random_graphs,
    log2_num_regular_graphs,
    permutation_graph,
    random_graph,
    read_edges,
    regular_graph,
    zipf_degrees,
)
from theory.word_relations import load_word_relations

EMBEDDINGS = ("gaussian", "orthonormal", *MINILM_EMBEDDINGS)
GRAPHS = ("permutation", "regular", "random", "hubs", "words", "words-shuffled")

_WORD_GRAPHS = ("words", "words-shuffled")
_EMBEDDING_SUFFIXES = (".npy", ".safetensors")


@dataclass(frozen=True, eq=False)
class Problem:
    """One seed's items and graph.

    Attributes:
        embeddings: ``(num_items, d_model)``, float64, every row of unit norm, read-only.
        graph: the edges to recognise.
        labels: the items' words where they are words, else None.
    """

    embeddings: Float[np.ndarray, "m d"]
    graph: RelationalGraph
    labels: tuple[str, ...] | None


def make_problem(
    *, num_items: int, num_edges: int, d_model: int, embedding: str, graph: str, seed: int
) -> Problem:
    """Make the task of one seed; the result depends on the arguments alone, in any process.

    - MiniLM's embeddings: ``num_items`` distinct words are drawn from its table; projections are fitted on
      the whole table.
    - A file of embeddings: its rows, scaled to unit norm, in order if there are ``num_items`` of them, else
      a sample without replacement (a file of edges counts rows: with one there must be exactly
      ``num_items``).
    - ``words``: ``num_edges`` pairs drawn from the table of word relations; sources come first, then
      targets. ``words-shuffled``: the same items and embeddings with the targets deranged, so that no
      original pair is an edge. Their vectors are MiniLM's where such an embedding is named, else drawn as
      for any graph.
    - A file of edges: the same graph for every seed.

    Args:
        num_items: number of items.
        num_edges: number of edges, see :func:`num_edges_of`.
        d_model: width of the embeddings.
        embedding: one of ``EMBEDDINGS`` or the path of a ``.npy`` or ``.safetensors`` file
            (``FILE.safetensors::NAME``).
        graph: one of ``GRAPHS`` or the path of a CSV file of edges.
        seed: non-negative integer.

    Raises:
        ValueError: if arguments do not fit each other, see :func:`check_problem`.
        FileNotFoundError: if a file, or MiniLM's wheel, is missing.
    """
    check_problem(num_items=num_items, num_edges=num_edges, d_model=d_model, embedding=embedding, graph=graph)
    labels: tuple[str, ...] | None = None
    if graph in _WORD_GRAPHS:
        relational_graph, labels = _word_graph(num_edges, graph == "words-shuffled", seed)
    else:
        relational_graph = _draw_graph(num_items, num_edges, graph, seeded_rng(seed, "graph"))

    rng = seeded_rng(seed, "embedding")
    if embedding == "gaussian":
        vectors = gaussian_unit_norm(num_items, d_model, rng)
    elif embedding == "orthonormal":
        vectors = orthonormal(num_items, d_model, rng)
    elif embedding in MINILM_EMBEDDINGS:
        if labels is None:
            words = minilm_tokens().words
            labels = tuple(words[row] for row in rng.choice(len(words), size=num_items, replace=False))
        row_of = minilm_word_rows()
        vectors = minilm_vectors(embedding, d_model)[[row_of[label] for label in labels]]
    else:
        vectors = _file_vectors(embedding)
        if vectors.shape[0] > num_items:
            vectors = vectors[rng.choice(vectors.shape[0], size=num_items, replace=False)]
    if vectors.flags.writeable:
        vectors.setflags(write=False)
    return Problem(vectors, relational_graph, labels)


def check_problem(*, num_items: int, num_edges: int, d_model: int, embedding: str, graph: str) -> None:
    """Check that arguments of :func:`make_problem` fit each other, before anything is computed.

    Raises:
        ValueError: naming the argument, what was expected and what came.
        FileNotFoundError: if a file, or MiniLM's wheel, is missing.
    """
    for name, value in (("num_items", num_items), ("num_edges", num_edges), ("d_model", d_model)):
        if value < 1:
            raise ValueError(f"{name}: expected a positive integer, got {value}")
    _check_graph(num_items, num_edges, graph)
    if embedding == "orthonormal":
        if num_items > d_model:
            raise ValueError(
                f"num_items: expected at most d_model = {d_model} for 'orthonormal', got {num_items}"
            )
    elif embedding in MINILM_EMBEDDINGS:
        minilm_vectors(embedding, d_model)
        available = len(minilm_tokens().words)
        if num_items > available:
            raise ValueError(
                f"num_items: expected at most the {available} words of {embedding!r}, got {num_items}"
            )
    elif embedding != "gaussian":
        _check_embedding_file(num_items, d_model, embedding, graph)


def _check_graph(num_items: int, num_edges: int, graph: str) -> None:
    if graph == "permutation":
        if num_items < 2:
            raise ValueError(f"num_items: expected at least 2 for graph 'permutation', got {num_items}")
        if num_edges != num_items:
            raise ValueError(
                f"num_edges: expected num_items = {num_items} for graph 'permutation', got {num_edges}"
            )
    elif graph == "regular":
        if num_edges % num_items or num_edges > num_items * (num_items - 1):
            raise ValueError(
                f"num_edges: expected a multiple of num_items = {num_items} "
                f"up to {num_items * (num_items - 1)} "
                f"for graph 'regular', got {num_edges}"
            )
    elif graph == "random":
        if num_edges > num_items * (num_items - 1):
            raise ValueError(
                f"num_edges: expected at most num_items * (num_items - 1) = {num_items * (num_items - 1)}, "
                f"got {num_edges}"
            )
    elif graph == "hubs":
        zipf_degrees(num_items, num_edges)
    elif graph in _WORD_GRAPHS:
        lowest, highest = 1 + (graph == "words-shuffled"), len(load_word_relations())
        if not lowest <= num_edges <= highest:
            raise ValueError(
                f"num_edges: expected {lowest} to {highest} for graph {graph!r}, got {num_edges}"
            )
        if num_items != 2 * num_edges:
            raise ValueError(
                f"num_items: expected 2 * num_edges = {2 * num_edges} for graph {graph!r}, got {num_items}"
            )
    else:
        edges = _file_graph(graph).edges
        if edges.max() >= num_items:
            raise ValueError(
                f"num_items: expected at least {edges.max() + 1} for the items of {graph!r}, got {num_items}"
            )
        if len(edges) != num_edges:
            raise ValueError(f"num_edges: expected the {len(edges)} edges of {graph!r}, got {num_edges}")


def _check_embedding_file(num_items: int, d_model: int, embedding: str, graph: str) -> None:
    rows, width = _file_vectors(embedding).shape
    if width != d_model:
        raise ValueError(f"d_model: expected the width {width} of {embedding!r}, got {d_model}")
    if rows < num_items:
        raise ValueError(f"num_items: expected at most the {rows} rows of {embedding!r}, got {num_items}")
    if graph not in GRAPHS and rows != num_items:
        raise ValueError(
            f"num_items: expected the {rows} rows of {embedding!r}, "
            f"because {graph!r} counts them, got {num_items}"
        )
    if graph in _WORD_GRAPHS:
        raise ValueError(
            f"embedding: expected one of {', '.join(EMBEDDINGS)} for graph {graph!r}, "
            f"got the file {embedding!r}, whose rows are not those words"
        )


def _draw_graph(num_items: int, num_edges: int, graph: str, rng: np.random.Generator) -> RelationalGraph:
    if graph == "permutation":
        return permutation_graph(num_items, rng)
    if graph == "regular":
        return regular_graph(num_items, num_edges // num_items, rng)
    if graph == "random":
        return random_graph(num_items, num_edges, rng)
    if graph == "hubs":
        return hub_graph(num_items, num_edges, rng)
    return RelationalGraph(num_items, _file_graph(graph).edges)


def _word_graph(num_edges: int, shuffled: bool, seed: int) -> tuple[RelationalGraph, tuple[str, ...]]:
    # Every word occurs once in the table, so that any choice of pairs is a matching.
    relations = load_word_relations()
    chosen = seeded_rng(seed, "graph").choice(len(relations), size=num_edges, replace=False)
    labels = tuple(relations.sources[i] for i in chosen) + tuple(relations.targets[i] for i in chosen)
    edges = np.stack([np.arange(num_edges), np.arange(num_edges)], axis=1)
    if shuffled:
        edges = permutation_graph(num_edges, seeded_rng(seed, "shuffle")).edges
    return from_edges(2 * num_edges, edges + np.array([0, num_edges])), labels


def seeded_rng(seed: int, purpose: str) -> np.random.Generator:
    """Return the generator of one purpose of a seed: independent between purposes, the same in every process.

    Raises:
        ValueError: if the seed is negative.
    """
    if seed < 0:
        raise ValueError(f"seed: expected a non-negative integer, got {seed}")
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=tuple(purpose.encode())))


def num_edges_of(graph: str, num_items: int, degree: int | None = None) -> int:
    """Return how many edges a graph on ``num_items`` items has.

    A permutation has ``num_items``; a regular or random graph, or one with hubs, ``num_items * degree``
    (degree 1 where none is given); words ``num_items / 2``; a file as many as it lists.

    Raises:
        ValueError: if ``num_items`` is odd for words, or a degree is given where it means nothing or is not
            positive.
        FileNotFoundError: if a file of edges is missing.
    """
    if num_items < 1:
        raise ValueError(f"num_items: expected a positive integer, got {num_items}")
    if graph in ("regular", "random", "hubs"):
        if degree is not None and degree < 1:
            raise ValueError(f"degree: expected a positive integer, got {degree}")
        return num_items * (1 if degree is None else degree)
    if degree is not None:
        raise ValueError(f"degree: expected none for graph {graph!r}, got {degree}")
    if graph == "permutation":
        return num_items
    if graph in _WORD_GRAPHS:
        if num_items % 2:
            raise ValueError(f"num_items: expected an even number for graph {graph!r}, got {num_items}")
        return num_items // 2
    return _file_graph(graph).num_edges


def log2_family_size(graph: str, num_items: int, num_edges: int) -> float | None:
    """Return log2 of how many graphs the name can mean, None for words and files, which are no family.

    Exact for ``permutation``, ``random`` and ``hubs``; for ``regular`` a proven lower bound, which keeps lower bounds
    on the key budget that grow with it true (see :func:`theory.graphs.log2_num_regular_graphs`).

    Raises:
        ValueError: if the arguments do not fit each other.
    """
    if graph not in GRAPHS or graph in _WORD_GRAPHS:
        return None
    _check_graph(num_items, num_edges, graph)
    if graph == "permutation":
        return log2_num_permutation_graphs(num_items)
    if graph == "regular":
        return log2_num_regular_graphs(num_items, num_edges // num_items)
    if graph == "hubs":
        return log2_num_hub_graphs(num_items, num_edges)
    return log2_num_random_graphs(num_items, num_edges)


def short_name(embedding_or_graph: str) -> str:
    """Return the name as it is, or a file's stem: what records and figures call it."""
    if embedding_or_graph in EMBEDDINGS + GRAPHS:
        return embedding_or_graph
    return Path(embedding_or_graph.partition("::")[0]).stem


def _file_vectors(embedding: str) -> Float[np.ndarray, "m d"]:
    location = embedding.partition("::")[0]
    if not location.endswith(_EMBEDDING_SUFFIXES):
        raise ValueError(
            f"embedding: expected one of {', '.join(EMBEDDINGS)} or the path of a .npy or .safetensors file, "
            f"got {embedding!r}"
        )
    if not Path(location).is_file():
        raise FileNotFoundError(f"embedding: expected a file, got {location!r}, which is none")
    return _cached_vectors(embedding, os.stat(location).st_mtime_ns)


@functools.lru_cache(maxsize=2)
def _cached_vectors(embedding: str, _modified: int) -> Float[np.ndarray, "m d"]:
    try:
        vectors = unit_norm(load_embeddings(embedding))
    except ValueError as error:
        raise ValueError(f"embedding: {error} (in {embedding!r})") from None
    vectors.setflags(write=False)
    return vectors


def _file_graph(graph: str) -> RelationalGraph:
    if not Path(graph).is_file():
        if Path(graph).suffix:
            raise FileNotFoundError(f"graph: expected a file of edges, got {graph!r}, which is no file")
        raise ValueError(
            f"graph: expected one of {', '.join(GRAPHS)} or the path of a CSV file, got {graph!r}"
        )
    return _cached_graph(graph, os.stat(graph).st_mtime_ns)


@functools.lru_cache(maxsize=2)
def _cached_graph(graph: str, _modified: int) -> RelationalGraph:
    return read_edges(graph)
