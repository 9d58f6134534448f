"""What the translation experiment can be asked to do, and its presets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from experiments import checks
from experiments.translation.counts import check_fits
from experiments.translation.data import COPY, left_out
from experiments.translation.subwords import SPECIAL
from experiments.translation.training import STEP_UNIT

FIELD_OF = {"A": "heads", "B": "key_dims", "F": "fixed_heads", "M": "divisors", "S": "divisors"}
"""What every arm has settings of. Fields of arms that are not asked for are not checked against others."""
ARMS = tuple(FIELD_OF)


@dataclass(frozen=True)
class TranslationConfig:
    """Fields of the translation experiment; every one can be overridden on the command line.

    Attributes:
        pairs: a UTF-8 file of at least thirty lines ``source<TAB>target``, of which the last two tenths are held out;
            or three such files between commas, to train on, to choose by and to test on, such as WMT's; empty for
            the verses of ``make text``, ``copy`` for made-up lines that are their own translation.
        arms: which of ``A`` (head count at a fixed width), ``B`` (head size of queries and keys alone), ``F`` (head
            count at a fixed head size), ``M`` (smaller widths at a fixed head size, with as many parameters of
            attention) and ``S`` (the standard split with as many parameters in all as each of M).
        vocab_size: subwords of both languages.
        d_model: width.
        d_ff: hidden units at that width; in proportion at others.
        num_layers: of encoder and decoder each.
        dropout_rate: of residual branches and embeddings.
        heads: of arm A; they divide ``d_model``.
        standard_heads: of the standard setting, and of arms B and S.
        key_dims: d_k of arm B.
        fixed_heads: of arm F.
        fixed_head_dim: d_k = d_v of arm F.
        divisors: of the width in arm M.
        seeds: orders of the pairs and initial weights.
        learning_rates: peaks to choose from; one is taken as it is.
        tuning_steps: of the runs that choose; a multiple of 10, above ``warmup``.
        num_steps: of the optimiser; a multiple of 10, above ``warmup``.
        rows: of a batch.
        length: tokens of a row on either side; longer pairs are not trained on, and cut where they are translated.
        warmup: steps up to the peak learning rate; below ``tuning_steps`` and ``num_steps``.
    """

    pairs: str = ""
    arms: tuple[str, ...] = ("A",)
    vocab_size: int = 3000
    d_model: int = 128
    d_ff: int = 256
    num_layers: int = 2
    dropout_rate: float = 0.0
    heads: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    standard_heads: int = 8
    key_dims: tuple[int, ...] = (4, 8, 16, 32)
    fixed_heads: tuple[int, ...] = (1, 2, 4, 8)
    fixed_head_dim: int = 32
    divisors: tuple[int, ...] = (2, 4)
    seeds: int = 3
    learning_rates: tuple[float, ...] = (3e-3,)
    tuning_steps: int = 800
    num_steps: int = 1800
    rows: int = 16
    length: int = 64
    warmup: int = 200


_BASE = TranslationConfig(
    arms=ARMS,
    vocab_size=37_000,
    d_model=512,
    d_ff=2048,
    num_layers=6,
    dropout_rate=0.1,
    key_dims=(16, 32, 64),
    fixed_heads=(1, 4, 8, 16),
    fixed_head_dim=64,
    learning_rates=(5e-4, 1e-3, 2e-3),
    tuning_steps=10_000,
    num_steps=100_000,
    rows=200,
    length=128,
    warmup=4000,
)

PRESETS = {
    "smoke": TranslationConfig(
        pairs=COPY,
        vocab_size=275,
        d_model=32,
        d_ff=64,
        num_layers=1,
        heads=(1, 4),
        standard_heads=4,
        seeds=2,
        num_steps=30,
        rows=8,
        length=16,
        warmup=10,
    ),
    "quick": TranslationConfig(seeds=1, num_steps=800, warmup=100),
    "paper": TranslationConfig(arms=ARMS, learning_rates=(3e-3, 6e-3, 1.2e-2)),
    "base": _BASE,
    "big": replace(_BASE, d_model=1024, d_ff=4096, standard_heads=16, dropout_rate=0.3, num_steps=300_000),
}
"""``base`` and ``big`` have the sizes of Vaswani et al. 2017 and need ``--pairs``, and a GPU for days.

A batch is one setting: three trainings of 100,000 or 300,000 steps side by side. Its state is kept every ten minutes,
so a kill costs that, and packing the text again as often as it was gone over before. Tokens of a text take four bytes
in memory, rows are made for one chunk of steps at a time.
"""


def resolve(config: TranslationConfig, given: Collection[str]) -> TranslationConfig:
    """Check a configuration, and its pairs.

    Raises:
        ValueError: naming a field, what was expected and what came.
        FileNotFoundError: if a file of its pairs is not there.
    """
    del given
    checks.positive(config, or_zero=("dropout_rate",))
    checks.different(config)
    checks.some(config, "arms", "learning_rates")
    checks.known(config, arms=ARMS)
    checks.some(config, *dict.fromkeys(FIELD_OF[arm] for arm in config.arms))
    for name in ("tuning_steps", "num_steps"):
        if getattr(config, name) <= config.warmup:
            raise ValueError(
                f"{name}: expected more than warmup = {config.warmup}, got {getattr(config, name)}"
            )
    checks.multiple(config, d_model=2, tuning_steps=STEP_UNIT, num_steps=STEP_UNIT)
    checks.least(config, length=2, vocab_size=256 + len(SPECIAL))
    if config.dropout_rate >= 1:
        raise ValueError(f"dropout_rate: expected a number in [0, 1), got {config.dropout_rate}")
    for heads in (*(config.heads if "A" in config.arms else ()), config.standard_heads):
        if config.d_model % heads:
            raise ValueError(f"heads: expected divisors of d_model = {config.d_model}, got {heads}")
    for divisor in config.divisors if {"M", "S"} & set(config.arms) else ():
        if config.d_model % (2 * divisor) or config.d_ff % divisor:
            raise ValueError(
                f"divisors: expected divisors of half of d_model and of d_ff, got {divisor} for "
                f"{config.d_model} and {config.d_ff}"
            )
    if not left_out(config.pairs):
        check_fits(config.pairs, config.vocab_size, config.length)
    return config
