"""All figures of a capacity run: the same bytes, honest captions, and what a run lacks left out."""

import copy
import io
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from matplotlib import rcParams
from rich.console import Console

from experiments import style
from experiments.capacity import table
from experiments.capacity.experiment import EXPERIMENT
from experiments.capacity.figures_ceiling import ceiling, real
from experiments.capacity.figures_recovery import head_sweep, recovery
from experiments.capacity.figures_threshold import scaling, threshold
from tests.experiments.capacity_drawing import drawn
from tests.experiments.capacity_records import make_data

NAMES = ("recovery", "threshold", "head-sweep", "ceiling", "scaling", "real")


@pytest.fixture(scope="module")
def data():
    return make_data()


def test_every_figure_is_drawn_twice_the_same(tmp_path):
    data = small()
    before = dict(rcParams)
    first = EXPERIMENT.plot(data, tmp_path / "one", "quick")
    again = EXPERIMENT.plot(copy.deepcopy(data), tmp_path / "two", "quick")
    assert dict(rcParams) == before
    expected = [f"quick-{name}.{suffix}" for name in NAMES for suffix in ("svg", "png")]
    assert [path.name for path in first] == [*expected, "quick-captions.md"]
    assert {path.name for path in (tmp_path / "one").iterdir()} == {path.name for path in first}
    for a, b in zip(first, again, strict=True):
        assert a.read_bytes() == b.read_bytes(), a.name
    for path in first:
        if path.suffix == ".svg":
            ElementTree.fromstring(path.read_text("utf-8"))
            assert "dc:date" not in path.read_text("utf-8")
    captions = first[-1].read_text("utf-8")
    assert "`python -m experiments plot capacity --preset quick`" in captions
    for name in NAMES:
        assert f"quick-{name}.svg" in captions


def test_captions_say_what_kind_of_statement_each_mark_is(data):
    for make in (recovery, threshold, head_sweep, ceiling, scaling, real):
        _, caption = drawn(make, data)
        assert "*Measured*" in caption
        assert "rediction*" in caption
        assert "seed" in caption
        assert "95%" in caption
    for make in (recovery, threshold, head_sweep, ceiling):
        assert "*Theorem" in drawn(make, data)[1]


def legend_of(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_captions_and_legends_claim_nothing_that_is_not_drawn():
    """As in a preset of joint training alone, at head counts that it always holds."""
    data = make_data(heads=(3, 4), trainers=("plain",), budgets=(96,), ceilings=(), seeds=2, real=False)
    for record in data["records"]["transitions"]:
        record["smallest_exact"] = None
    figure, caption = drawn(recovery, data)
    assert "plain joint descent." in caption
    assert "head by head" not in caption
    figure, caption = drawn(threshold, data)
    for absent in ("best trainer", "arrow", "stars"):
        assert absent not in caption
    assert not {"best trainer", "smallest exact channel"} & set(legend_of(figure))
    figure, caption = drawn(scaling, data)
    assert legend_of(figure)[1:] == ["measured = empirical law"]
    for absent in ("best trainer", "prediction", "Above", "below,"):
        assert absent not in caption
    figure, caption = drawn(head_sweep, data)  # 96 heads of one dimension hold 96 edges
    assert legend_of(figure) == ["plain joint descent", "predicted window (fixed partition)"]
    assert "heorem" not in caption
    for record in data["records"]["head_sweeps"]:
        record["predicted_min_heads"] = record["predicted_max_heads"] = None
    figure, caption = drawn(head_sweep, data)
    assert legend_of(figure) == ["plain joint descent"]
    assert "rediction" not in caption
    data = make_data(heads=(1, 2), budgets=(), ceilings=(), seeds=2, real=False)
    for make in (recovery, threshold):  # both predictions are infinite at one head and at two
        figure, caption = drawn(make, data)
        assert not [text for text in legend_of(figure) if "prediction" in text or "law" in text]
        for absent in ("rediction", "law", "infinite"):
            assert absent not in caption


def test_figures_of_an_earlier_run_do_not_stay(tmp_path, monkeypatch):
    def save(figure, stem: Path):
        paths = [stem.with_name(f"{stem.name}.{suffix}") for suffix in ("svg", "png")]
        for path in paths:
            path.write_text("drawn")
        return paths

    monkeypatch.setattr(style, "save", save)
    EXPERIMENT.plot(small(), tmp_path, "quick")
    others = ("quick-mine.png", "paper-real.svg", "quick-real.txt")
    for name in others:
        (tmp_path / name).touch()
    written = EXPERIMENT.plot(small(real=False, budgets=()), tmp_path, "quick")
    assert not {"quick-real.svg", "quick-head-sweep.png"} & {path.name for path in written}
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in written} | set(others)


