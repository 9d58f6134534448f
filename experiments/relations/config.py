"""What the relations experiment can be asked to do, and its presets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from experiments import checks


@dataclass(frozen=True)
class RelationsConfig:
    """Fields of the relations experiment; every one can be overridden on the command line.

    Attributes:
        num_relations: relations R; head counts are 1, ..., R + extra_heads.
        extra_heads: head counts beyond R.
        num_items: items m, at least 8 R.
        d_model: width d of their embeddings.
        total_key_dim: budgets D_K; at each those head counts are run that divide it. MLP read-outs at the first alone.
        mlp: also run MLP read-outs, on Gaussian values and on signs, and on mixtures set by hand.
        value_dim: entries of a value.
        hidden: units of the MLP.
        seeds: tasks, with their initial weights.
        num_steps: optimiser steps.
    """

    num_relations: tuple[int, ...] = (1, 2, 4)
    extra_heads: int = 2
    num_items: int = 32
    d_model: int = 24
    total_key_dim: tuple[int, ...] = (60, 12)
    mlp: bool = True
    value_dim: int = 4
    hidden: int = 128
    seeds: int = 4
    num_steps: int = 1000


PRESETS = {
    "smoke": RelationsConfig(
        num_relations=(2,),
        extra_heads=0,
        num_items=16,
        d_model=12,
        total_key_dim=(12,),
        mlp=False,
        seeds=2,
        num_steps=200,
    ),
    "quick": RelationsConfig(),
    "paper": RelationsConfig(
        num_relations=(1, 2, 3, 4), num_items=64, d_model=32, hidden=256, seeds=8, num_steps=4000
    ),
}


def resolve(config: RelationsConfig, given: Collection[str]) -> RelationsConfig:
    """Check a configuration.

    Raises:
        ValueError: naming a field, what was expected and what came.
    """
    checks.positive(config, or_zero=("extra_heads",))
    checks.different(config)
    checks.some(config, "num_relations", "total_key_dim")
    if 8 * max(config.num_relations) > config.num_items:
        raise ValueError(
            f"num_items: expected at least 8 * num_relations = {8 * max(config.num_relations)}, "
            f"got {config.num_items}"
        )
    return config
