"""States of long runs, as files: what makes a batch of hours resumable.

They change no record: what has no state on the disk is computed from its beginning. Files are named by a digest of all
that a state depends on, versions of packages included, and stand in ``runs/EXPERIMENT/checkpoints`` below the folder
in which the worker was started. ``MHA_JAX_CHECKPOINTS`` names another folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.environment import versions
from experiments.store import digest

VARIABLE = "MHA_JAX_CHECKPOINTS"
_FORMAT = 1  # count up where training changes


@dataclass(frozen=True)
class Checkpoint:
    """The file of one state.

    Attributes:
        experiment: whose it is.
        key: JSON values, all that the state depends on.
    """

    experiment: str
    key: Mapping[str, Any]

    @property
    def path(self) -> Path:
        """Where it is kept."""
        folder = Path(os.environ.get(VARIABLE) or Path("runs") / self.experiment / "checkpoints")
        return folder / f"{digest({'format': _FORMAT, 'versions': versions(), **self.key})}.npz"

    def save(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Write a state over the one before, whole or not at all."""
        path = self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        neighbour = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with neighbour.open("wb") as file:
                np.savez(file, **dict(arrays))  # pyright: ignore[reportArgumentType]
                file.flush()
                os.fsync(file.fileno())
            neighbour.replace(path)
        finally:
            neighbour.unlink(missing_ok=True)

    def load(self) -> dict[str, np.ndarray] | None:
        """The state, or None where there is none."""
        path = self.path
        if not path.exists():
            return None
        with np.load(path, allow_pickle=False) as file:
            return dict(file)

    def remove(self) -> None:
        """Do without it."""
        self.path.unlink(missing_ok=True)
