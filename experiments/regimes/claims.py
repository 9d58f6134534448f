"""Verdicts on what was expected (`experiments.regimes`), from the records alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from experiments.claims import Claim, Verdict, judged
from experiments.points import Record
from experiments.reading import select

Made = Mapping[str, Sequence[Record]]


def claim_rows(made: Made) -> list[Record]:
    """One row a claim: ``verdict`` is ``held``, ``failed`` or ``not_run``."""
    return judged(CLAIMS, made)


def _range(values: Iterable[float]) -> str:
    every = list(values)
    return f"{min(every):.2f} to {max(every):.2f} ({len(every)} sizes)"


def _ceiling(made: Made) -> Verdict | None:
    rows = made["cells"]
    if not rows:
        return None
    undecided = sum(row["undecided"] for row in rows)
    below, above = [r for r in rows if r["factor"] <= 0.9], [r for r in rows if r["factor"] >= 1.3]
    wrong = sum(r["inseparable"] for r in below) + sum(r["separable"] for r in above)
    number = sum(row["num_seeds"] for row in rows)
    return undecided == wrong == 0, f"{number} graphs, {undecided} undecided, {wrong} on the wrong side"


def _one_head_can(made: Made) -> list[Record]:
    return [row for row in made["cells"] if row["one_budget"] is not None]


def _saves(row: Record) -> bool:
    return row["gain"] > 1.1 and row["saved"] > 1


def _no_use(made: Made) -> Verdict | None:
    rows = [row for row in _one_head_can(made) if row["factor"] <= 0.6]
    if not rows:
        return None
    most = max(row["saved"] for row in rows)
    found = f"gain {_range(row['gain'] for row in rows)}, at most {most} dimensions saved"
    return not any(_saves(row) for row in rows), found


def _use(made: Made) -> Verdict | None:
    rows = [row for row in _one_head_can(made) if row["factor"] == 0.9]
    if not rows:
        return None
    shares = [1 / row["gain"] for row in rows]
    return max(shares) <= 0.85, f"best over one head {_range(shares)}"


def _boundary(made: Made) -> Verdict | None:
    rows = _one_head_can(made)
    if not rows:
        return None
    agree = sum(_saves(row) == (row["predicted_gain"] is None or row["predicted_gain"] > 1.1) for row in rows)
    return agree >= 0.8 * len(rows), f"{agree} of {len(rows)} sizes agree"


def _level(made: Made) -> Verdict | None:
    rows = [r for r in made["cells"] if r["many_budget"] is not None and r["predicted_whole"] >= 6]
    if not rows:
        return None
    ratios = [row["best_budget"] / row["predicted_whole"] for row in rows]
    return min(ratios) >= 0.7 and max(ratios) <= 1.05, f"measured over predicted {_range(ratios)}"


def _joint_shares(made: Made, variant: str, factors: tuple[float, float]) -> dict[int, float]:
    """Best budget of several heads over that of one, by items; the largest run plus one where not reached."""
    shares = {}
    rows = [r for r in select(made["joint"], variant=variant) if factors[0] <= r["factor"] <= factors[1]]
    for m in sorted({row["num_items"] for row in rows}):
        own = select(rows, num_items=m)
        one = select(own, num_heads=1)
        several = [r["least_budget"] or r["largest_run"] + 1 for r in own if r["num_heads"] > 1]
        if one and several and one[0]["least_budget"] is not None:
            shares[m] = min(several) / one[0]["least_budget"]
    return shares


def _said(shares: Mapping[int, float]) -> str:
    return ", ".join(f"m = {m}: {share:.2f}" for m, share in shares.items())


def _blind(made: Made) -> Verdict | None:
    shares = _joint_shares(made, "adam", (0.0, 1.0))
    return (min(shares.values()) >= 0.95, _said(shares)) if shares else None


def _annealed(made: Made) -> Verdict | None:
    shares = _joint_shares(made, "anneal-hinge", (0.87, 0.93))
    return (max(shares.values()) <= 0.9, _said(shares)) if shares else None


def _one_law(made: Made) -> Verdict | None:
    rows = [row for row in made["families"] if row["graph"] != "hubs"]
    pairs = _over_random(made, "regular")
    if not rows or not pairs:
        return None
    ratios = [row["mean_heads"] / row["predicted_heads"] for row in rows]
    fine = min(ratios) >= 0.7 and max(ratios) <= 1.1 and all(abs(x - 1) <= 0.15 for x in pairs.values())
    return fine, f"over predicted {_range(ratios)}; regular over random {_range(pairs.values())}"


def _over_random(made: Made, graph: str) -> dict[int, float]:
    """Heads that a family needs over those of random graphs, by edges an item."""
    found = {}
    for row in select(made["families"], graph=graph):
        other = select(made["families"], graph="random", degree=row["degree"])
        if other:
            found[row["degree"]] = row["mean_heads"] / other[0]["mean_heads"]
    return found


def _hubs(made: Made) -> Verdict | None:
    ratios = _over_random(made, "hubs")
    dense = [ratio for degree, ratio in ratios.items() if degree in (4, 8)]
    said = ", ".join(f"{degree} edges an item: {ratio:.2f}" for degree, ratio in ratios.items())
    return (min(dense) >= 1.1, said) if dense else None


def _laws(made: Made) -> dict[str, Record]:
    return {row["law"]: row for row in made["exponents"]}


def _pair(row: Record) -> str:
    return ", ".join(
        f"{name} = {row[name]:.2f} [{row[f'{name}_low']:.2f}, {row[f'{name}_high']:.2f}]"
        for name in ("a", "b")
    )


def _exponents(made: Made) -> Verdict | None:
    laws = _laws(made)
    if not laws:
        return None
    whole = laws["width_whole"]
    fine = abs(whole["a_minus"]) <= 0.15 and abs(whole["b_minus"]) <= 0.15
    return fine, f"measured {_pair(laws['measured'])}; width, whole heads {_pair(whole)}"


def _not_folk(made: Made) -> Verdict | None:
    laws = _laws(made)
    if not laws:
        return None
    constants = [row["over_folk"] for row in made["scaling"]]
    spread = max(constants) / min(constants)
    return laws["measured"]["b_low"] > 1 and spread > 1.5, (
        f"{_pair(laws['measured'])}; D_K d / (m ln m) from {min(constants):.2f} to {max(constants):.2f}"
    )


def _not_parameters(made: Made) -> Verdict | None:
    laws = _laws(made)
    if not laws:
        return None
    gaps = [laws["parameters_whole"][x] - laws["width_whole"][x] for x in ("a", "b")]
    level = [row["budget"] / row["parameters_whole"] for row in made["scaling"]]
    fine = max(map(abs, gaps)) <= 0.15 and max(level) <= 0.75
    return fine, f"a {gaps[0]:+.2f}, b {gaps[1]:+.2f} beside the width; measured over count {_range(level)}"


def _own(made: Made) -> Verdict | None:
    rows = made["own"]
    wider = [r for r in rows if r["head_dim"] in (2, 3)]
    thin = select(rows, head_dim=1)
    if not wider or not thin:
        return None
    ratios = {r["head_dim"]: (r["budget"] or 0.0) / r["predicted_held"] for r in wider}
    most = thin[0]["largest_held"]
    fine = most == 2 and thin[0]["predicted_held"] > 4 and all(abs(x - 1) <= 0.15 for x in ratios.values())
    said = ", ".join(f"d_k = {k}: {x:.2f} of the prediction" for k, x in ratios.items())
    return fine, f"d_k = 1: {most} (width: {thin[0]['predicted_held']:.1f}); {said}"


def _thin(made: Made) -> Verdict | None:
    budgets = {row["head_dim"]: row["budget"] for row in made["thin"]}
    if not {1, 2} < set(budgets):
        return None
    best = min(budgets.values())
    said = ", ".join(f"d_k = {k}: {x:.1f}" for k, x in budgets.items())
    return budgets[2] <= 1.1 * best and budgets[1] >= 2.5 * best, said


CLAIMS = (
    Claim(
        "ceiling",
        "one head can up to 0.9 of the predicted ceiling, cannot from 1.3 on; all decided",
        _ceiling,
    ),
    Claim("no use", "up to 0.6 of the ceiling several heads save at most one dimension or a tenth", _no_use),
    Claim("use", "at 0.9 of the ceiling the best budget is at most 0.85 of one head's", _use),
    Claim("boundary", "measured and predicted savings agree in 80% of the sizes", _boundary),
    Claim("level", "best budget 0.7 to 1.05 of the even partition's in whole heads", _level),
    Claim("joint is blind", "Adam's best budget of several heads is at least 0.95 of one head's", _blind),
    Claim("annealed sees it", "at 0.9 of the ceiling annealed heads need at most 0.9 of one's", _annealed),
    Claim("one law in m'", "0.7 to 1.1 of the width's; regular within 15% of random", _one_law),
    Claim("hubs cost more", "at four and eight edges an item at least 1.1 times random graphs", _hubs),
    Claim("exponents", "a and b within 0.15 of the width's at the same points", _exponents),
    Claim("not the folk law", "b above 1; D_K d / (m ln m) varies by more than 1.5", _not_folk),
    Claim(
        "nor parameters", "same exponents within 0.15; measured at most 0.75 of the count", _not_parameters
    ),
    Claim("own edges", "d_k = 2, 3: within 15% of the width; d_k = 1: two", _own),
    Claim("thin is not weak", "d_k = 2 at most 1.1 times the best, d_k = 1 at least 2.5 times", _thin),
)
