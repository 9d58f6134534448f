"""A whole Transformer block on frozen real embeddings: does it need several heads where the channel does?

    python -m experiments run block                         # preset quick, minutes on two cores
    python -m experiments run block --preset paper          # more seeds, steps, budgets and head counts
    python -m experiments run block --total-key-dims 24 --head-counts 1,4 --full-items 0 --out DIR

LayerNorm, attention (with a null token to attend), residual, LayerNorm, GELU MLP, residual, all trained; the items are
token embeddings of MiniLM and stay as they are. A context is a random subset of the items, without order; for each of
its items the block has to name its neighbour under a random permutation among *all* items if the neighbour is in the
context, else "none". The same item has the one answer in one context and the other in another, about half of the time
each: what an item alone tells is worth an accuracy of one half. A head's values are as wide as the items where these
are projected (to 16 dimensions), so that at a fixed budget ``D_K = h d_k`` nothing but queries and keys gets narrower.

Controls: scores frozen at zero (every head averages the context evenly; all the rest is trained), the same with an MLP
8 times as wide, and attention removed.

What was expected, written down before the runs that test it; `CLAIMS` in `experiments.block.records` judges each of
them from the records. (Pilot runs came before: at D_K = 24 and 1,000 steps, .62 with one head, .80 with eight, .60 with
frozen scores, .50 without attention; at D_K = 48, h = 8 and 3,000 steps, .98 and 1.00.)

1. *One head* is not enough at (96, 16), whatever its budget: mean accuracy below 0.9 (its ceiling is 57 items).
2. *Several heads are*: at the largest budget the best head count has a mean accuracy of at least 0.97.
3. *Controls stay far below*: at most 0.75, each of them, and at least 0.15 below the block with as many heads.
4. *Window*: at every budget the best head count is neither 1 nor the largest.
5. *Wide items need no heads*: with all 384 dimensions, where one head's ceiling is some ten thousand items, one head
   at D_K = 16 is as good on 768 items as two or four, within 0.02 of accuracy.

Modules: `config`, `model` (the block), `training`, `units` (points and what a batch computes), `records` (curves and
verdicts), `figures`, `table`, `experiment`.
"""

from experiments.block.config import PRESETS, BlockConfig

__all__ = ["PRESETS", "BlockConfig"]
