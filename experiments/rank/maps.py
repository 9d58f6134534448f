"""Attention maps of a pretrained model on a text of the project's own, in float64."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

MODEL = "minilm-l6"
TEXT = (
    "The lighthouse keeper wrote a letter to his sister every winter, although the mail boat came only in spring. "
    "He told her about storms, about the two gulls that slept beside the lamp, and about a ship whose crew had waved "
    "to him in the fog. When the boat finally arrived, its captain carried a whole bundle of letters to the town, and "
    "she read them one after another at the kitchen table, as if the winter had been a single long evening. In her "
    "answer she asked him whether the gulls had come back, and what the sailors had looked like when they waved."
)
"""A paragraph of 118 tokens."""
LENGTHS = (3, 120)
"""Fewest and most tokens of it that make maps, the two that the model puts around a text included."""
NUM_MAPS = 72
"""Heads of the model, all layers together."""


class Map(NamedTuple):
    """One head's pattern on the text."""

    layer: int
    head: int
    pattern: np.ndarray


@functools.lru_cache(maxsize=4)
def all_maps(n: int) -> np.ndarray:
    """Every map of the model on the first tokens of the text, ``(L, N, n, n)``: rows sum to 1.

    Weights are those of the model in float32; the forward pass runs in float64, so that ranks can be told.

    Args:
        n: tokens, those around the text included.

    Raises:
        ValueError: a longer text than there is.
        FileNotFoundError: the model is not installed.
    """
    from experiments.pretrained import forward, load  # here: the experiment runs without the model's packages

    model = load(MODEL)
    ids = model.tokenizer.encode(TEXT)
    around = len(model.tokenizer.around([]))
    if (around + 1, len(ids) + around) != LENGTHS:
        raise ValueError(
            f"text: expected {LENGTHS[1] - around} tokens and two around them, got {len(ids)} and {around}"
        )
    if not LENGTHS[0] <= n <= LENGTHS[1]:
        raise ValueError(f"real_lengths: expected {LENGTHS[0]} to {LENGTHS[1]} tokens, got {n}")
    tokens = model.tokenizer.around(ids[: n - around])
    with jax.enable_x64(True):
        params = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), model.params)
        out = forward(params, model.config, jnp.array([tokens]), jnp.array([n]), return_weights=True)
        return np.asarray(out.weights, np.float64)[:, 0]


def real_map(n: int, index: int) -> Map:
    """The map of one index: layers in turn, and within a layer heads 0, 5, 10, 3, ... (all before any comes again)."""
    maps = all_maps(n)
    layer, turn = index % len(maps), index // len(maps)
    head = (5 * (turn + layer)) % maps.shape[1]
    return Map(layer, head, maps[layer, head])


def why_left_out() -> str | None:
    """Why there are no maps here, or None."""
    try:
        from experiments.pretrained import installed
    except ImportError as error:
        return f"the package {error.name} is not installed"
    return None if installed(MODEL) else "the MiniLM model is not installed"
