"""The cache experiment: presets, what is made of records, verdicts, figures, a run of seconds."""

import io
import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from rich.console import Console

from experiments import cli, style
from experiments.cache import PRESETS, figures, table
from experiments.cache.claims import CLAIMS
from experiments.cache.config import CacheConfig, resolve
from experiments.cache.conversion import METHODS, ConversionPoint
from experiments.cache.experiment import EXPERIMENT
from experiments.cache.models import MODELS, model_rows
from experiments.cache.plan import Curve, budgets, conversions, curves, designs, parts
from experiments.cache.records import summary, with_values
from experiments.cache.units import KINDS, design_of, num_params, shared_width
from experiments.collecting import units_of
from experiments.engine import Unfinished
from experiments.points import from_unit, to_units
from experiments.reading import select
from theory.cache_capacity import latent_parameters, shared_key_parameters

QUICK = PRESETS["quick"]


def _curve(point):
    rank = None if point.latent_dim is None else point.head_dim
    size = point.num_items, point.d_model, point.num_heads, point.num_kv_heads
    return Curve(point.design, *size, rank, point.embedding)


def _threshold(point):
    """Cache from which the records say that a graph is recovered, where everything comes out as expected."""
    curve = _curve(point)
    spread = 1 + 0.15 * (point.seed - 3.5) / 3.5
    if point.trainer == "joint":
        return 0.8 * spread * curve.parameter_cache_dims
    return 0.95 * spread * curve.predicted_cache_dims


def _record(point, threshold=_threshold):
    if isinstance(point, ConversionPoint):
        f1 = {
            "mean-pool": [0.1, 0.5, 0.9, 1.0],
            "low-rank": [0.4, 0.8, 1.0, 1.0],
            "scratch": [0, 0.4, 0.8, 1.0],
        }
        made = {f"{method}_f1": f1[method] for method in METHODS}
        fields = asdict(point) | {"steps": list(point.steps)}
        return fields | made | {"source_f1": 1.0, "status": "ok", "seconds": 1.0}
    cache = design_of(point).cache_dims
    share = min(1.0, cache / threshold(point))
    held = int(share * point.num_items)
    f1 = 2 * held / (held + point.num_items)
    return asdict(point) | {
        "cache_dims": cache,
        "num_params": num_params(point),
        "status": "ok",
        "reason": None,
        "held_edges": held,
        "loss": 1 - share,
        "steps": 5,
        "seconds": 1.0,
        "micro_f1": f1,
        "best_f1": f1,
        "exact_recovery": share == 1.0,
        "smallest_edge": 2.0 if share == 1.0 else 0.5,
        "largest_non_edge": 1.0,
    }


def _data(config=QUICK, threshold=_threshold):
    rows = {"points": {}, "conversion_points": {}}

    def ask(points):
        found = [_record(point, threshold) for point in points]
        kind = "conversion_points" if isinstance(points[0], ConversionPoint) else "points"
        rows[kind].update(zip(points, found, strict=True))
        return found

    for part in parts(config, ask):
        part.run()
    made = {name: list(found.values()) for name, found in rows.items()}
    return {"preset": "quick", "records": made | summary(config, ask, made)}


@pytest.fixture(scope="module")
def expected():
    return _data()


def test_points_are_batches_that_come_back(expected):
    config = PRESETS["smoke"]
    asked = []

    def ask(points):
        asked.extend(points)
        return [_record(point) for point in points]

    for part in parts(config, ask):
        part.run()
    for unit, members in to_units(KINDS, dict.fromkeys(asked)):
        assert from_unit(KINDS, unit) == members
        assert len(members) == config.seeds
    found = units_of(EXPERIMENT, QUICK, expected["records"])
    rows = expected["records"]
    assert sum(len(own) for _, own in found) == len(rows["points"]) + len(rows["conversion_points"])


