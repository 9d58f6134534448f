"""Made-up records in the shape of a `capacity` run's: smooth laws and noise, never results."""

import base64
import math
from functools import lru_cache
from typing import Any

import numpy as np

from theory import bounds

SWEPT = (1, 2, 3, 4, 6, 8, 16)

partition = lru_cache(bounds.partition_total_key_dim)
parameter_count = lru_cache(bounds.parameter_count_total_key_dim)
warren = lru_cache(bounds.warren_bound)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _center(trainer: str, m: int, edges: int, d: int, heads: int, ease: float) -> float:
    """Budget at which half of the seeds succeed in these made-up records."""
    even = partition(m, edges, d, heads)
    if trainer == "plain":
        law = parameter_count(m, edges, d, heads)
        return ease * law * (1.02 if heads < 9 else 1.6)
    if math.isfinite(even):
        ease *= 1.05 if trainer == "joint" else 1.0
        return ease * max(0.93 * even, 2.05 * heads if 2 * heads < edges else heads)
    return ease * (28.0 if heads == 2 else math.inf) * d / 16


def _points(
    rng, m, edges, d, heads, dims, trainer, embedding, graph, seeds, ease=1.0
) -> list[dict[str, Any]]:
    out = []
    for dim in dims:
        center = _center(trainer, m, edges, d, heads, ease)
        for seed in range(seeds):
            budget = heads * dim
            miss = (
                0.0
                if budget > center * rng.normal(1, 0.04)
                else min(0.9, 1.2 * (1 - budget / min(center, 6 * d)) + 0.02)
            )
            f1 = max(0.0, 1 - abs(miss))
            if dim == 1 and 2 * heads < edges:
                f1 = 4 * heads / (2 * heads + edges) * (0.9 if trainer == "plain" else 1.0)
            out.append(
                {
                    "num_items": m,
                    "num_edges": edges,
                    "d_model": d,
                    "num_heads": heads,
                    "head_dim": dim,
                    "total_key_dim": budget,
                    "embedding": embedding,
                    "graph": graph,
                    "aggregation": "max",
                    "trainer": trainer,
                    "seed": seed,
                    "learning_rate": None if trainer == "greedy" else 0.05,
                    "status": "ok",
                    "reason": None,
                    "micro_f1": f1 - 0.01,
                    "best_f1": f1,
                    "exact_recovery": f1 == 1.0,
                    "argmax_accuracy": f1,
                    "loss": 1 - f1,
                    "smallest_edge": 1.0,
                    "largest_non_edge": 0.9,
                    "steps": 1000,
                    "seconds": 1.0,
                }
            )
    return out


def _threshold(prefix: str, value: float, heads: int, reached: bool) -> dict[str, Any]:
    keys = ("measured_total_key_dim", "ci_low", "ci_high", "status")
    names = keys if not prefix else tuple(f"{prefix}_{key.removeprefix('measured_')}" for key in keys)
    values = (
        (value, value - 0.6 * heads, value + 0.5 * heads, "reached")
        if reached
        else (None, None, None, "not_reached")
    )
    return dict(zip(names, values, strict=True))


def _transition(m, edges, d, heads, trainer, embedding, graph, seeds, ease=1.0) -> dict[str, Any]:
    center = _center(trainer if trainer != "best" else "greedy", m, edges, d, heads, ease)
    reached = center <= heads * d
    bits = (math.lgamma(m + 1) - 1) / math.log(2) if graph == "permutation" else None
    exact = heads * math.ceil(center / heads) if reached and trainer != "plain" else None
    return {
        "num_items": m,
        "num_edges": edges,
        "d_model": d,
        "num_heads": heads,
        "embedding": embedding,
        "graph": graph,
        "trainer": trainer,
        **_threshold("", center, heads, reached),
        **_threshold("exact", 1.07 * center, heads, reached),
        **_threshold("trained", 1.03 * center, heads, reached),
        "smallest_exact": exact,
        "partition_total_key_dim": _finite(partition(m, edges, d, heads)),
        "parameter_count_total_key_dim": _finite(parameter_count(m, edges, d, heads)),
        "counting_bound": None if bits is None else bounds.counting_bound(bits, d, 16),
        "bits_per_parameter": 16,
        "warren_bound": None if bits is None else _finite(warren(bits, m, d, heads)),
        "cap_bound": 2 * heads if 2 * heads < edges else heads,
        "num_seeds": seeds,
    }


