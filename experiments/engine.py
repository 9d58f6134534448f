"""The engine under every experiment: points in, records out, whatever happens in between.

To write an experiment, say what its points are, what a batch of them computes, and which are wanted; running side by
side, resuming, watching, verifying, provenance and the command line come with it:

    @dataclass(frozen=True)
    class Point:                                  # one run; JSON values
        width: int                                # decides shapes: points that differ here are other batches
        rate: float                               # an array of the program, like seed: see Kind.values
        seed: int

    @dataclass(frozen=True)
    class Config:                                 # every field is an option of the command line
        widths: tuple[int, ...] = (4, 8)
        seeds: int = 8

    class Example(Experiment[Config]):
        name = "example"
        summary = "one line for `list`"
        presets = {"smoke": Config(widths=(4,)), "quick": Config()}
        kinds = {"points": Kind(Point, frozenset({"width", "rate", "seed", "loss"}), values=("rate", "seed"))}

        def points(self, config):                 # a grid; each batch of it is a part that runs beside the others
            return [Point(w, r, s) for w in config.widths for r in (0.1, 0.3) for s in range(config.seeds)]

        def compute(self, points):                # one batch, in a worker: one record a point, in their order
            losses = program(points[0].width)(jnp.array([p.rate for p in points]), ...)     # vmapped over the batch
            return [asdict(p) | {"loss": float(loss)} for p, loss in zip(points, losses)]

    EXPERIMENT = Example()

Then name it in `EXPERIMENTS`, or run it from anywhere: ``python -m experiments run my_module:EXPERIMENT --out DIR``.
Every worker imports it: on a cluster the module has to be in the folder from which workers are started, or installed.

Rules of a batch. Its points share all fields but ``Kind.values``, so one compiled program serves it; a program that
also serves other batches (padded to a common width) is compiled once a process, and kept between processes
(`experiments.environment`). A batch is computed whole, always of the same points, so records do not depend on what
else runs. ``compute`` depends on nothing but the points (and files that `Experiment.input_files` names), writes
nothing, and raises only for mistakes: a run that diverges is a record that says so. Records are dicts of JSON values,
null where a number does not exist, with the names of `Kind.fields`; where a record and its point have a name in
common, their values agree (`Experiment.shown`). ``seconds`` is the one field that may differ between two computations.

Where the next point depends on answers (a search), override `Experiment.parts`: a part is a function that calls
``ask(points)`` as often as it likes and gets records in the order of the points. Parts run side by side in the order
given; the same parts with an ``ask`` that only looks into a store give the records of a run, finished or not.

Further hooks, all with defaults: `summary_of` (what is located from the records), `resolve` (check and complete a
configuration), `program` (what a batch needs compiled: two workers then seldom compile the same), `check_mesh`,
`input_files`, `left_out` (what cannot be run here), `describe`, `group` and `estimate` (what a watcher sees), `plot`
and `show` (what a reader sees).
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import jax
from rich.console import Console

from experiments.environment import compile_clock, configure, environment, keep_programs
from experiments.mesh import current_mesh, mesh_text
from experiments.points import Kind, Point, Record, Unit, from_unit, to_units
from experiments.store import Line, canonical, digest

EXPERIMENTS = {
    "capacity": "experiments.capacity.experiment:EXPERIMENT",
    "cache": "experiments.cache.experiment:EXPERIMENT",
    "retrieval": "experiments.retrieval.experiment:EXPERIMENT",
    "roles": "experiments.roles.experiment:EXPERIMENT",
    "pruning": "experiments.pruning.experiment:EXPERIMENT",
    "tries": "experiments.tries.experiment:EXPERIMENT",
    "audit": "experiments.audit.experiment:EXPERIMENT",
    "rank": "experiments.rank.experiment:EXPERIMENT",
    "bands": "experiments.bands.experiment:EXPERIMENT",
    "constructions": "experiments.constructions.experiment:EXPERIMENT",
    "relations": "experiments.relations.experiment:EXPERIMENT",
    "conversion": "experiments.conversion.experiment:EXPERIMENT",
    "translation": "experiments.translation.experiment:EXPERIMENT",
    "softmax": "experiments.softmax.experiment:EXPERIMENT",
    "block": "experiments.block.experiment:EXPERIMENT",
    "certificates": "experiments.certificates.experiment:EXPERIMENT",
    "joint": "experiments.joint.experiment:EXPERIMENT",
    "fullscale": "experiments.fullscale.experiment:EXPERIMENT",
}
"""Where each experiment is: ``module:attribute``."""

C = TypeVar("C")
Ask = Callable[[Sequence[Point]], list[Record]]
Rows = dict[str, list[Record]]
NOT_COMPARED = ("seconds", "seconds_per_step", "provenance")
"""Fields of a record that a second computation may change."""


class Unfinished(LookupError):
    """A batch that is not there, where none is to be computed."""


@dataclass(frozen=True)
class Part:
    """A part of an experiment that can go on beside the others.

    Attributes:
        name: what it finds out, for people.
        run: does it.
        points: how many points it takes, about.
        weight: how much work it is beside other parts, about.
    """

    name: str
    run: Callable[[], Any]
    points: int = 1
    weight: float = 1.0


class Experiment(Generic[C]):
    """What an experiment tells the engine; see the module's docstring.

    Attributes:
        name: of its folders under ``runs/`` and ``figures/``.
        summary: one line.
        presets: configurations by name; ``smoke`` runs in seconds, ``quick`` in minutes.
        kinds: its kinds of points by name.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    presets: Mapping[str, C]
    kinds: ClassVar[Mapping[str, Kind]]

    def resolve(self, config: C, given: Collection[str]) -> C:
        """Complete and check a configuration of which the user named the fields ``given``; raise ValueError."""
        return config

    def points(self, config: C) -> Iterable[Point]:
        """All points of a grid, where the experiment is one."""
        raise NotImplementedError(f"{self.name}: expected points or parts to be defined")

    def parts(self, config: C, ask: Ask) -> list[Part]:
        """The experiment as parts: here every batch of the grid."""
        return [
            Part(self.describe(points, None), lambda points=points: ask(points), points=len(points))
            for _, points in to_units(self.kinds, self.points(config))
        ]

    def compute(self, points: Sequence[Point]) -> list[Record]:
        """The records of one batch, in the order of its points."""
        raise NotImplementedError(f"{self.name}: expected compute to be defined")

    def check_mesh(self, points: Sequence[Point], mesh: Mapping[str, int]) -> None:
        """Raise ValueError if a batch cannot be computed on a mesh of these sizes by axis."""

    def shown(self, point: Point) -> Record:
        """A point's fields as its record shows them."""
        return {field.name: getattr(point, field.name) for field in dataclasses.fields(point)}

    def program(self, points: Sequence[Point]) -> Hashable:
        """What a batch needs compiled: batches that say the same share it. None where that is nothing of note."""
        return None

    def summary_of(self, config: C, ask: Ask, rows: Rows) -> Rows:
        """Records that are made of the others; ``ask`` looks into the finished batches alone."""
        return {}

    def input_files(self, config: C) -> list[str]:
        """Files that the configuration names. Results of a file that has changed are another run's."""
        return []

    def left_out(self, config: C) -> list[Record]:
        """What cannot be run here: rows of ``what``, ``why`` and ``how_to_get``."""
        return []

    def describe(self, points: Sequence[Point], records: Sequence[Record] | None) -> str:
        """One line on a batch, or on what came of it."""
        values = self.kinds[_name_of(self.kinds, points[0])].values
        shared = ", ".join(f"{k} = {v}" for k, v in self.shown(points[0]).items() if k not in values)
        return f"{shared}: {len(points)} points"

    def group(self, point: Point) -> str | None:
        """What the point helps to locate (a threshold), if anything."""
        return None

    def estimate(self, points: Sequence[Point], records: Sequence[Record]) -> str:
        """The best estimate of what a group locates, from all of its points that are finished."""
        return f"{len(records)} points"

    def plot(self, data: Mapping[str, Any], folder: Path, stem: str) -> list[Path]:
        """Draw the figures of a final file's contents; returns the paths."""
        return []

    def show(self, data: Mapping[str, Any], console: Console) -> None:
        """Print the tables of a final file's contents."""


