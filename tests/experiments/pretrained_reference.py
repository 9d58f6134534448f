"""What Hugging Face's `transformers` makes of the models in float32: the reference of `experiments.pretrained`.

Needs the extra `parity` (transformers, PyTorch); run as ``python -m tests.experiments.pretrained_reference`` it writes
the small arrays with which the tests compare where that extra is not installed.
"""

import os
import shutil
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from experiments.pretrained import WHEELS, wheel_files
from tests.experiments import small_models

GOLDEN = Path(__file__).parent / "data" / "pretrained-golden.npz"
SMALL_GOLDEN = GOLDEN.with_name("pretrained-small-golden.npz")
SENTENCES = ("The cat sat on the mat, and 12", "Heads differ.")
"""Of different lengths."""
TEXTS = (*SENTENCES, "  In 1984, naïve Dr. O'Neil didn't   pay $3.50\u2014why?\nШесть 六")
"""For the tokenisers: digits, spaces, accents, quotes, other scripts."""
LAYERS = {"minilm-l6": (0, 2, 5), "smollm2-135m": (0, 17, 29)}
"""Layers whose attention maps are committed, of the first sentence."""
LOGITS = slice(None, None, 331)
"""Tokens whose logits are committed."""


def reference(name: str) -> tuple[list[list[int]], list[dict[str, np.ndarray]]]:
    """Ids of `TEXTS`, and what the model makes of each of the `SENTENCES`, run by itself, without padding.

    Returns:
        Ids, and for each sentence last states ``(t, M)``, attention maps ``(L, N, t, t)`` and, of a causal model,
        logits ``(t, V)``.
    """
    transformers, options = _library()
    files = wheel_files(name)
    with tempfile.TemporaryDirectory() as folder:  # the loaders look around for more files: here are none
        for file, path in files.items():
            shutil.copy(path, Path(folder) / file)
        if "config.json" in files:
            model, more = transformers.AutoModel.from_pretrained(folder, **options), {}
        else:
            more = {"gguf_file": next(iter(files))}
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, **more, **options)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **more)
        ids = [tokenizer(text)["input_ids"] for text in TEXTS]
    return ids, run(model, ids[: len(SENTENCES)])


def small_reference(kind: str) -> list[dict[str, np.ndarray]]:
    """The same for a small model of `tests.experiments.small_models`."""
    transformers, options = _library()
    with tempfile.TemporaryDirectory() as folder:
        small_models.write(Path(folder), kind)
        loader = transformers.AutoModel if kind == "bert" else transformers.AutoModelForCausalLM
        return run(loader.from_pretrained(folder, **options), list(small_models.SENTENCES))


def _library() -> tuple[Any, dict[str, Any]]:
    os.environ["HF_HUB_OFFLINE"] = "1"
    options = {"attn_implementation": "eager", "dtype": import_module("torch").float32}
    return import_module("transformers"), options


def run(model: Any, sentences: list[list[int]]) -> list[dict[str, np.ndarray]]:
    """A model of transformers on sentences, one after the other."""
    torch = import_module("torch")
    found = []
    model.eval()
    for ids in sentences:
        with torch.no_grad():
            out = model(torch.tensor([ids]), output_attentions=True, output_hidden_states=True)
        arrays = {
            "hidden": out.hidden_states[-1][0].numpy(),
            "weights": np.stack([a[0].numpy() for a in out.attentions]),
        }
        if "logits" in out:
            arrays["logits"] = out.logits[0].numpy()
        found.append(arrays)
    return found


def golden(name: str) -> dict[str, np.ndarray]:
    """The part of the reference that is committed."""
    ids, (first, second) = reference(name)
    arrays = {f"ids_{i}": np.array(own, np.int32) for i, own in enumerate(ids)}
    arrays |= {
        "hidden": first["hidden"],
        "hidden_second": second["hidden"],
        "weights": first["weights"][list(LAYERS[name])],
    }
    if "logits" in first:
        arrays["logits"] = first["logits"][:, LOGITS]
    return {f"{name}/{key}": array for key, array in arrays.items()}


def small_golden(kind: str) -> dict[str, np.ndarray]:
    """All of a small model's reference."""
    return {
        f"{kind}/{part}_{row}": array
        for row, arrays in enumerate(small_reference(kind))
        for part, array in arrays.items()
    }


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    for path, names, make in (
        (GOLDEN, WHEELS, golden),
        (SMALL_GOLDEN, small_models.SETTINGS, small_golden),
    ):
        np.savez_compressed(
            path, allow_pickle=False, **{k: v for name in names for k, v in make(name).items()}
        )
        print(path.name, path.stat().st_size, "bytes")