def _channel(transition: dict[str, Any]) -> dict[str, Any]:
    """As `units.packed` writes it: every second head is idle."""
    heads, d = transition["num_heads"], transition["d_model"]
    weights = np.ones((heads, d, transition["smallest_exact"] // heads), "<f4")
    weights[1::2] = 0
    packed = base64.b64encode(weights.tobytes()).decode()
    names = ("num_items", "num_edges", "d_model", "num_heads", "embedding", "graph")
    return {name: transition[name] for name in names} | {
        "total_key_dim": transition["smallest_exact"],
        "shape": list(weights.shape),
        "query_weights": packed,
        "key_weights": packed,
    }


def make_data(
    sizes=((96, 16),),
    heads=SWEPT,
    trainers=("greedy", "joint", "plain"),
    budgets=(24, 36),
    ceilings=(16,),
    real=True,
    seeds=8,
    preset="quick",
) -> dict[str, Any]:
    """A run's json as `experiments run` writes it."""
    rng = np.random.default_rng(5)
    points, transitions, sweeps, ceiling_points, ceiling_rows = [], [], [], [], []

    def arm(m, edges, d, counts, embedding, graph, ease=1.0):
        for h in counts:
            for trainer in trainers:
                center = min(_center(trainer, m, edges, d, h, ease) / h, d)
                dims = sorted(
                    {k for k in range(math.floor(center) - 2, math.ceil(center) + 3) if 1 <= k <= d} | {d}
                )
                points.extend(_points(rng, m, edges, d, h, dims, trainer, embedding, graph, seeds, ease))
                transitions.append(_transition(m, edges, d, h, trainer, embedding, graph, seeds, ease))
            transitions.append(_transition(m, edges, d, h, "best", embedding, graph, seeds, ease))

    for m, d in sizes:
        arm(m, m, d, heads, "gaussian", "permutation")
        for budget in budgets:
            divisors = [h for h in range(1, budget + 1) if budget % h == 0]
            low, high = bounds.head_window(budget, m, m, d)
            for trainer in trainers:
                for h in divisors:
                    points.extend(
                        _points(rng, m, m, d, h, [budget // h], trainer, "gaussian", "permutation", seeds)
                    )
            for trainer in (*trainers, "best"):
                sweeps.append(
                    {
                        "num_items": m,
                        "num_edges": m,
                        "d_model": d,
                        "total_key_dim": budget,
                        "embedding": "gaussian",
                        "graph": "permutation",
                        "trainer": trainer,
                        "measured_min_heads": 3,
                        "measured_max_heads": 8,
                        "predicted_min_heads": low,
                        "predicted_max_heads": high,
                    }
                )
    if real:
        arm(96, 96, 16, (4,), "minilm-pca", "permutation", 1.1)
        arm(96, 96, 16, (4,), "minilm-pca-whitened", "permutation", 1.02)
        arm(144, 72, 16, (4,), "minilm-pca-whitened", "words", 0.55)
        arm(144, 72, 16, (4,), "minilm-pca-whitened", "words-shuffled", 1.05)
    for d in ceilings:
        center = 1.04 * bounds.single_head_max_items(d)
        for m in np.unique(np.round(center * np.linspace(0.85, 1.15, 9)).astype(int)).tolist():
            for seed in range(2 * seeds):
                share = bounds.convex_success_probability(round(m / 1.04), round(m / 1.04), d)
                verdict = "separable" if rng.random() < share else "inseparable"
                if seed == 3 and abs(m / center - 1) < 0.03:
                    verdict = "undecided"
                ceiling_points.append(
                    {
                        "d_model": d,
                        "num_items": m,
                        "embedding": "gaussian",
                        "graph": "permutation",
                        "seed": seed,
                        "verdict": verdict,
                        "margin": 0.1,
                        "residual": 0.0,
                        "seconds": 0.1,
                    }
                )
        ceiling_rows.append(
            {
                "d_model": d,
                "num_heads": 1,
                "embedding": "gaussian",
                "graph": "permutation",
                "measured_num_items": center,
                "ci_low": center - 1,
                "ci_high": center + 1,
                "predicted_num_items": bounds.single_head_max_items(d),
                "method": "convex",
            }
        )
    return {
        "experiment": "capacity",
        "preset": preset,
        "schema": 1,
        "command": f"python -m experiments run capacity --preset {preset}",
        "config": {},
        "computing": {"batches": 1, "compiling_seconds": 0.0, "seconds": 600.0},
        "versions": {},
        "left_out": [],
        "records": {
            "points": points,
            "transitions": transitions,
            "ceilings": ceiling_rows,
            "ceiling_points": ceiling_points,
            "head_sweeps": sweeps,
            "channels": [_channel(r) for r in transitions if r["trainer"] == "best" and r["smallest_exact"]],
        },
    }
