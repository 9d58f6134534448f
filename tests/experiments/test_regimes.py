"""The regimes experiment: searches, judging, exponents, verdicts, figures, a small run, and what is committed."""

import copy
import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from experiments import cli
from experiments.collecting import config_from, units_of
from experiments.reading import select
from experiments.regimes import PRESETS, table
from experiments.regimes.claims import CLAIMS, claim_rows
from experiments.regimes.config import check, size_of
from experiments.regimes.experiment import EXPERIMENT
from experiments.regimes.exponents import bootstrap, fit
from experiments.regimes.plan import (
    STEP_DOWN,
    Cell,
    cells,
    family_batches,
    joint_batches,
    needed,
    own_batches,
    scaling_head_dims,
    search_cell,
    search_scaling,
    thin_batches,
    whole_budget,
)
from experiments.regimes.records import summary
from experiments.regimes.units import DecidedPoint, HeadsPoint, judge
from experiments.store import canonical
from theory.bounds import single_head_max_items
from theory.training import Channel

QUICK = PRESETS["quick"]
FOLDER = Path(__file__).parents[2] / "figures" / "regimes"
NAMES = [name for name in ("quick", "paper") if (FOLDER / f"{name}.json").exists()]


def committed(name="quick"):
    return json.loads((FOLDER / f"{name}.json").read_text(), parse_constant=pytest.fail)


class _Oracle:
    """Answers as if every head of size k held exactly ``held(k)`` edges; remembers what it was asked."""

    def __init__(self, separable, held):
        self.separable, self.held, self.asked = separable, held, []

    def __call__(self, points):
        self.asked.append(points)
        return [asdict(point) | self._answer(point) for point in points]

    def _answer(self, point):
        if isinstance(point, DecidedPoint):
            return {"verdict": "separable" if self.separable else "inseparable"}
        heads = math.ceil(point.num_items / self.held(point.head_dim))
        return {"heads": heads if heads <= point.max_heads else None}


def test_a_cell_brackets_one_head_and_tries_smaller_sizes_of_several():
    oracle = _Oracle(True, lambda k: 51 if k >= 9 else 5 * k)
    search_cell(QUICK, Cell(16, 0.9, 51), oracle)
    one = {p[0].head_dim for p in oracle.asked if isinstance(p[0], HeadsPoint) and p[0].part == "one"}
    assert {8, 9} <= one
    assert len(one) <= 5
    several = [p[0] for p in oracle.asked if isinstance(p[0], HeadsPoint) and p[0].part == "map"]
    assert several
    assert all(p.head_dim < 9 for p in several)
    # Every size that needed few heads, and would be better with one less, was tried with one less.
    for k in {p.head_dim for p in several}:
        allowed = sorted(p.max_heads for p in several if p.head_dim == k)
        count = math.ceil(51 / (5 * k))
        assert allowed[-1] >= count
        if k * (count - 1) < 9:  # one head's budget, which is the best here
            assert allowed[0] == count - 1


def test_a_cell_above_the_ceiling_asks_nothing_of_one_head_and_no_step_down_of_many():
    oracle = _Oracle(False, lambda k: 3 * k)
    search_cell(QUICK, Cell(16, 3.0, 171), oracle)
    heads = [p[0] for p in oracle.asked if isinstance(p[0], HeadsPoint)]
    assert {p.part for p in heads} == {"map"}
    assert math.ceil(171 / 12) > STEP_DOWN
    assert len({p.head_dim for p in heads}) == len(heads)


def test_the_scaling_tries_larger_heads_where_few_do_and_one_less():
    assert scaling_head_dims(QUICK, 240, 80) == [2, 4, 8]
    assert scaling_head_dims(QUICK, 240, 16) == [2]
    oracle = _Oracle(True, lambda k: 30 * k)
    search_scaling(QUICK, 240, 80, oracle)
    asked = [(p[0].head_dim, p[0].max_heads) for p in oracle.asked]
    assert {k for k, _ in asked} == {2, 4, 8}
    assert (2, 3) in asked  # four are needed: three could be better than one of eight


def test_half_of_the_seeds_decide():
    def rows(*heads):
        return [{"heads": h} for h in heads]

    assert needed(rows(3, 5, 4)) == 4
    assert needed(rows(3, 5, None)) == 5
    assert needed(rows(3, None, None)) is None
    assert needed(rows(3, 5, None, None)) == 5


def test_sizes_of_the_presets():
    for config in PRESETS.values():
        check(config)
        for cell in cells(config):
            assert cell.num_items == max(4, round(cell.factor * single_head_max_items(cell.d_model)))
    sizes = [size_of(text) for text in QUICK.scaling_sizes]
    for values in zip(*sizes, strict=True):
        assert max(values) >= 10 * min(values)  # a decade
    for batch in (*family_batches(QUICK), *thin_batches(QUICK)):
        first = batch[0]
        room = first.max_heads * first.head_dim
        assert room >= 1.5 * whole_budget(first.num_items, first.num_edges, first.d_model, first.head_dim)
        if first.head_dim == 1:
            assert room >= first.num_edges // 2
    assert all(p.own_edges <= p.num_items for batch in own_batches(QUICK) for p in batch)
    above = replace(QUICK, joint_factors=(1.3,))
    assert {b[0].num_heads for b in joint_batches(above)} == {2, 4}


