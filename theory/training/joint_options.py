"""Settings of joint training (`theory.training.joint`), and what of them a compiled loss depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

SETTLED = 0.6
"""Share of the steps over which the temperature falls."""
COLDEST = 0.01
"""Share of the first temperature at which the soft maximum stays."""


@dataclass(frozen=True)
class JointOptions:
    """Settings of joint training; the defaults anneal, `PLAIN` does not.

    Attributes:
        learning_rate: Adam's, constant.
        max_steps: cap on optimiser steps, over which the temperature falls; a multiple of ``check_every`` is taken.
        check_every: steps between two looks at recovery and plateau.
        patience: looks without a new lowest loss (by at least ``min_fall``) after which a run stops; None for never.
        min_fall: relative fall of the mean loss between looks that counts as falling.
        positive_weight: weight of an edge in the loss; None for ``sqrt(non-edges / edges)``.
        init_scale: standard deviation of initial weights, for embeddings of unit norm.
        aggregation: "max", or "sum" as the control that cannot gain from heads.
        temperature: of the soft maximum at the first step, in units of logits; 0 for the hard maximum throughout.
        loss: "hinge" (squared) or "cross-entropy".
    """

    learning_rate: float = 0.1
    max_steps: int = 6000
    check_every: int = 50
    patience: int | None = None
    min_fall: float = 0.01
    positive_weight: float | None = None
    init_scale: float = 0.3
    aggregation: str = "max"
    temperature: float = 5.0
    loss: str = "hinge"

    def __post_init__(self) -> None:
        """Refuse settings that are none.

        Raises:
            ValueError: naming the field.
        """
        for name in ("max_steps", "check_every", "patience"):
            value = getattr(self, name)
            if name == "patience" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"{name}: expected a positive integer, got {value!r}")
        for name in ("learning_rate", "init_scale", "positive_weight"):
            value = getattr(self, name)
            if value is not None and not 0 < value < np.inf:
                raise ValueError(f"{name}: expected a positive number, got {value!r}")
        if not 0 <= self.min_fall < 1:
            raise ValueError(f"min_fall: expected a number in [0, 1), got {self.min_fall!r}")
        if not 0 <= self.temperature < np.inf:
            raise ValueError(f"temperature: expected a number of at least 0, got {self.temperature!r}")
        if self.aggregation not in ("max", "sum"):
            raise ValueError(f"aggregation: expected 'max' or 'sum', got {self.aggregation!r}")
        if self.loss not in ("hinge", "cross-entropy"):
            raise ValueError(f"loss: expected 'hinge' or 'cross-entropy', got {self.loss!r}")


PLAIN = JointOptions(patience=10, temperature=0.0, loss="cross-entropy")
"""Joint training as it is usually done."""


class Setting(NamedTuple):
    """What of the options a compiled loss depends on.

    Attributes:
        aggregation: over heads.
        soft: whether the maximum is softened.
        loss: as in `JointOptions`.
    """

    aggregation: str
    soft: bool
    loss: str

    @classmethod
    def of(cls, options: JointOptions) -> Setting:
        """Of these options."""
        soft = options.temperature > 0 and options.aggregation == "max"
        return cls(options.aggregation, soft, options.loss)
