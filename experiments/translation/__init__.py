"""Head count against head size on real text: English to Spanish verses, after Vaswani et al. 2017, Table 3.

    make text                                                 # once: the verses
    python -m experiments run translation                     # preset quick: arm A, about ten minutes on two cores
    python -m experiments run translation --preset paper      # all arms, 3 seeds, hours on two cores; can be resumed
    python -m experiments run translation --preset base --pairs train.tsv,dev.tsv,test.tsv    # the paper's sizes; days

A small encoder-decoder is trained on verses and translates books that it has never seen. Arms, at width d_model = 128:

- *A*: h = 1, ..., 32 heads of d_k = d_v = d_model / h: parameters and multiplications stay the same.
- *B*: d_k = 4, ..., 32 at h = 8 and d_v = 16: how much room the comparison of queries and keys needs.
- *F*: h = 1, 2, 4, 8 heads of 32, whatever the width: the FixedMultiHead of Bhojanapalli et al. 2020.
- *M*: width 64 and 32 with 16 and 32 heads of 16, so that attention keeps its parameters while all else shrinks;
  *S*: standard splits (8 heads, d_k = d_model / 8) with as many parameters in all as each of M.

What was expected, written down before the runs that test it; `CLAIMS` in `experiments.translation.claims` judges each
of them from the records. (One pilot of the standard setting came before, to size the training. It passed BLEU 8, so the
first is a check rather than a prediction; no other setting was tried.)

1. *Works.* The standard setting (h = 8) reaches BLEU 8 on the held-out books at the full training of `paper`;
   untrained, or with the source in place of its translation, it is below 3.
2. *One head* is worse than the best head count by at least 3% of perplexity (published: 8%).
3. *Best count*: 4, 8 or 16.
4. *Too many*: 32 heads of size 4 cost at least 1% of perplexity (published, at size 16: 2%).
5. *Head size*: with d_v and h fixed, d_k = 4 costs at least 1% of perplexity against 16, and 32 changes less than 1%.
   (Published: each halving from 64 costs 2% to 3%.)
6. *Fixed size*: at d_k = d_v = 32 every doubling of the heads lowers perplexity, beyond d_model / d_k heads too.
7. *Equal parameters*: a smaller width with large heads has a lower perplexity than the standard split with as many
   parameters. (Published for language models of width 256 and more; a width of 32 may be too narrow for that.)
8. *Cost*: in A parameters are equal, multiplications within 5%, and yet 32 heads take 1.2 times the time of one.
   (Time is judged no more here: settings are timed one after the other, beside whatever else runs. In the preset
   ``quick`` it held; heads timed in turn are in `experiments.bench_heads`.)
9. *Agreement*: settings rank by BLEU about as they do by perplexity.

How runs are made comparable. All settings of an arm share a learning rate, chosen by one rule: shorter runs of the
arm's reference setting, on a seed that is not reported, and the rate with the least perplexity on dev. (`quick` takes
0.003 as it is. The grid of `paper` is centred on 0.006, the largest and best of a first grid.) Seeds 0, 1, ... decide
initial weights and the order of pairs. Perplexity is per subword of the held-out targets; BLEU is sacreBLEU's, with
its signature in every record, of beam search (beam 4, alpha 0.6) against whole references; pairs longer than 64
subwords a side are not trained on, and cut where they are translated; how many those are is in the table of the text.
Parameters are counted, flops are what XLA says of the compiled step (none where it has a loop, as over long rows).
``seconds_per_step`` is wall time of whatever else ran beside; only orders of magnitude count.

Modules: `config`, `data` (pairs), `subwords`, `rows` (of packed pairs), `counts` (of pairs), `model`, `training`,
`search` (beam search), `scoring`, `plan` (settings, points, the rule for learning rates), `units` (what a batch
computes), `records`, `claims`, `published`, `figures`, `table`, `differences` (what the seeds resolve), `experiment`.
"""

from experiments.translation.config import PRESETS, TranslationConfig

__all__ = ["PRESETS", "TranslationConfig"]
