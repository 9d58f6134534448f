"""One attention layer (or several) read at a class token: the model class of the head-count theorem, as pure functions.

``y = F(c_0 + W_O concat_i sum_t softmax_t(beta_i <W_Q,i c_0, W_K,i x_t> / sqrt(n)) W_V,i x_t)`` with tokens ``x_t =
P(x^(t), t)`` of width ``E = n h``, a learned class token ``c_0``, no layer normalisation, and a read-out F of one
hidden layer (GELU). beta_i is learned (its logarithm is), one a head: the paper lets beta be as large as one likes.
Yu et al. 2025 (arXiv 2510.06662); the paper's encoder, per-head dimension and optimiser are not published.

Encoders P: ``linear``; ``mlp`` (one hidden layer, GELU); ``product``, ``e_t (x) x`` of width ``T d``, fixed, which is
the memorising head's. The first two can add learned vectors of positions.

Every encoder ends in a linear map, ``x_t = features_t @ lift + bias``. With one layer that map and the head's own
projections are applied to the queries and to the attended *features* instead of to every token, a reordering of the
same products (as in latent attention): heads then share keys and values of the features' width, and the cost of a token
does not grow with ``E``. `tokens` and `mha_jax`'s `multi_head_attention` give the plain form; a test compares them.

With several layers the class token is attended like any other token, and every token is updated (residual):
``x <- x + attention(x)``. This is the form in which ``L h >= D`` heads suffice for the `max` task (see
`theory.retrieval.constructions`); in the paper ``L h >= D`` is a conjecture.

Parameters are a pytree (for one model, without batch axes)::

    encoder   kernel (d, W), bias (W,)                  mlp alone
    positions (T, W) or (T, E)                          where positions are learned
    lift      kernel (W or d, E), bias (E,)             not for product
    class_token (E,)
    layers    as `multi_head_attention` has them: query, key, value kernel (h, E, n), out kernel (h, n, E); and
              log_sharpness (h,), the logarithms of beta          a list
    readout   hidden kernel (E, N), bias (N,); out kernel (N,), bias ()
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mha_jax import attention_weights, dot_product_attention
from mha_jax.projections import multi_head_attention

Encoder = Literal["linear", "mlp", "product"]
ENCODERS: tuple[Encoder, ...] = ("linear", "mlp", "product")
Params = Mapping[str, Any]


@dataclass(frozen=True)
class RetrievalModel:
    """Sizes of a model.

    Attributes:
        length: tokens T.
        width: entries d of a token.
        num_heads: h.
        per_head_dim: n, of queries, keys and values.
        encoder: one of `ENCODERS`.
        encoder_width: hidden units W of an ``mlp``.
        readout_width: hidden units N of the read-out.
        num_layers: attention layers L.
        positions: learn a vector for every position.
    """

    length: int
    width: int
    num_heads: int
    per_head_dim: int
    encoder: Encoder = "linear"
    encoder_width: int = 32
    readout_width: int = 32
    num_layers: int = 1
    positions: bool = False

    def __post_init__(self) -> None:
        sizes = (
            "length",
            "width",
            "num_heads",
            "per_head_dim",
            "encoder_width",
            "readout_width",
            "num_layers",
        )
        for name in sizes:
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected a positive integer, got {getattr(self, name)}")
        if self.encoder not in ENCODERS:
            raise ValueError(f"encoder: expected one of {ENCODERS}, got {self.encoder!r}")
        if self.encoder == "product":
            if self.embedding_dim != self.length * self.width:
                raise ValueError(
                    f"per_head_dim: expected length * width / num_heads = {self.length * self.width} / "
                    f"{self.num_heads} for 'product', got {self.per_head_dim}"
                )
            if self.positions:
                raise ValueError("positions: expected False for 'product', which has them, got True")

    @property
    def embedding_dim(self) -> int:
        """E = n h."""
        return self.num_heads * self.per_head_dim

    @property
    def feature_dim(self) -> int:
        """Width of what the encoder's last, linear map is applied to."""
        return {"linear": self.width, "mlp": self.encoder_width, "product": self.length * self.width}[
            self.encoder
        ]

    @property
    def attention_scale(self) -> float:
        """``1 / sqrt(n)``; 0 in its place makes attention uniform."""
        return self.per_head_dim**-0.5

    @property
    def num_readout_parameters(self) -> int:
        """Parameters of the read-out."""
        return self.readout_width * (self.embedding_dim + 2) + 1

    @property
    def num_parameters(self) -> int:
        """The theorem's M: parameters of read-out and encoder. The fixed ``product`` has none."""
        encoder = 0
        if self.encoder != "product":
            encoder = (self.feature_dim + 1) * self.embedding_dim
        if self.encoder == "mlp":
            encoder += (self.width + 1) * self.encoder_width
        if self.positions:
            encoder += self.length * (self.encoder_width if self.encoder == "mlp" else self.embedding_dim)
        return encoder + self.num_readout_parameters


