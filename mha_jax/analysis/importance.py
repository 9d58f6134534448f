"""How much a loss depends on each head: gradients with respect to a mask that multiplies the heads' outputs.

Source: Michel, Levy, Neubig 2019. With ``Att_h(x_t)`` what head h adds at query t and ``xi_h`` what multiplies it,

    I_h = E_x |dL/dxi_h| = E_x |Att_h(x)^T dL/dAtt_h(x)|,

where (as in their code) the absolute value is taken **token by token**: a mask with an entry for every head of every
token has all these derivatives as its gradient, from one backward pass. Then every layer is divided by its Euclidean
norm over heads, so that layers can be compared. It is a first-order estimate of what removing a head changes.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from mha_jax.analysis._maps import AnyArray, Total, at_least_single, broadcast_bool

Loss = Callable[[Float[Array, "L B T N"]], Float[Array, ""]]
"""A loss as a function of the mask of heads: layers, examples, queries, heads."""


def head_gradients(
    loss: Loss, head_mask: Float[AnyArray, "L B T N"]
) -> tuple[Float[Array, ""], Float[Array, "L B T N"]]:
    """A loss and its derivative with respect to every head's output at every query: one backward pass.

    Args:
        loss: sums over examples, so that no example's derivatives depend on how many there are.
        head_mask: where the gradient is taken: ones, or zeros for heads that have been pruned (whose derivative says
            what coming back would change).

    Returns:
        The loss and the gradient.

    Raises:
        ValueError: if the mask is not (L, B, T, N).
    """
    head_mask = jnp.asarray(head_mask)
    if head_mask.ndim != 4:
        raise ValueError(f"head_mask: expected shape (L, B, T, N), got {head_mask.shape}")
    return jax.value_and_grad(loss)(head_mask)


def importance_total(
    gradients: Float[AnyArray, "L B T N"], tokens: Bool[AnyArray, "B T"] | None = None
) -> Total:
    """Absolute derivatives, summed over the tokens of all examples; its `Total.mean` is I_h before normalisation.

    Args:
        gradients: of `head_gradients`.
        tokens: False for padding.

    Returns:
        Sums and numbers of tokens (L, N), to be added up over batches.

    Raises:
        ValueError: an argument has a wrong shape or dtype.
    """
    gradients = at_least_single(gradients)
    if gradients.ndim != 4:
        raise ValueError(f"gradients: expected shape (L, B, T, N), got {gradients.shape}")
    real = jnp.ones(gradients.shape[1:3], bool)
    if tokens is not None:
        real = broadcast_bool(tokens, "tokens", gradients.shape[1:3])
    total = jnp.where(real[None, :, :, None], jnp.abs(gradients), 0).sum((1, 2))
    return Total(total, jnp.broadcast_to(real.sum(dtype=total.dtype), total.shape))


def normalise_layers(importance: Float[AnyArray, "L N"]) -> Float[Array, "L N"]:
    """Every layer divided by its Euclidean norm over heads; a layer of zeros stays so, one with a NaN becomes NaN.

    Squares neither overflow nor vanish: half precision is computed in float32, and a layer is scaled by a power of
    two, which rounds nothing, first.

    Raises:
        ValueError: if it is not (L, N).
    """
    importance = at_least_single(importance)
    if importance.ndim != 2:
        raise ValueError(f"importance: expected shape (L, N), got {importance.shape}")
    largest = jax.lax.stop_gradient(jnp.abs(importance).max(-1, keepdims=True, initial=0))
    limits = jnp.finfo(importance.dtype)
    # The reciprocal has to be a normal number too: compilers multiply by it.
    exponent = jnp.clip(jnp.frexp(largest)[1] - 1, limits.minexp, limits.maxexp - 2)
    scaled = importance / jnp.ldexp(jnp.ones_like(largest), exponent)
    squares = (scaled**2).sum(-1, keepdims=True)
    return scaled / jnp.sqrt(jnp.where(squares == 0, 1, squares))


def head_importance(
    loss: Loss, head_mask: Float[AnyArray, "L B T N"], tokens: Bool[AnyArray, "B T"] | None = None
) -> Float[Array, "L N"]:
    """Importance of every head on one batch: `head_gradients`, `importance_total`, `normalise_layers`.

    Args:
        loss: as in `head_gradients`.
        head_mask: as in `head_gradients`.
        tokens: False for padding.

    Returns:
        Non-negative, every layer of norm 1 (or 0); NaN where every token is padding, since there is no mean then.

    Raises:
        ValueError: an argument has a wrong shape or dtype.
    """
    _, gradients = head_gradients(loss, head_mask)
    return normalise_layers(importance_total(gradients, tokens).mean())
