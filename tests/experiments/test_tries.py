"""The tries experiment: cutting and healing, what is made of records, verdicts, figures, a run of seconds."""

import io
import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from rich.console import Console

from experiments import cli, style
from experiments.points import from_unit, to_units
from experiments.tries import dynamics, figures, records, table, units
from experiments.tries.claims import CLAIMS, DECIDED, claim_rows, kept_at
from experiments.tries.config import PRESETS, TriesConfig, head_dims, resolve
from experiments.tries.cutting import Cut, choose, cut_channel, heal, train_many
from experiments.tries.experiment import EXPERIMENT
from experiments.tries.records import summary
from experiments.tries.units import TriesPoint
from theory.recognition import channel_scores, evaluate
from theory.training import PLAIN, Channel, train_joint

QUICK = PRESETS["quick"]
SMALL = TriesPoint(17, 5, 2, 2, 4, 100, 0.1, "pruned", "wins", 0, 0, 0)
RUNS = [(0, 0), (0, 1)]


@pytest.fixture(scope="module")
def trained():
    batch = units._batch(SMALL, RUNS)
    return batch, train_many(batch, 4, 100)


def test_many_heads_are_trained_as_by_the_trainer(trained):
    batch, found = trained
    channels = train_joint(
        batch.embeddings,
        batch.adjacency,
        num_heads=4,
        head_dim=2,
        seeds=[0, 1],
        options=replace(PLAIN, learning_rate=0.1, max_steps=100),
    )
    for a, b in zip(found.channels, channels, strict=True):
        np.testing.assert_array_equal(a.query_weights, b.query_weights)
        assert a.threshold == b.threshold


def test_the_first_heads_start_as_those_of_a_direct_run(trained):
    batch, found = trained
    direct = train_many(batch, 2, 50)
    np.testing.assert_array_equal(direct.initial["query"], found.initial["query"][:, :2])


@pytest.mark.parametrize("choice", ["wins", "ablation", "recomputed", "random"])
def test_a_cut_channel_is_judged_by_its_own_heads(trained, choice):
    batch, found = trained
    x, a, channel = batch.embeddings[1], batch.adjacency[1], found.channels[1]
    cut = choose(choice, channel, 2, x, a, 1)
    assert len(set(cut.kept.tolist())) == len(cut.won) == 2
    left = cut_channel(channel, cut)
    scores = channel_scores(x, left.query_weights, left.key_weights)
    assert evaluate(scores, a, left.threshold).best_f1 == cut.f1
    assert 0 <= cut.share <= 1
    everything = choose(choice, channel, 4, x, a, 1)
    assert everything.kept.tolist() == [0, 1, 2, 3]
    assert everything.share == 1


def test_the_choices_choose_what_they_say():
    """On orthonormal items a head of two dimensions holds the two edges that it is given."""
    items, edges = np.eye(6), [(0, 1), (2, 3), (4, 5), (1, 2)]
    adjacency = np.zeros((6, 6), bool)
    for edge in edges:
        adjacency[edge] = True
    query, key = np.zeros((2, 4, 6, 2), np.float32)
    for head, held in enumerate([[(0, 1)], [(0, 1), (2, 3)], [(4, 5), (1, 2)], [(0, 1)]]):
        for column, (source, target) in enumerate(held):
            query[head, source, column] = key[head, target, column] = 1.0 + 0.1 * (head == 3)
    channel = Channel(query, key, 0.5, 0.0, 1, 0.1)
    # Head 3 wins (0, 1) but 1 holds it as well: 3 and 0 can go, 1 and 2 cannot.
    kept = {c: choose(c, channel, 2, items, adjacency, 0) for c in ("ablation", "recomputed", "wins")}
    assert kept["ablation"].kept.tolist() == kept["recomputed"].kept.tolist() == [1, 2]
    assert kept["recomputed"].f1 == 1.0
    assert (kept["wins"].kept.tolist(), kept["wins"].won.tolist()) == (
        [2, 3],
        [2, 1],
    )  # of equals the later stays
    assert kept["wins"].f1 == 6 / 7
    assert kept["recomputed"].share == 0.75
    with pytest.raises(ValueError, match="choice: expected one of"):
        choose("best", channel, 2, items, adjacency, 0)  # type: ignore[arg-type]


