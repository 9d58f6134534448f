"""The pruning experiment: presets, what is made of records, verdicts, figures, a run on small models."""

import io
import json
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from rich.console import Console

from experiments import cli
from experiments.collecting import checker
from experiments.computing import check_planned
from experiments.engine import load
from experiments.files import read_final
from experiments.points import from_unit, to_units
from experiments.pretrained import SIZES
from experiments.pruning import PRESETS, figures, table
from experiments.pruning.claims import CLAIMS
from experiments.pruning.config import PruningConfig, resolve
from experiments.pruning.experiment import EXPERIMENT, work_of
from experiments.pruning.points import (
    KINDS,
    AblatedPoint,
    GatePoint,
    HeadPoint,
    MatchedPoint,
    PrunedPoint,
    grid,
    matched,
)
from experiments.pruning.records import (
    curve_rows,
    gate_rows,
    onset_rows,
    rank_probability,
    role_rows,
    speed_rows,
    summary,
)
from tests.experiments import small_models

ALL = replace(
    PRESETS["quick"],
    orders=("importance", "importance_recomputed", "confidence", "ablation", "random"),
    ablated_models=PRESETS["quick"].models,
)
FIGURES = Path(__file__).parents[2] / "figures"
ROLES = [
    {"model": "minilm-l6", "layer": layer, "head": head}
    | {"roles": [] if head else ["previous", "positional"] if layer == 0 else ["previous"]}
    for layer in range(6)
    for head in range(12)
]
POWER = {"importance_recomputed": 3.2, "importance": 2.6, "ablation": 2.0, "confidence": 1.8, "random": 1.2}
"""Costs are this power of the fraction removed."""