def test_a_single_point_is_a_figure():
    """One head count that succeeds at one dimension a head already: nothing below it is ever run."""
    data = make_data(sizes=((23, 7),), heads=(12,), budgets=(12,), ceilings=(7,), seeds=1, real=False)
    kept = data["records"]
    kept["points"] = [p for p in kept["points"] if p["head_dim"] == 1 and p["trainer"] == "greedy"][:1]
    kept["transitions"] = [r for r in kept["transitions"] if r["trainer"] != "joint"]
    kept["ceiling_points"] = kept["ceiling_points"][:1]
    for record in kept["transitions"]:
        record |= {"measured_total_key_dim": 12.0, "ci_low": 0.0, "ci_high": 12.0, "status": "reached"}
    for point in kept["points"]:
        point |= {"num_heads": 12, "total_key_dim": 12, "best_f1": 1.0}
    one_ratio = make_data(heads=(4,), budgets=(), ceilings=(), seeds=1, real=False)
    for make in (recovery, threshold, head_sweep, ceiling, scaling):
        figure, _ = drawn(make, one_ratio if make is scaling else data)
        with style.context():
            figure.draw_without_rendering()
        if make is recovery:
            (axes,) = figure.axes
            assert axes.get_xticks().tolist() == [12]
    data["records"]["head_sweeps"] = [
        {**r, "total_key_dim": 1, "predicted_min_heads": 1, "predicted_max_heads": 1}
        for r in kept["head_sweeps"]
    ]
    data["records"]["points"] = [{**p, "num_heads": 1, "total_key_dim": 1} for p in kept["points"]]
    figure, _ = drawn(head_sweep, data)  # a budget of one has one divisor
    with style.context():
        figure.draw_without_rendering()


def test_arms_of_several_widths_say_which_they_are():
    data = make_data(sizes=((23, 5), (96, 16)), heads=(2, 4), budgets=(), ceilings=(), seeds=1)
    records = data["records"]["transitions"]
    records += [
        {**r, "embedding": "minilm-pca"}
        for r in records
        if (r["num_items"], r["num_heads"]) == (23, 4) and r["embedding"] == "gaussian"
    ]
    figure, _ = drawn(real, data)
    labels = [label.get_text().replace("\n", " ") for label in figure.axes[0].get_xticklabels()]
    assert labels[:4] == [
        "Gaussian $d$ = 5",
        "MiniLM PCA $d$ = 5",
        "Gaussian $d$ = 16",
        "MiniLM PCA $d$ = 16",
    ]
    assert len(set(labels)) == len(labels)


NOTHING = {"measured_total_key_dim": None, "ci_low": None, "ci_high": None, "smallest_exact": None}
NOTHING |= {"exact_total_key_dim": None, "trained_total_key_dim": None}
FAILED = {"status": "failed", "reason": "loss is nan", "best_f1": None, "micro_f1": None}


def small(**changes):
    return make_data(**{"heads": (2, 4), "budgets": (6,), "seeds": 2, **changes})


def changed(kind, **changes):
    data = small()
    data["records"][kind] = [{**record, **changes} for record in data["records"][kind]]
    return data


def without_points(data):
    data["records"]["points"] = []
    return data


