"""Do heads take relations, each in a band of its own?

    python -m experiments run bands                     # preset quick, minutes on two cores
    python -m experiments run bands --preset paper      # more words and seeds

Real words (MiniLM's token embeddings, whitened principal components) and four kinds of relations between them: country
to capital, singular to plural, verb to past, word to antonym. Channels of four heads are trained to hold all pairs;
they are told nothing of kinds. Which head wins a pair, and does that depend on its kind? Do heads read different
directions?

What was expected, written down before the runs that test it; `CLAIMS` in `experiments.bands.claims` judges it from the
records. (A pilot of four seeds, at 72 pairs and d = 16, had been seen: 1 to 4 are what it showed.)

1. *Joint training divides relations a little*: in at least half of the runs that recover the graph, the normalised
   mutual information of winning head and kind is above the 97.5% quantile of shuffled kinds, but on average it is below
   0.2.
2. *Greedy training does not*: above that quantile in at most a quarter of the runs.
3. *It is the relation*: with targets shuffled (the same words, kinds of their sources) at most a quarter of joint
   training's recovered runs are above.
4. *No bands*: the overlap of jointly trained heads' query and key subspaces (mean squared cosine of principal angles)
   is not below that of random subspaces by more than a tenth of it, in the median over runs.
5. *Bands can be had, at a price*: four heads, each trained alone on the pairs of one kind, hold the whole graph at
   D_K = 48 in at least half of the runs, but not at D_K = 16, where heads free to choose do.

(A first run had by-kind heads at 16, 24, 32 and 48 alone, and greedy ones at 16 and 32. As 16 turned out to be enough
for both, smaller budgets were added; the expectations are as they were.)

Modules: `config`, `units` (points and what a batch computes), `records`, `claims`, `figures`, `table`, `experiment`.
"""

from experiments.bands.config import PRESETS, BandsConfig

__all__ = ["PRESETS", "BandsConfig"]
