"""Hand-set weights: D heads that retrieve, layers that share the work, one head that copies the whole input (ours).

All in the parameters of `theory.retrieval.model`, for the `max` task. They show what *exists*; what a trainer finds is
measured apart.
"""

from typing import Any

import numpy as np
from jaxtyping import Array, Float

from theory.retrieval.model import RetrievalModel

_MARK = 8.0
"""Minus the class token's scores: no sequence of normal tokens has a best score below -8."""

ReluLayers = list[tuple[np.ndarray, np.ndarray]]
"""Weights ``(in, out)`` and biases ``(out,)``; a ReLU after each but the last."""


def retrieving_heads(
    directions: Float[np.ndarray, "D d"], length: int, *, sharpness: float = 1e4, num_layers: int = 1
) -> tuple[RetrievalModel, dict[str, Any]]:
    """``D / L`` heads a layer, each of which retrieves one maximum: exact in the limit of infinite ``sharpness``.

    Head i has the logits ``sharpness * <a_i, x>`` and the value ``<a_i, x>``, so the only error is the softmax's: a
    token whose score is ``g`` below the best has weight at most ``exp(-sharpness g)``. One layer needs tokens of
    width D only (per-head dimension 1). Several layers write into slots of their own, which no query or key reads,
    and the class token, with a large negative number where tokens have their scores, gives every query and is not
    attended itself: with residual connections ``L h = D`` heads in L layers suffice for this task.

    Args:
        directions: ``a_i``, any vectors that are not zero.
        length: T.
        sharpness: of the softmax.
        num_layers: L, a divisor of D.

    Returns:
        The model (linear encoder) and its parameters.

    Raises:
        ValueError: if ``num_layers`` does not divide D.
    """
    targets, width = directions.shape
    if num_layers < 1 or targets % num_layers:
        raise ValueError(f"num_layers: expected a divisor of {targets}, got {num_layers}")
    heads = targets // num_layers
    slots = targets * (2 if num_layers > 1 else 1)
    model = RetrievalModel(
        length=length,
        width=width,
        num_heads=heads,
        per_head_dim=slots // heads,
        readout_width=2,
        num_layers=num_layers,
    )
    dim = model.per_head_dim
    lift = np.zeros((width, slots), np.float32)
    lift[:, :targets] = directions.T
    class_token = np.zeros(slots, np.float32)
    class_token[:targets] = -_MARK
    layers = []
    for layer in range(num_layers):
        query, key, value = np.zeros((3, heads, slots, dim), np.float32)
        out = np.zeros((heads, dim, slots), np.float32)
        for head in range(heads):
            target = layer * heads + head
            query[head, target, 0] = -sharpness / _MARK / model.attention_scale
            key[head, target, 0] = value[head, target, 0] = 1
            out[head, 0, slots - targets + target] = 1
        layers.append(_layer(query, key, value, out))
    # gelu(u) - gelu(-u) = u; with one layer the slots hold the class token's mark + maximum, with several the maximum.
    ones = np.zeros(slots, np.float32)
    ones[slots - targets :] = 1
    constant = _MARK * targets if num_layers == 1 else 0
    readout = {
        "hidden": {"kernel": np.stack([ones, -ones], axis=1), "bias": np.zeros(2, np.float32)},
        "out": {"kernel": np.array([1, -1], np.float32), "bias": np.array(constant, np.float32)},
    }
    params = {
        "lift": {"kernel": lift, "bias": np.zeros(slots, np.float32)},
        "class_token": class_token,
        "layers": layers,
        "readout": readout,
    }
    return model, params


def _layer(query: np.ndarray, key: np.ndarray, value: np.ndarray, out: np.ndarray) -> dict[str, Any]:
    kernels = {"query": query, "key": key, "value": value, "out": out}
    layer: dict[str, Any] = {name: {"kernel": kernel} for name, kernel in kernels.items()}
    return layer | {"log_sharpness": np.zeros(len(query), np.float32)}


