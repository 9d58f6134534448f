"""From a final file back to the results that a run goes on with.

Results under ``runs/`` are of one machine; what is committed is the final file. Where a preset is unfinished (hours of
work are left) or should be looked into batch by batch, its finished batches come back from there, each with the
environment that made it. What a final file does not keep is gone: what each batch took (their sum is kept with the
first one), and checkpoints of those under way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.collecting import units_of
from experiments.engine import Experiment
from experiments.points import Record
from experiments.store import Store


def restore(experiment: Experiment[Any], config: Any, data: Mapping[str, Any], store: Store) -> int:
    """Put the batches of a final file into a store that lacks them; returns how many.

    Args:
        experiment: whose file it is.
        config: of the file.
        data: contents of the file.
        store: open, of the same configuration.

    Raises:
        ValueError: if a batch's records are not all there, or are not its own.
    """
    made = data.get("provenance", {})
    computing = {} if len(store) else {"computing": data.get("computing")}
    restored = 0
    for unit, records in units_of(experiment, config, data["records"]):
        if store.get(unit) is not None:
            continue
        by = made.get(records[0].get("provenance"))
        notes = {} if by is None else {"environment": by["environment"]}
        store.put(unit, [_own(record) for record in records], notes | computing)
        computing = {}
        restored += 1
    return restored


def _own(record: Record) -> Record:
    return {name: value for name, value in record.items() if name != "provenance"}
