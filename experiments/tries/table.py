"""The `tries` experiment's results as tables: for the terminal and, the same, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments import claims
from experiments.reading import Record, records, select
from experiments.tables import Cells, markdown_of
from experiments.tries.claims import kept_at

ARMS: dict[tuple[str, int], str] = {
    ("direct", 1): "direct",
    ("resumed", 1): "resumed",
    ("restarts", 4): "best of\n4 runs",
    ("pruned", 4): "4h, cut",
    ("healed-steps", 2): "2h, cut,\nhealed",
    ("healed-steps", 4): "4h, cut,\nhealed",
    ("healed-compute", 4): "4h, equal\ncompute",
    ("rewound", 4): "4h,\nrewound",
}
"""Columns of the tables of thresholds: arm and ratio."""
_PERCENT = (0.25, 0.5, 0.75)


def budget(row: Record) -> str:
    """A threshold."""
    if row["measured_total_key_dim"] is None:
        return "above" if row["status"] == "not_reached" else "–"
    most = "≤ " if row.get("at_most") else ""
    return f"{most}{row['measured_total_key_dim']:.1f}"


def threshold_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each head count: budgets needed by arm. None without thresholds."""
    rows = records(data, "thresholds")
    yardsticks = records(data, "yardsticks")
    columns = {
        (arm, ratio): name for (arm, ratio), name in ARMS.items() if select(rows, arm=arm, ratio=ratio)
    }
    if not columns:
        return None
    lines = []
    for heads in sorted({row["num_heads"] for row in rows}):
        own = select(rows, num_heads=heads)
        cells = []
        for arm, ratio in columns:
            at = select(own, arm=arm, ratio=ratio, choice=_choice(arm))
            cells.append(budget(at[0]) if at else "")
        best = select(yardsticks, num_heads=heads, trainer="best")
        predicted = own[0]["partition_total_key_dim"]
        ends = (budget(best[0]) if best else "–", "∞" if predicted is None else f"{predicted:.1f}")
        lines.append((str(heads), *cells, *ends))
    note = (
        "Budgets at which half of the seeds are recovered (best-threshold F1 ≥ 0.99), intervals in the figure; "
        "above: not at any budget tried. H heads are "
        "trained, h kept (greedily, by ablation) and healed; caps on steps as in the package's docstring. Best "
        "trainer: from the experiment `capacity`. Fixed partition: a prediction."
    )
    titles = ("heads h", *columns.values(), "best\ntrainer", "fixed\npartition")
    return Cells("Total key dimension D_K = h d_k needed", titles, tuple(lines), note)


def paired_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each comparison of two arms on the same problems. None without pairs."""
    rows = records(data, "paired")
    if not rows:
        return None
    arms = records(data, "arms")
    base = sum(row["head_steps"] for row in select(arms, arm="direct"))
    lines = []
    for row in rows:
        own = select(arms, arm=row["arm"], ratio=row["ratio"], choice=row["choice"])
        seeds = [sum(sign * value > 0 for value in row["more_by_seed"]) for sign in (1, -1)]
        lines.append(
            (
                _arm(row["arm"], row["ratio"], row["choice"]),
                _arm(row["other"], row["other_ratio"], row["other_choice"]),
                f"{row['recovered']}:{row['other_recovered']}",
                f"{row['alone']}:{row['other_alone']}",
                f"{seeds[0]}:{seeds[1]}",
                *("–" if p is None else f"{p:.2g}" for p in (row["p_value"], row["holm"])),
                f"{sum(r['head_steps'] for r in own) / base:.2f}",
            )
        )
    columns = ("arm", "against", "recovered", "alone", "seeds", "p", "Holm", "compute")
    tested = sum(row["p_value"] is not None for row in rows)
    note = (
        f"Of {rows[0]['problems']} problems: all sizes of {rows[0]['seeds']} seeds. Alone: those that only one of the "
        "two recovers; seeds: in which one recovers more. p: two-sided, by exact sign flips over seeds, since problems "
        f"of one seed are not independent; no smaller than {least_p(rows):.2g} with so few. Holm: corrected for the "
        f"{tested} comparisons of this table. The best of several direct runs has the direct run among them and cannot "
        "recover less: no test. Compute: head-steps taken over those of the direct runs."
    )
    return Cells("Arms compared on the same problems", columns, tuple(lines), note)


def least_p(rows: Sequence[Record]) -> float:
    """The smallest p-value that flips of so many seeds can give."""
    return 2.0 ** (1 - rows[0]["seeds"])


def _arm(arm: str, ratio: int, choice: str | None) -> str:
    if arm in ("direct", "resumed"):
        return f"h, {arm}"
    return f"best of {ratio}" if arm == "restarts" else f"{ratio}h, {arm}, {choice}"


def dynamics_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each task, order and checkpoint: share of the score kept. None without curves."""
    rows = sorted(records(data, "curves"), key=lambda r: (r["task"], r["order"], r["steps"]))
    if not rows:
        return None
    lines = [
        (
            row["task"],
            row["order"],
            f"{100 * row['fraction_trained']:g}%",
            f"{row['score']:.3f}",
            f"{row['kept_seeds']} of {row['seeds']}",
            *(f"{100 * kept_at(row, share):.0f}%" for share in _PERCENT),
        )
        for row in rows
    ]
    columns = (
        "task",
        "removed by",
        "trained",
        "score",
        "seeds\nwith a share",
        *(f"without\n{100 * p:g}%" for p in _PERCENT),
    )
    note = (
        "Score of the whole model at that time (channel: F1; retrieval: 1 - NMSE), mean over all seeds, and the share "
        "of it kept without a part of the heads, rounded up to whole heads: mean over the seeds with a positive score, "
        "since of no other there is a share to keep."
    )
    return Cells("Score kept, by time of training", columns, tuple(lines), note)


