"""The records of a finished capacity run: points as they were measured, and what is located from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from experiments.capacity.config import CapacityConfig
from experiments.capacity.plan import (
    CRITERIA,
    Curve,
    curves,
    search,
    successes,
    sweep_trainers,
    sweeps,
    threshold_trainers,
)
from experiments.capacity.units import RECOVERED_F1
from experiments.engine import Ask, Rows, Unfinished
from experiments.points import Record
from theory.bounds import (
    counting_bound,
    head_window,
    one_dimensional_f1_cap,
    parameter_count_total_key_dim,
    partition_total_key_dim,
    single_head_max_items,
    warren_bound,
)
from theory.problems import log2_family_size, short_name
from theory.training import Trainer
from theory.transition import Threshold, fit_threshold


def summary(config: CapacityConfig, ask: Ask, rows: Rows) -> Rows:
    """All records of a run, in an order of their own: its points and what is located from them.

    ``ask`` raises `Unfinished` for points that are not there. A threshold whose search is unfinished is "not_run".
    """
    points, ceiling_points = list(rows["points"]), list(rows["ceiling_points"])
    points.sort(key=_order("embedding", "graph", "d_model", "num_items", "trainer", "num_heads", "head_dim"))
    ceiling_points.sort(key=_order("d_model", "num_items"))

    def located(curve: Curve, trainer: Trainer) -> bool:
        try:
            search(config, curve, trainer, ask)
        except Unfinished:
            return False
        return True

    transitions = []
    for curve in curves(config):
        trainers = threshold_trainers(config, curve)
        done = [trainer for trainer in trainers if located(curve, trainer)]
        transitions += _transitions(config, curve, points, trainers, done)
    return {
        "points": [{k: v for k, v in point.items() if k != "channel"} for point in points],
        "transitions": transitions,
        "ceilings": [
            _ceiling(d_model, ceiling_points)
            for d_model in config.ceiling_d_model
            if any(point["d_model"] == d_model for point in ceiling_points)
        ],
        "ceiling_points": ceiling_points,
        "head_sweeps": _head_sweeps(config, points),
        "channels": _smallest_channels(points),
    }


def _order(*names: str) -> Callable[[Record], tuple[Any, ...]]:
    return lambda record: tuple(record[name] for name in (*names, "seed"))


def _of_curve(points: list[Record], curve: Curve, trainer: str) -> list[Record]:
    wanted = (
        curve.num_items,
        curve.num_edges,
        curve.d_model,
        curve.num_heads,
        short_name(curve.embedding),
        short_name(curve.graph),
        trainer,
    )
    names = ("num_items", "num_edges", "d_model", "num_heads", "embedding", "graph", "trainer")
    return [point for point in points if tuple(point[name] for name in names) == wanted]


def fit_own(points: Sequence[Record], curve: Curve, success: Callable[[Record], bool]) -> Threshold:
    """A trainer's own threshold, in units of the budget."""
    by_head_dim: dict[int, list[Record]] = {}
    for point in points:
        by_head_dim.setdefault(point["head_dim"], []).append(point)
    counts = {head_dim: successes(group, success) for head_dim, group in by_head_dim.items()}
    return _located(curve, counts, {head_dim: len(group) for head_dim, group in by_head_dim.items()})


def _fit_best(points: Sequence[Record], curve: Curve, success: Callable[[Record], bool]) -> Threshold:
    """The threshold of the best channel found: a seed succeeds where any trainer did, at this head_dim or below.

    A channel is one of any larger head_dim too (its further columns are zero), though a trainer that is given more
    columns may do worse.
    """
    smallest: dict[int, int] = {}
    for point in points:
        if point["status"] == "ok" and success(point):
            smallest[point["seed"]] = min(point["head_dim"], smallest.get(point["seed"], point["head_dim"]))
    seeds = {point["seed"] for point in points}
    head_dims = {point["head_dim"] for point in points}
    counts = {head_dim: sum(found <= head_dim for found in smallest.values()) for head_dim in head_dims}
    return _located(curve, counts, dict.fromkeys(head_dims, len(seeds)))


def _located(curve: Curve, counts: dict[int, int], trials: dict[int, int]) -> Threshold:
    """The 50% point in units of the budget, kept above the theorem at d_k = 1.

    The grid of head dims is coarse at its low end: between d_k = 1, where a theorem excludes success, and d_k = 2 a
    crossing that is interpolated would lie below budgets that are proven necessary.
    """
    head_dims = sorted(counts)
    fit = fit_threshold(head_dims, [counts[k] for k in head_dims], [trials[k] for k in head_dims])
    fit = fit.scaled(curve.num_heads)
    if fit.estimate is None or fit.ci_low is None:
        return fit
    floor = _cap_bound(curve)
    high = None if fit.ci_high is None else max(fit.ci_high, floor)
    return replace(fit, estimate=max(fit.estimate, floor), ci_low=max(fit.ci_low, floor), ci_high=high)


