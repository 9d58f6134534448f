"""Operations of attention in blocks (`mha_jax._kernels.blockwise`), by formula: a compiler counts loops' bodies once.

Of self-attention without a mask, forwards and backwards, T tokens, d = h d_k = h d_v, an entry being one of the h T^2
weights of a sequence:

- *products*: those of attention that keeps its weights (two forwards, four backwards, 2 d_k operations an entry each),
  and the logits a second time, since backwards nothing of size T^2 is there: 2 d T^2 more, whatever h is;
- *each entry*: forwards a maximum, a difference and a term of the sum; backwards a difference from the row's greatest
  logit, one from its delta and a product: six operations, and an exponential in either pass;
- *each row* a few times h more, and the width of the output for every block of keys (rescaling): left out, as is what
  finds the blocks. Below 0.2% of the whole at the benchmark's sizes.

Where queries and keys make one block there is no loop, and the compiler sees that the logits are the same twice.
"""

OPERATIONS_OF_AN_ENTRY = 6
EXPONENTIALS_OF_AN_ENTRY = 2


def blockwise_operations(products: int, batch: int, length: int, d_model: int, num_heads: int) -> int:
    """Operations of a layer, forwards and backwards, without exponentials.

    Args:
        products: operations of the layer's products where no logit is computed twice.
        batch: sequences.
        length: tokens of each.
        d_model: width of all heads together.
        num_heads: heads of size ``d_model / num_heads``.

    Returns:
        Operations; a multiplication and an addition are two.
    """
    logits_again = 2 * batch * length**2 * d_model
    return products + logits_again + OPERATIONS_OF_AN_ENTRY * batch * num_heads * length**2