def load(name: str) -> Experiment[Any]:
    """An experiment by its name, or by ``module:attribute``.

    Raises:
        ValueError: if there is none.
    """
    module, colon, attribute = EXPERIMENTS.get(name, name).partition(":")
    if not colon:
        raise ValueError(f"name: expected one of {', '.join(EXPERIMENTS)} or module:attribute, got {name!r}")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"name: expected an experiment at {name!r}, got {error}") from error
    if not isinstance(found, Experiment):
        raise ValueError(f"name: expected an Experiment at {name!r}, got {type(found).__name__}")
    return found


class Answer(NamedTuple):
    """What a worker sends back: a unit's records, and what is noted with them."""

    records: list[Record]
    notes: dict[str, Any]


def work(name: str, files: Mapping[str, str], unit: Unit) -> Answer:
    """Compute one unit in this process, wherever that is.

    Args:
        name: of the experiment, as `load` takes it.
        files: SHA-256 of the files of the run: on another machine they might be others.
        unit: the batch.

    Raises:
        ValueError: if the experiment cannot be imported here, or a file is not the one that the run began with.
    """
    configure()
    programs = keep_programs()
    try:
        experiment = load(name)
    except ValueError as error:
        raise ValueError(
            f"{error}; the worker on {platform.node()} in {os.getcwd()} needs the same module: start workers in its "
            "folder, or install it (or name its folder in PYTHONPATH) where they run"
        ) from error
    for path, expected in files.items():
        if _sha256(path) != expected:
            raise ValueError(f"{path}: expected the file that the run began with, got another one")
    if programs is not None:
        programs.fetch()
    clock = compile_clock()
    clock.take()
    started = time.perf_counter()
    records = experiment.compute(from_unit(experiment.kinds, unit))
    seconds = {"total": round(time.perf_counter() - started, 3), "compiling": round(clock.take(), 3)}
    if programs is not None:
        programs.publish()
    made = environment()
    if (mesh := current_mesh()) is not None:
        made |= {"mesh": mesh_text(mesh), "processes": jax.process_count()}
    return Answer(records, {"environment": made, "seconds": seconds, "at": round(time.time(), 3)})