def _rest(point):
    """What the records say where everything came out as expected."""
    encoder = point.model == "minilm-l6"
    size = SIZES[point.model]
    num_layers, num_heads, num_kv_heads = size.num_layers, size.num_heads, size.num_kv_heads
    total = num_layers * num_heads
    low, high = (0.0, 0.5) if encoder else (3.0, 11.0)
    ranking = 0.9 if encoder else None
    if isinstance(point, HeadPoint):
        scores = dict.fromkeys(
            ("previous", "next", "self", "first", "delimiter", "entropy", "confidence"), 0.1
        )
        scores |= {
            "importance": (point.layer * num_heads + point.head) / total,
            "induction": None if encoder else 0.0,
        }
        return scores
    if isinstance(point, PrunedPoint):
        power = 1.0 if point.order == "confidence" and not encoder else POWER[point.order]
        cost = min(1.0, point.fraction_pruned ** (power * (1 - 0.01 * point.seed)))
        left = total - int(np.ceil(point.fraction_pruned * total - 1e-9))
        return {"heads_left": left, "loss": low + (high - low) * cost, "ranking": ranking, "seconds": 1.0}
    if isinstance(point, MatchedPoint):
        cost = (1 - point.heads_left / total) ** POWER["importance"]
        return {"loss": low + (high - low) * cost, "ranking": ranking}
    if isinstance(point, AblatedPoint):
        rise = (high - low) * (0.02 if point.head == point.layer == 0 else 0.001)
        return {"loss": low + rise, "ranking": ranking, "increase": rise}
    if isinstance(point, GatePoint):
        is_open = point.layer * num_heads + point.head >= total / 2
        found = {"gate": float(is_open), "open_probability": 0.9 * is_open, "heads_left": total // 2}
        return found | {"loss": low + 1e-4, "ranking": ranking, "seconds": 1.0}
    half = point.fraction_pruned > 0
    return {
        "heads_left": total // 2 if half else total,
        "kv_heads_left": num_layers * num_kv_heads // (2 if half else 1),
        "parameters": 80 if half else 100,
        "products": 80 if half else 100,
        "loss": high if half else low,
        "difference": 1e-6,
        "scale": 1.0,
        "seconds": (0.8 if half else 1.0) * (1 + point.seed / 10),
    }


def _data(config=ALL, change=lambda point, record: record):
    rows = {name: [] for name in KINDS}
    for unit, points in to_units(KINDS, grid(config)):
        own = rows[unit["kind"]]
        own += [change(p, asdict(p) | _rest(p)) for p in points]
        if unit["kind"] == "gates":
            others = [matched(points[0], own[-1]["heads_left"])]
            rows["matched"] += [
                asdict(p) | _rest(p) for p in others if asdict(p) | _rest(p) not in rows["matched"]
            ]
    return {"preset": "quick", "records": rows | summary(config, lambda points: [], rows)}


@pytest.fixture(scope="module")
def expected():
    return _data()


@pytest.mark.parametrize("name", PRESETS)
def test_points_of_a_preset_are_batches_that_come_back(name):
    points = grid(PRESETS[name])
    check = checker(EXPERIMENT)
    for unit, members in to_units(KINDS, points):
        assert from_unit(KINDS, unit) == members
        assert work_of(members) > 0
        check(unit, [asdict(p) | _rest(p) for p in members])
    check_planned(EXPERIMENT, PRESETS[name], {})


def test_presets_hold_what_they_have_to():
    quick, paper = (
        {(p.model, p.order, p.seed) for p in grid(PRESETS[n]) if isinstance(p, PrunedPoint)}
        for n in ("quick", "paper")
    )
    for model in ("minilm-l6", "smollm2-135m"):
        assert {(o, s) for m, o, s in quick if m == model} == {
            ("importance", 0),
            ("confidence", 0),
            *(("random", seed) for seed in range(3)),
        }
        assert sum(o == "random" for m, o, _ in paper if m == model) == 20
        assert {"importance_recomputed", "ablation"} <= {o for m, o, _ in paper if m == model}
    fractions = {p.fraction_pruned for p in grid(PRESETS["quick"]) if isinstance(p, PrunedPoint)}
    assert sorted(fractions) == [i / 10 for i in range(11)]
    assert PRESETS["quick"].num_tokens == 2048
    assert PRESETS["quick"] == PruningConfig()


def test_costs_are_in_units_of_removing_all():
    points = [
        {"model": "m", "order": order, "seed": 0, "fraction_pruned": f, "loss": loss, "ranking": None}
        for order, losses in (("importance", (2, 2.08, 2.15, 3, 4)), ("random", (2, 3, 4, 5, 4)))
        for f, loss in zip((0, 0.25, 0.5, 0.75, 1), losses, strict=True)
    ]
    first, second = onset_rows(points)
    assert first["mean_cost"] == pytest.approx(
        (0.04 / 2 + (0.04 + 0.075) / 2 + (0.075 + 0.5) / 2 + 1.5 / 2) / 4
    )
    assert first["tolerated"] == 0.25
    assert second["mean_cost"] == pytest.approx((0.5 / 2 + 1.5 / 2 + 2.5 / 2 + 2.5 / 2) / 4)
    assert second["tolerated"] == 0
    assert onset_rows([p | {"loss": 2.0} for p in points]) == []


def test_gates_are_held_against_importance_and_roles(expected):
    heads = expected["records"]["heads"]
    gates = [r for r in expected["records"]["gates"] if r["penalty"] == 0.3]
    with_loss = [{"model": "minilm-l6", "heads_left": n, "loss": loss} for n, loss in ((35, 1), (36, 0.25))]
    others = [{"model": "other", "heads_left": 36, "loss": 3}]
    [row] = gate_rows(gates, heads, others + with_loss, ROLES)
    assert (row["heads_left"], row["num_heads"], row["auc"]) == (36, 72, 1.0)
    # Where a head has several roles it counts under each, as in the table of the experiment that finds them.
    assert row["roles"] == {"none": [33, 66], "positional": [0, 1], "previous": [3, 6]}
    assert row["with_role"] == [3, 6]
    [other] = gate_rows(gates, heads, with_loss, [row | {"model": "other"} for row in ROLES])
    assert other["roles"] is other["with_role"] is None
    assert row["open_by_layer"] == [0, 0, 0, 12, 12, 12]
    assert row["importance_loss"] == 0.25
    # No curve is read between its points: where as many heads were not measured there is nothing to compare.
    assert gate_rows(gates, heads, with_loss[:1], ROLES)[0]["importance_loss"] is None
    assert rank_probability([1.0, 2.0], [1.0, 0.0]) == 0.875
    assert rank_probability([], [1.0]) is None


def test_roles_are_those_that_the_roles_experiment_finds(monkeypatch, tmp_path):
    committed = read_final(FIGURES / "roles" / "quick.json")["records"]["roles"]
    assert role_rows() == committed
    assert {row["model"] for row in committed} >= set(PRESETS["quick"].gated_models)
    monkeypatch.setattr("experiments.pruning.records.ROLES", tmp_path / "none.json")
    assert role_rows() == []
    gates = _data()["records"]["gate_sets"]
    assert {row["roles"] for row in gates} == {None}
    drawn = figures.gates({"records": {"gate_sets": gates}})
    assert drawn is not None
    plt.close(drawn[0])
    cells = table.gates_cells({"records": {"gate_sets": gates}})
    assert cells is not None
    assert {row[-2:] for row in cells.rows} == {("–", "–")}


def test_gates_ask_for_importance_with_exactly_as_many_heads(monkeypatch):
    asked = []

    def ask(points):
        asked.extend(points)
        left = {0.1: 70, 0.3: 55}
        return [{"heads_left": left[p.penalty]} if isinstance(p, GatePoint) else {} for p in points]

    monkeypatch.setattr("experiments.pruning.experiment.installed", lambda name: True)
    config = replace(PRESETS["quick"], text="sample", gate_penalties=(0.1, 0.3))
    for part in EXPERIMENT.parts(config, ask):
        part.run()
    found = [p for p in asked if isinstance(p, MatchedPoint)]
    assert sorted(p.heads_left for p in found) == [55, 70]
    assert {(p.model, p.text, p.num_tokens, p.length) for p in found} == {("minilm-l6", "sample", 2048, 128)}
    assert {p for p in asked if not isinstance(p, MatchedPoint)} == set(grid(config))


def test_ranges_of_seeds_are_drawn_of_losses_and_rankings_alike():
    point = {"model": "m", "order": "random", "heads_left": 3}
    points = [
        point | {"seed": seed, "fraction_pruned": f, "loss": f + seed, "ranking": 1 - f * seed / 10}
        for seed in range(3)
        for f in (0.0, 0.5, 1.0)
    ]
    rows = curve_rows(points)
    assert [(row["ranking_low"], row["ranking"], row["ranking_high"]) for row in rows] == [
        (1, 1, 1),
        pytest.approx((0.9, 0.95, 1)),
        pytest.approx((0.8, 0.9, 1)),
    ]
    none = curve_rows([row | {"ranking": None} for row in points])
    assert all(row["ranking_low"] is row["ranking_high"] is None for row in none)
    drawn = figures.curves({"records": {"curves": rows}})
    assert drawn is not None
    for axes, bars in zip(drawn[0].axes, ((1, 2), (0.8, 1)), strict=True):
        ((_, (_, _), (bar,)),) = axes.containers  # line, caps, bars
        found = bar.get_segments()[-1][:, 1]
        assert found == pytest.approx(bars if axes is drawn[0].axes[1] else (1, 3))
    plt.close(drawn[0])


def test_the_first_layer_is_on_top(expected):
    drawn = figures.importance(expected)
    assert drawn is not None
    maps = [axes for axes in drawn[0].axes if axes.images]
    assert len(maps) == 2
    assert all(axes.yaxis_inverted() for axes in maps)
    plt.close(drawn[0])


def test_speed_ups_are_medians_of_rounds():
    base = {
        "model": "m",
        "removal": "heads",
        "batch_size": 1,
        "length": 8,
        "heads_left": 1,
        "kv_heads_left": 1,
    }
    base |= {"loss": 1.0, "difference": 0.0, "scale": 1.0, "parameters": 10, "products": 30}
    whole = [base | {"fraction_pruned": 0.0, "seed": i, "seconds": s} for i, s in enumerate((2.0, 3.0, 2.0))]
    pruned = [
        base | {"fraction_pruned": 0.5, "seed": i, "seconds": s, "parameters": 8, "products": 20}
        for i, s in enumerate((1.0, 1.0, 2.0))
    ]
    [row] = speed_rows([*pruned, *whole])
    assert (row["speedup"], row["speedup_low"], row["speedup_high"]) == (2.0, 1.5, 2.5)
    assert (row["predicted_speedup"], row["parameters_share"], row["rounds"]) == (1.5, 0.8, 3)
    assert speed_rows(whole) == []


def test_everything_as_expected_is_held(expected):
    verdicts = {row["claim"]: (row["verdict"], row["found"]) for row in expected["records"]["claims"]}
    assert len(verdicts) == len(CLAIMS)
    assert {name: found for name, found in verdicts.items() if found[0] != "held"} == {}


def _spoilt(kind, changes, **wanted):
    def change(point, record):
        names = {
            "points": "PrunedPoint",
            "ablations": "AblatedPoint",
            "gates": "GatePoint",
            "timings": "TimedPoint",
        }
        fits = type(point).__name__ == names[kind] and all(record[k] == v for k, v in wanted.items())
        return record | changes(record) if fits else record

    return change


@pytest.mark.parametrize(
    ("claim", "change"),
    [
        ("importance", _spoilt("points", lambda r: {"loss": 11.0}, order="importance", fraction_pruned=0.8)),
        ("onset", _spoilt("points", lambda r: {"loss": 4.0}, order="importance", fraction_pruned=0.1)),
        ("confidence", _spoilt("points", lambda r: {"loss": 3.0}, order="confidence", fraction_pruned=0.9)),
        (
            "recomputed",
            _spoilt("points", lambda r: {"loss": 11.0}, order="importance_recomputed", fraction_pruned=0.7),
        ),
        ("ablation", _spoilt("ablations", lambda r: {"increase": 0.2}, ablation="single", layer=2)),
        ("one left", _spoilt("ablations", lambda r: {"increase": 0.9}, ablation="all_but_one")),
        ("gates", _spoilt("gates", lambda r: {"gate": 1 - r["gate"]})),
        ("gated loss", _spoilt("gates", lambda r: {"loss": 0.4})),
        ("removed", _spoilt("timings", lambda r: {"difference": 1e-3})),
        ("speed", _spoilt("timings", lambda r: {"seconds": 1 + r["fraction_pruned"]})),
    ],
)
def test_each_verdict_can_fail(claim, change):
    verdicts = {row["claim"]: row["verdict"] for row in _data(change=change)["records"]["claims"]}
    assert verdicts[claim] == "failed"


def test_what_was_not_run_is_not_judged():
    found = summary(ALL, lambda points: [], {name: [] for name in KINDS})
    assert {row["verdict"] for row in found["claims"]} == {"not_run"}
    assert table.curves_cells({"records": found}) is None


def test_figures_tables_and_values_are_made_of_the_records(expected, tmp_path):
    names = {path.name for path in EXPERIMENT.plot(expected, tmp_path, "quick")}
    assert {f"quick-{name}.svg" for name in ("curves", "importance", "ablation", "gates", "speed")} <= names
    console = Console(width=100, record=True, file=io.StringIO())
    EXPERIMENT.show(expected, console)
    shown = console.export_text()
    assert "Loss by heads removed" in shown
    assert "\n\nExpected and found\n" in shown
    assert "held  onset: by I_h 20% to 40%" in shown
    values = table.values(expected)
    assert values["loss.smollm2-135m.importance.0"] == "3.000"
    assert values["cost.minilm-l6.random.100"] == "100%"
    # By importance a fraction f costs 8 f^2.6 nats in the records made here.
    assert values["added.smollm2-135m.importance.50"] == f"{8 * 0.5**2.6:+.2f}"
    assert values["perplexity-ratio.smollm2-135m.importance.50"] == f"{np.exp(8 * 0.5**2.6):.2f}"
    assert "added.minilm-l6.importance.50" not in values
    assert values["random-as-good.minilm-l6.importance"] == "0 of 3"
    assert values["chance.minilm-l6.importance"] == "0.25"
    assert values["gates.minilm-l6.0.3.left"] == "36"
    assert values["gates.minilm-l6.0.3.loss"] == "0.0001"
    assert (
        values["speedup.smollm2-135m.groups.4"] == values["predicted-speedup.smollm2-135m.groups.4"] == "1.25"
    )
    assert values["claims.held"] == values["claims.judged"] == "10"
    for made in (table.curves_cells, table.gates_cells, table.speed_cells, table.claims_cells):
        cells = made(expected)
        assert cells is not None
        assert {len(row) for row in cells.rows} == {len(cells.columns)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"orders": ("importance", "best")}, "orders: expected names among importance, .* got best"),
        ({"orders": ("random", "random")}, "orders: expected different values"),
        ({"steps": 0}, "steps: expected a positive integer, got 0"),
        ({"gated_models": ("other",)}, "gated_models: expected names among minilm-l6, .*got other"),
        ({"removals": ("layers",)}, "removals: expected names among heads, groups"),
        ({"removed_fraction": 1.0}, "removed_fraction: expected a number between 0 and 1, got 1.0"),
        ({"gate_penalties": (-1.0,)}, "gate_penalties: expected 0 or positive numbers, got -1.0"),
        ({"batch_sizes": (0,)}, "batch_sizes: expected positive integers"),
        ({"length": 4}, "length: expected at least 8, got 4"),
        ({"models": ()}, "models: expected at least one, got none"),
        (
            {"length": 513, "num_tokens": 4096},
            r"length: expected at most 512 \(minilm-l6 has 512 positions\)",
        ),
        ({"num_tokens": 100}, "num_tokens: expected at least 4 \\* length = 512, got 100"),
    ],
)
def test_mistakes_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        resolve(replace(ALL, **changes), set())


