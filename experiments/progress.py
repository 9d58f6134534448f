"""What a person, or a log, sees while an experiment runs, and of a run from its store alone."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from experiments.collecting import asker, checker, config_from
from experiments.engine import Experiment, Part, Unfinished, load
from experiments.points import Record, from_unit
from experiments.store import SCHEMA, Line, canonical, held, read_lines

LOG_EVERY = 10.0
"""Seconds between two lines in a log."""
SHOWN_ESTIMATES = 6
"""Latest estimates below the bar."""


def unfinished_parts(
    experiment: Experiment[Any], config: Any, get: Callable[[Any], list[Record] | None]
) -> list[int]:
    """Numbers of the parts of a run that are not in its store."""

    def look_up(unit: Any) -> list[Record]:
        records = get(unit)
        if records is None:
            raise Unfinished(canonical(unit))
        return records

    left = []
    for number, part in enumerate(experiment.parts(config, asker(experiment.kinds, look_up))):
        try:
            part.run()
        except Unfinished:
            left.append(number)
    return left


class Estimates:
    """The best estimate of everything that an experiment locates, from the points that are finished."""

    def __init__(self, experiment: Experiment[Any]) -> None:
        self._experiment = experiment
        self._groups: dict[str, tuple[list[Any], list[Record]]] = {}

    def add(self, unit: Any, records: Sequence[Record]) -> str | None:
        """Take in a unit; returns the group that it belongs to."""
        points = from_unit(self._experiment.kinds, unit)
        group = self._experiment.group(points[0])
        if group is not None:
            known = self._groups.setdefault(group, ([], []))
            known[0].extend(points)
            known[1].extend(records)
        return group

    def of(self, group: str) -> str:
        """The estimate of one group, for people."""
        return self._experiment.estimate(*self._groups[group])

    def all(self) -> dict[str, str]:
        """All estimates by group."""
        return {group: self.of(group) for group in self._groups}


class Watch:
    """Shows how far a run is, how fast, how long it will take and what it has found: a bar, or lines in a log.

    Args:
        console: where to show it.
        parts: all parts of the run.
        unfinished: numbers of those that are not in the store yet.
        known: finished units.
        experiment: describes and estimates.
        quiet: show nothing.
    """

    def __init__(
        self,
        console: Console,
        parts: Sequence[Part],
        unfinished: Sequence[int],
        known: Sequence[Line],
        experiment: Experiment[Any],
        *,
        quiet: bool = False,
    ) -> None:
        self._console = console
        self._parts = parts
        self._left = set(unfinished)
        self._experiment = experiment
        self._quiet = quiet
        self._points = sum(len(line.records) for line in known)
        self._computed = 0
        self._units = 0
        self._work = 0.0
        self._started = self._spoke = time.monotonic()
        self._lock = threading.Lock()
        self._estimates = Estimates(experiment)
        for line in known:
            self._estimates.add(line.unit, line.records)
        self._latest: dict[str, str] = {}
        self._live: Live | None = None
        if console.is_terminal and not quiet:
            self._bar = Progress(
                SpinnerColumn(),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("parts"),
                TimeElapsedColumn(),
                TextColumn("{task.description}"),
                console=console,
            )
            self._live = Live(self._bar, console=console, transient=True, refresh_per_second=4)

    def __enter__(self) -> Watch:
        if self._live is not None:
            self._task = self._bar.add_task(
                "starting", total=len(self._parts), completed=len(self._parts) - len(self._left)
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def part_done(self, number: int) -> None:
        """A part is done."""
        with self._lock:
            if number not in self._left:
                return
            self._left.remove(number)
            self._work += self._parts[number].weight
            if self._live is not None:
                self._bar.advance(self._task)

    def unit_done(self, unit: Any, records: Sequence[Record]) -> None:
        """A unit was computed."""
        with self._lock:
            self._units += 1
            self._points += len(records)
            self._computed += len(records)
            group = self._estimates.add(unit, records)
            now = time.monotonic()
            if self._quiet or (self._live is None and now - self._spoke < LOG_EVERY):
                return
            self._spoke = now
            text = self._experiment.describe(from_unit(self._experiment.kinds, unit), records)
            found = None if group is None else self._estimates.of(group)
            if self._live is None:
                found = "" if found is None else f"; {found}"
                self._console.print(
                    f"{now - self._started:6.0f} s  {self.state(now)}  {text}{found}",
                    highlight=False,
                    soft_wrap=True,
                    markup=False,
                )
                return
            if group is not None and found is not None:
                self._latest.pop(group, None)
                self._latest[group] = found
            table = Table.grid(padding=(0, 2))
            for name, value in list(self._latest.items())[-SHOWN_ESTIMATES:]:
                table.add_row(name, value)
            self._bar.update(self._task, description=f"{self.state(now)}  {text}")
            self._live.update(Group(self._bar, table))

    def state(self, now: float) -> str:
        """Parts and points done, rate and time left, as far as they are known."""
        seconds = now - self._started
        parts = f"{len(self._parts) - len(self._left)}/{len(self._parts)} parts"
        total = self._points + sum(self._parts[number].points for number in self._left)
        said = [parts, f"{self._points} of about {total} points"]
        if seconds > 0 and self._computed:
            said.append(f"{self._computed / seconds:.2g} points/s")
        if self._work > 0 and self._left:
            left = sum(self._parts[number].weight for number in self._left)
            said.append(f"about {duration(seconds * left / self._work)} left")
        return ", ".join(said)


def duration(seconds: float) -> str:
    """A time for people: 40 s, 12 min, 3.5 h, 2.1 days."""
    for size, unit, digits in ((86400, "days", 1), (3600, "h", 1), (60, "min", 0)):
        if seconds >= size * (2 if size == 86400 else 1):
            return f"{seconds / size:.{digits}f} {unit}"
    return f"{seconds:.0f} s"


def status_lines(path: Path, named: str | None = None) -> list[str]:
    """What is known of a run from its store, without touching it.

    Args:
        path: the store.
        named: where the experiment is, if it is not one of the project's own.
    """
    try:
        header, done, damaged, whole = read_lines(path)
        if header is None:
            return [f"{path}: empty"]
        if not isinstance(header, dict) or header.get("schema") != SCHEMA:
            schema = header.get("schema") if isinstance(header, dict) else header
            return [
                f"{path}: expected schema {SCHEMA}, got {schema!r}, written by another version or no results"
            ]
        try:
            experiment = load(named or header["experiment"])
        except ValueError as error:
            hint = "; if it is your own, name it by --experiment module:attribute"
            return [f"{path}: {error}{'' if named else hint}"]
        header, done, damaged, whole = read_lines(path, checker(experiment))
        config = config_from(experiment, header["config"])
        parts = experiment.parts(config, lambda points: [])
        left = unfinished_parts(experiment, config, lambda unit: _records(done, unit))
    except (ValueError, KeyError, TypeError) as error:
        return [f"{path}: {error}"]
    running = held(path)
    if running and not whole and damaged:
        damaged.pop(max(damaged))  # a line that is being written
    points = sum(len(line.records) for line in done.values())
    total = points + sum(parts[number].points for number in left)
    state = "running" if running else "finished" if not left else "stopped"
    lines = [
        f"{path}: {header['experiment']}, preset {header['preset']}, {state}",
        f"    {len(parts) - len(left)}/{len(parts)} parts, {len(done)} finished batches, "
        f"{points} of about {total} points{_pace(done, parts, left)}",
    ]
    then = "computed again by the next run" if left else "nothing is missing, it has been made good"
    lines += [f"    line {number}: {why}; {then}" for number, why in damaged.items()]
    estimates = Estimates(experiment)
    for line in done.values():
        with contextlib.suppress(ValueError):
            estimates.add(line.unit, line.records)
    return lines + [f"    {group}: {found}" for group, found in estimates.all().items()]


def number_of(value: Any) -> float | None:
    """A note that should be a number, or None: notes are anyone's."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def seconds_of(line: Line, name: str) -> float | None:
    """The time that a worker noted with a batch under a name, if it did."""
    times = line.notes.get("seconds")
    return number_of(times.get(name)) if isinstance(times, dict) else None


def _records(done: dict[str, Line], unit: Any) -> list[Record] | None:
    line = done.get(canonical(unit))
    return None if line is None else line.records


def _pace(done: dict[str, Line], parts: Sequence[Part], left: Sequence[int]) -> str:
    """When the last batch came, and how much computing time all of them took."""
    times = [at for line in done.values() if (at := number_of(line.notes.get("at"))) is not None]
    if not times:
        return ""
    spent = sum(seconds_of(line, "total") or 0.0 for line in done.values())
    return f", {duration(spent)} of computing, last batch {duration(max(0.0, time.time() - max(times)))} ago"
