"""Can one head of low rank hold a set of edges that it is given? A lower bound on what it can, by training.

The head has to score its own edges above every non-edge of the graph; the graph's other edges do not bind it. It is
fitted as greedy training fits one (squared hinge, free threshold, L-BFGS, random starts), and what it found is judged
in float64 from its factors. That no start held the edges is no proof that none can.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from theory.bounds import held_edges
from theory.problems import seeded_rng
from theory.training.greedy import _add_head, _random_starts
from theory.training.types import GreedyOptions, check_batch

OPTIONS = GreedyOptions(restarts=4, iterations=400)
"""More starts and iterations than where heads choose: no edge may be given up before a fit has ended."""


def holds_own_edges(
    embeddings: Float[np.ndarray, "b m d"],
    adjacency: Bool[np.ndarray, "b m m"],
    *,
    head_dim: int,
    own_edges: Sequence[int],
    seeds: Sequence[int],
    options: GreedyOptions = OPTIONS,
) -> Bool[np.ndarray, " b"]:
    """Whether a head was found that holds so many edges of each problem, drawn at random.

    Args:
        embeddings: items of each problem ``(b, m, d)``, unit norm.
        adjacency: edges of each problem ``(b, m, m)``.
        head_dim: ``d_k``.
        own_edges: how many edges of each problem the head is given.
        seeds: of each problem: which edges, and the starts.
        options: settings of the fit.

    Raises:
        ValueError: as `theory.training.types.check_batch`, or a number of own edges that the graph does not have.
    """
    edges = check_batch(embeddings, adjacency, 1, head_dim, head_dim, seeds)
    number = edges.shape[1]
    if len(own_edges) != len(seeds) or not all(1 <= p <= number for p in own_edges):
        raise ValueError(f"own_edges: expected {len(seeds)} integers from 1 to {number}, got {own_edges}")
    d_model, used = embeddings.shape[-1], min(head_dim, embeddings.shape[-1])
    own = np.zeros(edges.shape[:2], bool)
    for b, (seed, p) in enumerate(zip(seeds, own_edges, strict=True)):
        own[b, seeded_rng(seed, "own edges").permutation(number)[:p]] = True
    head = jax.device_get(
        _add_head(
            _random_starts(seeds, 0, options.restarts, d_model, used, used),
            jnp.asarray(embeddings, jnp.float32),
            jnp.asarray(edges),
            jnp.asarray(own),
            jnp.float32(held_edges(embeddings.shape[1], d_model, used)),
            options=options,
        )
    )
    found = np.zeros(len(seeds), bool)
    for b, x in enumerate(embeddings.astype(np.float64)):
        scores = (x @ head.query[b].astype(np.float64)) @ (x @ head.key[b].astype(np.float64)).T
        lowest = scores[tuple(edges[b][own[b]].T)].min()
        found[b] = bool(head.finite[b]) and bool(lowest > scores[~adjacency[b]].max())
    return found
