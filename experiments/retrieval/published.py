"""Published validation errors of the synthetic experiment (Yu et al. 2025, arXiv 2510.06662).

NMSE, the least of several seeds, of one attention layer at D = 4 unless the key says otherwise. The paper's directions,
encoder, per-head dimension, optimiser and number of steps are not published, so these are marks beside our curves, not
values that a run here should reproduce. ``APPROXIMATE`` ones are read off a figure or given in words.
"""

from __future__ import annotations

PUBLISHED: dict[tuple[str, int, int], dict[int, float]] = {
    ("main", 4, 8): {1: 7.01e-2, 2: 1e-2, 3: 1e-3, 4: 6.10e-5},
    ("main", 4, 128): {1: 1.45e-1, 2: 1e-2, 3: 1.58e-3, 4: 5.23e-6},
    ("main", 3, 128): {2: 1.11e-3, 3: 2.11e-7},
    ("fixed-width", 4, 128): {3: 4.77e-4, 4: 5.70e-7},
    ("two-layer", 4, 128): {1: 4.28e-4, 2: 3.83e-6},
}
"""``(curve, D, T)`` to errors by head count; ``fixed-width``: E = n h = 32."""

APPROXIMATE = {("main", 4, 8, 2), ("main", 4, 8, 3), ("main", 4, 128, 2)}
"""``(curve, D, T, h)`` of values that are orders of magnitude alone."""


def published(curve: str, num_targets: int, length: int, num_heads: int) -> float | None:
    """The published error of this setting, None where there is none."""
    return PUBLISHED.get((curve, num_targets, length), {}).get(num_heads)
