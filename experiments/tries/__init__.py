"""Many heads as many tries: are heads trained to be cut worth it, and when does redundancy appear in training?

    python -m experiments run tries                     # preset quick, minutes on two cores
    python -m experiments run tries --preset paper      # more budgets, 32 seeds
    python -m experiments run tries --num-heads 4 --seeds 16 --out DIR

*Tries.* Most heads of a trained transformer can be removed (Michel et al. 2019, Voita et al. 2019), and pruned models
do a little better than models trained from scratch at their final size (Voita et al.). So part of the gain of many
heads may be that training gets more tries: it grows H heads, of which h are worth keeping. Here that is put to a test
with a known answer, on Relational Graph Recognition: ``m`` items in ``R^d``, a permutation, a channel of ``h`` heads
of ``d_k`` dimensions, judged by the best threshold's F1 (recovered: at least 0.99) and by exact recovery, in float64
from the factors of the kept heads alone. At the same final budget ``D_K = h d_k`` stand beside each other:

===================  ==================================================================  ======================
arm                  what is trained                                                     at most, in head-steps
===================  ==================================================================  ======================
direct               h heads, S steps                                                    S h
restarts             the best of r = 2, 4 direct runs from other initial weights         r S h
pruned               H = 2h, 4h heads, S steps, then cut to h                            S H
healed, steps        H heads, S/2 steps, cut to h, S/2 steps                             S (H + h) / 2
healed, compute      H heads, S h / 2H steps, cut to h, S/2 steps                        S h
rewound              the h heads kept after S steps, from *their initial weights*        S (H + h)
resumed (control)    h heads, S/2 steps, then S/2 steps as healing takes them            S h
===================  ==================================================================  ======================

Which heads are kept: by the number of edges they win (``wins``), by what their removal alone costs (``ablation``), by
the same computed anew after every removal (``recomputed``, greedy), or at ``random``. Training is joint descent
(`theory.training.joint`), which stops a run that has answered every pair right or whose loss no longer falls, so that
head-steps are caps; the records have both. Healing starts with new moments of Adam. Initial weights of a head depend on
the seed and its number alone: the first h of H heads start as the direct run does. Yardsticks: the fixed even
partition's budget (a prediction), the best trainer's and joint training's thresholds (from ``figures/capacity``,
computed by ``python -m experiments run capacity``).

*Dynamics.* Michel et al. found that early in training the score falls in proportion to the heads removed, while late
in training up to 40% can go at 85 to 90% of the score: redundancy appears in training. Checkpoints of one run, heads
removed in the best order at that time: on the channel with twice the heads it needs, by ablation computed anew; on
D-retrieval with twice as many heads as targets, by importance (I_h on training samples, the score on fresh ones), both
also at random.

What was expected, written down before the runs that test it; `CLAIMS` in `experiments.tries.claims` judges each of
them from the records.

1. *Edges are split, not shared.* The loss sees the best head of a pair alone, so every edge has one owner. Cut without
   healing no run recovers, and its F1 is that of the edges whose winner is kept: within 0.1 of ``2 s / (1 + s)``, s
   their share, on average over seeds at every size.
2. *Choice.* The greedy order keeps more F1 than random heads before healing. After healing the choice no longer
   matters: thresholds within 10% of each other.
3. *Equal steps.* Pruned and healed channels have the threshold of direct training within 10%: more heads are no more
   tries, since heads are not alternatives to each other.
4. *Equal compute.* At the same head-steps pruned and healed channels recover no more often than direct ones.
5. *Restarts are tries.* The best of four direct runs recovers more often than a channel cut from 4h heads and healed.
6. *Rewound* heads recover as often as fresh ones (threshold within 10%): what the kept heads had was not a good start.
7. No arm reaches the best trainer's threshold: what is missing is not tries but that heads choose edges one by one.
8. *Channel, dynamics.* Redundancy does not appear: with 40% of the heads removed the last checkpoint keeps less than
   85% of its F1.
9. *Retrieval, dynamics.* It does: with 37.5% of the heads removed (3 of 8) by importance the last checkpoint keeps at
   least 85% of its score ``1 - NMSE``, and more than the first does.

Added when the results on these were known (3 and 4 had failed: cut channels recovered more often), before its own run:

10. *Resumed.* The gain is the cut's, not that of a second start with new moments and new patience: direct runs that are
    given one recover less often than channels cut from 4h heads at equal compute.

*Test.* Arms run on the same problems. Those of one seed (all sizes) are not independent, so arms are compared seed by
seed, by exact flips of the signs of all of a seed's problems together (`experiments.significance`), with Holm's
correction. At first this was a sign test of single problems, whose p-values were up to ten times too small; what was
expected, and the rules above, are as they were.

Modules: `config`, `units` (points of the tries and what a batch computes), `dynamics` (the same of checkpoints),
`records` (thresholds and curves), `claims`, `figures`, `table`, `experiment`.
"""
