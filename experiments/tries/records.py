"""What is made of the trained runs: how often each arm recovers, thresholds, pairs against direct runs, curves."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.capacity.units import RECOVERED_F1
from experiments.engine import Ask, Rows
from experiments.files import read_final
from experiments.points import Record
from experiments.reading import select
from experiments.significance import holm, sign_flip_p
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
            label = {"arm": arm, "ratio": ratio, "choice": choice}
            in_order = sorted(own, key=lambda p: p["seed"])  # arms are compared seed by seed
            table.append(_arm_row(identity | label, [[p] for p in in_order]))
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


Arm = tuple[str, int, str | None]
"""Arm, ratio H / h, and by which choice heads were kept."""


def comparisons(arms: Iterable[Arm]) -> list[tuple[Arm, Arm]]:
    """Which arms are compared: with direct training, chosen heads with random ones, cut heads with restarts."""
    arms = list(dict.fromkeys(arms))
    direct: Arm = ("direct", 1, None)
    pairs = [(arm, direct) for arm in arms if arm != direct]
    pairs += [(arm, (*arm[:2], "random")) for arm in arms if arm[0] == "healed-steps" and arm[2] != "random"]
    pairs += [(arm, ("resumed", 1, None)) for arm in arms if arm[0] == "healed-compute"]
    pairs += [
        (("restarts", arm[1], None), arm)
        for arm in arms
        if arm[0] == "healed-steps" and arm[2] == "recomputed"
    ]
    return [pair for pair in pairs if set(pair) <= set(arms)]


def _paired(arms: Sequence[Record]) -> list[Record]:
    """Arms against others on the same problems, over all sizes.

    Problems of one seed, at all sizes, are not independent: the p-value is that of exact sign flips over seeds,
    ``holm`` the same corrected for all comparisons made here. The best of several direct runs has the direct run among
    them and cannot recover less: nothing to test.
    """
    outcomes: dict[Arm, dict[tuple[int, int], list[bool]]] = {}
    for row in arms:
        own = outcomes.setdefault((row["arm"], row["ratio"], row["choice"]), {})
        own[row["num_heads"], row["head_dim"]] = row["recovered_seeds"]
    table = []
    for (arm, ratio, choice), (other, other_ratio, other_choice) in comparisons(outcomes):
        mine, theirs = outcomes[arm, ratio, choice], outcomes[other, other_ratio, other_choice]
        both = [size for size in mine if size in theirs]
        a, b = (np.array([found[size] for size in both], int) for found in (mine, theirs))  # sizes, seeds
        by_seed = (a - b).sum(axis=0).tolist()
        table.append(
            {
                "arm": arm,
                "ratio": ratio,
                "choice": choice,
                "other": other,
                "other_ratio": other_ratio,
                "other_choice": other_choice,
                "problems": a.size,
                "seeds": len(by_seed),
                "recovered": int(a.sum()),
                "other_recovered": int(b.sum()),
                "alone": int((a > b).sum()),
                "other_alone": int((b > a).sum()),
                "more_by_seed": by_seed,
                "p_value": None if (arm, other) == ("restarts", "direct") else sign_flip_p(by_seed),
            }
        )
    tested = [row for row in table if row["p_value"] is not None]
    corrected = iter(holm([row["p_value"] for row in tested]))
    return [row | {"holm": None if row["p_value"] is None else next(corrected)} for row in table]


def _curves(points: Sequence[Record]) -> list[Record]:
    """Score, and share of it kept against heads removed, for each checkpoint and order.

    ``seeds`` and ``score`` are of all runs that did not fail. A model without a positive score has nothing to keep: its
    share is not defined, None in ``kept_by_seed`` (by seed, in order), and ``kept`` is of the ``kept_seeds`` others.
    """
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for point in points:
        groups.setdefault((point["task"], point["order"], point["steps"]), []).append(point)
    table = []
    for (task, order, steps), own in groups.items():
        in_order = sorted(own, key=lambda point: point["seed"])
        scores = [np.array(point["scores"]) for point in in_order if point["scores"] is not None]
        shares = [np.maximum(s, 0.0) / s[0] if s[0] > 0 else None for s in scores]
        relative = [share for share in shares if share is not None]
        if not relative:
            continue
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
                "kept_seeds": len(relative),
                "score": float(np.mean([s[0] for s in scores])),
                "fraction_pruned": [count / heads for count in range(heads + 1)],
                "kept": np.mean(relative, axis=0).tolist(),
                "kept_low": low.tolist(),
                "kept_median": middle.tolist(),
                "kept_high": high.tolist(),
                "kept_by_seed": [None if share is None else share.tolist() for share in shares],
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
