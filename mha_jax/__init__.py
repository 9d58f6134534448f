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

from mha_jax.attention import attention_weights, dot_product_attention
from mha_jax.masks import causal_mask, padding_mask, window_mask

__all__ = ["attention_weights", "causal_mask", "dot_product_attention", "padding_mask", "window_mask"]
__version__ = "0.1.0"
