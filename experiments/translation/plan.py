"""Settings of every arm, and the points made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments.engine import Ask
from experiments.points import Kind, Record
from experiments.translation.config import TranslationConfig
from experiments.translation.counts import COUNTS
from experiments.translation.model import ModelShape, num_parameters

TUNING_SEED = 1000
"""Of the runs that choose a learning rate, whose models are not reported."""


@dataclass(frozen=True)
class TranslationPoint:
    """One trained model.

    Attributes:
        arm: the first that asks for it.
        pairs: as in the configuration, like all that is not named here.
        num_heads: h.
        head_dim: d_k.
        value_head_dim: d_v.
        learning_rate: at its peak.
        seed: of initial weights and the order of the pairs.
    """

    arm: str
    pairs: str
    vocab_size: int
    d_model: int
    d_ff: int
    num_layers: int
    dropout_rate: float
    num_heads: int
    head_dim: int
    value_head_dim: int
    num_steps: int
    rows: int
    length: int
    warmup: int
    learning_rate: float
    seed: int


@dataclass(frozen=True)
class TuningPoint(TranslationPoint):
    """A shorter run that helps to choose a learning rate."""


@dataclass(frozen=True)
class BaselinePoint(TranslationPoint):
    """What no training gives: a model as drawn, and the source in place of its translation."""


@dataclass(frozen=True)
class TextPoint:
    """The text that all others use.

    Attributes:
        pairs: as in the configuration, like the others.
        vocab_size: see there.
        length: see there.
    """

    pairs: str
    vocab_size: int
    length: int


SHARED = frozenset(TranslationPoint.__dataclass_fields__)
KINDS = {
    "points": Kind(
        TranslationPoint,
        SHARED
        | {"status", "reason", "dev_perplexity", "perplexity", "bleu", "signature", "num_params"}
        | {"flops_per_step", "seconds_per_step", "seconds"},
    ),
    "tuning": Kind(
        TuningPoint, SHARED | {"status", "reason", "dev_perplexity", "seconds"}, values=("learning_rate",)
    ),
    "baselines": Kind(
        BaselinePoint, SHARED | {"untrained_perplexity", "untrained_bleu", "copy_bleu", "seconds"}
    ),
    "text": Kind(
        TextPoint,
        frozenset({"pairs", "vocab_size", "length", "seconds", *COUNTS}),
        values=("length",),
    ),
}


def settings(config: TranslationConfig) -> dict[str, list[TranslationPoint]]:
    """Every setting by arm, as a point of no learning rate and seed 0; one that two arms share bears the first's name.

    The first of an arm's settings that every arm begins from is `reference`.
    """
    by_shape: dict[TranslationPoint, TranslationPoint] = {}
    arms: dict[str, list[TranslationPoint]] = {}
    for arm in config.arms:
        own = []
        for point in _settings(config, arm):
            own.append(by_shape.setdefault(replace(point, arm=""), point))
        arms[arm] = list(dict.fromkeys(own))
    return arms


def reference(config: TranslationConfig, arm: str) -> TranslationPoint:
    """The setting on which an arm's learning rate is chosen.

    A and B: the standard one; F: the one closest to the standard split; M: the first divisor; S: likewise.
    """
    if arm in "AB":
        return _point(config, "A", config.d_model, config.standard_heads)
    own = _settings(config, arm)
    if arm == "F":
        dim = config.fixed_head_dim
        return min(own, key=lambda point: abs(point.num_heads * dim - config.d_model))
    return own[0]


def tuning(config: TranslationConfig, arm: str) -> list[TuningPoint]:
    """Runs to choose an arm's learning rate from: shorter, on a seed of their own."""
    fields: dict[str, Any] = {**vars(reference(config, arm)), "arm": ""}
    fields |= {"num_steps": config.tuning_steps, "seed": TUNING_SEED}
    point = TuningPoint(**fields)
    return [replace(point, learning_rate=rate) for rate in config.learning_rates]