def test_heads_are_judged_one_after_the_other():
    """Items are axes, so that a head that maps sources to targets holds exactly its own edges."""
    m = 6
    edges = np.roll(np.eye(m, dtype=bool), 1, axis=1)
    query, key = np.zeros((4, m, m), np.float32), np.zeros((4, m, m), np.float32)
    for head, own in enumerate(([0, 1, 2], [], [2, 3], [4, 5])):
        for source in own:
            query[head, source, source] = 2.0
            key[head, (source + 1) % m, source] = 1.0
    found = judge(np.eye(m), edges, Channel(query, key, 1.0, 0.0, 1, None))
    assert found["held"] == [3, 2, 2]
    assert found["heads"] == found["exact_heads"] == 3
    assert found["best_f1"] == 1.0
    short = judge(np.eye(m), edges, Channel(query[:3], key[:3], 1.0, 0.0, 1, None))
    assert short["heads"] is None
    assert short["best_f1"] == pytest.approx(2 * 4 / (2 * 4 + 2))
    failed = judge(np.eye(m), edges, Channel(query, key, 1.0, 0.0, 1, None, reason="loss not finite"))
    assert failed["status"] == "failed"


def test_exponents_of_a_power_law_are_found_and_bracketed():
    sizes = [size_of(text) for text in QUICK.scaling_sizes]
    m, d = np.array(sizes, float).T
    assert fit(m, d, 0.3 * m**1.4 * d**-1.3) == pytest.approx((1.4, 1.3), rel=1e-9)
    rng = np.random.default_rng(0)
    noisy = [list(0.3 * a**1.4 * b**-1.3 * np.exp(0.1 * rng.standard_normal(4))) for a, b in sizes]
    rows = bootstrap(sizes, noisy, {"law": (0.3 * m**1.2 * d**-1.0).tolist()})
    for name, value in (("a", 1.4), ("b", 1.3)):
        row = rows["measured"]
        assert row[f"{name}_low"] < value < row[f"{name}_high"] < row[f"{name}_low"] + 0.4
        assert rows["law"][f"{name}_minus_low"] > 0
    with pytest.raises(ValueError, match="tell m from d"):
        fit(m[:2], d[:2], m[:2])
    with pytest.raises(ValueError, match="budgets: expected positive"):
        fit(m, d, 0 * m)


def _made():
    """Records under which everything comes out as expected."""

    def cell(m, d, factor, **more):
        can = factor < 1
        row = {"num_items": m, "d_model": d, "factor": factor, "num_seeds": 3, "undecided": 0}
        row |= {"separable": 3 * can, "inseparable": 3 * (not can), "one_budget": 3, "gain": 1.0, "saved": 0}
        row |= {"many_budget": None, "best_budget": 3, "predicted_whole": 3, "predicted_gain": 1.0}
        return row | more

    cells = [
        cell(34, 16, 0.6),
        cell(51, 16, 0.9, one_budget=9, gain=1.5, saved=3, many_budget=6, best_budget=6, predicted_whole=6)
        | {"predicted_gain": 1.3},
        cell(74, 16, 1.3, one_budget=None, gain=None, saved=None, many_budget=10, best_budget=10)
        | {"predicted_whole": 11, "predicted_gain": None},
    ]
    joint = [
        {"num_items": m, "factor": f, "variant": v, "num_heads": h, "least_budget": b, "largest_run": 16}
        for (m, f, v, h), b in {
            (34, 0.6, "adam", 1): 4,
            (34, 0.6, "adam", 2): 6,
            (51, 0.9, "adam", 1): 10,
            (51, 0.9, "adam", 2): None,
            (51, 0.9, "anneal-hinge", 1): 10,
            (51, 0.9, "anneal-hinge", 2): 8,
        }.items()
    ]
    families = [
        {"graph": g, "degree": r, "mean_heads": x * 9.0, "predicted_heads": 10.0}
        for g, x in (("regular", 1.0), ("random", 1.0), ("hubs", 1.3))
        for r in (1, 4, 8)
    ]
    ends = {"a": 1.4, "a_low": 1.3, "a_high": 1.5, "b": 1.3, "b_low": 1.2, "b_high": 1.4}
    exponents = [
        {"law": name} | ends | {"a_minus": 0.05, "b_minus": -0.05}
        for name in ("measured", "width_whole", "parameters_whole")
    ]
    return {
        "cells": cells,
        "joint": joint,
        "families": families,
        "scaling": [
            {"over_folk": x, "budget": 10.0, "parameters_whole": 16.0, "width_whole": 10.0}
            for x in (0.3, 0.6)
        ],
        "exponents": exponents,
        "thin": [{"head_dim": k, "budget": b} for k, b in ((1, 48.0), (2, 15.0), (3, 15.0))],
        "own": [
            {"head_dim": k, "budget": b, "largest_held": int(b), "predicted_held": p}
            for k, b, p in ((1, 2.0, 6.0), (2, 11.0, 12.0), (3, 17.0, 18.0))
        ],
    }


