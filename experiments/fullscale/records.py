"""What is made of the stretches: runs, smallest budgets, predictions, and verdicts on what was expected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.claims import Claim, Verdict, judged
from experiments.engine import Rows
from experiments.fullscale.config import FREE, GREEDY, JOINT, PLAIN, RECOVERED, FullscaleConfig
from experiments.points import Record
from experiments.reading import select
from theory.bounds import parameter_count_total_key_dim, partition_total_key_dim, single_head_max_items

_RUN = ("trainer", "embedding", "num_items", "d_model", "num_heads", "total_key_dim", "seed")
_SEEN = ("steps", "loss", "best_f1", "missed", "wrong", "above_all", "exact", "dtype")
_SEEN += ("held", "gradient", "margin", "margin_bound")


def summary(config: FullscaleConfig, rows: Rows) -> Rows:
    """Runs (each at its last look so far), smallest budgets, predictions, claims."""
    runs = _runs(rows["points"])
    smallest = _smallest(runs)
    predictions = prediction_rows(config)
    return {
        "runs": runs,
        "smallest": smallest,
        "predictions": predictions,
        "claims": claim_rows(runs, smallest, predictions),
    }


def claim_rows(
    runs: Sequence[Record], smallest: Sequence[Record], predictions: Sequence[Record]
) -> list[Record]:
    """One row a claim: ``verdict`` is ``held``, ``failed`` or ``not_run``."""
    return judged(CLAIMS, [run for run in runs if run["complete"]], smallest, predictions)


def prediction_rows(config: FullscaleConfig) -> list[Record]:
    """One row a head count, one head first; null where a prediction is infinite."""
    m, d = config.num_items, config.d_model
    laws = (partition_total_key_dim, parameter_count_total_key_dim)
    rows = []
    for h in (1, 2, *(h for h in config.head_counts if h > 2)):
        width, count = (float(law(m, m, d, h)) for law in laws)
        rows.append(
            {
                "num_items": m,
                "d_model": d,
                "num_heads": h,
                "single_head_max_items": float(single_head_max_items(d)),
                "partition_total_key_dim": width if np.isfinite(width) else None,
                "parameter_count_total_key_dim": count if np.isfinite(count) else None,
            }
        )
    return rows


def _runs(points: Sequence[Record]) -> list[Record]:
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for row in points:
        groups.setdefault(tuple(row[name] for name in _RUN), []).append(row)
    runs = []
    for key, own in groups.items():
        last = max(own, key=lambda row: row["stretch"])
        runs.append(
            dict(zip(_RUN, key, strict=True))
            | {"status": last["status"], "complete": last["stretch"] == last["num_stretches"] - 1}
            | {name: last[name] for name in _SEEN}
        )
    return runs


def _smallest(runs: Sequence[Record]) -> list[Record]:
    """Smallest budget that recovers in every seed run, and that is exact in some, by trainer and head count."""
    several = [run for run in runs if run["trainer"] != FREE and run["complete"]]
    rows = []
    for trainer, embedding, h in dict.fromkeys(
        (r["trainer"], r["embedding"], r["num_heads"]) for r in several
    ):
        own = select(several, trainer=trainer, embedding=embedding, num_heads=h)
        budgets = sorted({run["total_key_dim"] for run in own})
        recovered = [
            budget
            for budget in budgets
            if all((run["best_f1"] or 0) >= RECOVERED for run in select(own, total_key_dim=budget))
        ]
        rows.append(
            {
                "trainer": trainer,
                "embedding": embedding,
                "num_heads": h,
                "least_budget": budgets[0],
                "largest_budget": budgets[-1],
                "smallest_recovered": min(recovered, default=None),
                "smallest_exact": min((r["total_key_dim"] for r in own if r["exact"]), default=None),
                "num_seeds": len({run["seed"] for run in own}),
            }
        )
    return rows


def _one_head(runs: Sequence[Record], predictions: Sequence[Record], low: float, high: float) -> list[Record]:
    """Runs of one free head on a number of items between these multiples of the ceiling."""
    ceiling = predictions[0]["single_head_max_items"]
    own = select(runs, trainer=FREE)
    return [run for run in own if low * ceiling <= run["num_items"] <= high * ceiling]


def _said_heads(runs: Sequence[Record]) -> str:
    return ", ".join(f"{r['embedding']} {r['num_items']}: F1 {r['best_f1']:.3f}" for r in runs)


def _too_many(runs, _, predictions) -> Verdict | None:
    own = _one_head(runs, predictions, 1.05, np.inf)
    return (all(run["best_f1"] < 0.9 for run in own), _said_heads(own)) if own else None


def _few(runs, _, predictions) -> Verdict | None:
    own = [run for run in _one_head(runs, predictions, 0, 0.85) if run["embedding"] == "gaussian"]
    return (all(run["best_f1"] >= RECOVERED for run in own), _said_heads(own)) if own else None


def _stalled(runs, _, predictions) -> Verdict | None:
    """A small gradient at a positive loss, and a margin bound below a tenth of the margin where one head separates."""
    own = [run for run in _one_head(runs, predictions, 1.2, np.inf) if run["margin_bound"] is not None]
    reached = [r["margin"] for r in select(runs, trainer=FREE) if r["margin"] is not None and r["margin"] > 0]
    if not own:
        return None
    fine = all(run["loss"] > 0.01 and run["gradient"] < 0.05 for run in own)
    fine = fine and (not reached or max(r["margin_bound"] for r in own) < 0.1 * max(reached))
    said = ", ".join(
        f"{r['embedding']} {r['num_items']}: loss {r['loss']:.3f}, gradient {r['gradient']:.1g}, "
        f"margin at most {r['margin_bound']:.1g}"
        for r in own
    )
    return fine, said + (f"; largest margin reached {max(reached):.1g}" if reached else "")


def _recover(_, smallest, predictions) -> Verdict | None:
    """Joint and greedy training recover at 4 and 12 heads within the parameter count."""
    laws = {row["num_heads"]: row["parameter_count_total_key_dim"] for row in predictions}
    own = [row for row in smallest if row["trainer"] in (JOINT, GREEDY) and laws.get(row["num_heads"])]
    fine = all(
        row["smallest_recovered"] is not None and row["smallest_recovered"] <= 1.1 * laws[row["num_heads"]]
        for row in own
    )
    return (fine, _said(own)) if own else None


def _said(rows: Sequence[Record]) -> str:
    return ", ".join(
        f"{r['trainer']} {r['embedding']} h = {r['num_heads']}: "
        f"{r['smallest_recovered'] or 'not up to ' + str(r['largest_budget'])}"
        for r in rows
    )


def _by_width(_, smallest, predictions) -> Verdict | None:
    """The best trainer's smallest budget over the prediction by width: between 0.8 and 1.3."""
    laws = {row["num_heads"]: row["partition_total_key_dim"] for row in predictions}
    groups: dict[tuple[str, int], list[int]] = {}
    for row in smallest:
        found = row["smallest_recovered"]
        if laws.get(row["num_heads"]):
            groups.setdefault((row["embedding"], row["num_heads"]), []).extend([found] if found else [])
    if not groups:
        return None
    ratios = {key: min(found) / laws[key[1]] if found else np.inf for key, found in groups.items()}
    fine = all(0.8 <= ratio <= 1.3 for ratio in ratios.values())
    return fine, ", ".join(f"{e} h = {h}: {ratio:.2f}" for (e, h), ratio in ratios.items())