def claims_cells(data: Mapping[str, Any]) -> Cells | None:
    """What was expected and what came out. None where nothing was run that could tell."""
    note = (
        "Expected: written down before the runs (`experiments/tries/__init__.py`); the verdict is what these seeds "
        "gave. Not decided: they leave open whether it is so of others. p: by exact sign flips over seeds; Holm: "
        "corrected for all comparisons of the table above, and decided by that at 5%. Thresholds are decided by the "
        "95% interval of their ratio, shares kept by Student's 95% interval of the mean over seeds, or of the "
        "difference. `split` has no test."
    )
    return claims.claims_cells(data, note)


BLOCKS = {
    "thresholds": markdown_of(threshold_cells),
    "paired": markdown_of(paired_cells),
    "dynamics": markdown_of(dynamics_cells),
    "claims": markdown_of(claims_cells),
}
"""Tables by name, for `experiments.readme`."""


def values(data: Mapping[str, Any]) -> dict[str, str]:
    """Every number of a run that prose may name, without the name of the source.

    ``threshold.ARM.rR.hH`` (of the greedy choice where there is one; ``.best.hH``, ``.joint.hH`` from `capacity`);
    ``ratio.ARM.rR.hH``: over the direct one; ``recovered.ARM.rR[.CHOICE]``, ``direct-recovered``; ``p.ARM.…`` and
    ``holm.ARM.…`` against direct runs, with ``.OTHER`` (and its choice) behind it against others; ``comparisons``, how
    many are tested, ``least-p`` and ``least-holm``, the smallest p-values there can be; ``num-seeds``;
    ``cut-f1.rR.CHOICE``: mean F1 of the cut channel; ``kept.TASK.ORDER.tT.pP``: percent of the score kept at T percent
    of training without P percent of the heads, ``kept-seeds.TASK.tT`` of how many seeds; ``score.TASK.tT``;
    ``claims.held``, ``claims.judged``, ``num-runs``.
    """
    out = {"num-runs": str(len(records(data, "points")))}
    thresholds = records(data, "thresholds")
    direct = {row["num_heads"]: row["measured_total_key_dim"] for row in select(thresholds, arm="direct")}
    for row in thresholds:
        if row["choice"] != _choice(row["arm"]):
            continue
        name = f"{row['arm']}.r{row['ratio']}.h{row['num_heads']}"
        found, base = row["measured_total_key_dim"], direct.get(row["num_heads"])
        out[f"threshold.{name}"] = "not reached" if found is None else f"{found:.1f}"
        out[f"ratio.{name}"] = "–" if found is None or base is None else f"{found / base:.2f}"
    for row in records(data, "yardsticks"):
        found = row["measured_total_key_dim"]
        name = f"threshold.{row['trainer']}.h{row['num_heads']}"
        out[name] = "not reached" if found is None else f"{found:.1f}"
    paired = records(data, "paired")
    for row in paired:
        name = f"{row['arm']}.r{row['ratio']}" + (f".{row['choice']}" if row["choice"] else "")
        out[f"recovered.{name}"] = f"{row['recovered']} of {row['problems']}"
        if row["other"] == "direct":
            out["direct-recovered"] = f"{row['other_recovered']} of {row['problems']}"
        else:
            name += f".{row['other']}" + (f".{row['other_choice']}" if row["other_choice"] else "")
        if row["p_value"] is not None:
            out |= {f"p.{name}": f"{row['p_value']:.2g}", f"holm.{name}": f"{row['holm']:.2g}"}
    if paired:
        tested = sum(row["p_value"] is not None for row in paired)
        out |= {"comparisons": str(tested), "num-seeds": str(paired[0]["seeds"])}
        out |= {
            "least-p": f"{least_p(paired):.2g}",
            "least-holm": f"{min(1.0, tested * least_p(paired)):.2g}",
        }
    cut: dict[str, list[float]] = {}
    for row in select(records(data, "arms"), arm="pruned"):
        if row["mean_cut_f1"] is not None:
            cut.setdefault(f"cut-f1.r{row['ratio']}.{row['choice']}", []).append(row["mean_cut_f1"])
    out |= {name: f"{sum(found) / len(found):.2f}" for name, found in cut.items()}
    for row in records(data, "curves"):
        time = f"t{100 * row['fraction_trained']:g}"
        out[f"score.{row['task']}.{time}"] = f"{row['score']:.3f}"
        out[f"kept-seeds.{row['task']}.{time}"] = f"{row['kept_seeds']} of {row['seeds']}"
        for share, kept in zip(row["fraction_pruned"], row["kept"], strict=True):
            out[f"kept.{row['task']}.{row['order']}.{time}.p{100 * share:.0f}"] = f"{100 * kept:.0f}%"
    return out | claims.claim_values(data)


def _choice(arm: str) -> str | None:
    """The choice that tables show: the greedy one, where heads are chosen."""
    return None if arm in ("direct", "restarts", "resumed") else "recomputed"
