"""From the tensors and settings of BERT, Llama and GPT-2, as they are published, to this package's parameters.

Published matrices hold all heads side by side; here every head has its own (`mha_jax.projections`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.pretrained.config import Activation, ModelConfig
from experiments.pretrained.model import Params
from experiments.pretrained.tensors import Tensors
from mha_jax import RotaryEmbedding

Arrays = dict[str, Any]

_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def from_settings(settings: Mapping[str, Any], tensors: Tensors) -> tuple[ModelConfig, Params]:
    """Configuration and parameters from a ``config.json`` and the tensors beside it.

    Raises:
        ValueError: a setting or a tensor is missing, or does not fit the others.
        NotImplementedError: a kind of model, or of position, that this package does not have.
    """
    kind = settings.get("model_type")
    if not isinstance(kind, str) or kind not in LAYOUTS:
        raise NotImplementedError(
            f"model_type: expected one of {', '.join(LAYOUTS)}, got {kind!r} in {tensors.source}"
        )
    return LAYOUTS[kind](_Settings(settings, tensors.source), tensors)


class _Settings:
    """Settings of a model, whose absence is an error that names them."""

    def __init__(self, values: Mapping[str, Any], source: str) -> None:
        self.values, self.source = values, source

    def __getitem__(self, name: str) -> Any:
        if self.values.get(name) is None:
            raise ValueError(f"{self.source}: expected the setting {name!r} in config.json, got none")
        return self.values[name]

    def get(self, name: str, default: Any) -> Any:
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

    def table(self, name: str) -> _Settings:
        """Settings in a setting; empty where it is absent."""
        values = self.get(name, {})
        if not isinstance(values, Mapping):
            raise self._unfit(name, "an object", values)
        return _Settings(values, f"{self.source}: {name}")

    def _unfit(self, name: str, expected: str, got: object) -> ValueError:
        return ValueError(f"{self.source}: expected the setting {name!r} to be {expected}, got {got!r}")

    def refuse(self, name: str, *fine: Any) -> None:
        """Refuse a value of a setting that this package does not have."""
        value = self.values.get(name)
        if value is not None and value not in fine:
            raise NotImplementedError(
                f"{name}: expected {' or '.join(map(repr, fine))}, got {value!r} in {self.source}"
            )

    def activation(self, name: str) -> Activation:
        if not isinstance(self[name], str) or self[name] not in _ACTIVATIONS:
            raise NotImplementedError(
                f"{name}: expected one of {', '.join(_ACTIVATIONS)}, got {self[name]!r} in {self.source}"
            )
        return _ACTIVATIONS[self[name]]


def bert(settings: _Settings, tensors: Tensors) -> tuple[ModelConfig, Params]:
    """An encoder; what stands behind its last layer (pooler, heads of a task) is left out."""
    settings.refuse("position_embedding_type", "absolute")
    settings.refuse("is_decoder", False)
    settings.refuse("add_cross_attention", False)
    d_model, num_heads = settings.integer("hidden_size"), settings.integer("num_attention_heads")
    config = ModelConfig(
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
    start = "bert." if "bert.embeddings.word_embeddings.weight" in tensors else ""

    def linear(name: str, inputs: int, outputs: int) -> Arrays:
        return _linear(tensors, name, inputs, outputs, bias=True)

    def layer(i: int) -> Arrays:
        name = f"{start}encoder.layer.{i}"
        own = f"{name}.attention.self"
        return {
            "attention": {
                part: _heads_of(linear(f"{own}.{part}", d_model, d_model), num_heads)
                for part in ("query", "key", "value")
            }
            | {"out": _out_of(linear(f"{name}.attention.output.dense", d_model, d_model), num_heads)},
            "attention_norm": _layer_norm(tensors, f"{name}.attention.output.LayerNorm", d_model),
            "mlp": {
                "up": linear(f"{name}.intermediate.dense", d_model, config.d_ff),
                "down": linear(f"{name}.output.dense", config.d_ff, d_model),
            },
            "mlp_norm": _layer_norm(tensors, f"{name}.output.LayerNorm", d_model),
        }

    table = f"{start}embeddings."
    segments = tensors.take(
        f"{table}token_type_embeddings.weight", settings.integer("type_vocab_size"), d_model
    )
    params = {
        "embed": {
            "tokens": tensors.take(f"{table}word_embeddings.weight", config.vocab_size, d_model),
            "positions": tensors.take(f"{table}position_embeddings.weight", config.max_length, d_model),
            "segment": segments[0],
            "norm": _layer_norm(tensors, f"{table}LayerNorm", d_model),
        },
        "layers": _stacked(config, layer),
    }
    tensors.finish(rf"(bert\.)?embeddings\.position_ids|{start}pooler\..*|(cls|classifier|qa_outputs)\..*")
    return config, jax.tree.map(jnp.asarray, params)


def llama(
    settings: _Settings, tensors: Tensors, rope: RotaryEmbedding | None = None
) -> tuple[ModelConfig, Params]:
    """A decoder with grouped heads and rotary positions. ``rope``: None for that of the published weights."""
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
    config = ModelConfig(
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
    start = "model." if "model.embed_tokens.weight" in tensors else ""
    sizes = {
        "q": num_heads * head_dim,
        "k": config.num_kv_heads * head_dim,
        "v": config.num_kv_heads * head_dim,
    }

    def linear(name: str, inputs: int, outputs: int) -> Arrays:
        return _linear(tensors, name, inputs, outputs, bias=f"{name}.bias" in tensors)

    def layer(i: int) -> Arrays:
        name = f"{start}layers.{i}"
        own, mlp = f"{name}.self_attn", f"{name}.mlp"
        heads = {
            letter: _heads_of(linear(f"{own}.{letter}_proj", d_model, size), size // head_dim)
            for letter, size in sizes.items()
        }
        return {
            "attention": {
                "query": heads["q"],
                "key": heads["k"],
                "value": heads["v"],
                "out": _out_of(linear(f"{own}.o_proj", sizes["q"], d_model), num_heads),
            },
            "attention_norm": {"scale": tensors.take(f"{name}.input_layernorm.weight", d_model)},
            "mlp": {
                "gate": linear(f"{mlp}.gate_proj", d_model, config.d_ff),
                "up": linear(f"{mlp}.up_proj", d_model, config.d_ff),
                "down": linear(f"{mlp}.down_proj", config.d_ff, d_model),
            },
            "mlp_norm": {"scale": tensors.take(f"{name}.post_attention_layernorm.weight", d_model)},
        }

    params: Arrays = {
        "embed": {"tokens": tensors.take(f"{start}embed_tokens.weight", config.vocab_size, d_model)},
        "layers": _stacked(config, layer),
        "final_norm": {"scale": tensors.take(f"{start}norm.weight", d_model)},
    }
    params |= _unembed(settings, tensors, config)
    tensors.finish(r".*rotary_emb\.inv_freq|lm_head\.weight")
    return config, jax.tree.map(jnp.asarray, params)


def gpt2(settings: _Settings, tensors: Tensors) -> tuple[ModelConfig, Params]:
    """A decoder with learned positions. Its matrices are stored inputs first, unlike those of the others."""
    settings.refuse("scale_attn_weights", True)
    settings.refuse("scale_attn_by_inverse_layer_idx", False)
    settings.refuse("add_cross_attention", False)
    d_model, num_heads = settings.integer("n_embd"), settings.integer("n_head")
    config = ModelConfig(
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
    start = "transformer." if "transformer.wte.weight" in tensors else ""

    def linear(name: str, inputs: int, outputs: int) -> Arrays:
        return {
            "kernel": tensors.take(f"{name}.weight", inputs, outputs),
            "bias": tensors.take(f"{name}.bias", outputs),
        }

    def layer(i: int) -> Arrays:
        name = f"{start}h.{i}"
        joint = linear(f"{name}.attn.c_attn", d_model, 3 * d_model)
        parts = {
            part: {key: array[..., j * d_model : (j + 1) * d_model] for key, array in joint.items()}
            for j, part in enumerate(("query", "key", "value"))
        }
        return {
            "attention": {part: _heads_of(own, num_heads) for part, own in parts.items()}
            | {"out": _out_of(linear(f"{name}.attn.c_proj", d_model, d_model), num_heads)},
            "attention_norm": _layer_norm(tensors, f"{name}.ln_1", d_model),
            "mlp": {
                "up": linear(f"{name}.mlp.c_fc", d_model, config.d_ff),
                "down": linear(f"{name}.mlp.c_proj", config.d_ff, d_model),
            },
            "mlp_norm": _layer_norm(tensors, f"{name}.ln_2", d_model),
        }

    params: Arrays = {
        "embed": {
            "tokens": tensors.take(f"{start}wte.weight", config.vocab_size, d_model),
            "positions": tensors.take(f"{start}wpe.weight", config.max_length, d_model),
        },
        "layers": _stacked(config, layer),
        "final_norm": _layer_norm(tensors, f"{start}ln_f", d_model),
    }
    params |= _unembed(settings, tensors, config, default=True)
    tensors.finish(r".*attn\.(masked_)?bias|lm_head\.weight")
    return config, jax.tree.map(jnp.asarray, params)


LAYOUTS: dict[str, Callable[[_Settings, Tensors], tuple[ModelConfig, Params]]] = {
    "bert": bert,
    "llama": llama,
    "gpt2": gpt2,
}
"""By ``model_type`` of a ``config.json``."""

GGUF_NAMES = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_norm": "post_attention_layernorm",
}
"""Names of a Llama's tensors in a GGUF file, and what they are called elsewhere."""


