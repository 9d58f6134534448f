"""How many heads at a given budget: the window that the predictions leave open."""

from theory._numbers import Scalar, integer
from theory.bounds.partition import partition_total_key_dim
from theory.bounds.theorems import one_dimensional_cap


def head_window(
    total_key_dim: Scalar, num_items: Scalar, num_edges: Scalar, d_model: Scalar
) -> tuple[int | None, int | None]:
    """Fewest and most heads that split a budget such that the graph is still recovered.

    Of the divisors ``h`` of ``D_K``, the smallest and the largest at which ``D_K`` is at least
    `partition_total_key_dim` and, where ``D_K / h = 1``, the cap ``2 h >= m'`` holds. A *prediction* (ours),
    its upper edge at ``d_k = 1`` a theorem for permutations and matchings. It is made for heads whose edges
    were dealt out beforehand: heads that choose their edges do better, so that a trainer that lets them may
    recover outside this window. Every divisor between the two need not be inside.

    A graph with several edges an item is treated in the same way: a head that was dealt a few of its
    edges at random sees a matching, mostly. Heads of one dimension that choose could hold stars.

    Args:
        total_key_dim: D_K, a positive integer. ``D_K / h`` may exceed d; such a head counts as one of d.
        num_items: m, an integer of at least 2.
        num_edges: m', a positive integer of at most m (m - 1).
        d_model: d, a positive integer.

    Returns:
        (min_heads, max_heads), or (None, None) where no divisor is inside.

    Raises:
        ValueError: a size out of range.
    """
    budget = integer("total_key_dim", total_key_dim)
    if budget.ndim:
        raise ValueError(f"total_key_dim: expected one number, got an array of shape {budget.shape}")
    budget = int(budget)
    inside = [
        heads
        for heads in range(1, budget + 1)
        if budget % heads == 0
        and budget >= partition_total_key_dim(num_items, num_edges, d_model, heads)
        and (heads < budget or one_dimensional_cap(heads) >= num_edges)
    ]
    return (inside[0], inside[-1]) if inside else (None, None)
