"""What the compiler counts of a compiled program."""

from __future__ import annotations

import re
from typing import Any


def compiled_operations(program: Any, *, loops: int = 0) -> dict[str, int | None]:
    """The compiler's count of operations and of transcendental functions.

    Args:
        program: compiled.
        loops: that the program is known to have, of whose bodies one turn is to be counted: a scan over steps, say.

    Returns:
        ``compiled_operations`` and ``transcendentals``; None where the program has more loops, since the compiler
        counts one turn of each (attention that goes over blocks of a long row is such a loop).
    """
    counts = program.cost_analysis()
    if counts is None or "flops" not in counts or len(re.findall(r"\bwhile\(", program.as_text())) != loops:
        return {"compiled_operations": None, "transcendentals": None}
    return {
        "compiled_operations": int(counts["flops"]),
        "transcendentals": int(counts.get("transcendentals", 0)),
    }
