"""The forward pass of a pretrained transformer, on the kernels of `mha_jax`, and its random-weights control.

Parameters are one pytree; those of the layers are stacked on a leading axis, and the layers run as one scan, so that a
model of thirty layers compiles as fast as one of one:

===================================  ==============================================================
``params["embed"]["tokens"]``        ``(V, M)``; also the output matrix where there is no ``unembed``
``params["embed"]["positions"]``     ``(P, M)``, where positions are learned
``params["embed"]["segment"]``       ``(M,)``, the first segment's vector, in BERT
``params["embed"]["norm"]``          normalisation of the embeddings, in BERT
``params["layers"]["attention"]``    as in `mha_jax.projections`, kept per head, with a leading axis ``L``
``params["layers"]["mlp"]``          ``up`` and ``down``, and ``gate`` where gated: ``kernel``, some with ``bias``
``params["layers"]["..._norm"]``     ``attention_norm``, ``mlp_norm``: ``scale``, and ``bias`` of a layer norm
``params["final_norm"]``             where blocks normalise what enters them
``params["unembed"]``                ``(V, M)``, where it is not the token table
===================================  ==============================================================
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from experiments.pretrained.config import ModelConfig
from mha_jax import attention_weights, combine_heads, dot_product_attention, project_heads

Params = Mapping[str, Any]

_ACTIVATIONS = {
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
}


class Output(NamedTuple):
    """What a forward pass gives.

    Attributes:
        hidden: ``(b, t, M)``, behind the last layer (and the last normalisation).
        logits: ``(b, t, V)`` of the next token in a causal model, None elsewhere. Not computed inside a jit that does
            not use them.
        weights: ``(L, b, N, t, s)`` where they were asked for. Rows sum to 1, those of padding to 0.
    """

    hidden: Array
    logits: Array | None
    weights: Array | None


def forward(
    params: Params,
    config: ModelConfig,
    tokens: Int[Array, "b t"],
    lengths: Int[Array, "b"],
    *,
    head_mask: Float[Array, "..."] | None = None,
    return_weights: bool = False,
) -> Output:
    """Run a batch through the model.

    Args:
        params: see the module's docstring.
        config: sizes and kinds; static under ``jit``.
        tokens: ids, ``(b, t)``. Those from ``lengths`` on are padding, of any valid id.
        lengths: tokens of each sequence, ``(b,)``. Padding is attended by nothing and attends nothing.
        head_mask: multiplies every head's output before the output projection: ``(L, N)``, or ``(L, b, t, N)`` for a
            factor of its own for every token. Differentiable.
        return_weights: also return every attention map.

    Raises:
        ValueError: shapes do not agree, or a sequence is longer than the learned positions.
    """
    _check(config, tokens, head_mask)
    x = embed(params["embed"], config, tokens)
    if head_mask is not None and head_mask.ndim == 2:
        head_mask = head_mask[:, None, None, :]

    def layer(x: Array, inputs: tuple[Params, Array | None]) -> tuple[Array, Array | None]:
        own, mask = inputs
        weights = None

        def attention(x: Array) -> Array:
            nonlocal weights
            query, key, value = project_heads(own["attention"], x, rope=config.rope)
            options: dict[str, Any] = {
                "is_causal": config.causal,
                "query_seq_lengths": lengths,
                "key_value_seq_lengths": lengths,
            }
            if return_weights:
                weights = attention_weights(query, key, **options)
            heads = dot_product_attention(
                query,
                key,
                value,
                head_mask=mask,
                implementation="dense" if return_weights else None,
                **options,
            )
            return combine_heads(own["attention"], heads)

        for name, block in (("attention", attention), ("mlp", partial(feed_forward, own["mlp"], config))):
            norm = partial(normalise, own[f"{name}_norm"], config)
            x = x + block(norm(x)) if config.pre_norm else norm(x + block(x))
        return x, weights

    x, weights = jax.lax.scan(layer, x, (params["layers"], head_mask))
    if "final_norm" in params:
        x = normalise(params["final_norm"], config, x)
    logits = None
    if config.causal:
        logits = jnp.einsum("btm,vm->btv", x, params.get("unembed", params["embed"]["tokens"]))
    return Output(x, logits, weights)


def embed(params: Params, config: ModelConfig, tokens: Int[Array, "b t"]) -> Float[Array, "b t m"]:
    """What enters the first layer: tokens, with positions, segment and normalisation where the model has them.

    Args:
        params: ``params["embed"]`` of the model.
        config: sizes and kinds.
        tokens: ids, ``(b, t)``.
    """
    x = params["tokens"][tokens]
    if "segment" in params:
        x = x + params["segment"][None, None, :]
    if "positions" in params:
        x = x + params["positions"][None, : tokens.shape[1]]
    return normalise(params["norm"], config, x) if "norm" in params else x


def feed_forward(params: Params, config: ModelConfig, x: Float[Array, "b t m"]) -> Float[Array, "b t m"]:
    """The feed-forward part of one layer, gated where the model's is; ``params["mlp"]`` of that layer."""
    act = _ACTIVATIONS[config.activation]
    up = _linear(params["up"], x)
    return _linear(params["down"], act(_linear(params["gate"], x)) * up if config.gated else act(up))