def memorising_head(
    length: int, width: int, readout_width: int = 32
) -> tuple[RetrievalModel, dict[str, Any]]:
    """One head with ``n = T d`` that copies the input: attention is uniform, what the class token gets is the sequence.

    The token at position t is ``e_t (x) x^(t)`` and keys are zero, so the mean of the tokens, multiplied by T on the
    way out, is ``(x^(1), ..., x^(T))``, exactly (Theorem 2, part 3, Yu et al. 2025, with the factor T in W_O). All
    the work is left to the read-out, whose weights here are zero: train it, or apply `tournament` to the class token.

    Returns:
        The model (encoder ``product``) and its parameters.
    """
    dim = length * width
    model = RetrievalModel(
        length=length,
        width=width,
        num_heads=1,
        per_head_dim=dim,
        encoder="product",
        readout_width=readout_width,
    )
    zeros, identity = np.zeros((1, dim, dim), np.float32), np.eye(dim, dtype=np.float32)[None]
    params = {
        "class_token": np.zeros(dim, np.float32),
        "layers": [_layer(zeros, zeros, identity, length * identity)],
        "readout": {
            "hidden": {
                "kernel": np.zeros((dim, readout_width), np.float32),
                "bias": np.zeros(readout_width, np.float32),
            },
            "out": {"kernel": np.zeros(readout_width, np.float32), "bias": np.zeros((), np.float32)},
        },
    }
    return model, params


def tournament(directions: Float[np.ndarray, "D d"], length: int) -> ReluLayers:
    """A ReLU network that computes ``sum_i max_t <a_i, x^(t)>`` of a copied sequence, exactly.

    ``max(p, q) = relu(p - q) + relu(q) - relu(-q)``, in rounds as in a tournament: ``ceil(log2 T)`` hidden layers and
    about ``3 D (T - 1)`` hidden units: what a head that retrieves saves the feed-forward network. (For T = 1 the
    network is linear.)

    Args:
        directions: ``a_i``.
        length: T.

    Returns:
        Layers, float64, for `apply_relu_network`.
    """
    targets, width = directions.shape
    # Rows: (x^(1), ..., x^(T)); columns: the players of each target, target by target.
    linear = np.einsum("ts,id->tdis", np.eye(length), directions).reshape(length * width, targets * length)
    players, layers = length, []
    while players > 1:
        pairs, odd = divmod(players, 2)
        hidden = np.zeros((players, 3 * pairs + 2 * odd))
        onwards = np.zeros((3 * pairs + 2 * odd, pairs + odd))
        for pair in range(pairs):
            p, q, unit = 2 * pair, 2 * pair + 1, 3 * pair
            hidden[p, unit], hidden[q, unit] = 1, -1
            hidden[q, unit + 1], hidden[q, unit + 2] = 1, -1
            onwards[unit : unit + 3, pair] = 1, 1, -1
        if odd:
            hidden[-1, -2:] = 1, -1
            onwards[-2:, -1] = 1, -1
        weights = linear @ np.kron(np.eye(targets), hidden)
        layers.append((weights, np.zeros(weights.shape[1])))
        linear, players = np.kron(np.eye(targets), onwards), pairs + odd
    total = linear @ np.ones((targets, 1))
    return [*layers, (total, np.zeros(1))]


def apply_relu_network(
    layers: ReluLayers, inputs: Float[np.ndarray, "b f"] | Float[Array, "b f"]
) -> Float[np.ndarray, "b"]:
    """Output of a network with one output, ReLU after every layer but the last, in float64."""
    state = np.asarray(inputs, np.float64)
    for index, (weights, biases) in enumerate(layers):
        state = state @ weights + biases
        if index < len(layers) - 1:
            state = np.maximum(state, 0)
    return state[:, 0]


def num_hidden_units(layers: ReluLayers) -> int:
    """Hidden units of a network."""
    return sum(len(biases) for _, biases in layers[:-1])
