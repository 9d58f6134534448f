"""Figures of the `capacity` experiment, drawn from what a complete run wrote."""

from experiments.capacity.figures_ceiling import ceiling, real
from experiments.capacity.figures_recovery import head_sweep, recovery
from experiments.capacity.figures_threshold import scaling, threshold

FIGURES = {
    "recovery": recovery,
    "threshold": threshold,
    "head-sweep": head_sweep,
    "ceiling": ceiling,
    "scaling": scaling,
    "real": real,
}
"""What draws each figure, by name."""
