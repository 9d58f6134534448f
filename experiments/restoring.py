"""From a final file back to the results that a run goes on with.

Results under ``runs/`` are of one machine; what is committed is the final file. Where a preset is unfinished (hours of
work are left) or should be looked into batch by batch, its finished batches come back from there, each with the
environment that made it. What a final file does not keep is gone: what each batch took (their sum is kept with the
first one), and checkpoints of those under way. Whatever else would be lost (rows that the batches found here do not
give, records of files that have changed) is an error, and then nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.collecting import checker, collect, units_of
from experiments.engine import Experiment
from experiments.points import Record
from experiments.store import Line, Store, canonical


def check_contents(data: Mapping[str, Any], path: Path) -> None:
    """Check that a final file has what batches are made of.

    Raises:
        ValueError: naming the file, and what is missing or of another type.
    """
    for name, kind in (("experiment", str), ("preset", str), ("config", dict), ("records", dict)):
        if not isinstance(data.get(name), kind):
            raise ValueError(
                f"{path}: {name}: expected a JSON {_WORDS[kind]}, got {type(data.get(name)).__name__}: a damaged file"
            )
    for name, rows in data["records"].items():
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ValueError(f"{path}: records: expected rows of {name}, got something else: a damaged file")
    made = data.get("provenance", {})
    if not isinstance(made, dict) or not all(isinstance(by, dict) for by in made.values()):
        raise ValueError(
            f"{path}: provenance: expected a JSON object of objects, got another one: a damaged file"
        )


def check_fields(experiment: Experiment[Any], data: Mapping[str, Any], path: Path) -> None:
    """Check that the records of every kind in a final file have its fields.

    Raises:
        ValueError: naming the file and the field.
    """
    try:
        found = experiment.unpacked(data["records"])
    except KeyError as error:
        raise ValueError(f"{path}: expected records with the field {error}, got some without") from error
    for name, kind in experiment.kinds.items():
        rows = found.get(kind.rows or name, [])
        lacking = sorted({field for row in rows for field in kind.fields - row.keys()})
        if lacking:
            raise ValueError(
                f"{path}: expected records of {name} with the fields {', '.join(lacking)}, got some without: "
                "damaged, or of another version"
            )


_WORDS = {str: "string", dict: "object"}


def batches(experiment: Experiment[Any], config: Any, data: Mapping[str, Any]) -> list[Line]:
    """The finished batches of a final file.

    Args:
        experiment: whose file it is.
        config: of the file.
        data: contents of the file, as `check_contents` wants them.

    Raises:
        ValueError: if a batch's records are not all there or are not its own, or if rows of the file would be lost.
    """
    made, check, lines = data.get("provenance", {}), checker(experiment), []
    try:
        rows = experiment.unpacked(data["records"])
        for unit, records in units_of(experiment, config, rows):
            by = made.get(records[0].get("provenance"))
            own = [_own(record) for record in records]
            check(unit, own)
            lines.append(Line(unit, own, {} if by is None else {"environment": by.get("environment")}))
        at = {canonical(line.unit): line for line in lines}
        given, _, _ = collect(experiment, config, "", lambda unit: at.get(canonical(unit)))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"records: expected those of a run, got damaged ones ({type(error).__name__}: {error})"
        ) from None
    absent = [kind.rows or name for name, kind in experiment.kinds.items() if (kind.rows or name) not in rows]
    if absent and not lines:
        raise ValueError(f"records: expected batches, got none: the file has no rows of {', '.join(absent)}")
    lost = {
        name: len(found) - len(given.get(name, []))
        for name, found in data["records"].items()
        if len(given.get(name, [])) < len(found)
    }
    if lost:
        said = ", ".join(f"{count} of {name}" for name, count in lost.items())
        here = "; ".join(f"{row['what']}: {row['how_to_get']}" for row in experiment.left_out(config))
        raise ValueError(
            f"records: expected batches that give all of them, got none for {said}"
            + (f"; left out here: {here}" if here else "")
        )
    return lines


def restore(lines: list[Line], computing: Any, store: Store) -> int:
    """Put batches into a store that lacks them; returns how many.

    Args:
        lines: of `batches`.
        computing: the time that all of them took, from the final file; kept where the store is new.
        store: open.
    """
    left = [line for line in lines if store.get(line.unit) is None]
    notes = {"computing": computing} if isinstance(computing, dict) and not len(store) else {}
    for line in left:
        store.put(line.unit, line.records, line.notes | notes)
        notes = {}
    return len(left)


def _own(record: Record) -> Record:
    return {name: value for name, value in record.items() if name != "provenance"}
