"""Weights on disk, by name: safetensors files and folders of them, GGUF files. Nothing is unpickled."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gguf
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open


class Tensors:
    """Tensors by name; each is taken once, with the shape that is expected, as float32.

    Args:
        source: what to call them in an error; also an attribute.
        names: of all tensors there are.
        get: gives one, as it is; also an attribute.
    """

    def __init__(self, source: str, names: Iterable[str], get: Callable[[str], np.ndarray]) -> None:
        self.source = source
        self._left = set(names)
        self.get = get

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def take(self, name: str, *shape: int) -> np.ndarray:
        """The tensor, in float32.

        Raises:
            ValueError: if it is not there, has another shape, is not of floating point, or is not finite in float32.
        """
        if name not in self._left:
            raise ValueError(f"{self.source}: expected a tensor {name!r}, got none")
        self._left.remove(name)
        array = self.get(name)
        if array.shape != shape:
            raise ValueError(f"{self.source}: expected {name!r} of shape {shape}, got {array.shape}")
        if not jnp.issubdtype(array.dtype, jnp.floating):  # which knows bfloat16
            raise ValueError(f"{self.source}: expected {name!r} of floating point, got {array.dtype}")
        with np.errstate(over="ignore"):
            found = np.ascontiguousarray(array, np.float32)
        if not np.isfinite(found).all():
            number = found.size - np.isfinite(found).sum()
            raise ValueError(
                f"{self.source}: expected finite numbers in {name!r}, got {number} of {found.size} that are not"
            )
        return found

    def finish(self, ignored: str) -> None:
        """Check that all were taken but those whose whole name matches the pattern ``ignored``.

        A tensor that the model does not use would change what the model computes.

        Raises:
            ValueError: naming those left.
        """
        self._left = {name for name in self._left if not re.fullmatch(ignored, name)}
        if self._left:
            raise ValueError(f"{self.source}: expected only tensors of the model, got {self.some()}")

    def some(self) -> str:
        """The first names of those that are left, for an error."""
        left = sorted(self._left)
        more = f" and {len(left) - 3} more" if len(left) > 3 else ""
        return f"{', '.join(left[:3]) or 'none'}{more}"


def weight_files(folder: Path) -> list[Path]:
    """Files that `from_folder` reads: the weights whole, or an index and its shards.

    Raises:
        ValueError: if the index is broken.
    """
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    return [whole] if whole.is_file() else [index, *_shards(index)] if index.is_file() else []


def _shards(index: Path) -> list[Path]:
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise ValueError(f"{index}: expected a weight_map from tensors to files, got {names!r:.80}")
    return [index.parent / name for name in sorted(set(names.values()))]


def from_folder(folder: Path) -> Tensors:
    """Tensors of ``model.safetensors``, or of the shards that ``model.safetensors.index.json`` names.

    Raises:
        FileNotFoundError: if there is neither, or a shard is missing.
        ValueError: if a file is broken.
    """
    files = [file for file in weight_files(folder) if file.suffix != ".json"]
    if not files:
        raise FileNotFoundError(f"{folder}: expected model.safetensors or its index, got neither")
    found: dict[str, Path] = {}
    for file in files:
        if file.parent != folder or not file.is_file():
            raise FileNotFoundError(f"{folder}: expected the shard {file.name}, got none")
        try:
            with safe_open(file, framework="numpy") as tensors:
                found |= dict.fromkeys(tensors.keys(), file)
        except SafetensorError as error:
            raise ValueError(f"{file}: expected a safetensors file, got a broken one: {error}") from None

    def get(name: str) -> np.ndarray:
        with safe_open(found[name], framework="numpy") as tensors:
            return tensors.get_tensor(name)

    return Tensors(str(folder), found, get)


def from_gguf(reader: gguf.GGUFReader, source: str) -> Tensors:
    """Tensors of a GGUF file, with quantised ones expanded to float32; shapes in the order of NumPy, rows first."""
    found = {tensor.name: tensor for tensor in reader.tensors}

    def get(name: str) -> np.ndarray:
        tensor = found[name]
        # A file lists the sizes of a tensor fastest first; its data come as rows already.
        return gguf.dequantize(tensor.data, tensor.tensor_type).reshape(tensor.shape[::-1])

    return Tensors(source, found, get)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is no JSON object.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path.parent}: expected {path.name}, got none")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON, got {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value
