"""What the redundancy experiment can be asked to do, and its presets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from experiments import checks
from experiments.translation.config import PRESETS as TRANSLATION
from experiments.translation.config import TranslationConfig
from experiments.translation.config import resolve as resolve_translation
from experiments.translation.data import COPY
from experiments.translation.training import chunk_size

_MODEL = TRANSLATION["paper"]


@dataclass(frozen=True)
class RedundancyConfig:
    """Fields of the redundancy experiment; every one can be overridden on the command line.

    Attributes:
        pairs: as in the experiment `translation`, like the next ones up to the learning rate.
        vocab_size: see there.
        d_model: see there.
        d_ff: see there.
        num_layers: see there.
        num_heads: of every attention layer; a divisor of ``d_model``.
        num_steps: see there.
        rows: see there.
        length: see there.
        warmup: see there.
        learning_rate: at its peak; that which arm A of `translation` chose.
        looks: steps at which heads are removed.
        seeds: models.
        fractions: heads are removed in so many equal steps.
        random_orders: of removal, by their gain alone.
        num_scored: training pairs that I_h is computed on.
        num_translated: held-out pairs that are translated, at equal distances.
    """

    pairs: str = ""
    vocab_size: int = _MODEL.vocab_size
    d_model: int = _MODEL.d_model
    d_ff: int = _MODEL.d_ff
    num_layers: int = _MODEL.num_layers
    num_heads: int = _MODEL.standard_heads
    num_steps: int = _MODEL.num_steps
    rows: int = _MODEL.rows
    length: int = _MODEL.length
    warmup: int = _MODEL.warmup
    learning_rate: float = 6e-3
    looks: tuple[int, ...] = (150, 300, 600, 1200, 1800)
    seeds: int = 3
    fractions: int = 10
    random_orders: int = 3
    num_scored: int = 512
    num_translated: int = 128


PRESETS = {
    "smoke": RedundancyConfig(
        pairs=COPY,
        vocab_size=275,
        d_model=16,
        d_ff=32,
        num_layers=1,
        num_heads=4,
        num_steps=40,
        rows=8,
        length=16,
        warmup=10,
        looks=(20, 40),
        seeds=1,
        fractions=4,
        random_orders=2,
        num_scored=32,
        num_translated=16,
    ),
    "quick": RedundancyConfig(),
    "paper": RedundancyConfig(
        looks=(50, 100, 150, 250, 450, 900, 1350, 1800), seeds=8, random_orders=10, num_translated=431
    ),
}


def resolve(config: RedundancyConfig, given: Collection[str]) -> RedundancyConfig:
    """Check a configuration.

    Raises:
        ValueError: naming a field, what was expected and what came.
    """
    checks.positive(config)
    checks.some(config, "looks")
    if config.d_model % config.num_heads:
        raise ValueError(
            f"num_heads: expected a divisor of d_model = {config.d_model}, got {config.num_heads}"
        )
    resolve_translation(translation(config), given)
    unit = chunk_size(config.num_steps)
    fine = [steps for steps in config.looks if steps <= config.num_steps and steps % unit == 0]
    if len(fine) < len(config.looks) or list(config.looks) != sorted(set(config.looks)):
        raise ValueError(
            f"looks: expected ascending multiples of {unit} up to num_steps = {config.num_steps}, "
            f"got {config.looks}"
        )
    return config


def translation(config: RedundancyConfig) -> TranslationConfig:
    """The same model and training in the words of the experiment `translation`."""
    names = ("pairs", "vocab_size", "d_model", "d_ff", "num_layers", "num_steps", "rows", "length", "warmup")
    shared = {name: getattr(config, name) for name in names}
    return TranslationConfig(
        arms=("A",),
        heads=(config.num_heads,),
        standard_heads=config.num_heads,
        divisors=(1,),
        learning_rates=(config.learning_rate,),
        tuning_steps=config.num_steps,
        seeds=config.seeds,
        **shared,
    )
