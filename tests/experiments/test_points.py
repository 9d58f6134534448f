"""Points, batches and units."""

import json
from dataclasses import dataclass

import pytest

from experiments.capacity import PRESETS, plan
from experiments.capacity.units import KINDS
from experiments.points import Kind, from_unit, to_units
from tests.experiments.toy import EXPERIMENT, Delay, Point
from theory.training import Trainer

TOY = EXPERIMENT.kinds


def test_points_that_share_all_but_values_are_one_batch_in_order_of_appearance():
    points = [Point(w, 2, rate, seed) for seed in (0, 1) for w in (7, 3) for rate in (0.5, 0.25)]
    batches = to_units(TOY, [*points, Delay(1.0, 0)])
    assert [members for _, members in batches] == [
        [p for p in points if p.width == 7],
        [p for p in points if p.width == 3],
        [Delay(1.0, 0)],
    ]
    assert batches[0][0] == {
        "kind": "points",
        "width": 7,
        "steps": 2,
        "values": {"rate": [0.5, 0.25, 0.5, 0.25], "seed": [0, 0, 1, 1]},
    }
    assert batches[2][0] == {"kind": "delays", "seconds": 1.0, "seeds": 1}


def test_a_unit_says_which_points_it_is_of():
    points = [
        Point(3, 2, 0.1, 5),
        Point(3, 2, 0.3, 2),
        Point(4, 2, 0.3, 2, note="x"),
        Delay(0.5, 0),
        Delay(0.5, 1),
    ]
    for unit, members in to_units(TOY, points):
        assert from_unit(TOY, json.loads(json.dumps(unit))) == members


def test_tuples_come_back_as_tuples():
    @dataclass(frozen=True)
    class Shape:
        sides: tuple[tuple[int, ...], ...]
        seed: int

    kinds = {"shape": Kind(Shape, frozenset())}
    [(unit, members)] = to_units(kinds, [Shape(((1, 2), (3,)), seed) for seed in (4, 9)])
    assert from_unit(kinds, json.loads(json.dumps(unit))) == members


def test_what_cannot_be_a_batch_is_refused():
    with pytest.raises(ValueError, match="twice"):
        to_units(TOY, [Delay(1.0, 0), Delay(1.0, 0)])
    with pytest.raises(TypeError, match="one of kinds"):
        to_units(TOY, ["point"])
    for unit in (
        {"kind": "tree"},
        {"kind": "delays", "seeds": 1},
        {"kind": "delays", "seconds": 1, "odd": 2, "seeds": 1},
    ):
        with pytest.raises(ValueError, match="expected"):
            from_unit(TOY, unit)


def test_units_of_capacity_are_written_as_its_stores_have_them():
    """Stores of earlier versions are found by exactly these."""
    curve = plan.Curve(96, 96, 16, 4, "gaussian", "permutation")
    shared = {
        "kind": "points",
        "num_items": 96,
        "num_edges": 96,
        "d_model": 16,
        "num_heads": 4,
        "head_dim": 5,
        "embedding": "gaussian",
        "graph": "permutation",
        "seeds": 8,
    }
    settings: dict[Trainer, dict[str, float]] = {
        "joint": {"learning_rate": 0.1, "max_steps": 6000},
        "plain": {"learning_rate": 0.1, "max_steps": 6000},
        "greedy": {"restarts": 2},
        "polish": {"restarts": 2},
    }
    for trainer, more in settings.items():
        [(unit, _)] = to_units(KINDS, curve.points(PRESETS["quick"], trainer, 5))
        assert unit == shared | {"trainer": trainer} | more
    [(unit, _)] = to_units(KINDS, plan.ceiling_batches(PRESETS["quick"])[0])
    assert unit == {
        "kind": "ceiling",
        "num_items": 53,
        "num_edges": 53,
        "d_model": 16,
        "embedding": "gaussian",
        "graph": "permutation",
        "seeds": 32,
    }