def test_healing_starts_from_the_kept_heads(trained):
    batch, found = trained
    cuts = [
        Cut(np.array([1, 3]), np.array([0, 0]), 0.0, 0.0),
        Cut(np.array([0, 2]), np.array([0, 0]), 0.0, 0.0),
    ]
    healed = heal(batch, found.params, [0, 1], cuts, 50)
    loss = {}
    for name, source in (("trained", found.params), ("initial", found.initial)):
        loss[name] = [channel.loss for channel in heal(batch, source, [0, 1], cuts, 50)]
    assert loss["trained"] == [channel.loss for channel in healed] != loss["initial"]
    assert [channel.query_weights.shape for channel in healed] == [(2, 5, 2)] * 2
    other = heal(batch, found.params, [1, 0], cuts[::-1], 50)
    np.testing.assert_array_equal(other[0].query_weights, healed[1].query_weights)


def test_a_batch_gives_every_point_its_record():
    healed = replace(SMALL, arm="healed-steps", heal_steps=50)
    points = [replace(healed, choice="recomputed", seed=seed) for seed in (0, 1)]
    points += [replace(SMALL, choice=choice, seed=seed) for choice in ("wins", "random") for seed in (0, 1)]
    points += [replace(healed, arm="rewound", choice="recomputed", seed=seed) for seed in (0, 1)]
    found = units.compute(points)
    for point, record in zip(points, found, strict=True):
        assert all(record[name] == value for name, value in asdict(point).items())
        assert set(record) - {"channel"} == units.KIND.fields
        assert record["status"] == "ok"
        assert record["first_taken"] <= 100
        assert record["heal_taken"] == point.heal_steps
        assert record["head_steps"] <= record["head_steps_cap"] == 100 * 4 + point.heal_steps * 2
        assert record["cut_f1"] <= record["first_f1"] <= 1
        assert record["best_f1"] == record["cut_f1"] or point.heal_steps
    assert found[0]["cut_f1"] == found[-2]["cut_f1"]  # one choice, healed from two starts
    assert found[0]["best_f1"] != found[-2]["best_f1"]


def test_a_run_that_diverged_is_a_record_that_says_so():
    points = [replace(SMALL, learning_rate=1e30, seed=seed) for seed in (0, 1)]
    for record in units.compute(points):
        assert record["status"] == "failed"
        assert "not finite" in record["reason"]
        assert record["best_f1"] is record["cut_f1"] is record["won"] is None


@pytest.mark.parametrize("name", PRESETS)
def test_points_of_a_preset_are_batches_that_come_back(name):
    points = EXPERIMENT.points(PRESETS[name])
    made = to_units(EXPERIMENT.kinds, points)
    assert sum(len(members) for _, members in made) == len(points)
    for unit, members in made:
        assert from_unit(EXPERIMENT.kinds, json.loads(json.dumps(unit))) == members
        assert EXPERIMENT.program(members)
    assert all(part.weight > 0 for part in EXPERIMENT.parts(PRESETS[name], lambda points: []))


def test_quick_spends_what_it_says():
    for h in QUICK.num_heads:
        assert all(k >= 2 and 15 <= h * k <= 25 for k in head_dims(QUICK, h))
        for arm in units.arms_of(QUICK, h, 4):
            spent = arm.first_steps * arm.trained_heads + arm.heal_steps * h
            ratio = arm.trained_heads // h
            expected = {
                "direct": 1,
                "resumed": 1,
                "pruned": ratio,
                "healed-steps": (ratio + 1) / 2,
                "healed-compute": 1,
                "rewound": ratio + 1,
            }
            assert spent == expected[arm.arm] * 6000 * h


