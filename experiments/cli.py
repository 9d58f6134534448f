"""Commands: ``list``, ``run``, ``collect``, ``plot``, ``status``, ``verify``.

A run appends to ``runs/NAME/PRESET-<config hash>.jsonl`` (or under ``--out``), and when it is complete writes
``PRESET.json`` and the figures: into ``figures/NAME/`` for an unchanged preset, into ``--out`` where one is given, else
beside its results under ``runs/``. A private run so never overwrites a committed result.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import random
import re
import shlex
from collections.abc import Sequence
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import tyro
from rich.console import Console

import mha_jax
from experiments.progress import Watch, show_lines
from experiments.runner import Runner, stop_executor
from experiments.store import SCHEMA, Store, canonical, digest, write_json
from experiments.workers import default_workers, make_executor

EXPERIMENTS = {"capacity": "experiments.capacity.experiment"}
INTERRUPTED = 130


def main(argv: Sequence[str]) -> int:
    """Run one command; returns the exit status: 0, 1 for a finding, 2 for a bad request, 130 when interrupted."""
    console = Console(stderr=False)
    parser = _parser()
    known, rest = parser.parse_known_args(argv)
    if known.command != "run" and rest:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    try:
        return _COMMANDS[known.command](known, rest, console)
    except (ValueError, OSError, RuntimeError) as error:
        show_lines(Console(stderr=True), [f"error: {error}"])
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description="Run, resume, plot and check experiments.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="experiments and their presets")
    run = commands.add_parser(
        "run",
        help="run an experiment, or go on with it; `run NAME --fields` lists the fields that can be overridden",
        allow_abbrev=False,
    )
    plot = commands.add_parser("plot", help="draw the figures of a finished run again", allow_abbrev=False)
    status = commands.add_parser("status", help="what has been run and how far", allow_abbrev=False)
    verify = commands.add_parser(
        "verify", help="compute some batches of a finished run again and compare", allow_abbrev=False
    )
    collect = commands.add_parser(
        "collect",
        help="write records and figures of what an unfinished run of a preset has so far",
        allow_abbrev=False,
    )
    for command in (run, plot, verify, collect):
        command.add_argument("name", choices=sorted(EXPERIMENTS))
        if command is plot:
            command.add_argument("--preset", help="a preset's name (default: all that are there)")
        else:
            command.add_argument(
                "--preset", default="quick", help="a preset's name, see `list` (default: quick)"
            )
    for command in (run, plot, status, verify, collect):
        command.add_argument("--out", type=Path, help="folder of a private run")
    run.add_argument(
        "--workers", type=int, help="processes; 0 computes in this one (default: one for each core)"
    )
    run.add_argument("--quiet", action="store_true", help="no progress display")
    run.add_argument("--fields", action="store_true", help="list the fields that can be overridden")
    verify.add_argument(
        "--batches", type=int, default=3, help="how many, drawn at random (default 3; 0 for all)"
    )
    return parser


def _experiment(name: str) -> ModuleType:
    return import_module(EXPERIMENTS[name])


def _preset(experiment: ModuleType, name: str) -> Any:
    if name not in experiment.PRESETS:
        raise ValueError(f"preset: expected one of {', '.join(experiment.PRESETS)}, got {name!r}")
    return experiment.PRESETS[name]


def _list(_: argparse.Namespace, __: Sequence[str], console: Console) -> int:
    for name in EXPERIMENTS:
        experiment = _experiment(name)
        show_lines(
            console, [f"{name}: {experiment.SUMMARY}", f"    presets: {', '.join(experiment.PRESETS)}"]
        )
    return 0


def _run(known: argparse.Namespace, rest: Sequence[str], console: Console) -> int:
    experiment = _experiment(known.name)
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
    config = experiment.resolve(config, given)
    values = _json_values(config)
    changed = canonical(values) != canonical(_json_values(preset))
    private = changed or known.preset == "smoke" or bool(experiment.left_out(config))
    results, final = _places(known.name, known.preset, values, private, known.out)
    _refuse_another_run(final, values)
    header = {"experiment": known.name, "preset": known.preset, "config": values}
    if files := experiment.input_files(config):
        header["files"] = files
    workers = default_workers() if known.workers is None else known.workers
    executor = make_executor(workers)
    parts = experiment.tasks(config, lambda unit: [])
    try:
        with Store(results, header) as store, Watch(console, len(parts), quiet=known.quiet) as watch:
            if store.damaged:
                lines = ", ".join(map(str, store.damaged))
                show_lines(
                    console, [f"{results}: line {lines} cannot be read; what it held is computed again"]
                )
            if len(store):
                show_lines(console, [f"going on with {len(store)} finished batches of {results}"])
            runner = Runner(
                store,
                executor,
                experiment.compute,
                lambda unit, records: watch.unit_done(experiment.describe(unit, records)),
                width=workers + 2,
            )
            experiment.run(config, runner, watch.part_done)
            records, unfinished = experiment.collect(config, store)
    except KeyboardInterrupt:
        stop_executor(executor)
        show_lines(
            console, [f"interrupted; finished batches are in {results}, the same command goes on from there"]
        )
        return INTERRUPTED
    finally:
        stop_executor(executor)
    command = ["python", "-m", "experiments", "run", known.name, "--preset", known.preset, *rest]
    _finish(experiment, known, config, command, records, unfinished, final, console)
    return 0


def _collect(known: argparse.Namespace, _: Sequence[str], console: Console) -> int:
    """Write what an unfinished run of a preset has so far, and say what is missing."""
    experiment = _experiment(known.name)
    config = _preset(experiment, known.preset)
    values = _json_values(config)
    results, final = _places(known.name, known.preset, values, False, known.out)
    if not results.exists():
        raise FileNotFoundError(f"{results}: expected results of this preset, found none; run it first")
    with Store(results, {"experiment": known.name, "preset": known.preset, "config": values}) as store:
        records, unfinished = experiment.collect(config, store)
    command = ["python", "-m", "experiments", "run", known.name, "--preset", known.preset]
    _finish(experiment, known, config, command, records, unfinished, final, console)
    return 0


def _finish(
    experiment: ModuleType,
    known: argparse.Namespace,
    config: Any,
    command: Sequence[str],
    records: Any,
    unfinished: Sequence[str],
    final: Path,
    console: Console,
) -> None:
    """Write the final file and the figures, and show the tables."""
    data = {
        "experiment": known.name,
        "preset": known.preset,
        "schema": SCHEMA,
        "command": shlex.join(command),
        "config": _json_values(config),
        "versions": _versions(),
        "left_out": experiment.left_out(config),
        "unfinished": list(unfinished),
        "records": records,
    }
    write_json(final, data)
    drawn = experiment.plot(data, final.parent, final.stem)
    experiment.show(data, console)
    show_lines(
        console, ["", f"records: {final}", *(f"figure:  {path}" for path in drawn if path.suffix == ".png")]
    )
    for row in data["left_out"]:
        show_lines(console, [f"left out: {row['what']} ({row['why']}); to get it: {row['how_to_get']}"])
    if unfinished:
        show_lines(console, [f"unfinished: {len(unfinished)} parts; the same run goes on with them"])


def _places(name: str, preset: str, values: Any, changed: bool, out: Path | None) -> tuple[Path, Path]:
    """Where a run appends, and where its final file goes."""
    stem = f"{preset}-{digest(values)}"
    if out is not None:
        return out / f"{stem}.jsonl", out / f"{preset}.json"
    folder = Path("runs") / name
    final = folder / digest(values) if changed else Path("figures") / name
    return folder / f"{stem}.jsonl", final / f"{preset}.json"


def _refuse_another_run(final: Path, values: dict[str, Any]) -> None:
    """Figures and records of one folder are of one run.

    Raises:
        ValueError: if the final file there is of another configuration.
    """
    if final.exists() and final.parent.parts[:1] != ("figures",):
        found = json.loads(final.read_text(encoding="utf-8")).get("config")
        if canonical(found) != canonical(values):
            raise ValueError(
                f"out: expected a folder of the same run, got {final} of another one; use another --out"
            )


def _json_values(config: Any) -> dict[str, Any]:
    return json.loads(canonical(dataclasses.asdict(config)))


def _versions() -> dict[str, str]:
    packages = ("jax", "jaxlib", "numpy", "scipy", "optax")
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "mha_jax": mha_jax.__version__,
        **{package: metadata.version(package) for package in packages},
    }


def _load(known: argparse.Namespace) -> tuple[Path, dict[str, Any]]:
    path = (known.out or Path("figures") / known.name) / f"{known.preset}.json"
    if not path.exists():
        raise FileNotFoundError(f"{path}: expected the records of a finished run, found none; run it first")
    data = json.loads(path.read_text(encoding="utf-8"))
    if data.get("schema") != SCHEMA:
        raise ValueError(f"{path}: expected schema {SCHEMA}, got {data.get('schema')!r}")
    return path, data


def _plot(known: argparse.Namespace, _: Sequence[str], console: Console) -> int:
    folder = known.out or Path("figures") / known.name
    presets = [known.preset] if known.preset else list(_experiment(known.name).PRESETS)
    found = [name for name in presets if known.preset or (folder / f"{name}.json").exists()]
    if not found:
        raise FileNotFoundError(f"{folder}: expected the records of a finished run, found none; run it first")
    for name in found:
        path, data = _load(argparse.Namespace(**vars(known) | {"preset": name}))
        drawn = _experiment(known.name).plot(data, path.parent, path.stem)
        show_lines(console, [f"figure: {drawing}" for drawing in drawn])
    return 0


def _status(known: argparse.Namespace, _: Sequence[str], console: Console) -> int:
    folders = [known.out] if known.out else [Path("runs") / name for name in EXPERIMENTS]
    found = sorted(path for folder in folders for path in folder.glob("*.jsonl"))
    for path in found:
        lines = path.read_bytes().split(b"\n")[1:]
        batches = sum(_readable(line) for line in lines if line.strip())
        damaged = sum(not _readable(line) for line in lines if line.strip())
        note = f", {damaged} damaged lines" if damaged else ""
        show_lines(console, [f"{path}: {batches} finished batches{note}"])
    if not found:
        show_lines(console, [f"no runs in {', '.join(map(str, folders))}"])
    return 0


def _readable(line: bytes) -> bool:
    try:
        return "unit" in json.loads(line)
    except (json.JSONDecodeError, UnicodeDecodeError, TypeError):
        return False


def _verify(known: argparse.Namespace, _: Sequence[str], console: Console) -> int:
    """Compute batches of a finished run again: all fields but ``seconds`` have to be the same."""
    experiment = _experiment(known.name)
    path, data = _load(known)
    preset = _preset(experiment, known.preset)
    config = dataclasses.replace(
        preset, **{k: tuple(v) if isinstance(v, list) else v for k, v in data["config"].items()}
    )
    units = experiment.units_of(config, data["records"])
    chosen = units if known.batches == 0 else random.Random(0).sample(units, min(known.batches, len(units)))
    executor = make_executor(1)
    different = 0
    try:
        for unit, expected in chosen:
            got = executor.submit(experiment.compute, unit).result()
            same = [_comparable(record) for record in got] == [_comparable(record) for record in expected]
            different += not same
            show_lines(console, [f"{'same     ' if same else 'DIFFERENT'}  {experiment.describe(unit, got)}"])
    finally:
        stop_executor(executor)
    show_lines(console, [f"{len(chosen) - different} of {len(chosen)} batches of {path} came out the same"])
    return 1 if different else 0


def _comparable(record: dict[str, Any]) -> str:
    return canonical({name: value for name, value in record.items() if name not in ("seconds", "channel")})


_COMMANDS = {
    "list": _list,
    "run": _run,
    "collect": _collect,
    "plot": _plot,
    "status": _status,
    "verify": _verify,
}