def test_models_that_are_none_are_refused():
    with pytest.raises(
        FileNotFoundError, match=r"models: expected minilm-l6, .* or folders .*, got 'minilm'"
    ):
        resolve(replace(ALL, models=("minilm",)), {"models"})


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        # Of 80 lines 8 are held out; the last of 9 sequences would have to begin at the last line, as that of 8 does.
        ("llama", {}, None),
        (
            "llama",
            {"num_tokens": 12 * 9},
            "num_tokens: expected at most 96, in 8 sequences of 12 tokens of the text",
        ),
        (
            "llama",
            {"gate_sequences": 4 * 73},
            "gate_sequences: expected at most 288 for the 72 sequences of 12",
        ),
        ("bert", {"num_tokens": 32 * 9}, "num_tokens: expected at most 256 for the 8 sentences of the text"),
        ("bert", {"gate_sequences": 72}, "gate_sequences: expected at most 70 for the pairs of sentences"),
        (
            "bert",
            {"length": 14, "num_tokens": 56},
            r"length: expected at most 13 \(.*bert has 13 positions\)",
        ),
    ],
)
def test_more_than_the_text_or_the_model_has_is_refused(tmp_path, kind, changes, message):
    (tmp_path / "text.txt").write_text("\n".join(["w3 w4 w5 w6 w7 w8 w9 w3 w4 w5 w6 w7"] * 80))
    folder = str(small_models.write(tmp_path / kind, kind))
    asked = {"models": (folder,), "gated_models": (folder,), "ablated_models": (), "timed_models": ()}
    asked |= {"text": str(tmp_path / "text.txt"), "length": 12, "num_tokens": 96}
    config = replace(PRESETS["quick"], **(asked | changes))
    if message is None:
        assert resolve(config, set()) == config
    else:
        with pytest.raises(ValueError, match=message):
            resolve(config, set())


