"""From grouped key/value heads to fewer, on a model that somebody trained.

Command: ``python -m experiments run conversion [--preset smoke|quick] [--text FILE]``. It needs a model
(``make models``) and text (``make text``, or any UTF-8 file by ``--text``).

The key/value heads of every layer are merged (`experiments.conversion.merge`): by taking the first of each group, by
their mean (as the GQA paper does), and by a low-rank fit of the stacked maps, to the weights or to what the maps give
on text. Measured is the next-token loss on held-out text before and after a short run of healing, beside the
unconverted model healed alike.

**RoPE and the fit.** A shared key may differ from a head's own by a map that the queries absorb, but only by one that
commutes with RoPE's rotations: a rotation and scaling of each pair of features by itself, one complex number a pair.
So a fit of keys has rank one in every pair, over the complex numbers, ``head_dim / 2`` small problems. Values are not
rotated, and any ``head_dim`` directions of the stacked values can be kept. What the restriction costs is recorded:
`key_energy` beside `key_energy_unrotated`, the share that the best fit without it would keep (and no RoPE could use;
which is why MLA has a key of its own for RoPE).
"""