def _f1(point):
    """What the records say where everything came out as expected."""
    needed = {3: 18, 4: 20, 6: 24, 8: 24}[point.num_heads]
    if point.arm in ("pruned", "resumed"):
        return 0.6
    if point.restart == 3 and point.num_heads < 6:
        return 1.0 if point.num_heads * point.head_dim >= needed - point.num_heads else 0.9
    return 1.0 if point.num_heads * point.head_dim >= needed else 0.9


def _record(point, f1):
    value = f1(point)
    won = round(60 / point.num_heads)
    failed = value is None
    return asdict(point) | {
        "total_key_dim": point.num_heads * point.head_dim,
        "status": "failed" if failed else "ok",
        "reason": "diverged" if failed else None,
        "first_taken": point.first_steps,
        "heal_taken": point.heal_steps,
        "head_steps": 10 * point.trained_heads,
        "head_steps_cap": 20 * point.trained_heads,
        "first_f1": 1.0,
        "cut_f1": None if failed else (0.78 if point.choice == "recomputed" else 0.75),
        "share_kept": 0.6,
        "won": [won] * point.num_heads,
        "seconds": 1.0,
        "micro_f1": value,
        "best_f1": value,
        "exact_recovery": None if failed else value == 1,
        "argmax_accuracy": value,
        "smallest_edge": 1.0,
        "largest_non_edge": 0.5,
    }


def _curve(point, late=0.95):
    taken = point.steps / point.num_steps
    removed = np.arange(point.num_heads + 1) / point.num_heads
    redundant = point.order == "importance" and taken >= 0.5
    kept = 1 - removed * (1 - late if redundant else 1)
    return asdict(point) | {
        "looks": list(point.looks),
        "status": "ok",
        "reason": None,
        "scores": (0.9 * taken * kept).tolist(),
        "heads": None,
        "seconds": 1.0,
    }


def _data(f1=_f1, curve=_curve):
    rows = {
        "points": [_record(point, f1) for point in units.grid(QUICK)],
        "dynamics": [curve(point) for point in dynamics.grid(QUICK)],
    }
    return {"preset": "quick", "records": rows | summary(QUICK, lambda points: [], rows)}


@pytest.fixture(scope="module")
def expected():
    return _data()


def test_everything_as_expected_is_held(expected):
    verdicts = {row["claim"]: (row["verdict"], row["found"]) for row in expected["records"]["claims"]}
    assert len(verdicts) == len(CLAIMS)
    assert {name for name, (verdict, _) in verdicts.items() if verdict != "held"} == set(), verdicts


@pytest.mark.parametrize(
    ("claim", "arm"),
    [
        ("split", "pruned"),
        ("choice", "healed-steps"),
        ("equal steps", "healed-steps"),
        ("equal compute", "healed-compute"),
        ("restarts", "healed-steps"),
        ("rewound", "rewound"),
        ("resumed", "resumed"),
        ("best trainer", "rewound"),
    ],
)
def test_each_verdict_can_fail(claim, arm):
    def easier(point):
        other = claim == "choice" and point.choice == "recomputed"
        return 1.0 if point.arm == arm and not other else _f1(point)

    verdicts = {row["claim"]: row["verdict"] for row in _data(easier)["records"]["claims"]}
    assert verdicts[claim] == "failed"


def test_verdicts_on_dynamics_can_fail():
    def shared(point):
        return _curve(replace(point, task="retrieval", order="importance")) | asdict(point) | {"looks": []}

    def fragile(point):
        return _curve(point, late=0.5)

    for claim, curve in (("channel", shared), ("retrieval", fragile)):
        verdicts = {row["claim"]: row["verdict"] for row in _data(curve=curve)["records"]["claims"]}
        assert verdicts[claim] == "failed"


