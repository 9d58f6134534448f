"""Published numbers: Vaswani et al. 2017, Table 3, dev set newstest2013 English-German, N = 6, d_model = 512.

Perplexity is per word piece. Only what was read in the paper is here.
"""

from __future__ import annotations

from typing import NamedTuple


class Published(NamedTuple):
    """One row of the table.

    Attributes:
        num_heads: h.
        head_dim: d_k.
        value_head_dim: d_v.
        perplexity: on dev.
        bleu: on dev.
    """

    num_heads: int
    head_dim: int
    value_head_dim: int
    perplexity: float
    bleu: float


BASE = Published(8, 64, 64, 4.92, 25.8)
ARMS = {
    "A": (
        Published(1, 512, 512, 5.29, 24.9),
        Published(4, 128, 128, 5.00, 25.5),
        BASE,
        Published(16, 32, 32, 4.91, 25.8),
        Published(32, 16, 16, 5.01, 25.4),
    ),
    "B": (Published(8, 16, 64, 5.16, 25.1), Published(8, 32, 64, 5.01, 25.4), BASE),
}
"""By arm, with the base model."""