VARIANTS = {  # what is missing, and the figures that are left out for it
    "all records": (lambda: {"command": "c", "records": {}}, set(NAMES)),
    "scores": (lambda: changed("points", **FAILED), set()),
    "thresholds": (lambda: changed("transitions", status="not_reached", **NOTHING), {"scaling"}),
    "runs": (
        lambda: without_points(changed("transitions", status="not_run", **NOTHING)),
        {"recovery", "threshold", "head-sweep", "scaling", "real"},
    ),
    "points": (lambda: without_points(small()), {"recovery", "head-sweep"}),
    "intervals": (lambda: changed("transitions", ci_low=None, ci_high=None), set()),
    "theorems": (
        lambda: changed("transitions", counting_bound=None, warren_bound=None, cap_bound=None),
        set(),
    ),
    "windows": (lambda: changed("head_sweeps", predicted_min_heads=None, predicted_max_heads=None), set()),
    "ceiling fit": (lambda: changed("ceilings", measured_num_items=None, ci_low=None, ci_high=None), set()),
    "real arms": (lambda: small(real=False), {"real"}),
    "other head counts": (lambda: small(heads=(4,), real=False), {"real"}),
    "all but one head": (
        lambda: small(heads=(1,), real=False, budgets=(), ceilings=()),
        {"head-sweep", "ceiling", "scaling", "real"},
    ),
    "all but plain": (lambda: small(trainers=("plain",)), set()),
    "all but greedy": (lambda: small(trainers=("greedy",)), set()),
    "composite budgets": (
        lambda: small(sizes=((23, 7),), budgets=(7,), real=False, ceilings=()),
        {"ceiling", "real"},
    ),
    "all but real arms": (lambda: small(sizes=()), {"head-sweep"}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_missing_things_are_left_out(variant, tmp_path, monkeypatch):
    saved = []  # without the slow part, layout and writing

    def save(figure, stem: Path):
        saved.append(stem.name.removeprefix("quick-"))
        return []

    monkeypatch.setattr(style, "save", save)
    make, absent = VARIANTS[variant]
    data = make()
    (captions,) = EXPERIMENT.plot(data, tmp_path, "quick")
    assert set(NAMES) - set(saved) == absent
    assert captions.exists()
    console = Console(file=io.StringIO(), width=80)
    EXPERIMENT.show(data, console)
    for make_cells in (table.threshold_cells, table.ceiling_cells, table.real_cells):
        if (cells := make_cells(data)) is not None:
            assert cells.markdown().count("\n|") == len(cells.rows) + 2


def test_what_was_left_out_is_written_beside_the_captions(data, tmp_path, monkeypatch):
    monkeypatch.setattr(style, "save", lambda figure, stem: [])
    item = {"what": "minilm-pca", "why": "the model is not installed", "how_to_get": "make models"}
    (captions,) = EXPERIMENT.plot({**data, "left_out": [item], "unfinished": ["a", "b"]}, tmp_path, "quick")
    assert "2 parts of the run are in no figure yet" in captions.read_text("utf-8")
    assert "`minilm-pca`: the model is not installed (`make models`)" in captions.read_text("utf-8")


def test_several_sizes_are_facets():
    data = make_data(
        sizes=((23, 5), (47, 8), (96, 16)), heads=(2, 4), real=False, ceilings=(5, 8), budgets=(6,)
    )
    for make, titles in (
        (recovery, ["2 heads", "4 heads"] * 3),
        (threshold, ["23 items, d = 5", "47 items, d = 8", "96 items, d = 16"]),
        (ceiling, ["$d$ = 5", "$d$ = 8"]),
    ):
        figure, _ = drawn(make, data)
        figure.draw_without_rendering()
        assert [axes.get_title() for axes in figure.axes if axes.get_title()] == titles
    cells = table.threshold_cells(data)
    assert cells is not None
    assert [row[0] for row in cells.rows] == ["23, 5"] * 2 + ["47, 8"] * 2 + ["96, 16"] * 2
