"""The `certificates` experiment's results as tables: for the terminal and, the same, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments import claims
from experiments.reading import records, select
from experiments.tables import Cells, markdown_of

_VERDICTS = ("separable", "inseparable", "undecided")
CAVEAT = (
    "For two heads or more a failed partition certifies that partition, never the head count: heads that choose their "
    "edges hold more."
)


def places_cells(data: Mapping[str, Any]) -> Cells | None:
    """One row for each d and head count. None without half-way points."""
    rows = records(data, "places")
    if not rows:
        return None
    lines = []
    for row in rows:
        measured = "–"
        if row["measured_num_items"] is not None:
            measured = f"{row['measured_num_items']:.1f} [{row['ci_low']:.1f}–{row['ci_high']:.1f}]"
        own = select(records(data, "curves"), d_model=row["d_model"], num_heads=row["num_heads"])
        lines.append(
            (
                str(row["d_model"]),
                str(row["num_heads"]),
                f"{row['predicted_num_items']:.1f}",
                measured,
                "–" if row["ratio"] is None else f"{row['ratio']:.3f}",
                f"{row['predicted_range']:.1f}",
                "–" if row["measured_range"] is None else f"{row['measured_range']:.1f}",
                f"{sum(r['undecided'] for r in own)} of {sum(r[name] for r in own for name in _VERDICTS)}",
            )
        )
    columns = (
        "d",
        "heads",
        "predicted",
        "measured",
        "ratio",
        "range\npredicted",
        "range\nmeasured",
        "undecided",
    )
    note = (
        "Items at which half of the random even partitions are held by heads of full rank, with 95% interval, decided "
        f"exactly; range: from 90% to 10% held. {CAVEAT}"
    )
    return Cells("Half-way points of dealt edges", columns, tuple(lines), note)


def claims_cells(data: Mapping[str, Any]) -> Cells | None:
    """What was expected and what came out. None where nothing was run that could tell."""
    note = "Expected: written down before the runs (`experiments/certificates/__init__.py`)."
    return claims.claims_cells(data, note)


def values(data: Mapping[str, Any]) -> dict[str, str]:
    """Every number of a run that prose may name, without the name of the source.

    ``place.d16.h2``: measured half-way point (``-interval``, ``-predicted``, ``-ratio``); ``limit`` and
    ``limit-interval``: of the ratio at infinite d, all head counts together (``limit.h2`` for one); ``partitions``,
    ``undecided``, ``failed``, ``failed-proven``; ``claims.held``, ``claims.judged``.
    """
    points = records(data, "points")
    failed = select(points, verdict="inseparable")
    out = {
        "partitions": f"{len(points):,}",
        "undecided": str(len(select(points, verdict="undecided"))),
        "failed": str(len(failed)),
        "failed-proven": str(sum(row["proven"] for row in failed)),
    }
    for row in records(data, "places"):
        name = f"place.d{row['d_model']}.h{row['num_heads']}"
        out[f"{name}-predicted"] = f"{row['predicted_num_items']:.1f}"
        if row["ratio"] is not None:
            out[name] = f"{row['measured_num_items']:.1f}"
            out[f"{name}-interval"] = f"{row['ci_low']:.1f} to {row['ci_high']:.1f}"
            out[f"{name}-ratio"] = f"{row['ratio']:.3f}"
    for row in records(data, "drift"):
        name = "limit" if row["num_heads"] is None else f"limit.h{row['num_heads']}"
        out[name] = f"{row['limit']:.3f}"
        out[f"{name}-interval"] = f"{row['limit_low']:.3f} to {row['limit_high']:.3f}"
        out[f"{name}-slope"] = f"{row['slope']:.2f}"
    return out | claims.claim_values(data)


BLOCKS = {"places": markdown_of(places_cells), "claims": markdown_of(claims_cells)}
"""Tables by name, for `experiments.readme`."""
