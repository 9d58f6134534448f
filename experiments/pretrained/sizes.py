"""Sizes of models before their weights are loaded, for plans of runs and checks of what is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from experiments.pretrained.load import WHEELS
from experiments.pretrained.settings import Settings, config_of
from experiments.pretrained.tensors import read_json


class Sizes(NamedTuple):
    """What is known of a model without its weights.

    Attributes:
        num_layers: layers.
        num_heads: query heads of a layer.
        num_kv_heads: key/value heads of a layer.
        causal: whether a token attends only itself and what is before it.
        max_length: positions that it has, or was trained on.
        vocab_size: tokens.
    """

    num_layers: int
    num_heads: int
    num_kv_heads: int
    causal: bool
    max_length: int
    vocab_size: int


SIZES = {
    "minilm-l6": Sizes(6, 12, 12, causal=False, max_length=512, vocab_size=30_522),
    "smollm2-135m": Sizes(30, 9, 3, causal=True, max_length=8_192, vocab_size=49_152),
}
"""Of `WHEELS`, whether they are installed or not."""
assert set(SIZES) == set(WHEELS)


def sizes(model: str) -> Sizes:
    """Sizes of a model: of a name as they are known, of a folder by its ``config.json``.

    Raises:
        FileNotFoundError: if it is a folder without a ``config.json``.
        ValueError: if that says no sizes, or a kind of model that this package does not have.
    """
    if model in SIZES:
        return SIZES[model]
    path = Path(model) / "config.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"models: expected {', '.join(SIZES)} or folders with a config.json, got {model!r}"
        )
    try:
        config = config_of(Settings(read_json(path), str(path)))
    except (ValueError, NotImplementedError) as error:
        raise ValueError(f"models: {error}") from None
    return Sizes(*(getattr(config, name) for name in Sizes._fields))


def check_lengths(config: Any, models: Iterable[str], **times: int) -> None:
    """Fields that are lengths in tokens reach no further than the positions of each model.

    Args:
        config: has the fields.
        models: names or folders.
        times: for each field how often so many tokens stand behind each other, 1 or more.

    Raises:
        FileNotFoundError: see `sizes`.
        ValueError: naming the field; or see `sizes`.
    """
    for model in models:
        most = sizes(model).max_length
        for name, repeats in times.items():
            if (asked := getattr(config, name)) * repeats > most:
                bound = most // repeats
                why = f"{most} positions" + (f", {repeats} times as many tokens" if repeats > 1 else "")
                raise ValueError(f"{name}: expected at most {bound} ({model} has {why}), got {asked}")
