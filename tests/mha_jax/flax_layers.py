"""Flax's own attention modules with weights drawn by NumPy, so that none has to be initialised (slow, op by op)."""

import functools
from typing import Any

import jax
import numpy as np
from flax import linen, nnx

HEADS, DIM, FEATURES = 3, 7, 11


def jit(function, **options):
    """``jax.jit`` that compiles faster: these programs run once or twice, on small arrays."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0}, **options)


def tolerance():
    """Rounding of a layer whose outputs are of order one."""
    return 1e-12 if jax.config.read("jax_enable_x64") else 1e-5


def nnx_tolerance():
    """The same for ``flax.nnx``, which calls `jax.nn`: float32 within, also where everything else is float64."""
    return max(tolerance(), 1e-6)


def normal(seed, *shape):
    dtype = np.float64 if jax.config.read("jax_enable_x64") else np.float32
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def flax_params(heads=HEADS, kv_heads=None, dim=DIM, features=FEATURES, kv_features=None, bias=True, seed=0):
    """Parameters of either module: nnx and linen name and shape them alike."""
    kv_heads, kv_features = kv_heads or heads, kv_features or features
    params = {
        "query": {"kernel": normal(seed, features, heads, dim) / np.sqrt(features)},
        "key": {"kernel": normal(seed + 1, kv_features, kv_heads, dim) / np.sqrt(kv_features)},
        "value": {"kernel": normal(seed + 2, kv_features, kv_heads, dim) / np.sqrt(kv_features)},
        "out": {"kernel": normal(seed + 3, heads, dim, features) / np.sqrt(heads * dim)},
    }
    if bias:
        for i, part in enumerate(params):
            shape = params[part]["kernel"].shape[1:] if part != "out" else (features,)
            params[part]["bias"] = normal(seed + 4 + i, *shape)
    return jax.tree.map(lambda x: x.astype(normal(0).dtype), params)


def nnx_layer(params=None, *, heads=HEADS, kv_heads=None, dim=DIM, features=FEATURES, **own):
    """``flax.nnx.MultiHeadAttention`` with the given parameters (by default `flax_params`)."""
    params = flax_params(heads, kv_heads, dim, features) if params is None else params
    options: dict[str, Any] = {"decode": False, "keep_rngs": False} | own
    options |= {
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "in_features": features,
        "qkv_features": heads * dim,
    }
    options |= {"in_kv_features": params["key"]["kernel"].shape[0], "use_bias": "bias" in params["query"]}
    layer = nnx.eval_shape(lambda: nnx.MultiHeadAttention(rngs=nnx.Rngs(0), **options))
    nnx.update(layer, params)
    return layer


def run_linen(*inputs, layer=None, params=None, rngs=None, mutable: Any = False, cache=None, **call):
    """``flax.linen.MultiHeadDotProductAttention`` with the given parameters (by default `flax_params`)."""
    variables = {"params": flax_params() if params is None else params}
    if cache is not None:
        variables["cache"] = cache
    return linen_layer(**layer or {}).apply(variables, *inputs, rngs=rngs, mutable=mutable, **call)


linen_layer = functools.partial(linen.MultiHeadDotProductAttention, num_heads=HEADS, qkv_features=HEADS * DIM)