def test_arms_thresholds_and_pairs(expected):
    rows = expected["records"]
    [best] = [
        r
        for r in rows["arms"]
        if (r["arm"], r["ratio"], r["num_heads"], r["head_dim"]) == ("restarts", 4, 4, 4)
    ]
    assert (best["recovered"], best["exact"], best["seeds"]) == (8, 8, 8)
    assert best["head_steps"] == 4 * 10 * 4
    [two] = [
        r
        for r in rows["arms"]
        if (r["arm"], r["ratio"], r["num_heads"], r["head_dim"]) == ("restarts", 2, 4, 4)
    ]
    assert two["recovered"] == 0
    [cut] = [
        r
        for r in rows["arms"]
        if (r["arm"], r["ratio"], r["choice"], r["num_heads"], r["head_dim"]) == ("pruned", 2, "wins", 4, 5)
    ]
    assert cut["mean_split_f1"] == pytest.approx(2 * (60 / 96) / (1 + 60 / 96))
    [direct] = [r for r in rows["thresholds"] if (r["arm"], r["num_heads"]) == ("direct", 4)]
    assert 16 <= direct["measured_total_key_dim"] <= 20
    assert direct["smallest_exact"] == 20
    assert direct["partition_total_key_dim"] == pytest.approx(17.2, abs=0.1)
    [pair] = [r for r in rows["paired"] if (r["arm"], r["ratio"], r["other"]) == ("restarts", 4, "direct")]
    assert pair["other_alone"] == 0
    assert pair["alone"] == pair["recovered"] - pair["other_recovered"] == 8 * 2
    assert pair["more_by_seed"] == [2] * 8
    assert pair["p_value"] is pair["holm"] is None  # it has the direct run among its own
    [pair] = [
        r for r in rows["paired"] if (r["arm"], r["ratio"], r["other"]) == ("restarts", 4, "healed-steps")
    ]
    assert pair["p_value"] == 2 / 2**8
    tested = [r for r in rows["paired"] if r["p_value"] is not None]
    assert pair["holm"] == pytest.approx(len(tested) * 2 / 2**8)


def test_problems_of_a_seed_are_one_observation():
    """Whatever one seed gives, on however many sizes, may be chance; what all eight give is not."""

    def chosen(point):
        lucky = (point.arm, point.choice) == ("healed-steps", "recomputed") and point.seed == 0
        return 1.0 if lucky or (point.arm == "rewound" and point.seed < 6) else _f1(point)

    rows = {
        (r["arm"], r["ratio"], r["choice"], r["other"], r["other_choice"]): r
        for r in _data(chosen)["records"]["paired"]
    }
    one = rows["healed-steps", 2, "recomputed", "direct", None]
    assert (one["alone"], one["other_alone"], one["p_value"]) == (4, 0, 1.0)
    assert one["more_by_seed"] == [one["alone"]] + [0] * 7
    beside = rows["healed-steps", 2, "recomputed", "healed-steps", "random"]
    assert (beside["alone"], beside["p_value"]) == (one["alone"], 1.0)
    six = rows["rewound", 2, "recomputed", "direct", None]
    assert six["p_value"] == 2 / 2**6
    assert six["holm"] > six["p_value"]


def test_curves_are_relative_to_the_time(expected):
    [row] = [
        r
        for r in expected["records"]["curves"]
        if (r["task"], r["order"], r["fraction_trained"]) == ("channel", "ablation", 0.5)
    ]
    assert row["score"] == pytest.approx(0.45)
    assert row["kept"] == pytest.approx([1 - i / 12 for i in range(13)])
    assert kept_at(row, 0.4) == pytest.approx(7 / 12)
    assert kept_at(row, 0.0) == 1


def test_a_model_without_a_positive_score_counts_in_the_score_and_has_no_share():
    def curve(point):
        worst = (point.task, point.seed) == ("retrieval", 3) and point.steps < point.num_steps
        return _curve(point) | ({"scores": [-0.5] * (point.num_heads + 1)} if worst else {})

    rows = _data(curve=curve)["records"]["curves"]
    [row] = [
        r for r in rows if (r["task"], r["order"], r["fraction_trained"]) == ("retrieval", "importance", 0.5)
    ]
    assert (row["seeds"], row["kept_seeds"]) == (8, 7)
    assert row["score"] == pytest.approx((7 * 0.45 - 0.5) / 8)
    assert [own is None for own in row["kept_by_seed"]] == [seed == 3 for seed in range(8)]
    assert row["kept"][4] == pytest.approx(np.mean([own[4] for own in row["kept_by_seed"] if own]))


