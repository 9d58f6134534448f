"""What is committed under figures/translation: that it is sound, and what it says."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from experiments.collecting import config_from, units_of
from experiments.reading import select
from experiments.store import canonical
from experiments.translation import plan
from experiments.translation.claims import FULL_TRAINING, claim_rows
from experiments.translation.experiment import EXPERIMENT
from experiments.translation.model import num_parameters
from experiments.translation.plan import TranslationPoint, shape_of

FOLDER = Path(__file__).parents[2] / "figures" / "translation"
NAMES = [name for name in ("quick", "paper") if (FOLDER / f"{name}.json").exists()]


def load(name):
    return json.loads((FOLDER / f"{name}.json").read_text(), parse_constant=pytest.fail)


def test_quick_is_committed_and_complete():
    assert "quick" in NAMES
    assert load("quick")["unfinished"] == load("quick")["left_out"] == []


@pytest.mark.parametrize("name", NAMES)
def test_it_is_an_unchanged_preset_with_all_of_its_units(name, monkeypatch):
    monkeypatch.setattr("experiments.translation.data.left_out", lambda _: [])
    data = load(name)
    config = EXPERIMENT.presets[name]
    assert canonical(data["config"]) == canonical(asdict(config))
    assert config_from(EXPERIMENT, data["config"]) == config
    found = units_of(EXPERIMENT, config, data["records"])
    settings = {p for own in plan.settings(config).values() for p in own}
    assert len(found) > len(settings) or data["unfinished"]


@pytest.mark.parametrize("name", NAMES)
def test_verdicts_are_those_of_the_records(name):
    rows, config = load(name)["records"], EXPERIMENT.presets[name]
    assert rows["claims"] == claim_rows(config, rows["settings"], rows["baselines"])


@pytest.mark.parametrize("name", NAMES)
def test_models_are_of_the_sizes_said_and_cost_about_the_same(name):
    rows = load(name)["records"]
    for row in rows["points"]:
        fields = {field: row[field] for field in TranslationPoint.__dataclass_fields__}
        assert row["num_params"] == num_parameters(shape_of(TranslationPoint(**fields)))
        assert row["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    flops = [row["flops_per_step"] for row in select(rows["points"], arm="A")]
    assert max(flops) <= 1.05 * min(flops)  # maps of 32 heads are exponentiated one by one


@pytest.mark.parametrize("name", NAMES)
def test_it_translates(name):
    """The least that is asked of a working system, in the full training; much more than doing nothing elsewhere."""
    rows = load(name)["records"]
    for row in select(rows["settings"], arm="A", num_heads=8):
        others = max(rows["baselines"][0]["untrained_bleu"], rows["baselines"][0]["copy_bleu"])
        assert row["bleu"] >= (8 if row["num_steps"] >= FULL_TRAINING else 4)
        assert others < 1
        assert row["perplexity"] < rows["baselines"][0]["untrained_perplexity"] / 20
