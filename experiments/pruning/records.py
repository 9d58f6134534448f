"""What is made of the records: curves, how soon they rise, what gates keep, speed-ups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from experiments.engine import Ask, Rows
from experiments.files import read_final
from experiments.points import Record
from experiments.pruning.claims import claim_rows
from experiments.pruning.config import PruningConfig
from experiments.reading import select
from experiments.roles.naming import NONE

R = TypeVar("R", bound=Mapping[str, Any])
Row = Mapping[str, Any]
"""A record that is only read."""

ROLES = Path(__file__).parents[2] / "figures" / "roles" / "quick.json"
"""Where the roles of heads are."""
TOLERATED = 0.05
"""A curve has begun to rise where removal costs more than this share of what removing all heads costs."""


def summary(config: PruningConfig, ask: Ask, rows: Rows) -> Rows:
    """Curves, onsets, gate sets, speed-ups and claims."""
    del config, ask
    found = {
        "curves": curve_rows(rows["points"]),
        "onsets": onset_rows(rows["points"]),
        "gate_sets": gate_rows(rows["gates"], rows["heads"], rows["matched"], role_rows()),
        "speedups": speed_rows(rows["timings"]),
    }
    return found | {"claims": claim_rows(rows | found)}


def groups(rows: Iterable[R], *names: str) -> dict[tuple[Any, ...], list[R]]:
    """Rows by the values of some fields, in the order in which they first appear."""
    found: dict[tuple[Any, ...], list[R]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


def span(points: Sequence[Row]) -> tuple[float, float] | None:
    """Losses of a model with all heads and with none; None where they are not there, or do not differ."""
    ends = [[row["loss"] for row in points if row["fraction_pruned"] == end] for end in (0.0, 1.0)]
    if not all(ends) or ends[0][0] == ends[1][0]:
        return None
    return ends[0][0], ends[1][0]


def curve_rows(points: Sequence[Row]) -> list[Record]:
    """Mean, least and greatest loss and ranking over seeds, by model, order and fraction."""
    out = []
    for (model, order, fraction), own in groups(points, "model", "order", "fraction_pruned").items():
        losses = [row["loss"] for row in own]
        rankings = [row["ranking"] for row in own if row["ranking"] is not None]
        ends = span(select(points, model=model))
        out.append(
            {"model": model, "order": order, "fraction_pruned": fraction, "heads_left": own[0]["heads_left"]}
            | {"loss": float(np.mean(losses)), "loss_low": min(losses), "loss_high": max(losses)}
            | {"ranking": float(np.mean(rankings)) if rankings else None, "num_seeds": len(own)}
            | {
                f"ranking_{end}": bound(rankings, default=None)
                for end, bound in (("low", min), ("high", max))
            }
            | {"cost": None if ends is None else (float(np.mean(losses)) - ends[0]) / (ends[1] - ends[0])}
        )
    return out


def onset_rows(points: Sequence[Row]) -> list[Record]:
    """For every model, order and seed: the mean cost over the curve, and the fraction up to which it is tolerated.

    A cost is the rise of the loss, in units of the rise when all heads are removed.
    """
    out = []
    for (model, order, seed), own in groups(points, "model", "order", "seed").items():
        ends = span(select(points, model=model))
        own = sorted(own, key=lambda row: row["fraction_pruned"])
        if ends is None or len(own) < 2:
            continue
        fractions = np.array([row["fraction_pruned"] for row in own])
        costs = (np.array([row["loss"] for row in own]) - ends[0]) / (ends[1] - ends[0])
        above = np.flatnonzero(costs > TOLERATED)
        last = len(own) - 1 if not above.size else above[0] - 1
        area = float(np.trapezoid(costs, fractions) / np.ptp(fractions))
        tolerated = None if last < 0 else float(fractions[last])
        out.append({"model": model, "order": order, "seed": seed, "mean_cost": area, "tolerated": tolerated})
    return out


def role_rows() -> list[Record]:
    """Roles of heads as `experiments.roles` finds them: a role is one thing in both experiments."""
    return read_final(ROLES)["records"]["roles"] if ROLES.is_file() else []


def gate_rows(
    gates: Sequence[Row], heads: Sequence[Row], matched: Sequence[Row], named: Sequence[Row]
) -> list[Record]:
    """What gates left open, by model and penalty: how many, which, and what importance pays for exactly as many.

    ``roles`` has for every role that some head of the model has how many of them are open, and how many there are (a
    head may have several); ``with_role`` likewise for heads with any. Both are None for a model that ``named`` (of
    `role_rows`) does not have.
    """
    out = []
    for (model, penalty), own in groups(gates, "model", "penalty").items():
        is_open = {(row["layer"], row["head"]): row["gate"] > 0 for row in own}
        importance = {(row["layer"], row["head"]): row["importance"] for row in select(heads, model=model)}
        chosen = {
            kept: [importance[place] for place in importance if is_open[place] is kept]
            for kept in (True, False)
        }
        by_role: dict[str, list[bool]] = {}
        with_role: list[bool] = []
        for row in select(named, model=model):
            kept = is_open[row["layer"], row["head"]]
            with_role += [kept] if row["roles"] else []
            for role in row["roles"] or [NONE]:
                by_role.setdefault(role, []).append(kept)
        as_many = select(matched, model=model, heads_left=own[0]["heads_left"])
        loss = as_many[0]["loss"] if as_many else None  # of an unfinished run
        out.append(
            {"model": model, "penalty": penalty, "heads_left": own[0]["heads_left"]}
            | {"num_heads": len(own), "loss": own[0]["loss"], "ranking": own[0]["ranking"]}
            | {"importance_loss": loss, "auc": rank_probability(chosen[True], chosen[False])}
            | {"open_by_layer": _open_by_layer(own)}
            | {"roles": {role: _counted(kept) for role, kept in sorted(by_role.items())} or None}
            | {"with_role": _counted(with_role) if by_role else None}
        )
    return out


def rank_probability(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Probability that a value of the first kind is above one of the second (ties half); None where one is empty."""
    if not first or not second:
        return None
    a, b = np.array(first)[:, None], np.array(second)[None, :]
    return float(((a > b) + (a == b) / 2).mean())