def initial_params(
    model: RetrievalModel, rng: np.random.Generator, compiled: RetrievalModel | None = None
) -> dict[str, Any]:
    """Draw a model's parameters: normal with variance 1 / fan-in, biases zero; float32.

    A single head on ``product`` features starts from values and an output that copy, as in
    `theory.retrieval.constructions.memorising_head`: with uniform attention its read-out gets the input as it is.

    Args:
        model: the sizes that are used.
        rng: source of the draws.
        compiled: sizes of the arrays (at least the model's), so that one compiled program serves several models:
            surplus heads and columns are zero, receive zero gradient and stay zero.

    Raises:
        ValueError: if the arrays would be too small.
    """
    out = compiled or model
    if out.num_heads < model.num_heads or out.per_head_dim < model.per_head_dim:
        raise ValueError(f"compiled: expected sizes of at least {model}, got {out}")
    width = max(out.embedding_dim, model.embedding_dim)

    def normal(shape: tuple[int, ...], fan_in: int, full: tuple[int, ...]) -> np.ndarray:
        array = np.zeros(full, np.float32)
        array[tuple(slice(size) for size in shape)] = rng.standard_normal(shape) / np.sqrt(fan_in)
        return array

    def zeros(*shape: int) -> np.ndarray:
        return np.zeros(shape, np.float32)

    used, features, readout = model.embedding_dim, model.feature_dim, model.readout_width
    heads, inner = (model.num_heads, model.per_head_dim), (out.num_heads, out.per_head_dim)
    params: dict[str, Any] = {}
    if model.encoder == "mlp":
        hidden = (model.width, model.encoder_width)
        params["encoder"] = {"kernel": normal(hidden, model.width, hidden), "bias": zeros(hidden[1])}
    if model.positions:
        own, full = (features, features) if model.encoder == "mlp" else (used, width)
        params["positions"] = normal((model.length, own), 1, (model.length, full))
    if model.encoder != "product":
        params["lift"] = {
            "kernel": normal((features, used), features, (features, width)),
            "bias": zeros(width),
        }
    params["class_token"] = normal((used,), 1, (width,))

    def layer() -> dict[str, Any]:
        read, full = (heads[0], used, heads[1]), (inner[0], width, inner[1])
        parts = {name: {"kernel": normal(read, used, full)} for name in ("query", "key", "value")}
        if (
            model.encoder == "product" and model.num_heads == 1
        ):  # values and output copy, see `memorising_head`
            identity = np.eye(used, dtype=np.float32)[None]
            parts["value"] = {"kernel": identity}
            return parts | {"out": {"kernel": model.length * identity}, "log_sharpness": zeros(1)}
        written, full = (*heads, used), (*inner, width)
        out = {"kernel": normal(written, used, full)}
        return parts | {"out": out, "log_sharpness": zeros(inner[0])}

    params["layers"] = [layer() for _ in range(model.num_layers)]
    params["readout"] = {
        "hidden": {"kernel": normal((used, readout), used, (width, readout)), "bias": zeros(readout)},
        "out": {"kernel": normal((readout,), readout, (readout,)), "bias": zeros()},
    }
    return params


def features(params: Params, inputs: Float[Array, "t d"], encoder: Encoder) -> Float[Array, "t f"]:
    """What the encoder's last, linear map is applied to."""
    if encoder == "product":
        length, width = inputs.shape
        return (jnp.eye(length, dtype=inputs.dtype)[:, :, None] * inputs[:, None, :]).reshape(
            length, length * width
        )
    if encoder == "linear":
        return inputs
    hidden = inputs @ params["encoder"]["kernel"] + params["encoder"]["bias"][None]
    return jax.nn.gelu(hidden + params["positions"] if "positions" in params else hidden)


