"""What figures and tables of every experiment read out of a run's records, and how they say it."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

Record = Mapping[str, Any]
R = TypeVar("R", bound=Record)


def records(data: Mapping[str, Any], kind: str) -> list[Record]:
    """The records of one kind, none where the run has none."""
    return list(data.get("records", {}).get(kind) or [])


def select(rows: Iterable[R], **wanted: Any) -> list[R]:
    """Rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def wilson(successes: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval for a probability; ``(0, 1)`` without trials."""
    if trials == 0:
        return 0.0, 1.0
    share = successes / trials
    scale = 1 + z * z / trials
    middle = (share + z * z / (2 * trials)) / scale
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials)) / scale
    return max(0.0, middle - half), min(1.0, middle + half)


def listed(words: Iterable[str]) -> str:
    """``a, b and c``."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def seed_range(counts: Iterable[int]) -> str:
    """``8 seeds`` or ``4 to 16 seeds`` for a caption."""
    values = sorted(set(counts))
    if not values:
        return "no seeds"
    if len(values) == 1:
        return f"{values[0]} seed" + ("s" if values[0] != 1 else "")
    return f"{values[0]} to {values[-1]} seeds"
