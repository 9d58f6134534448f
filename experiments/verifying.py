"""``verify``: batches of a finished run are computed again and compared.

Every field but times has to be the same, to the last digit. On the machine that made the records it is. Another
processor, or another version of a library, rounds otherwise, and training carries that on over thousands of steps in
float32: trained models then come out different, by no amount that could be stated for all experiments. So what differs
is printed value by value, and where the records were made if that was elsewhere, for the reader to judge; the exit
status says that something differs.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.collecting import config_from, units_of
from experiments.computing import same_files, work
from experiments.engine import load
from experiments.files import read_final
from experiments.points import Kind, Record, from_unit
from experiments.restoring import check_contents, check_fields
from experiments.runner import BatchError
from experiments.store import canonical
from experiments.tables import show_lines
from experiments.workers import make_executor, stop_executor

NOT_COMPARED = ("seconds", "seconds_per_step", "provenance")
"""Fields of a record that a second computation may change."""
ROUNDING = ("processor", "device_kind", "jaxlib", "jax", "numpy", "matmul_precision", "xla_flags")
"""What rounding depends on, of what `experiments.environment.environment` says."""
ELSEWHERE = (
    "other processors and versions round otherwise, and a long training carries that on: its models then agree in "
    "kind, not digit by digit (docs/running.md)"
)


def verify(known: argparse.Namespace, __: Sequence[str], console: Console) -> int:
    """Compute batches of a finished run again: all fields but ``seconds`` have to be the same."""
    if known.batches < 0:
        raise ValueError(f"batches: expected a positive number, or 0 for all, got {known.batches}")
    named = known.name.endswith(".json")
    path = Path(known.name) if named else None
    if path is None:
        path = (known.out or Path("figures") / load(known.name).name) / f"{known.preset}.json"
    data = read_final(path)
    check_contents(data, path)
    name = data["experiment"] if named else known.name
    experiment = load(name)
    config = config_from(experiment, data["config"])
    check_fields(experiment, data, path)
    units = units_of(experiment, config, data["records"])
    seed = random.randrange(10**6) if known.seed is None else known.seed
    chosen = units
    if 0 < known.batches < len(units):
        chosen = random.Random(seed).sample(units, known.batches)
        show_lines(console, [f"{len(chosen)} of {len(units)} batches, drawn with --seed {seed}"])
    files = same_files(experiment, config, data, path)
    executor, _ = make_executor("processes", 1)
    different, elsewhere = 0, ""
    try:
        for unit, expected in chosen:
            try:
                answer = executor.submit(work, name, files, unit).result()
            except Exception as error:
                raise BatchError(f"batch {canonical(unit)}: {type(error).__name__}: {error}") from error
            kind, got = experiment.kinds[unit["kind"]], answer.records
            same = [comparable(r, kind) for r in got] == [comparable(r, kind) for r in expected]
            different += not same
            said = experiment.describe(from_unit(experiment.kinds, unit), got)
            show_lines(console, [f"{'same     ' if same else 'DIFFERENT'}  {said}"])
            if not same:
                show_lines(console, [f"           {differences(got, expected, kind)}"])
                here = answer.notes["environment"]
                elsewhere = elsewhere or made_elsewhere(expected, data.get("provenance", {}), here)
    finally:
        stop_executor(executor)
    show_lines(console, [f"{len(chosen) - different} of {len(chosen)} batches of {path} came out the same"])
    if elsewhere:
        show_lines(console, [f"made elsewhere ({elsewhere}); {ELSEWHERE}"])
    return 1 if different else 0


def comparable(record: Record, kind: Kind) -> str:
    """What has to be the same when a record is computed again."""
    return canonical({k: v for k, v in record.items() if k not in NOT_COMPARED and k in kind.fields})


def differences(got: Sequence[Record], expected: Sequence[Record], kind: Kind) -> str:
    """Where two computations of a batch differ: every such field once, with the first pair of values that do."""
    said: dict[str, str] = {}
    for ours, theirs in zip(got, expected, strict=True):
        for name in sorted(kind.fields - set(NOT_COMPARED)):
            if canonical(ours.get(name)) != canonical(theirs.get(name)):
                said.setdefault(name, f"{name} {_short(ours.get(name))} against {_short(theirs.get(name))}")
    return "; ".join(said.values())


def _short(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else canonical(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def made_elsewhere(records: Sequence[Record], made: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """In which of the things that rounding depends on records were made otherwise than here; empty where in none.

    Args:
        records: of a final file.
        made: its provenances by name.
        here: what this process depends on, as `experiments.environment.environment` says it.
    """
    said = {}
    for record in records:
        by = made.get(str(record.get("provenance")), {}).get("environment") or {}
        for name in ROUNDING:
            if name in by and by[name] != here.get(name):
                said[name] = f"{name} {by[name] or 'none'}, here {here.get(name) or 'none'}"
    return "; ".join(said.values())