def _compare(first: dict[str, Any], second: dict[str, Any], low: float, high: float):
    """Smallest budgets of two selections, matched by what they leave open; none reached counts as infinite."""

    def judge(_, smallest, predictions) -> Verdict | None:
        ratios = {}
        for row in select(smallest, **first):
            wanted = {"trainer": row["trainer"], "embedding": row["embedding"]} | second
            for other in select(smallest, num_heads=row["num_heads"], **wanted):
                a, b = (r["smallest_recovered"] for r in (row, other))
                if a is not None or b is not None:
                    open_ = row["embedding"] if "embedding" not in first else row["trainer"]
                    ratios[f"{open_} h = {row['num_heads']}"] = (a or np.inf) / (b or np.inf)
        fine = all(low <= ratio <= high for ratio in ratios.values())
        return (fine, ", ".join(f"{k}: {r:.2f}" for k, r in ratios.items())) if ratios else None

    return judge


def _words(runs, smallest, predictions) -> Verdict | None:
    names = [row["embedding"] for row in smallest if row["embedding"] != "gaussian"]
    if not names:
        return None
    judge = _compare({"embedding": names[0]}, {"embedding": "gaussian"}, 0.7, 1.25)
    return judge(runs, smallest, predictions)


CLAIMS = (
    Claim("one head fails", "F1 below 0.9 on 1.05 times the ceiling of items or more", _too_many),
    Claim("one head suffices", "Gaussian items up to 0.85 of the ceiling: F1 of 0.99", _few),
    Claim(
        "stalled",
        "above 1.2 times the ceiling: loss above 0.01, relative gradient below 0.05, margin bound below a tenth of the "
        "largest margin reached",
        _stalled,
    ),
    Claim(
        "heads recover",
        "joint and greedy, 4 and 12 heads: smallest budget at most 1.1 of the parameter count",
        _recover,
    ),
    Claim("width", "best trainer's smallest budget: 0.8 to 1.3 of the prediction by width", _by_width),
    Claim(
        "hardening",
        "joint needs at most the budget of plain",
        _compare({"trainer": JOINT}, {"trainer": PLAIN}, 0.0, 1.0),
    ),
    Claim(
        "trainers",
        "greedy needs 0.75 to 1.25 of joint",
        _compare({"trainer": GREEDY}, {"trainer": JOINT}, 0.75, 1.25),
    ),
    Claim("words", "real words need 0.7 to 1.25 of Gaussian items", _words),
)
