"""What the joint experiment can be asked to do, and its presets."""

from __future__ import annotations

from dataclasses import dataclass

from experiments import checks
from theory.training.variants import VARIANTS

REFERENCE = "head-by-head"
ARMS = (REFERENCE, *VARIANTS)
MAIN = (REFERENCE, "adam", "partition", "hinge", "anneal", "anneal-hinge", "shuffle")


@dataclass(frozen=True)
class JointConfig:
    """Fields of the joint experiment; every one can be overridden on the command line.

    Attributes:
        num_items: ``m``; the graph is a permutation.
        d_model: ``d``.
        head_counts: ``h``.
        variants: at every head count, among head-by-head and the names in `theory.training.variants.VARIANTS`.
        full_heads: head count at which all of ``full_variants`` are run too; 0 for none.
        full_variants: further variants there.
        least_budget: ``D_K`` from here
        largest_budget: up to here, in multiples of ``h``, at least two dimensions a head;
        budgets: at most so many of them, evenly spread.
        num_steps: of Adam; L-BFGS takes a tenth.
        seeds: graphs, items, initial weights.
    """

    num_items: int = 96
    d_model: int = 16
    head_counts: tuple[int, ...] = (2, 4, 8)
    variants: tuple[str, ...] = MAIN
    full_heads: int = 4
    full_variants: tuple[str, ...] = tuple(arm for arm in ARMS if arm not in MAIN)
    least_budget: int = 12
    largest_budget: int = 32
    budgets: int = 6
    num_steps: int = 3000
    seeds: int = 4


PRESETS = {
    "smoke": JointConfig(
        num_items=24,
        d_model=8,
        head_counts=(2,),
        variants=("adam", "anneal-hinge"),
        full_heads=0,
        least_budget=6,
        largest_budget=10,
        num_steps=60,
        seeds=2,
    ),
    "quick": JointConfig(),
    "long": JointConfig(variants=(REFERENCE, "adam", "anneal-hinge"), full_heads=0, num_steps=8000),
    "paper": JointConfig(head_counts=(2, 3, 4, 6, 8), budgets=12, num_steps=12000, seeds=16),
}


def head_dims(config: JointConfig, num_heads: int) -> list[int]:
    """Head sizes of one head count."""
    low = max(2, -(-config.least_budget // num_heads))
    high = config.largest_budget // num_heads
    every = list(range(low, high + 1))
    if len(every) <= config.budgets:
        return every
    last, count = len(every) - 1, config.budgets - 1
    return sorted({every[round(i * last / count)] for i in range(count + 1)})


def check(config: JointConfig) -> JointConfig:
    """The configuration, checked.

    Raises:
        ValueError: naming a field, what was expected and what came.
    """
    checks.positive(config, or_zero=("full_heads",))
    checks.different(config)
    checks.known(config, variants=ARMS, full_variants=ARMS)
    checks.least(config, budgets=2)
    empty = [h for h in config.head_counts if not head_dims(config, h)]
    if empty:
        raise ValueError(
            f"largest_budget: expected room for {max(empty)} heads of two dimensions, got {config.largest_budget}"
        )
    return config