def sentence_embeddings(hidden: Float[Array, "b t m"], lengths: Int[Array, "b"]) -> Float[Array, "b m"]:
    """Mean of the tokens' last states, scaled to norm 1: the sentence embedding of MiniLM."""
    inside = jnp.arange(hidden.shape[1])[None, :] < lengths[:, None]
    mean = (hidden * inside[..., None]).sum(1) / jnp.maximum(lengths, 1)[:, None]
    return mean / jnp.maximum(jnp.linalg.norm(mean, axis=-1, keepdims=True), 1e-12)


def normalise(params: Params, config: ModelConfig, x: Float[Array, "b t m"]) -> Float[Array, "b t m"]:
    """Layer norm or RMS norm of the last axis."""
    if config.norm == "layer":
        x = x - x.mean(-1, keepdims=True)
    x = x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + config.norm_epsilon)
    x = x * params["scale"][None, None, :]
    return x + params["bias"][None, None, :] if config.norm == "layer" else x


def random_weights(params: Params, seed: int) -> dict[str, Any]:
    """The same model with random weights in its layers: a control with the same inputs, sizes and scales.

    Every array of every layer (kernels and biases; queries, keys, values, output and feed-forward each by themselves)
    is drawn anew, independently, from a normal with the mean and the standard deviation of that array in that layer.
    Embeddings of tokens and positions, and all normalisations, stay as they were trained: what the layers are given is
    the same, so heads of the control can still tell words and, where they are learned, positions apart.

    Args:
        params: of the pretrained model.
        seed: of the draws.
    """
    leaves, structure = jax.tree.flatten({name: params["layers"][name] for name in ("attention", "mlp")})
    drawn = [_like(np.random.default_rng([seed, i]), leaf) for i, leaf in enumerate(leaves)]
    return {**params, "layers": {**params["layers"], **jax.tree.unflatten(structure, drawn)}}


def _like(rng: np.random.Generator, stacked: Array) -> Array:
    trained = np.asarray(stacked)
    axes = tuple(range(1, trained.ndim))
    mean, sd = (f(trained, axis=axes, dtype=np.float64, keepdims=True) for f in (np.mean, np.std))
    drawn = rng.standard_normal(trained.shape, np.float32)
    return jnp.asarray(np.float32(mean) + np.float32(sd) * drawn)


def _check(config: ModelConfig, tokens: Array, head_mask: Array | None) -> None:
    if tokens.ndim != 2:
        raise ValueError(f"tokens: expected shape (b, t), got {tokens.shape}")
    if config.rope is None and tokens.shape[1] > config.max_length:
        raise ValueError(f"tokens: expected at most {config.max_length} positions, got {tokens.shape[1]}")
    small = (config.num_layers, config.num_heads)
    large = (config.num_layers, *tokens.shape, config.num_heads)
    if head_mask is not None and head_mask.shape not in (small, large):
        raise ValueError(f"head_mask: expected shape {small} or {large}, got {head_mask.shape}")


def _linear(params: Params, x: Array) -> Array:
    y = jnp.einsum("btm,mf->btf", x, params["kernel"])
    return y + params["bias"][None, None, :] if "bias" in params else y
