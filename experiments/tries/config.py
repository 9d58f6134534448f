"""What the tries experiment can be asked to do, and its presets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from experiments import checks
from theory.problems import check_problem


@dataclass(frozen=True)
class TriesConfig:
    """Fields of the tries experiment; every one can be overridden on the command line.

    Attributes:
        num_items: items of the permutations, m.
        d_model: their width, d.
        num_heads: final head counts h.
        lowest_key_dim: budgets D_K = h d_k from here on (d_k >= 2: one dimension holds two edges a head).
        highest_key_dim: up to here.
        ratios: H / h of the runs that are cut.
        restarts: direct runs of every problem, from other initial weights.
        seeds: problems.
        learning_rate: of joint training.
        max_steps: S, the cap on steps of a direct run; a multiple of 2 * 50 * the largest ratio.
        channel_heads: heads of the channel that is watched in training; 0 leaves it out.
        channel_head_dim: their d_k.
        channel_steps: steps of it.
        retrieval_targets: D of the watched retrieval model, which has 2 D heads; 0 leaves it out.
        retrieval_length: its T.
        retrieval_steps: steps of it.
        retrieval_learning_rate: of it.
        dynamics_seeds: runs of both.
        fractions: of the steps, at which they are looked at (the default's are Michel et al.'s epochs over 40).
        random_orders: random orders of removal.
    """

    num_items: int = 96
    d_model: int = 16
    num_heads: tuple[int, ...] = (3, 4, 6, 8)
    lowest_key_dim: int = 15
    highest_key_dim: int = 25
    ratios: tuple[int, ...] = (2, 4)
    restarts: int = 4
    seeds: int = 8
    learning_rate: float = 0.1
    max_steps: int = 6000
    channel_heads: int = 12
    channel_head_dim: int = 4
    channel_steps: int = 4000
    retrieval_targets: int = 4
    retrieval_length: int = 32
    retrieval_steps: int = 2000
    retrieval_learning_rate: float = 1e-2
    dynamics_seeds: int = 8
    fractions: tuple[float, ...] = (0.025, 0.05, 0.075, 0.125, 0.25, 0.5, 0.75, 1.0)
    random_orders: int = 8


PRESETS = {
    "smoke": TriesConfig(
        num_items=24,
        d_model=6,
        num_heads=(3,),
        lowest_key_dim=9,
        highest_key_dim=9,
        ratios=(2,),
        restarts=2,
        seeds=2,
        max_steps=400,
        channel_heads=6,
        channel_head_dim=3,
        channel_steps=200,
        retrieval_targets=2,
        retrieval_length=8,
        retrieval_steps=200,
        dynamics_seeds=2,
        fractions=(0.05, 0.5, 1.0),
        random_orders=2,
    ),
    "quick": TriesConfig(),
    "paper": TriesConfig(
        lowest_key_dim=12,
        highest_key_dim=32,
        seeds=32,
        dynamics_seeds=16,
        random_orders=20,
        retrieval_steps=6000,
    ),
}

_TRIES = frozenset({"num_items", "d_model", "num_heads", "lowest_key_dim", "highest_key_dim", "ratios"})
_DYNAMICS = frozenset({"channel_heads", "channel_head_dim", "retrieval_targets", "retrieval_length"})
STEPS_OF_A_LOOK = 50
"""Joint training looks at its runs once in so many steps, and stops there."""


def resolve(config: TriesConfig, given: Collection[str]) -> TriesConfig:
    """Check a configuration. Naming sizes of the tries asks for them alone, naming those of the dynamics likewise.

    Raises:
        ValueError: naming a field, what was expected and what came.
    """
    asked = set(given)
    if asked & _TRIES and not asked & _DYNAMICS:
        config = replace(config, channel_heads=0, retrieval_targets=0)
    elif asked & _DYNAMICS and not asked & _TRIES:
        config = replace(config, num_heads=())
        for name, fields_of in (
            ("channel_heads", {"channel_heads", "channel_head_dim"}),
            ("retrieval_targets", {"retrieval_targets", "retrieval_length"}),
        ):
            config = config if asked & fields_of else replace(config, **{name: 0})
    _check(config)
    return config


def _check(config: TriesConfig) -> None:
    checks.positive(config, or_zero=("channel_heads", "retrieval_targets"))
    checks.different(config)
    if not (config.num_heads or config.channel_heads or config.retrieval_targets):
        raise ValueError("num_heads: expected at least one thing to measure, got none")
    if config.num_heads and not any(head_dims(config, h) for h in config.num_heads):
        raise ValueError(
            f"lowest_key_dim, highest_key_dim: expected a multiple of a head count (d_k >= 2) between them, got "
            f"{config.lowest_key_dim} and {config.highest_key_dim}"
        )
    if min(config.ratios, default=2) < 2:
        raise ValueError(f"ratios: expected integers above 1, got {config.ratios}")
    grain = 2 * STEPS_OF_A_LOOK * max(config.ratios, default=1)
    checks.multiple(config, max_steps=grain)
    if max(config.fractions, default=1.0) > 1 or list(config.fractions) != sorted(config.fractions):
        raise ValueError(f"fractions: expected ascending numbers up to 1, got {config.fractions}")
    for name in ("channel_steps", "retrieval_steps"):
        steps = [round(f * getattr(config, name)) for f in config.fractions]
        if not steps or steps[0] < 1 or len(set(steps)) < len(steps):
            raise ValueError(f"fractions: expected different numbers of steps of {name}, got {steps}")
    check_problem(
        num_items=config.num_items,
        num_edges=config.num_items,
        d_model=config.d_model,
        embedding="gaussian",
        graph="permutation",
    )


def head_dims(config: TriesConfig, num_heads: int) -> list[int]:
    """The d_k >= 2 with a budget between the two ends."""
    last = config.highest_key_dim // num_heads
    return [k for k in range(2, last + 1) if config.lowest_key_dim <= num_heads * k]
