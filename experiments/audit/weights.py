"""What weights alone tell: how evenly heads use their rank, and what layers could hold."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Float

from experiments.pretrained import PretrainedModel
from theory.problems import seeded_rng
from theory.spectra import effective_rank, product_singular_values


def query_key_weights(
    model: PretrainedModel,
) -> tuple[Float[np.ndarray, "l n d k"], Float[np.ndarray, "l n d k"]]:
    """``W_q`` and ``W_k`` of every query head, without biases and rotations.

    Key heads that are shared stand beside each of their query heads. Where blocks normalise what enters them, the
    normalisation's scale is part of both: the matrices then apply to the normalised stream.
    """
    layers, config = model.params["layers"], model.config
    query, key = (np.asarray(layers["attention"][name]["kernel"], np.float64) for name in ("query", "key"))
    if config.pre_norm:
        scale = np.asarray(layers["attention_norm"]["scale"], np.float64)[:, None, :, None]
        query, key = query * scale, key * scale
    return query, np.repeat(key, config.num_heads // config.num_kv_heads, axis=1)


def random_singular_values(
    d_model: int, head_dim: int, draws: int, seed: int
) -> Float[np.ndarray, "draws k"]:
    """Of products of two independent Gaussian matrices of the same shape."""
    rng = seeded_rng(seed, "audit, random weights")
    left, right = rng.standard_normal((2, draws, d_model, head_dim))
    return product_singular_values(left, right)


@lru_cache(maxsize=4)
def table_rank(model: PretrainedModel) -> float:
    """Effective rank of the token table, every row scaled to norm 1: how many dimensions the items really fill."""
    table = np.asarray(model.params["embed"]["tokens"], np.float64)
    table = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-30)
    return float(effective_rank(np.sqrt(np.maximum(np.linalg.eigvalsh(table.T @ table), 0.0))))
