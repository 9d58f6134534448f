"""What the bands experiment can be asked to do, and its presets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, fields

from experiments import checks
from theory.word_relations import KINDS, load_word_relations


@dataclass(frozen=True)
class BandsConfig:
    """Fields of the bands experiment; every one can be overridden on the command line.

    Attributes:
        num_pairs: pairs of words, as many of each of the four kinds; each seed draws its own.
        d_model: width of the embeddings.
        embedding: ``minilm-pca`` or ``minilm-pca-whitened``.
        num_heads: heads of joint and greedy training; one head a kind is four.
        joint: budgets D_K of joint training.
        greedy: budgets of greedy training.
        by_kind: budgets of heads that are trained on one kind each.
        seeds: of every arm.
        shuffles: of kinds, and draws of random subspaces.
    """

    num_pairs: int = 72
    d_model: int = 16
    embedding: str = "minilm-pca-whitened"
    num_heads: int = 4
    joint: tuple[int, ...] = (32, 48)
    greedy: tuple[int, ...] = (8, 12, 16, 32)
    by_kind: tuple[int, ...] = (8, 12, 16, 48)
    seeds: int = 8
    shuffles: int = 1000


PRESETS = {
    "smoke": BandsConfig(num_pairs=16, d_model=12, joint=(24,), greedy=(), by_kind=(), seeds=2, shuffles=50),
    "quick": BandsConfig(),
    "paper": BandsConfig(
        num_pairs=144, d_model=24, joint=(48, 64), greedy=(12, 16, 24, 48), by_kind=(12, 16, 24, 48), seeds=16
    ),
}


def resolve(config: BandsConfig, given: Collection[str]) -> BandsConfig:
    """Check a configuration.

    Raises:
        ValueError: naming a field, what was expected and what came.
    """
    checks.positive(config)
    for field in fields(config):
        value = getattr(config, field.name)
        if isinstance(value, tuple):
            heads = len(KINDS) if field.name == "by_kind" else config.num_heads
            most = heads * config.d_model
            if len(set(value)) < len(value) or any(b % heads or b > most for b in value):
                raise ValueError(
                    f"{field.name}: expected different multiples of {heads} up to {most}, got {value}"
                )
    checks.known(config, embedding=("minilm-pca", "minilm-pca-whitened"))
    most = len(KINDS) * min(Counter(load_word_relations().kinds).values())
    if config.num_pairs % len(KINDS) or config.num_pairs > most:
        raise ValueError(
            f"num_pairs: expected a multiple of {len(KINDS)} up to {most}, got {config.num_pairs}"
        )
    return config
