"""Verdicts on what was expected, from the records alone; the expectations are in the package's docstring.

The rules are those written down before the runs: they say what these seeds gave. Whether that says anything of others,
``decided`` tells: arms that are compared on the same problems by exact sign flips over seeds, after Holm's correction
for all comparisons of the record, at 5%; thresholds by the 95% interval of their ratio; shares kept by Student's 95%
interval of the mean over seeds, or of the differences of two times. A conjunction that failed is decided
if one of its parts is, one that held if all are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.claims import Claim, Verdict, judged
from experiments.intervals import Interval, above, at_least, below, every, ratio, student
from experiments.points import Record
from experiments.reading import select
from mha_jax.analysis import num_pruned

Made = Mapping[str, Sequence[Record]]

WITHIN = 0.10
"""Thresholds no further apart than this share of the direct one count as the same."""
SIGNIFICANT = 0.05
"""Corrected p-values up to this decide."""
KEPT = 0.85
"""Share of the score that counts as kept."""


def claim_rows(made: Made) -> list[Record]:
    """One row a claim: ``verdict`` is ``held``, ``failed`` or ``not_run``.

    ``decided``: whether the seeds decide the verdict; None where it was not run, or nothing tests it.
    """
    rows = judged(CLAIMS, made)
    return [row | {"decided": _decided(row, made)} for row in rows]


def _decided(row: Record, made: Made) -> bool | None:
    """Whether what the seeds say of a claim (True, False, None: nothing) is its verdict."""
    if row["verdict"] == "not_run" or row["claim"] not in DECIDED:
        return None
    return DECIDED[row["claim"]](made) == (row["verdict"] == "held")


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
    """Problems recovered beside another arm's, with p-values by seeds."""
    return "; ".join(
        f"H = {row['ratio']}h recovers {row['recovered']} of {row['problems']}, {name} {row['other_recovered']} "
        f"({tested(row)})"
        for row in select(made["paired"], arm=arm, choice="recomputed", other=other)
    )


def tested(row: Mapping[str, Any]) -> str:
    """P-value of a comparison, and the same corrected for all comparisons of the record: ``p = 0.12, Holm 1``."""
    return f"p = {row['p_value']:.2g}, Holm {row['holm']:.2g}"


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
    return row["recovered"] > row["other_recovered"], f"{found} ({tested(row)})"


def _resumed(made: Made) -> Verdict | None:
    rows = select(made["paired"], arm="healed-compute", ratio=4, other="resumed")
    if not rows:
        return None
    [row] = rows
    found = f"resumed {row['other_recovered']} of {row['problems']}, cut {row['recovered']}"
    return row["other_recovered"] < row["recovered"], f"{found} ({tested(row)})"


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
    kept, heads = kept_at(row, 0.4), row["num_heads"]
    found = f"{100 * kept:.0f}% of the F1 of {row['score']:.3f} kept without {num_pruned(0.4, heads)} of {heads} heads"
    return kept < KEPT, found


def _retrieval(made: Made) -> Verdict | None:
    rows = _rows(made, "retrieval", "importance")
    if not rows:
        return None
    first, last = (kept_at(row, 0.375) for row in (rows[0], rows[-1]))
    found = (
        f"{100 * last:.0f}% kept at the end, {100 * first:.0f}% at the first checkpoint, without 3 of 8 heads"
    )
    return last >= KEPT and last > first, found


def _rows(made: Made, task: str, order: str) -> list[Record]:
    return sorted(select(made["curves"], task=task, order=order), key=lambda row: row["steps"])


def _last(made: Made, task: str, order: str) -> Record | None:
    rows = _rows(made, task, order)
    return rows[-1] if rows else None


def kept_at(row: Mapping[str, Any], fraction: float) -> float:
    """Score kept (mean over seeds) at a fraction of removed heads, rounded up to whole heads."""
    return row["kept"][num_pruned(fraction, row["num_heads"])]


