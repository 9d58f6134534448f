"""What the conversion experiment can be asked to do, and its presets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from experiments import checks
from experiments.conversion.merge import METHODS


@dataclass(frozen=True)
class ConversionConfig:
    """Fields of the conversion experiment; every one can be overridden on the command line.

    Attributes:
        model: a name or folder of `experiments.pretrained.load`; a Llama with grouped heads.
        text: a UTF-8 file of ten lines or more to calibrate, heal and test on (its last tenth is held out); empty: the
            verses of ``make text``, whole books held out.
        methods: ways of merging key/value heads: ``first``, ``mean``, ``svd``, ``svd_inputs``.
        num_kv_heads: key/value heads after the conversion.
        healed: methods that are healed too.
        steps: optimiser steps of healing.
        batch: sequences of a step.
        length: tokens of a sequence, in healing and testing.
        learning_rate: of Adam, after a rise over the first tenth of the steps.
        test_windows: sequences of held-out text.
        calibration_windows: sequences of training text for the moments of keys and values.
        seed: of the sequences that are drawn.
    """

    model: str = "smollm2-135m"
    text: str = ""
    methods: tuple[str, ...] = METHODS
    num_kv_heads: int = 1
    healed: tuple[str, ...] = ("mean", "svd_inputs")
    steps: int = 60
    batch: int = 2
    length: int = 128
    learning_rate: float = 3e-4
    test_windows: int = 16
    calibration_windows: int = 16
    seed: int = 0


PRESETS = {
    "smoke": ConversionConfig(
        methods=("mean", "svd"),
        healed=("mean",),
        steps=2,
        batch=1,
        length=16,
        test_windows=2,
        calibration_windows=2,
    ),
    "quick": ConversionConfig(),
}


def resolve(config: ConversionConfig, given: Collection[str]) -> ConversionConfig:
    """Check a configuration.

    Raises:
        ValueError: naming a field, what was expected and what came.
    """
    del given
    checks.positive(config, or_zero=("seed",))
    checks.different(config)
    checks.known(config, methods=METHODS)
    checks.known(config, healed=config.methods)
    checks.least(config, length=2, test_windows=2)
    return config
