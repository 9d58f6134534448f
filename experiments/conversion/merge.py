"""Merging the key/value heads of a layer into fewer ones. Pure functions of NumPy arrays; computed in float64.

With the members ``g`` of a group, keys ``k_g`` before RoPE and values ``v_g``:

- ``first``: the first member's key and value;
- ``mean``: the mean of the members' (Ainslie et al. 2023, GQA);
- ``svd``: ``k_g ~ a_g u`` in every pair of features that RoPE turns together, as complex numbers, and ``v_g ~ B_g w``
  with ``w`` of one head's width. ``u`` and ``w`` are linear in the members' keys and values, so that they are the
  merged heads; conjugate ``a_g`` goes into the query heads of ``g`` and ``B_g`` into their output matrices.

The best ``a`` and ``B`` for squared error are leading eigenvectors of second moments: of the keys' and values' own on
text (``svd_inputs``), or of the weights, as if the input were white (``svd``; then they are singular vectors of the
stacked maps). Multiplying a pair by a complex number commutes with its rotation, and with different angles for
different pairs nothing else does: ``svd`` is exact where keys of members differ by such factors, and values lie in as
many dimensions as one head has. That is ours; tests check both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Complex, Float

from mha_jax import RotaryEmbedding

Method = Literal["first", "mean", "svd", "svd_inputs"]
METHODS: tuple[Method, ...] = ("first", "mean", "svd", "svd_inputs")
Part = Literal["both", "keys", "values"]
Layer = Mapping[str, Mapping[str, Any]]


class Moments(NamedTuple):
    """Second moments of the stacked keys (before RoPE) and values of one layer.

    Attributes:
        key: ``(K D, K D)``, head after head.
        value: ``(K E, K E)``.
    """

    key: Float[np.ndarray, "kd kd"]
    value: Float[np.ndarray, "ke ke"]


class Energy(NamedTuple):
    """Shares of the keys' and values' second moment that a merge keeps: 1 - squared error / square.

    Attributes:
        key: of the keys.
        value: of the values.
        key_unrotated: what the best fit of the same width could keep of the keys if RoPE were not.
    """

    key: float
    value: float
    key_unrotated: float


def weight_moments(layer: Layer) -> Moments:
    """Moments for white inputs: products of the weights with themselves."""
    return Moments(*(x.T @ x for x in (_stacked(layer, "key"), _stacked(layer, "value"))))


def merged(
    layer: Layer, num_kv_heads: int, rope: RotaryEmbedding | None, method: Method, moments: Moments
) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, dict[str, np.ndarray]]]:
    """A layer with fewer key/value heads, its keys alone merged, and its values.

    Args:
        layer: ``query (N, M, D)``, ``key (K, M, D)``, ``value (K, M, E)``, ``out (N, E, M_out)``, each a ``kernel``.
        num_kv_heads: a divisor of K; consecutive heads are merged.
        rope: of the layer.
        method: see the module.
        moments: what ``svd`` fits (`weight_moments`) and ``svd_inputs`` (of the keys and values on text).

    Returns:
        Two layers whose key/value heads are as many as they were, equal within a group: one with merged keys and the
        values as they were, one the other way round. `joined` puts both merges into one layer of fewer heads.

    Raises:
        ValueError: the number of heads does not divide K, or the method is unknown.
        NotImplementedError: biases, normalised keys, or RoPE of some features only.
    """
    kernels = _kernels(layer, rope)
    heads = kernels["key"].shape[0]
    if num_kv_heads < 1 or heads % num_kv_heads:
        raise ValueError(f"num_kv_heads: expected a divisor of {heads}, got {num_kv_heads}")
    if method not in METHODS:
        raise ValueError(f"method: expected one of {', '.join(METHODS)}, got {method!r}")
    size = heads // num_kv_heads
    group = kernels["query"].shape[0] // heads
    keys, values = dict(kernels), dict(kernels)
    for name, owner in ("key", keys), ("value", values):
        owner[name] = owner[name].copy()
    keys["query"], values["out"] = kernels["query"].copy(), kernels["out"].copy()
    for start in range(0, heads, size):
        members = slice(start, start + size)
        readers = slice(start * group, (start + size) * group)
        key, factors = _shared_key(kernels["key"][members], rope, method, _of(moments.key, heads, members))
        keys["key"][members] = key
        if factors is not None:
            query = _paired(kernels["query"][readers], rope)
            keys["query"][readers] = _unpaired(np.repeat(factors.conj(), group, 0)[:, None] * query, rope)
        value, maps = _shared_value(kernels["value"][members], method, _of(moments.value, heads, members))
        values["value"][members] = value
        if maps is not None:
            own = np.repeat(maps, group, 0)
            values["out"][readers] = np.einsum("nef,nem->nfm", own, kernels["out"][readers])
    return _as_layer(keys), _as_layer(values)


def joined(
    layer: Layer, keys: Layer, values: Layer, num_kv_heads: int, part: Part
) -> dict[str, dict[str, np.ndarray]]:
    """One layer from the two of `merged`; of fewer heads where both parts are merged.

    Args:
        layer: the original.
        keys: with merged keys.
        values: with merged values.
        num_kv_heads: of the result, where ``part`` is ``both``.
        part: which merge to take; with one alone, key/value heads stay as many as they were.
    """
    k, v = (keys if part != "values" else layer), (values if part != "keys" else layer)
    result = {"query": k["query"], "key": k["key"], "value": v["value"], "out": v["out"]}
    kernels = {name: np.asarray(x["kernel"], np.float64) for name, x in result.items()}
    if part == "both":
        every = kernels["key"].shape[0] // num_kv_heads
        kernels |= {name: kernels[name][::every] for name in ("key", "value")}
    return _as_layer(kernels)


def energy(
    layer: Layer, num_kv_heads: int, rope: RotaryEmbedding | None, method: Method, of: Moments, fit: Moments
):
    """`Energy` that a merge keeps of the moments ``of``, where ``fit`` are those that it was made by."""
    kernels = _kernels(layer, rope)
    heads, width = kernels["key"].shape[0], kernels["key"].shape[2]
    size = heads // num_kv_heads
    lost_key = lost_value = kept = 0.0
    for start in range(0, heads, size):
        members = slice(start, start + size)
        own, made = _of(of.key, heads, members), _of(fit.key, heads, members)
        factors = _factors(made, size, rope, method)
        lost_key += _lost(_complex_moments(own, size, rope), factors, method)
        kept += float(np.linalg.eigvalsh(own)[-width:].sum())
        own, made = _of(of.value, heads, members), _of(fit.value, heads, members)
        lost_value += _lost_values(own, made, size, method)
    total = float(np.trace(of.key))
    return Energy(1 - lost_key / total, 1 - lost_value / float(np.trace(of.value)), kept / total)


# Keys


def _shared_key(
    key: Float[np.ndarray, "r m d"], rope: RotaryEmbedding | None, method: Method, moments: np.ndarray
) -> tuple[np.ndarray, Complex[np.ndarray, "r p"] | None]:
    """The shared map (M, D), and what each member's queries are multiplied by (conjugated), pair by pair."""
    if method == "first":
        return key[0], None
    if method == "mean":
        return key.mean(0), None
    factors = _factors(moments, key.shape[0], rope, method)
    shared = np.einsum("rp,rmp->mp", factors.conj(), _paired(key, rope)) / key.shape[0]
    return _unpaired(shared[None], rope)[0], factors


