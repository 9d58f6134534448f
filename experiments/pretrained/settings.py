"""What a ``config.json`` says of a BERT, Llama or GPT-2: this package's `ModelConfig`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from experiments.pretrained.config import Activation, ModelConfig
from mha_jax import RotaryEmbedding

_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


class Settings:
    """Settings of a model, whose absence is an error that names them."""

    def __init__(self, values: Mapping[str, Any], source: str) -> None:
        self.values, self.source = values, source

    def __getitem__(self, name: str) -> Any:
        if self.values.get(name) is None:
            raise ValueError(f"{self.source}: expected the setting {name!r} in config.json, got none")
        return self.values[name]

    def get(self, name: str, default: Any) -> Any:
        """A setting, or the default where it is absent or null."""
        value = self.values.get(name)
        return default if value is None else value

    def integer(self, name: str, default: int | None = None) -> int:
        """A setting that has to be a positive integer; where it is absent, the default if there is one."""
        value = self[name] if default is None else self.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self._unfit(name, "a positive integer", value)
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A setting that has to be a positive number, likewise."""
        value = self[name] if default is None else self.get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            raise self._unfit(name, "a positive number", value)
        return value

    def flag(self, name: str, default: bool) -> bool:
        """A setting that has to be true or false."""
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise self._unfit(name, "true or false", value)
        return value

    def table(self, name: str) -> Settings:
        """Settings in a setting; empty where it is absent."""
        values = self.get(name, {})
        if not isinstance(values, Mapping):
            raise self._unfit(name, "an object", values)
        return Settings(values, f"{self.source}: {name}")

    def _unfit(self, name: str, expected: str, got: object) -> ValueError:
        return ValueError(f"{self.source}: expected the setting {name!r} to be {expected}, got {got!r}")

    def refuse(self, name: str, *fine: Any) -> None:
        """Refuse a value of a setting that this package does not have."""
        value = self.values.get(name)
        if value is not None and value not in fine:
            expected = " or ".join(map(repr, fine)) or "none"
            raise NotImplementedError(f"{name}: expected {expected}, got {value!r} in {self.source}")

    def activation(self, name: str) -> Activation:
        """A setting that has to be a known activation of the feed-forward block."""
        if not isinstance(self[name], str) or self[name] not in _ACTIVATIONS:
            raise NotImplementedError(
                f"{name}: expected one of {', '.join(_ACTIVATIONS)}, got {self[name]!r} in {self.source}"
            )
        return _ACTIVATIONS[self[name]]


def _bert(settings: Settings) -> ModelConfig:
    settings.refuse("position_embedding_type", "absolute")
    settings.refuse("is_decoder", False)
    settings.refuse("add_cross_attention", False)
    d_model, num_heads = settings.integer("hidden_size"), settings.integer("num_attention_heads")
    return ModelConfig(
        num_layers=settings.integer("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=_divided(d_model, num_heads, settings.source),
        d_model=d_model,
        d_ff=settings.integer("intermediate_size"),
        vocab_size=settings.integer("vocab_size"),
        max_length=settings.integer("max_position_embeddings"),
        causal=False,
        pre_norm=False,
        norm="layer",
        norm_epsilon=settings.number("layer_norm_eps", 1e-12),
        activation=settings.activation("hidden_act"),
    )


def llama_config(settings: Settings, rope: RotaryEmbedding | None = None) -> ModelConfig:
    """Of a Llama. ``rope``: None for that of the published weights."""
    settings.refuse("rope_scaling")
    kinds = settings.table("rope_parameters")
    if kinds.get("rope_type", "default") != "default" or kinds.get("partial_rotary_factor", 1.0) != 1.0:
        raise NotImplementedError(
            f"rope_parameters: expected the default kind, got {kinds.values!r} in {settings.source}"
        )
    d_model, num_heads = settings.integer("hidden_size"), settings.integer("num_attention_heads")
    if settings.get("head_dim", None) is None:
        head_dim = _divided(d_model, num_heads, settings.source)
    else:
        head_dim = settings.integer("head_dim")
    return ModelConfig(
        num_layers=settings.integer("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=settings.integer("num_key_value_heads", num_heads),
        head_dim=head_dim,
        d_model=d_model,
        d_ff=settings.integer("intermediate_size"),
        vocab_size=settings.integer("vocab_size"),
        max_length=settings.integer("max_position_embeddings"),
        causal=True,
        pre_norm=True,
        norm="rms",
        norm_epsilon=settings.number("rms_norm_eps"),
        activation=settings.activation("hidden_act"),
        gated=True,
        rope=rope
        or RotaryEmbedding(base=kinds.number("rope_theta", settings.number("rope_theta", 10_000.0))),
    )


def _gpt2(settings: Settings) -> ModelConfig:
    settings.refuse("scale_attn_weights", True)
    settings.refuse("scale_attn_by_inverse_layer_idx", False)
    settings.refuse("add_cross_attention", False)
    d_model, num_heads = settings.integer("n_embd"), settings.integer("n_head")
    return ModelConfig(
        num_layers=settings.integer("n_layer"),
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=_divided(d_model, num_heads, settings.source),
        d_model=d_model,
        d_ff=settings.integer("n_inner", 4 * d_model),
        vocab_size=settings.integer("vocab_size"),
        max_length=settings.integer("n_positions"),
        causal=True,
        pre_norm=True,
        norm="layer",
        norm_epsilon=settings.number("layer_norm_epsilon"),
        activation=settings.activation("activation_function"),
    )


CONFIGS: dict[str, Callable[[Settings], ModelConfig]] = {"bert": _bert, "llama": llama_config, "gpt2": _gpt2}
"""By ``model_type`` of a ``config.json``."""


def kind_of(settings: Settings) -> str:
    """The ``model_type``, one of `CONFIGS`.

    Raises:
        NotImplementedError: for another one.
    """
    kind = settings.values.get("model_type")
    if not isinstance(kind, str) or kind not in CONFIGS:
        raise NotImplementedError(
            f"model_type: expected one of {', '.join(CONFIGS)}, got {kind!r} in {settings.source}"
        )
    return kind


def config_of(settings: Settings) -> ModelConfig:
    """Sizes and kinds, without the weights.

    Raises:
        ValueError: a setting is missing, or does not fit the others.
        NotImplementedError: a kind of model, or of position, that this package does not have.
    """
    settings.refuse("quantization_config")
    return CONFIGS[kind_of(settings)](settings)


def _divided(d_model: int, num_heads: int, source: str) -> int:
    if d_model % num_heads:
        raise ValueError(f"{source}: expected {num_heads} heads to divide the width, got {d_model}")
    return d_model // num_heads
