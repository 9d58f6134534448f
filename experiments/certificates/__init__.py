"""Partitions of the edges decided exactly: when do h heads of full rank hold the edges that they are dealt?

    python -m experiments run certificates                       # preset quick, minutes on two cores
    python -m experiments run certificates --preset paper        # d up to 48, more seeds
    python -m experiments run certificates --preset drift        # one and two heads, more seeds, d from 8 to 48
    python -m experiments run certificates --d-models 16 --head-counts 1,2 --seeds 8 --out DIR

Gaussian items, random permutations, edges dealt to ``h`` heads at random and evenly. Every head is a convex problem
that comes with a proof of either answer (`theory.partitions`): a separating matrix, or a Gordan vector. **For two heads
or more a failed partition certifies that partition, never the head count**: heads that choose their edges hold more.

What was expected, written down before the runs that test it; `CLAIMS` in `experiments.certificates.records` judges each
of them from the records. (Pilot solves of one graph at two sizes for each d and h came before, and the ceilings of one
head, measured by the capacity experiment, were known: 1.03 to 1.04 times the prediction.)

1. *Decided*: at most 1 partition in 100 stays undecided.
2. *Proofs*: at least 9 of 10 failed heads are proven to fail in exact arithmetic, not to rounding alone.
3. *Place*: every measured half-way point lies 0% to 7% above its prediction.
4. *Width*: the measured range from 90% to 10% is between half and twice the predicted one.
5. *Drift*: the ratio of measured and predicted half-way points falls with d, and extrapolates (as 1 / d) to 1 at
   infinite d, within its interval or within 0.01.
6. *Heads*: at a given d the ratio is the same for all head counts, within 0.03.

(The preset ``drift`` came after ``quick``, whose intervals were too wide to tell a drift from none: number 5 held there
by the width of its interval, with a slope that could be zero.)

Modules: `config`, `units` (points and what a batch computes), `records` (curves, half-way points, drift, verdicts),
`figures`, `table`, `experiment`.
"""

from experiments.certificates.config import PRESETS, CertificatesConfig

__all__ = ["PRESETS", "CertificatesConfig"]