def test_designs_and_their_limits():
    made = {(c.design, c.num_kv_heads): c for c in designs(QUICK, 96, 16, 8)}
    assert list(made) == [("mha", 8), ("gqa", 4), ("gqa", 2), ("mqa", 1), ("mla", 1)]
    needed = [made[key].predicted_cache_dims for key in (("mqa", 1), ("gqa", 2), ("gqa", 4), ("mha", 8))]
    assert needed == sorted(needed)
    latent = made["mla", 1]
    assert made["mqa", 1].predicted_cache_dims <= latent.predicted_cache_dims < needed[1]
    assert latent.latent_rank is not None
    assert latent.latent_rank >= made["mha", 8].predicted_cache_dims / 8  # else no latent would do
    assert [c.design for c in designs(QUICK, 96, 16, 1)] == ["mha"]
    point = latent.points(QUICK, "alternate", 5)[0]
    assert (point.head_dim, point.latent_dim, design_of(point).cache_dims) == (latent.latent_rank, 5, 5)
    assert num_params(point) == latent_parameters(16, 8, latent.latent_rank, 5)
    group = made["gqa", 2].points(QUICK, "joint", 3)[0]
    assert design_of(group).cache_dims == 6
    assert num_params(group) == shared_key_parameters(16, 8, 2, 3)
    assert (group.learning_rate, group.restarts) == (0.1, None)
    assert with_values(latent, 5) == 5
    assert with_values(made["gqa", 2], 6) == 12
    assert [shared_width(k) for k in (1, 8, 9)] == [8, 8, 16]


def test_quick_compares_what_it_has_to():
    measured = {(c.design, c.num_kv_heads, c.num_items, c.num_heads): t for c, t in curves(QUICK)}
    assert QUICK.seeds >= 8
    for heads in (4, 8):
        assert {d for d, _, m, h in measured if (m, h) == (96, heads)} == {"mha", "gqa", "mqa", "mla"}
    assert measured["mha", 4, 96, 4] == ["alternate", "greedy", "joint"]
    assert measured["mqa", 1, 96, 4] == ["alternate", "joint"]
    assert {m for _, _, m, _ in measured} == {64, 96, 112}
    equal = budgets(QUICK)
    assert {(kind, size) for kind, size, _, _ in equal} == {("cache", 8), ("cache", 16), ("parameters", 480)}
    for kind, size, curve, width in equal:
        point = curve.points(QUICK, "alternate", width)[0]
        if kind == "cache":
            assert design_of(point).cache_dims == size
        else:
            wider = curve.points(QUICK, "alternate", min(width + 1, curve.largest_width))[0]
            assert num_params(point) <= size < num_params(wider)
    assert [batch[0].num_kv_heads for batch in conversions(QUICK)] == [2, 1]


def test_thresholds_are_in_cached_dimensions(expected):
    rows = expected["records"]["transitions"]
    required = (
        "design trainer num_items d_model num_heads num_kv_heads head_dim latent_dim cache_dims "
        "cache_dims_with_values num_params measured_cache_dims ci_low ci_high predicted_cache_dims"
    )
    assert set(required.split()) <= set(rows[0])
    for row in rows:
        assert row["status"] == "reached"
        best = row["trainer"] != "joint"
        wanted = 0.95 * row["predicted_cache_dims"] if best else 0.8 * row["parameter_count_cache_dims"]
        per_width = row["num_kv_heads"] if row["latent_dim"] is None else 1
        # An F1 of 0.99 needs 98% of the edges; the grid of widths is as fine as the heads' keys.
        assert abs(row["measured_cache_dims"] - wanted) <= per_width
        assert row["ci_low"] <= row["measured_cache_dims"] <= row["ci_high"]
        if row["latent_dim"] is None:
            assert row["head_dim"] * row["num_kv_heads"] == pytest.approx(row["measured_cache_dims"])
            assert row["cache_dims_with_values"] == 2 * row["measured_cache_dims"]
    assert len(select(rows, trainer="best")) == len(curves(QUICK))


def test_everything_as_expected_is_held(expected):
    verdicts = {row["claim"]: row["verdict"] for row in expected["records"]["claims"]}
    assert len(verdicts) == len(CLAIMS)
    assert set(verdicts.values()) == {"held"}