def test_a_verdict_that_the_seeds_leave_open_says_so(expected):
    """Eight seeds alike decide shares kept; no p-value of eight seeds outlives the correction for 27 comparisons."""

    def late(spread):
        return lambda point: _curve(point, late=0.95 + spread * (point.seed - 3.5))

    words = {row["claim"]: row["decided"] for row in expected["records"]["claims"]}
    assert words["channel"] is words["retrieval"] is True
    assert words["split"] is None
    assert words["restarts"] is words["resumed"] is False
    data = _data(curve=late(0.2))
    [row] = [row for row in data["records"]["claims"] if row["claim"] == "retrieval"]
    assert (row["verdict"], row["decided"]) == ("held", False)
    cells = table.claims_cells(data)
    assert cells is not None
    assert {r[2] for r in cells.rows if r[0] == "retrieval"} == {"held (not decided)"}
    # The same comparisons, were they significant after correction.
    made = expected["records"] | {"paired": [r | {"holm": 0.01} for r in expected["records"]["paired"]]}
    words = {row["claim"]: row["decided"] for row in claim_rows(made)}
    assert words["restarts"] is words["resumed"] is True


@pytest.mark.parametrize(
    ("ends", "decided"),
    [((15.9, 16.1), True), ((9.0, 11.0), False), ((21.0, 23.0), False), ((12.0, 18.0), None)],
)
def test_thresholds_are_decided_by_the_interval_of_their_ratio(ends, decided):
    low, high = ends
    names = {"num_heads": 4, "choice": "recomputed", "ratio": 4}
    direct = {"num_heads": 4, "choice": None, "ratio": 1, "arm": "direct"}
    rows = [
        names
        | {"arm": "rewound", "measured_total_key_dim": (low + high) / 2, "ci_low": low, "ci_high": high},
        direct | {"measured_total_key_dim": 16.0, "ci_low": 15.8, "ci_high": 16.2},
    ]
    assert DECIDED["rewound"]({"thresholds": rows}) is decided
    assert DECIDED["rewound"]({"thresholds": [rows[0] | {"ci_high": None}, rows[1]]}) is None


def test_diverged_runs_do_not_recover_and_hide_no_others():
    data = _data(lambda p: None if (p.arm, p.seed) == ("direct", 0) and p.restart == 0 else _f1(p))
    rows = {
        (r["arm"], r["ratio"], r["num_heads"], r["head_dim"]): r
        for r in data["records"]["arms"]
        if r["choice"] is None
    }
    assert (rows["direct", 1, 4, 5]["recovered"], rows["direct", 1, 4, 5]["failed"]) == (7, 1)
    assert rows["restarts", 2, 4, 5]["recovered"] == 8


def test_what_was_not_run_is_not_judged():
    made = summary(QUICK, lambda points: [], {"points": [], "dynamics": []})
    assert made["arms"] == made["thresholds"] == made["curves"] == []
    assert {row["verdict"] for row in made["claims"]} == {"not_run"}
    assert {make({"records": made}) for make in EXPERIMENT.tables} == {None}


def test_yardsticks_are_those_of_the_committed_records():
    rows = records._yardsticks(QUICK)
    assert {(row["num_heads"], row["trainer"]) for row in rows} == {
        (h, trainer) for h in (3, 4, 6, 8) for trainer in ("best", "joint")
    }
    assert records._yardsticks(replace(QUICK, num_items=97)) == []


