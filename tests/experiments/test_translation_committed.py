"""What is committed under figures/translation: that it is sound, and what it says."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from experiments import verses
from experiments.collecting import asker, config_from, units_of
from experiments.points import from_unit, to_units
from experiments.reading import select
from experiments.store import canonical
from experiments.translation import plan
from experiments.translation.claims import FULL_TRAINING
from experiments.translation.data import verse_corpus
from experiments.translation.experiment import EXPERIMENT
from experiments.translation.model import num_parameters
from experiments.translation.plan import TranslationPoint, shape_of
from experiments.translation.records import summary

FOLDER = Path(__file__).parents[2] / "figures" / "translation"
NAMES = [name for name in ("quick", "paper") if (FOLDER / f"{name}.json").exists()]


def load(name):
    return json.loads((FOLDER / f"{name}.json").read_text(), parse_constant=pytest.fail)


def test_both_are_committed():
    assert NAMES == ["quick", "paper"]


@pytest.fixture(autouse=True)
def with_verses(monkeypatch):
    """Records are there without the text that they were made of."""
    monkeypatch.setattr("experiments.translation.data.left_out", lambda _: [])


@pytest.mark.parametrize("name", NAMES)
def test_it_is_an_unchanged_preset_with_all_of_its_units(name):
    data = load(name)
    config = EXPERIMENT.presets[name]
    assert data["unfinished"] == data["left_out"] == []
    assert canonical(data["config"]) == canonical(asdict(config))
    assert config_from(EXPERIMENT, data["config"]) == config
    arms = plan.settings(config)
    rates = {row["arm"]: row["learning_rate"] for row in data["records"]["rates"]}
    wanted = [*plan.text_of(config), *plan.baseline(config)]
    for arm, own in arms.items():
        if len(config.learning_rates) > 1:
            wanted += plan.tuning(config, arm)
        for setting in own:
            wanted += plan.runs_of(config, setting, rates[arm])
    wanted = [unit for unit, _ in to_units(plan.KINDS, dict.fromkeys(wanted))]
    found = [unit for unit, _ in units_of(EXPERIMENT, config, data["records"])]
    assert sorted(map(canonical, found)) == sorted(map(canonical, wanted))
    rows = sum(len(data["records"][kind]) for kind in plan.KINDS)
    assert rows == sum(len(from_unit(plan.KINDS, unit)) for unit in wanted)  # and no other ones


@pytest.mark.parametrize("name", NAMES)
def test_settings_intervals_rates_and_verdicts_are_those_of_the_points(name):
    """Everything that is made of points is made again; means and intervals to rounding."""
    data, config = load(name), EXPERIMENT.presets[name]
    points = {kind: data["records"][kind] for kind in plan.KINDS}
    known = {canonical(unit): records for unit, records in units_of(EXPERIMENT, config, points)}
    made = summary(config, asker(plan.KINDS, lambda unit: known[canonical(unit)]), points)
    assert made.keys() | points.keys() == data["records"].keys()
    for kind, rows in made.items():
        assert len(rows) == len(data["records"][kind])
        for row, committed in zip(rows, data["records"][kind], strict=True):
            numbers = {name for name, value in row.items() if isinstance(value, float)}
            assert {k: v for k, v in row.items() if k not in numbers} == {
                k: v for k, v in committed.items() if k not in numbers
            }
            for number in numbers:
                assert committed[number] == pytest.approx(row[number], rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_the_text_adds_up(name):
    [row] = load(name)["records"]["text"]
    assert row["length"] == EXPERIMENT.presets[name].length
    assert 0 < row["train_too_long"] < row["train_pairs"]
    assert row["test_targets_cut"] <= row["test_cut"] < row["test_pairs"]
    if verses.PATH.exists():
        corpus = verse_corpus()
        assert [row[f"{part}_pairs"] for part in ("train", "dev", "test")] == [
            len(part) for part in (corpus.train, corpus.dev, corpus.test)
        ]


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
