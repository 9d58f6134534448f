"""What is made of the trained runs: how often each arm recovers, thresholds, pairs against direct runs, curves."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest

from experiments.capacity.units import RECOVERED_F1
from experiments.engine import Ask, Rows
from experiments.files import read_final
from experiments.points import Record
from experiments.reading import select
from experiments.store import canonical
from experiments.tries.claims import claim_rows
from experiments.tries.config import TriesConfig
from theory.bounds import parameter_count_total_key_dim, partition_total_key_dim
from theory.transition import fit_threshold

CAPACITY = Path(__file__).parents[2] / "figures" / "capacity" / "quick.json"
"""Where the other trainers' thresholds are."""

_IDENTITY = ("num_heads", "arm", "ratio", "choice")


def summary(config: TriesConfig, ask: Ask, rows: Rows) -> Rows:
    """``arms`` (a row for an arm at a size), ``thresholds``, ``paired``, ``curves``, ``yardsticks``, ``claims``."""
    arms = _arms(rows["points"], config.ratios)
    yardsticks = _yardsticks(config)
    thresholds = _thresholds(config, arms, yardsticks)
    paired = _paired(arms)
    curves = _curves(rows["dynamics"])
    made = {
        "arms": arms,
        "thresholds": thresholds,
        "paired": paired,
        "curves": curves,
        "yardsticks": yardsticks,
    }
    return made | {"claims": claim_rows(made)}


def _arms(points: Sequence[Record], ratios: Iterable[int]) -> list[Record]:
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for point in points:
        ratio = point["trained_heads"] // point["num_heads"]
        key = (point["num_heads"], point["head_dim"], point["arm"], ratio, point["choice"])
        groups.setdefault(key, []).append(point)
    table = []
    for (heads, dim, arm, ratio, choice), own in groups.items():
        identity = {"num_heads": heads, "head_dim": dim, "total_key_dim": heads * dim}
        if arm != "direct":
            table.append(
                _arm_row(identity | {"arm": arm, "ratio": ratio, "choice": choice}, [[p] for p in own])
            )
            continue
        by_seed: dict[int, list[Record]] = {}
        for point in sorted(own, key=lambda p: p["restart"]):
            by_seed.setdefault(point["seed"], []).append(point)
        least = min(len(runs) for runs in by_seed.values())
        for tries in [1, *(ratio for ratio in ratios if ratio <= least)]:
            name = "direct" if tries == 1 else "restarts"
            label = {"arm": name, "ratio": tries, "choice": None}
            table.append(_arm_row(identity | label, [by_seed[s][:tries] for s in sorted(by_seed)]))
    return table


def _arm_row(identity: Record, tries: Sequence[Sequence[Record]]) -> Record:
    """One arm at one size: for every seed one run, or the best of several."""
    best = [max(runs, key=lambda p: p["best_f1"] if p["best_f1"] is not None else -1.0) for runs in tries]
    scores = [0.0 if p["best_f1"] is None else p["best_f1"] for p in best]
    cut = [p for p in best if p["cut_f1"] is not None]
    shares = [sum(p["won"]) / p["num_items"] for p in cut]
    return identity | {
        "num_items": best[0]["num_items"],
        "d_model": best[0]["d_model"],
        "seeds": len(best),
        "failed": sum(p["status"] == "failed" for runs in tries for p in runs),
        "recovered": sum(score >= RECOVERED_F1 for score in scores),
        "exact": sum(bool(p["exact_recovery"]) for p in best),
        "recovered_seeds": [score >= RECOVERED_F1 for score in scores],
        "mean_f1": _mean(scores),
        "mean_first_f1": _mean([p["first_f1"] for p in cut]),
        "mean_cut_f1": _mean([p["cut_f1"] for p in cut]),
        "mean_split_f1": _mean([2 * s / (1 + s) for s in shares]),
        "head_steps": _mean([sum(p["head_steps"] for p in runs) for runs in tries]),
        "head_steps_cap": sum(p["head_steps_cap"] for p in tries[0]),
    }


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None


