"""Verdicts on what was expected, from the records alone; the expectations are in the package's docstring.

The rules are those written down before the runs. Where they compare numbers of problems they say what these seeds gave;
whether that says anything of others, the p-values beside them tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.claims import Claim, Verdict, judged
from experiments.points import Record
from experiments.reading import select
from experiments.significance import holm

Made = Mapping[str, Sequence[Record]]

WITHIN = 0.10
"""Thresholds no further apart than this share of the direct one count as the same."""


def claim_rows(made: Made) -> list[Record]:
    """One row a claim: ``verdict`` is ``held``, ``failed`` or ``not_run``."""
    return judged(CLAIMS, made)


def _split(made: Made) -> Verdict | None:
    rows = [row for row in select(made["arms"], arm="pruned") if row["mean_cut_f1"] is not None]
    if not rows:
        return None
    gaps = [row["mean_cut_f1"] - row["mean_split_f1"] for row in rows]
    recovered = sum(row["recovered"] for row in rows)
    problems = sum(row["seeds"] for row in rows)
    found = f"F1 minus that of the edges kept {min(gaps):+.2f} to {max(gaps):+.2f}; recovered {recovered} of {problems}"
    return max(map(abs, gaps)) <= 0.1 and recovered == 0, found


def _choice(made: Made) -> Verdict | None:
    cut = {
        choice: [row["mean_cut_f1"] for row in select(made["arms"], arm="pruned", choice=choice)]
        for choice in ("recomputed", "random")
    }
    pairs = [(a, b) for a, b in zip(*cut.values(), strict=True) if a is not None and b is not None]
    ratios = []
    for row in made["thresholds"]:
        if row["arm"] == "healed-steps" and row["choice"] != "recomputed":
            same = {name: row[name] for name in ("num_heads", "arm", "ratio")}
            [base] = select(made["thresholds"], choice="recomputed", **same)
            ratios += _ratio(row, base)
    if not pairs or not ratios:
        return None
    before = sum(a - b for a, b in pairs) / len(pairs)
    found = f"before healing {before:+.3f} F1 over random heads; thresholds after it {_span(ratios)} of the greedy one"
    if healed := _pairs(made, "healed-steps", "healed-steps", "random heads"):
        found += f"; healed, {healed}"
    return before > 0 and _near(ratios), found


def _steps(made: Made) -> Verdict | None:
    return _against_direct(made, "healed-steps")


def _rewound(made: Made) -> Verdict | None:
    return _against_direct(made, "rewound")


def _against_direct(made: Made, arm: str) -> Verdict | None:
    rows = select(made["thresholds"], arm=arm, choice="recomputed")
    direct = {row["num_heads"]: row for row in select(made["thresholds"], arm="direct")}
    if not rows or not direct:
        return None
    ratios = [ratio for row in rows for ratio in _ratio(row, direct[row["num_heads"]])]
    if not ratios:
        return None
    return _near(ratios), f"threshold over direct {_span(ratios)}; {_pairs(made, arm)}"


def _pairs(made: Made, arm: str, other: str = "direct", name: str = "direct") -> str:
    """Problems recovered beside another arm's, with p-values by seeds, corrected for the comparisons named."""
    rows = select(made["paired"], arm=arm, choice="recomputed", other=other)
    return "; ".join(
        f"H = {row['ratio']}h recovers {row['recovered']} of {row['problems']}, {name} {row['other_recovered']} "
        f"({_tested(row, corrected, len(rows))})"
        for row, corrected in zip(rows, holm([row["p_value"] for row in rows]), strict=True)
    )


def _tested(row: Record, corrected: float, count: int) -> str:
    text = f"p = {row['p_value']:.2g}"
    return text if count == 1 else f"{text}, {corrected:.2g} as one of {count}"


def _compute(made: Made) -> Verdict | None:
    rows = select(made["paired"], arm="healed-compute", choice="recomputed", other="direct")
    if not rows:
        return None
    held = all(row["recovered"] <= row["other_recovered"] for row in rows)
    return held, _pairs(made, "healed-compute")


def _restarts(made: Made) -> Verdict | None:
    rows = select(made["paired"], arm="restarts", ratio=4, other="healed-steps")
    if not rows:
        return None
    [row] = rows
    found = f"best of four {row['recovered']} of {row['problems']}, cut from 4h and healed {row['other_recovered']}"
    return row["recovered"] > row["other_recovered"], f"{found} (p = {row['p_value']:.2g})"


