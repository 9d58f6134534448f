"""Claims on what training does with heads: tries, redundancy."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.ledger.books import Books, Record
from experiments.ledger.entry import Entry, Part
from experiments.reading import select
from experiments.significance import holm

QUICK, REDUNDANCY = "tries/quick", "redundancy/quick"
KEPT = 0.85
"""Share of the score that counts as kept."""
WITHOUT = 0.4
"""Share of the heads that is taken away, rounded down to whole heads."""
SIGNIFICANT = 0.05


def kept(curve: Record, fraction: float) -> tuple[float, float]:
    """Share of the score kept without at most this share of the heads: mean over seeds, lower end."""
    at = max(i for i, value in enumerate(curve["fraction_pruned"]) if value <= fraction + 1e-9)
    return curve["kept"][at], curve["kept_low"][at]


def last_curves(books: Books, order: str) -> list[Record]:
    """Each task's curve at the end of training."""
    rows = select(books.rows(QUICK, "curves"), order=order)
    return [
        max(select(rows, task=task), key=lambda row: row["steps"])
        for task in sorted({r["task"] for r in rows})
    ]


def _tries(books: Books) -> Sequence[Part]:
    """Restarts have the direct run among them and cannot recover less: they are counted; other arms are tested."""
    names = {
        "restarts": "the best of {ratio} runs, {ratio} times the compute",
        "healed-compute": "choice among {ratio}h trained heads, trained on, at equal compute",
        "rewound": "first weights of the chosen heads alone (of {ratio}h)",
        "resumed": "the same run, resumed with fresh moments",
    }
    pairs = select(books.rows(QUICK, "paired"), other="direct")
    pairs = [row for arm in names for row in select(pairs, arm=arm) if row["choice"] in (None, "recomputed")]
    tested = [row for row in pairs if row["arm"] != "restarts"]
    corrected = iter(holm([row["p_value"] for row in tested]))
    parts = []
    for row in pairs:
        more = row["recovered"] > row["other_recovered"]
        said = "never fewer, having the direct run among them"
        if row in tested:
            p = next(corrected)
            more = more and p <= SIGNIFICANT
            said = f"p = {row['p_value']:.2g}, {p:.2g} as one of {len(tested)}"
        what = names[row["arm"]].format(ratio=row["ratio"])
        text = f"{what}: {row['recovered']} of {row['problems']}, direct {row['other_recovered']} ({said})"
        parts.append(Part(what, more, text))
    return parts


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
        (first, _), (last, low) = kept(rows[0], WITHOUT), kept(rows[-1], WITHOUT)
        text = (
            f"{task}: without {WITHOUT:.0%} of the heads {first:.0%} at first, {last:.0%} (least seed "
            f"{low:.0%}) at the end"
        )
        parts.append(Part(f"there at the end ({task})", last >= KEPT, text))
        parts.append(
            Part(
                f"not yet there early ({task})",
                first < KEPT,
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
    first, last = (row["bleu_kept"][at] for row in (rows[0], rows[-1]))
    least = rows[-1]["bleu_kept_low"][at]
    text = (
        f"translation: without {WITHOUT:.0%} of the heads {first:.0%} of the BLEU after "
        f"{rows[0]['fraction_trained']:.0%} of training, {last:.0%} (least model {least:.0%}) at the end"
    )
    return [
        Part("there at the end (translation)", last >= KEPT, text),
        Part(
            "not yet there early (translation)",
            first < KEPT,
            f"translation at BLEU {rows[0]['bleu']:.1f}, {rows[-1]['bleu']:.1f} at the end",
        ),
    ]


ENTRIES = (
    Entry(
        "tries",
        "Part of the gain of many heads is more tries during training.",
        f"recovers more graphs than direct training of h heads, by exact sign flips over seeds p <= {SIGNIFICANT} "
        "after Holm; the best of several direct runs by its number",
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
        f"at the end {KEPT:.0%} of the score is kept without {WITHOUT:.0%} of the heads; at the first "
        f"checkpoint it is not",
        (QUICK, REDUNDANCY),
        _emerges,
        "figures/tries/quick-dynamics",
        papers=("Michel et al. 2019",),
    ),
)