def file_hashes(experiment: Experiment[Any], config: Any) -> dict[str, str]:
    """SHA-256 of every file that a configuration names."""
    return {path: _sha256(path) for path in sorted(set(experiment.input_files(config)))}


def _sha256(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


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


def check_planned(experiment: Experiment[Any], config: Any, mesh: Mapping[str, int]) -> None:
    """Check on a mesh what is known before anything is computed: every grid, and where every search begins.

    Raises:
        ValueError: naming the part and why its batch does not fit.
    """
    asked: list[Sequence[Point]] = []

    def ask(points: Sequence[Point]) -> list[Record]:
        asked.append(points)
        raise Unfinished

    for part in experiment.parts(config, ask):
        asked.clear()
        with contextlib.suppress(Unfinished):
            part.run()
        for points in asked:
            for _, batch in to_units(experiment.kinds, points):
                try:
                    experiment.check_mesh(batch, mesh)
                except ValueError as error:
                    raise ValueError(f"mesh: expected one that fits {part.name}; {error}") from error


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
            own = [row for row in rows[kind.rows or unit["kind"]] if _agrees(row, shared)]
            own = [
                row
                for point in shown
                for row in own
                if all(row[name] == point[name] for name in kind.values if name in row)
            ]
            if not own:
                raise Unfinished(key)
            if len(own) != len(points):
                raise ValueError(f"records: expected {len(points)} of {key}, got {len(own)}")
            found[key] = (unit, own)
        return found[key][1]

    for part in experiment.parts(config, asker(experiment.kinds, look_up)):
        with contextlib.suppress(Unfinished):
            part.run()
    return list(found.values())


def _agrees(row: Record, values: Mapping[str, Any]) -> bool:
    return all(row[name] == value for name, value in values.items() if name in row)


def comparable(record: Record, kind: Kind) -> str:
    """What has to be the same when a record is computed again."""
    return canonical({k: v for k, v in record.items() if k not in NOT_COMPARED and k in kind.fields})


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


def _name_of(kinds: Mapping[str, Kind], point: Point) -> str:
    return next(name for name, kind in kinds.items() if type(point) is kind.point)
