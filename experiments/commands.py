"""What the commands over one experiment do: run it or go on, collect what is there, restore, draw, tell, verify.

Each takes the options that `experiments.cli` has read, the words that it has not, and where to print, and returns the
exit status.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import tyro
from rich.console import Console

from experiments import mesh
from experiments.collecting import (
    asker,
    checker,
    config_from,
)
from experiments.computing import check_planned, file_hashes, same_files, work
from experiments.engine import EXPERIMENTS, load
from experiments.environment import configure
from experiments.files import (
    Run,
    claimed,
    finish,
    json_values,
    kept_store,
    places,
    read_final,
    refuse_another_run,
)
from experiments.points import from_unit
from experiments.progress import Watch, status_lines, unfinished_parts
from experiments.restoring import batches, check_contents, check_fields
from experiments.restoring import restore as restore_batches
from experiments.runner import Runner
from experiments.store import Store, canonical, read_lines
from experiments.tables import show_lines
from experiments.workers import choose, make_executor, stop_executor

INTERRUPTED = 130
"""Exit status of a run that was interrupted."""


def run(known: argparse.Namespace, rest: Sequence[str], console: Console) -> int:
    """Run an experiment, or go on with it."""
    experiment = load(known.name)
    preset = _preset(experiment, known.preset)
    config = tyro.cli(
        type(preset),
        default=preset,
        args=["--help"] if known.fields else list(rest),
        prog=f"python -m experiments run {known.name} --preset {known.preset}",
    )
    given = {
        re.sub("^--(no-)?", "", word.partition("=")[0]).replace("-", "_") for word in rest if word[:2] == "--"
    }
    _refuse_unbounded(config)
    config = experiment.resolve(config, given)
    _refuse_idle_options(known)
    if known.mesh:
        check_planned(experiment, config, mesh.parse_mesh(known.mesh))
    if known.coordinator:
        mesh.join(known.coordinator, known.num_processes, known.process_id)
    if known.mesh:
        configure()
        mesh.start(known.mesh)
        if jax.process_index() > 0:
            mesh.follow()
            return 0
    values = json_values(config)
    private = canonical(values) != canonical(json_values(preset)) or known.preset == "smoke"
    private = private or bool(experiment.left_out(config))
    results, final = places(experiment.name, known.preset, values, private, known.out)
    header = {"experiment": experiment.name, "preset": known.preset, "config": values}
    if files := file_hashes(experiment, config):
        header["files"] = files
    if known.mesh:
        at_a_time, make = None, lambda: (mesh.MeshExecutor(), 1)
    else:
        executor_name, workers = choose(known.executor, known.workers)
        at_a_time = workers if executor_name == "processes" else None
        say = lambda line: show_lines(console, [line])  # noqa: E731
        make = partial(make_executor, executor_name, workers, known.scheduler, say)
    command = ["python", "-m", "experiments", "run", known.name, "--preset", known.preset, *rest]
    if known.out is not None:
        command += ["--out", str(known.out)]
    runner = None
    try:
        with claimed(results, final, values, Store(results, header, checker(experiment))) as store:
            show_lines(console, kept_store(results, store))
            executor, width = make()
            parts = experiment.parts(config, lambda points: [])
            left = unfinished_parts(experiment, config, store.get)
            with Watch(console, parts, left, store.lines(), experiment, quiet=known.quiet) as watch:
                runner = Runner(
                    store,
                    executor,
                    partial(work, known.name, files),
                    watch.unit_done,
                    width=width + 2 if width > 1 else 1,
                    places=at_a_time,
                    program=lambda unit: experiment.program(from_unit(experiment.kinds, unit)),
                    restart=lambda: make()[0],
                )
                asking = experiment.parts(config, asker(experiment.kinds, runner.records))
                runner.run([part.run for part in asking], watch.part_done)
            finish(Run(experiment, config, known.preset, command, final), store, console)
    except KeyboardInterrupt:
        show_lines(
            console, [f"interrupted; finished batches are in {results}, the same command goes on from there"]
        )
        return INTERRUPTED
    finally:
        if runner is not None:
            stop_executor(runner.executor)
        mesh.stop()
    return 0


def _refuse_unbounded(config: Any) -> None:
    """NaN and infinities pass comparisons that are meant for numbers, and have no place in records."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, float) and not math.isfinite(one):
                raise ValueError(f"{field.name}: expected finite numbers, got {one}")


def _refuse_idle_options(known: argparse.Namespace) -> None:
    """Options of ``run`` that would not be heeded are mistakes."""
    if known.coordinator and not known.mesh:
        raise ValueError("mesh: expected the mesh that the processes of a coordinator make, got none")
    if known.mesh and (known.executor in ("dask", "processes") or known.workers):
        raise ValueError("executor: expected none beside --mesh, which computes in this process")
    if known.scheduler and known.executor != "dask":
        raise ValueError(f"scheduler: expected --executor dask beside it, got --executor {known.executor}")
    for name in ("num_processes", "process_id"):
        value = getattr(known, name)
        if value is not None and known.coordinator in (None, "auto"):
            got = "none" if known.coordinator is None else "auto, which finds it out"
            raise ValueError(f"{name}: expected --coordinator HOST:PORT beside {value}, got {got}")


