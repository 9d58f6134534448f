"""Figures of made-up capacity records, and what is in them."""

import numpy as np
from matplotlib.figure import Figure

from experiments import style


def drawn(make, data) -> tuple[Figure, str]:
    with style.context():
        result = make(data)
    assert result is not None
    return result


def lines_at(axes, x):
    return [line for line in axes.lines if np.array_equal(line.get_xdata(), [x, x])]
