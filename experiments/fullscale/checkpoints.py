"""States of long runs between two stretches, as files: what makes a run of hours resumable.

They change no record: a stretch whose predecessor's state is not there computes it again. Files are named by a digest
of all that a state depends on, versions of packages included. ``MHA_JAX_CHECKPOINTS`` names another folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.environment import versions
from experiments.store import digest

VARIABLE = "MHA_JAX_CHECKPOINTS"
_FORMAT = 1  # count up where training changes


def path_of(key: Mapping[str, Any]) -> Path:
    """Where the state after a stretch is kept."""
    folder = Path(os.environ.get(VARIABLE) or Path("runs") / "fullscale" / "checkpoints")
    return folder / f"{digest({'format': _FORMAT, 'versions': versions(), **key})}.npz"


def save(key: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a state, whole or not at all."""
    path = path_of(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    neighbour = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with neighbour.open("wb") as file:
            np.savez(file, **dict(arrays))  # pyright: ignore[reportArgumentType]
        neighbour.replace(path)
    finally:
        neighbour.unlink(missing_ok=True)


def load(key: Mapping[str, Any]) -> dict[str, np.ndarray] | None:
    """A state, or None where there is none."""
    path = path_of(key)
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as file:
        return dict(file)