def _cap_bound(curve: Curve) -> float:
    """Least budget by the theorem at d_k = 1: there a head holds two edges of a matching, so d_k >= 2 is needed."""
    matching = curve.graph in ("permutation", "words", "words-shuffled")
    excluded = matching and one_dimensional_f1_cap(curve.num_heads, curve.num_edges) < RECOVERED_F1
    return float(curve.num_heads * (2 if excluded else 1))


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _transitions(
    config: CapacityConfig,
    curve: Curve,
    points: list[Record],
    trainers: Sequence[str],
    located: Sequence[str],
) -> list[Record]:
    """A head count's thresholds: each trainer's and the best one's, by every criterion.

    Budgets are searched for the first criterion, F1 at the best threshold. The others are read off the same runs: where
    ``status`` is "reached", an ``exact_status`` or ``trained_status`` of "not_reached" speaks of the budgets that were
    run, not of all.
    """
    size = (curve.num_items, curve.num_edges, curve.d_model, curve.num_heads)
    family = log2_family_size(curve.graph, curve.num_items, curve.num_edges)
    shared = {
        "num_items": curve.num_items,
        "num_edges": curve.num_edges,
        "d_model": curve.d_model,
        "num_heads": curve.num_heads,
        "embedding": short_name(curve.embedding),
        "graph": short_name(curve.graph),
        "partition_total_key_dim": _finite(partition_total_key_dim(*size)),
        "parameter_count_total_key_dim": _finite(parameter_count_total_key_dim(*size)),
        "bits_per_parameter": config.bits_per_parameter,
        "counting_bound": None
        if family is None
        else _finite(counting_bound(family, curve.d_model, config.bits_per_parameter)),
        "warren_bound": None
        if family is None
        else _finite(warren_bound(family, curve.num_items, curve.d_model, curve.num_heads)),
        "cap_bound": _cap_bound(curve),
        "num_seeds": config.seeds,
    }
    rows = []
    everything: list[Record] = []
    for trainer in [*trainers, "best"]:
        own = _of_curve(points, curve, trainer) if trainer in located else []
        everything += own
        fit_points = _fit_best if trainer == "best" else fit_own
        used = everything if trainer == "best" else own
        row: Record = shared | {"trainer": trainer}
        for prefix, success in CRITERIA.items():
            fit = fit_points(used, curve, success)
            row[f"{prefix}ci_low"], row[f"{prefix}ci_high"] = fit.ci_low, fit.ci_high
            row[f"{prefix}status"] = fit.status
            row[f"{prefix or 'measured_'}total_key_dim"] = fit.estimate
        exact = [point["total_key_dim"] for point in used if point["exact_recovery"]]
        row["smallest_exact"] = min(exact, default=None)
        rows.append(row)
    return rows


def fit_ceiling(points: Sequence[Record]) -> Threshold:
    """The number of items at which half of the graphs are separable, from decided points of one width."""
    own = [point for point in points if point["verdict"] != "undecided"]
    sizes = sorted({point["num_items"] for point in own})
    groups = [[point for point in own if point["num_items"] == size] for size in sizes]
    return fit_threshold(
        sizes,
        [sum(point["verdict"] == "separable" for point in group) for group in groups],
        [len(group) for group in groups],
        decreasing=True,
        shared_seeds=False,
    )


def _ceiling(d_model: int, points: list[Record]) -> Record:
    fit = fit_ceiling([point for point in points if point["d_model"] == d_model])
    return {
        "d_model": d_model,
        "num_heads": 1,
        "embedding": "gaussian",
        "graph": "permutation",
        "measured_num_items": fit.estimate,
        "ci_low": fit.ci_low,
        "ci_high": fit.ci_high,
        "predicted_num_items": float(single_head_max_items(d_model)),
        "method": "convex",
    }


def _head_sweeps(config: CapacityConfig, points: list[Record]) -> list[Record]:
    rows = []
    budgets: dict[tuple[int, int, int, int], list[Curve]] = {}
    for total, curve in sweeps(config):
        budgets.setdefault((curve.num_items, curve.num_edges, curve.d_model, total), []).append(curve)
    for (num_items, num_edges, d_model, total), members in budgets.items():
        fewest, most = head_window(total, num_items, num_edges, d_model)
        recovered: dict[str, list[int]] = {}
        for trainer in sweep_trainers(config):
            recovered[trainer] = []
            for curve in members:
                own = [p for p in _of_curve(points, curve, trainer) if p["total_key_dim"] == total]
                if own and 2 * successes(own, CRITERIA[""]) >= len(own):
                    recovered[trainer].append(curve.num_heads)
        recovered["best"] = sorted(set().union(*recovered.values()))
        for trainer, heads in recovered.items():
            rows.append(
                {
                    "num_items": num_items,
                    "num_edges": num_edges,
                    "d_model": d_model,
                    "total_key_dim": total,
                    "embedding": short_name(config.embedding),
                    "graph": short_name(config.graph),
                    "trainer": trainer,
                    "measured_min_heads": min(heads, default=None),
                    "measured_max_heads": max(heads, default=None),
                    "predicted_min_heads": fewest,
                    "predicted_max_heads": most,
                }
            )
    return rows


_PROBLEM = ("embedding", "graph", "num_items", "num_edges", "d_model", "num_heads")
_CHANNEL = (*_PROBLEM, "head_dim", "total_key_dim", "trainer", "seed", "smallest_edge", "largest_non_edge")
"""What the row of a channel has beside its weights."""


def _smallest_channels(points: list[Record]) -> list[Record]:
    """For every kind of problem and head count, an exact channel of the smallest budget at which one was found."""
    smallest: dict[tuple[Any, ...], Record] = {}
    for point in points:
        if "channel" in point:
            key = tuple(point[name] for name in _PROBLEM)
            if key not in smallest or point["total_key_dim"] < smallest[key]["total_key_dim"]:
                smallest[key] = point
    return [{name: point[name] for name in _CHANNEL} | point["channel"] for point in smallest.values()]


def unpacked(rows: Rows) -> Rows:
    """Rows of a final file with its channels beside the points that they are of."""
    channels = {tuple(row[name] for name in _CHANNEL): row for row in rows.get("channels", [])}
    points = []
    for point in rows["points"]:
        row = channels.get(tuple(point[name] for name in _CHANNEL))
        weights = {} if row is None else {k: v for k, v in row.items() if k not in _CHANNEL}
        points.append(point | ({"channel": weights} if weights else {}))
    return rows | {"points": points}
