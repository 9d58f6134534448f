"""Points, and the batches of them that are computed together.

A point is a frozen dataclass of JSON values: one run of an experiment. Points of one kind that differ only in fields
that a program takes as arrays (their `Kind.values`: seeds, learning rates) are one batch; all other fields decide
shapes or programs. A batch is written as a flat dict, its *unit*: the fields that its points share, without those that
are None, and its values. The unit is what a worker gets, what the store is keyed by and what `verify` runs again, so
it has to say everything that its records depend on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Unit = dict[str, Any]
Record = dict[str, Any]
Point = Any
"""An instance of a frozen dataclass whose fields are JSON values."""


@dataclass(frozen=True)
class Kind:
    """One kind of points of an experiment.

    Attributes:
        point: the frozen dataclass.
        fields: names that every record of it has.
        optional: further names that a record may have.
        values: fields of the point in which the points of one batch may differ.
        rows: where its records stand in the final file; the kind's name if None.
    """

    point: type
    fields: frozenset[str]
    optional: frozenset[str] = frozenset()
    values: tuple[str, ...] = ("seed",)
    rows: str | None = None


def to_units(kinds: Mapping[str, Kind], points: Iterable[Point]) -> list[tuple[Unit, list[Point]]]:
    """Group points into batches, in the order in which they first appear, each with its unit.

    Raises:
        TypeError: for a point of no kind of the experiment.
        ValueError: if a point is there twice.
    """
    groups: dict[tuple[Any, ...], list[Point]] = {}
    for point in points:
        name = _kind_of(kinds, point)
        values = kinds[name].values
        shared = tuple(
            getattr(point, field.name) for field in dataclasses.fields(point) if field.name not in values
        )
        groups.setdefault((name, *shared), []).append(point)
    batches = []
    for (name, *_), members in groups.items():
        if len(set(members)) < len(members):
            raise ValueError(f"points: expected different ones, got one of kind {name!r} twice in a batch")
        batches.append((_unit(name, kinds[name], members), members))
    return batches


def from_unit(kinds: Mapping[str, Kind], unit: Mapping[str, Any]) -> list[Point]:
    """The points of a batch.

    Raises:
        ValueError: if the unit is not one of this experiment.
    """
    rest = dict(unit)
    name = rest.pop("kind", None)
    if name not in kinds:
        raise ValueError(f"kind: expected one of {', '.join(kinds)}, got {name!r}")
    kind = kinds[name]
    values = {"seed": list(range(rest.pop("seeds")))} if "seeds" in rest else dict(rest.pop("values", {}))
    shared = {key: _frozen(value) for key, value in rest.items()}
    try:
        rows = zip(*values.values(), strict=True)
        return [kind.point(**shared, **dict(zip(values, row, strict=True))) for row in rows]
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"unit: expected fields of {kind.point.__name__}, got {dict(unit)}: {error}"
        ) from None


def _kind_of(kinds: Mapping[str, Kind], point: Point) -> str:
    for name, kind in kinds.items():
        if type(point) is kind.point:
            return name
    raise TypeError(f"points: expected one of kinds {', '.join(kinds)}, got {type(point).__name__}")


def _unit(name: str, kind: Kind, points: Sequence[Point]) -> Unit:
    """The unit of a batch; ``seeds: n`` stands for the seeds 0 to n - 1 where nothing else varies."""
    fields = [field.name for field in dataclasses.fields(points[0])]
    shared = {f: getattr(points[0], f) for f in fields if f not in kind.values}
    unit: Unit = {"kind": name} | {f: value for f, value in shared.items() if value is not None}
    values = {f: [getattr(point, f) for point in points] for f in kind.values}
    if values == {"seed": list(range(len(points)))}:
        return unit | {"seeds": len(points)}
    return unit | {"values": values}


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
