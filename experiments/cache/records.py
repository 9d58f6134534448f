"""What is made of the trained layers: thresholds, designs at equal budgets, conversions, real models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from experiments.cache.claims import claim_rows
from experiments.cache.config import CacheConfig, Trainer
from experiments.cache.conversion import METHODS
from experiments.cache.models import model_rows
from experiments.cache.plan import CRITERIA, Curve, budget_trainers, budgets, curves, search, successes
from experiments.capacity.units import RECOVERED_F1
from experiments.engine import Ask, Rows, Unfinished
from experiments.points import Record
from theory.bounds import one_dimensional_f1_cap
from theory.cache_capacity import latent_parameters, shared_key_parameters
from theory.transition import Threshold, fit_threshold


def summary(config: CacheConfig, ask: Ask, rows: Rows) -> Rows:
    """All records of a run, in an order of their own; a threshold whose search is unfinished is "not_run"."""
    points = sorted(rows["points"], key=_place)
    transitions = []
    for curve, trainers in curves(config):
        found: dict[Trainer, list[Record] | None] = {}
        for trainer in trainers:
            found[trainer] = _searched(config, curve, trainer, ask)
        transitions += _transitions(config, curve, found)
    converted = sorted(rows["conversion_points"], key=lambda row: (-row["num_kv_heads"], row["seed"]))
    conversions = _conversions(converted)
    equal = _budgets(config, ask)
    return {
        "points": points,
        "transitions": transitions,
        "budgets": equal,
        "conversion_points": converted,
        "conversions": conversions,
        "models": model_rows(),
        "claims": claim_rows({"transitions": transitions, "budgets": equal, "conversions": conversions}),
    }


def _place(row: Record) -> tuple[Any, ...]:
    size = row["num_items"], row["d_model"], row["num_heads"]
    return (*size, row["design"], -row["num_kv_heads"], row["trainer"], row["cache_dims"], row["seed"])


def _searched(config: CacheConfig, curve: Curve, trainer: Trainer, ask: Ask) -> list[Record] | None:
    try:
        return search(config, curve, trainer, ask)
    except Unfinished:
        return None


def fit_own(curve: Curve, points: Sequence[Record], success: Callable[[Record], bool]) -> Threshold:
    """A trainer's own threshold, in cached key dimensions."""
    by_width: dict[int, list[Record]] = {}
    for point in points:
        by_width.setdefault(curve.width_of(point), []).append(point)
    counts = {width: successes(group, success) for width, group in by_width.items()}
    return _located(curve, counts, {width: len(group) for width, group in by_width.items()})


def _fit_best(curve: Curve, points: Sequence[Record], success: Callable[[Record], bool]) -> Threshold:
    """The threshold of the best channel found: a seed succeeds where any trainer did, at this width or below."""
    smallest: dict[int, int] = {}
    for point in points:
        if point["status"] == "ok" and success(point):
            width = curve.width_of(point)
            smallest[point["seed"]] = min(width, smallest.get(point["seed"], width))
    seeds = {point["seed"] for point in points}
    widths = {curve.width_of(point) for point in points}
    counts = {width: sum(found <= width for found in smallest.values()) for width in widths}
    return _located(curve, counts, dict.fromkeys(widths, len(seeds)))


def _located(curve: Curve, counts: Mapping[int, int], trials: Mapping[int, int]) -> Threshold:
    """The 50% point in cached dimensions, kept above what a theorem excludes."""
    widths = sorted(counts)
    per_width = curve.num_kv_heads if curve.latent_rank is None else 1
    fit = fit_threshold(widths, [counts[w] for w in widths], [trials[w] for w in widths]).scaled(per_width)
    if fit.estimate is None or fit.ci_low is None:
        return fit
    floor = cap_bound(curve)
    high = None if fit.ci_high is None else max(fit.ci_high, floor)
    return replace(fit, estimate=max(fit.estimate, floor), ci_low=max(fit.ci_low, floor), ci_high=high)


def cap_bound(curve: Curve) -> float:
    """Least cache by a theorem: keys of one dimension hold two edges of a permutation.

    An edge's target is the one best key of its query in the head that holds it, hence an extreme point of the group's
    keys, and in one dimension two are (`theory.bounds.one_dimensional_cap` where every head is a group).
    """
    per_width = curve.num_kv_heads if curve.latent_rank is None else 1
    excluded = one_dimensional_f1_cap(per_width, curve.num_items) < RECOVERED_F1
    return per_width * (2.0 if excluded else 1.0)


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def params_at(curve: Curve, cache_dims: float | None) -> float | None:
    """Parameters of a design at a real number of cached dimensions."""
    if cache_dims is None or not np.isfinite(cache_dims):
        return None
    if curve.latent_rank is None:
        head_dim = cache_dims / curve.num_kv_heads
        return float(shared_key_parameters(curve.d_model, curve.num_heads, curve.num_kv_heads, head_dim))
    return float(latent_parameters(curve.d_model, curve.num_heads, curve.latent_rank, cache_dims))


