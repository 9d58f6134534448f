"""From the maximum over heads to softmax heads and value routing: does the head sweep survive?

    python -m experiments run softmax                       # preset quick, minutes on two cores
    python -m experiments run softmax --preset paper        # more seeds, steps and budgets
    python -m experiments run softmax --total-key-dims 24 --head-counts 1,2,4 --out DIR

A permutation on 96 items in 16 dimensions, contexts of 48 random items (so that half of the neighbours are absent).
At a fixed budget ``D_K = h d_k``, four channels answer the same contexts:

- ``greedy``, ``joint``: the maximum over heads, trained head by head or all at once, at its best threshold;
  the same weights are then put into softmax heads, at the scale that `theory.softmax.lemma` finds sufficient;
- ``weights``: softmax heads with a null key trained end to end, read off their attention weights;
- ``values``: the same with value routing: the neighbour's own embedding has to come out of the summed heads, and is
  compared with all 96 items and "none". Values have no parameters.

What was expected, written down before the runs that test it; `CLAIMS` in `experiments.softmax.records` judges each of
them from the records. (Pilot runs at D_K = 24 with 1, 4 and 8 heads, two seeds, came before: both softmax tasks
failed at one head; at four and eight ``weights`` had F1 of .98 to .995 and ``values`` .85 to .93.)

1. *Guarantee* (theorem): no output of any channel leaves its bound.
2. *Transplant* (theorem for the sufficient scale): every exact channel answers every context without a mistake when its
   weights are put into softmax heads, without training.
3. *One head* fails in every form at every budget: F1 below 0.9.
4. *Window*: trained end to end, both tasks have at 3 to 8 heads a higher F1 than at one head and at d_k = 1.
5. *No better*: at no head count do end-to-end channels beat the greedy channel by more than 0.01 of F1.
6. *Routing costs*: ``values`` needs more budget than ``weights``: at every head count from 2 on its F1 is at most
   that of ``weights`` plus 0.01.
7. *Idle heads*: at least 9 of 10 exact greedy channels have one owner for every edge and are idle elsewhere,
   so that the neighbour's value itself comes out, not its direction alone.

Modules: `config`, `units` (points and what a batch computes), `records` (curves and verdicts), `figures`, `table`,
`experiment`.
"""

from experiments.softmax.config import PRESETS, SoftmaxConfig

__all__ = ["PRESETS", "SoftmaxConfig"]