def _factors(
    moments: np.ndarray, size: int, rope: RotaryEmbedding | None, method: Method
) -> Complex[np.ndarray, "r p"]:
    """``a_g`` of every pair, of mean square 1 over the members; their mean is real and positive.

    With it the shared key is ``sum_g conj(a_g) k_g / r``: the mean of the members where all factors are 1.
    """
    if method in ("first", "mean"):
        return np.ones((size, moments.shape[0] // size // 2), complex)
    leading = np.linalg.eigh(_complex_moments(moments, size, rope))[1][..., -1]  # (p, r)
    phase = leading.sum(-1, keepdims=True)
    phase = np.where(phase == 0, 1, phase)
    return (leading * (np.abs(phase) / phase) * np.sqrt(size)).T


def _complex_moments(
    moments: np.ndarray, size: int, rope: RotaryEmbedding | None
) -> Complex[np.ndarray, "p r r"]:
    """``E[z_g conj(z_h)]`` of every pair, from the real moments of all features."""
    width = moments.shape[0] // size
    first, second = _pairs(width, rope)
    blocks = moments.reshape(size, width, size, width)
    same = np.arange(width // 2)

    def part(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return blocks[:, a][:, :, :, b][:, same, :, same]

    real = part(first, first) + part(second, second)
    return real + 1j * (part(second, first) - part(first, second))


def _lost(
    moments: Complex[np.ndarray, "p r r"], factors: Complex[np.ndarray, "r p"], method: Method
) -> float:
    """Squared error of ``a_g u`` for the keys."""
    size = factors.shape[0]
    a = factors.T[..., None]  # (p, r, 1)
    onto = a @ a.conj().swapaxes(-1, -2) / size
    if method == "first":
        onto = np.zeros_like(onto)
        onto[..., 0] = 1
    rest = np.eye(size) - onto
    return float(np.einsum("pij,pjk,pik->", rest, moments, rest.conj()).real)


# Values


def _shared_value(
    value: Float[np.ndarray, "r m e"], method: Method, moments: np.ndarray
) -> tuple[np.ndarray, Float[np.ndarray, "r e f"] | None]:
    """The shared map (M, E), and ``B_g`` of every member."""
    if method == "first":
        return value[0], None
    if method == "mean":
        return value.mean(0), None
    size, _, width = value.shape
    basis = np.linalg.eigh(moments)[1][:, -width:].reshape(size, width, width)
    return np.einsum("ref,rme->mf", basis, value), basis


def _lost_values(own: np.ndarray, made: np.ndarray, size: int, method: Method) -> float:
    width = own.shape[0] // size
    if method == "first":
        onto = np.kron(np.eye(size)[0][None] * np.ones((size, 1)), np.eye(width))
    elif method == "mean":
        onto = np.kron(np.full((size, size), 1 / size), np.eye(width))
    else:
        basis = np.linalg.eigh(made)[1][:, -width:]
        onto = basis @ basis.T
    rest = np.eye(own.shape[0]) - onto
    return float(np.einsum("ij,jk,ik->", rest, own, rest))


# Layout


def _pairs(width: int, rope: RotaryEmbedding | None) -> tuple[np.ndarray, np.ndarray]:
    """Features of the pairs that RoPE turns."""
    if rope is not None and rope.style == "interleaved":
        return np.arange(0, width, 2), np.arange(1, width, 2)
    return np.arange(width // 2), np.arange(width // 2, width)


def _paired(x: np.ndarray, rope: RotaryEmbedding | None) -> Complex[np.ndarray, "*b p"]:
    first, second = _pairs(x.shape[-1], rope)
    return x[..., first] + 1j * x[..., second]


def _unpaired(x: Complex[np.ndarray, "*b p"], rope: RotaryEmbedding | None) -> np.ndarray:
    first, second = _pairs(2 * x.shape[-1], rope)
    result = np.empty((*x.shape[:-1], 2 * x.shape[-1]))
    result[..., first], result[..., second] = np.real(x), np.imag(x)
    return result


def _stacked(layer: Layer, name: str) -> np.ndarray:
    """(M, K D) of a part."""
    kernel = np.asarray(layer[name]["kernel"], np.float64)
    return np.moveaxis(kernel, 0, 1).reshape(kernel.shape[1], -1)


def _of(moments: np.ndarray, heads: int, members: slice) -> np.ndarray:
    """Moments of some heads."""
    width = moments.shape[0] // heads
    where = slice(members.start * width, members.stop * width)
    return moments[where, where]


def _kernels(layer: Layer, rope: RotaryEmbedding | None) -> dict[str, np.ndarray]:
    names = ("query", "key", "value", "out")
    if more := set(layer) - set(names) | {n for name in names for n in set(layer[name]) - {"kernel"}}:
        raise NotImplementedError(f"layer: heads with {', '.join(sorted(more))} cannot be merged")
    kernels = {name: np.asarray(layer[name]["kernel"], np.float64) for name in names}
    width = kernels["key"].shape[-1]
    if rope is None or rope.rotated_dims(width) != width:
        raise NotImplementedError("rope: only heads of which RoPE turns every feature can be merged")
    return kernels


def _as_layer(kernels: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    return {name: {"kernel": kernels[name]} for name in ("query", "key", "value", "out")}