def tokens(params: Params, inputs: Float[Array, "t d"], encoder: Encoder) -> Float[Array, "t e"]:
    """Encoded tokens ``P(x^(t), t)``."""
    lifted = features(params, inputs, encoder)
    if encoder != "product":
        lifted = lifted @ params["lift"]["kernel"] + params["lift"]["bias"][None]
    return lifted + params["positions"] if encoder == "linear" and "positions" in params else lifted


def predict(
    params: Params, inputs: Float[Array, "t d"], *, encoder: Encoder, scale: Float[Array, ""] | float
) -> Float[Array, ""]:
    """The model's output for one sequence.

    Args:
        params: see `theory.retrieval.model`.
        inputs: ``x^(1), ..., x^(T)``.
        encoder: which one.
        scale: of the logits, `RetrievalModel.attention_scale`; 0 attends uniformly.
    """
    first = params["class_token"]
    if len(params["layers"]) == 1:
        state = first + _read(params, inputs, encoder, scale)
    else:
        state = jnp.concatenate([first[None], tokens(params, inputs, encoder)])
        for layer in params["layers"][:-1]:
            state = state + _attend(layer, state, state, scale)
        state = state[0] + _attend(params["layers"][-1], state[:1], state, scale)[0]
    hidden, out = params["readout"]["hidden"], params["readout"]["out"]
    return jax.nn.gelu(state @ hidden["kernel"] + hidden["bias"]) @ out["kernel"] + out["bias"]


def class_weights(
    params: Params, inputs: Float[Array, "t d"], *, encoder: Encoder, scale: Float[Array, ""] | float
) -> Float[Array, "h t"]:
    """Weights with which each head of a one-layer model reads the tokens."""
    keys, queries = _keys_and_queries(params, inputs, encoder)
    return attention_weights(queries[None], keys[:, None], scale=scale)[:, 0]


def _keys_and_queries(
    params: Params, inputs: Float[Array, "t d"], encoder: Encoder
) -> tuple[Float[Array, "t f"], Float[Array, "h f"]]:
    """Features as keys that all heads share, and each head's query carried over to them."""
    [layer] = params["layers"]
    queries = jnp.einsum("e,hen->hn", params["class_token"], layer["query"]["kernel"])
    queries = jnp.einsum("hn,hen->he", queries, layer["key"]["kernel"]) * _sharpness(layer)[:, None]
    keys = features(params, inputs, encoder)
    if encoder == "linear" and "positions" in params:
        return tokens(params, inputs, encoder), queries
    if encoder != "product":
        queries = queries @ params["lift"]["kernel"].T
    return keys, queries


def _sharpness(layer: Params) -> Float[Array, "h"]:
    """Beta of every head."""
    return jnp.exp(layer["log_sharpness"])


def _read(
    params: Params, inputs: Float[Array, "t d"], encoder: Encoder, scale: Float[Array, ""] | float
) -> Float[Array, "e"]:
    """What attention adds to the class token, one layer."""
    [layer] = params["layers"]
    keys, queries = _keys_and_queries(params, inputs, encoder)
    read = dot_product_attention(queries[None], keys[:, None], keys[:, None], scale=scale)[0]
    if encoder == "mlp" or (encoder == "linear" and "positions" not in params):
        read = read @ params["lift"]["kernel"] + params["lift"]["bias"][None]
    values = jnp.einsum("he,hen->hn", read, layer["value"]["kernel"])
    return jnp.einsum("hn,hne->e", values, layer["out"]["kernel"])


def _attend(
    layer: Params, state: Float[Array, "q e"], attended: Float[Array, "s e"], scale: Float[Array, ""] | float
) -> Float[Array, "q e"]:
    parts = {name: layer[name] for name in ("key", "value", "out")}
    query = {"kernel": layer["query"]["kernel"] * _sharpness(layer)[:, None, None]}
    return multi_head_attention({"query": query, **parts}, state, attended, scale=scale)
