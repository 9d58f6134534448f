"""Does redundancy of heads appear in training? Heads removed from a translation model at checkpoints of its training.

    make text                                                 # once: the verses
    python -m experiments run redundancy                      # preset quick: three models
    python -m experiments run redundancy --preset paper       # more checkpoints, eight models

Michel et al. 2019 removed heads of a translation model after 1, 2, 3, 5, 10, 20, 30 and 40 of 40 epochs, in the order
of their importance I_h at that time: after one or two epochs BLEU falls in proportion to the heads removed, from the
tenth on up to 40% of the heads can go at 85% to 90% of the BLEU. Here the model is the standard setting of the
experiment `translation` (two layers of eight heads of 16, in three kinds of attention: 48 heads), trained as its arm A
is; what is measured without some heads, nothing being trained again, is

- BLEU of translated verses of the held-out books, as published, and
- the *gain*: nats per subword below the cross-entropy of a model that knows the frequencies of subwords and no more.
  It says something also where BLEU is 0.

I_h (`mha_jax.analysis`) is of cross-entropy on training pairs, token by token, normalised in every attention layer.
Beside it stand random orders; and, at the end of training, the order of I_h within one kind of attention alone.

What was expected, written down before the first run; `CLAIMS` in `experiments.redundancy.claims` judges each.

1. *Late.* At the end 40% of the heads cannot go, in the order of I_h, at 85% of the BLEU (published: they can). The
   model was sized to be trained in minutes and has a third of the published model's heads: none to spare.
2. *Appears.* All the same, redundancy appears: without 40% of the heads a larger share of the BLEU is kept at the end
   than at the first checkpoint whose BLEU is 1 or more.
3. *Order.* At the end I_h keeps more of the gain than random orders do, on average over the fractions, for every seed.
4. *Early order.* At the first checkpoint it does not do so by as much (published: I_h says nothing there).
5. *Source.* At the end attention to the source is the dearest kind: without 60% of the heads of a kind it keeps the
   least BLEU (published: BLEU collapses beyond 60% of that kind, and of the others 20% of the heads are enough for 30).

Modules: `config`, `points` (what is measured), `units` (what a batch computes), `scores` (importance and gain),
`records`, `claims`, `figures`, `table`, `experiment`.
"""

from experiments.redundancy.config import PRESETS, RedundancyConfig

__all__ = ["PRESETS", "RedundancyConfig"]
