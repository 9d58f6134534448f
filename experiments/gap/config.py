"""What the gap experiment can be asked to do, and its presets."""

from __future__ import annotations

from dataclasses import dataclass

from experiments import checks

TRAINERS = ("greedy", "greedy-long", "hard", "annealed")


@dataclass(frozen=True)
class GapConfig:
    """Fields of the gap experiment; every one can be overridden on the command line.

    Attributes:
        num_items: ``m`` of the sweep over heads; the graph is a permutation.
        d_model: ``d`` of both sweeps.
        head_counts: ``h``.
        items: ``m`` of the sweep over items, at ``middle`` heads.
        middle: head count of that sweep, and the one at which ``more`` are run.
        trainers: everywhere.
        more: further trainers at ``num_items`` and ``middle`` heads.
        budgets: head sizes run: so many, the largest at or just above ``reach`` times the budget for a fixed partition.
        reach: see there.
        seeds: graphs, items, starts.
        minima: ``m`` of the exact minima.
        minima_dims: ``d`` of each of them.
        minima_seeds: instances of each.
        restarts: starts of the annealed trainer.
        num_steps: its steps.
    """

    num_items: int = 96
    d_model: int = 16
    head_counts: tuple[int, ...] = (2, 3, 4, 6, 8)
    items: tuple[int, ...] = (64, 80)
    middle: int = 4
    trainers: tuple[str, ...] = ("greedy", "annealed")
    more: tuple[str, ...] = ("greedy-long", "hard")
    budgets: int = 3
    reach: float = 0.8
    seeds: int = 4
    minima: tuple[int, ...] = (8, 8, 10, 12)
    minima_dims: tuple[int, ...] = (2, 3, 3, 4)
    minima_seeds: int = 4
    restarts: int = 3
    num_steps: int = 2000


PRESETS = {
    "smoke": GapConfig(
        num_items=20,
        d_model=6,
        head_counts=(2, 3),
        items=(),
        middle=3,
        more=("hard",),
        budgets=2,
        seeds=2,
        minima=(6,),
        minima_dims=(2,),
        minima_seeds=2,
        restarts=1,
        num_steps=100,
    ),
    "quick": GapConfig(),
    "deep": GapConfig(
        head_counts=(3, 4, 6),
        items=(),
        trainers=("annealed",),
        more=(),
        minima=(),
        minima_dims=(),
        restarts=6,
        num_steps=3000,
    ),
    "paper": GapConfig(
        head_counts=(2, 3, 4, 5, 6, 7, 8, 12),
        items=(48, 64, 80, 112, 128),
        trainers=TRAINERS,
        more=(),
        budgets=5,
        reach=1.0,
        seeds=12,
        minima=(6, 8, 8, 10, 10, 12, 12, 12, 14, 14),
        minima_dims=(2, 2, 3, 3, 4, 2, 3, 4, 3, 4),
        minima_seeds=16,
        restarts=16,
        num_steps=6000,
    ),
}


def check(config: GapConfig) -> GapConfig:
    """The configuration, checked.

    Raises:
        ValueError: naming a field, what was expected and what came.
    """
    checks.positive(config)
    checks.different(config, but=("minima", "minima_dims"))
    checks.known(config, trainers=TRAINERS, more=TRAINERS)
    checks.paired(config, "minima_dims", "minima")
    checks.within(config, minima=(3, 14))
    checks.least(config, minima_dims=2, budgets=2)
    return config
