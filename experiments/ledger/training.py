"""Claims on what training does with heads: tries, redundancy."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.intervals import Interval, at_least, below, student
from experiments.ledger.books import Books, Record
from experiments.ledger.entry import Entry, Part
from experiments.reading import select
from experiments.tries.claims import KEPT, SIGNIFICANT, tested
from experiments.tries.table import least_p
from mha_jax.analysis import num_pruned

QUICK, REDUNDANCY = "tries/quick", "redundancy/quick"
WITHOUT = 0.4
"""Share of the heads that is taken away, rounded up to whole heads."""


def kept(books: Books, curve: Record, fraction: float) -> Interval:
    """Share of the score kept without this share of the heads, rounded up to whole ones.

    Mean over the seeds with a positive score, Student's 95% interval.
    """
    at = num_pruned(fraction, curve["num_heads"])
    rows = select(books.rows(QUICK, "dynamics"), **{name: curve[name] for name in ("task", "order", "steps")})
    scores = [row["scores"] for row in rows if row["scores"] and row["scores"][0] > 0]
    return student([max(own[at], 0.0) / own[0] for own in scores])


def last_curves(books: Books, order: str) -> list[Record]:
    """Each task's curve at the end of training."""
    rows = select(books.rows(QUICK, "curves"), order=order)
    return [
        max(select(rows, task=task), key=lambda row: row["steps"])
        for task in sorted({r["task"] for r in rows})
    ]


def _tries(books: Books) -> Sequence[Part]:
    """Restarts are no part: the best of several runs, the direct one among them, cannot recover less."""
    names = {
        "healed-compute": "choice among {ratio}h trained heads, trained on, at equal compute",
        "rewound": "first weights of the chosen heads alone (of {ratio}h)",
        "resumed": "the same run, resumed with fresh moments",
    }
    made = books.rows(QUICK, "paired")
    pairs = select(made, other="direct")
    pairs = [row for arm in names for row in select(pairs, arm=arm) if row["choice"] in (None, "recomputed")]
    parts = []
    for row in pairs:
        more = row["recovered"] > row["other_recovered"] if row["holm"] <= SIGNIFICANT else None
        what = names[row["arm"]].format(ratio=row["ratio"])
        text = f"{what}: {row['recovered']} of {row['problems']}, direct {row['other_recovered']} ({tested(row)})"
        parts.append(Part(what, more, text))
    if not parts:
        return parts
    count = sum(row["p_value"] is not None for row in made)
    least = min(1.0, count * least_p(made))
    text = f"of {count} comparisons by {made[0]['seeds']} seeds Holm leaves no p below {least:.2g}"
    return [*parts[:-1], parts[-1]._replace(measured=f"{parts[-1].measured}; {text}")]


def _emerges(books: Books) -> Sequence[Part]:
    parts = []
    for task, order in (
        ("retrieval", "importance"),
        ("channel", "ablation"),
    ):
        rows = sorted(
            select(books.rows(QUICK, "curves"), task=task, order=order), key=lambda row: row["steps"]
        )
        if len(rows) < 2:
            continue
        first, last = (kept(books, row, WITHOUT) for row in (rows[0], rows[-1]))
        heads = rows[0]["num_heads"]
        removed = f"{num_pruned(WITHOUT, heads)} of {heads} heads"
        text = f"{task}: without {removed} {percent(first)} at first, {percent(last)} at the end"
        parts.append(Part(f"there at the end ({task})", at_least(KEPT, last.low, last.high), text))
        parts.append(
            Part(
                f"not yet there early ({task})",
                below(KEPT, first.low, first.high),
                f"{task} at {rows[0]['fraction_trained']:.1%} of training",
            )
        )
    return parts + _translation(books)


def _translation(books: Books) -> list[Part]:
    """The same of BLEU; the first checkpoint is the first that translates anything."""
    rows = [
        row
        for row in select(books.rows(REDUNDANCY, "curves"), order="importance")
        if row["bleu_kept"] is not None
    ]
    rows = sorted(rows, key=lambda row: row["steps"])
    if len(rows) < 2:
        return []
    at = rows[0]["fraction_pruned"].index(WITHOUT)
    first, last = (student([own[at] for own in row["bleu_by_seed"]]) for row in (rows[0], rows[-1]))
    heads = rows[0]["num_heads"]
    text = (
        f"translation: without {num_pruned(WITHOUT, heads)} of {heads} heads {percent(first)} of the BLEU after "
        f"{rows[0]['fraction_trained']:.0%} of training, {percent(last)} at the end"
    )
    return [
        Part("there at the end (translation)", at_least(KEPT, last.low, last.high), text),
        Part(
            "not yet there early (translation)",
            below(KEPT, first.low, first.high),
            f"translation at BLEU {rows[0]['bleu']:.1f}, {rows[-1]['bleu']:.1f} at the end",
        ),
    ]


def percent(value: Interval) -> str:
    """``95% [91–99%]``."""
    return f"{value.value:.0%} [{100 * value.low:.0f}–{100 * value.high:.0f}%]"


ENTRIES = (
    Entry(
        "tries",
        "Part of the gain of many heads is more tries during training.",
        f"recovers more graphs than direct training of h heads, by exact sign flips over seeds p <= {SIGNIFICANT} "
        "after Holm for all comparisons of the run (contradicted: fewer, by the same test)",
        (QUICK,),
        _tries,
        "figures/tries/quick-recovery",
        16,
    ),
    Entry(
        "emerges",
        "Redundancy appears in training: early on performance falls with every head removed, later 40% can go "
        "at 85% to "
        "90% of it.",
        f"at the end {KEPT:.0%} of the score is kept without {WITHOUT:.0%} of the heads, rounded up; at the first "
        f"checkpoint it is not; by the 95% interval of the mean over seeds",
        (QUICK, REDUNDANCY),
        _emerges,
        "figures/tries/quick-dynamics",
        papers=("Michel et al. 2019",),
    ),
)
