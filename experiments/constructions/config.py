"""What the constructions experiment can be asked to do, and its presets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from experiments import checks

SOURCES = ("greedy", "joint", "matched-filter", "one-sided", "zero-forcing")
"""Where channels come from whose weights are rounded."""


@dataclass(frozen=True)
class Rounded:
    """Channels whose weights are rounded to ever fewer bits."""

    source: str
    num_items: int
    d_model: int
    num_heads: int
    total_key_dim: int

    @classmethod
    def parse(cls, text: str) -> Rounded:
        """Read ``source:num_items:d_model:num_heads:total_key_dim``.

        Raises:
            ValueError: if there are not five parts, the source is unknown or a number makes no sense.
        """
        source, *numbers = text.split(":")
        try:
            m, d, h, budget = (int(number) for number in numbers)
        except ValueError:
            raise ValueError(
                f"precision: expected source:num_items:d_model:num_heads:total_key_dim, got {text!r}"
            ) from None
        if source not in SOURCES:
            raise ValueError(f"precision: expected a source among {', '.join(SOURCES)}, got {source!r}")
        if min(m, d, h, budget) < 1 or budget % h:
            raise ValueError(f"precision: expected a budget that the heads divide, got {text!r}")
        return cls(source, m, d, h, budget)


@dataclass(frozen=True)
class ConstructionsConfig:
    """Fields of the constructions experiment; every one can be overridden on the command line.

    Attributes:
        num_items: items m of each size.
        d_model: width d of each size.
        num_heads: head counts at which the least budget D_K* of every construction is located, d_k <= d.
        seeds: embeddings and permutations at every point.
        convex_max_d_model: width up to which heads of d_k = d are fitted one after the other by convex solves.
        convex_max_heads: most of them that are tried.
        convex_seeds: seeds of these.
        noise_num_items: items where variances of scores are measured.
        noise_d_model: width there.
        noise_head_dims: head dimensions there.
        noise_block_sizes: edges of the one head there.
        noise_seeds: draws there.
        precision: channels to be rounded, each source:num_items:d_model:num_heads:total_key_dim.
        precision_seeds: of each.
    """

    num_items: tuple[int, ...] = (96, 256, 256, 256)
    d_model: tuple[int, ...] = (16, 32, 128, 256)
    num_heads: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    seeds: int = 8
    convex_max_d_model: int = 24
    convex_max_heads: int = 4
    convex_seeds: int = 3
    noise_num_items: int = 128
    noise_d_model: int = 64
    noise_head_dims: tuple[int, ...] = (16, 48)
    noise_block_sizes: tuple[int, ...] = (4, 16, 48)
    noise_seeds: int = 16
    precision: tuple[str, ...] = (
        *(f"greedy:96:16:4:{budget}" for budget in (16, 20, 24, 32, 48)),
        *(f"joint:96:16:4:{budget}" for budget in (24, 32, 48)),
        "greedy:96:16:3:48",
        *(f"zero-forcing:256:256:2:{budget}" for budget in (64, 92, 138)),
        *(f"matched-filter:256:256:2:{budget}" for budget in (320, 480)),
    )
    precision_seeds: int = 4

    def sizes(self) -> list[tuple[int, int]]:
        """The sizes (num_items, d_model)."""
        return list(zip(self.num_items, self.d_model, strict=True))


PRESETS = {
    "smoke": ConstructionsConfig(
        num_items=(32,),
        d_model=(64,),
        num_heads=(1, 4),
        seeds=2,
        convex_max_d_model=0,
        noise_num_items=32,
        noise_d_model=24,
        noise_head_dims=(8,),
        noise_block_sizes=(8,),
        noise_seeds=2,
        precision=("zero-forcing:32:64:4:96",),
        precision_seeds=2,
    ),
    "quick": ConstructionsConfig(),
    "paper": ConstructionsConfig(
        num_items=(96, 192, 256, 256, 256, 512),
        d_model=(16, 24, 32, 128, 256, 512),
        num_heads=(1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128),
        seeds=32,
        convex_seeds=8,
        noise_seeds=64,
        precision_seeds=16,
    ),
}


def resolve(config: ConstructionsConfig, given: Collection[str]) -> ConstructionsConfig:
    """Check a configuration.

    Raises:
        ValueError: naming a field, what was expected and what came.
    """
    checks.paired(config, "d_model", "num_items")
    if len(set(config.sizes())) < len(config.sizes()):
        raise ValueError(f"num_items: expected different sizes, got {config.sizes()}")
    checks.positive(config, or_zero=("convex_max_d_model",))
    checks.different(config, but=("num_items", "d_model"))
    largest = max(config.noise_block_sizes, default=1)
    if largest > min(config.noise_num_items, config.noise_d_model - 2):
        raise ValueError(
            f"noise_block_sizes: expected at most noise_num_items and noise_d_model - 2, got {largest}"
        )
    for text in config.precision:
        Rounded.parse(text)
    return config
