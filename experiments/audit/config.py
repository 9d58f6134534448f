"""What the audit can be asked to do, and its presets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from experiments import checks
from experiments.audit.graphs import contexts_of
from experiments.pretrained import check_lengths, check_names, installed, load_tokenizer
from experiments.roles.text import SAMPLE, available, passages


@dataclass(frozen=True)
class AuditConfig:
    """Fields of the audit; every one can be overridden on the command line.

    Attributes:
        models: ``minilm-l6``, ``smollm2-135m``, or folders (`experiments.pretrained.load`).
        text: a UTF-8 file of ten lines or more, one passage a line (lines too short for a context are joined; the last
            tenth is left out); the English verses of ``make text`` if empty; ``sample`` for a few sentences that come
            with the project.
        num_contexts: contexts of the text that attention is looked at in, an even number.
        length: tokens of each, those that the model puts around a text included.
        random_draws: random weights of the same shape, for each layer.
        growth: parts of the contexts at which edges are counted; the last one is 1.
    """

    models: tuple[str, ...] = ("minilm-l6", "smollm2-135m")
    text: str = ""
    num_contexts: int = 192
    length: int = 64
    random_draws: int = 16
    growth: tuple[float, ...] = (0.0625, 0.125, 0.25, 0.5, 1.0)


PRESETS = {
    "smoke": AuditConfig(
        models=("minilm-l6",), text=SAMPLE, num_contexts=8, length=16, random_draws=2, growth=(0.5, 1.0)
    ),
    "quick": AuditConfig(),
    "paper": AuditConfig(num_contexts=2048, length=128, random_draws=64),
}


def resolve(config: AuditConfig, given: Collection[str]) -> AuditConfig:
    """Check a configuration.

    Raises:
        ValueError: naming a field, what was expected and what came.
        FileNotFoundError: for a model or text that the user named and that is not there.
    """
    checks.positive(config)
    checks.different(config)
    checks.some(config, "models", "growth")
    check_names(config.models)
    checks.multiple(config, num_contexts=2)
    checks.least(config, length=4)
    parts = list(config.growth)
    if parts != sorted(parts) or parts[-1] != 1:
        raise ValueError(f"growth: expected ascending parts up to 1, got {config.growth}")
    if "models" in given:
        for name in config.models:
            if not installed(name):
                raise FileNotFoundError(
                    f"models: expected an installed model (make models) or a folder, got {name!r}"
                )
    check_lengths(config, config.models, length=1)
    if available(config.text):
        passages(config.text)
        if given:
            for name in filter(installed, config.models):
                contexts_of(load_tokenizer(name), config.text, config.num_contexts, config.length)
    return config
