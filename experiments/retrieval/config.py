"""What the retrieval experiment can be asked to do, and its presets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from experiments import checks


@dataclass(frozen=True)
class RetrievalConfig:
    """Fields of the retrieval experiment; every one can be overridden on the command line.

    Attributes:
        num_targets: retrievals D of the main curves.
        lengths: tokens T of the main curves (linear encoder, orthonormal directions, n = width of a token).
        extra_heads: head counts are 1, ..., D + extra_heads.
        arm_targets: D of all further curves but those of two layers.
        random_lengths: T of curves with random unit directions, at D = ``arm_targets``.
        fixed_width_lengths: T of curves at a fixed width E = n h (n is E / h rounded down), at D = ``arm_targets``.
        fixed_width: E of these.
        mlp_lengths: T of curves with an MLP encoder, at D = ``arm_targets``; beside them one with uniform attention.
        two_layer_lengths: T of curves with two layers, at every D that is even, up to D heads.
        general_lengths: T of curves on the general task (half of the positions in each set), at D = ``arm_targets``.
        arm_heads: head counts of these further curves, relative to D (two layers: all up to D).
        copy_lengths: T of the comparison with the single head that copies, at D = ``arm_targets``.
        copy_widths: hidden units of the copying head's read-out.
        head_widths: hidden units of the read-out of D heads in that comparison.
        seeds: data sets and initial weights of every configuration.
        learning_rates: restarts of every seed.
        copy_learning_rates: the same of the wide single head.
        num_steps: optimiser steps.
        num_train: training samples.
        copy_num_train: training samples in the comparison with the copying head, so that its large read-outs are not
            held up by too few.
    """

    num_targets: tuple[int, ...] = (2, 4)
    lengths: tuple[int, ...] = (128, 32, 8)
    extra_heads: int = 2
    arm_targets: int = 4
    random_lengths: tuple[int, ...] = (32,)
    fixed_width_lengths: tuple[int, ...] = (32,)
    fixed_width: int = 32
    mlp_lengths: tuple[int, ...] = (16,)
    two_layer_lengths: tuple[int, ...] = (8,)
    general_lengths: tuple[int, ...] = (16,)
    arm_heads: tuple[int, ...] = (-2, -1, 0, 1)
    copy_lengths: tuple[int, ...] = (4, 16)
    copy_widths: tuple[int, ...] = (8, 32, 128)
    head_widths: tuple[int, ...] = (2, 32)
    seeds: int = 3
    learning_rates: tuple[float, ...] = (1e-2, 3e-2)
    copy_learning_rates: tuple[float, ...] = (5e-3, 2e-2)
    num_steps: int = 2000
    num_train: int = 8000
    copy_num_train: int = 40000


PRESETS = {
    "smoke": RetrievalConfig(
        num_targets=(2,),
        lengths=(8,),
        extra_heads=0,
        arm_targets=2,
        random_lengths=(),
        fixed_width_lengths=(),
        mlp_lengths=(),
        two_layer_lengths=(),
        general_lengths=(),
        copy_lengths=(4,),
        copy_widths=(8,),
        head_widths=(8,),
        seeds=2,
        learning_rates=(3e-2,),
        copy_learning_rates=(1e-2,),
        num_steps=200,
        num_train=1000,
        copy_num_train=1000,
    ),
    "quick": RetrievalConfig(),
    "targets": RetrievalConfig(
        num_targets=(2, 3, 4, 6),
        lengths=(32,),
        random_lengths=(),
        fixed_width_lengths=(),
        mlp_lengths=(),
        two_layer_lengths=(),
        general_lengths=(),
        copy_lengths=(),
    ),
    "paper": RetrievalConfig(
        num_targets=(2, 3, 4, 6),
        lengths=(128, 64, 32, 16, 8),
        random_lengths=(128, 8),
        fixed_width_lengths=(128, 8),
        mlp_lengths=(128, 16),
        two_layer_lengths=(32,),
        general_lengths=(64, 16),
        arm_heads=(-3, -2, -1, 0, 1, 2),
        copy_lengths=(4, 8, 16, 32),
        copy_widths=(8, 32, 128, 512),
        head_widths=(2, 8, 32),
        seeds=5,
        num_steps=6000,
        copy_num_train=80_000,
    ),
}

_ARMS = (
    "random_lengths",
    "fixed_width_lengths",
    "mlp_lengths",
    "two_layer_lengths",
    "general_lengths",
    "copy_lengths",
)


def resolve(config: RetrievalConfig, given: Collection[str]) -> RetrievalConfig:
    """Complete a configuration of which the fields ``given`` were named by the user, and check it.

    Naming ``num_targets`` or ``lengths`` asks for the main curves, without the preset's other ones; naming the lengths
    of another curve asks for that one, without the main curves unless ``lengths`` is named too.

    Raises:
        ValueError: naming a field, what was expected and what came.
    """
    asked = set(given)
    main = bool({"num_targets", "lengths"} & asked)
    if main:
        config = replace(config, **dict.fromkeys(set(_ARMS) - asked, ()))
    elif set(_ARMS) & asked:
        config = replace(config, **dict.fromkeys((set(_ARMS) | {"lengths"}) - asked, ()))
    _check(config)
    return config


def _check(config: RetrievalConfig) -> None:
    checks.positive(config, or_zero=("extra_heads",), but=("arm_heads",))
    checks.different(config)
    checks.some(config, "num_targets", "learning_rates", "copy_learning_rates")
    if not (config.lengths or any(getattr(config, name) for name in _ARMS)):
        raise ValueError("lengths: expected at least one curve to measure, got none")
    if config.fixed_width_lengths and config.fixed_width < config.arm_targets + max(
        config.arm_heads, default=0
    ):
        raise ValueError(
            f"fixed_width: expected at least one dimension for every head, got {config.fixed_width}"
        )
    checks.multiple(config, num_train=100, copy_num_train=100)