def _preset(experiment: Any, name: str) -> Any:
    if name not in experiment.presets:
        raise ValueError(f"preset: expected one of {', '.join(experiment.presets)}, got {name!r}")
    return experiment.presets[name]


def collect(known: argparse.Namespace, _: Sequence[str], console: Console) -> int:
    """Write what an unfinished run has so far, and say what is missing."""
    results = Path(known.name) if known.name.endswith(".jsonl") else _only_store(known)
    header = read_lines(results)[0] if results.exists() else None
    if header is None:
        raise FileNotFoundError(f"{results}: expected results of a run, found none; run it first")
    name = header["experiment"] if known.name.endswith(".jsonl") else known.name
    experiment = load(name)
    config = config_from(experiment, header["config"])
    preset, values = header["preset"], json_values(config)
    changed = canonical(values) != canonical(json_values(_preset(experiment, preset)))
    private = changed or preset == "smoke" or bool(experiment.left_out(config))
    folder = (
        results.parent
        if known.out is None and results.parent != Path("runs") / experiment.name
        else known.out
    )
    expected, final = places(experiment.name, preset, values, private, folder)
    if expected.name != results.name:
        raise ValueError(
            f"{results}: expected the name {expected.name} of its configuration; was it renamed?"
        )
    refuse_another_run(final, values, rebuild=True)
    command = ["python", "-m", "experiments", "collect", known.name]
    if not private and folder is None:  # the file of an unchanged preset says how to get all of it
        command = ["python", "-m", "experiments", "run", experiment.name, "--preset", preset]
    elif not known.name.endswith(".jsonl"):
        command += ["--preset", preset]
    if known.out is not None:
        command += ["--out", str(known.out)]
    header = {k: v for k, v in header.items() if k != "schema"}
    with Store(results, header, checker(experiment), writable=False) as store:
        show_lines(console, kept_store(results, store))
        finish(Run(experiment, config, preset, command, final), store, console)
    return 0


def restore(known: argparse.Namespace, _: Sequence[str], console: Console) -> int:
    """Write the results that a run goes on with from its final file."""
    named = known.name.endswith(".json")
    path = Path(known.name) if named else Path("figures") / load(known.name).name / f"{known.preset}.json"
    data = read_final(path)
    check_contents(data, path)
    experiment = load(data["experiment"] if named else known.name)
    config, preset = config_from(experiment, data["config"]), data["preset"]
    values = json_values(config)
    changed = canonical(values) != canonical(json_values(_preset(experiment, preset)))
    results, final = places(experiment.name, preset, values, changed or preset == "smoke", known.out)
    header = {"experiment": experiment.name, "preset": preset, "config": values}
    if files := same_files(experiment, config, data, path):
        header["files"] = files
    lines = batches(experiment, config, data)
    with claimed(results, final, values, Store(results, header, checker(experiment))) as store:
        before, restored = len(store), restore_batches(lines, data.get("computing"), store)
    show_lines(console, [f"{results}: {restored} batches of {path}, beside {before} that were there"])
    return 0


def _only_store(known: argparse.Namespace) -> Path:
    """The results that ``--preset`` and ``--out`` mean: of a preset under ``runs/``, of anything under ``--out``."""
    experiment = load(known.name)
    if known.out is None:
        values = json_values(_preset(experiment, known.preset))
        return places(experiment.name, known.preset, values, False, None)[0]
    found = sorted(known.out.glob(f"{known.preset}-*.jsonl"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise ValueError(f"out: expected one file {known.preset}-*.jsonl in {known.out}, got {names}")
    return found[0]


def plot(known: argparse.Namespace, _: Sequence[str], console: Console) -> int:
    """Draw the figures of finished runs again."""
    experiment = load(known.name)
    folder = known.out or Path("figures") / experiment.name
    presets = [known.preset] if known.preset else list(experiment.presets)
    found = [name for name in presets if known.preset or (folder / f"{name}.json").exists()]
    if not found:
        raise FileNotFoundError(f"{folder}: expected the records of a finished run, found none; run it first")
    for name in found:
        path = folder / f"{name}.json"
        data = read_final(path)
        check_contents(data, path)
        check_fields(experiment, data, path)
        try:
            drawn = experiment.plot(data, path.parent, path.stem)
        except KeyError as error:  # of rows that are made of others, whose fields only figures know
            raise ValueError(
                f"{path}: expected records with the field {error}, got some without it"
            ) from error
        show_lines(console, [f"figure: {drawing}" for drawing in drawn])
    return 0


def status(known: argparse.Namespace, _: Sequence[str], console: Console) -> int:
    """Say what has been run, how far, and what came out."""
    folder = known.folder or known.out
    names = list(EXPERIMENTS) if known.experiment is None else [load(known.experiment).name]
    folders = [folder] if folder else [Path("runs") / name for name in names]
    found = sorted(path for folder in folders for path in folder.glob("*.jsonl"))
    for path in found:
        show_lines(console, status_lines(path, known.experiment))
    if not found:
        hint = (
            ""
            if folder or known.experiment
            else "; --experiment module:attribute looks for those of your own"
        )
        show_lines(console, [f"no runs in {', '.join(map(str, folders))}{hint}"])
    return 0
