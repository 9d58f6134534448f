"""Points of the certificates experiment and what a batch computes: all seeds of one size."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from experiments.certificates.config import CertificatesConfig
from experiments.points import Kind, Record
from theory.partitions import certify_partition, even_partition, partition_max_items
from theory.problems import make_problem, seeded_rng


@dataclass(frozen=True)
class PartitionPoint:
    """One partition of one graph.

    Attributes:
        d_model: ``d``, also the size of a head.
        num_heads: ``h``.
        num_items: ``m``, the edges of its permutation too.
        seed: of items, graph and partition.
    """

    d_model: int
    num_heads: int
    num_items: int
    seed: int


KINDS = {
    "points": Kind(
        PartitionPoint,
        frozenset(PartitionPoint.__dataclass_fields__)
        | {
            "verdict",
            "heads_decided",
            "failed_head",
            "proven",
            "least_margin",
            "residual",
            "iterations",
            "seconds",
        },
    )
}


def sizes(config: CertificatesConfig, d_model: int, num_heads: int) -> list[int]:
    """Items of the graphs: around the predicted half-way point."""
    middle = partition_max_items(d_model, num_heads)
    reach = partition_max_items(d_model, num_heads, 0.1) - partition_max_items(d_model, num_heads, 0.9)
    found = sorted({round(middle + offset * reach) for offset in config.offsets})
    return [m for m in found if num_heads <= m <= config.largest]


def grid(config: CertificatesConfig) -> list[PartitionPoint]:
    """All points of a configuration."""
    return [
        PartitionPoint(d, h, m, seed)
        for d in config.d_models
        for h in config.head_counts
        for m in sizes(config, d, h)
        for seed in range(max(2, min(config.seeds, config.seeds * 16 // d)))
    ]


def work_of(point: PartitionPoint) -> float:
    """How much one partition costs, about."""
    return point.num_heads * point.d_model**2 * (point.num_items**2 + point.num_items * point.d_model**2)


def compute(points: Sequence[PartitionPoint]) -> list[Record]:
    """Certify every seed's partition."""
    records = []
    for point in points:
        started = time.perf_counter()
        made = make_problem(
            num_items=point.num_items,
            num_edges=point.num_items,
            d_model=point.d_model,
            embedding="gaussian",
            graph="permutation",
            seed=point.seed,
        )
        adjacency = made.graph.adjacency()
        parts = even_partition(adjacency, point.num_heads, seeded_rng(point.seed, "partition"))
        found = certify_partition(made.embeddings, adjacency, parts)
        failed = None if found.failed is None else found.heads[found.failed]
        held = found.verdict == "separable"
        proven = all(head.proven for head in found.heads) if held else failed is not None and failed.proven
        records.append(
            asdict(point)
            | {
                "verdict": found.verdict,
                "heads_decided": sum(head.verdict != "undecided" for head in found.heads),
                "failed_head": found.failed,
                "proven": bool(proven),
                "least_margin": min(head.margin for head in found.heads) if held else None,
                "residual": None if failed is None else failed.residual,
                "iterations": sum(head.iterations for head in found.heads),
                "seconds": round(time.perf_counter() - started, 3),
            }
        )
    return records
