"""What the cache experiment can be asked to do, and its presets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

from experiments import checks

Design = Literal["mha", "gqa", "mqa", "mla"]
DESIGNS: tuple[Design, ...] = ("mha", "gqa", "mqa", "mla")
Trainer = Literal["alternate", "greedy", "joint"]
TRAINERS: tuple[Trainer, ...] = ("alternate", "greedy", "joint")


@dataclass(frozen=True)
class CacheConfig:
    """Fields of the cache experiment; every one can be overridden on the command line.

    Attributes:
        num_items: items m of each size; a size is a pair from here and ``d_model``. Graphs are permutations.
        d_model: embedding width d of each size, as many as ``num_items``.
        num_heads: query heads whose designs are compared, at every size.
        num_kv_heads: key heads of ``gqa``; those between 1 and the query heads that divide them are taken.
        designs: designs compared.
        latent_rank: head dimension of ``mla``, as a multiple of what ``mha`` is predicted to need (rounded up).
        trainers: trainers compared at the first of ``num_heads``; ``greedy`` is for ``mha`` alone.
        further_trainers: the same at the other head counts, and for ``frontier_items``.
        frontier_items: further numbers of items, at the first ``d_model`` and the first ``num_heads``.
        cache_budgets: cached key dimensions at which every design is run, at the first size.
        parameter_budgets: parameters up to which every design is run, at the first size: with the widest keys they
            pay for.
        conversion_items: items of the layers that are converted, at the first ``d_model`` and the first
            ``num_heads``; 0: none are.
        conversion_head_dim: head dimension of these layers.
        conversion_steps: steps of training on after which what is recovered is looked at, beside 0.
        embedding: of the items, a name as for `capacity`.
        seeds: runs at every point; a seed draws its own embeddings, graph and initial weights.
        learning_rate: of joint training.
        max_steps: cap on the steps of joint training.
        restarts: random starts of ``alternate``.
        greedy_restarts: random starts of each head of ``greedy``.
    """

    num_items: tuple[int, ...] = (96,)
    d_model: tuple[int, ...] = (16,)
    num_heads: tuple[int, ...] = (4, 8)
    num_kv_heads: tuple[int, ...] = (2, 4)
    designs: tuple[Design, ...] = DESIGNS
    latent_rank: float = 1.5
    trainers: tuple[Trainer, ...] = TRAINERS
    further_trainers: tuple[Trainer, ...] = ("alternate", "greedy")
    frontier_items: tuple[int, ...] = (64, 112)
    cache_budgets: tuple[int, ...] = (8, 16)
    parameter_budgets: tuple[int, ...] = (480,)
    conversion_items: int = 96
    conversion_head_dim: int = 10
    conversion_steps: tuple[int, ...] = (100, 300, 1000)
    embedding: str = "gaussian"
    seeds: int = 8
    learning_rate: float = 0.1
    max_steps: int = 6000
    restarts: int = 1
    greedy_restarts: int = 2

    def sizes(self) -> list[tuple[int, int]]:
        """The sizes (num_items, d_model)."""
        return list(zip(self.num_items, self.d_model, strict=True))


PRESETS = {
    "smoke": CacheConfig(
        num_items=(16,),
        d_model=(6,),
        num_heads=(2,),
        num_kv_heads=(),
        designs=("mha", "mqa", "mla"),
        trainers=("alternate",),
        further_trainers=("alternate",),
        frontier_items=(),
        cache_budgets=(4,),
        parameter_budgets=(),
        conversion_items=10,
        conversion_head_dim=6,
        conversion_steps=(50,),
        seeds=2,
        max_steps=400,
    ),
    "quick": CacheConfig(),
    "paper": CacheConfig(
        num_items=(96, 192, 256),
        d_model=(16, 24, 32),
        num_heads=(4, 8, 2, 16),
        num_kv_heads=(2, 4, 8),
        further_trainers=TRAINERS,
        frontier_items=(48, 64, 80, 112, 128, 144),
        cache_budgets=(4, 8, 12, 16, 24),
        parameter_budgets=(350, 480, 520),
        conversion_steps=(30, 100, 300, 1000, 3000),
        seeds=16,
        restarts=4,
    ),
}

_EXTRAS = {"frontier_items", "cache_budgets", "parameter_budgets", "conversion_items"}


def resolve(config: CacheConfig, given: Collection[str]) -> CacheConfig:
    """Complete a configuration of which the fields ``given`` were named by the user, and check it.

    Naming a size asks for its thresholds alone, without the preset's frontier, budgets and conversion.

    Raises:
        ValueError: naming a field, what was expected and what came.
    """
    if {"num_items", "d_model"} & set(given):
        without = {name: 0 if name == "conversion_items" else () for name in _EXTRAS - set(given)}
        config = replace(config, **without)
    _check(config)
    return config


def _check(config: CacheConfig) -> None:
    checks.paired(config, "d_model", "num_items")
    checks.positive(config, or_zero=("conversion_items",))
    checks.different(config, but=("d_model",))
    checks.known(config, designs=DESIGNS, trainers=TRAINERS, further_trainers=TRAINERS)
    checks.some(config, "designs", "trainers", "further_trainers", "num_items", "num_heads")
    for items in (*config.num_items, *config.frontier_items, config.conversion_items):
        if items == 1:
            raise ValueError("num_items, frontier_items: expected at least 2 items, got 1")