def _resumed(made: Made) -> Verdict | None:
    rows = select(made["paired"], arm="healed-compute", ratio=4, other="resumed")
    if not rows:
        return None
    [row] = rows
    found = f"resumed {row['other_recovered']} of {row['problems']}, cut {row['recovered']}"
    return row["other_recovered"] < row["recovered"], f"{found} (p = {row['p_value']:.2g})"


def _best(made: Made) -> Verdict | None:
    rows = [row for row in made["thresholds"] if row["best_total_key_dim"] is not None]
    reached = [row for row in rows if row["status"] == "reached"]
    if not reached:
        return None
    ratios = {
        (row["arm"], row["ratio"], row["num_heads"]): row["measured_total_key_dim"]
        / row["best_total_key_dim"]
        for row in reached
    }
    (arm, ratio, heads), least = min(ratios.items(), key=lambda item: item[1])
    found = f"nearest: {arm}, ratio {ratio}, h = {heads}, {least:.2f} times the best trainer's budget"
    return least > 1, found


def _channel(made: Made) -> Verdict | None:
    row = _last(made, "channel", "ablation")
    if row is None:
        return None
    kept = kept_at(row, 0.4)
    return kept < 0.85, f"{100 * kept:.0f}% of the F1 of {row['score']:.3f} kept without 40% of the heads"


def _retrieval(made: Made) -> Verdict | None:
    rows = _rows(made, "retrieval", "importance")
    if not rows:
        return None
    first, last = (kept_at(row, 0.375) for row in (rows[0], rows[-1]))
    found = (
        f"{100 * last:.0f}% kept at the end, {100 * first:.0f}% at the first checkpoint, without 3 of 8 heads"
    )
    return last >= 0.85 and last > first, found


def _rows(made: Made, task: str, order: str) -> list[Record]:
    return sorted(select(made["curves"], task=task, order=order), key=lambda row: row["steps"])


def _last(made: Made, task: str, order: str) -> Record | None:
    rows = _rows(made, task, order)
    return rows[-1] if rows else None


def kept_at(row: Mapping[str, Any], fraction: float) -> float:
    """Score kept (mean over seeds) at a fraction of removed heads, rounded up to whole heads."""
    removed = next(i for i, value in enumerate(row["fraction_pruned"]) if value >= fraction - 1e-9)
    return row["kept"][removed]


def _ratio(row: Record, base: Record) -> list[float | None]:
    """Threshold over another: None where it was not reached, nothing where neither was."""
    found, other = row["measured_total_key_dim"], base["measured_total_key_dim"]
    if other is None:
        return [] if found is None else [0.0]
    return [None if found is None else found / other]


def _near(ratios: Sequence[float | None]) -> bool:
    return all(ratio is not None and abs(ratio - 1) <= WITHIN for ratio in ratios)


def _span(ratios: Sequence[float | None]) -> str:
    known = [ratio for ratio in ratios if ratio is not None]
    text = f"{min(known):.2f} to {max(known):.2f}" if known else "–"
    missing = len(ratios) - len(known)
    return f"{text} ({missing} not reached)" if missing else text


CLAIMS = (
    Claim("split", "cut without healing: none recovers, F1 within 0.1 of that of the edges kept", _split),
    Claim("choice", "greedy beats random before healing; afterwards thresholds within 10%", _choice),
    Claim("equal steps", "cut and healed: threshold within 10% of direct training's", _steps),
    Claim("equal compute", "cut and healed: recovers no more often than direct training", _compute),
    Claim("restarts", "the best of four recovers more often than a channel cut from 4h heads", _restarts),
    Claim(
        "rewound",
        "kept heads from their initial weights: threshold within 10% of direct training's",
        _rewound,
    ),
    Claim(
        "resumed",
        "a second start alone recovers less often than a cut from 4h heads, equal compute",
        _resumed,
    ),
    Claim("best trainer", "no arm reaches its threshold", _best),
    Claim("channel", "less than 85% of F1 kept without 40% of the heads, at the end of training", _channel),
    Claim(
        "retrieval",
        "at least 85% of the score kept without 3 of 8 heads at the end, more than at first",
        _retrieval,
    ),
)
