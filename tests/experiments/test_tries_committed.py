"""What is committed under figures/tries and figures/audit: that it is sound, and what it says."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from experiments.audit import records as audit_records
from experiments.audit.experiment import EXPERIMENT as AUDIT
from experiments.capacity.units import RECOVERED_F1, unpack_channel
from experiments.collecting import config_from, units_of
from experiments.pretrained import installed
from experiments.roles.text import available
from experiments.store import canonical
from experiments.tries import records
from experiments.tries.claims import claim_rows
from experiments.tries.experiment import EXPERIMENT as TRIES
from experiments.tries.units import TriesPoint, problem_of
from theory.bounds import partition_max_edges
from theory.recognition import channel_scores, evaluate

FIGURES = Path(__file__).parents[2] / "figures"
NAMES = [
    (experiment, name)
    for experiment in (TRIES, AUDIT)
    for name in ("quick", "paper")
    if (FIGURES / experiment.name / f"{name}.json").exists()
]
TRIED = [name for experiment, name in NAMES if experiment is TRIES]
AUDITED = [name for experiment, name in NAMES if experiment is AUDIT]


def load(experiment, name):
    return json.loads((FIGURES / experiment.name / f"{name}.json").read_text(), parse_constant=pytest.fail)


def test_quick_is_committed_and_complete():
    for experiment in (TRIES, AUDIT):
        data = load(experiment, "quick")
        assert data["unfinished"] == data["left_out"] == []


@pytest.mark.parametrize(("experiment", "name"), NAMES, ids=lambda value: getattr(value, "name", value))
def test_it_is_an_unchanged_preset(experiment, name):
    data = load(experiment, name)
    config = experiment.presets[name]
    assert canonical(data["config"]) == canonical(asdict(config))
    assert config_from(experiment, data["config"]) == config
    assert data["command"] == f"python -m experiments run {experiment.name} --preset {name}"


@pytest.mark.parametrize(("experiment", "name"), NAMES, ids=lambda value: getattr(value, "name", value))
def test_all_units_are_there(experiment, name):
    data = load(experiment, name)
    config = experiment.presets[name]
    if all(map(installed, getattr(config, "models", ()))) and available("") and not data["unfinished"]:
        found = units_of(experiment, config, data["records"])
        assert sum(len(rows) for _, rows in found) == len(experiment.points(config))


@pytest.mark.parametrize("name", TRIED)
def test_what_is_made_of_the_runs_is_made_of_them_today(name):
    data = load(TRIES, name)
    rows = data["records"]
    made = records.summary(TRIES.presets[name], lambda points: [], rows)
    for kind in ("arms", "paired", "curves", "yardsticks", "claims"):
        assert canonical(rows[kind]) == canonical(made[kind]), kind
    assert rows["claims"] == claim_rows(rows)
    assert {row["verdict"] for row in rows["claims"]} <= {"held", "failed"}


@pytest.mark.parametrize("name", TRIED)
def test_recoveries_are_there_in_float64_from_the_factors_alone(name):
    kept = [row for row in load(TRIES, name)["records"]["points"] if "channel" in row]
    assert {row["arm"] for row in kept} >= {"direct", "healed-steps", "healed-compute"}
    for row in kept:
        fields = {field: row[field] for field in TriesPoint.__dataclass_fields__}
        problem = problem_of(TriesPoint(**fields), row["seed"])
        query, key = unpack_channel(row["channel"])
        assert query.shape == (row["num_heads"], row["d_model"], row["head_dim"])
        found = evaluate(channel_scores(problem.embeddings, query, key), problem.graph.adjacency(), 0.0)
        assert found.exact_recovery
        assert found.smallest_edge == pytest.approx(row["smallest_edge"], rel=1e-6)


@pytest.mark.parametrize("name", TRIED)
def test_a_direct_run_is_that_of_capacity(name):
    """The first restart has `capacity`'s problems, weights and settings: the same scores where both have run."""
    runs = json.loads((FIGURES / "capacity" / "quick.json").read_text())["records"]["points"]
    theirs = {
        (p["num_heads"], p["head_dim"], p["seed"]): p["best_f1"]
        for p in runs
        if (p["trainer"], p["num_items"], p["embedding"], p["graph"])
        == ("plain", 96, "gaussian", "permutation")
    }
    both = [
        (row["best_f1"] >= RECOVERED_F1, theirs[key] >= RECOVERED_F1)
        for row in load(TRIES, name)["records"]["points"]
        if (row["arm"], row["restart"]) == ("direct", 0)
        and (key := (row["num_heads"], row["head_dim"], row["seed"])) in theirs
    ]
    assert len(both) >= 40
    # Batches of another size round otherwise, and descent enlarges that: most, not all, come out alike.
    assert np.mean([a == b for a, b in both]) > 0.7


@pytest.mark.parametrize("name", AUDITED)
def test_predictions_and_verdicts_of_the_audit_are_those_of_today(name):
    rows = load(AUDIT, name)["records"]
    assert {row["model"] for row in rows["layers"]} == {"minilm-l6", "smollm2-135m"}
    assert canonical(rows["claims"]) == canonical(audit_records.claim_rows(rows))
    made = audit_records.summary(rows)
    assert canonical(made["models"]) == canonical(rows["models"])
    held = {
        (row["vocab_size"], row["d_model"], row["num_heads"], row["head_dim"]): row["vocab_edges"]
        for row in rows["layers"]
    }
    assert len(held) == 2
    for sizes, edges in held.items():
        assert edges == pytest.approx(partition_max_edges(*sizes), rel=1e-9)
    for row in rows["layers"]:
        ranks = np.array(row["effective_rank"])
        assert ranks.shape == (row["num_heads"],)
        assert ((ranks >= np.array(row["stable_rank"])) & (ranks <= row["head_dim"])).all()
    for row in rows["graphs"]:
        assert 0 < row["edges"] <= row["items"] * (row["items"] - 1)
        assert row["counts"][-1]["edges"] == row["edges"]
        assert 0 <= row["sink_share"] + row["self_share"] <= 1
