"""Where results live while an experiment runs: one JSON line for every finished unit of work.

A unit is a batch of fixed composition (all seeds of one configuration). Its line is written whole, flushed and
synced before the next step, so a run that is killed at any moment loses at most the units in flight, and the same
command goes on from there. Where the disk is full, what was written of a line is taken back. The first line says what
the run is; a store whose configuration is another one is refused rather than mixed. A line that cannot be read (a torn
write), whose checksum is wrong (a bad disk) or whose records are not those of its unit is reported and its unit
computed again; the others stay. Two processes on one store would do the same work twice, so the second one is refused.

A line is ``{"unit", "records", "sum"}`` and what the writer notes beside them (environment, times). Lines of older
versions have neither notes nor a checksum and are taken as they are.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from experiments.points import Record

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

SCHEMA = 1
Unit = Mapping[str, Any]
Check = Callable[[Any, Any], None]
"""Raises ValueError where the records are not those of the unit."""


class Line(NamedTuple):
    """A finished unit: what it is, its records, and what was noted with them."""

    unit: dict[str, Any]
    records: list[Record]
    notes: dict[str, Any]


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

    Use it as a context manager: it holds a lock beside the file. One that is not ``writable`` takes no lock and writes
    nothing, so that it also opens what is finished in a folder that cannot be written.

    Attributes:
        path: the file of JSON lines.
        header: what the run is.
        damaged: why lines could not be used, by line number.

    Raises:
        ValueError: on entering, if the file belongs to another configuration or schema.
        RuntimeError: on entering, if another process holds the store.
    """

    def __init__(
        self,
        path: Path,
        header: Mapping[str, Any],
        check: Check = lambda unit, records: None,
        *,
        writable: bool = True,
    ):
        self.path = path
        self.damaged: dict[int, str] = {}
        self.header = {"schema": SCHEMA, **header}
        self._check = check
        self._done: dict[str, Line] = {}
        self._lock = FileLock(path.with_name(path.name + ".lock"))
        self._file: int | None = None
        self._writable = writable

    def __enter__(self) -> Store:
        if not self._writable:
            if held(self.path):
                raise self._held_by_another()
            found, self._done, self.damaged, _ = read_lines(self.path, self._check)
            self._refuse_another(found)
            return self
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=1.0)  # `held` keeps it for a moment
        except Timeout:
            raise self._held_by_another() from None
        try:
            found, lines, self.damaged, whole = read_lines(self.path, self._check)
            if found is not None:
                self._refuse_another(found)
            self._done = lines
            self._file = os.open(
                self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666
            )
            if found is None:
                os.ftruncate(
                    self._file, 0
                )  # the beginning of a first line, where a process was killed writing it
                self._append(canonical(self.header) + "\n")
            elif not whole:
                self._append("\n")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._lock.release()

    def _held_by_another(self) -> RuntimeError:
        return RuntimeError(f"another process is writing {self.path}; wait for it, or use another --out")

    def __len__(self) -> int:
        """Units finished."""
        return len(self._done)

    def lines(self) -> list[Line]:
        """All finished units, in the order in which they were."""
        return list(self._done.values())

    def get(self, unit: Unit) -> list[Record] | None:
        """Records of a unit, or None if it is not finished."""
        line = self._done.get(canonical(unit))
        return None if line is None else line.records

    def notes(self, unit: Unit) -> dict[str, Any]:
        """What was noted with a finished unit."""
        return self._done[canonical(unit)].notes

    def put(self, unit: Unit, records: list[Record], notes: Mapping[str, Any] | None = None) -> None:
        """Keep a unit's records; they are on the disk when this returns.

        Raises:
            ValueError: if the unit is finished already, the records are not its own, or hold a number that JSON has
                not.
            OSError: if they cannot be written; the file is then as it was before.
        """
        key = canonical(unit)
        if key in self._done:
            raise ValueError(f"unit: expected one that is not finished, got {key} again")
        self._check(unit, records)
        line = {"unit": dict(unit), "records": records, **(notes or {})}
        self._append(canonical(line | {"sum": checksum(line)}) + "\n")
        self._done[key] = Line(dict(unit), records, dict(notes or {}))

    def _append(self, text: str) -> None:
        """Write at the end and sync; take back what was written of it where that fails."""
        if self._file is None:
            raise ValueError(f"{self.path}: expected an open store, got a closed one")
        rest = memoryview(text.encode())
        before = os.fstat(self._file).st_size
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, before)
            raise OSError(
                error.errno,
                f"{error.strerror}; what is finished is kept, the same command goes on from there",
                str(self.path),
            ) from error

    def _refuse_another(self, found: Any) -> None:
        if canonical(found) == canonical(self.header):
            return
        if not isinstance(found, dict) or found.get("schema") != SCHEMA:
            schema = found.get("schema") if isinstance(found, dict) else found
            raise ValueError(
                f"{self.path}: expected schema {SCHEMA}, got {schema!r}, written by another version of this project; "
                "move the file away to start again, or go on with that version"
            )
        raise ValueError(
            f"{self.path}: expected results of {_differences(self.header, found)}; "
            "move the file away, or use another --out"
        )


