"""Verdicts on what was expected, from the records alone; the expectations are in the package's docstring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.claims import Claim, Verdict, judged
from experiments.points import Record

Rows = Mapping[str, Sequence[Record]]
CAUSAL = "smollm2-135m"
ENCODER = "minilm-l6"
SMALL_COST = 0.01
"""A head matters alone where removing it costs more than this share of what removing all heads costs."""


def claim_rows(rows: Rows) -> list[Record]:
    """One row a claim: ``verdict`` is ``held``, ``failed`` or ``not_run``."""
    return judged(CLAIMS, rows)


def mean_costs(rows: Rows, model: str, order: str) -> list[float]:
    """The mean cost over the curve, of every seed."""
    return [r["mean_cost"] for r in rows["onsets"] if (r["model"], r["order"]) == (model, order)]


def _models(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row["model"] for row in rows["onsets"]))


def _importance(rows: Rows) -> Verdict | None:
    texts, held = [], []
    for model in _models(rows):
        own, others = mean_costs(rows, model, "importance"), mean_costs(rows, model, "random")
        if own and others:
            held.append(own[0] < min(others))
            texts.append(f"{model}: {own[0]:.3f} against {_range(others)} at random")
    return (all(held), "; ".join(texts)) if held else None


def _onset(rows: Rows) -> Verdict | None:
    found = {r["model"]: r["tolerated"] for r in rows["onsets"] if r["order"] == "importance"}
    if not found:
        return None
    text = "; ".join(f"{model}: {_percent(share)}" for model, share in found.items())
    return all(share is not None and 0.2 <= share <= 0.4 for share in found.values()), text


def _confidence(rows: Rows) -> Verdict | None:
    texts, held = [], []
    for model in _models(rows):
        own, chance = mean_costs(rows, model, "confidence"), mean_costs(rows, model, "random")
        best = mean_costs(rows, model, "importance")
        if not own or not chance or not best or model not in (CAUSAL, ENCODER):
            continue
        mean = float(np.mean(chance))
        held.append(own[0] >= mean if model == CAUSAL else best[0] < own[0] < mean)
        texts.append(f"{model}: {own[0]:.3f}; mean at random {mean:.3f}, importance {best[0]:.3f}")
    return (all(held), "; ".join(texts)) if held else None


def _recomputed(rows: Rows) -> Verdict | None:
    texts, held = [], []
    for model in _models(rows):
        anew, once = (mean_costs(rows, model, order) for order in ("importance_recomputed", "importance"))
        if anew and once:
            held.append(anew[0] < once[0])
            texts.append(f"{model}: {anew[0]:.3f} against {once[0]:.3f}")
    return (all(held), "; ".join(texts)) if held else None


def _all_removed(rows: Rows, model: str) -> float | None:
    """What removing all heads adds to the loss."""
    losses = {r["fraction_pruned"]: r["loss"] for r in rows["curves"] if r["model"] == model}
    return losses[1.0] - losses[0.0] if {0.0, 1.0} <= set(losses) else None


def _ablation(rows: Rows) -> Verdict | None:
    texts, held = [], []
    for model in _models(rows):
        rises = [r["increase"] for r in rows["ablations"] if (r["model"], r["ablation"]) == (model, "single")]
        whole = _all_removed(rows, model)
        if rises and whole:
            many = sum(rise > SMALL_COST * whole for rise in rises)
            better = sum(rise < 0 for rise in rises)
            held.append(many < len(rises) / 10)
            texts.append(f"{model}: {many} of {len(rises)} (removing {better} lowers the loss)")
    return (all(held), "; ".join(texts)) if held else None


def _one_left(rows: Rows) -> Verdict | None:
    texts, held = [], []
    for model in _models(rows):
        own = [r for r in rows["ablations"] if (r["model"], r["ablation"]) == (model, "all_but_one")]
        whole = _all_removed(rows, model)
        if own and whole:
            best: dict[int, float] = {}
            for row in own:
                best[row["layer"]] = min(row["increase"], best.get(row["layer"], np.inf))
            fine = sum(rise <= 0.05 * whole for rise in best.values())
            held.append(fine > len(best) / 2)
            texts.append(f"{model}: {fine} of {len(best)} layers")
    return (all(held), "; ".join(texts)) if held else None


def _gates(rows: Rows) -> Verdict | None:
    found = [r for r in rows["gate_sets"] if r["auc"] is not None]
    if not found:
        return None
    text = "; ".join(f"{r['model']}, {r['heads_left']} left: {r['auc']:.2f}" for r in found)
    return all(r["auc"] > 0.5 for r in found), f"probability of a higher I_h: {text}"


def _gated_loss(rows: Rows) -> Verdict | None:
    found = [
        r
        for r in rows["gate_sets"]
        if r["importance_loss"] is not None and 0 < r["heads_left"] < r["num_heads"]
    ]
    if not found:
        return None
    text = "; ".join(
        f"{r['model']}, {r['heads_left']} left: {two_digits(r['loss'])} against {two_digits(r['importance_loss'])}"
        for r in found
    )
    return all(r["loss"] < r["importance_loss"] for r in found), text


FLOAT32_ACCURACY = 2e-5
"""Largest difference of outputs over their largest value: float32 rounding through some tens of layers."""


def _removed(rows: Rows) -> Verdict | None:
    found = {r["model"]: 0.0 for r in rows["timings"]}
    for row in rows["timings"]:
        found[row["model"]] = max(found[row["model"]], row["difference"] / row["scale"])
    if not found:
        return None
    text = "; ".join(f"{model}: {value:.1e} of the largest output" for model, value in found.items())
    return all(value <= FLOAT32_ACCURACY for value in found.values()), text


def _speed(rows: Rows) -> Verdict | None:
    found = [r for r in rows["speedups"] if r["fraction_pruned"] == 0.5]
    if not found:
        return None
    text = "; ".join(
        f"{r['model']}, {r['removal']}, batch {r['batch_size']}: {r['speedup']:.2f} "
        f"({r['predicted_speedup']:.2f} by products)"
        for r in found
    )
    return all(abs(r["speedup"] / r["predicted_speedup"] - 1) <= 0.2 for r in found), text


def two_digits(loss: float) -> str:
    """A loss of three decimals, or as many as it takes to show two digits: where few heads go it is small."""
    return f"{loss:z.3f}" if not 0 < abs(loss) < 0.01 else f"{loss:.2g}"


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.3f} to {max(values):.3f}"


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{share:.0%}"


CLAIMS = (
    Claim("importance", "by I_h removal costs less than in any random order", _importance),
    Claim("onset", "by I_h 20% to 40% of the heads cost at most 5% of all", _onset),
    Claim("confidence", "no better than chance in SmolLM2, between chance and I_h in MiniLM", _confidence),
    Claim("recomputed", "I_h computed anew costs less than one-shot", _recomputed),
    Claim("ablation", "fewer than a tenth of the heads cost more than 1% of all, alone", _ablation),
    Claim("one left", "one head is enough, at 5% of all, in more than half of the layers", _one_left),
    Claim("gates", "heads left open have a higher I_h than closed ones", _gates),
    Claim("gated loss", "the heads that gates leave cost less than as many by I_h", _gated_loss),
    Claim("removed", "smaller weights give what the mask gives", _removed),
    Claim("speed", "at half of the heads within a fifth of the ratio of products", _speed),
)