def test_verses_that_are_damaged_are_refused(monkeypatch, tmp_path):
    def damaged():
        raise ValueError("verses.tsv: expected SHA-256 2c, got 1b")

    (tmp_path / "verses.tsv").touch()
    monkeypatch.setattr("experiments.verses.PATH", tmp_path / "verses.tsv")
    monkeypatch.setattr("experiments.verses.read_verses", damaged)
    with pytest.raises(ValueError, match="expected SHA-256"):
        resolve(ALL, set())


def test_naming_models_leaves_out_what_is_done_with_others():
    found = resolve(replace(ALL, models=("smollm2-135m",)), {"models"})
    assert found.ablated_models == found.timed_models == ("smollm2-135m",)
    assert found.gated_models == ()
    assert resolve(ALL, set()) == ALL


def test_what_is_missing_is_left_out_and_said(monkeypatch, tmp_path):
    for module in ("pruning.experiment", "pretrained.load"):
        monkeypatch.setattr(
            import_module(f"experiments.{module}"), "installed", lambda name: name == "minilm-l6"
        )
    assert {p.model for p in EXPERIMENT.points(replace(ALL, text="sample"))} == {"minilm-l6"}
    [row] = EXPERIMENT.left_out(replace(ALL, text="sample"))
    assert (row["what"], row["how_to_get"]) == ("smollm2-135m", "make models")
    monkeypatch.setattr("experiments.verses.PATH", tmp_path / "none.tsv")
    assert EXPERIMENT.points(ALL) == []
    assert EXPERIMENT.left_out(ALL)[-1]["how_to_get"] == "make text, or --text PATH"


