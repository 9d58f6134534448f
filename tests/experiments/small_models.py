"""Small random models in folders as they are published: BERT, Llama (grouped heads, in shards), GPT-2."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

VOCAB, WIDTH, LAYERS = 29, 12, 2
SENTENCES = ([5, 3, 28, 17, 11, 2, 7], [4, 4, 9])

SETTINGS: dict[str, dict[str, Any]] = {
    "bert": {
        "model_type": "bert",
        "architectures": ["BertForMaskedLM"],
        "hidden_size": WIDTH,
        "num_attention_heads": 3,
        "num_hidden_layers": LAYERS,
        "intermediate_size": 17,
        "vocab_size": VOCAB,
        "max_position_embeddings": 13,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-6,
        "pad_token_id": 0,
    },
    "llama": {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": WIDTH,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "num_hidden_layers": LAYERS,
        "intermediate_size": 17,
        "vocab_size": VOCAB,
        "max_position_embeddings": 13,
        "rms_norm_eps": 1e-4,
        "rope_theta": 500.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    },
    "gpt2": {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": WIDTH,
        "n_head": 3,
        "n_layer": LAYERS,
        "n_positions": 13,
        "vocab_size": VOCAB,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-4,
    },
}


def write(folder: Path, kind: str) -> Path:
    """Write ``config.json``, weights and ``tokenizer.json``; the same numbers every time."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(SETTINGS[kind]))
    write_tensors(folder, kind, tensors(kind))
    words = {f"w{i}": i for i in range(VOCAB)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def write_tensors(folder: Path, kind: str, arrays: dict[str, np.ndarray]) -> None:
    """Weights in one file, those of the Llama in two shards with an index."""
    if kind != "llama":
        save_file(arrays, folder / "model.safetensors", {"format": "pt"})
        return
    names = sorted(arrays)
    shards = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(names)}
    for shard in set(shards.values()):
        own = {name: arrays[name] for name in names if shards[name] == shard}
        save_file(own, folder / shard, {"format": "pt"})
    index = {"metadata": {}, "weight_map": shards}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def tensors(kind: str) -> dict[str, np.ndarray]:
    """Random weights by their published names, large enough that heads attend unevenly."""
    rng = np.random.default_rng(7)
    return {
        name: np.asarray(rng.standard_normal(shape) * 0.4 + (1 if _is_scale(name) else 0), np.float32)
        for name, shape in shapes(kind).items()
    }


def _is_scale(name: str) -> bool:
    parts = name.lower().split(".")
    return parts[-1] == "weight" and any("norm" in part or part.startswith("ln_") for part in parts)


def shapes(kind: str) -> dict[str, tuple[int, ...]]:
    """Shapes of all tensors of a published file, those included that nothing here uses."""
    found: dict[str, tuple[int, ...]] = {}

    def linear(name: str, inputs: int, outputs: int, *, bias: bool = True, transposed: bool = False) -> None:
        found[f"{name}.weight"] = (inputs, outputs) if transposed else (outputs, inputs)
        if bias:
            found[f"{name}.bias"] = (outputs,)

    def norm(name: str, *, bias: bool = True) -> None:
        found[f"{name}.weight"] = (WIDTH,)
        if bias:
            found[f"{name}.bias"] = (WIDTH,)

    if kind == "bert":
        table = "bert.embeddings"
        found[f"{table}.word_embeddings.weight"] = (VOCAB, WIDTH)
        found[f"{table}.position_embeddings.weight"] = (13, WIDTH)
        found[f"{table}.token_type_embeddings.weight"] = (2, WIDTH)
        norm(f"{table}.LayerNorm")
        for i in range(LAYERS):
            own = f"bert.encoder.layer.{i}"
            for part in ("query", "key", "value"):
                linear(f"{own}.attention.self.{part}", WIDTH, WIDTH)
            linear(f"{own}.attention.output.dense", WIDTH, WIDTH)
            norm(f"{own}.attention.output.LayerNorm")
            linear(f"{own}.intermediate.dense", WIDTH, 17)
            linear(f"{own}.output.dense", 17, WIDTH)
            norm(f"{own}.output.LayerNorm")
        linear("bert.pooler.dense", WIDTH, WIDTH)
        found["cls.predictions.bias"] = (VOCAB,)
    elif kind == "llama":
        found["model.embed_tokens.weight"] = (VOCAB, WIDTH)
        for i in range(LAYERS):
            own = f"model.layers.{i}"
            for letter, size in (("q", 24), ("k", 8), ("v", 8)):
                linear(f"{own}.self_attn.{letter}_proj", WIDTH, size, bias=False)
            linear(f"{own}.self_attn.o_proj", 24, WIDTH, bias=False)
            for letter in ("gate", "up"):
                linear(f"{own}.mlp.{letter}_proj", WIDTH, 17, bias=False)
            linear(f"{own}.mlp.down_proj", 17, WIDTH, bias=False)
            norm(f"{own}.input_layernorm", bias=False)
            norm(f"{own}.post_attention_layernorm", bias=False)
        norm("model.norm", bias=False)
        linear("lm_head", WIDTH, VOCAB, bias=False)
    else:
        found["transformer.wte.weight"] = (VOCAB, WIDTH)
        found["transformer.wpe.weight"] = (13, WIDTH)
        for i in range(LAYERS):
            own = f"transformer.h.{i}"
            norm(f"{own}.ln_1")
            norm(f"{own}.ln_2")
            linear(f"{own}.attn.c_attn", WIDTH, 3 * WIDTH, transposed=True)
            linear(f"{own}.attn.c_proj", WIDTH, WIDTH, transposed=True)
            linear(f"{own}.mlp.c_fc", WIDTH, 4 * WIDTH, transposed=True)
            linear(f"{own}.mlp.c_proj", 4 * WIDTH, WIDTH, transposed=True)
        norm("transformer.ln_f")
    return found
