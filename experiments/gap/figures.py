"""Figures of the `gap` experiment, drawn from what a complete run wrote."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.drawing import draw_all


def plot(data: Mapping[str, Any], out_dir: Path, stem: str) -> list[Path]:
    """Draw every figure that the run has records for, with captions."""
    return draw_all("gap", {}, data, out_dir, stem)
