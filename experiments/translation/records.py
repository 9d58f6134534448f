"""What is made of the trained models: a row for every setting of every arm, with intervals over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from experiments.engine import Ask, Rows, Unfinished
from experiments.points import Record
from experiments.translation.claims import claim_rows
from experiments.translation.config import TranslationConfig
from experiments.translation.plan import TranslationPoint, rate_of, reference, runs_of, settings

SIZES = ("num_heads", "head_dim", "value_head_dim", "d_model", "d_ff")


def summary(config: TranslationConfig, ask: Ask, rows: Rows) -> Rows:
    """Settings (one row for each in each arm), chosen rates and claims."""
    table, rates = [], []
    for arm, own in settings(config).items():
        try:
            rate = rate_of(config, arm, ask)
        except Unfinished:
            continue
        at = reference(config, arm)
        rates.append({"arm": arm, "learning_rate": rate} | {name: getattr(at, name) for name in SIZES})
        for setting in own:
            try:
                runs = ask(runs_of(config, setting, rate))
            except Unfinished:
                continue
            table.append(_row(arm, setting, rate, runs))
    baselines = rows["baselines"]
    return {"settings": table, "rates": rates, "claims": claim_rows(config, table, baselines)}


def _row(arm: str, setting: TranslationPoint, rate: float, runs: Sequence[Record]) -> Record:
    ok = [run for run in runs if run["perplexity"] is not None]
    row: Record = {"arm": arm} | {name: getattr(setting, name) for name in SIZES}
    row |= {"learning_rate": rate, "num_steps": setting.num_steps, "runs": len(runs)}
    row["failed"] = len(runs) - len(ok)
    for name in ("perplexity", "bleu"):
        row |= interval(name, [run[name] for run in ok])
    for name in ("num_params", "flops_per_step"):
        row[name] = runs[0][name]
    row["seconds_per_step"] = min(run["seconds_per_step"] for run in runs)
    return row


def interval(name: str, values: Sequence[float]) -> dict[str, Any]:
    """Mean and Student's 95% interval over seeds; None for what so few do not tell."""
    mean = float(np.mean(values)) if values else None
    low, high = None, None
    if len(values) > 1 and mean is not None:
        half = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))
        low, high = mean - half, mean + half
    return {name: mean, f"{name}_low": low, f"{name}_high": high}
