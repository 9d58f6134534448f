"""The planner from the command line."""

import re

import pytest

from experiments import cli
from experiments.cache.models import MODELS
from experiments.plan import CAVEAT, models_cells
from theory.cache_capacity import shared_key_max_items
from theory.planner import plan

ASKED = ["plan", "--num-relations", "900", "--num-items", "700", "--d-model", "64"]


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def test_it_prints_what_the_planner_says(capsys):
    assert cli.main([*ASKED, "--num-heads", "1", "2", "4", "8", "--cache-dims", "64"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    made = plan(900, 700, 64, cache_dims=64, num_heads=(1, 2, 4, 8), head_dim_multiple=8)
    choice = made.choice
    assert choice is not None
    assert choice.num_kv_heads < choice.num_heads
    assert f"Recommended: {choice.num_heads} heads of {choice.head_dim}" in printed
    assert f"{choice.num_kv_heads} key/value heads; {choice.cache_dims} numbers a token" in printed
    assert "What limits: cache" in printed
    assert CAVEAT in printed
    for model in MODELS:
        assert model.name in printed


def test_nothing_that_does_is_a_finding(capsys):
    assert cli.main([*ASKED, "--num-heads", "1"]) == 1
    assert "Recommended: nothing considered" in capsys.readouterr().out


def test_a_bad_size_is_named(capsys):
    assert cli.main([*ASKED[:-1], "0"]) == 2
    assert re.search("d_model: expected .* got 0", capsys.readouterr().err)


def test_a_real_layer_holds_a_permutation_of_the_items_that_it_was_said_to_hold():
    model = next(model for model in MODELS if model.name.startswith("SmolLM2"))
    groups = model.num_kv_heads
    assert groups is not None
    items = shared_key_max_items(model.d_model, model.num_heads, groups, groups * model.head_dim)
    row = next(r for r in models_cells(plan(100, int(items), 64)).rows if r[0] == model.name)
    assert float(row[6].replace(",", "")) == pytest.approx(items, rel=1e-3)
