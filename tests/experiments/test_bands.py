"""The bands experiment: presets, verdicts, the figure, one batch, what is committed."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from experiments import style
from experiments.bands import PRESETS, table, units
from experiments.bands.claims import CLAIMS, claim_rows
from experiments.bands.config import resolve
from experiments.bands.experiment import EXPERIMENT
from experiments.bands.records import summary
from experiments.bands.units import (
    KINDS,
    BandsPoint,
    compute,
    grid,
    kinds_of_sources,
    measured,
    words_problem,
)
from experiments.collecting import config_from, units_of
from experiments.points import from_unit, to_units
from experiments.reading import select
from experiments.store import canonical
from theory.embeddings import gaussian_unit_norm, minilm_available
from theory.graphs import from_edges
from theory.problems import Problem
from theory.word_relations import KINDS as KINDS_OF_WORDS
from theory.word_relations import load_word_relations

QUICK = PRESETS["quick"]
FOLDER = Path(__file__).parents[2] / "figures" / "bands"
NAMES = [name for name in ("quick", "paper") if (FOLDER / f"{name}.json").exists()]


def load(name):
    return json.loads((FOLDER / f"{name}.json").read_text(), parse_constant=pytest.fail)


needs_model = pytest.mark.skipif(
    not minilm_available(), reason="MiniLM's wheel is not installed; `make models` does"
)


@pytest.fixture
def with_model(monkeypatch):
    monkeypatch.setattr(units, "minilm_available", lambda: True)


def record(point):
    """What comes out where everything is as expected."""
    divided = point.graph == "words" and point.trainer != "greedy"
    budget = point.num_heads * point.head_dim
    return asdict(point) | {
        "total_key_dim": budget,
        "exact_recovery": point.trainer != "by-kind" or budget >= 48,
        "best_f1": 1.0,
        "heads_used": 4,
        "counts": [[1]],
        "information": 0.15 if divided else 0.05,
        "shuffled_mean": 0.05,
        "shuffled_high": 0.1,
        "p_value": 0.01,
        "query_overlap": 0.5,
        "key_overlap": 0.5,
        "random_overlap": 0.5,
        "random_low": 0.4,
        "random_high": 0.6,
        "seconds": 1.0,
    }


def verdicts(rows):
    return {row["claim"]: row["verdict"] for row in claim_rows(rows)}


@pytest.mark.usefixtures("with_model")
@pytest.mark.parametrize("name", PRESETS)
def test_points_of_a_preset_are_batches_that_come_back(name):
    for unit, members in to_units(KINDS, grid(PRESETS[name])):
        assert from_unit(KINDS, unit) == members
        assert set(record(members[0])) == KINDS["points"].fields


@pytest.mark.usefixtures("with_model")
def test_everything_expected_is_judged_held_and_each_verdict_can_fail():
    rows = [record(point) for point in grid(QUICK)]
    assert verdicts(rows) == {claim.name: "held" for claim in CLAIMS}
    assert set(verdicts([]).values()) == {"not_run"}

    def spoilt(values, **where):
        return [row | (values if all(row[k] == v for k, v in where.items()) else {}) for row in rows]

    assert verdicts(spoilt({"information": 0.3}, trainer="joint"))["joint"] == "failed"
    assert verdicts(spoilt({"information": 0.05}, trainer="joint"))["joint"] == "failed"
    assert verdicts(spoilt({"information": 0.15}, trainer="greedy"))["greedy"] == "failed"
    assert verdicts(spoilt({"information": 0.15}, graph="words-shuffled"))["shuffled targets"] == "failed"
    assert verdicts(spoilt({"key_overlap": 0.4}, trainer="joint"))["no bands"] == "failed"
    assert verdicts(spoilt({"exact_recovery": True}, trainer="by-kind"))["price"] == "failed"


@pytest.mark.usefixtures("with_model")
def test_tables_values_and_the_figure_are_made_of_the_records(tmp_path):
    rows = {"points": [record(point) for point in grid(QUICK)]}
    data = {"preset": "quick", "records": rows | summary(rows)}
    cells = table.arms_cells(data)
    assert cells is not None
    assert cells.rows[0] == ("joint", "32", "8 of 8", "0.15", "0.10", "8 of 8", "0.50", "0.50", "0.50")
    assert table.values(data)["nmi.words.greedy.k16-above"] == "0 of 8"
    names = {path.name for path in EXPERIMENT.plot(data, tmp_path, "quick")}
    assert names == {f"quick-heads.{suffix}" for suffix in style.SUFFIXES} | {"quick-captions.md"}
    assert EXPERIMENT.plot({"records": {}}, tmp_path, "none") == [tmp_path / "none-captions.md"]
    assert table.arms_cells({"records": {}}) is None


def test_without_the_model_all_is_left_out(monkeypatch):
    monkeypatch.setattr(units, "minilm_available", lambda: False)
    monkeypatch.setattr("experiments.bands.experiment.minilm_available", lambda: False)
    assert grid(QUICK) == []
    assert [row["how_to_get"] for row in EXPERIMENT.left_out(QUICK)] == ["make models"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": 0}, "seeds: expected a positive integer, got 0"),
        ({"joint": (30,)}, "joint: expected different multiples of 4 up to 64"),
        ({"by_kind": (68,)}, "by_kind: expected different multiples of 4 up to 64"),
        ({"embedding": "gaussian"}, "embedding: expected names among minilm-pca, .* got gaussian"),
        ({"num_pairs": 18}, "num_pairs: expected a multiple of 4 up to 272, got 18"),
    ],
)
def test_bad_configurations_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        resolve(replace(QUICK, **change), set())


@needs_model
def test_words_are_as_many_of_each_kind_and_stay_when_targets_are_shuffled():
    relations = load_word_relations()
    kind_of = dict(zip(relations.sources, relations.kinds, strict=True))
    target_of = dict(zip(relations.sources, relations.targets, strict=True))
    whole, shuffled = (words_problem(16, 6, "minilm-pca", graph, 3) for graph in ("words", "words-shuffled"))
    assert whole.labels is not None
    assert whole.labels == shuffled.labels
    np.testing.assert_array_equal(whole.embeddings, shuffled.embeddings)
    for problem, related in ((whole, True), (shuffled, False)):
        kinds = kinds_of_sources(problem)
        for (u, v), kind in zip(problem.graph.edges, kinds, strict=True):
            assert KINDS_OF_WORDS[kind] == kind_of[whole.labels[u]]
            assert (target_of[whole.labels[u]] == whole.labels[v]) == related
        assert np.bincount(kinds).tolist() == [4, 4, 4, 4]


def test_kinds_are_those_of_the_table_and_heads_of_one_kind_are_found():
    """Gaussian vectors under the words; a channel whose head i scores what is of kind i."""
    rng = np.random.default_rng(0)
    graph = from_edges(24, np.stack([np.arange(12), np.arange(12) + 12], axis=1))
    problem = Problem(gaussian_unit_norm(24, 24, rng), graph, None)
    kinds = kinds_of_sources(problem)
    assert kinds.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    inverse = np.linalg.inv(problem.embeddings)
    queries = np.zeros((4, 24, 24))
    for kind in range(4):
        for u, v in problem.graph.edges[kinds == kind]:
            queries[kind] += np.outer(inverse[:, u], np.eye(24)[v])
    keys = np.repeat(inverse[None], 4, axis=0)
    point = BandsPoint("words", 12, 24, 4, 24, "gaussian", "joint", 99, 0)
    row = measured(point, problem, queries, keys)
    assert row["exact_recovery"]
    assert row["information"] == pytest.approx(1)
    assert row["heads_used"] == 4
    assert row["p_value"] == pytest.approx(0.01)
    one = measured(point, problem, queries.sum(axis=0, keepdims=True), keys[:1])
    assert one["query_overlap"] is one["random_low"] is None
    assert one["information"] == 0


@needs_model
@pytest.mark.slow
def test_one_head_a_kind_holds_its_own_kind():
    point = BandsPoint("words", 12, 12, 4, 6, "minilm-pca-whitened", "by-kind", 50, 1)
    [row] = compute([point])
    assert set(row) == KINDS["points"].fields
    assert row["exact_recovery"]
    assert row["information"] == pytest.approx(1)


@pytest.mark.parametrize("name", NAMES)
def test_committed_records_are_whole_and_judged(name, monkeypatch):
    monkeypatch.setattr(units, "minilm_available", lambda: True)
    data, config = load(name), PRESETS[name]
    assert canonical(data["config"]) == canonical(asdict(config))
    assert config_from(EXPERIMENT, data["config"]) == config
    assert data["unfinished"] == data["left_out"] == []
    assert len(units_of(EXPERIMENT, config, data["records"])) == len(to_units(KINDS, grid(config)))
    assert data["records"]["claims"] == claim_rows(data["records"]["points"])
    for row in data["records"]["points"]:
        assert np.sum(row["counts"]) == row["num_edges"]
        assert row["random_overlap"] == row["head_dim"] / row["d_model"]


def test_what_the_committed_records_say():
    assert "quick" in NAMES
    for row in select(load("quick")["records"]["points"], trainer="by-kind", exact_recovery=True):
        assert row["information"] == pytest.approx(1)
