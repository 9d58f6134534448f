"""Several relations at once: can one head serve two judgements?

    python -m experiments run relations                     # preset quick, minutes on two cores
    python -m experiments run relations --preset paper      # more items and seeds, a longer training
    python -m experiments run relations --num-relations 3 --seeds 5 --out DIR

Every item has a target under each of R relations and must return all R values, each in its own slot, at an equal total
key dimension D_K. `theory.relations.floors` proves that h < R heads leave an error of (R - h) / R where the read-out is
linear, or the values are Gaussian; where values are +1 and -1 and the read-out is an MLP, they need not.

What was expected, written down before the runs that test it; `CLAIMS` in `experiments.relations.claims` judges it from
the records. (Pilot runs at 32 items, one budget and a few of the head counts came before: 3, 5 and 7 are what they
showed, the rest was not looked at.)

1. *Floor.* With a linear read-out no run has an expected error below the floor (a theorem: this tests the code).
2. *Attained.* Below R heads the best linear run comes within 0.02 of the floor: training finds h targets, or mixtures.
3. *Enough.* At h = R and D_K = 60 the best linear run's error is below 0.02 and its accuracy above 0.98.
4. *More.* At D_K = 60, heads beyond R change the best linear run's error by less than 0.02.
5. *Gaussian values bind any read-out.* An MLP's error on Gaussian values is at least the floor less three standard
   errors of the test, in every run, with trained attention and with mixtures set by hand.
6. *Signs do not.* On values of +1 and -1, weights set to 1 : 2 : 4 ... and an MLP that is trained leave less than half
   of the floor where a head has at most two targets.
7. *Training does not find it.* With attention trained too, the best MLP on signs is within 0.05 of the floor at h < R.
8. *Thin heads.* At D_K = 12 the error at h = R = 4 (d_k = 3) is above that at D_K = 60, but below the floor of three
   heads, 1/4: the fourth head is worth more than the width it costs the others.

Modules: `config`, `units` (points and what a batch computes), `records` (curves), `claims`, `figures`, `table`,
`experiment`.
"""

from experiments.relations.config import PRESETS, RelationsConfig

__all__ = ["PRESETS", "RelationsConfig"]
