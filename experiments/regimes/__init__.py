"""Where does one head suffice, by how much do more heads lower the budget, and how does the budget scale?

    python -m experiments run regimes                   # preset quick, minutes on two cores
    python -m experiments run regimes --preset paper    # more seeds and sizes, hours
    python -m experiments run regimes --map-d-models 16 --map-factors 0.6,0.9 --out DIR

Four parts, on Gaussian items of unit norm:

- *map*: permutations over (m, d), m in multiples of the single head's ceiling. Whether one head can is decided exactly
  (`theory.certificates`). Its budget D_1 is the least d_k at which half of the seeds recover the graph. The best budget
  of several heads: heads of each promising size are added one after the other until the graph is recovered; where that
  takes few heads, one head less is tried too, with edges changing hands. Joint training (plain Adam and an annealed
  soft maximum, `theory.training.variants`) at a few of the points.
- *families*: random regular graphs, random graphs and graphs with hubs (out-degrees 1, 1/2, 1/3, ... of the largest)
  with the same m' edges: heads of one size that are needed.
- *scaling*: the best budget of heads of one size over a decade in m and in d; exponents of
  ``D_K ~ m^a d^-b`` with intervals, beside those of predictions *at the same points, rounded up to whole heads too*.
- *thin*: heads of one, two, three dimensions: how many edges of their own they hold, and what a permutation needs.

A run recovers where some threshold gives an F1 of at least 0.99; heads are counted by the shortest prefix that does.
Head-by-head channels are judged in float64 from their weights; joint training is judged as in the joint experiment.

What was expected, written down before the runs; `CLAIMS` in `experiments.regimes.claims` judges each from the records.
(Before came: predictions; a pilot of heads that are given their edges at m = 96, d = 16, four seeds, which held 2, 10
and 16 to 17; the capacity and joint experiments, which have one of the map's sizes and two of its trainers.)

1. *Ceiling*: every problem is decided; one head can at no more than 0.9 of the predicted ceiling and cannot from 1.3
   on.
2. *No use*: where m is at most 0.6 of the ceiling, several heads save at most one key dimension or a tenth. (Predicted
   gain there: 1.00 to 1.1. The folklore, that more heads are better, fails here.)
3. *Use*: at 0.9 of the ceiling several heads need at most 0.85 of the budget of one. (Predicted: about 0.8.)
4. *Boundary*: a measured saving of more than a tenth and more than one dimension, and a predicted gain of more than
   1.1, agree in at least 80% of the sizes that one head can do.
5. *Level*: the best budget lies between 0.7 and 1.05 of the best even partition's, rounded up to whole heads, wherever
   that is at least 6.
6. *Joint is blind to the saving*: below the ceiling, Adam's best budget with several heads is at least 0.95 of its
   budget with one.
7. *Annealed sees it*: at 0.9 of the ceiling, the annealed one's best budget with several heads is at most 0.9 of its
   budget with one.
8. *One law in m'*: heads of two dimensions that regular and random graphs need lie between 0.7 and 1.1 of the width's
   prediction at every m', and regular and random ones within 15% of each other.
9. *Hubs cost more*: at four and eight edges an item, graphs with hubs need at least 1.1 times the heads of random ones.
   (A head answers all questions about a source by one direction: a hub's edges share it, and their features depend on
   each other. Against it: there are fewer such graphs, hence fewer bits to be held.)
10. *Exponents*: a and b are those of the width's prediction at the same points, within 0.15.
11. *Not the folk law*: b is above 1, the 95% interval without it, and ``D_K d / (m ln m)`` varies by a factor of more
    than 1.5 over the sizes.
12. *Nor parameters*: at the same points the parameter count has the same exponents as the width, within 0.15: exponents
    cannot tell them; its level, measured budgets at most 0.75 of it at every size, does.
13. *Own edges*: heads of two and three dimensions hold what the width predicts, within 15%; a head of one dimension at
    most two edges, where the width says six.
14. *Thin is not weak*: a permutation needs at most 1.1 times the best budget with heads of two dimensions, and at least
    2.5 times as much with heads of one.

(The first complete run of ``quick`` had heads of two dimensions alone in *scaling*, without trying one head less. At
m = 240, d = 80 training needed eight of them where by the width four do, or one head of six: a failure of training,
which is no law. Larger heads and one head less were added; the expectations stayed as they were.)

Modules: `config`, `units` (points and what a batch computes), `plan` (which points are asked for), `records` (cells,
laws), `exponents`, `claims` (verdicts), `figures`, `table`, `experiment`.
"""

from experiments.regimes.config import PRESETS, RegimesConfig

__all__ = ["PRESETS", "RegimesConfig"]
