"""A run on a mesh of devices: ``--mesh data=2,head=2``, on one machine or, with ``--coordinator``, on several.

Each batch is computed by all devices together (`theory.training.sharded`), one batch after the other. With several
processes the first one is the run: it has the store and sends each batch to the others, which compute their share of it
and keep nothing. All of them are started by the same command.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from experiments.workers import InProcess
from theory.training.sharded import make_mesh

_mesh: Mesh | None = None


def current_mesh() -> Mesh | None:
    """The mesh that this process computes on, if any."""
    return _mesh


def mesh_text(mesh: Mesh) -> str:
    """A mesh as the command line and records have it."""
    return ",".join(f"{name}={size}" for name, size in mesh.shape.items() if size > 1) or "data=1"


def parse_mesh(text: str) -> dict[str, int]:
    """Sizes by axis of ``data=2,head=2``.

    Raises:
        ValueError: for another form.
    """
    sizes = {}
    for part in text.split(","):
        name, equals, size = part.strip().partition("=")
        if not equals or not size.isdecimal() or name in sizes:
            raise ValueError(f"mesh: expected axes with sizes, such as data=2,head=2, got {text!r}")
        sizes[name] = int(size)
    return sizes


def join(coordinator: str, num_processes: int | None, process_id: int | None) -> None:
    """Join the other processes of a run; ``auto`` finds them where a cluster (Slurm, a TPU pod) says who they are."""
    if coordinator == "auto":
        jax.distributed.initialize()
    else:
        jax.distributed.initialize(coordinator, num_processes, process_id)


def start(text: str) -> Mesh:
    """Compute on a mesh from now on.

    Raises:
        ValueError: as `parse_mesh` and `theory.training.sharded.make_mesh`.
    """
    global _mesh
    _mesh = make_mesh(parse_mesh(text))
    return _mesh


def stop() -> None:
    """Compute on one device again."""
    global _mesh
    _mesh = None


class MeshExecutor(InProcess):
    """An executor that computes in this process and lets all others of the run compute the same."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run ``fn`` in every process; returns the finished future of this one."""

        def everywhere() -> Any:
            _broadcast((fn, args, kwargs))
            return fn(*args, **kwargs)

        return super().submit(everywhere)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the others go."""
        if not self._stopped:
            super().shutdown(wait, cancel_futures=cancel_futures)
            if self._lock.acquire(timeout=0.0 if not wait else -1):  # no batch is under way
                try:
                    _broadcast(None)
                finally:
                    self._lock.release()


def follow() -> None:
    """Compute what the first process of the run sends, until it is done."""
    while (call := _broadcast(None)) is not None:
        fn, args, kwargs = call
        fn(*args, **kwargs)


def _broadcast(value: Any) -> Any:
    """The first process's value, in every process."""
    if jax.process_count() == 1:
        return value
    content = np.frombuffer(pickle.dumps(value), np.uint8)
    length = int(multihost_utils.broadcast_one_to_all(np.int32(content.size)))
    padded = np.zeros(length, np.uint8)
    padded[: min(length, content.size)] = content[:length]
    return pickle.loads(np.asarray(multihost_utils.broadcast_one_to_all(padded)).tobytes())
