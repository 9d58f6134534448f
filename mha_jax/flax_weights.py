"""Weights of Flax's own attention modules, taken over and given back.

Both of Flax's modules name and shape their parameters alike, and store kernels with heads inside, ``(M, N, D)``; here
heads lead, ``(N, M, D)``. The output's kernel ``(N, D, M_out)`` and all biases are stored alike. Nothing but axes is
moved, so that a round trip is exact.

Example::

    params = params_from_flax(layer)                     # layer: flax.nnx.MultiHeadAttention
    params = params_from_flax(variables["params"])       # of flax.linen.MultiHeadDotProductAttention
    mha_jax.nnx.MultiHeadAttention.from_params(params)   # the same function of its inputs

    nnx.update(layer, params_to_flax(params))            # and back
    flax_module.apply({"params": params_to_flax(params)}, x)
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from flax import nnx
from flax.core.meta import unbox

from mha_jax._layers import Params, check_params
from mha_jax.projections import sizes_of

_FLAX_SHAPES = {
    "query": {"kernel": "M N D", "bias": "N D"},
    "key": {"kernel": "M_kv K D", "bias": "K D"},
    "value": {"kernel": "M_kv K D", "bias": "K D"},
    "out": {"kernel": "N D M_out", "bias": "M_out"},
}


def params_from_flax(source: nnx.MultiHeadAttention | Mapping[str, Any]) -> Params:
    """Parameters for `mha_jax.multi_head_attention`, from one of Flax's modules.

    Args:
        source: a ``flax.nnx.MultiHeadAttention``, its ``nnx.Param`` state, or the ``params`` of a
            ``flax.linen.MultiHeadDotProductAttention``.

    Returns:
        See `mha_jax.projections`.

    Raises:
        ValueError: these are not the parameters of such a module.
        NotImplementedError: the module normalises queries and keys: Flax subtracts their mean (layer norm), which the
            root-mean-square norm of `mha_jax.multi_head_attention` does not.
    """
    if isinstance(source, nnx.Module):
        source = nnx.state(source, nnx.Param)
    if isinstance(source, nnx.State):
        source = nnx.to_pure_dict(source)
    if not isinstance(source, Mapping):
        raise ValueError(f"source: expected a module or its parameters, got {type(source).__name__}")
    parts: Mapping[str, Any] = unbox(source)
    if norms := sorted({"query_ln", "key_ln"} & set(parts)):
        raise NotImplementedError(
            f"source: {', '.join(norms)} subtract a mean, which the norm of queries and keys here does not"
        )
    if others := sorted(part for part, arrays in parts.items() if not isinstance(arrays, Mapping)):
        raise ValueError(f"source: expected parts {list(_FLAX_SHAPES)}, got arrays {others}")
    params = {part: {name: jnp.asarray(array) for name, array in parts[part].items()} for part in parts}
    check_params(params, _FLAX_SHAPES, frozenset({"bias"}))
    for part in "query", "key", "value":
        params[part]["kernel"] = jnp.moveaxis(params[part]["kernel"], 1, 0)
    return params


def params_to_flax(params: Params) -> dict[str, dict[str, Any]]:
    """Parameters of one of Flax's modules, from those of `mha_jax.multi_head_attention`.

    The module must be made with the same sizes: ``qkv_features`` is ``N D``, ``use_bias`` whether there are biases;
    grouped heads and another width of keys and values (``in_kv_features``) exist in nnx alone.

    Args:
        params: see `mha_jax.projections`.

    Returns:
        For ``nnx.update`` or as linen's ``params``.

    Raises:
        ValueError: parameters do not fit together.
        NotImplementedError: Flax's modules cannot hold them: values have another width than keys, queries and keys are
            normalised by their root mean square, or some projections have a bias and some none.
    """
    sizes = sizes_of(params)
    if sizes["E"] != sizes["D"]:
        raise NotImplementedError(
            f"params: Flax's modules have one head dimension for keys ({sizes['D']}) and values ({sizes['E']})"
        )
    if norms := sorted({"query_norm", "key_norm"} & set(params)):
        raise NotImplementedError(
            f"params: Flax's modules have no root-mean-square norm ({', '.join(norms)})"
        )
    if len({"bias" in params[part] for part in _FLAX_SHAPES}) != 1:
        raise NotImplementedError("params: Flax's modules have a bias in all projections or in none")
    out = {part: {name: jnp.asarray(array) for name, array in params[part].items()} for part in _FLAX_SHAPES}
    for part in "query", "key", "value":
        out[part]["kernel"] = jnp.moveaxis(out[part]["kernel"], 0, 1)
    return out