def rate_of(config: TranslationConfig, arm: str, ask: Ask) -> float:
    """The learning rate of an arm.

    The rule: of the rates of the configuration, the one whose shorter run on the arm's reference setting has the least
    perplexity on dev; a run that diverged has none.
    """
    if len(config.learning_rates) == 1:
        return config.learning_rates[0]
    return chosen(ask(tuning(config, arm)))


def chosen(runs: Sequence[Record]) -> float:
    """The rate of the run with the least perplexity on dev; the least rate where all diverged."""
    ok = [run for run in runs if run["dev_perplexity"] is not None]
    if not ok:
        return min(run["learning_rate"] for run in runs)
    return min(ok, key=lambda run: (run["dev_perplexity"], run["learning_rate"]))["learning_rate"]


def runs_of(config: TranslationConfig, setting: TranslationPoint, rate: float) -> list[TranslationPoint]:
    """Every seed of a setting."""
    return [replace(setting, learning_rate=rate, seed=seed) for seed in range(config.seeds)]


def baseline(config: TranslationConfig) -> list[BaselinePoint]:
    """The baselines, beside the standard setting."""
    fields: dict[str, Any] = {**vars(reference(config, "A")), "arm": ""}
    return [BaselinePoint(**fields)]


def text_of(config: TranslationConfig) -> list[TextPoint]:
    """The text of a configuration."""
    return [TextPoint(config.pairs, config.vocab_size, config.length)]


def shape_of(point: TranslationPoint, vocab_size: int | None = None) -> ModelShape:
    """The model of a point; ``vocab_size`` where the text has fewer subwords than asked for."""
    names = ("d_model", "d_ff", "num_layers", "num_heads", "head_dim", "value_head_dim", "dropout_rate")
    sizes: dict[str, Any] = {name: getattr(point, name) for name in names}
    return ModelShape(vocab_size=point.vocab_size if vocab_size is None else vocab_size, **sizes)


def work_of(point: TranslationPoint) -> float:
    """How much a run costs, about: multiplications, in billions, softmax counted for its time."""
    tokens = point.num_steps * point.rows * point.length
    maps = (
        3 * point.num_layers * point.num_heads * point.length * (point.head_dim + point.value_head_dim + 60)
    )
    return tokens * (num_parameters(shape_of(point)) + maps) / 1e9


def _settings(config: TranslationConfig, arm: str) -> list[TranslationPoint]:
    if arm == "A":
        return [_point(config, arm, config.d_model, heads) for heads in config.heads]
    standard = _point(config, arm, config.d_model, config.standard_heads)
    if arm == "B":
        return [replace(standard, head_dim=dim) for dim in config.key_dims]
    if arm == "F":
        dim = config.fixed_head_dim
        return [_point(config, arm, config.d_model, heads, dim) for heads in config.fixed_heads]
    dim = standard.head_dim
    smaller = [
        _point(config, arm, config.d_model // divisor, config.standard_heads * divisor, dim)
        for divisor in config.divisors
    ]
    return smaller if arm == "M" else [_equal(config, point) for point in smaller]


def _equal(config: TranslationConfig, point: TranslationPoint) -> TranslationPoint:
    """The standard split with about as many parameters as another setting."""
    heads = config.standard_heads
    unit = heads if heads % 2 == 0 else 2 * heads
    candidates = [_point(config, "S", d_model, heads) for d_model in range(unit, config.d_model + 1, unit)]
    wanted = num_parameters(shape_of(point))
    return min(candidates, key=lambda other: abs(num_parameters(shape_of(other)) - wanted))


def _point(
    config: TranslationConfig, arm: str, d_model: int, num_heads: int, head_dim: int | None = None
) -> TranslationPoint:
    dim = d_model // num_heads if head_dim is None else head_dim
    names = ("pairs", "vocab_size", "num_layers", "dropout_rate", "num_steps", "rows", "length", "warmup")
    shared: dict[str, Any] = {name: getattr(config, name) for name in names}
    return TranslationPoint(
        arm=arm,
        d_model=d_model,
        d_ff=max(1, config.d_ff * d_model // config.d_model),
        num_heads=num_heads,
        head_dim=dim,
        value_head_dim=dim,
        learning_rate=0.0,
        seed=0,
        **shared,
    )