def llama_from_gguf(metadata: Mapping[str, Any], tensors: Tensors) -> tuple[ModelConfig, Params]:
    """A Llama from a GGUF file's metadata and tensors. There, pairs of a rotation are adjacent features.

    Raises:
        ValueError: metadata or tensors are missing or do not fit.
        NotImplementedError: another architecture, or rotations of a part of the features.
    """
    if metadata.get("general.architecture") != "llama":
        raise NotImplementedError(
            f"general.architecture: expected 'llama', got {metadata.get('general.architecture')!r}"
        )
    rename = {
        "hidden_size": "embedding_length",
        "num_attention_heads": "attention.head_count",
        "num_key_value_heads": "attention.head_count_kv",
        "num_hidden_layers": "block_count",
        "intermediate_size": "feed_forward_length",
        "vocab_size": "vocab_size",
        "max_position_embeddings": "context_length",
        "rms_norm_eps": "attention.layer_norm_rms_epsilon",
        "head_dim": "attention.key_length",
        "rope_scaling": "rope.scaling.type",
    }
    values = {ours: metadata.get(f"llama.{theirs}") for ours, theirs in rename.items()}
    settings = _Settings(values | {"hidden_act": "silu", "tie_word_embeddings": True}, tensors.source)
    base, dims = metadata.get("llama.rope.freq_base", 10_000.0), metadata.get("llama.rope.dimension_count")
    return llama(
        settings, tensors, RotaryEmbedding(base=float(base), dims=dims and int(dims), style="interleaved")
    )