def speed_rows(timings: Sequence[Row]) -> list[Record]:
    """Speed-ups by model, removal and batch: median and quartiles of the ratios of rounds."""
    out = []
    for (model, removal, size), own in groups(timings, "model", "removal", "batch_size").items():
        whole, pruned = (
            sorted((row for row in own if (row["fraction_pruned"] == 0) is kept), key=lambda row: row["seed"])
            for kept in (True, False)
        )
        if len(whole) != len(pruned) or not whole:
            continue
        ratios = [a["seconds"] / b["seconds"] for a, b in zip(whole, pruned, strict=True)]
        low, median, high = np.quantile(ratios, [0.25, 0.5, 0.75])
        first = pruned[0]
        names = ("fraction_pruned", "heads_left", "kv_heads_left", "loss", "difference", "scale")
        out.append(
            {"model": model, "removal": removal, "batch_size": size, "length": first["length"]}
            | {name: first[name] for name in names}
            | {
                "whole_loss": whole[0]["loss"],
                "parameters_share": first["parameters"] / whole[0]["parameters"],
            }
            | {"predicted_speedup": whole[0]["products"] / first["products"], "rounds": len(ratios)}
            | {"speedup": float(median), "speedup_low": float(low), "speedup_high": float(high)}
        )
    return out


def _open_by_layer(rows: Sequence[Row]) -> list[int]:
    return [sum(row["gate"] > 0 for row in own) for own in groups(rows, "layer").values()]


def _counted(kept: Sequence[bool]) -> list[int]:
    return [sum(kept), len(kept)]
