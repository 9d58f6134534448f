"""One HTML page that holds everything: figures with captions and commands, the claims, and sliders over the bounds.

    make report                                    # writes build/report.html
    python -m experiments report --out FILE.html

The page needs no network and no other file: svg figures stand in it, with names of their own, beside its styles and
scripts. It is drawn for light and dark screens and for a phone's width. What the sliders show is computed in the page
by `page/theory.js`, which repeats formulas of `theory.bounds`; tests compare it with Python over the sliders' grid
(relative difference below 1e-9), and the page compares itself with values that it carries.

Modules: `captions` (the figures' texts), `svg` (figures as part of a page), `markup` (Markdown of captions to HTML),
`claims` (the ledger as cards), `grid` (numbers for the sliders), `html` (the page) and `command`.
"""
