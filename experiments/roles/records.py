"""What is made of the scores: roles, and what was expected against what came out."""

from __future__ import annotations

from experiments.engine import Ask, Rows
from experiments.points import Record
from experiments.roles.claims import claim_rows
from experiments.roles.config import RolesConfig
from experiments.roles.naming import NONE, roles


def summary(config: RolesConfig, ask: Ask, rows: Rows) -> Rows:
    """``roles``: one row a head with all its roles and the one that it is shown under; ``claims``."""
    named = role_rows(rows)
    return {"roles": named, "claims": claim_rows(rows | {"roles": named})}


def role_rows(rows: Rows) -> list[Record]:
    """Roles of every head."""
    found = []
    for record in rows["heads"]:
        names = roles(record, rows["dependency"])
        place = {name: record[name] for name in ("model", "layer", "head")}
        found.append(place | {"role": names[0] if names else NONE, "roles": names})
    return found
