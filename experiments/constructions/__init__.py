"""Explicit constructions of heads: how noisy they are, what key dimension they need, how few bits a weight may have.

    python -m experiments run constructions                     # preset quick, minutes on two cores
    python -m experiments run constructions --preset paper      # more sizes, head counts and seeds
    python -m experiments run constructions --num-items 128 --d-model 96 --out DIR

Constructions: matched filters, one-sided heads, zero-forcing (`theory.constructions`), and heads of d_k = d fitted one
after the other by convex solves (`theory.training.convex_greedy`). All for permutations of Gaussian items; success is
exact recovery: some threshold separates all edges from all non-edges.

What was expected, written down before the runs that test it; `CLAIMS` in `experiments.constructions.claims` judges it
from the records. (A pilot of one size had shown that the variances are about right.)

1. *Noise.* The measured variance of every kind of pair is within 15% of the prediction, for blocks of 16 edges and
   more.
2. *Budget.* Where the least D_K is predicted at d_k <= d, it is measured, within 25% of the prediction.
3. *Out of reach.* Where it is predicted that no d_k <= d does, none does: at (96, 16) no construction with blocks of
   more than one edge works at any head count tried.
4. *Blocks.* At (256, 256) each construction's best head count is the predicted one, or twice or half of it.
5. *Zero-forcing* needs less than half of the matched filter's budget at (256, 256), both at their best.
6. *One-sided* heads gain nothing from blocks: the best is one head wherever one head works.
7. *Training is better.* Where the best trainer's threshold is committed (`figures/capacity/paper.json`), at its best
   head count it needs less than half of what any construction does, one head an edge (D_K = m) and convex heads
   included.
8. *Precision.* Rounding costs slack: from D_K* on, the bits a weight needs fall with D_K, for heads found by greedy
   training at (96, 16), h = 4: median at D_K = 48 at most 4 bits, and at least one bit less than at 24.
9. *Bits.* No channel is near the counting bound: all use more than 3 times as many bits as name the graph.

Modules: `config`, `units` (points and what a batch computes), `search` (the least budget), `records`, `claims`,
`figures`, `table`, `experiment`.
"""

from experiments.constructions.config import PRESETS, ConstructionsConfig

__all__ = ["PRESETS", "ConstructionsConfig"]