def _verdicts(made):
    return {row["claim"]: row["verdict"] for row in claim_rows(made)}


def test_everything_as_expected_is_held():
    verdicts = _verdicts(_made())
    assert set(verdicts.values()) == {"held"}
    assert len(verdicts) == len(CLAIMS)
    empty = dict.fromkeys(_made(), ())
    assert set(_verdicts(empty).values()) == {"not_run"}


@pytest.mark.parametrize(
    ("claim", "kind", "wanted", "changes"),
    [
        ("ceiling", "cells", {"num_items": 74}, {"separable": 1, "inseparable": 2}),
        ("ceiling", "cells", {"num_items": 34}, {"separable": 2, "undecided": 1}),
        ("no use", "cells", {"num_items": 34}, {"gain": 1.5, "saved": 2}),
        ("use", "cells", {"num_items": 51}, {"gain": 1.1}),
        ("boundary", "cells", {"num_items": 51}, {"predicted_gain": 1.05}),
        ("level", "cells", {"num_items": 74}, {"best_budget": 12}),
        (
            "joint is blind",
            "joint",
            {"variant": "adam", "num_items": 34, "num_heads": 2},
            {"least_budget": 3},
        ),
        ("annealed sees it", "joint", {"variant": "anneal-hinge", "num_heads": 2}, {"least_budget": 10}),
        ("one law in m'", "families", {"graph": "regular", "degree": 4}, {"mean_heads": 11.5}),
        ("hubs cost more", "families", {"graph": "hubs", "degree": 8}, {"mean_heads": 9.0}),
        ("exponents", "exponents", {"law": "width_whole"}, {"b_minus": 0.2}),
        ("not the folk law", "exponents", {"law": "measured"}, {"b_low": 0.95}),
        ("not the folk law", "scaling", {"over_folk": 0.6}, {"over_folk": 0.4}),
        ("nor parameters", "exponents", {"law": "parameters_whole"}, {"a": 1.6}),
        ("nor parameters", "scaling", {"over_folk": 0.6}, {"budget": 13.0}),
        ("own edges", "own", {"head_dim": 3}, {"budget": 14.0}),
        ("own edges", "own", {"head_dim": 1}, {"largest_held": 3}),
        ("thin is not weak", "thin", {"head_dim": 2}, {"budget": 18.0}),
        ("thin is not weak", "thin", {"head_dim": 1}, {"budget": 30.0}),
    ],
)
def test_each_verdict_can_fail(claim, kind, wanted, changes):
    made = copy.deepcopy(_made())
    [row] = select(made[kind], **wanted)
    row.update(changes)
    assert _verdicts(made)[claim] == "failed"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scaling_sizes": ("96",)}, "scaling_sizes: expected MxD"),
        ({"joint_variants": ("adams",)}, "joint_variants: expected names among"),
        ({"family_degrees": (1, 33)}, "family_degrees: expected at most family_items // 2 = 32"),
        ({"map_seeds": 0}, "map_seeds: expected a positive integer"),
        ({"map_d_models": (8, 8)}, "map_d_models: expected different values"),
    ],
)
def test_mistakes_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        check(replace(QUICK, **changes))


@pytest.mark.slow
def test_a_run_from_the_command_line(tmp_path, capsys):
    command = ["run", "regimes", "--preset", "smoke", "--workers", "0", "--out", str(tmp_path)]
    assert cli.main([*command, "--map-factors", "0.6"]) == 0
    data = json.loads((tmp_path / "smoke.json").read_text(), parse_constant=pytest.fail)
    assert {row["status"] for row in data["records"]["heads"]} == {"ok"}
    assert len(data["records"]["cells"]) == 1
    assert "Where one head suffices" in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_what_is_committed_is_complete_and_judged(name):
    data, config = committed(name), PRESETS[name]
    assert data["unfinished"] == data["left_out"] == []
    assert canonical(data["config"]) == canonical(asdict(config))
    assert config_from(EXPERIMENT, data["config"]) == config
    rows = data["records"]
    assert sum(len(own) for _, own in units_of(EXPERIMENT, config, rows)) == sum(
        len(rows[kind]) for kind in ("heads", "decided", "joint_points", "own_points")
    )
    made = summary(config, rows)
    assert canonical(rows["claims"]) == canonical(made["claims"])
    assert canonical(rows["cells"]) == canonical(made["cells"])


def test_figures_tables_and_values_are_made_of_the_records(tmp_path):
    data = committed()
    names = {path.name for path in EXPERIMENT.plot(data, tmp_path, "quick")}
    assert {f"quick-{name}.svg" for name in ("map", "gain", "joint", "families", "scaling", "thin")} <= names
    values = table.values(data)
    assert values["one.d16.m74"] == "none"
    assert int(values["best.d16.m51"]) <= int(values["one.d16.m51"])
    for block in table.BLOCKS.values():
        assert "No records" not in block(data)
