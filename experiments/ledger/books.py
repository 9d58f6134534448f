"""Record files by name, ``capacity/quick`` for figures/capacity/quick.json, and how numbers are written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from experiments.intervals import Interval
from experiments.ledger.checks import CHECKS
from experiments.reading import records, wilson

ROOT = Path(__file__).parents[2]
Record = Mapping[str, Any]


class Books(Mapping[str, Mapping[str, Any]]):
    """Contents of record files by name; only those that exist, read when they are first asked for."""

    def __init__(self, contents: Mapping[str, Mapping[str, Any]], root: Path | None = None) -> None:
        """``contents`` as they are; names that are not among them are looked for under ``root``/figures."""
        self._contents = dict(contents)
        self._root = root

    def _read(self, name: str) -> Mapping[str, Any] | None:
        if name not in self._contents and self._root is not None:
            path = self._root / "figures" / f"{name}.json"
            if name in CHECKS:
                self._contents[name] = CHECKS[name]()
            elif path.exists():
                self._contents[name] = json.loads(path.read_text("utf-8"))
        return self._contents.get(name)

    def __contains__(self, name: object) -> bool:
        """Whether the record file is there."""
        return isinstance(name, str) and self._read(name) is not None

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        """Contents of a record file."""
        found = self._read(name)
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        """Names that have been read."""
        return iter(self._contents)

    def __len__(self) -> int:
        """How many have been read."""
        return len(self._contents)

    def rows(self, name: str, kind: str) -> list[Record]:
        """Records of one kind, none where there are none."""
        return list(records(self[name], kind)) if name in self else []

    def replaced(self, name: str, data: Mapping[str, Any] | None) -> Books:
        """Other books: with ``data`` under ``name``, or without it."""
        if data is None:
            return Books({key: self[key] for key in self if key != name})
        return Books({**self._contents, name: data}, self._root)


def committed(root: Path = ROOT) -> Books:
    """The record files of a clone."""
    return Books({}, root)


def command_of(name: str, books: Books) -> str:
    """The command that writes a record file; the one it names where it is there."""
    experiment, _, preset = name.partition("/")
    if experiment == "bench":
        return f"python -m experiments.bench_{preset}"
    if experiment == "checks":
        return "python -m experiments claims"
    default = f"python -m experiments run {experiment} --preset {preset}"
    return str(books[name].get("command", default)) if name in books else default


def unfinished(name: str, books: Books) -> bool:
    """Whether the run behind a record file is not complete."""
    return name in books and bool(books[name].get("unfinished"))


def interval(value: float, low: float | None, high: float | None, form: str = ".1f") -> str:
    """``14.0 [12.0–16.0]``, ``?`` for an end that does not exist; without brackets where neither does."""
    if low is None and high is None:
        return format(value, form)
    ends = (format(end, form) if end is not None else "?" for end in (low, high))
    return f"{value:{form}} [{'–'.join(ends)}]"


def span(values: Iterable[float], form: str = ".2f") -> str:
    """``0.10 to 0.20``, or one number."""
    ordered = sorted(values)
    low, high = format(ordered[0], form), format(ordered[-1], form)
    return low if low == high else f"{low} to {high}"


def share(successes: int, trials: int) -> str:
    """``7 of 8 [53–98%]``, with Wilson's 95% interval."""
    low, high = wilson(successes, trials)
    return f"{successes} of {trials} [{100 * low:.0f}–{100 * high:.0f}%]"


def proportion(successes: int, trials: int) -> Interval:
    """A share with Wilson's 95% interval."""
    return Interval(successes / trials, *wilson(successes, trials))


def small(value: float) -> str:
    """Two digits; powers of ten below 0.01."""
    if value >= 0.01 or value == 0:
        return f"{value:.2g}"
    mantissa, _, power = f"{value:.1e}".partition("e")
    return f"{mantissa}e{int(power)}"


def ranges(values: Iterable[int]) -> str:
    """``2, 3, 4`` or, from five on, ``2 to 12``."""
    ordered = sorted(set(values))
    return ", ".join(map(str, ordered)) if len(ordered) < 5 else f"{ordered[0]} to {ordered[-1]}"