def _thresholds(config: TriesConfig, arms: Sequence[Record], yardsticks: Sequence[Record]) -> list[Record]:
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for row in arms:
        groups.setdefault(tuple(row[name] for name in _IDENTITY), []).append(row)
    table = []
    for key, own in groups.items():
        heads = key[0]
        found = fit_threshold(
            [row["head_dim"] for row in own],
            [row["recovered"] for row in own],
            [row["seeds"] for row in own],
        ).scaled(heads)
        exact = [row["total_key_dim"] for row in own if row["exact"]]
        sizes = config.num_items, config.num_items, config.d_model, heads
        predicted = {
            "partition_total_key_dim": partition_total_key_dim(*sizes),
            "parameter_count_total_key_dim": parameter_count_total_key_dim(*sizes),
        }
        row: Record = dict(zip(_IDENTITY, key, strict=True)) | {
            "num_items": config.num_items,
            "d_model": config.d_model,
            "measured_total_key_dim": found.estimate,
            "ci_low": found.ci_low,
            "ci_high": found.ci_high,
            "status": found.status,
            "at_most": found.capped,
            "smallest_exact": min(exact, default=None),
            "tried": sorted(row["total_key_dim"] for row in own),
        }
        row |= {name: value if np.isfinite(value) else None for name, value in predicted.items()}
        for trainer in ("best", "joint"):
            others = select(yardsticks, num_heads=heads, trainer=trainer)
            row[f"{trainer}_total_key_dim"] = others[0]["measured_total_key_dim"] if others else None
        table.append(row)
    return table


def _paired(arms: Sequence[Record]) -> list[Record]:
    """Every arm against the direct runs of the same problems, over all sizes.

    The p-value is that of a two-sided sign test on problems that one of the two recovers alone. Sizes share their
    seeds, so that it is somewhat too small.
    """
    direct = {(r["num_heads"], r["head_dim"]): r["recovered_seeds"] for r in select(arms, arm="direct")}
    groups: dict[tuple[Any, ...], list[tuple[bool, bool]]] = {}
    for row in arms:
        if row["arm"] == "direct" or (row["num_heads"], row["head_dim"]) not in direct:
            continue
        beside = direct[row["num_heads"], row["head_dim"]]
        pairs = groups.setdefault((row["arm"], row["ratio"], row["choice"]), [])
        pairs += zip(row["recovered_seeds"], beside, strict=True)
    table = []
    for (arm, ratio, choice), pairs in groups.items():
        alone = sum(a and not b for a, b in pairs)
        other = sum(b and not a for a, b in pairs)
        table.append(
            {
                "arm": arm,
                "ratio": ratio,
                "choice": choice,
                "problems": len(pairs),
                "recovered": sum(a for a, _ in pairs),
                "direct_recovered": sum(b for _, b in pairs),
                "alone": alone,
                "direct_alone": other,
                "p_value": float(binomtest(alone, alone + other).pvalue) if alone + other else 1.0,
            }
        )
    return table


def _curves(points: Sequence[Record]) -> list[Record]:
    """Score kept against heads removed, for each checkpoint and order, over the seeds with a positive score."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for point in points:
        groups.setdefault((point["task"], point["order"], point["steps"]), []).append(point)
    table = []
    for (task, order, steps), own in groups.items():
        scores = np.array([point["scores"] for point in own if point["scores"] is not None])
        scores = scores[scores[:, 0] > 0] if len(scores) else scores
        if not len(scores):  # a model that is worth nothing has nothing to keep
            continue
        relative = np.maximum(scores, 0.0) / scores[:, :1]
        low, middle, high = (np.quantile(relative, q, axis=0) for q in (0.25, 0.5, 0.75))
        heads = own[0]["num_heads"]
        table.append(
            {
                "task": task,
                "order": order,
                "steps": steps,
                "fraction_trained": steps / own[0]["num_steps"],
                "num_heads": heads,
                "seeds": len(scores),
                "score": float(scores[:, 0].mean()),
                "fraction_pruned": [count / heads for count in range(heads + 1)],
                "kept": relative.mean(axis=0).tolist(),
                "kept_low": low.tolist(),
                "kept_median": middle.tolist(),
                "kept_high": high.tolist(),
            }
        )
    return table


def _yardsticks(config: TriesConfig) -> list[Record]:
    """Thresholds of joint training and of the best trainer, from `capacity`'s committed records of this size."""
    if not CAPACITY.is_file():
        return []
    wanted = {"num_items": config.num_items, "d_model": config.d_model}
    wanted |= {"embedding": "gaussian", "graph": "permutation"}
    rows = select(read_final(CAPACITY)["records"]["transitions"], **wanted)
    # Of what is read alone: computed again, the same records come with other times and provenance.
    digest = hashlib.sha256(canonical(rows).encode()).hexdigest()
    names = (
        "num_heads",
        "trainer",
        "measured_total_key_dim",
        "ci_low",
        "ci_high",
        "smallest_exact",
        "status",
    )
    # The joint training of this experiment is what `capacity` calls plain.
    own = {"best": "best", "plain": "joint"}
    return [
        {name: row[name] for name in names} | {"trainer": own[row["trainer"]], "sha256": digest}
        for row in rows
        if row["num_heads"] in config.num_heads and row["trainer"] in own
    ]
