"""What is made of the trained channels: one row an arm, over seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.bands.claims import claim_rows
from experiments.engine import Rows
from experiments.points import Record

IDENTITY = ("graph", "trainer", "num_edges", "d_model", "num_heads", "total_key_dim")


def summary(rows: Rows) -> Rows:
    """Arms (one row a configuration) and claims."""
    groups: dict[tuple[object, ...], list[Record]] = {}
    for row in rows["points"]:
        groups.setdefault(tuple(row[name] for name in IDENTITY), []).append(row)
    return {"arms": [_arm(members) for members in groups.values()], "claims": claim_rows(rows["points"])}


def _arm(members: Sequence[Record]) -> Record:
    out = {name: members[0][name] for name in IDENTITY}
    out |= {"runs": len(members), "exact": sum(row["exact_recovery"] for row in members)}
    out["above_chance"] = sum(row["information"] > row["shuffled_high"] for row in members)
    names = ("information", "shuffled_mean", "shuffled_high", "query_overlap", "key_overlap")
    for name in (*names, "random_overlap", "random_low", "random_high", "heads_used", "best_f1"):
        values = [row[name] for row in members if row[name] is not None]
        out[f"median_{name}"] = float(np.median(values)) if values else None
    return out
