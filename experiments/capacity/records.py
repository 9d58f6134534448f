"""The records of a finished capacity run: points as they were measured, and what is located from them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.capacity.config import CapacityConfig
from experiments.capacity.plan import (
    CRITERIA,
    Ask,
    Curve,
    Unfinished,
    Unit,
    curves,
    search,
    successes,
    sweep_trainers,
    sweeps,
    tasks,
)
from experiments.store import Record, canonical
from theory.bounds import (
    counting_bound,
    head_window,
    parameter_count_total_key_dim,
    partition_total_key_dim,
    single_head_max_items,
    warren_bound,
)
from theory.problems import log2_family_size, short_name
from theory.transition import Threshold, fit_threshold

Records = dict[str, list[Record]]


def make_records(config: CapacityConfig, ask: Ask) -> tuple[Records, list[str]]:
    """All records of a run, from its units, in an order of their own, and the names of its unfinished parts.

    ``ask`` raises `Unfinished` for a unit that is not there. A threshold whose search is unfinished is "not_run".
    """
    batches: dict[str, list[Record]] = {}

    def collect(unit: Unit) -> list[Record]:
        records = ask(unit)
        batches[canonical(unit)] = records
        return records

    unfinished = []
    for task in tasks(config, collect):
        try:
            task.run()
        except Unfinished:
            unfinished.append(task.name)
    everything = [record for records in batches.values() for record in records]
    ceiling_points = [record for record in everything if "verdict" in record]
    points = [record for record in everything if "trainer" in record]
    points.sort(key=_order("embedding", "graph", "d_model", "num_items", "trainer", "num_heads", "head_dim"))
    ceiling_points.sort(key=_order("d_model", "num_items"))

    def located(curve: Curve, trainer: str) -> bool:
        try:
            search(config, curve, trainer, ask)
        except Unfinished:
            return False
        return True

    transitions = []
    for curve in curves(config):
        done = [trainer for trainer in config.trainers if located(curve, trainer)]
        transitions += _transitions(config, curve, points, done)
    records = {
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
    return records, unfinished


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


def _fit(points: list[Record], num_heads: int, success: Callable[[Record], bool]) -> Threshold:
    head_dims = sorted({point["head_dim"] for point in points})
    groups = [[point for point in points if point["head_dim"] == head_dim] for head_dim in head_dims]
    return fit_threshold(
        head_dims, [successes(group, success) for group in groups], [len(group) for group in groups]
    ).scaled(num_heads)


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _transitions(
    config: CapacityConfig, curve: Curve, points: list[Record], located: list[str]
) -> list[Record]:
    size = (curve.num_items, curve.num_edges, curve.d_model, curve.num_heads)
    family = log2_family_size(curve.graph, curve.num_items, curve.num_edges)
    matching = curve.graph == "permutation" and 2 * curve.num_heads < curve.num_items
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
        # At d_k = 1 a head holds two edges of a permutation at most: with fewer heads than half the edges, d_k >= 2.
        "cap_bound": float(curve.num_heads * (2 if matching else 1)),
        "num_seeds": config.seeds,
    }
    rows = []
    for trainer in config.trainers:
        own = _of_curve(points, curve, trainer) if trainer in located else []
        row: Record = shared | {"trainer": trainer}
        for prefix, success in CRITERIA.items():
            fit = _fit(own, curve.num_heads, success)
            row[f"{prefix}ci_low"], row[f"{prefix}ci_high"] = fit.ci_low, fit.ci_high
            row[f"{prefix}status"] = fit.status
            row[f"{prefix or 'measured_'}total_key_dim"] = fit.estimate
        exact = [point["total_key_dim"] for point in own if point["exact_recovery"]]
        row["smallest_exact"] = min(exact, default=None)
        rows.append(row)
    return [*rows, _best(rows)]


def _best(rows: list[Record]) -> Record:
    """The lowest threshold over trainers, for each criterion; the smallest exact channel of any."""
    best: Record = rows[0] | {"trainer": "best"}
    for prefix in CRITERIA:
        name = f"{prefix or 'measured_'}total_key_dim"
        lowest = min(rows, key=lambda row: math.inf if row[name] is None else row[name])
        for field in (name, f"{prefix}ci_low", f"{prefix}ci_high", f"{prefix}status"):
            best[field] = lowest[field]
    best["smallest_exact"] = min(
        (row["smallest_exact"] for row in rows if row["smallest_exact"] is not None), default=None
    )
    return best


def _ceiling(d_model: int, points: list[Record]) -> Record:
    own = [point for point in points if point["d_model"] == d_model and point["verdict"] != "undecided"]
    sizes = sorted({point["num_items"] for point in own})
    groups = [[point for point in own if point["num_items"] == size] for size in sizes]
    fit = fit_threshold(
        sizes,
        [sum(point["verdict"] == "separable" for point in group) for group in groups],
        [len(group) for group in groups],
        decreasing=True,
        shared_seeds=False,
    )
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


def _smallest_channels(points: list[Record]) -> list[Record]:
    """For every kind of problem and head count, an exact channel of the smallest budget at which one was found."""
    names = ("embedding", "graph", "num_items", "num_edges", "d_model", "num_heads")
    smallest: dict[tuple[Any, ...], Record] = {}
    for point in points:
        if "channel" in point:
            key = tuple(point[name] for name in names)
            if key not in smallest or point["total_key_dim"] < smallest[key]["total_key_dim"]:
                smallest[key] = point
    kept = (*names, "head_dim", "total_key_dim", "trainer", "seed", "smallest_edge", "largest_non_edge")
    return [{name: point[name] for name in kept} | point["channel"] for point in smallest.values()]


def units_of(config: CapacityConfig, records: Records) -> list[tuple[Unit, list[Record]]]:
    """The units of a finished run, each with its records.

    Raises:
        ValueError: if the records lack a unit that the configuration asks for.
    """
    found: dict[str, tuple[Unit, list[Record]]] = {}

    def look_up(unit: Unit) -> list[Record]:
        names = (
            "num_items",
            "d_model",
            "num_heads",
            "head_dim",
            "trainer",
            "embedding",
            "graph",
            "num_edges",
        )
        wanted = {name: unit[name] for name in names if name in unit}
        for name in ("embedding", "graph"):
            wanted[name] = short_name(wanted[name])
        if unit["kind"] == "ceiling":
            del wanted["num_edges"]
        rows = records["ceiling_points" if unit["kind"] == "ceiling" else "points"]
        own = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
        if len(own) != unit["seeds"]:
            raise ValueError(f"records: expected {unit['seeds']} of {canonical(unit)}, got {len(own)}")
        found[canonical(unit)] = (unit, own)
        return own

    for task in tasks(config, look_up):
        task.run()
    return list(found.values())
