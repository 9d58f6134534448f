"""What is made of the batches: curves over head counts, and verdicts on what was expected."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from experiments.claims import Claim, Verdict, judged
from experiments.engine import Rows
from experiments.points import Record
from experiments.reading import select

_SHARED = ("arm", "embedding", "num_items", "d_model", "total_key_dim", "num_heads", "head_dim", "mlp_width")
CEILING_D_MODEL = 100
"""Width above which one head is expected to be enough; projected items are below."""


def summary(rows: Rows) -> Rows:
    """Curves (one row for an arm, budget and head count) and claims."""
    curves = _curves(rows["points"])
    return {"curves": curves, "claims": claim_rows(curves)}


def claim_rows(curves: Sequence[Record]) -> list[Record]:
    """One row a claim: ``verdict`` is ``held``, ``failed`` or ``not_run``."""
    return judged(CLAIMS, [row for row in curves if row["mean_accuracy"] is not None])


def _curves(points: Sequence[Record]) -> list[Record]:
    groups: dict[tuple, list[Record]] = {}
    for row in points:
        groups.setdefault(tuple(row[name] for name in _SHARED), []).append(row)
    curves = []
    for key, own in groups.items():
        good = [row for row in own if row["status"] == "ok"]
        accuracy = [row["accuracy"] for row in good]
        curves.append(
            dict(zip(_SHARED, key, strict=True))
            | {
                "num_seeds": len(own),
                "failed": len(own) - len(good),
                "mean_accuracy": mean(accuracy) if good else None,
                "least_accuracy": min(accuracy, default=None),
                "largest_accuracy": max(accuracy, default=None),
                "mean_present_accuracy": mean(row["present_accuracy"] for row in good) if good else None,
                "mean_absent_accuracy": mean(row["absent_accuracy"] for row in good) if good else None,
                "present": mean(row["present"] for row in good) if good else None,
                "num_parameters": own[0]["num_parameters"],
            }
        )
    return curves


def _narrow(curves: Sequence[Record]) -> list[Record]:
    return [row for row in select(curves, arm="block") if row["d_model"] < CEILING_D_MODEL]


def _one_head(curves: Sequence[Record]) -> Verdict | None:
    rows = select(_narrow(curves), num_heads=1)
    if not rows:
        return None
    best = max(row["mean_accuracy"] for row in rows)
    return best < 0.9, f"{best:.3f} at most"


def _several(curves: Sequence[Record]) -> Verdict | None:
    rows = _narrow(curves)
    if not rows:
        return None
    rows = select(rows, total_key_dim=max(row["total_key_dim"] for row in rows))
    best = max(rows, key=lambda row: row["mean_accuracy"])
    found = f"{best['mean_accuracy']:.3f} at D_K = {best['total_key_dim']}, h = {best['num_heads']}"
    return best["mean_accuracy"] >= 0.97, found


def _controls(curves: Sequence[Record]) -> Verdict | None:
    rows = [row for row in curves if row["arm"] != "block"]
    if not rows:
        return None
    fine = True
    for row in rows:
        wanted = {name: row[name] for name in ("embedding", "num_items", "total_key_dim", "num_heads")}
        beside = [r["mean_accuracy"] for r in select(curves, arm="block", **wanted)]
        fine &= row["mean_accuracy"] <= 0.75
        fine &= all(value - row["mean_accuracy"] >= 0.15 for value in beside)
    return fine, ", ".join(f"{row['arm']} {row['mean_accuracy']:.3f}" for row in rows)


def _window(curves: Sequence[Record]) -> Verdict | None:
    rows = _narrow(curves)
    said, fine = [], True
    for total in sorted({row["total_key_dim"] for row in rows}):
        own = select(rows, total_key_dim=total)
        if len(own) < 3:
            continue
        best = max(own, key=lambda row: row["mean_accuracy"])["num_heads"]
        fine &= best not in (1, max(row["num_heads"] for row in own))
        said.append(f"D_K = {total}: {best} heads")
    return (fine, "best with " + ", ".join(said)) if said else None


def _wide(curves: Sequence[Record]) -> Verdict | None:
    rows = [row for row in select(curves, arm="block") if row["d_model"] >= CEILING_D_MODEL]
    others = [row for row in rows if row["num_heads"] in (2, 4)]
    one = select(rows, num_heads=1)
    if not one or not others:
        return None
    best = max(row["mean_accuracy"] for row in others)
    first = one[0]["mean_accuracy"]
    return first >= best - 0.02, f"{first:.3f} against {best:.3f}"


CLAIMS = (
    Claim("one head", "mean accuracy below 0.9 on projected items", _one_head),
    Claim("several heads", "at least 0.97 with the best head count at the largest budget", _several),
    Claim("controls", "at most 0.75, and 0.15 below the block", _controls),
    Claim("window", "the best head count is neither 1 nor the largest", _window),
    Claim("wide items", "one head within 0.02 of two and four with 384 dimensions", _wide),
)
