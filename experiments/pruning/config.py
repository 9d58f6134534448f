"""What the pruning experiment can be asked to do, and its presets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from experiments import checks, verses
from experiments.pretrained import check_lengths, check_names, installed, load_tokenizer, sizes
from experiments.pruning.data import gate_batches, subject_batches, text_of

ORDERS = ("importance", "importance_recomputed", "confidence", "ablation", "random")
REMOVALS = ("heads", "groups")


@dataclass(frozen=True)
class PruningConfig:
    """Fields of the pruning experiment; every one can be overridden on the command line.

    Attributes:
        models: names or folders, as `experiments.pretrained.load` takes them.
        text: a UTF-8 file of ten lines or more, the last tenth to test on; the English verses (``make text``) if empty,
            the project's licence if ``sample``.
        num_tokens: tokens that scores are computed on, and again that losses are measured on, about: sequences of a
            causal model have them exactly, for an encoder a sentence counts as 32 of them. The text has to have them.
        length: longest sequence; every model has to have as many positions.
        orders: of `ORDERS`.
        random_orders: how many of ``random``.
        steps: fractions are 0, 1 / steps, ..., 1.
        ablated_models: of which every head is removed alone, and every other head of its layer.
        gated_models: for which gates are trained.
        gate_penalties: what an open gate costs, times the number of heads: a run each.
        gate_steps: optimiser steps.
        gate_sequences: sentences of a step, or four times its sequences, of text that comes again where it ends.
        timed_models: of which heads are really removed.
        removals: ``heads`` by importance, ``groups`` of query heads that share keys (where there are such).
        removed_fraction: of the heads.
        batch_sizes: sequences timed together.
        rounds: times each of the two models is timed, in turn.
    """

    models: tuple[str, ...] = ("minilm-l6", "smollm2-135m")
    text: str = ""
    num_tokens: int = 2048
    length: int = 128
    orders: tuple[str, ...] = ("importance", "confidence", "random")
    random_orders: int = 3
    steps: int = 10
    ablated_models: tuple[str, ...] = ()
    gated_models: tuple[str, ...] = ("minilm-l6",)
    gate_penalties: tuple[float, ...] = (0.1, 0.3, 1.0)
    gate_steps: int = 120
    gate_sequences: int = 16
    timed_models: tuple[str, ...] = ("minilm-l6", "smollm2-135m")
    removals: tuple[str, ...] = REMOVALS
    removed_fraction: float = 0.5
    batch_sizes: tuple[int, ...] = (1, 4)
    rounds: int = 9


PRESETS = {
    "smoke": PruningConfig(
        models=("minilm-l6",),
        text="sample",
        num_tokens=128,
        length=32,
        orders=("importance", "random"),
        random_orders=1,
        steps=2,
        gate_penalties=(0.3,),
        gate_steps=3,
        gate_sequences=4,
        timed_models=("minilm-l6",),
        batch_sizes=(1,),
        rounds=2,
    ),
    "quick": PruningConfig(),
    "paper": PruningConfig(
        num_tokens=4096,
        orders=ORDERS,
        random_orders=20,
        ablated_models=("minilm-l6", "smollm2-135m"),
        gated_models=("minilm-l6", "smollm2-135m"),
        gate_penalties=(0.03, 0.1, 0.3, 1.0, 3.0),
        gate_steps=400,
        batch_sizes=(1, 4, 16),
        rounds=15,
    ),
    # All orders and every head alone, on the smaller model: what of `paper` two cores finish in half an hour.
    "minilm": PruningConfig(
        models=("minilm-l6",),
        num_tokens=4096,
        orders=ORDERS,
        random_orders=20,
        ablated_models=("minilm-l6",),
        gated_models=(),
        timed_models=(),
    ),
    # The same on the larger one, on fewer tokens: about an hour and a half of one core.
    "smollm": PruningConfig(
        models=("smollm2-135m",),
        num_tokens=1024,
        orders=ORDERS,
        random_orders=20,
        ablated_models=("smollm2-135m",),
        gated_models=(),
        timed_models=(),
    ),
}


def resolve(config: PruningConfig, given: Collection[str]) -> PruningConfig:
    """Check a configuration. Where models are named, whatever is done with others is left out.

    Raises:
        ValueError: naming a field, what was expected and what came.
    """
    if "models" in given:
        names = ("ablated_models", "gated_models", "timed_models")
        kept = {
            name: tuple(model for model in getattr(config, name) if model in config.models)
            for name in names
            if name not in given
        }
        config = replace(config, **kept)
    _check(config)
    return config


def _check(config: PruningConfig) -> None:
    checks.positive(config, or_zero=("gate_penalties",))
    checks.different(config)
    checks.some(config, "models")
    check_names(config.models)
    own = config.models
    checks.known(config, ablated_models=own, gated_models=own, timed_models=own)
    checks.known(config, orders=ORDERS, removals=REMOVALS)
    if not 0 < config.removed_fraction < 1:
        raise ValueError(
            f"removed_fraction: expected a number between 0 and 1, got {config.removed_fraction}"
        )
    checks.least(config, length=8)
    check_lengths(config, config.models, length=1)
    if config.num_tokens < 4 * config.length:
        raise ValueError(
            f"num_tokens: expected at least 4 * length = {4 * config.length}, got {config.num_tokens}"
        )
    if config.text or verses.PATH.exists():
        _check_text(config)


def _check_text(config: PruningConfig) -> None:
    """There is as much of the text as is asked for, by the tokenisers of the models that are here."""
    words = text_of(config.text)
    for model in filter(installed, config.models):
        tokenizer, causal = load_tokenizer(model), sizes(model).causal
        subject_batches(tokenizer, words, config.num_tokens, config.length, causal=causal)
        if model in config.gated_models:
            # One step: more would come again.
            gate_batches(tokenizer, words, 1, config.gate_sequences, config.length, causal=causal)
