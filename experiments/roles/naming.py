"""Names for what heads do, by thresholds on their scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from experiments.reading import Record

MARGIN = 0.1
"""By how much a syntactic head beats the best fixed offset (Voita et al. 2019)."""
FEWEST_WORDS = 30
"""Words of a relation on the second half, without which no head is called syntactic for it (ours)."""


@dataclass(frozen=True)
class Rule:
    """A role that a head has where a score of its record is above a threshold.

    Attributes:
        score: field of the record, or a ratio ``a/b`` of two.
        threshold: the score has to be above it.
        source: of the threshold.
        elsewhere: whether a head whose ``offset`` is 0 has no score: it looks at itself.
    """

    score: str
    threshold: float
    source: str
    elsewhere: bool = False


RULES = {
    "induction": Rule("induction", 0.5, "ours"),
    "previous": Rule("previous", 0.5, "Clark et al. 2019"),
    "next": Rule("next", 0.5, "Clark et al. 2019"),
    "self": Rule("self", 0.5, "ours, as for its neighbours"),
    "delimiter": Rule("delimiter", 0.6, "Clark et al. 2019, for separators or punctuation alone"),
    "first": Rule("first", 0.6, "Clark et al. 2019, for [CLS]"),
    "positional": Rule("offset_share", 0.9, "Voita et al. 2019", elsewhere=True),
    "broad": Rule(
        "entropy/uniform_entropy", 0.78, "Clark et al. 2019: 3.8 nats, where uniform attention has 4.85"
    ),
}
"""Roles that scores give, in the order in which one is chosen for a head that has several."""
ORDER = (*(name for name in RULES if name not in ("positional", "broad")), "syntactic", "positional", "broad")
NONE = "none"


def score(record: Mapping[str, float | None], rule: Rule) -> float | None:
    """A rule's score of a head; None where it has none."""
    if rule.elsewhere and record.get("offset") == 0:
        return None
    over, _, under = rule.score.partition("/")
    values = [record.get(name) for name in (over, under) if name]
    if any(value is None for value in values):
        return None
    return float(values[0] if len(values) == 1 else values[0] / values[1])  # type: ignore[operator, arg-type]


def roles(record: Record, dependencies: Iterable[Record]) -> list[str]:
    """All roles of a head, in `ORDER`; empty if it has none.

    Args:
        record: its scores.
        dependencies: rows of the model's dependency table; the head is syntactic where one of them names it and its
            accuracy, on words that it was not chosen on, beats the best offset by `MARGIN`.
    """
    found = {
        name
        for name, rule in RULES.items()
        if (value := score(record, rule)) is not None and value > rule.threshold
    }
    place = record["model"], record["layer"], record["head"]
    if any(syntactic(row) and (row["model"], row["layer"], row["head"]) == place for row in dependencies):
        found.add("syntactic")
    return [name for name in ORDER if name in found]


def syntactic(row: Record, value: str = "accuracy") -> bool:
    """Whether a row of the dependency table is of a head that knows more than a fixed offset.

    ``value``: ``accuracy``, or ``ci_low`` for whether even the lower end of its interval does.
    """
    return (
        row["accuracy"] is not None
        and row["relation"] != "all"
        and row["count"] >= FEWEST_WORDS
        and row[value] - row["offset_accuracy"] >= MARGIN
    )


def typical(records: Iterable[Record], dependencies: Iterable[Record]) -> dict[str, tuple[int, int]]:
    """The most typical head ``(layer, head)`` of every role that some head of a model has.

    Largest score; of syntactic ones the largest margin over the offset.
    """
    rows = list(records)
    found = {}
    for name, rule in RULES.items():
        scored = [(value, row) for row in rows if (value := score(row, rule)) is not None]
        best = max(scored, key=lambda pair: pair[0], default=None)
        if best is not None and best[0] > rule.threshold:
            found[name] = best[1]["layer"], best[1]["head"]
    knowing = [row for row in dependencies if syntactic(row)]
    if knowing:
        best_row = max(knowing, key=lambda row: row["accuracy"] - row["offset_accuracy"])
        found["syntactic"] = best_row["layer"], best_row["head"]
    return {name: found[name] for name in ORDER if name in found}
