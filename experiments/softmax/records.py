"""What is made of the batches: curves over head counts, and verdicts on what was expected."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, median

from experiments.claims import Claim, Verdict, judged
from experiments.engine import Rows
from experiments.points import Record
from experiments.reading import select

_SHARED = ("arm", "num_items", "d_model", "context_size", "total_key_dim", "num_heads", "head_dim")
TRAINED = ("weights", "values")


def summary(rows: Rows) -> Rows:
    """Curves (one row for an arm, budget and head count) and claims."""
    curves = _curves(rows["points"])
    return {"curves": curves, "claims": claim_rows(rows, curves)}


def claim_rows(rows: Rows, curves: Sequence[Record]) -> list[Record]:
    """One row a claim: ``verdict`` is ``held``, ``failed`` or ``not_run``."""
    return judged(CLAIMS, rows, curves)


def _curves(points: Sequence[Record]) -> list[Record]:
    groups: dict[tuple, list[Record]] = {}
    for row in points:
        groups.setdefault(tuple(row[name] for name in _SHARED), []).append(row)
    curves = []
    for key, own in groups.items():
        good = [row for row in own if row["status"] == "ok"]
        f1 = [row["f1"] for row in good]
        exact = [row for row in good if row["exact_recovery"]]
        curves.append(
            dict(zip(_SHARED, key, strict=True))
            | {
                "num_seeds": len(own),
                "failed": len(own) - len(good),
                "median_f1": median(f1) if f1 else None,
                "least_f1": min(f1, default=None),
                "largest_f1": max(f1, default=None),
                "mean_accuracy": mean(row["accuracy"] for row in good) if good else None,
                "recovered": sum(value >= 0.99 for value in f1),
                "exact": len(exact),
                "one_owner": sum(bool(row["one_owner"]) for row in exact),
                "least_softmax_f1": min((row["softmax_f1"] for row in exact), default=None),
            }
        )
    return curves


def _guarantee(rows: Rows, _: Sequence[Record]) -> Verdict | None:
    found = [row["largest_excess"] for row in rows["points"] if row["largest_excess"] is not None]
    for row in rows["lemma"]:
        if row["constructed"]:
            for worst, bound in (("worst_error", "error_bound"), ("worst_absent", "absent_bound")):
                found += [a - b for a, b in zip(row[worst], row[bound], strict=True)]
    if not found:
        return None
    return max(
        found
    ) <= 1e-9, f"largest excess over a bound {max(found):.1e} in {len(found)} channels and scales"


def _transplant(rows: Rows, _: Sequence[Record]) -> Verdict | None:
    exact = [row for row in rows["points"] if row["exact_recovery"]]
    if not exact:
        return None
    right = sum(row["softmax_accuracy"] == 1 and row["values_accuracy"] == 1 for row in exact)
    return right == len(
        exact
    ), f"{right} of {len(exact)} exact channels, every context by weights and by values"


def _one_head(_: Rows, curves: Sequence[Record]) -> Verdict | None:
    rows = [row for row in select(curves, num_heads=1) if row["largest_f1"] is not None]
    if not rows:
        return None
    worst = max(rows, key=lambda row: row["largest_f1"])
    return worst["largest_f1"] < 0.9, f"at most {worst['largest_f1']:.3f} ({worst['arm']})"


def _window(_: Rows, curves: Sequence[Record]) -> Verdict | None:
    fine, said = True, []
    for arm in TRAINED:
        for total in sorted({row["total_key_dim"] for row in curves}):
            rows = [r for r in select(curves, arm=arm, total_key_dim=total) if r["median_f1"] is not None]
            edges = [r["median_f1"] for r in rows if r["num_heads"] == 1 or r["head_dim"] == 1]
            inside = [r["median_f1"] for r in rows if 3 <= r["num_heads"] <= 8 and r["head_dim"] > 1]
            if not edges or not inside:
                continue
            fine &= min(inside) > max(edges)
            said.append(f"{arm}, D_K = {total}: {min(inside):.3f} and more against {max(edges):.3f}")
    return (fine, "; ".join(said)) if said else None


def _no_better(_: Rows, curves: Sequence[Record]) -> Verdict | None:
    gaps = [
        (row["median_f1"] - other["median_f1"], row)
        for row in curves
        if row["arm"] in TRAINED and row["median_f1"] is not None
        for other in _at(curves, "greedy", row)
    ]
    if not gaps:
        return None
    worst, row = max(gaps, key=lambda gap: gap[0])
    return (
        worst <= 0.01,
        f"largest lead {worst:+.3f} ({row['arm']}, D_K = {row['total_key_dim']}, h = {row['num_heads']})",
    )


def _routing(_: Rows, curves: Sequence[Record]) -> Verdict | None:
    gaps = [
        (row["median_f1"] - other["median_f1"], row)
        for row in select(curves, arm="values")
        if row["num_heads"] > 1 and row["median_f1"] is not None
        for other in _at(curves, "weights", row)
    ]
    if not gaps:
        return None
    worst, row = max(gaps, key=lambda gap: gap[0])
    return (
        worst <= 0.01,
        f"largest lead of values {worst:+.3f} (D_K = {row['total_key_dim']}, h = {row['num_heads']})",
    )


def _at(curves: Sequence[Record], arm: str, row: Record) -> list[Record]:
    wanted = {name: row[name] for name in ("total_key_dim", "num_heads")}
    return [r for r in select(curves, arm=arm, **wanted) if r["median_f1"] is not None]


def _idle(rows: Rows, _: Sequence[Record]) -> Verdict | None:
    exact = [row for row in rows["points"] if row["arm"] == "greedy" and row["exact_recovery"]]
    if not exact:
        return None
    clean = sum(row["one_owner"] for row in exact)
    return clean >= 0.9 * len(exact), f"{clean} of {len(exact)} exact greedy channels"


CLAIMS = (
    Claim("guarantee", "no output leaves its bound (theorem)", _guarantee),
    Claim("transplant", "exact channels answer every context as softmax heads (theorem)", _transplant),
    Claim("one head", "F1 below 0.9 in every form", _one_head),
    Claim("window", "3 to 8 heads above one head and above d_k = 1", _window),
    Claim("no better", "end to end at most 0.01 above greedy", _no_better),
    Claim("routing costs", "values at most 0.01 above weights from 2 heads on", _routing),
    Claim("idle heads", "9 of 10 exact greedy channels have one owner an edge", _idle),
)
