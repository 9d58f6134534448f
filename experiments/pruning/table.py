"""The pruning experiment's results as tables: for the terminal and, the same, in Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments import claims
from experiments.pruning.claims import two_digits
from experiments.pruning.records import groups
from experiments.reading import records, select
from experiments.roles.naming import NONE
from experiments.significance import holm
from experiments.tables import Cells, markdown_of

ORDER_WORDS = {
    "importance": "I_h",
    "importance_recomputed": "I_h anew",
    "confidence": "confidence",
    "ablation": "ablation",
    "random": "random",
}


def curves_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each model and order, a column for each fraction: the loss, of random orders their mean."""
    rows = records(data, "curves")
    fractions = sorted({row["fraction_pruned"] for row in rows})
    shown = [f for f in fractions if len(fractions) <= 6 or f in (0.0, 0.1, 0.2, 0.3, 0.5, 1.0)]
    lines = []
    for (model, order), own in groups(rows, "model", "order").items():
        at = {row["fraction_pruned"]: row for row in own}
        losses = [f"{at[f]['loss']:z.3f}" if f in at else "" for f in shown]
        costs = [r["mean_cost"] for r in select(records(data, "onsets"), model=model, order=order)]
        lines.append((model, ORDER_WORDS[order], *losses, f"{np.mean(costs):z.3f}" if costs else "–"))
    if not lines:
        return None
    columns = ("model", "order", *(f"{f:.0%}" for f in shown), "mean\ncost")
    note = (
        "Loss on held-out text by share of heads removed: next token in nats; of encoders one minus the mean "
        "cosine to the whole model's embeddings. Mean cost: over the curve, in units of what removing all "
        "heads costs."
    )
    return Cells("Loss by heads removed", columns, tuple(lines), note)


def gates_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each set of gates: what is left, what it costs, which roles survive."""
    lines = []
    for row in records(data, "gate_sets"):
        other = row["importance_loss"]
        cells = [row["model"], f"{row['penalty']:g}", f"{row['heads_left']} of {row['num_heads']}"]
        cells += [two_digits(row["loss"]), "–" if other is None else two_digits(other)]
        cells += ["–" if row["auc"] is None else f"{row['auc']:.2f}"]
        with_role, none = row["with_role"], (row["roles"] or {}).get(NONE)
        cells += ["–" if counts is None else _counts(counts) for counts in (with_role, none)]
        lines.append(tuple(cells))
    if not lines:
        return None
    columns = ("model", "penalty", "heads left", "loss", "same number\nby I_h", "open above\nclosed")
    columns += ("open, with\na role", "open,\nwithout")
    note = (
        "Gates trained alone, the model as it is. Open above closed: probability that an open head has a higher "
        "I_h than a closed one. Roles are those of the table above (experiment `roles`)."
    )
    return Cells("Heads that gates leave", columns, tuple(lines), note)


def speed_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each model, removal and batch: measured and counted speed-up."""
    lines = []
    for row in records(data, "speedups"):
        speed = f"{row['speedup']:.2f} [{row['speedup_low']:.2f}–{row['speedup_high']:.2f}]"
        cells = [row["model"], row["removal"], str(row["batch_size"])]
        cells += [f"{row['heads_left']} + {row['kv_heads_left']}", speed]
        cells += [f"{row['predicted_speedup']:.2f}", f"{row['whole_loss']:z.3f} → {row['loss']:z.3f}"]
        lines.append(tuple(cells))
    if not lines:
        return None
    columns = ("model", "gone", "batch", "left:\nQ + KV", "speed-up", "by\nproducts", "loss")
    note = (
        "Forward pass of the model with smaller weights against the whole one, in turn: median of ratios, "
        "quartiles. By products: ratio of multiplications in matrix products."
    )
    return Cells("Heads really removed", columns, tuple(lines), note)


def claims_cells(data: Mapping[str, Any]) -> Cells | None:
    """What was expected and what came out. None where nothing was run that could tell."""
    note = "Expected: written down before the runs (`experiments/pruning/__init__.py`)."
    return claims.claims_cells(data, note)


BLOCKS = {
    "curves": markdown_of(curves_cells),
    "gates": markdown_of(gates_cells),
    "speed": markdown_of(speed_cells),
    "claims": markdown_of(claims_cells),
}
"""Tables by name, for `experiments.readme`."""