def gguf_name(name: str) -> str:
    """What a tensor of a GGUF file is called elsewhere; its own name where it has no other."""
    parts = name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in GGUF_NAMES:
        return f"layers.{parts[1]}.{GGUF_NAMES[parts[2]]}.{parts[3]}"
    if len(parts) == 2 and parts[0] in GGUF_NAMES:
        return f"{GGUF_NAMES[parts[0]]}.{parts[1]}"
    return name


def _divided(d_model: int, num_heads: int, source: str) -> int:
    if d_model % num_heads:
        raise ValueError(f"{source}: expected {num_heads} heads to divide the width, got {d_model}")
    return d_model // num_heads


def _linear(tensors: Tensors, name: str, inputs: int, outputs: int, *, bias: bool) -> Arrays:
    """``x @ kernel + bias``; files have outputs first."""
    own = {"kernel": tensors.take(f"{name}.weight", outputs, inputs).T}
    return own | {"bias": tensors.take(f"{name}.bias", outputs)} if bias else own


def _heads_of(linear: Arrays, num_heads: int) -> Arrays:
    """``(M, N D)`` to ``(N, M, D)``, ``(N D,)`` to ``(N, D)``."""
    inputs = linear["kernel"].shape[0]
    own = {"kernel": linear["kernel"].reshape(inputs, num_heads, -1).transpose(1, 0, 2)}
    return own | {"bias": linear["bias"].reshape(num_heads, -1)} if "bias" in linear else own


def _out_of(linear: Arrays, num_heads: int) -> Arrays:
    """``(N E, M)`` to ``(N, E, M)``; the bias stays."""
    return linear | {"kernel": linear["kernel"].reshape(num_heads, -1, linear["kernel"].shape[1])}


def _layer_norm(tensors: Tensors, name: str, d_model: int) -> Arrays:
    return {"scale": tensors.take(f"{name}.weight", d_model), "bias": tensors.take(f"{name}.bias", d_model)}


def _unembed(settings: _Settings, tensors: Tensors, config: ModelConfig, *, default: bool = False) -> Arrays:
    """The output matrix, where it is not the token table."""
    if settings.flag("tie_word_embeddings", default):
        return {}
    return {"unembed": tensors.take("lm_head.weight", config.vocab_size, config.d_model)}


def _stacked(config: ModelConfig, layer: Callable[[int], Arrays]) -> Arrays:
    layers = [layer(i) for i in range(config.num_layers)]
    return jax.tree.map(lambda *arrays: np.stack(arrays), *layers)
