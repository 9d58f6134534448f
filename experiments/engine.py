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
nothing but states that it goes on from after a kill (`experiments.checkpoints`), and raises only for mistakes: a run
that diverges is a record that says so. Records are dicts of JSON values, null where a number does not exist, with the
names of `Kind.fields`; where a record and its point have a name in common, their values agree (`Experiment.shown`).
``seconds`` is the one field that may differ between two computations.

Where the next point depends on answers (a search), override `Experiment.parts`: a part is a function that calls
``ask(points)`` as often as it likes and gets records in the order of the points. Parts run side by side in the order
given; the same parts with an ``ask`` that only looks into a store give the records of a run, finished or not.

Further hooks, all with defaults: `summary_of` (what is located from the records), `resolve` (check and complete a
configuration), `work` (of a batch of the grid), `program` (what a batch needs compiled: two workers then seldom
compile the same), `check_mesh`, `input_files`, `left_out` (what cannot be run here), `describe`, `group` and
`estimate` (what a watcher sees), `plots` and `tables`, or `plot` and `show` (what a reader sees).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from rich.console import Console

from experiments.claims import show_claims
from experiments.drawing import Drawn, draw_all
from experiments.points import Kind, Point, Record, to_units
from experiments.tables import Cells

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
    "regimes": "experiments.regimes.experiment:EXPERIMENT",
    "gap": "experiments.gap.experiment:EXPERIMENT",
    "fullscale": "experiments.fullscale.experiment:EXPERIMENT",
    "redundancy": "experiments.redundancy.experiment:EXPERIMENT",
}
"""Where each experiment is: ``module:attribute``."""

C = TypeVar("C")
Ask = Callable[[Sequence[Point]], list[Record]]
Rows = dict[str, list[Record]]


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


def costliest_first(parts: Iterable[Part]) -> list[Part]:
    """Parts in an order in which none is left for the end that takes long."""
    return sorted(parts, key=lambda part: -part.weight)


class Experiment(Generic[C]):
    """What an experiment tells the engine; see the module's docstring.

    Attributes:
        name: of its folders under ``runs/`` and ``figures/``.
        summary: one line.
        presets: configurations by name; ``smoke`` runs in seconds, ``quick`` in minutes.
        kinds: its kinds of points by name.
        plots: what draws each figure of a final file's contents, by name.
        tables: what makes each table of a final file's contents, None where it has no records for it.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    presets: Mapping[str, C]
    kinds: ClassVar[Mapping[str, Kind]]
    plots: ClassVar[Mapping[str, Callable[[Mapping[str, Any]], Drawn]]] = {}
    tables: ClassVar[Sequence[Callable[[Mapping[str, Any]], Cells | None]]] = ()

    def resolve(self, config: C, given: Collection[str]) -> C:
        """Complete and check a configuration of which the user named the fields ``given``; raise ValueError."""
        return config

    def points(self, config: C) -> Iterable[Point]:
        """All points of a grid, where the experiment is one."""
        raise NotImplementedError(f"{self.name}: expected points or parts to be defined")

    def parts(self, config: C, ask: Ask) -> list[Part]:
        """The experiment as parts: here every batch of the grid."""
        return [
            Part(self.describe(points, None), partial(ask, points), len(points), self.work(points))
            for _, points in to_units(self.kinds, self.points(config))
        ]

    def work(self, points: Sequence[Point]) -> float:
        """How much work a batch of the grid is beside others, about."""
        return 1.0

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

    def unpacked(self, rows: Rows) -> Rows:
        """The rows of a final file with what their batches need and other rows of the file hold, put back."""
        return rows

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
        return draw_all(self.name, self.plots, data, folder, stem) if self.plots else []

    def show(self, data: Mapping[str, Any], console: Console) -> None:
        """Print the tables of a final file's contents, and what was expected and found."""
        for make in self.tables:
            if (cells := make(data)) is not None:
                console.print(cells.rich())
        show_claims(console, data)


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


def _name_of(kinds: Mapping[str, Kind], point: Point) -> str:
    return next(name for name, kind in kinds.items() if type(point) is kind.point)
