"""The command line: ``list``, ``run``, ``collect``, ``restore``, ``plot``, ``status``, ``verify`` of one experiment.

And over all experiments: ``plan``, ``figures``, ``paper``, ``claims``, ``report``.

A run appends to ``runs/NAME/PRESET-<config hash>.jsonl`` (or under ``--out``), and when it is complete writes
``PRESET.json`` and the figures: into ``figures/NAME/`` for an unchanged preset, into ``--out`` where one is given, else
beside its results under ``runs/``. A private run so never overwrites a committed result.
"""

from __future__ import annotations

import argparse
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from experiments import commands, everything, plan, verifying
from experiments.engine import EXPERIMENTS, load
from experiments.runner import BatchError
from experiments.tables import show_lines
from experiments.workers import EXECUTORS


def main(argv: Sequence[str]) -> int:
    """Run one command; returns the exit status: 0, 1 for a finding, 2 for a bad request, 130 when interrupted."""
    console = Console(stderr=False)
    parser = _parser()
    if argv and argv[0] == "plan":  # reads its own options
        return _said_errors(lambda: plan.run(argv[1:], console))
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
    names = parser.add_subparsers(dest="command", required=True)
    names.add_parser("list", help="experiments and their presets")
    names.add_parser(
        "plan", help="how many heads, of which size, for a layer; `plan --help` lists its options"
    )
    figures = names.add_parser(
        "figures", help="draw every figure of the committed records again", allow_abbrev=False
    )
    figures.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 where a committed svg file differs"
    )
    paper = names.add_parser(
        "paper", help="say what is left of every preset `paper`, ask, and run them", allow_abbrev=False
    )
    paper.add_argument("--yes", action="store_true", help="do not ask")
    claims = names.add_parser("claims", help="write CLAIMS.md from the committed records", allow_abbrev=False)
    claims.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 where CLAIMS.md differs"
    )
    report = names.add_parser(
        "report", help="write one HTML page with figures, claims and an interactive part", allow_abbrev=False
    )
    report.add_argument("--out", type=Path, help="file of the page (default: build/report.html)")
    run = names.add_parser(
        "run",
        help="run an experiment, or go on with it; `run NAME --fields` lists the fields that can be overridden",
        allow_abbrev=False,
    )
    plot = names.add_parser("plot", help="draw the figures of a finished run again", allow_abbrev=False)
    status = names.add_parser("status", help="what has been run, how far, what came out", allow_abbrev=False)
    verify = names.add_parser(
        "verify", help="compute some batches of a finished run again and compare", allow_abbrev=False
    )
    collect = names.add_parser(
        "collect", help="write records and figures of what an unfinished run has so far", allow_abbrev=False
    )
    restore = names.add_parser(
        "restore",
        help="make the results that a run goes on with from its committed records",
        allow_abbrev=False,
    )
    for command in (run, plot, verify, collect, restore):
        what = "an experiment's name, or module:attribute"
        if command in (verify, restore):
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
    for command in (run, plot, status, verify, collect, restore):
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


def _figures(known: argparse.Namespace, _: Sequence[str], console: Console) -> int:
    return everything.redraw(console, check=known.check)


def _paper(known: argparse.Namespace, _: Sequence[str], console: Console) -> int:
    return everything.paper(console, ask=not known.yes)


def _claims(known: argparse.Namespace, _: Sequence[str], __: Console) -> int:
    from experiments.ledger.command import write_claims

    return write_claims(check=known.check)


def _report(known: argparse.Namespace, _: Sequence[str], __: Console) -> int:
    from experiments.report.command import write_report

    return write_report(known.out)


_COMMANDS = {
    "list": _list,
    "run": commands.run,
    "collect": commands.collect,
    "restore": commands.restore,
    "plot": commands.plot,
    "status": commands.status,
    "verify": verifying.verify,
    "figures": _figures,
    "paper": _paper,
    "claims": _claims,
    "report": _report,
}
