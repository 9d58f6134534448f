"""What a result may depend on beside its configuration, and settings that every process of a run shares."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

import mha_jax

PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "optax")
CACHE_VARIABLE = "MHA_JAX_CACHE"
"""Environment variable: folder of compiled programs; empty for none."""


def configure() -> None:
    """Full float32 products (GPUs round them otherwise), no silent broadcasting, and compiled programs kept."""
    jax.config.update("jax_default_matmul_precision", "highest")
    jax.config.update("jax_numpy_rank_promotion", "raise")


def versions() -> dict[str, str]:
    """Versions of Python, of this project and of the packages that numbers depend on."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "mha_jax": mha_jax.__version__,
        **{package: metadata.version(package) for package in PACKAGES},
    }


def environment() -> dict[str, Any]:
    """What the numbers of this process depend on: versions, device, precision, flags, threads. JSON values."""
    device = jax.local_devices()[0]
    return versions() | {
        "processor": _processor(),
        "platform": device.platform,
        "device_kind": device.device_kind,
        "x64": bool(_setting("jax_enable_x64")),
        "matmul_precision": str(_setting("jax_default_matmul_precision")),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "cores": cores(),
        "blas_threads": os.environ.get("OPENBLAS_NUM_THREADS", ""),
    }


def _setting(name: str) -> Any:
    return getattr(jax.config, name)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _processor() -> str:
    return _cpuinfo("model name") or platform.processor()


@cache
def _cpuinfo(name: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


class CompileClock:
    """Seconds that this process has spent tracing and compiling, or fetching what was compiled before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[tuple[float, float]] = []

    def __call__(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        """Hear of an event of JAX that has just ended."""
        if event.startswith("/jax/core/compile/"):
            end = time.perf_counter()
            with self._lock:
                self._spans.append((end - duration_secs, end))

    def take(self) -> float:
        """Seconds since the last call; spans within one another (a jit traced inside another) count once."""
        with self._lock:
            spans, self._spans = sorted(self._spans), []
        total, until = 0.0, float("-inf")
        for start, end in spans:
            total += max(0.0, end - max(start, until))
            until = max(until, end)
        return total


@cache
def compile_clock() -> CompileClock:
    """The clock of this process."""
    clock = CompileClock()
    jax.monitoring.register_event_duration_secs_listener(clock)
    return clock


def cache_folder() -> Path | None:
    """Where compiled programs are kept between runs, or None.

    ``MHA_JAX_CACHE`` names another folder, or none if it is empty; else it is in the user's cache folder. Machines
    with other instruction sets or numbers of cores have folders of their own, so that a home directory can be shared.
    """
    named = os.environ.get(CACHE_VARIABLE)
    if named == "":
        return None
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mha-jax" / "compiled"
    flags = _cpuinfo("flags") or platform.processor()
    kind = hashlib.sha256(f"{flags} {metadata.version('jaxlib')}".encode()).hexdigest()[:8]
    return (Path(named).expanduser() if named else base) / f"{platform.machine()}-{kind}-{cores()}"


class CompiledPrograms:
    """Programs compiled by earlier processes, shared without locks.

    JAX writes an entry in place: a process that is killed while it writes, or another that reads meanwhile, would see
    half of one. So each process has a folder of its own for JAX, into which `fetch` links the entries that are shared,
    and `publish` links its new, whole entries back. A link is made whole or not at all.
    """

    def __init__(self, shared: Path) -> None:
        self._shared = shared
        self._own = shared / f"process-{platform.node()}-{os.getpid()}"

    def start(self) -> None:
        """Make the folder and tell JAX; folders that processes of this machine left behind go."""
        self._own.mkdir(parents=True, exist_ok=True)
        for folder in self._shared.glob(f"process-{platform.node()}-*"):
            if not _alive(int(folder.name.rpartition("-")[2])):
                shutil.rmtree(folder, ignore_errors=True)
        self.fetch()
        jax.config.update("jax_compilation_cache_dir", str(self._own))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_enable_xla_caches", "none")

    def fetch(self) -> None:
        """Take over what other processes have published."""
        _link_all(self._shared, self._own)

    def publish(self) -> None:
        """Offer what this process has compiled; call it while nothing compiles."""
        _link_all(self._own, self._shared)

    def stop(self) -> None:
        """Let JAX keep nothing more and remove the process's own folder."""
        jax.config.update("jax_compilation_cache_dir", None)
        compilation_cache.reset_cache()
        shutil.rmtree(self._own, ignore_errors=True)


def _link_all(source: Path, target: Path) -> None:
    have = {entry.name for entry in os.scandir(target)}
    for entry in os.scandir(source):
        if entry.name.endswith("-cache") and entry.name not in have:
            with contextlib.suppress(FileExistsError):
                os.link(entry.path, target / entry.name)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


_programs: CompiledPrograms | None = None


def keep_programs(warn: Callable[[str], None] = lambda _: None) -> CompiledPrograms | None:
    """Start keeping compiled programs in this process, once; without a folder that can be written, nothing is kept."""
    global _programs
    folder = cache_folder()
    if _programs is None and folder is not None:
        programs = CompiledPrograms(folder)
        try:
            programs.start()
        except OSError as error:
            warn(f"compiled programs are not kept: {error}")
            return None
        _programs = programs
    return _programs


@contextlib.contextmanager
def programs_in(folder: Path) -> Iterator[CompiledPrograms]:
    """Keep this process's compiled programs in a folder for a while.

    Raises:
        RuntimeError: if they are kept somewhere already.
    """
    global _programs
    if _programs is not None:
        raise RuntimeError(
            f"compiled programs are kept already; expected none to be, got another folder {folder}"
        )
    _programs = CompiledPrograms(folder)
    try:
        _programs.start()
        yield _programs
    finally:
        _programs.stop()
        _programs = None
