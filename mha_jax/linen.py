"""For Flax linen: its own attention module with these kernels, and its weights taken over and given back.

``linen.MultiHeadDotProductAttention(..., attention_fn=attention_fn)`` keeps parameters, caches and dropout as they are.
There is no layer of our own for linen: beyond that module, the pure functions of `mha_jax.projections` and
`mha_jax.latent` take a dictionary of parameters, which is what linen's ``params`` are (`params_from_flax`).
"""

from mha_jax.flax_adapter import attention_fn
from mha_jax.flax_weights import params_from_flax, params_to_flax

__all__ = ["attention_fn", "params_from_flax", "params_to_flax"]
