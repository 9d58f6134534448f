"""What is made of the batches: curves of divergence, where the circle breaks, verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from experiments.engine import Rows
from experiments.points import Record
from experiments.rank.best import best_known
from experiments.rank.claims import claim_rows


def summary(rows: Rows) -> Rows:
    """Curves (one row for a pattern, length, bound and head size: best known heads, searches), limits, claims."""
    curves = _curves(best_known(rows["points"]))
    limits = _limits(rows["circle"])
    return {"curves": curves, "limits": limits, "claims": claim_rows(rows, curves, limits)}


def _curves(points: Sequence[Record]) -> list[Record]:
    groups: dict[tuple, list[Record]] = {}
    for row in points:
        key = tuple(row[name] for name in ("pattern", "n", "bound", "head_dim"))
        groups.setdefault(key, []).append(row)
    curves = []
    for (pattern, n, bound, head_dim), own in groups.items():
        required = [row["minimal_head_dim"] for row in own if row["minimal_head_dim"] is not None]
        logits = [row["max_logit"] for row in own if row["max_logit"] is not None]
        truncated = [row["truncated_kl"] for row in own if row["truncated_kl"] is not None]
        curves.append(
            {
                "pattern": pattern,
                "n": n,
                "bound": bound,
                "head_dim": head_dim,
                "median_kl": median(row["kl"] for row in own),
                "least_kl": min(row["kl"] for row in own),
                "largest_kl": max(row["kl"] for row in own),
                "median_search_kl": median(row["search_kl"] for row in own),
                "least_search_kl": min(row["search_kl"] for row in own),
                "largest_search_kl": max(row["search_kl"] for row in own),
                "median_truncated_kl": median(truncated) if truncated else None,
                "median_uniform_kl": median(row["uniform_kl"] for row in own),
                "median_max_logit": median(logits) if logits else None,
                "least_minimal_head_dim": min(required, default=None),
                "largest_minimal_head_dim": max(required, default=None),
                "floor_kl": own[0]["floor_kl"],
                "circle_kl": own[0]["circle_kl"],
                "num_seeds": len(own),
            }
        )
    return curves


def _limits(points: Sequence[Record]) -> list[Record]:
    groups: dict[tuple, list[Record]] = {}
    for row in sorted(points, key=lambda row: row["n"]):
        groups.setdefault((row["dtype"], row["miss"]), []).append(row)
    limits = []
    for (dtype, miss), own in groups.items():
        wrong = [row["n"] for row in own if row["share_right"] < 1]
        below = [row["n"] for row in own if row["least_weight"] < 0.5]
        limits.append(
            {
                "dtype": dtype,
                "miss": miss,
                "guaranteed_length": own[0]["guaranteed_length"],
                "longest": own[-1]["n"],
                "longest_right": _before(own, wrong),
                "first_wrong": min(wrong, default=None),
                "longest_half": _before(own, below),
                "first_below_half": min(below, default=None),
            }
        )
    return limits


def _before(rows: Sequence[Record], failing: Sequence[int]) -> int | None:
    """The longest length below all that fail."""
    first = min(failing, default=float("inf"))
    return max((row["n"] for row in rows if row["n"] < first), default=None)
