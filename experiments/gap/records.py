"""What is made of the batches: thresholds with all bounds beside them, small sizes, verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import mean

from experiments.claims import Claim, Verdict, judged
from experiments.engine import Rows
from experiments.gap.units import RECOVERED
from experiments.points import Record
from experiments.reading import select
from theory.bounds import (
    first_moment_requirement,
    first_moment_total_key_dim,
    gordon_total_key_dim,
    matrix_width,
    max_of_heads_requirement,
    max_of_heads_total_key_dim,
    one_dimensional_cap,
    one_dimensional_f1_cap,
    partition_total_key_dim,
    warren_bound,
    width_requirement,
)
from theory.graphs import log2_num_permutation_graphs
from theory.transition import fit_threshold

BEST = "best"
BOUNDS = ("cap", "warren", "gordon", "max_of_heads", "first_moment", "partition")
ESTIMATES = ("max_of_heads", "first_moment")


def bounds_of(m: int, d: int, h: int) -> Record:
    """Every bound and estimate on ``D_K`` of a permutation, None where infinite."""
    cap = 1 if one_dimensional_cap(h) >= m else 2
    values = {
        "cap": float(cap * h),
        "warren": warren_bound(log2_num_permutation_graphs(m), m, d, h),
        "gordon": gordon_total_key_dim(m, m, d, h),
        "max_of_heads": max_of_heads_total_key_dim(m, m, d, h),
        "first_moment": first_moment_total_key_dim(m, m, d, h),
        "partition": partition_total_key_dim(m, m, d, h),
    }
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def least_heads(requirement: Callable[[int], float], width: float, most: int) -> int:
    """Fewest heads, each of squared width ``width``, that meet a requirement of one head."""
    return next((h for h in range(1, most + 1) if requirement(h) <= width), most)


def summary(rows: Rows) -> Rows:
    """Thresholds (a row for a size, head count and trainer), small sizes, claims."""
    minima = rows.get("minima", [])
    small = {(row["num_items"], row["d_model"]) for row in minima}
    points = [row for row in rows["points"] if (row["num_items"], row["d_model"]) not in small]
    thresholds = _thresholds(points)
    sizes = _small(minima, [row for row in rows["points"] if (row["num_items"], row["d_model"]) in small])
    return {
        "thresholds": thresholds,
        "instances": sizes,
        "claims": claim_rows(thresholds, sizes),
    }


def claim_rows(thresholds: Sequence[Record], sizes: Sequence[Record]) -> list[Record]:
    """One row a claim: ``verdict`` is ``held``, ``failed`` or ``not_run``."""
    return judged(CLAIMS, thresholds, sizes)


def _thresholds(points: Sequence[Record]) -> list[Record]:
    places = dict.fromkeys((row["num_items"], row["d_model"], row["num_heads"]) for row in points)
    thresholds = []
    for m, d, h in places:
        own = select(points, num_items=m, d_model=d, num_heads=h)
        bounds = bounds_of(m, d, h)
        for trainer in [*dict.fromkeys(row["trainer"] for row in own), BEST]:
            rows = own if trainer == BEST else select(own, trainer=trainer)
            thresholds.append(
                {"trainer": trainer, "num_items": m, "d_model": d, "num_heads": h} | _fitted(rows) | bounds
            )
    return thresholds


def _fitted(rows: Sequence[Record]) -> Record:
    """Threshold of a set of runs; a seed counts as recovered where any of its runs is (trainers of ``best``).

    Budgets are multiples of h. Where a theorem excludes one dimension a head, those runs tell nothing: they are left
    out, lest a threshold be interpolated to where no channel can be.
    """
    h, m = rows[0]["num_heads"], rows[0]["num_items"]
    if one_dimensional_f1_cap(h, m) < RECOVERED:
        rows = [row for row in rows if row["head_dim"] > 1]
    budgets = sorted({row["total_key_dim"] for row in rows})
    recovered, trials, exact = [], [], []
    for budget in budgets:
        here = select(rows, total_key_dim=budget)
        seeds = sorted({row["seed"] for row in here})
        won = {row["seed"] for row in here if (row["best_f1"] or 0) >= RECOVERED}
        recovered.append(len(won))
        trials.append(len(seeds))
        exact.append(len({row["seed"] for row in here if row["exact"]}))
    found = fit_threshold(budgets, recovered, trials)
    return {
        "status": found.status,
        "measured_total_key_dim": found.estimate,
        "ci_low": found.ci_low,
        "ci_high": found.ci_high,
        "capped": found.capped,
        "smallest_exact": next((b for b, number in zip(budgets, exact, strict=True) if number), None),
        "budgets": budgets,
        "recovered": recovered,
        "exact": exact,
        "num_seeds": max(trials),
        "largest_budget": budgets[-1],
        "seconds_per_run": round(mean(row["seconds"] for row in rows), 2),
    }


def _small(minima: Sequence[Record], points: Sequence[Record]) -> list[Record]:
    """An instance, its exact minima, what was trained on it, and what the estimates say of its size."""
    sizes = []
    for row in minima:
        m, d, seed = row["num_items"], row["d_model"], row["seed"]
        q = m * m - m
        full = float(matrix_width(d, d))
        estimates = {
            "max_of_heads": least_heads(lambda h, m=m: max_of_heads_requirement(m, m, h), full, m),
            "first_moment": least_heads(lambda h, m=m: first_moment_requirement(m, m, h), full, m),
            "partition": least_heads(lambda h, m=m, q=q: width_requirement(m / h, q), full, m),
            "gordon": next((h for h in range(1, m + 1) if gordon_total_key_dim(m, m, d, h) < math.inf), m),
        }
        own = select(points, num_items=m, d_model=d, seed=seed)
        trained = {
            str(k): min((r["num_heads"] for r in select(own, head_dim=k) if r["exact"]), default=None)
            for k in sorted({r["head_dim"] for r in own})
        }
        tried = {str(k): [r["num_heads"] for r in select(own, head_dim=k)] for k in map(int, trained)}
        budgets = [int(k) * h for k, h in trained.items() if h is not None]
        least = [row["one_high"], d * row["full_rank_heads"], *budgets]
        sizes.append(
            {
                "num_items": m,
                "d_model": d,
                "seed": seed,
                "full_rank_heads": row["full_rank_heads"],
                "undecided": row["undecided"],
                "one_low": row["one_low"],
                "one_high": row["one_high"],
                "trained_heads": trained,
                "tried_heads": tried,
                # A head of rank 2 is one of full rank: as many heads of two dimensions are needed at least.
                "least_budget_low": min(row["one_low"], 2 * row["full_rank_heads"]),
                "least_budget_high": min(least),
            }
            | {f"{name}_heads": value for name, value in estimates.items()}
        )
    return sizes


def place(row: Record) -> float:
    """The threshold; the largest budget plus one where it was not reached (so that ratios are bounds)."""
    value = row["measured_total_key_dim"]
    return row["largest_budget"] + 1.0 if value is None else value


def _main(thresholds: Sequence[Record]) -> list[Record]:
    """The sweep over heads: the number of items that most head counts were run at."""
    sizes = [row["num_items"] for row in thresholds]
    return select(thresholds, num_items=max(set(sizes), key=sizes.count)) if sizes else []


def _ratios(rows: Iterable[Record], first: str, second: str) -> dict[int, float]:
    by_heads: dict[int, dict[str, Record]] = {}
    for row in rows:
        by_heads.setdefault(row["num_heads"], {})[row["trainer"]] = row
    return {
        h: place(two[first]) / place(two[second])
        for h, two in sorted(by_heads.items())
        if first in two
        and second in two
        and (two[first]["measured_total_key_dim"] or two[second]["measured_total_key_dim"])
    }


def _said(ratios: dict[int, float]) -> str:
    return ", ".join(f"{h} heads: {ratio:.2f}" for h, ratio in ratios.items())


def _compared(first: str, second: str, low: float, high: float):
    def judge(thresholds: Sequence[Record], _: Sequence[Record]) -> Verdict | None:
        ratios = _ratios(_main(thresholds), first, second)
        return (all(low <= r <= high for r in ratios.values()), _said(ratios)) if ratios else None

    return judge


def _over(thresholds: Sequence[Record], names: Sequence[str]) -> dict[int, float]:
    """Best threshold over the highest of the bounds named, by head count, where one is finite."""
    ratios = {}
    for row in select(_main(thresholds), trainer=BEST):
        values = [row[name] for name in names if row[name] is not None]
        if values and row["measured_total_key_dim"] is not None:
            ratios[row["num_heads"]] = row["measured_total_key_dim"] / max(values)
    return ratios


def _choice(thresholds: Sequence[Record], _: Sequence[Record]) -> Verdict | None:
    ratios = _over(thresholds, ["partition"])
    return (max(ratios.values()) <= 0.9, _said(ratios)) if ratios else None


def _low(thresholds: Sequence[Record], _: Sequence[Record]) -> Verdict | None:
    ratios = _over(thresholds, ESTIMATES)
    return (min(ratios.values()) >= 1.5, _said(ratios)) if ratios else None


def _direction(thresholds: Sequence[Record], _: Sequence[Record]) -> Verdict | None:
    found = [row for row in select(thresholds, trainer=BEST) if row["smallest_exact"] is not None]
    if not found:
        return None
    names = ("cap", "warren", "gordon")
    below = [
        (row["num_heads"], row["smallest_exact"], name)
        for row in found
        for name in names
        if row["smallest_exact"] < (row[name] or math.inf)
    ]
    return not below, f"{len(below)} violations in {len(names) * len(found)} comparisons"


def _between(_: Sequence[Record], sizes: Sequence[Record]) -> Verdict | None:
    if not sizes:
        return None
    fine = sum(
        max(row["max_of_heads_heads"], row["first_moment_heads"])
        <= row["full_rank_heads"]
        <= row["partition_heads"]
        for row in sizes
    )
    return fine >= 0.9 * len(sizes), f"{fine} of {len(sizes)}"


def _near(_: Sequence[Record], sizes: Sequence[Record]) -> Verdict | None:
    if not sizes:
        return None
    exact = mean(row["full_rank_heads"] for row in sizes)
    ratio = exact / mean(max(row["max_of_heads_heads"], row["first_moment_heads"]) for row in sizes)
    dealt = exact / mean(row["partition_heads"] for row in sizes)
    return ratio <= 1.25, f"{ratio:.2f} (over the fixed partition {dealt:.2f})"


def _solved(_: Sequence[Record], sizes: Sequence[Record]) -> Verdict | None:
    tried = [
        row for row in sizes if row["full_rank_heads"] in row["tried_heads"].get(str(row["d_model"]), [])
    ]
    if not tried:
        return None
    fine = sum(row["trained_heads"][str(row["d_model"])] == row["full_rank_heads"] for row in tried)
    return fine >= 0.8 * len(tried), f"{fine} of {len(tried)}"


def _one_dimension(_: Sequence[Record], sizes: Sequence[Record]) -> Verdict | None:
    if not sizes:
        return None
    exact = sum(row["one_low"] == row["one_high"] for row in sizes)
    above = sum(row["one_low"] > row["num_items"] / 2 for row in sizes)
    fine = exact >= 0.5 * len(sizes) and above > 0.5 * len(sizes)
    return fine, f"exact in {exact}, above m/2 in {above} of {len(sizes)}"


CLAIMS = (
    Claim("better", "annealed: at most 0.95 of greedy's budget", _compared("annealed", "greedy", 0.0, 0.95)),
    Claim(
        "annealing",
        "hard: at least 1.1 times annealed's budget",
        _compared("hard", "annealed", 1.1, math.inf),
    ),
    Claim(
        "not more of the same",
        "greedy-long: at or above annealed",
        _compared("greedy-long", "annealed", 1.0, math.inf),
    ),
    Claim("choice pays", "best threshold at most 0.9 of the fixed partition", _choice),
    Claim("estimates are low", "best threshold at least 1.5 times the higher estimate", _low),
    Claim("direction", "no exact channel below the cap, Warren's bound or Gordon's", _direction),
    Claim("between", "exact full-rank minimum between estimates and fixed partition, 90%", _between),
    Claim("near", "mean exact minimum at most 1.25 of the higher estimate", _near),
    Claim("solved", "annealed reaches the exact minimum at d_k = d in 80%", _solved),
    Claim("one dimension", "bracket exact in half of the instances, above m/2 in most", _one_dimension),
)
