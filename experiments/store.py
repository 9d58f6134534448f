"""Where results live while an experiment runs: one JSON line for every finished unit of work.

A unit is a batch of fixed composition (all seeds of one configuration). Its line is written whole, flushed and
synced before the next step, so a run that is killed at any moment loses at most the units in flight, and the same
command goes on from there. The first line says what the run is; a store whose configuration is another one is refused
rather than mixed. A line that cannot be read (a torn write, a bad disk) is reported and its unit computed again; the
others stay. Two processes on one store would do the same work twice, so the second one is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

SCHEMA = 1
Unit = Mapping[str, Any]
Record = dict[str, Any]


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal texts. NaN and infinities are refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any) -> str:
    """Eight hexadecimal digits that name a configuration."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:8]


def write_json(path: Path, value: Any) -> None:
    """Write a file whole or not at all: to a neighbour first, synced, then renamed over the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    neighbour = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with neighbour.open("w", encoding="utf-8") as file:
            json.dump(value, file, indent=1, sort_keys=True, allow_nan=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        neighbour.replace(path)
    finally:
        neighbour.unlink(missing_ok=True)


class Store:
    """Finished units of one run, on disk as ``path`` and in memory.

    Use it as a context manager: it holds a lock beside the file.

    Attributes:
        path: the file of JSON lines.
        damaged: numbers of the lines that could not be read.

    Raises:
        ValueError: on entering, if the file belongs to another configuration or schema.
        RuntimeError: on entering, if another process holds the store.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]):
        self.path = path
        self.damaged: list[int] = []
        self._header = {"schema": SCHEMA, **header}
        self._done: dict[str, list[Record]] = {}
        self._lock = FileLock(path.with_name(path.name + ".lock"))
        self._file: Any = None

    def __enter__(self) -> Store:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise RuntimeError(
                f"another process is writing {self.path}; wait for it, or use another --out"
            ) from None
        try:
            self._read()
            fresh = not self.path.exists() or self.path.stat().st_size == 0
            self._file = self.path.open("a", encoding="utf-8")
            if fresh:
                self._write(self._header)
            elif not self._ends_with_newline():
                self._file.write("\n")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._lock.release()

    def __len__(self) -> int:
        """Units finished."""
        return len(self._done)

    def get(self, unit: Unit) -> list[Record] | None:
        """Records of a unit, or None if it is not finished."""
        return self._done.get(canonical(unit))

    def put(self, unit: Unit, records: list[Record]) -> None:
        """Keep a unit's records; they are on the disk when this returns.

        Raises:
            ValueError: if the unit is finished already, or a record holds a number that JSON has not.
        """
        key = canonical(unit)
        if key in self._done:
            raise ValueError(f"unit: expected one that is not finished, got {key} again")
        self._write({"unit": dict(unit), "records": records})
        self._done[key] = records

    def _write(self, value: Any) -> None:
        self._file.write(canonical(value) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _ends_with_newline(self) -> bool:
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"

    def _read(self) -> None:
        if not self.path.exists():
            return
        for number, line in enumerate(self.path.read_bytes().split(b"\n"), start=1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
                if number == 1:
                    self._check(value)
                else:
                    self._done.setdefault(canonical(value["unit"]), list(value["records"]))
            except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError):
                if number == 1:
                    raise ValueError(
                        f"{self.path}: expected a first line that says what the run is, got one that cannot be "
                        "read; move the file away to start again"
                    ) from None
                self.damaged.append(number)

    def _check(self, found: Any) -> None:
        if canonical(found) != canonical(self._header):
            raise ValueError(
                f"{self.path}: expected results of {canonical(self._header)}, got results of "
                f"{canonical(found)}; move the file away, or use another --out"
            )
