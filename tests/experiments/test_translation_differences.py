import json

import pytest

from experiments.intervals import paired, welch
from experiments.ledger.books import ROOT
from experiments.redundancy.claims import time_differences
from experiments.translation.differences import differences, differences_cells, values

_BASE = {"value_head_dim": 16, "learning_rate": 0.006, "num_steps": 9, "d_model": 128, "num_params": 1}


def _data(**perplexities):
    """Settings ``Aheads`` or ``Bsize`` with the perplexities of their seeds."""
    settings, points = [], []
    for name, own in perplexities.items():
        arm, number = name[0], int(name[1:])
        heads, size = (number, 128 // number) if arm == "A" else (8, number)
        row = _BASE | {"arm": arm, "num_heads": heads, "head_dim": size}
        row |= {"value_head_dim": size} if arm == "A" else {}
        settings.append(row | {"perplexity": sum(own) / len(own)})
        points += [row | {"seed": seed, "perplexity": value} for seed, value in enumerate(own)]
    return {"records": {"settings": settings, "points": points}}


def test_each_pair_of_settings_is_compared_once_over_its_seeds():
    data = _data(
        A1=[5.0, 7.0, 8.0], A2=[4.0, 6.0, 7.1], A4=[6.0, 6.5, 9.0], B4=[9.0, 9.5, 9.2], B16=[9.0, 9.6, 9.1]
    )
    found = {(row.arm, row.first, row.second): row for row in differences(data)}
    assert list(found) == [
        ("A", "h = 2", "h = 1"),
        ("A", "h = 4", "h = 2"),
        ("A", "h = 4", "h = 1"),
        ("B", "d_k = 4", "d_k = 16"),
    ]
    first, second = [4.0, 6.0, 7.1], [5.0, 7.0, 8.0]
    row = found["A", "h = 2", "h = 1"]
    assert row.paired == paired(dict(enumerate(first)), dict(enumerate(second)))
    assert row.welch == welch(first, second)
    signs = {name: value for name, value in values(data).items() if name.startswith("sign.")}
    assert signs == {
        "sign.A.h2.h1": "lower",
        "sign.A.h4.h2": "undecided",
        "sign.A.h4.h1": "undecided",
        "sign.B.k4.k16": "undecided",
    }


def test_one_seed_has_no_intervals():
    data = _data(A1=[5.0], A2=[4.0])
    assert [row.paired for row in differences(data)] == [None]
    assert differences_cells(data) is None
    assert values(data) == {}


@pytest.mark.parametrize("name", ["translation/paper"])
def test_what_prose_says_of_the_committed_run_is_what_its_seeds_resolve(name):
    data = json.loads((ROOT / "figures" / f"{name}.json").read_text("utf-8"))
    signs = {key: value for key, value in values(data).items() if key.startswith("sign.")}
    # docs/findings/translation.md: A, B, F and M in words
    assert {signs[f"sign.A.{pair}"] for pair in ("h2.h1", "h4.h2", "h8.h4", "h32.h16", "h1.h4")} == {
        "undecided"
    }
    assert {signs[f"sign.A.{pair}"] for pair in ("h16.h8", "h32.h4")} == {"higher"}
    assert {signs[f"sign.B.{pair}"] for pair in ("k4.k16", "k8.k16")} == {"undecided"}
    assert {signs[f"sign.B.{pair}"] for pair in ("k4.k8", "k32.k16")} == {"higher"}
    assert {signs[f"sign.F.{pair}"] for pair in ("h2.h1", "h4.h2", "h8.h1")} == {"undecided"}
    assert {signs[f"sign.F.{pair}"] for pair in ("h8.h4", "h8.h2")} == {"higher"}
    assert {signs[f"sign.M.{pair}"] for pair in ("w64.w96", "w32.w80")} == {"higher"}


def test_times_are_compared_model_by_model():
    def curve(order, steps, by_model):
        whole = {"fraction_pruned": [0.0, 0.4], "order": order, "steps": steps, "fraction_trained": steps / 9}
        own = [[1.0, value] for value in by_model]
        kept = {name: [1.0, 0.5] for name in ("bleu_kept", "gain_kept")}
        return whole | kept | {"bleu_by_seed": own, "gain_by_seed": own}

    curves = [
        curve("importance", 1, [0.5, 0.7]),
        curve("importance", 9, [0.8, 0.6]),
        curve("random", 1, [0.4, 0.4]),
        curve("random", 9, [0.2, 0.2]),
    ]
    (_, kept, _), (_, margin, _) = time_differences(curves)
    assert kept.value == pytest.approx(0.1)
    assert kept.low < 0 < kept.high
    assert margin.value == pytest.approx((0.1 + 0.2) / 2)
    assert time_differences(curves[:1]) == []
