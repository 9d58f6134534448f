"""Heads of full rank with their edges dealt out beforehand: an exact, certified answer for a *given* partition.

Every head is asked for its own edges above all non-edges; edges of other heads do not bind it. Each head is one convex
problem (`theory.certificates`), so a partition is decided exactly: it is held if every head is separable, and fails
if one is not, with a Gordan vector of that head as the proof.

**A failed partition certifies that partition, never the head count**: for two heads or more another partition of the
same edges may be held. With one head there is only one partition, and the certificate speaks about the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import brentq
from scipy.special import ndtr

from theory.bounds import transition_width, width_requirement
from theory.certificates import Certificate, Verdict, certify_head


@dataclass(frozen=True, eq=False)
class PartitionCertificate:
    """The answer for one partition.

    Attributes:
        verdict: ``separable`` if every head is, ``inseparable`` if some head is (of this partition, see the module),
            else ``undecided``.
        heads: certificates of the heads that were looked at, in their order: up to the first that fails.
        failed: index of the head that is proven inseparable; None if none is.
    """

    verdict: Verdict
    heads: tuple[Certificate, ...]
    failed: int | None


def even_partition(
    adjacency: Bool[np.ndarray, "m m"], num_heads: int, rng: np.random.Generator
) -> Bool[np.ndarray, "h m m"]:
    """Deals the edges out at random, evenly: shares differ by one edge at most.

    Raises:
        ValueError: fewer edges than heads, or no head.
    """
    edges = rng.permutation(np.argwhere(adjacency))
    if not 1 <= num_heads <= len(edges):
        raise ValueError(f"num_heads: expected 1 to the {len(edges)} edges, got {num_heads}")
    parts = np.zeros((num_heads, *adjacency.shape), bool)
    for index in range(num_heads):
        parts[index][tuple(edges[index::num_heads].T)] = True
    return parts


def certify_partition(
    embeddings: Float[np.ndarray, "m d"],
    adjacency: Bool[np.ndarray, "m m"],
    parts: Bool[np.ndarray, "h m m"],
    *,
    max_iterations: int = 200,
    certify: Callable[..., Certificate] = certify_head,
) -> PartitionCertificate:
    """Decides whether heads of full rank hold the edges that a partition deals them.

    Args:
        embeddings: items, one a row.
        adjacency: the graph; all pairs outside it are non-edges of every head.
        parts: edges of each head: disjoint, together all edges, none empty.
        max_iterations: Newton steps of a head at most.
        certify: decides one head, as `theory.certificates.certify_head` does.

    Returns:
        The certificate. Heads after the first that is proven inseparable are not looked at.

    Raises:
        ValueError: parts that are no partition of the edges.
    """
    if parts.shape[1:] != adjacency.shape or (parts.sum(axis=0) != adjacency).any():
        raise ValueError("parts: expected masks that deal out every edge once, and nothing else")
    heads: list[Certificate] = []
    for index, own in enumerate(parts):
        heads.append(certify(embeddings, own, ~adjacency, max_iterations=max_iterations))
        if heads[-1].verdict == "inseparable":
            return PartitionCertificate("inseparable", tuple(heads), index)
    decided = all(head.verdict == "separable" for head in heads)
    return PartitionCertificate("separable" if decided else "undecided", tuple(heads), None)


def partition_success_probability(
    num_items: float | int, num_edges: float | int, d_model: int, num_heads: int
) -> float:
    """Chance that a random even partition of a random graph is held: ``Phi((d^2 - n_h) / s_h)^h``.

    ``n_h = n(m'/h, m^2 - m')`` and its predicted width ``s_h`` (`theory.bounds.transition_width`); heads count as
    independent, though they share items and non-edges. A *prediction* (ours) without a free parameter.

    Args:
        num_items: ``m``, real.
        num_edges: ``m'``, real and positive.
        d_model: ``d``.
        num_heads: ``h``.
    """
    share, others = num_edges / num_heads, num_items**2 - num_edges
    needed, width = width_requirement(share, others), transition_width(share, others)
    return float(ndtr((d_model**2 - needed) / width) ** num_heads)


def partition_max_items(d_model: int, num_heads: int, probability: float = 0.5) -> float:
    """The size at which a random even partition of a permutation is held with this probability: a *prediction*.

    Args:
        d_model: ``d``, at least 2.
        num_heads: ``h``.
        probability: in (0, 1).

    Raises:
        ValueError: an argument out of range.
    """
    if d_model < 2 or num_heads < 1:
        raise ValueError(f"d_model, num_heads: expected at least 2 and 1, got {d_model} and {num_heads}")
    if not 0 < probability < 1:
        raise ValueError(f"probability: expected a number in (0, 1), got {probability}")

    def gap(items: float) -> float:
        return partition_success_probability(items, items, d_model, num_heads) - probability

    high = 4.0
    while gap(high) > 0:
        high *= 2
    found: Any = brentq(gap, 2.0 + 1e-9, high, xtol=1e-9)
    return float(found)