def test_figures_tables_and_values_are_made_of_the_records(expected, tmp_path):
    paths = EXPERIMENT.plot(expected, tmp_path, "quick")
    names = {path.name for path in paths}
    assert {f"quick-{name}.png" for name in ("budgets", "recovery", "cut", "dynamics")} <= names
    with style.context():
        drawn = figures.cut(expected)
        assert drawn is not None
        again = style.save(drawn[0], tmp_path / "again")
    assert (tmp_path / "quick-cut.svg").read_bytes() == again[0].read_bytes()
    console = Console(width=100, record=True, file=io.StringIO())
    EXPERIMENT.show(expected, console)
    shown = console.export_text()
    assert "Total key dimension D_K = h d_k needed" in shown
    assert "held  split: cut without healing" in shown
    values = table.values(expected)
    assert values["recovered.restarts.r4"].endswith(f"of {8 * 11}")
    assert values["cut-f1.r2.recomputed"] == "0.78"
    assert values["kept.channel.ablation.t50.p50"] == "50%"
    assert values["claims.held"] == values["claims.judged"] == "10"


def test_no_series_hides_another_and_every_marker_stands_at_its_own_budget(expected):
    """Even where all arms come out the same: markers side by side, in the strip of what they are of."""
    same = _data(lambda p: 1.0, lambda p: _curve(replace(p, task="retrieval", order="random")) | asdict(p))
    for data in (expected, same):
        with style.context():
            drawn = [draw(data) for draw in (figures.recovery, figures.dynamics, figures.cut)]
            beside, over_time, cut = (found[0] for found in drawn if found)
            for figure in (beside, over_time, cut):
                figure.canvas.draw()
        for figure in (beside, over_time):
            for axes in figure.axes:
                series = [np.asarray(bars[0].get_xdata(), float) for bars in axes.containers]
                assert len(series) >= 5
                strips = len(axes.get_xticks())
                for own in series:
                    np.testing.assert_array_equal(np.round(own), np.arange(strips))
                gap = np.diff(np.sort(series, axis=0), axis=0).min()
                width = axes.get_window_extent().width / strips * 72 / figure.dpi
                assert gap * width > 0.6 * axes.containers[0][0].get_markersize()
        for axes in cut.axes:  # the line that was expected, and one choice
            assert [np.size(line.get_xdata()) for line in axes.lines] == [101, 8 * 11]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": (3, 3)}, "num_heads: expected different values"),
        ({"seeds": 0}, "seeds: expected a positive integer, got 0"),
        ({"ratios": (1, 2)}, "ratios: expected integers above 1"),
        ({"max_steps": 500}, "max_steps: expected a multiple of 400, got 500"),
        ({"highest_key_dim": 10}, "lowest_key_dim, highest_key_dim: expected a multiple"),
        ({"fractions": (0.5, 0.1)}, "fractions: expected ascending numbers"),
        ({"fractions": (1e-5, 1.0)}, "fractions: expected different numbers of steps"),
        (
            {"num_heads": (), "channel_heads": 0, "retrieval_targets": 0},
            "num_heads: expected at least one thing",
        ),
    ],
)
def test_mistakes_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        resolve(replace(QUICK, **changes), set())


def test_naming_a_part_asks_for_it_alone():
    tries = resolve(replace(QUICK, num_heads=(4,)), {"num_heads"})
    assert dynamics.grid(tries) == []
    watched = resolve(replace(QUICK, channel_heads=8), {"channel_heads"})
    assert units.grid(watched) == []
    assert {point.task for point in dynamics.grid(watched)} == {"channel"}
    assert resolve(QUICK, set()) == QUICK == TriesConfig()


def test_a_run_from_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(EXPERIMENT, "plots", {})  # drawn above, from more
    command = "run tries --preset smoke --workers 0 --channel-heads 3 --channel-head-dim 2 --channel-steps 60"
    assert cli.main([*command.split(), "--fractions", "0.5", "1", "--out", str(tmp_path)]) == 0
    data = json.loads((tmp_path / "smoke.json").read_text(), parse_constant=pytest.fail)
    rows = data["records"]
    assert rows["points"] == []
    assert len(rows["dynamics"]) == 2 * 2 * 2
    for row in rows["dynamics"]:
        assert len(row["scores"]) == 4
        assert row["scores"][-1] == pytest.approx(2 * 24 / (24 * 24 + 24))  # every pair called an edge
        assert row["heads"] is None or sorted(row["heads"]) == [0, 1, 2]
    assert "Score kept, by time of training" in capsys.readouterr().out