def _threshold_decided(made: Made, arm: str, choice: str) -> bool | None:
    """Whether an arm's thresholds are within 10% of direct training's (or of the greedy choice's), by intervals."""
    parts: list[bool | None] = []
    for row in select(made["thresholds"], arm=arm):
        if choice == "recomputed" and row["choice"] == choice:
            [base] = select(made["thresholds"], arm="direct", num_heads=row["num_heads"])
        elif choice == "other" and row["choice"] != "recomputed":
            same = {name: row[name] for name in ("num_heads", "arm", "ratio")}
            [base] = select(made["thresholds"], choice="recomputed", **same)
        else:
            continue
        found = _over(row, base)
        if found is None:
            parts.append(None)
        elif found.low >= 1 - WITHIN and found.high <= 1 + WITHIN:
            parts.append(True)
        else:
            parts.append(False if found.high < 1 - WITHIN or found.low > 1 + WITHIN else None)
    return every(parts)


def _over(row: Record, base: Record) -> Interval | None:
    """A threshold over another with the 95% interval; None where one of them or a bound is not known.

    As of independent estimates: problems that both share make it too wide rather than too narrow.
    """
    names = ("measured_total_key_dim", "ci_low", "ci_high")
    ends = [[own[name] for name in names] for own in (row, base)]
    if any(not end for own in ends for end in own):
        return None
    return ratio(*(Interval(*own) for own in ends))


def _more(made: Made, want: int, **which: Any) -> bool | None:
    """Whether an arm recovers more (``want`` 1) or fewer (-1) problems than another in every comparison named."""
    parts: list[bool | None] = []
    for row in select(made["paired"], **which):
        sign = row["recovered"] - row["other_recovered"]
        parts.append(sign * want > 0 if row["holm"] <= SIGNIFICANT else None)
    return every(parts)


def _best_decided(made: Made) -> bool | None:
    """Whether all thresholds that were reached lie above the best trainer's, by intervals."""
    parts: list[bool | None] = []
    for row in select(made["thresholds"], status="reached"):
        for best in select(made["yardsticks"], num_heads=row["num_heads"], trainer="best"):
            found = _over(row, best)
            parts.append(None if found is None else above(1.0, found.low, found.high))
    return every(parts)


def _channel_decided(made: Made) -> bool | None:
    found = student(list(_shares(_rows(made, "channel", "ablation")[-1], 0.4).values()))
    return below(KEPT, found.low, found.high)


def _retrieval_decided(made: Made) -> bool | None:
    rows = _rows(made, "retrieval", "importance")
    first, last = (_shares(row, 0.375) for row in (rows[0], rows[-1]))
    end = student(list(last.values()))
    parts = [at_least(KEPT, end.low, end.high)]
    gain = student([last[seed] - first[seed] for seed in first if seed in last])
    return every([*parts, above(0.0, gain.low, gain.high)])


def _shares(row: Mapping[str, Any], fraction: float) -> dict[int, float]:
    """Share kept by each seed that has one, by the seed's place."""
    at = num_pruned(fraction, row["num_heads"])
    return {place: own[at] for place, own in enumerate(row["kept_by_seed"]) if own is not None}


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

DECIDED: Mapping[str, Callable[[Made], bool | None]] = {
    "choice": lambda made: _threshold_decided(made, "healed-steps", "other"),
    "equal steps": lambda made: _threshold_decided(made, "healed-steps", "recomputed"),
    "equal compute": lambda made: _more(made, -1, arm="healed-compute", choice="recomputed", other="direct"),
    "restarts": lambda made: _more(made, 1, arm="restarts", ratio=4, other="healed-steps"),
    "rewound": lambda made: _threshold_decided(made, "rewound", "recomputed"),
    "resumed": lambda made: _more(made, 1, arm="healed-compute", ratio=4, other="resumed"),
    "best trainer": _best_decided,
    "channel": _channel_decided,
    "retrieval": _retrieval_decided,
}
"""What the seeds decide of a claim, by its name; ``split`` is of every problem alone and has no test."""
