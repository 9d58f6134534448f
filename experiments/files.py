"""Where runs have their files, and the file that a run ends with."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock
from rich.console import Console

from experiments.collecting import collect
from experiments.engine import Experiment
from experiments.environment import versions
from experiments.progress import number_of, seconds_of
from experiments.store import (
    SCHEMA,
    Line,
    Store,
    canonical,
    digest,
    held,
    read_lines,
    write_json,
)
from experiments.tables import show_lines


@dataclass(frozen=True)
class Run:
    """A run as its final file describes it."""

    experiment: Experiment[Any]
    config: Any
    preset: str
    command: Sequence[str]
    final: Path


def json_values(config: Any) -> dict[str, Any]:
    """A configuration as JSON gives it back."""
    return json.loads(canonical(dataclasses.asdict(config)))


def places(name: str, preset: str, values: Any, private: bool, out: Path | None) -> tuple[Path, Path]:
    """Where a run appends, and where its final file goes."""
    stem = f"{preset}-{digest(values)}"
    if out is not None:
        return out / f"{stem}.jsonl", out / f"{preset}.json"
    folder = Path("runs") / name
    final = folder / digest(values) if private else Path("figures") / name
    return folder / f"{stem}.jsonl", final / f"{preset}.json"


def refuse_another_run(final: Path, values: Mapping[str, Any], *, rebuild: bool = False) -> None:
    """Figures and records of one folder are of one run.

    Args:
        final: the run's final file.
        values: its configuration.
        rebuild: the file is written from the store in any case, so it may be damaged.

    Raises:
        ValueError: if the final file there is of another configuration, or (without ``rebuild``) damaged.
    """
    if final.exists() and final.parent.parts[:1] != ("figures",):
        try:
            found = _read_object(final).get("config")
        except ValueError:
            if rebuild:
                return
            raise
        if canonical(found) != canonical(values):
            raise ValueError(
                f"out: expected a folder of the same run, got {final} of another one; use another --out"
            )


def refuse_another_store(results: Path, final: Path) -> None:
    """Where the final file stands beside the results, there are no results of another run.

    Results without a finished batch are none, unless a process is at work on them.

    Raises:
        ValueError: naming the other run's results.
    """
    if final.parent != results.parent:
        return
    for other in sorted(results.parent.glob("*.jsonl")):
        if other.name == results.name:
            continue
        try:
            header, lines, _, _ = read_lines(other)
        except ValueError:  # no results of a run
            continue
        if isinstance(header, dict) and "experiment" in header and (lines or held(other)):
            raise ValueError(
                f"out: expected a folder of the same run, got {other} of another one; use another --out"
            )


@contextlib.contextmanager
def claimed(results: Path, final: Path, values: Mapping[str, Any], store: Store) -> Iterator[Store]:
    """Open a run's store in a folder of no other run. Of runs that begin at a time in one folder, one is the first.

    Raises:
        ValueError: as `refuse_another_run`, `refuse_another_store` and `Store`; or if the folder cannot be written.
        RuntimeError: as `Store`.
    """
    _make_folder(results.parent)
    with contextlib.ExitStack() as stack:
        with FileLock(results.parent / ".folder.lock", timeout=60):
            refuse_another_run(final, values)
            refuse_another_store(results, final)
            stack.enter_context(store)
        yield store


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        why = None if os.access(folder, os.W_OK) else "no permission to write there"
    except OSError as error:
        why = error.strerror
    if why is not None:
        raise ValueError(f"out: expected a folder that can be written, got {folder} ({why})")


def read_final(path: Path) -> dict[str, Any]:
    """The contents of a final file.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if it is damaged or of another schema.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: expected the records of a finished run, found none; run it first")
    data = _read_object(path)
    if data.get("schema") != SCHEMA:
        raise ValueError(f"{path}: expected schema {SCHEMA}, got {data.get('schema')!r}")
    return data


def _read_object(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except ValueError as error:  # also of bytes that are no text
        got = str(error)
    else:
        if isinstance(data, dict):
            return data
        got = type(data).__name__
    raise ValueError(
        f"{path}: expected the records of a finished run, got a damaged file ({got}); "
        "`collect` writes it again from the results"
    )


def _no_number(name: str) -> None:
    """NaN and infinities are no JSON, and never in what a run writes."""
    raise ValueError(f"the number {name}")


def kept_store(path: Path, store: Store) -> list[str]:
    """What to say of a store that a run goes on with."""
    said = [
        f"{path}: line {number}: {why}; what it held is computed again"
        for number, why in store.damaged.items()
    ]
    if len(store):
        said.append(f"going on with {len(store)} finished batches of {path}")
    now, before = (
        versions(),
        [made for line in store.lines() if isinstance(made := line.notes.get("environment"), dict)],
    )
    for name in now:
        others = sorted({str(made[name]) for made in before if made.get(name, now[name]) != now[name]})
        if others:
            said.append(f"some of them were made with {name} {', '.join(others)}, this is {now[name]}")
    return said


def finish(run: Run, store: Store, console: Console) -> None:
    """Write the final file and the figures of what a store holds, and show the tables."""
    values = json_values(run.config)
    lines = {canonical(line.unit): line for line in store.lines()}
    rows, unfinished, made = collect(
        run.experiment, run.config, digest(values), lambda unit: lines.get(canonical(unit))
    )
    data = {
        "experiment": run.experiment.name,
        "preset": run.preset,
        "schema": SCHEMA,
        "command": shlex.join(run.command),
        "config": values,
        "config_hash": digest(values),
        "versions": versions(),
        "provenance": made,
        "computing": _computing(list(lines.values())),
        "left_out": run.experiment.left_out(run.config),
        "unfinished": unfinished,
        "records": rows,
    }
    if files := store.header.get("files"):
        data["files"] = files
    refuse_another_run(run.final, values, rebuild=True)  # also what came there meanwhile
    try:
        write_json(run.final, data)
    except OSError as error:
        why = f"{error.strerror}; what is finished is kept in {store.path}, the same command writes the rest"
        raise OSError(error.errno, why, str(run.final)) from error
    drawn = run.experiment.plot(data, run.final.parent, run.final.stem)
    run.experiment.show(data, console)
    show_lines(
        console,
        ["", f"records: {run.final}", *(f"figure:  {path}" for path in drawn if path.suffix == ".png")],
    )
    for row in data["left_out"]:
        show_lines(console, [f"left out: {row['what']} ({row['why']}); to get it: {row['how_to_get']}"])
    if unfinished:
        show_lines(console, [f"unfinished: {len(unfinished)} parts; the same run goes on with them"])


def _computing(lines: Sequence[Line]) -> dict[str, Any]:
    """Time that workers spent on the batches whose lines say so: in all, and compiling.

    The line of a restored batch may say it of all that were restored with it.
    """
    times = [total for line in lines if (total := seconds_of(line, "total")) is not None]
    own = {
        "batches": len(times),
        "seconds": sum(times),
        "compiling_seconds": sum(seconds_of(line, "compiling") or 0.0 for line in lines),
    }
    for line in lines:
        if isinstance(before := line.notes.get("computing"), dict):
            own = {name: value + (number_of(before.get(name)) or 0) for name, value in own.items()}
    return {name: round(value, 3) for name, value in own.items()}
