"""What is made of the trained runs: errors along curves, and where they jump."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from experiments.engine import Ask, Rows, Unfinished
from experiments.points import Record
from experiments.reading import wilson
from experiments.retrieval.claims import claim_rows
from experiments.retrieval.config import RetrievalConfig
from experiments.retrieval.published import published
from experiments.retrieval.units import NUM_TEST, RetrievalPoint, curves, runs_of
from theory.problems import seeded_rng
from theory.retrieval import CHANCE_LEVEL

RESAMPLES = 2000
"""Bootstrap resamples of seeds."""


def summary(config: RetrievalConfig, ask: Ask, rows: Rows) -> Rows:
    """Curves (one row a model), jumps (one row a curve over head counts) and claims."""
    table = []
    for curve, model in curves(config):
        try:
            runs = ask(runs_of(config, model))
        except Unfinished:
            continue
        table.append(_row(curve, model, runs))
    jumps = _jumps(table)
    return {"curves": table, "jumps": jumps, "claims": claim_rows(table, jumps)}


def _row(curve: str, model: RetrievalPoint, runs: Sequence[Record]) -> Record:
    """Errors of one model over seeds and restarts."""
    ok = [run for run in runs if run["nmse"] is not None]
    by_seed: dict[int, float] = {}
    for run in ok:
        by_seed[run["seed"]] = min(run["nmse"], by_seed.get(run["seed"], np.inf))
    best = min(ok, key=lambda run: run["nmse"], default=None)
    identity = {k: v for k, v in asdict(model).items() if k not in ("learning_rate", "seed")}
    row: Record = {"curve": curve} | identity
    row |= {name: runs[0][name] for name in ("predicted_nmse", "exponent", "num_parameters")}
    row["num_readout_parameters"] = runs[0]["num_readout_parameters"]
    row["published_nmse"] = published(curve, model.num_targets, model.length, model.num_heads)
    row["runs"], row["failed"] = len(runs), len(runs) - len(ok)
    row["best_nmse"] = None if best is None else best["nmse"]
    row["median_nmse"] = float(np.median([run["nmse"] for run in ok])) if ok else None
    row["worst_nmse"] = max((run["nmse"] for run in ok), default=None)
    row["seed_nmse"] = [by_seed[seed] for seed in sorted(by_seed)]
    row["best_nmse_uniform"] = None if best is None else best["nmse_uniform"]
    row |= _matched(best, runs)
    return row


def _matched(best: Record | None, runs: Sequence[Record]) -> Record:
    """How often the worst head finds its token: in the best run (with Wilson's interval), and the median run."""
    names = ("matched", "matched_low", "matched_high", "median_matched")
    if best is None or best["matched"] is None or None in best["matched"]:
        return dict.fromkeys(names)
    share = min(best["matched"])
    low, high = wilson(round(share * NUM_TEST), NUM_TEST)
    others = [min(run["matched"]) for run in runs if run["matched"] and None not in run["matched"]]
    return dict(zip(names, (share, float(low), float(high), float(np.median(others))), strict=True))


def _jumps(table: Sequence[Record]) -> list[Record]:
    groups: dict[tuple[str, int, int, int], list[Record]] = {}
    for row in table:
        key = (row["curve"], row["num_targets"], row["length"], row["num_layers"])
        groups.setdefault(key, []).append(row)
    out = []
    for (curve, targets, length, layers), members in groups.items():
        by_heads = {row["num_heads"]: row for row in members if row["best_nmse"] is not None}
        if len(by_heads) < len(members) or len(by_heads) < 2:
            continue
        if 1 in by_heads:  # without a head there is a constant
            chance = dict.fromkeys(("best_nmse", "median_nmse"), CHANCE_LEVEL)
            by_heads[0] = chance | {"seed_nmse": [CHANCE_LEVEL]}
        pairs = [h for h in sorted(by_heads) if h - 1 in by_heads]
        expected = -(-targets // layers)
        ratios = {name: _ratios(by_heads, pairs, f"{name}_nmse") for name in ("best", "median")}
        row: Record = {"curve": curve, "num_targets": targets, "length": length, "num_layers": layers}
        row |= {"expected_heads": expected, "encoder": members[0]["encoder"]}
        for name, values in ratios.items():
            row[f"{name}_jump_at"] = max(values, key=lambda h, values=values: values[h])
            row[f"{name}_ratio"] = values.get(expected)
        row |= _interval(by_heads, expected)
        out.append(row)
    return out


def _ratios(by_heads: Mapping[int, Record], pairs: Sequence[int], name: str) -> dict[int, float]:
    return {h: by_heads[h - 1][name] / by_heads[h][name] for h in pairs}


def _interval(by_heads: Mapping[int, Record], heads: int) -> dict[str, Any]:
    """Ratio of median errors, of each seed's best run, at ``heads``, with a 95% bootstrap interval over seeds.

    With three or four seeds it is about the range from the least to the largest ratio of two seeds.
    """
    if heads not in by_heads or heads - 1 not in by_heads:
        return dict.fromkeys(("seed_ratio", "ratio_low", "ratio_high", "num_seeds"))
    below, above = (np.array(by_heads[h]["seed_nmse"]) for h in (heads - 1, heads))
    rng = seeded_rng(0, "retrieval, bootstrap")
    num_seeds = max(len(below), len(above))
    medians = [
        np.median(values[rng.integers(len(values), size=(RESAMPLES, len(values)))], axis=1)
        for values in (below, above)
    ]
    low, high = np.quantile(medians[0] / medians[1], [0.025, 0.975])
    ratio = float(np.median(below) / np.median(above))
    return {"seed_ratio": ratio, "ratio_low": float(low), "ratio_high": float(high), "num_seeds": num_seeds}
