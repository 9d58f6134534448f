"""What is made of the conversions: excess losses with intervals, and what came of the expectations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.claims import Claim, Verdict, judged
from experiments.conversion.config import ConversionConfig
from experiments.conversion.units import ORIGINAL
from experiments.engine import Ask, Rows
from experiments.points import Record

Table = Sequence[Mapping[str, Any]]


def summary(config: ConversionConfig, ask: Ask, rows: Rows) -> Rows:
    """A row for every conversion, and one for every expectation."""
    del config, ask
    table = excesses(rows["points"])
    return {"conversions": table, "claims": judged(CLAIMS, table)}


def excesses(points: Sequence[Record]) -> list[Record]:
    """Loss above that of the unconverted model on the same sequences; healed above healed alike."""
    original = next((p for p in points if p["method"] == ORIGINAL), None)
    table = []
    for point in points:
        row: Record = {name: point[name] for name in ("method", "part", "num_kv_heads", "steps", "status")}
        row |= {name: point[name] for name in ("loss", "healed_loss", "cache_bytes_per_token")}
        row |= {name: point[name] for name in ("key_energy", "value_energy", "key_energy_unrotated")}
        for prefix in "", "healed_":
            row |= _excess(point, original, prefix)
        table.append(row)
    return table


def _excess(point: Record, original: Record | None, prefix: str) -> Record:
    """Mean difference over sequences and its 95% interval (normal, sequences taken as independent)."""
    name = f"{prefix}excess"
    names = (name, f"{name}_low", f"{name}_high")
    own = point[f"{prefix}window_losses"]
    base = None if original is None else original[f"{prefix}window_losses"]
    if own is None or base is None:
        return dict.fromkeys(names)
    difference = np.asarray(own) - np.asarray(base)
    half = 1.96 * difference.std(ddof=1) / np.sqrt(len(difference))
    mean = float(difference.mean())
    return dict(zip(names, (mean, mean - float(half), mean + float(half)), strict=True))


def _number(table: Table, method: str, name: str = "excess", part: str = "both") -> float | None:
    return next((row[name] for row in table if (row["method"], row["part"]) == (method, part)), None)


def _said(numbers: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in numbers.items())


def _order(table: Table) -> Verdict | None:
    found = {method: _number(table, method) for method in ("first", "mean", "svd", "svd_inputs")}
    losses = {name: value for name, value in found.items() if value is not None}
    if len(losses) < len(found):
        return None
    values = list(losses.values())
    return values == sorted(values, reverse=True), _said(losses)


def _unusable(table: Table) -> Verdict | None:
    loss = _number(table, "mean")
    return None if loss is None else (loss >= 2, _said({"mean": loss}))


def _values(table: Table) -> Verdict | None:
    numbers, held = {}, True
    for method in "mean", "svd_inputs":
        keys, values = (_number(table, method, part=part) for part in ("keys", "values"))
        if keys is None or values is None:
            return None
        numbers |= {f"{method}: keys": keys, f"{method}: values": values}
        held = held and values > keys
    return held, _said(numbers)


def _rotation(table: Table) -> Verdict | None:
    kept, without = (_number(table, "svd_inputs", name) for name in ("key_energy", "key_energy_unrotated"))
    if kept is None or without is None:
        return None
    return without - kept >= 0.1, _said({"with RoPE": kept, "without": without})


def _healing(table: Table) -> Verdict | None:
    before = _number(table, "svd_inputs")
    after, mean = (_number(table, method, "healed_excess") for method in ("svd_inputs", "mean"))
    if before is None or after is None or mean is None:
        return None
    numbers = {"svd_inputs": before, "healed": after, "mean, healed": mean}
    return after <= before / 2 and after < mean, _said(numbers)


CLAIMS = (
    Claim(
        "order",
        "merged without healing, the loss rises most for `first`, less for `mean`, less for `svd`, least for "
        "`svd_inputs`",
        _order,
    ),
    Claim(
        "unusable",
        "merged to one key/value head by `mean` and without healing, the model is unusable: at least 2 nats a token "
        "above the original",
        _unusable,
    ),
    Claim(
        "values",
        "merging values alone costs more than merging keys alone, by `mean` and by `svd_inputs`",
        _values,
    ),
    Claim(
        "rotation",
        "the share of the keys' second moment that the best fit keeps is at least 0.1 lower with RoPE than it would "
        "be without",
        _rotation,
    ),
    Claim(
        "healing",
        "the short run of healing takes back at least half of the excess loss of `svd_inputs`, and leaves it below "
        "the healed `mean`",
        _healing,
    ),
)
"""Expectations, written down before the first run."""
