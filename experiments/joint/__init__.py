"""Why does training all heads at once need more key budget than training them one by one, and what closes the gap?

    python -m experiments run joint                         # preset quick, minutes on two cores
    python -m experiments run joint --preset paper          # more seeds and steps, two sizes
    python -m experiments run joint --preset long           # the main two with more steps
    python -m experiments run joint --variants adam,anneal --head-counts 4 --out DIR

A permutation on 96 items in 16 dimensions. One change of training at a time (`theory.training.variants`), from the same
initial weights, for the same number of steps; every run is looked at 60 times: its F1, and which head wins each edge.
Beside them: ``head-by-head``, the greedy trainer of the capacity experiment.

The idea to be tested: under a hard maximum the gradient of an edge reaches its winning head alone, so the winner wins
more, and the accidental winners of the first steps become a frozen, random partition of the edges.

What was expected, written down before the runs that test it; `CLAIMS` in `experiments.joint.records` judges each of
them from the records. (Pilot runs of two seeds at four heads, of all variants but head-by-head, came before: they
showed winners frozen at the first look, ``anneal`` and ``anneal-hinge`` near what the capacity experiment has for the
greedy trainer, ``shuffle``, ``balance``, ``hinge`` and ``lbfgs`` in between. What is new in these runs is two and eight
heads, more seeds, and the thresholds.)

1. *Frozen*: under ``adam`` at least 95% of the edges have their final head by 5% of the steps, at every head count.
2. *Partition*: dealing the edges out beforehand (``partition``) costs ``adam`` nothing: the thresholds are within 15%.
3. *Schedule*: ``decay`` stays within 10% of the threshold of ``adam``.
4. *Unfrozen*: at every head count ``anneal-hinge`` needs at most 0.8 of the budget of ``adam``.
5. *Gap closed*: at every head count ``anneal-hinge`` needs at most 1.15 times the budget of head-by-head training.
6. *Late winners*: under ``anneal`` at most half of the edges have their final head by 5% of the steps.
7. *Two heads*, where ``adam`` fails at every budget: ``anneal-hinge`` recovers the graph.

(The preset ``long`` came after ``quick``, to see whether what is left of the gap is a matter of steps. Expected, before
it was run: the threshold of ``anneal-hinge`` falls at two and eight heads, that of ``adam`` by less than 10%.)

Modules: `config`, `units` (points and what a batch computes), `records` (curves, thresholds, verdicts), `figures`,
`table`, `experiment`.
"""

from experiments.joint.config import PRESETS, JointConfig

__all__ = ["PRESETS", "JointConfig"]
