"""What the regimes experiment can be asked to do, and its presets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from experiments import checks
from theory.training.variants import Variant

FAMILIES = ("regular", "random", "hubs")


@dataclass(frozen=True)
class RegimesConfig:
    """Fields of the regimes experiment; every one can be overridden on the command line.

    Attributes:
        map_d_models: ``d`` of the map; none leaves it out.
        map_factors: ``m`` in multiples of the single head's predicted ceiling.
        map_largest_items: sizes above are left out.
        map_head_dims: sizes of several heads that are tried where they are promising.
        map_seeds: seeds of the map.
        joint_d_model: ``d`` of the points of joint training.
        joint_factors: their ``m``, as for the map.
        joint_heads: their head counts.
        joint_variants: how they are trained.
        joint_steps: steps of Adam.
        joint_budgets: head sizes tried, at most.
        joint_seeds: seeds of joint training.
        family_items: ``m`` of the families.
        family_d_model: their ``d``.
        family_head_dim: their ``d_k``.
        family_degrees: edges per item.
        family_seeds: seeds of the families.
        scaling_sizes: ``MxD`` each, such as ``96x16``.
        scaling_head_dims: their ``d_k``; those after the first are tried where they are promising.
        scaling_seeds: seeds of the scaling.
        thin_items: ``m`` of thin heads.
        thin_d_model: their ``d``.
        thin_head_dims: ``d_k`` of heads that are counted.
        own_head_dims: ``d_k`` of heads that are given their edges.
        thin_seeds: seeds of thin heads.
    """

    map_d_models: tuple[int, ...] = (8, 16, 24)
    map_factors: tuple[float, ...] = (0.3, 0.6, 0.9, 1.3, 3.0, 6.0)
    map_largest_items: int = 120
    map_head_dims: tuple[int, ...] = (2, 3, 4)
    map_seeds: int = 3
    joint_d_model: int = 16
    joint_factors: tuple[float, ...] = (0.9,)
    joint_heads: tuple[int, ...] = (1, 2, 4)
    joint_variants: tuple[str, ...] = ("adam", "anneal-hinge")
    joint_steps: int = 3000
    joint_budgets: int = 5
    joint_seeds: int = 3
    family_items: int = 64
    family_d_model: int = 16
    family_head_dim: int = 2
    family_degrees: tuple[int, ...] = (1, 2, 4, 8)
    family_seeds: int = 3
    scaling_sizes: tuple[str, ...] = (
        *("24x8", "64x8", "96x8"),
        *("64x16", "96x16", "160x16", "240x16"),
        *("96x24", "160x32", "240x32", "240x80"),
    )
    scaling_head_dims: tuple[int, ...] = (2, 4, 8)
    scaling_seeds: int = 3
    thin_items: int = 96
    thin_d_model: int = 16
    thin_head_dims: tuple[int, ...] = (1, 2, 3)
    own_head_dims: tuple[int, ...] = (1, 2, 3)
    thin_seeds: int = 3


PRESETS = {
    "smoke": RegimesConfig(
        map_d_models=(8,),
        map_factors=(0.6, 1.3),
        map_head_dims=(2,),
        map_seeds=1,
        joint_d_model=8,
        joint_factors=(0.6,),
        joint_heads=(1, 2),
        joint_variants=("adam",),
        joint_steps=60,
        joint_budgets=2,
        joint_seeds=1,
        family_items=12,
        family_d_model=8,
        family_degrees=(1, 2),
        family_seeds=1,
        scaling_sizes=("12x8", "24x8", "12x6", "24x6"),
        scaling_seeds=1,
        thin_items=16,
        thin_d_model=8,
        thin_head_dims=(1, 2),
        own_head_dims=(1,),
        thin_seeds=1,
    ),
    "quick": RegimesConfig(),
    "paper": RegimesConfig(
        map_d_models=(8, 12, 16, 24, 32),
        map_head_dims=(2, 3, 4, 6, 8),
        map_factors=(0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 0.98, 1.1, 1.3, 2.0, 3.0, 6.0),
        map_largest_items=1040,
        map_seeds=8,
        joint_factors=(0.45, 0.6, 0.75, 0.9, 1.3, 2.0),
        joint_heads=(1, 2, 3, 4, 8),
        joint_steps=8000,
        joint_budgets=12,
        joint_seeds=8,
        family_items=128,
        family_d_model=24,
        family_degrees=(1, 2, 4, 8, 16),
        family_seeds=16,
        scaling_sizes=tuple(
            f"{m}x{d}"
            for d, sizes in {
                8: (24, 40, 64, 96, 160, 240),
                16: (64, 96, 160, 240, 400, 640),
                32: (160, 240, 400, 640),
                80: (240, 400, 640),
            }.items()
            for m in sizes
        ),
        scaling_seeds=12,
        thin_head_dims=(1, 2, 3, 4),
        thin_seeds=16,
    ),
}


def size_of(text: str) -> tuple[int, int]:
    """``m`` and ``d`` of a size.

    Raises:
        ValueError: if it is not of the form ``MxD``.
    """
    parts = text.split("x")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"scaling_sizes: expected MxD, such as 96x16, got {text!r}")
    return int(parts[0]), int(parts[1])


def check(config: RegimesConfig) -> RegimesConfig:
    """The configuration, checked.

    Raises:
        ValueError: naming a field, what was expected and what came.
    """
    checks.positive(config)
    checks.different(config)
    for text in config.scaling_sizes:
        size_of(text)
    checks.known(config, joint_variants=get_args(Variant))
    largest = config.family_items // 2
    if config.family_degrees and max(config.family_degrees) > largest:
        raise ValueError(
            f"family_degrees: expected at most family_items // 2 = {largest}, got {max(config.family_degrees)}"
        )
    return config
