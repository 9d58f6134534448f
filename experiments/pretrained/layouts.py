"""From the tensors and settings of BERT, Llama and GPT-2, as they are published, to this package's parameters.

Published matrices hold all heads side by side; here every head has its own (`mha_jax.projections`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.pretrained.config import ModelConfig
from experiments.pretrained.model import Params
from experiments.pretrained.settings import Settings, config_of, kind_of, llama_config
from experiments.pretrained.tensors import Tensors
from mha_jax import RotaryEmbedding

Arrays = dict[str, Any]


def from_settings(settings: Mapping[str, Any], tensors: Tensors) -> tuple[ModelConfig, Params]:
    """Configuration and parameters from a ``config.json`` and the tensors beside it.

    Raises:
        ValueError: a setting or a tensor is missing, or does not fit the others.
        NotImplementedError: a kind of model, or of position, that this package does not have.
    """
    own = Settings(settings, tensors.source)
    kind = kind_of(own)
    config = config_of(own)
    return config, LAYOUTS[kind](own, config, tensors)


def bert(settings: Settings, config: ModelConfig, tensors: Tensors) -> Params:
    """An encoder; what stands behind its last layer (pooler, heads of a task) is left out."""
    d_model, num_heads = config.d_model, config.num_heads
    start = _start(tensors, "bert.", "embeddings.word_embeddings.weight")

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
    return jax.tree.map(jnp.asarray, params)


def llama(settings: Settings, config: ModelConfig, tensors: Tensors) -> Params:
    """A decoder with grouped heads and rotary positions."""
    d_model, num_heads, head_dim = config.d_model, config.num_heads, config.head_dim
    start = _start(tensors, "model.", "embed_tokens.weight")
    sizes = {
        "q": num_heads * head_dim,
        "k": config.num_kv_heads * head_dim,
        "v": config.num_kv_heads * head_dim,
    }

    def linear(name: str, inputs: int, outputs: int) -> Arrays:
        bias = f"{name}.bias" in tensors
        said = "attention_bias" if ".self_attn." in name else "mlp_bias"
        if settings.flag(said, bias) != bias:
            found = "a" if bias else "no"
            raise ValueError(
                f"{tensors.source}: expected the setting {said!r} to fit the tensors, got {found} {name}.bias"
            )
        return _linear(tensors, name, inputs, outputs, bias=bias)

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
    return jax.tree.map(jnp.asarray, params)


def gpt2(settings: Settings, config: ModelConfig, tensors: Tensors) -> Params:
    """A decoder with learned positions. Its matrices are stored inputs first, unlike those of the others."""
    d_model, num_heads = config.d_model, config.num_heads
    start = _start(tensors, "transformer.", "wte.weight")

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
    tensors.finish(r".*\.attn\.(masked_)?bias|lm_head\.weight")
    return jax.tree.map(jnp.asarray, params)


LAYOUTS: dict[str, Callable[[Settings, ModelConfig, Tensors], Params]] = {
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
    settings = Settings(values | {"hidden_act": "silu", "tie_word_embeddings": True}, tensors.source)
    base, dims = metadata.get("llama.rope.freq_base", 10_000.0), metadata.get("llama.rope.dimension_count")
    rope = RotaryEmbedding(base=float(base), dims=dims and int(dims), style="interleaved")
    config = llama_config(settings, rope)
    return config, llama(settings, config, tensors)


def gguf_name(name: str) -> str:
    """What a tensor of a GGUF file is called elsewhere; its own name where it has no other."""
    parts = name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in GGUF_NAMES:
        return f"layers.{parts[1]}.{GGUF_NAMES[parts[2]]}.{parts[3]}"
    if len(parts) == 2 and parts[0] in GGUF_NAMES:
        return f"{GGUF_NAMES[parts[0]]}.{parts[1]}"
    return name


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


def _start(tensors: Tensors, prefix: str, name: str) -> str:
    """What all names of a file begin with: ``prefix`` where there is a head behind the model, else nothing.

    Raises:
        ValueError: if neither is so, with some of the names that there are.
    """
    for start in (prefix, ""):
        if f"{start}{name}" in tensors:
            return start
    raise ValueError(
        f"{tensors.source}: expected a tensor {prefix + name!r} or {name!r}, got {tensors.some()}"
    )


def _layer_norm(tensors: Tensors, name: str, d_model: int) -> Arrays:
    """Named ``weight`` and ``bias``, in files made of the first releases of BERT ``gamma`` and ``beta``."""
    scale, bias = (
        old if f"{name}.{old}" in tensors and f"{name}.{new}" not in tensors else new
        for new, old in (("weight", "gamma"), ("bias", "beta"))
    )
    return {
        "scale": tensors.take(f"{name}.{scale}", d_model),
        "bias": tensors.take(f"{name}.{bias}", d_model),
    }


def _unembed(settings: Settings, tensors: Tensors, config: ModelConfig, *, default: bool = False) -> Arrays:
    """The output matrix, where it is not the token table."""
    if settings.flag("tie_word_embeddings", default):
        return {}
    return {"unembed": tensors.take("lm_head.weight", config.vocab_size, config.d_model)}


def _stacked(config: ModelConfig, layer: Callable[[int], Arrays]) -> Arrays:
    layers = [layer(i) for i in range(config.num_layers)]
    return jax.tree.map(lambda *arrays: np.stack(arrays), *layers)
