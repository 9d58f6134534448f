"""Computing a batch of an experiment: in a worker, wherever that is, with what was noted of how it was done."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from experiments.engine import Experiment, Unfinished, load
from experiments.environment import compile_clock, configure, environment, keep_programs
from experiments.mesh import current_mesh, mesh_text
from experiments.points import Point, Record, Unit, from_unit, to_units
from experiments.store import canonical


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
    """SHA-256 of every file that a configuration names.

    Raises:
        FileNotFoundError: if one is not there.
    """
    return {path: _sha256(path) for path in sorted(set(experiment.input_files(config)))}


def same_files(
    experiment: Experiment[Any], config: Any, data: Mapping[str, Any], path: Path
) -> dict[str, str]:
    """`file_hashes`, where they are those that a final file's records were made of.

    Args:
        experiment: that made the records.
        config: theirs.
        data: contents of the final file.
        path: where it is, for the message.

    Raises:
        FileNotFoundError: if a file is not there.
        ValueError: if one has changed.
    """
    files = file_hashes(experiment, config)
    if files != data.get("files", {}):
        raise ValueError(
            f"files: expected those that {path} was made of, {canonical(data.get('files', {}))}, got {canonical(files)}"
        )
    return files


def _sha256(path: str) -> str:
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: expected a file that the configuration names, got none")
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


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