def _run(tmp_path, kinds, orders, *options):
    """Records of a run on small models, by their folders."""
    rng = np.random.default_rng(0)
    lines = [" ".join(f"w{i}" for i in rng.integers(3, 10, 12)) for _ in range(80)]
    (tmp_path / "text.txt").write_text("\n".join(lines))
    folders = [str(small_models.write(tmp_path / kind, kind)) for kind in kinds]
    sizes = (
        "--num-tokens 48 --length 12 --steps 2 --random-orders 2 --gate-steps 4 --rounds 2 --batch-sizes 2"
    )
    names = [text for name in ("models", "timed-models") for text in (f"--{name}", *folders)]
    command = ["run", "pruning", "--preset", "smoke", "--workers", "0", "--out", str(tmp_path / "out")]
    command += [*sizes.split(), *names, "--text", str(tmp_path / "text.txt"), "--orders", *orders]
    for option in options:
        command += [option, *(folders if option.endswith("models") else [])]
    assert cli.main(command) == 0
    data = json.loads((tmp_path / "out" / "smoke.json").read_text(), parse_constant=pytest.fail)
    return folders, data["records"]


def test_a_run_from_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(EXPERIMENT, "plots", {})  # drawn above, from more
    [folder], rows = _run(tmp_path, ["llama"], ["importance", "random"], "--removals", "groups")
    assert len(rows["points"]) == 3 * 3
    required = {"model", "order", "fraction_pruned", "heads_left", "loss", "seed"}
    assert all(required <= set(row) for row in rows["points"])
    for end in (0, 1):
        assert len({row["loss"] for row in rows["points"] if row["fraction_pruned"] == end}) == 1
    assert {row["heads_left"] for row in rows["points"]} == {0, 6, 12}
    assert len(rows["heads"]) == 12
    assert {row["model"] for row in rows["heads"]} == {folder}
    assert all(row["difference"] <= 1e-5 * row["scale"] for row in rows["timings"])
    assert {(row["heads_left"], row["kv_heads_left"]) for row in rows["timings"]} == {(12, 4), (6, 2)}
    assert "Loss by heads removed" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_with_everything(tmp_path, monkeypatch):
    monkeypatch.setattr(EXPERIMENT, "plots", {})
    folders, rows = _run(tmp_path, ["bert", "gpt2"], POWER, "--gated-models", "--ablated-models")
    for folder in folders:
        own = {kind: [row for row in found if row.get("model") == folder] for kind, found in rows.items()}
        assert len(own["points"]) == 6 * 3
        assert len(own["heads"]) == len(own["gates"]) == 6
        assert len(own["ablations"]) == 12
        [gates], [as_many] = own["gate_sets"], own["matched"]
        assert as_many["heads_left"] == gates["heads_left"] == sum(row["gate"] > 0 for row in own["gates"])
        assert gates["importance_loss"] == as_many["loss"]
        assert gates["roles"] is None  # they are known of models that have a name
        assert {row["removal"] for row in own["timings"]} == {"heads"}
        assert all(row["difference"] <= 1e-5 * row["scale"] for row in own["timings"])
        assert (own["points"][0]["ranking"] is None) == ("gpt2" in folder)


@pytest.mark.parametrize("name", ["pruning", "audit", "roles"])
@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "at least ten lines"), (b"\xff\xfe\x00" * 40, "UTF-8"), (None, "no file"), ("folder", "no file")],
)
def test_a_text_that_is_none_is_refused_before_anything_runs(tmp_path, name, content, said):
    path = tmp_path / "text"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    experiment = load(name)
    config = replace(experiment.presets["smoke"], text=str(path))
    with pytest.raises((ValueError, FileNotFoundError), match=f"text: expected.*{said}"):
        experiment.resolve(config, {"text"})
