"""All whole words of a vocabulary in one graph: does what holds for a hundred items hold for twenty thousand?

    python -m experiments run fullscale                     # preset quick, a twelfth of the size, minutes on two cores
    python -m experiments run fullscale --preset paper      # 21,719 words, d = 384: hours of CPU; resumable
    python -m experiments collect fullscale --preset paper  # what an unfinished run has so far
    python -m experiments run fullscale --head-counts 6 --budgets 96 120 --free-items 1800 --out DIR

A random permutation on all whole words of MiniLM's vocabulary with its token vectors (``paper``: 4.7e8 pairs), and on
as many Gaussian items. Training sees contexts of ``s`` sources and their targets (`theory.training.contexts`), every
look judges all pairs a few rows at a time, the last one in float64 (`theory.recognition_tiled`). ``joint``: all heads
at once, a soft maximum that hardens and squared hinge; ``plain``: hard maximum and cross-entropy; ``greedy``: head by
head (`theory.training.contexts_greedy`); ``one-head``: a free matrix, convex, ended by passes over all pairs with a
bound on every margin (`theory.single_head_large`). No hard negatives are sought: contexts are drawn blindly.

Cost, before the run (`units.step_cost`; each part is named with it). ``paper``: a context of 1,024 sources and their
targets holds 2^20 pairs; a step is 8.8 GFLOP for all heads of a budget of 576 and needs about 0.7 GiB with everything;
a look at all pairs is 2 m^2 D_K = 0.54 TFLOP, a pass of one free head 1.1 TFLOP. (The whole square of 2,048 items would
be four times as many pairs with no more edges to speak of.)

Predictions (`theory.bounds`), computed before any run:

=======  ===  ==================  =====================================  ============================
m        d    one head holds      fixed partition by width, D_K          parameter count, D_K
=======  ===  ==================  =====================================  ============================
1,800    96   up to 1,081 items   h = 2: none, 4: 81, 12: 74             h = 2: none, 4: 129, 12: 132
21,719   384  up to 12,008        h = 2: none, 4: 338, 12: 293           h = 2: none, 4: 532, 12: 522
=======  ===  ==================  =====================================  ============================

What was expected, written down before the runs that test it; `CLAIMS` in `experiments.fullscale.records` judges each
from the records. (Pilots came before, on 1,800 items: rates and temperatures were chosen there, four heads at
``D_K`` = 104 and 116 recovered after 1,500 to 3,000 steps, twelve at 108 and 120, and one free head was far from it.)

1. *One head fails*: at every ``m`` of at least 1.05 times the ceiling F1 stays below 0.9, at full width, on every
   kind of items.
2. *One head suffices* on Gaussian items up to 0.85 of the ceiling: F1 of at least 0.99.
3. *Stalled*: above 1.2 times the ceiling the loss of one head ends above 0.01 with a relative gradient below 0.05, and
   every margin is proven to be below a tenth of the largest one reached at smaller ``m``.
4. *Heads recover*: 4 and 12 heads, by joint and by greedy training, recover the graph (F1 of at least 0.99 over all
   pairs) at no more than 1.1 times the parameter count.
5. *Width*: the smallest budget of the better trainer is 0.8 to 1.3 times the prediction by width. (At ``paper``, with
   21 contexts to a pass over the edges instead of 7, in 2,000 steps, the upper end is in doubt.)
6. *Hardening*: joint training needs at most the budget of plain training.
7. *Trainers*: greedy needs 0.75 to 1.25 times the budget of joint training.
8. *Words*: real words need 0.7 to 1.25 times the budget of Gaussian items.

(After this was written down, before the runs: greedy heads got another rule for their threshold and a lower goal, and
the grids fewer and, at ``paper``, larger budgets, for want of computing time. What was seen meanwhile: of ``quick``, on
Gaussian items, joint training of four heads at 120, greedy at 120 and 132, one head on 800 and 1,800 items.)

Exact recovery (every one of ``m^2`` pairs right) is reported and not expected: contexts hardly ever hold the few worst
non-edges.

Modules: `config`, `units` (points, and what a stretch computes), `records` (runs, smallest budgets,
verdicts), `figures`, `table`, `experiment`.
"""

from experiments.fullscale.config import PRESETS, FullscaleConfig

__all__ = ["PRESETS", "FullscaleConfig"]