def checksum(line: Mapping[str, Any]) -> str:
    """Eight hexadecimal digits over a line without its ``sum``."""
    return f"{zlib.crc32(canonical({k: v for k, v in line.items() if k != 'sum'}).encode()):08x}"


def read_lines(
    path: Path, check: Check = lambda unit, records: None
) -> tuple[Any, dict[str, Line], dict[int, str], bool]:
    """What is in a store: its header (None for no or an empty file), units, damaged lines, and if its last line ends.

    Takes no lock and changes nothing.

    Raises:
        ValueError: if the first line cannot be read.
    """
    done: dict[str, Line] = {}
    damaged: dict[int, str] = {}
    content = path.read_bytes() if path.exists() else b""
    if not content:
        return None, done, damaged, True
    first, *rest = content.split(b"\n")
    try:
        header = json.loads(first)
    except ValueError:
        if not rest:  # killed while it wrote its first line
            return None, done, damaged, False
        raise ValueError(
            f"{path}: expected a first line that says what the run is, got one that cannot be read; "
            "move the file away to start again"
        ) from None
    for number, line in enumerate(rest, start=2):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            unit, records = value.pop("unit"), value.pop("records")
            written = value.pop("sum", None)
            if written is not None and written != checksum({"unit": unit, "records": records, **value}):
                raise ValueError("its checksum is wrong")
            check(unit, records)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            why = "cannot be read" if isinstance(error, json.JSONDecodeError | UnicodeDecodeError) else error
            damaged[number] = f"lacks {why}" if isinstance(error, KeyError) else str(why)
        else:
            done.setdefault(canonical(unit), Line(unit, list(records), value))
    return header, done, damaged, content.endswith(b"\n")


def held(path: Path) -> bool:
    """Whether a process is writing a store now; writes nothing, also not to the lock's file."""
    lock = path.with_name(path.name + ".lock")
    if not lock.exists():
        return False
    if fcntl is None:
        try:
            with FileLock(lock).acquire(timeout=0):
                return False
        except Timeout:
            return True
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # a reader's, which closing lets go
        except BlockingIOError:
            return True
    return False


def _differences(expected: Mapping[str, Any], found: Mapping[str, Any], prefix: str = "") -> str:
    """Where two headers differ, one after the other."""
    said = []
    for name in sorted(expected.keys() | found.keys()):
        ours, theirs = expected.get(name), found.get(name)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            said.append(_differences(ours, theirs, f"{name}."))
        elif canonical(ours) != canonical(theirs):
            said.append(f"{prefix}{name} = {canonical(ours)}, got those of {canonical(theirs)}")
    return "; ".join(filter(None, said))
