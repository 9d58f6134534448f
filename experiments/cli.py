"""Commands: ``list``, ``run``, ``collect``, ``plot``, ``status``, ``verify``, and those over all experiments.

The latter: ``plan``, ``figures``, ``paper``, ``claims``, ``report``.

A run appends to ``runs/NAME/PRESET-<config hash>.jsonl`` (or under ``--out``), and when it is complete writes
``PRESET.json`` and the figures: into ``figures/NAME/`` for an unchanged preset, into ``--out`` where one is given, else
beside its results under ``runs/``. A private run so never overwrites a committed result.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import random
import re
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import tyro
from rich.console import Console

from experiments import everything, mesh, plan
from experiments.engine import (
    EXPERIMENTS,
    asker,
    check_planned,
    checker,
    comparable,
    config_from,
    file_hashes,
    load,
    units_of,
    work,
)
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
from experiments.progress import Watch, show_lines, status_lines, unfinished_parts
from experiments.runner import BatchError, Runner
from experiments.store import Store, canonical, read_lines
from experiments.workers import EXECUTORS, choose, make_executor, stop_executor

INTERRUPTED = 130


def main(argv: Sequence[str]) -> int:
    """Run one command; returns the exit status: 0, 1 for a finding, 2 for a bad request, 130 when interrupted."""
    console = Console(stderr=False)
    parser = _parser()
    if argv and argv[0] in _WHOLE:  # these read their own options
        return _said_errors(lambda: _WHOLE[argv[0]](argv[1:], console))
    known, rest = parser.parse_known_args(argv)
    if known.command != "run" and rest:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    return _said_errors(lambda: _COMMANDS[known.command](known, rest, console))


def _said_errors(command: Callable[[], int]) -> int:
    try:
        return command()
    except (ValueError, OSError, RuntimeError) as error:
        said = [f"error: {error}"]
        if (
            isinstance(error, BatchError) and error.__cause__ is not None
        ):  # also of code that is not this project's
            said = ["".join(traceback.format_exception(error.__cause__)), *said]
        show_lines(Console(stderr=True), said)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description="Run, resume, plot and check experiments.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="experiments and their presets")
    commands.add_parser(
        "plan", help="how many heads, of which size, for a layer; `plan --help` lists its options"
    )
    claims = commands.add_parser(
        "claims", help="write CLAIMS.md from the committed records", allow_abbrev=False
    )
    claims.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 where CLAIMS.md differs"
    )
    report = commands.add_parser(
        "report", help="write one HTML page with figures, claims and an interactive part", allow_abbrev=False
    )
    report.add_argument("--out", type=Path, help="file of the page (default: build/report.html)")
    run = commands.add_parser(
        "run",
        help="run an experiment, or go on with it; `run NAME --fields` lists the fields that can be overridden",
        allow_abbrev=False,
    )
    plot = commands.add_parser("plot", help="draw the figures of a finished run again", allow_abbrev=False)
    status = commands.add_parser(
        "status", help="what has been run, how far, what came out", allow_abbrev=False
    )
    verify = commands.add_parser(
        "verify", help="compute some batches of a finished run again and compare", allow_abbrev=False
    )
    collect = commands.add_parser(
        "collect", help="write records and figures of what an unfinished run has so far", allow_abbrev=False
    )
    for command in (run, plot, verify, collect):
        what = "an experiment's name, or module:attribute"
        if command is verify:
            what += ", or a .json file of records"
        if command is collect:
            what += ", or a .jsonl file of results"
        command.add_argument("name", help=what)
        if command is plot:
            command.add_argument("--preset", help="a preset's name (default: all that are there)")
        else:
            command.add_argument(
                "--preset", default="quick", help="a preset's name, see `list` (default: quick)"
            )
    status.add_argument(
        "folder", nargs="?", type=Path, help="folder of runs (default: those under runs/ of each experiment)"
    )
    status.add_argument("--experiment", help="module:attribute of an experiment that `list` does not know")
    for command in (run, plot, status, verify, collect):
        command.add_argument("--out", type=Path, help="folder of a private run")
    run.add_argument(
        "--executor",
        choices=EXECUTORS,
        default="auto",
        help="where batches are computed (default auto: processes on a CPU, in-process on an accelerator)",
    )
    run.add_argument(
        "--workers",
        type=int,
        help="processes; 0 computes in this one (default: one for each core); with dask: batches under way",
    )
    run.add_argument(
        "--scheduler", help="address of a Dask scheduler, such as tcp://HOST:8786, or its file (.json)"
    )
    run.add_argument(
        "--mesh", help="devices that compute each batch together, such as data=2,head=2 (also row)"
    )
    run.add_argument(
        "--coordinator",
        help="HOST:PORT of the first of several processes of a mesh, or auto where a cluster tells",
    )
    run.add_argument("--num-processes", type=int, help="how many processes the mesh has")
    run.add_argument("--process-id", type=int, help="which of them this is; 0 is the run, the others help")
    run.add_argument("--quiet", action="store_true", help="no progress display")
    run.add_argument("--fields", action="store_true", help="list the fields that can be overridden")
    verify.add_argument(
        "--batches", type=int, default=3, help="how many, drawn at random (default 3; 0 for all)"
    )
    verify.add_argument("--seed", type=int, help="of the draw (default: another one each time)")
    return parser


def _list(_: argparse.Namespace, __: Sequence[str], console: Console) -> int:
    for name in EXPERIMENTS:
        experiment = load(name)
        show_lines(
            console, [f"{name}: {experiment.summary}", f"    presets: {', '.join(experiment.presets)}"]
        )
    return 0


def _run(known: argparse.Namespace, rest: Sequence[str], console: Console) -> int:
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


def _collect(known: argparse.Namespace, _: Sequence[str], console: Console) -> int:
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


def _plot(known: argparse.Namespace, _: Sequence[str], console: Console) -> int:
    experiment = load(known.name)
    folder = known.out or Path("figures") / experiment.name
    presets = [known.preset] if known.preset else list(experiment.presets)
    found = [name for name in presets if known.preset or (folder / f"{name}.json").exists()]
    if not found:
        raise FileNotFoundError(f"{folder}: expected the records of a finished run, found none; run it first")
    for name in found:
        path = folder / f"{name}.json"
        drawn = experiment.plot(read_final(path), path.parent, path.stem)
        show_lines(console, [f"figure: {drawing}" for drawing in drawn])
    return 0


def _status(known: argparse.Namespace, _: Sequence[str], console: Console) -> int:
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


def _verify(known: argparse.Namespace, __: Sequence[str], console: Console) -> int:
    """Compute batches of a finished run again: all fields but ``seconds`` have to be the same."""
    if known.batches < 0:
        raise ValueError(f"batches: expected a positive number, or 0 for all, got {known.batches}")
    named = known.name.endswith(".json")
    path = Path(known.name) if named else None
    if path is None:
        path = (known.out or Path("figures") / load(known.name).name) / f"{known.preset}.json"
    data = read_final(path)
    name = data["experiment"] if named else known.name
    experiment = load(name)
    config = config_from(experiment, data["config"])
    units = units_of(experiment, config, data["records"])
    seed = random.randrange(10**6) if known.seed is None else known.seed
    chosen = units
    if 0 < known.batches < len(units):
        chosen = random.Random(seed).sample(units, known.batches)
        show_lines(console, [f"{len(chosen)} of {len(units)} batches, drawn with --seed {seed}"])
    files = file_hashes(experiment, config)
    executor, _ = make_executor("processes", 1)
    different = 0
    try:
        for unit, expected in chosen:
            try:
                got = executor.submit(work, name, files, unit).result().records
            except Exception as error:
                raise BatchError(f"batch {canonical(unit)}: {type(error).__name__}: {error}") from error
            kind = experiment.kinds[unit["kind"]]
            same = [comparable(r, kind) for r in got] == [comparable(r, kind) for r in expected]
            different += not same
            said = experiment.describe(from_unit(experiment.kinds, unit), got)
            show_lines(console, [f"{'same     ' if same else 'DIFFERENT'}  {said}"])
    finally:
        stop_executor(executor)
    show_lines(console, [f"{len(chosen) - different} of {len(chosen)} batches of {path} came out the same"])
    return 1 if different else 0


def _claims(known: argparse.Namespace, _: Sequence[str], __: Console) -> int:
    from experiments.ledger.command import write_claims

    return write_claims(check=known.check)


def _report(known: argparse.Namespace, _: Sequence[str], __: Console) -> int:
    from experiments.report.command import write_report

    return write_report(known.out)


_COMMANDS = {
    "list": _list,
    "run": _run,
    "collect": _collect,
    "plot": _plot,
    "status": _status,
    "verify": _verify,
    "claims": _claims,
    "report": _report,
}

_WHOLE = {"plan": plan.run, "figures": everything.redraw, "paper": everything.paper}
