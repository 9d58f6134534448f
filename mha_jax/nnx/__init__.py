"""Attention layers for Flax NNX: state around the pure functions of `mha_jax.projections` and `mha_jax.latent`.

Parameters are ``nnx.Param`` under the names of those functions' pytrees, ``layer.query.kernel`` and so on; hence
``nnx.update(layer, params)`` puts such a pytree in and ``layer.params`` is one. Caches are ``nnx.Cache``, under
``layer.cache``. Attention weights are returned where asked for; no call leaves anything behind but the cache and the
counter of the dropout's random stream.

``train()``, ``eval()`` (dropout on, off), ``set_attributes(decode=True)`` and ``nnx.view`` work as for Flax's own
layers, which can also keep their parameters and take these kernels: `attention_fn`. To change layers and keep weights:
`params_from_flax`, `params_to_flax`.
"""

from mha_jax.flax_adapter import attention_fn
from mha_jax.flax_weights import params_from_flax, params_to_flax
from mha_jax.nnx.latent import MultiHeadLatentAttention
from mha_jax.nnx.multi_head import MultiHeadAttention

__all__ = [
    "MultiHeadAttention",
    "MultiHeadLatentAttention",
    "attention_fn",
    "params_from_flax",
    "params_to_flax",
]
