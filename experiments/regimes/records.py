"""What is made of the points: cells of the map, joint thresholds, families, the scaling law, thin heads, verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from experiments.engine import Rows
from experiments.points import Record
from experiments.reading import select
from experiments.regimes.claims import claim_rows
from experiments.regimes.config import RegimesConfig, size_of
from experiments.regimes.exponents import bootstrap
from experiments.regimes.plan import cells, needed, whole_budget
from experiments.regimes.units import RECOVERED
from theory.bounds import (
    cover_max_items,
    held_edges,
    partition_head_dim,
    single_head_max_items,
    warren_bound,
)
from theory.graphs import log2_num_permutation_graphs
from theory.head_size import gain, heads_by_parameters, heads_of_size, partition_budget
from theory.transition import Threshold, fit_threshold


def summary(config: RegimesConfig, rows: Rows) -> Rows:
    """Rows by name, from the points of a run; parts that are not finished have none."""
    heads = rows["heads"]
    scaling = _scaling(config, heads)
    made: Rows = {
        "cells": _cells(config, heads, rows["decided"]),
        "joint": _joint(config, rows["joint_points"]),
        "families": _families(config, heads),
        "scaling": scaling,
        "exponents": _exponents(config, scaling),
        "thin": _thin(heads),
        "own": _own(rows["own_points"]),
    }
    return made | {"claims": claim_rows(made)}


def finite(value: float) -> float | None:
    """The number, None where it is infinite: JSON has no infinity."""
    return float(value) if math.isfinite(value) else None


def _place(found: Threshold, prefix: str = "") -> Record:
    return {
        f"{prefix}status": found.status,
        f"{prefix}budget": found.estimate,
        f"{prefix}low": found.ci_low,
        f"{prefix}high": found.ci_high,
        f"{prefix}capped": found.capped,
    }


def _cells(config: RegimesConfig, heads: Sequence[Record], decided: Sequence[Record]) -> list[Record]:
    found = []
    for cell in cells(config):
        m, d = cell.num_items, cell.d_model
        verdicts = [row["verdict"] for row in select(decided, num_items=m, d_model=d)]
        if not verdicts:
            continue
        own = {part: select(heads, part=part, num_items=m, d_model=d) for part in ("one", "map")}
        record = {
            "num_items": m,
            "d_model": d,
            "factor": cell.factor,
            "ceiling": single_head_max_items(d),
            "separable": verdicts.count("separable"),
            "inseparable": verdicts.count("inseparable"),
            "undecided": verdicts.count("undecided"),
            "num_seeds": len(verdicts),
            "one_possible": 2 * verdicts.count("separable") >= len(verdicts),
        }
        record |= _one(own["one"]) | _several(own["map"])
        single = partition_head_dim(m, m, d, 1)
        best, best_heads = partition_budget(m, m, d)
        record |= {
            "predicted_one": finite(single),
            "predicted_many": best,
            "predicted_heads": best_heads,
            "predicted_gain": finite(gain(m, m, d)),
            "predicted_whole": min(whole_budget(m, m, d, k) for k in config.map_head_dims),
            "cover_max_items": int(cover_max_items(d)),
            "warren": finite(warren_bound(log2_num_permutation_graphs(m), m, d, best_heads)),
        }
        found.append(record | _gain(record))
    return found


def _one(rows: Sequence[Record]) -> Record:
    """Budget of one head: the least d_k run at which half of the seeds recover, with the interval of the crossing."""
    dims = sorted({row["head_dim"] for row in rows})
    hits = [sum(row["heads"] is not None for row in select(rows, head_dim=k)) for k in dims]
    runs = [len(select(rows, head_dim=k)) for k in dims]
    found = fit_threshold(dims, hits, runs)
    least = next((k for k, hit, run in zip(dims, hits, runs, strict=True) if 2 * hit >= run), None)
    return _place(found, "one_crossing_") | {"one_budget": least}


def _several(rows: Sequence[Record]) -> Record:
    """The least budget of several heads over sizes and runs; the interval is that of the seeds at that head size."""
    best: Record = {
        "many_budget": None,
        "many_heads": None,
        "many_head_dim": None,
        "many_low": None,
        "many_high": None,
    }
    for k, most in sorted({(row["head_dim"], row["max_heads"]) for row in rows}):
        own = select(rows, head_dim=k, max_heads=most)
        count = needed(own)
        if count is not None and (best["many_budget"] is None or k * count < best["many_budget"]):
            counts = [row["heads"] for row in own if row["heads"] is not None]
            best = {
                "many_budget": k * count,
                "many_heads": count,
                "many_head_dim": k,
                "many_low": k * min(counts),
                "many_high": k * max(counts) if len(counts) == len(own) else None,
            }
    return best


def _gain(record: Record) -> Record:
    """Budget of one head over the best of any number of heads, one included; infinite (None) where one cannot."""
    one, many = record["one_budget"], record["many_budget"]
    if one is None:
        return {"best_budget": many, "gain": None, "saved": None}
    best = one if many is None else min(one, many)
    return {"best_budget": best, "gain": one / best, "saved": one - best}


def _joint(config: RegimesConfig, points: Sequence[Record]) -> list[Record]:
    found = []
    for m, variant, h in dict.fromkeys((r["num_items"], r["variant"], r["num_heads"]) for r in points):
        own = select(points, num_items=m, variant=variant, num_heads=h)
        d = own[0]["d_model"]
        dims = sorted({row["head_dim"] for row in own})
        hits = [sum((row["best_f1"] or 0) >= RECOVERED for row in select(own, head_dim=k)) for k in dims]
        runs = [len(select(own, head_dim=k)) for k in dims]
        threshold = fit_threshold(dims, hits, runs).scaled(h)
        least = next((k * h for k, hit, run in zip(dims, hits, runs, strict=True) if 2 * hit >= run), None)
        record = {
            "num_items": m,
            "d_model": d,
            "factor": m / single_head_max_items(d),
            "variant": variant,
            "num_heads": h,
            "num_seeds": max(runs),
            "least_budget": least,
            "smallest_run": dims[0] * h,
            "largest_run": dims[-1] * h,
        }
        found.append(record | _place(threshold))
    return sorted(found, key=lambda row: (row["num_items"], row["variant"], row["num_heads"]))


def _counts(rows: Sequence[Record]) -> Record:
    """Heads over seeds; a seed that was not recovered counts as the most that were allowed, and says so."""
    counts = [row["max_heads"] if row["heads"] is None else row["heads"] for row in rows]
    k = rows[0]["head_dim"]
    return {
        "num_seeds": len(rows),
        "missed": sum(row["heads"] is None for row in rows),
        "heads": counts,
        "mean_heads": float(np.mean(counts)),
        "budget": k * float(np.mean(counts)),
        "low": k * min(counts),
        "high": k * max(counts),
    }


def _families(config: RegimesConfig, heads: Sequence[Record]) -> list[Record]:
    found = []
    rows = select(heads, part="families")
    for graph, edges in dict.fromkeys((row["graph"], row["num_edges"]) for row in rows):
        own = select(rows, graph=graph, num_edges=edges)
        m, d, k = own[0]["num_items"], own[0]["d_model"], own[0]["head_dim"]
        predicted = heads_of_size(m, edges, d, k)
        found.append(
            {
                "graph": graph,
                "degree": edges // m,
                "num_items": m,
                "num_edges": edges,
                "d_model": d,
                "head_dim": k,
                "predicted_heads": predicted,
                "parameter_heads": heads_by_parameters(m, edges, d, k),
            }
            | _counts(own)
        )
        found[-1]["over_predicted"] = found[-1]["mean_heads"] / math.ceil(predicted)
    return found


def _scaling(config: RegimesConfig, heads: Sequence[Record]) -> list[Record]:
    """Best budget of each size: of each seed over head sizes and runs, then over seeds."""
    found = []
    rows = select(heads, part="scaling")
    for m, d in dict.fromkeys((row["num_items"], row["d_model"]) for row in rows):
        own = select(rows, num_items=m, d_model=d)
        seeds = sorted({row["seed"] for row in own})
        by_seed = [
            min(
                (r["head_dim"] * r["heads"] for r in select(own, seed=s) if r["heads"] is not None),
                default=None,
            )
            for s in seeds
        ]
        budgets = [budget for budget in by_seed if budget is not None]
        if len(budgets) < len(seeds):
            continue
        sizes = config.scaling_head_dims
        folk = m * math.log(m) / d
        found.append(
            {
                "num_items": m,
                "d_model": d,
                "head_dims": sorted({row["head_dim"] for row in own}),
                "num_seeds": len(seeds),
                "budgets": budgets,
                "budget": float(np.mean(budgets)),
                "low": min(budgets),
                "high": max(budgets),
                "width": min(k * heads_of_size(m, m, d, k) for k in sizes),
                "width_whole": float(min(whole_budget(m, m, d, k) for k in sizes)),
                "parameters": min(k * heads_by_parameters(m, m, d, k) for k in sizes),
                "parameters_whole": float(min(k * math.ceil(heads_by_parameters(m, m, d, k)) for k in sizes)),
                "folk": folk,
                "over_folk": float(np.mean(budgets)) / folk,
                "over_folk_low": min(budgets) / folk,
                "over_folk_high": max(budgets) / folk,
            }
        )
    return found


LAWS = ("width", "width_whole", "parameters", "parameters_whole", "folk")


def _exponents(config: RegimesConfig, scaling: Sequence[Record]) -> list[Record]:
    """Exponents, once every size of the configuration is there."""
    if len(scaling) < len({size_of(text) for text in config.scaling_sizes}) or not scaling:
        return []
    rows = bootstrap(
        [(row["num_items"], row["d_model"]) for row in scaling],
        [row["budgets"] for row in scaling],
        {name: [row[name] for row in scaling] for name in LAWS},
    )
    return [{"law": name} | row for name, row in rows.items()]


def _thin(heads: Sequence[Record]) -> list[Record]:
    found = []
    rows = select(heads, part="thin")
    for k in sorted({row["head_dim"] for row in rows}):
        own = select(rows, head_dim=k)
        m, d = own[0]["num_items"], own[0]["d_model"]
        held = [row["held"] for row in own if row["held"] is not None]
        found.append(
            {"num_items": m, "d_model": d, "head_dim": k}
            | _counts(own)
            | {
                "exact": sum(row["exact_heads"] is not None for row in own),
                "most_held": max((max(one) for one in held), default=None),
                "first_held": float(np.mean([one[0] for one in held])) if held else None,
                "mean_held": float(np.mean([x for one in held for x in one])) if held else None,
                "predicted_held": held_edges(m, d, k),
                "predicted_budget": k * heads_of_size(m, m, d, k),
            }
        )
    return found


def _own(points: Sequence[Record]) -> list[Record]:
    found = []
    for k in sorted({row["head_dim"] for row in points}):
        own = select(points, head_dim=k)
        m, d = own[0]["num_items"], own[0]["d_model"]
        numbers = sorted({row["own_edges"] for row in own})
        hits = [sum(row["holds"] for row in select(own, own_edges=p)) for p in numbers]
        runs = [len(select(own, own_edges=p)) for p in numbers]
        found.append(
            {"num_items": m, "d_model": d, "head_dim": k, "num_seeds": max(runs)}
            | _place(fit_threshold(numbers, hits, runs, decreasing=True))
            | {
                "largest_held": max((p for p, hit in zip(numbers, hits, strict=True) if hit), default=None),
                "own_edges": numbers,
                "holds": hits,
                "predicted_held": held_edges(m, d, k),
            }
        )
    return found
