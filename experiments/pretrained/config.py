"""What the forward pass needs to know of a transformer beside its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mha_jax import RotaryEmbedding

Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]
Norm = Literal["layer", "rms"]


@dataclass(frozen=True)
class ModelConfig:
    """A transformer of one stack of equal layers; hashable, so that it can be a static argument.

    Attributes:
        num_layers: layers, ``L``.
        num_heads: query heads of a layer, ``N``.
        num_kv_heads: key/value heads of a layer, ``K``, a divisor of ``num_heads``.
        head_dim: dimension of a head's queries, keys and values.
        d_model: width of the residual stream.
        d_ff: hidden units of the feed-forward block.
        vocab_size: tokens.
        max_length: longest sequence: a hard limit where positions are learned, else what it was trained for.
        causal: whether a token attends only itself and what is before it.
        pre_norm: normalise what enters a block (Llama, GPT-2) instead of the sum that leaves it (BERT).
        norm: ``layer`` subtracts the mean and has a bias, ``rms`` neither.
        norm_epsilon: added to the variance.
        activation: of the feed-forward block: ``gelu`` is the exact one.
        gated: the feed-forward block multiplies ``activation(gate)`` and ``up``.
        rope: rotary embedding of queries and keys; None where positions are learned.
    """

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    d_model: int
    d_ff: int
    vocab_size: int
    max_length: int
    causal: bool
    pre_norm: bool
    norm: Norm
    norm_epsilon: float
    activation: Activation
    gated: bool = False
    rope: RotaryEmbedding | None = None

    def __post_init__(self) -> None:
        for name in ("num_layers", "num_heads", "num_kv_heads", "head_dim", "d_model", "d_ff", "vocab_size"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name}: expected a positive integer, got {value!r}")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_kv_heads: expected a divisor of num_heads = {self.num_heads}, got {self.num_kv_heads}"
            )
