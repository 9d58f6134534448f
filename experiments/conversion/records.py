"""What is made of the conversions: excess losses with intervals, and what came of the predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.conversion.config import ConversionConfig
from experiments.conversion.units import ORIGINAL
from experiments.engine import Ask, Rows
from experiments.points import Record

PREDICTIONS = {
    "order": "Merged without healing, the loss rises most for `first`, less for `mean`, less for `svd`, least for "
    "`svd_inputs`.",
    "unusable": "Merged to one key/value head by `mean` and without healing, the model is unusable: at least 2 nats "
    "a token above the original.",
    "values": "Merging values alone costs more than merging keys alone, by `mean` and by `svd_inputs`.",
    "rotation": "The share of the keys' second moment that the best fit keeps is at least 0.1 lower with RoPE than "
    "it would be without.",
    "healing": "The short run of healing takes back at least half of the excess loss of `svd_inputs`, and leaves it "
    "below the healed `mean`.",
}
"""Written down before the first run."""


def summary(config: ConversionConfig, ask: Ask, rows: Rows) -> Rows:
    """A row for every conversion, and one for every prediction."""
    del config, ask
    points = rows["points"]
    table = excesses(points)
    return {"conversions": table, "predictions": predictions(table)}


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


def predictions(table: Sequence[Mapping[str, Any]]) -> list[Record]:
    """Every prediction, whether it held (null: not measured), and the numbers."""
    found = {(row["method"], row["part"]): row for row in table}

    def excess(method: str, part: str = "both", name: str = "excess") -> float | None:
        row = found.get((method, part))
        return None if row is None else row[name]

    losses = {m: excess(m) for m in ("first", "mean", "svd", "svd_inputs")}
    parts = {f"{m}, {p}": excess(m, p) for m in ("mean", "svd_inputs") for p in ("keys", "values")}
    fitted = found.get(("svd_inputs", "both"), {})
    shares = {name: fitted.get(name) for name in ("key_energy", "key_energy_unrotated")}
    healed = {
        "svd_inputs": losses["svd_inputs"],
        "svd_inputs, healed": excess("svd_inputs", name="healed_excess"),
        "mean, healed": excess("mean", name="healed_excess"),
    }
    rules = {
        "order": (losses, lambda first, mean, svd, inputs: first > mean > svd > inputs),
        "unusable": ({"mean": losses["mean"]}, lambda mean: mean >= 2),
        "values": (parts, lambda mk, mv, sk, sv: mv > mk and sv > sk),
        "rotation": (shares, lambda kept, without: without - kept >= 0.1),
        "healing": (healed, lambda before, after, mean: after <= before / 2 and after < mean),
    }
    return [
        {
            "name": name,
            "prediction": PREDICTIONS[name],
            "held": None if None in numbers.values() else bool(holds(*numbers.values())),
            "numbers": numbers,
        }
        for name, (numbers, holds) in rules.items()
    ]
