"""What is made of the trained runs: one row a curve's point, over seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.engine import Rows
from experiments.points import Record
from experiments.relations.claims import claim_rows

IDENTITY = ("num_relations", "num_heads", "total_key_dim", "readout", "values", "attention")


def summary(rows: Rows) -> Rows:
    """Curves (one row a configuration) and claims."""
    groups: dict[tuple[object, ...], list[Record]] = {}
    for row in rows["points"]:
        groups.setdefault(tuple(row[name] for name in IDENTITY), []).append(row)
    curves = [_row(members) for members in groups.values()]
    return {"curves": curves, "claims": claim_rows(rows["points"], curves)}


def _row(members: Sequence[Record]) -> Record:
    first = members[0]
    out = {name: first[name] for name in (*IDENTITY, "predicted_error_floor", "floor_binds")}
    ok = [row for row in members if row["error"] is not None]
    out |= {"runs": len(members), "failed": len(members) - len(ok)}
    for name in ("error", "accuracy"):
        values = [_error(row) if name == "error" else row[name] for row in ok]
        for end, take in (("least", np.min), ("median", np.median), ("largest", np.max)):
            out[f"{end}_{name}"] = float(take(values)) if values else None
    return out


def _error(row: Record) -> float:
    """The exact expectation where there is one."""
    return row["error"] if row["expected_error"] is None else row["expected_error"]
