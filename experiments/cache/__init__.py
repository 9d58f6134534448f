"""Heads against the cache: what grouped-query, multi-query and latent attention cost in capacity.

    python -m experiments run cache                     # preset quick, minutes on two cores
    python -m experiments run cache --preset paper      # three sizes, four head counts, more seeds: hours
    python -m experiments run cache --num-items 96 --d-model 16 --num-heads 4 --seeds 4 --out DIR

The task is that of `capacity` (relational graph recognition, permutation graphs). Designs: ``mha`` (every head its
own keys), ``gqa`` (groups of heads share keys), ``mqa`` (all heads share), ``mla`` (keys read off a latent, at a
fixed rank of the heads). What a token caches are C = g d_k key dimensions, or the d_c of the latent. Thresholds C*
(half of the seeds recover their graph, F1 of at least 0.99 at the best threshold) are located for every design and
trainer; predictions are `theory.cache_capacity`.

Trainers. ``joint``: gradient descent on all weights (for ``mha`` that of `capacity`). ``alternate``: edges are dealt
out and fitted by turns (`theory.training.shared_keys_alternate`), the best trainer for shared keys. ``greedy``:
`capacity`'s best trainer, heads one after the other, for ``mha`` alone: where ``alternate`` beats it, the designs
are not compared by unequal trainers. ``best`` is the least over these. None of them is a limit.

What was expected, written down before the runs that test it; `CLAIMS` in `experiments.cache.claims` judges each from
the records. (Trials with a few seeds at m = 96, d = 16, of ``alternate`` at h = 4 and 8 and of ``joint`` for one
multi-query layer, came before: claims that they had spoken for or against are marked T.) Claims on
thresholds are judged as far as 95% intervals can tell, which are never finer than the grid of widths.

1. *Ratios* (T, best trainer at h = 4): thresholds of a design over those of MHA are within 20% of what the widths
   predict, for ``best`` and for ``joint``, at h = 4. At h = 8 the trials speak against it for MQA, and this is kept.
2. *Below the width* (T): ``best`` needs at most what the fixed partition is predicted to need, in every design,
   because heads choose their edges. (At h = 8 the trials speak against it for MQA.)
3. *Law of joint training*: measured over the parameter count (`shared_key_parameter_cache_dims`), ``joint`` is within
   15% of what it is for MHA (0.8 at h = 4, known from `capacity`) in every design.
4. *Equal cache*: at equal C the edges held do not fall (by more than 2%) from MHA to GQA to MQA (the theorem that
   one contains the other).
5. *Equal parameters* (T): at its threshold a design that shares more has more parameters, by no more than 25% in all.
6. *Latents*: at the rank given to them, C* of MLA lies between those of MQA and of the GQA layer with two key heads.
7. *With values* (as many value dimensions as key dimensions): MLA caches least, below MQA, since its latent counts
   once.
8. *Conversion*: the low-rank fit keeps more than mean-pooling before training on; after 1,000 steps layers from either
   recover their graph as often as ones trained from scratch for as long.

Modules: `config`, `units` (points and what a batch computes), `plan` (designs, searches), `conversion`, `records`,
`claims`, `models` (real models), `figures`, `table`, `experiment`. What a layer costs in serving is another
question, and not here.
"""

from experiments.cache.config import PRESETS, CacheConfig

__all__ = ["PRESETS", "CacheConfig"]