@pytest.mark.parametrize(
    ("claim", "change"),
    [
        ("ratios", lambda p: (2.5 if p.design == "mqa" else 1) * _threshold(p)),
        (
            "below the width",
            lambda p: (2.0 if p.design == "gqa" and p.trainer != "joint" else 1) * _threshold(p),
        ),
        ("law of joint training", lambda p: (1.6 if p.design == "mqa" else 1) * _threshold(p)),
        ("equal cache", lambda p: (3 if p.design == "mqa" else 1) * _threshold(p)),
        ("equal parameters", lambda p: (2 if p.design == "mqa" else 1) * _threshold(p)),
        ("latents", lambda p: (1.7 if p.design == "mla" else 1) * _threshold(p)),
        ("with values", lambda p: (3 if p.design == "mla" else 1) * _threshold(p)),
    ],
)
def test_each_verdict_can_fail(claim, change):
    config = replace(QUICK, seeds=2, conversion_items=0, frontier_items=())
    verdicts = {row["claim"]: row["verdict"] for row in _data(config, change)["records"]["claims"]}
    assert verdicts[claim] == "failed"


def test_conversion_can_fail(expected):
    rows = expected["records"]
    [judge] = [claim.judge for claim in CLAIMS if claim.name == "conversion"]
    for method, steps, values in (
        ("low-rank", 0, {"f1_median": 0.05}),
        ("mean-pool", 1000, {"recovered": 7}),
    ):
        spoilt = [
            row | values if (row["method"], row["steps"]) == (method, steps) else row
            for row in rows["conversions"]
        ]
        found = judge(rows | {"conversions": spoilt})
        assert found is not None
        assert not found[0]


def test_the_best_is_the_least_over_trainers():
    """Of every seed the smallest width at which some trainer succeeded, or less."""
    config = replace(QUICK, num_heads=(4,), frontier_items=(), cache_budgets=(), parameter_budgets=())

    def threshold(point):
        return (0.5 if point.trainer == "greedy" else 1.0) * _threshold(point)

    rows = _data(config, threshold)["records"]["transitions"]
    mha = {row["trainer"]: row["measured_cache_dims"] for row in select(rows, design="mha")}
    assert mha["best"] == pytest.approx(mha["greedy"], abs=2)
    assert mha["best"] < mha["alternate"] - 4


def test_no_threshold_lies_where_a_theorem_excludes_it():
    config = replace(QUICK, num_heads=(4,), frontier_items=(), cache_budgets=(), parameter_budgets=())
    rows = _data(config, lambda p: 0.1)["records"]["transitions"]
    for row in select(rows, trainer="best"):
        assert row["measured_cache_dims"] >= 2 * (row["num_kv_heads"] if row["latent_dim"] is None else 1)


def test_what_was_not_run_is_not_judged():
    def ask(points):
        raise Unfinished("nothing")

    rows = summary(QUICK, ask, {"points": [], "conversion_points": []})
    assert {row["status"] for row in rows["transitions"]} == {"not_run"}
    assert rows["budgets"] == rows["conversions"] == []
    assert {row["verdict"] for row in rows["claims"]} == {"not_run"}
    assert table.threshold_cells({"records": rows}) is None


def test_real_models():
    rows = {row["name"]: row for row in model_rows()}
    assert len(rows) == len(MODELS)
    for row in rows.values():
        assert row["source"]
        assert row["predicted_num_items"] <= row["predicted_num_items_mha"] * (1 + 1e-9)
    assert rows["GPT-3 175B"]["predicted_num_items"] == rows["GPT-3 175B"]["predicted_num_items_mha"]
    assert rows["DeepSeek-V2"]["cache_dims_with_values"] == rows["DeepSeek-V2"]["cache_dims"] == 576
    assert rows["SmolLM2-135M"]["cache_dims"] == 192


