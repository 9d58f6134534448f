r"""Heads against the cache: what layers that share keys (GQA, MQA, MLA) are predicted to hold, and at what cost.

``h`` query heads score pairs of items. With ``g`` key heads each of them serves ``h/g`` query heads, and a token
caches ``C = g d_k`` key dimensions: ``g = h`` is multi-head attention (MHA), ``1 < g < h`` grouped-query (GQA), ``g =
1`` multi-query attention (MQA). With latents (MLA, without its rotary part) the keys of all heads are read off ``C =
d_c`` cached dimensions, and each head's matrix ``M_i = W_Q^i W_K^{i T}`` has rank ``d_k``.

At equal ``C`` one design contains the other (*theorem*, ours: put the key maps side by side; queries absorb the
rest)::

    MHA (h heads of C/h)  <=  GQA (g of C/g)  <=  MLA (d_c = C, d_k = C/g)  <=  MQA (one of C)

so sharing keys never costs capacity per cached key dimension. It costs parameters and arithmetic of the queries, and
at equal parameters the order is open. With values the cache is ``g (d_k + d_v)``, and ``d_c`` for a latent, which is
counted once.

Fixed even partition: each head is given ``m'/h`` edges at random and holds them against all non-edges where its
Gaussian width (`theory.cache_capacity.widths`) is at least ``n_h = n(m'/h, m^2 - m')``, as in
`theory.bounds.partition`. All ``*_cache_dims`` and ``*_max_items`` are *predictions* (ours) for that partition: upper
estimates of the cache needed, since heads may choose their edges; infinite means that this partition fails.
``*_parameter_cache_dims`` are the same with a head's share of the parameters in place of its width: for MHA that is
an *empirical law* of joint gradient descent, for shared keys an extrapolation of it.

Parameters are degrees of freedom of the maps ``(M_1, ..., M_h)``, the dimension of their variety (a gauge counts
nothing)::

    shared keys   h d d_k + g d_k (d - d_k)
    latents       h d_k (d + d_c - d_k) + d_c (d - d_c)        d_k <= d_c <= min(d, h d_k)

Functions take numbers or arrays, which broadcast, and compute in float64.
"""

from theory.cache_capacity.parameters import (
    cached_dims,
    latent_dim_of_parameters,
    latent_parameters,
    shared_key_head_dim,
    shared_key_parameters,
)
from theory.cache_capacity.predictions import (
    latent_cache_dims,
    latent_max_items,
    latent_parameter_cache_dims,
    shared_key_cache_dims,
    shared_key_max_items,
    shared_key_parameter_cache_dims,
)
from theory.cache_capacity.widths import (
    latent_width,
    shared_key_width,
)

__all__ = [
    "cached_dims",
    "latent_cache_dims",
    "latent_dim_of_parameters",
    "latent_max_items",
    "latent_parameter_cache_dims",
    "latent_parameters",
    "latent_width",
    "shared_key_cache_dims",
    "shared_key_head_dim",
    "shared_key_max_items",
    "shared_key_parameter_cache_dims",
    "shared_key_parameters",
    "shared_key_width",
]