def with_values(curve: Curve, cache_dims: float | None) -> float | None:
    """Cached dimensions of keys and values, as many of either; a latent serves both."""
    return cache_dims if cache_dims is None or curve.latent_rank is not None else 2 * cache_dims


def _transitions(
    config: CacheConfig, curve: Curve, found: Mapping[Trainer, list[Record] | None]
) -> list[Record]:
    """A design's thresholds: each trainer's, and of the best channels found."""
    predicted, law = _finite(curve.predicted_cache_dims), _finite(curve.parameter_cache_dims)
    shared = {
        "design": curve.design,
        "num_items": curve.num_items,
        "num_edges": curve.num_items,
        "d_model": curve.d_model,
        "num_heads": curve.num_heads,
        "num_kv_heads": curve.num_kv_heads,
        "embedding": curve.embedding,
        "graph": "permutation",
        "num_seeds": config.seeds,
        "predicted_cache_dims": predicted,
        "predicted_num_params": params_at(curve, predicted),
        "parameter_count_cache_dims": law,
        "cap_bound": cap_bound(curve),
    }
    rows = []
    for trainer in (*found, "best"):
        if trainer == "best":
            used = [point for own in found.values() for point in own or ()]
            done = all(own is not None for own in found.values())
        else:
            used, done = found[trainer] or [], found[trainer] is not None
        row: Record = shared | {"trainer": trainer}
        for prefix, success in CRITERIA.items():
            fit = (_fit_best if trainer == "best" else fit_own)(curve, used if done else [], success)
            row[f"{prefix}ci_low"], row[f"{prefix}ci_high"] = fit.ci_low, fit.ci_high
            row[f"{prefix}status"] = fit.status
            row["measured_cache_dims" if not prefix else f"{prefix}cache_dims"] = fit.estimate
        measured = row["measured_cache_dims"]
        per_width = curve.num_kv_heads if curve.latent_rank is None else 1
        row["head_dim"] = curve.latent_rank or (None if measured is None else measured / per_width)
        row["latent_dim"] = None if curve.latent_rank is None else measured
        row["cache_dims"] = measured
        row["cache_dims_with_values"] = with_values(curve, measured)
        row["num_params"] = params_at(curve, measured)
        row["smallest_exact"] = min((p["cache_dims"] for p in used if p["exact_recovery"]), default=None)
        rows.append(row)
    return rows


def _budgets(config: CacheConfig, ask: Ask) -> list[Record]:
    """Designs at equal cache and at equal parameters, each by its best trainer there (of every seed the best run)."""
    rows = []
    for kind, budget, curve, width in budgets(config):
        best: dict[int, Record] = {}
        try:
            for trainer in budget_trainers(config, curve):
                for point in ask(curve.points(config, trainer, width)):
                    own = best.setdefault(point["seed"], point)
                    if point["status"] == "ok" and (
                        own["status"] != "ok" or point["best_f1"] > own["best_f1"]
                    ):
                        best[point["seed"]] = point
        except Unfinished:
            continue
        runs = list(best.values())
        first = runs[0]
        held = sorted(point["held_edges"] / point["num_items"] for point in runs if point["status"] == "ok")
        rows.append(
            {
                "budget": kind,
                "size": budget,
                **{name: getattr(curve, name) for name in ("design", "num_items", "d_model", "num_heads")},
                "num_kv_heads": curve.num_kv_heads,
                "head_dim": first["head_dim"],
                "latent_dim": first["latent_dim"],
                "cache_dims": first["cache_dims"],
                "num_params": first["num_params"],
                "num_seeds": len(runs),
                "recovered": successes(runs, CRITERIA[""]),
                "exact": successes(runs, CRITERIA["exact_"]),
                "held_median": float(np.median(held)) if held else None,
                "held_low": held[0] if held else None,
                "held_high": held[-1] if held else None,
            }
        )
    return rows


def _conversions(rows: Sequence[Record]) -> list[Record]:
    """One row for each number of key heads, method and number of steps: F1 over seeds, and how many recovered."""
    out = []
    for g in dict.fromkeys(row["num_kv_heads"] for row in rows):
        own = [row for row in rows if row["num_kv_heads"] == g and row["status"] == "ok"]
        # Layers that had not recovered their graph before have nothing to lose.
        sound = [row for row in own if row["source_f1"] >= RECOVERED_F1]
        for method in METHODS:
            for index, steps in enumerate((0, *rows[0]["steps"])):
                scores = [row[f"{method}_f1"][index] for row in sound]
                scores = sorted(score for score in scores if score is not None)
                out.append(
                    {
                        **{k: rows[0][k] for k in ("num_items", "d_model", "num_heads", "head_dim")},
                        "num_kv_heads": g,
                        "method": method,
                        "steps": steps,
                        "num_seeds": len(sound),
                        "recovered": sum(score >= RECOVERED_F1 for score in scores),
                        "f1_median": float(np.median(scores)) if scores else None,
                        "f1_low": scores[0] if scores else None,
                        "f1_high": scores[-1] if scores else None,
                    }
                )
    return out