def test_figures_tables_and_values_are_made_of_the_records(expected, tmp_path):
    paths = EXPERIMENT.plot(expected, tmp_path, "quick")
    names = {path.name for path in paths}
    drawn = ("frontier", "thresholds", "budgets", "conversion", "models")
    assert {f"quick-{name}.svg" for name in drawn} <= names
    assert (tmp_path / "quick-captions.md").read_text().count("## quick-") == 5
    with style.context():
        again = figures.thresholds(expected)
        assert again is not None
        paths_again = style.save(again[0], tmp_path / "again")
    assert [p.read_bytes() for p in paths_again] == [
        (tmp_path / f"quick-thresholds.{suffix}").read_bytes() for suffix in ("svg", "png")
    ]
    console = Console(width=140, record=True, file=io.StringIO())
    EXPERIMENT.show(expected, console)
    shown = console.export_text()
    assert "Cache needed, by design (d = 16)" in shown
    assert "held  equal cache: from MHA to GQA to MQA the edges held do not fall" in shown
    values = table.values(expected)
    main = {"trainer": "best", "num_heads": 4, "num_items": 96}
    best = {table.label(row): row for row in select(expected["records"]["transitions"], **main)}
    assert values["best.m96.h4.gqa-2"] == f"{best['GQA-2']['measured_cache_dims']:.1f}"
    assert values["predicted.m96.h4.mqa"] == f"{best['MQA']['predicted_cache_dims']:.1f}"
    assert values["conversion.g2.low-rank.0"] == "0.40"
    assert values["claims.held"] == values["claims.judged"] == "8"
    for make in (table.threshold_cells, table.budget_cells, table.conversion_cells, table.model_cells):
        cells = make(expected)
        assert cells is not None
        assert cells.markdown().count("\n| ") == len(cells.rows) + 2
    assert table.claims_cells(expected) is not None


@pytest.mark.parametrize(
    ("changes", "given", "message"),
    [
        ({"num_items": (96, 97)}, {"num_items"}, "d_model: expected one for each of num_items"),
        ({"num_heads": (4, 4)}, set(), "num_heads: expected different values"),
        ({"num_heads": ()}, set(), "num_heads: expected at least one, got none"),
        ({"learning_rate": 0.0}, set(), "learning_rate: expected a positive number, got 0.0"),
        ({"designs": ("mha", "tied")}, set(), "designs: expected names among mha, gqa, mqa, mla.*, got tied"),
        ({"trainers": ()}, set(), "trainers: expected at least one, got none"),
        ({"frontier_items": (1,)}, set(), "expected at least 2 items, got 1"),
        ({"conversion_items": -1}, set(), "conversion_items: expected 0 or a positive integer, got -1"),
    ],
)
def test_mistakes_are_named(changes, given, message):
    with pytest.raises(ValueError, match=message):
        resolve(replace(QUICK, **changes), given)


def test_naming_a_size_asks_for_it_alone():
    one = resolve(replace(QUICK, num_items=(40,), d_model=(9,)), {"num_items", "d_model"})
    assert {curve.num_items for curve, _ in curves(one)} == {40}
    assert budgets(one) == conversions(one) == []
    assert resolve(QUICK, set()) == QUICK == CacheConfig()


@pytest.mark.slow
def test_a_run_from_the_command_line(tmp_path, capsys):
    command = ["run", "cache", "--preset", "smoke", "--workers", "0", "--out", str(tmp_path)]
    assert cli.main(command) == 0
    data = json.loads((tmp_path / "smoke.json").read_text(), parse_constant=pytest.fail)
    rows = data["records"]
    assert {row["design"] for row in rows["transitions"]} == {"mha", "mqa", "mla"}
    reached = [row for row in rows["transitions"] if row["measured_cache_dims"] is not None]
    assert reached
    for row in rows["points"]:  # the records say of a recovered graph what they must
        assert (row["held_edges"] == row["num_items"]) == row["exact_recovery"]
        assert row["exact_recovery"] == (row["smallest_edge"] > row["largest_non_edge"])
    f1 = np.array([row["low-rank_f1"][0] for row in rows["conversion_points"]])
    assert ((f1 >= 0) & (f1 <= 1)).all()
    assert "Cache needed, by design" in capsys.readouterr().out