def values(data: Mapping[str, Any]) -> dict[str, str]:
    """Every number of a run that prose may name, without the name of the source.

    ``loss.MODEL.ORDER.PERCENT`` (``loss.smollm2-135m.importance.20``), ``cost.`` likewise in percent of what removing
    all costs, ``ranking.`` likewise for encoders, of others ``added.`` (nats more than the whole model) and
    ``perplexity-ratio.`` (times its perplexity); ``mean-cost.MODEL.ORDER`` (mean over seeds),
    ``mean-cost-low.MODEL.random``, ``mean-cost-high.``; ``tolerated.MODEL.ORDER``; ``random-as-good.MODEL.ORDER``: how
    many random orders cost as little on average, ``chance.MODEL.ORDER``: p of that, one-sided, ``chance-holm.``: as one
    of the model's orders; ``ablation.found``;
    ``gates.MODEL.PENALTY.left``, ``.loss``, ``.importance-loss``, ``.auc``, ``.role.ROLE`` (open of how many, also of
    ``any`` and of ``none``); ``speedup.MODEL.REMOVAL.BATCH``,
    ``predicted-speedup.``; ``claims.held``, ``claims.judged``.
    """
    out = {}
    whole = {row["model"]: row["loss"] for row in select(records(data, "curves"), fraction_pruned=0.0)}
    for row in records(data, "curves"):
        name = f"{row['model']}.{row['order']}.{100 * row['fraction_pruned']:.0f}"
        out[f"loss.{name}"] = f"{row['loss']:z.3f}"
        out[f"cost.{name}"] = _percent(row["cost"])
        if row["ranking"] is not None:
            out[f"ranking.{name}"] = f"{row['ranking']:z.3f}"
        elif row["model"] in whole:
            added = row["loss"] - whole[row["model"]]
            out[f"added.{name}"] = f"{added:+z.2f}"
            out[f"perplexity-ratio.{name}"] = f"{math.exp(added):.2f}"
    chances: dict[str, dict[str, float]] = {}
    for (model, order), own in groups(records(data, "onsets"), "model", "order").items():
        out[f"mean-cost.{model}.{order}"] = f"{np.mean([row['mean_cost'] for row in own]):z.3f}"
        chance = [row["mean_cost"] for row in select(records(data, "onsets"), model=model, order="random")]
        if order == "random":
            out[f"mean-cost-low.{model}.random"] = f"{min(chance):z.3f}"
            out[f"mean-cost-high.{model}.random"] = f"{max(chance):z.3f}"
        elif len(own) == 1:
            out[f"tolerated.{model}.{order}"] = _percent(own[0]["tolerated"])
            better = sum(cost <= own[0]["mean_cost"] for cost in chance)
            out[f"random-as-good.{model}.{order}"] = f"{better} of {len(chance)}"
            # The order itself is one more draw where it is no better than chance.
            chances.setdefault(model, {})[order] = (better + 1) / (len(chance) + 1)
    for model, by_order in chances.items():
        for (order, p), corrected in zip(by_order.items(), holm(list(by_order.values())), strict=True):
            out[f"chance.{model}.{order}"] = f"{p:.2f}"
            out[f"chance-holm.{model}.{order}"] = f"{corrected:.2f}"
    for row in records(data, "claims"):
        if row["claim"] == "ablation" and row["found"]:
            out["ablation.found"] = row["found"].partition(": ")[2]
    for row in records(data, "gate_sets"):
        name = f"gates.{row['model']}.{row['penalty']:g}"
        out[f"{name}.left"] = str(row["heads_left"])
        for key, field in (("loss", "loss"), ("importance-loss", "importance_loss"), ("auc", "auc")):
            out[f"{name}.{key}"] = "–" if row[field] is None else two_digits(row[field])
        for role, counts in (row["roles"] or {}).items():
            out[f"{name}.role.{role}"] = _counts(counts)
        if row["with_role"] is not None:
            out[f"{name}.role.any"] = _counts(row["with_role"])
    for row in records(data, "speedups"):
        name = f"{row['model']}.{row['removal']}.{row['batch_size']}"
        out[f"speedup.{name}"] = f"{row['speedup']:.2f}"
        out[f"predicted-speedup.{name}"] = f"{row['predicted_speedup']:.2f}"
    return out | claims.claim_values(data)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def _counts(counts: Sequence[int]) -> str:
    return f"{counts[0]} of {counts[1]}"
