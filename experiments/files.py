"""Where runs have their files, and the file that a run ends with."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.engine import Experiment, collect
from experiments.environment import versions
from experiments.progress import show_lines
from experiments.store import SCHEMA, Line, Store, canonical, digest, write_json


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


def refuse_another_run(final: Path, values: Mapping[str, Any]) -> None:
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


def read_final(path: Path) -> dict[str, Any]:
    """The contents of a final file.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if it is of another schema.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: expected the records of a finished run, found none; run it first")
    data = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        got = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise ValueError(f"{path}: expected schema {SCHEMA}, got {got!r}")
    return data


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
        [line.notes["environment"] for line in store.lines() if "environment" in line.notes],
    )
    for name in now:
        others = sorted({made[name] for made in before if made.get(name, now[name]) != now[name]})
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
    write_json(run.final, data)
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
    """Time that workers spent on the batches whose lines say so: in all, and compiling."""
    times = [line.notes["seconds"] for line in lines if "seconds" in line.notes]
    return {
        "batches": len(times),
        "seconds": round(sum(time["total"] for time in times), 3),
        "compiling_seconds": round(sum(time["compiling"] for time in times), 3),
    }
