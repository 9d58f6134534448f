"""From batches to the records of a run and back: what a batch's records must be, what a run has, what is compared."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.engine import Ask, Experiment, Rows, Unfinished
from experiments.points import Kind, Point, Record, Unit, from_unit, to_units
from experiments.store import Line, canonical, digest


def checker(experiment: Experiment[Any]) -> Callable[[Any, Any], None]:
    """A check that records are those of a unit: how many, their names, and what they share with their points."""

    def check(unit: Any, records: Any) -> None:
        points = from_unit(experiment.kinds, unit)
        kind = experiment.kinds[unit["kind"]]
        if not isinstance(records, list) or len(records) != len(points):
            got = len(records) if isinstance(records, list) else type(records).__name__
            raise ValueError(f"records: expected {len(points)}, got {got}")
        for point, record in zip(points, records, strict=True):
            names = set(record) - kind.optional
            if names != kind.fields:
                missing, more = sorted(kind.fields - names), sorted(names - kind.fields)
                raise ValueError(
                    f"records: expected the fields of {unit['kind']}, lacks {missing}, has {more}"
                )
            for name, value in experiment.shown(point).items():
                if value is not None and name in record and canonical(record[name]) != canonical(value):
                    raise ValueError(f"records: expected {name} = {value!r}, got {record[name]!r}")

    return check


def asker(kinds: Mapping[str, Kind], records_of: Callable[[Unit], list[Record]]) -> Ask:
    """An ``ask`` from a function that gives the records of one unit."""

    def ask(points: Sequence[Point]) -> list[Record]:
        batches = to_units(kinds, points)
        if len(batches) == 1:
            return records_of(batches[0][0])
        found = {}
        for unit, members in batches:
            found |= dict(zip(members, records_of(unit), strict=True))
        return [found[point] for point in points]

    return ask


def provenance(config_hash: str, notes: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a unit's records were made by and of; None where its line does not say (an older version wrote it)."""
    made = notes.get("environment")
    return None if made is None else {"config": config_hash, "environment": made}


def collect(
    experiment: Experiment[Any], config: Any, config_hash: str, get: Callable[[Unit], Line | None]
) -> tuple[Rows, list[str], dict[str, Any]]:
    """Records of a run from its finished units.

    Returns:
        Rows by name, the names of unfinished parts, and the provenances that records name by their ``provenance``.
    """
    batches: dict[str, tuple[str, list[Record]]] = {}
    made: dict[str, Any] = {}

    def look_up(unit: Unit) -> list[Record]:
        line = get(unit)
        if line is None:
            raise Unfinished(canonical(unit))
        by = provenance(config_hash, line.notes)
        name = None if by is None else digest(by)
        if name is not None:
            made[name] = by
        records = [{**record, "provenance": name} for record in line.records]
        batches[canonical(unit)] = (experiment.kinds[unit["kind"]].rows or unit["kind"], records)
        return records

    ask = asker(experiment.kinds, look_up)
    unfinished = []
    for part in experiment.parts(config, ask):
        try:
            part.run()
        except Unfinished:
            unfinished.append(part.name)
    rows: Rows = {kind.rows or name: [] for name, kind in experiment.kinds.items()}
    for name, records in batches.values():
        rows[name] += records
    return rows | experiment.summary_of(config, ask, rows), unfinished, made


def units_of(experiment: Experiment[Any], config: Any, rows: Rows) -> list[tuple[Unit, list[Record]]]:
    """The units of a final file, each with its records; without what is unfinished.

    Kinds that a file does not know, of a version before there were such, are unfinished.

    Raises:
        ValueError: if a unit's records are not all there.
    """
    found: dict[str, tuple[Unit, list[Record]]] = {}

    def look_up(unit: Unit) -> list[Record]:
        key = canonical(unit)
        if key not in found:
            points, kind = from_unit(experiment.kinds, unit), experiment.kinds[unit["kind"]]
            shown = [
                json.loads(canonical(experiment.shown(point))) for point in points
            ]  # tuples are lists there
            shared = {k: v for k, v in shown[0].items() if k not in kind.values and v is not None}
            own = [row for row in rows.get(kind.rows or unit["kind"], []) if _agrees(row, shared)]
            own = [
                row
                for point in shown
                for row in own
                if all(row[name] == point[name] for name in kind.values if name in row)
            ]
            if not own:
                raise Unfinished(key)
            if len(own) != len(points):
                what = experiment.describe(points, None)
                raise ValueError(f"records: expected {len(points)} of a batch ({what}), got {len(own)}")
            found[key] = (unit, own)
        return found[key][1]

    for part in experiment.parts(config, asker(experiment.kinds, look_up)):
        with contextlib.suppress(Unfinished):
            part.run()
    return list(found.values())


def _agrees(row: Record, values: Mapping[str, Any]) -> bool:
    return all(row[name] == value for name, value in values.items() if name in row)


def config_from(experiment: Experiment[Any], values: Mapping[str, Any]) -> Any:
    """A configuration from the JSON values of a header or final file.

    Raises:
        ValueError: if they are not those of today's configuration.
    """
    base = next(iter(experiment.presets.values()))
    names = {field.name for field in dataclasses.fields(base)}
    if set(values) != names:
        raise ValueError(
            f"config: expected the fields {sorted(names)}, got {sorted(values)}: another version wrote it"
        )
    return dataclasses.replace(base, **{k: _tuples(v) for k, v in values.items()})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
