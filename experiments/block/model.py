"""One Transformer block that names an item's neighbour in its context, or none."""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from mha_jax import init_multi_head_attention
from mha_jax.nnx import MultiHeadAttention

Attention = Literal["trained", "frozen", "removed"]


class Block(nnx.Module):
    """``x + attention(norm(x))``, then ``y + mlp(norm(y))``, compared with the items and a vector for "none".

    Nothing in it knows positions: a context is a set. Queries may attend a learned null token beside the context.
    """

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        head_dim: int,
        value_head_dim: int,
        mlp_width: int,
        attention: Attention,
        rngs: nnx.Rngs,
    ) -> None:
        """Draws parameters.

        Args:
            d_model: width of the items.
            num_heads: of attention.
            head_dim: key dimension of a head.
            value_head_dim: value dimension of a head.
            mlp_width: hidden units.
            attention: ``frozen`` holds all scores at zero, by zero queries and keys, whose gradients vanish with them;
                ``removed`` leaves the residual alone.
            rngs: random stream ``params``.
        """
        self.norm_attention = nnx.LayerNorm(d_model, rngs=rngs)
        params: Any = init_multi_head_attention(
            rngs.params(), d_model, num_heads, head_dim=head_dim, value_head_dim=value_head_dim
        )
        if attention == "frozen":
            params |= {name: jax.tree.map(jnp.zeros_like, params[name]) for name in ("query", "key")}
        self.attention = MultiHeadAttention.from_params(params)
        self.removed = attention == "removed"
        self.null = nnx.Param(jax.random.normal(rngs.params(), (1, d_model)))
        self.norm_mlp = nnx.LayerNorm(d_model, rngs=rngs)
        self.hidden = nnx.Linear(d_model, mlp_width, rngs=rngs)
        self.out = nnx.Linear(mlp_width, d_model, rngs=rngs)
        self.none = nnx.Param(jnp.zeros((d_model,)))
        self.none_bias = nnx.Param(jnp.zeros(()))
        self.log_scale = nnx.Param(jnp.zeros(()))

    def __call__(
        self, context: Float[Array, "b l d"], items: Float[Array, "m d"]
    ) -> Float[Array, "b l m_plus_1"]:
        """Logits of every item as the neighbour, and of none.

        Args:
            context: embeddings of the items of some contexts.
            items: embeddings of all items.
        """
        x = context
        if not self.removed:
            normed = self.norm_attention(x)
            null = jnp.broadcast_to(self.null[...], (x.shape[0], 1, x.shape[2]))
            x = x + self.attention(normed, jnp.concatenate([normed, null], axis=1))
        x = x + self.out(jax.nn.gelu(self.hidden(self.norm_mlp(x))))
        scale = jnp.exp(self.log_scale[...])
        none = jnp.einsum("bld,d->bl", x, self.none[...]) + self.none_bias[...]
        return jnp.concatenate([scale * jnp.einsum("bld,md->blm", x, items), none[..., None]], axis=-1)
