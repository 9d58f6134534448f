"""Attention kernels, modules and measures of heads for JAX and Flax.

One legend of letters holds in every signature of the project.

Attention arrays are ``(..., T, N, D)``, as in ``jax.nn`` and Flax:

=====  ==========================================
``B``  batch
``T``  query length
``S``  key length
``N``  query heads
``K``  key/value heads; ``G = N / K`` query heads share one
``D``  head dimension of queries and keys (d_k)
``E``  head dimension of values (d_v)
``M``  d_model
=====  ==========================================

Theory of the key-query channel:

===========  ====================================================
``m``        items (``num_items``)
``m'``       edges (``num_edges``)
``d``        width of an item's embedding (``d_model``)
``h``        heads (``num_heads``)
``d_k``      head dimension (``head_dim``)
``D_K``      total key dimension, ``h * d_k`` (``total_key_dim``)
``tau``      threshold above which a score means an edge
===========  ====================================================
"""

from mha_jax import analysis
from mha_jax.attention import attention_weights, dot_product_attention
from mha_jax.cache import KVCache, LatentCache, append, bytes_per_token, init_cache, init_latent_cache
from mha_jax.latent import init_latent_attention, latent_attention
from mha_jax.masks import causal_mask, padding_mask, window_mask
from mha_jax.projections import (
    combine_heads,
    init_multi_head_attention,
    multi_head_attention,
    project_heads,
    select_heads,
)
from mha_jax.rope import RotaryEmbedding, apply_rope

__all__ = [
    "KVCache",
    "LatentCache",
    "RotaryEmbedding",
    "analysis",
    "append",
    "apply_rope",
    "attention_weights",
    "bytes_per_token",
    "causal_mask",
    "combine_heads",
    "dot_product_attention",
    "init_cache",
    "init_latent_attention",
    "init_latent_cache",
    "init_multi_head_attention",
    "latent_attention",
    "multi_head_attention",
    "padding_mask",
    "project_heads",
    "select_heads",
    "window_mask",
]
__version__ = "0.1.0"
