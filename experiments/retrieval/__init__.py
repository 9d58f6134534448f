"""Head count and approximation: D-retrieval, and the single head that copies (Yu et al. 2025, arXiv 2510.06662).

    python -m experiments run retrieval                     # preset quick, minutes on two cores
    python -m experiments run retrieval --preset paper      # D = 2, 3, 4, 6 and T up to 128 everywhere, more seeds
    python -m experiments run retrieval --num-targets 3 --lengths 16 --seeds 5 --out DIR

A model of one attention layer reads T tokens at a class token and answers with a sum of D maxima. How does its error
fall with the number of heads h, and is there a jump at h = D? What moves into the read-out when one wide head copies
the whole input instead?

What was expected, written down before the runs that test it; `CLAIMS` in `experiments.retrieval.claims` judges each of
them from the records, and the README shows the verdicts. (Pilot runs of a few hundred steps, at D = 4 and T = 8, 16 and
128, one seed, came before; where a pilot speaks against an expectation, the expectation is kept and this is said.)

1. *Jump.* Linear encoder, orthonormal directions: the largest ratio of errors at h - 1 and at h heads is the one at
   h = D, for every D and T; at T = 128 and D = 4 it is at least 100.
2. *Below D.* There the best error is between half of `theory.retrieval.unread_nmse` and 1.05 of it: a head retrieves
   one maximum and softness helps a little. (The lower half is a guess; the upper one is a construction.)
3. *Above D.* Further heads change nothing that matters: the error at D + 1 and D + 2 is within a factor 10 of that at
   D.
4. *Uniform attention*, trained so from the start, has the error of the best read-out of the mean token, which is known
   exactly, within 10%.
5. *Random directions* and a *fixed width* E = n h move no jump.
6. *An MLP encoder* does better below D than any linear one, because means of its features tell of maxima without a
   head for each (with enough features uniform attention would do): the ratio at h = D is smaller than with a linear
   encoder at the same T.
7. *Two layers*: the jump is at L h = D (in the paper a conjecture), at 2 heads for D = 4.
8. *The general task* has its jump at h = D too.
9. *Maps*: with h = D each head's first token is the one that attains its maximum in more than 99% of the samples.
10. *Copying*: with uniform weights in place of the trained ones nothing changes (within 10%) in the wide single head
    on features e_t (x) x, while models of D heads get worse than uniform attention. (A pilot at T = 8 says that a wide
    head trained freely does use its attention; only one that is kept uniform copies.)
11. *The work moves*: for a given error the copying head's read-out needs parameters that grow with T, that of D heads
    does not.

The theorem itself (`theory.retrieval.theorem`) is a rate for the supremum error with bounded weights. None of these
runs tests it: those at lengths above `theory.retrieval.vacuous_length` illustrate it within its range, the others
outside.

Modules: `config`, `units` (points and what a batch computes), `records` (curves and jumps), `claims`, `published`
(numbers of the paper), `figures`, `table`, `experiment`.
"""

from experiments.retrieval.config import PRESETS, RetrievalConfig

__all__ = ["PRESETS", "RetrievalConfig"]
