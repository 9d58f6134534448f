"""Heads really removed: a model with smaller weights, which does what the masked one does, faster.

Layers then differ in their numbers of heads, so the model is no scan over equal layers any more but a list of them. In
a layer with grouped heads, key/value heads may be left with different numbers of query heads; `mha_jax.select_heads`
wants equally many, so such a layer becomes several attentions side by side, one for each number, whose outputs add up.
Keys and values that no head reads any more are removed with them, and so is a layer's attention that has no head left,
but for its output's bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from experiments.pretrained import ModelConfig, Output
from experiments.pretrained.model import embed, feed_forward, normalise
from mha_jax import combine_heads, dot_product_attention, project_heads, select_heads


def remove_heads(params: Any, config: ModelConfig, kept: Bool[np.ndarray, "L N"]) -> Any:
    """Parameters of the model without the heads that are not kept.

    Args:
        params: of `experiments.pretrained.forward`.
        config: the model's.
        kept: which heads stay.

    Returns:
        Parameters for `forward_removed`: those given, with a list of layers in place of stacked ones; the layer's
        ``attentions`` is a list of parameters as in `mha_jax.projections`, ``bias`` what its output adds.

    Raises:
        ValueError: if ``kept`` is not (L, N).
    """
    if np.shape(kept) != (config.num_layers, config.num_heads):
        raise ValueError(
            f"kept: expected shape {(config.num_layers, config.num_heads)}, got {np.shape(kept)}"
        )
    layers = []
    for i, own in enumerate(np.asarray(kept, bool)):
        layer = dict(jax.tree.map(lambda array, i=i: array[i], params["layers"]))
        attention = layer.pop("attention")
        layer["bias"] = attention["out"].get("bias")
        attention = attention | {"out": {"kernel": attention["out"]["kernel"]}}
        group = config.num_heads // config.num_kv_heads
        layer["attentions"] = [select_heads(attention, heads) for heads in alike(np.flatnonzero(own), group)]
        layers.append(layer)
    return {**params, "layers": layers}


def alike(heads: Sequence[int] | Int[np.ndarray, " kept"], group: int) -> list[list[int]]:
    """Query heads in lots of which every key/value head has equally many; most heads a key/value head first."""
    owned: dict[int, list[int]] = {}
    for head in heads:
        owned.setdefault(int(head) // group, []).append(int(head))
    lots: dict[int, list[int]] = {}
    for own in owned.values():
        lots.setdefault(len(own), []).extend(own)
    return [lots[size] for size in sorted(lots, reverse=True)]


@partial(jax.jit, static_argnames="config")
def forward_removed(
    params: Any, config: ModelConfig, tokens: Int[Array, "b t"], lengths: Int[Array, " b"]
) -> Output:
    """`experiments.pretrained.forward` of a model that `remove_heads` made.

    Args:
        params: of `remove_heads`.
        config: of the whole model.
        tokens: ids, padded.
        lengths: tokens of each sequence.
    """
    x = embed(params["embed"], config, tokens)
    for own in params["layers"]:

        def attention(x: Float[Array, "b t m"], own: Any = own) -> Float[Array, "b t m"]:
            out = jnp.zeros_like(x)
            for part in own["attentions"]:
                query, key, value = project_heads(part, x, rope=config.rope)
                heads = dot_product_attention(
                    query,
                    key,
                    value,
                    is_causal=config.causal,
                    query_seq_lengths=lengths,
                    key_value_seq_lengths=lengths,
                )
                out = out + combine_heads(part, heads)
            return out if own["bias"] is None else out + own["bias"][None, None, :]

        for name, block in (("attention", attention), ("mlp", partial(feed_forward, own["mlp"], config))):
            norm = partial(normalise, own[f"{name}_norm"], config)
            x = x + block(norm(x)) if config.pre_norm else norm(x + block(x))
    if "final_norm" in params:
        x = normalise(params["final_norm"], config, x)
    logits = None
    if config.causal:
        logits = jnp.einsum("btm,vm->btv", x, params.get("unembed", params["embed"]["tokens"]))
    return Output(x, logits, None)


def products(params: Any, config: ModelConfig, length: int) -> int:
    """Multiplications of a forward pass of `forward_removed`, for each token of a sequence of this length.

    Matrix products alone; a causal model is charged for half of the pairs of tokens.
    """
    total = 0
    for own in params["layers"]:
        for part in own["attentions"]:
            total += sum(
                array.size for name, p in part.items() for key, array in p.items() if key == "kernel"
            )
            heads = part["query"]["kernel"].shape[0]
            pairs = length / 2 if config.causal else length
            total += int(heads * pairs * (config.head_dim + part["value"]["kernel"].shape[2]))
        total += sum(p["kernel"].size for p in own["mlp"].values())
    if config.causal:
        total += params.get("unembed", params["embed"]["tokens"]).size
    return total


def num_parameters(params: Any) -> int:
    """Numbers in a model."""
    return sum(array.size for array in jax.tree.leaves(params))


def kept_groups(
    scores: Float[np.ndarray, "L N"], num_kv_heads: int, fraction: float
) -> Bool[np.ndarray, "L N"]:
    """Heads left when whole groups go, those of the least summed score first; the fraction is rounded up."""
    num_layers, num_heads = scores.shape
    summed = scores.reshape(num_layers, num_kv_heads, -1).sum(-1)
    kept = np.ones(summed.size, bool)
    kept[np.argsort(summed.ravel(), kind="stable")[: int(np.ceil(fraction * summed.size - 1e-9))]] = False
    return np.repeat(kept.reshape(summed.shape), num_heads // num_kv_heads, axis=1)
