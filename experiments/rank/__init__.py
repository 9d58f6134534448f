"""Head size and rank: how near heads of size d_k come to given patterns (after Bhojanapalli et al. 2020, 2002.07028).

    python -m experiments run rank                          # preset quick, minutes on two cores
    python -m experiments run rank --preset paper           # more lengths, seeds and maps
    python -m experiments run rank --patterns random --lengths 24 --out DIR

The divergence of the best head from random patterns, permutations, bands and maps of a pretrained model against d_k,
with and without bounded norms of queries and keys; the spectra of logits and of their softmax; points on a circle and
the precision they need. The theory is `theory.rank`; where a theorem says what comes out, the runs check the optimiser
against it.

What was expected, written down before the runs that test it; `CLAIMS` in `experiments.rank.claims` judges each of them
from the records. (Before them came pilot runs of the optimiser at n = 16 on one random pattern, one permutation, soft
and hard, and a window, from which numbers 4 and 5 and the size of the divergences in number 2 were known there.)

1. *Exactly*: without a bound, every positive pattern is met (divergence below 1e-9 nats) at every d_k from the rank of
   its centred log on, and at none below (theorem: the optimiser can fail the first half alone).
2. *Random patterns* have no short cut: at d_k = n / 2 the divergence is still at least 1% of uniform attention's.
3. *Bands*: a Gaussian band is met at d_k = 2 (theorem), a window only at n - 1, but to 1% of uniform's at d_k = 8.
4. *Permutations, unbounded*: below 1e-3 nats at every d_k from 2 on; above 1 nat at d_k = 1.
5. *Permutations, bounded*: never below the closed form that holds for any d_k, within 1% of it at n - 1; at d_k = 2
   within 1% of the circle's, and not below.
6. *Truncation* of the logits is a poor approximation: the best head's divergence is at most half of it for soft
   permutations at d_k = 4 and for random patterns at n / 2.
7. *Real maps* (MiniLM, 48 tokens, head size 32): every map's exact size is 32, yet at d_k = 8 the median divergence is
   at most 5% of uniform's.
8. *Spectra*: logits have rank d_k; their softmax has rank n in float64 from d_k = 4 on, and more than 3 d_k below.
9. *Precision*: the circle is right up to the guaranteed length in every precision, and wrong somewhere at 4 times it.
10. *Real maps, bounded* by 10 (written down after the runs that tested 1 to 9, before any run of bounded heads on real
    maps; the largest logits of the best heads without a bound, 3.5 to 10.5, were known): the bound hardly costs
    anything. The median divergence is at most 1.1 times the one without a bound at d_k = 1 to 16, and below 1e-6 nats
    at 32.

Modules: `config`, `units` (points and what a batch computes), `maps` (of the pretrained model), `records` (curves and
precision limits), `claims`, `figures`, `table`, `experiment`.
"""

from experiments.rank.config import PRESETS, RankConfig

__all__ = ["PRESETS", "RankConfig"]
