import copy
import io
import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from matplotlib import rcParams
from matplotlib.figure import Figure
from rich.console import Console

from experiments import style
from experiments.capacity import table
from experiments.capacity.figures import plot
from experiments.capacity.figures_ceiling import ceiling, real
from experiments.capacity.figures_records import Case, budget_floor, rates
from experiments.capacity.figures_recovery import head_sweep, recovery
from experiments.capacity.figures_threshold import scaling, threshold
from experiments.reading import wilson
from tests.experiments.capacity_records import make_data

NAMES = ("recovery", "threshold", "head-sweep", "ceiling", "scaling", "real")


@pytest.fixture(scope="module")
def data():
    return make_data()


def drawn(make, data) -> tuple[Figure, str]:
    with style.context():
        result = make(data)
    assert result is not None
    return result


def lines_at(axes, x):
    return [line for line in axes.lines if np.array_equal(line.get_xdata(), [x, x])]


def test_every_figure_is_drawn_twice_the_same(tmp_path):
    data = small()
    before = dict(rcParams)
    first = plot(data, tmp_path / "one", "quick")
    again = plot(copy.deepcopy(data), tmp_path / "two", "quick")
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
    assert f"`{data['command']}`" in captions
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


def test_recovery_shows_the_recorded_shares_and_predictions(data):
    figure, _ = drawn(recovery, data)
    panels = {axes.get_title(): axes for axes in figure.axes if axes.get_title()}
    assert list(panels) == ["1 head", *(f"{h} heads" for h in (2, 3, 4, 6, 8, 16))]
    points = [p for p in data["records"]["points"] if p["num_heads"] == 4 and p["embedding"] == "gaussian"]
    for trainer in ("greedy", "joint", "plain"):
        here = [p for p in points if p["trainer"] == trainer]
        budgets = sorted({p["total_key_dim"] for p in here})
        shares = [np.mean([p["best_f1"] >= 0.99 for p in here if p["total_key_dim"] == b]) for b in budgets]
        assert any(np.array_equal(line.get_ydata(), shares) for line in panels["4 heads"].lines)
    record = next(r for r in data["records"]["transitions"] if r["num_heads"] == 4)
    for name in ("partition_total_key_dim", "parameter_count_total_key_dim"):
        assert lines_at(panels["4 heads"], record[name])


def test_threshold_marks_are_the_records(data):
    figure, _ = drawn(threshold, data)
    (axes,) = (axes for axes in figure.axes if axes.get_xlabel())
    transitions = [r for r in data["records"]["transitions"] if r["embedding"] == "gaussian"]
    for trainer in ("best", "joint", "plain"):
        rows = sorted((r for r in transitions if r["trainer"] == trainer), key=lambda r: r["num_heads"])
        reached = [r["measured_total_key_dim"] for r in rows if r["status"] == "reached"]
        assert any(np.array_equal(line.get_ydata(), reached) for line in axes.lines)
        for record in (r for r in rows if r["status"] == "not_reached"):
            assert any(np.array_equal(line.get_ydata(), [16 * record["num_heads"]]) for line in axes.lines)
    exact = [r["smallest_exact"] for r in transitions if r["trainer"] == "best" and r["smallest_exact"]]
    (stars,) = (np.asarray(line.get_ydata()).tolist() for line in axes.lines if line.get_marker() == "*")
    assert sorted(stars) == sorted(exact)
    low, high = axes.get_ylim()
    assert all(low < value < high for value in exact)


def test_no_theorem_floor_is_above_an_exact_channel_or_below_the_head_count(data):
    case = Case(96, 96, 16, "gaussian", "permutation")
    for record in data["records"]["transitions"]:
        if record["smallest_exact"] is not None and record["embedding"] == "gaussian":
            floor = budget_floor(case, record["num_heads"], record["counting_bound"])
            assert record["num_heads"] <= floor <= record["smallest_exact"]
    assert budget_floor(case, 47, None) == 94  # one dimension a head holds 94 of 96 edges
    assert budget_floor(case, 48, None) == 48
    assert budget_floor(Case(96, 96, 16, "gaussian", "my-edges"), 8, None) == 8
    assert budget_floor(Case(5000, 5000, 16, "gaussian", "permutation"), 1, None) == math.inf


def test_nothing_predicted_is_drawn_where_the_theorems_exclude_it(data):
    case = Case(96, 96, 16, "gaussian", "permutation")
    rows = {
        r["num_heads"]: r
        for r in data["records"]["transitions"]
        if r["embedding"] == "gaussian" and r["trainer"] == "best"
    }
    names = ("partition_total_key_dim", "parameter_count_total_key_dim")
    floors = {h: budget_floor(case, h, rows[h]["counting_bound"]) for h in rows}
    assert all(rows[16][name] < floors[16] for name in names)
    assert all(rows[6][name] > floors[6] for name in names)

    figure, caption = drawn(threshold, data)
    (axes,) = (axes for axes in figure.axes if axes.get_xlabel())
    lines = [np.asarray(line.get_xydata()) for line in axes.lines if line.get_marker() == "None"]
    assert len(lines) == 2
    for heads, budgets in (line[np.isfinite(line[:, 1])].T for line in lines):
        assert {3, 4, 6} <= set(heads)
        assert all(y >= budget_floor(case, int(h), None) for h, y in zip(heads, budgets, strict=True))
    assert "or the theorems exclude it" in caption

    figure, caption = drawn(recovery, data)
    panels = {axes.get_title(): axes for axes in figure.axes if axes.get_title()}
    for name in names:
        assert lines_at(panels["6 heads"], rows[6][name])
        assert not lines_at(panels["16 heads"], rows[16][name])
    assert "or the theorems exclude it" in caption

    figure, caption = drawn(scaling, data)
    heads = {
        round(float(x)) for axes in figure.axes for line in axes.lines[1:] for x in np.ravel(line.get_xdata())
    }
    assert 6 in heads
    assert 16 not in heads
    assert "excluded by the theorems" in caption
    assert "budgets were searched for the first criterion alone" in caption  # exact_status says no more

    cells = table.threshold_cells(data)
    assert cells is not None
    by_heads = {row[0]: row for row in cells.rows}
    assert [by_heads["16"][i] for i in (2, 7)] == [f"({rows[16][name]:.1f})" for name in names]
    assert [by_heads["6"][i] for i in (2, 7)] == [f"{rows[6][name]:.1f}" for name in names]
    assert "in brackets" in cells.note


def test_changed_predictions_are_refused(data):
    other = copy.deepcopy(data)
    record = next(r for r in other["records"]["transitions"] if r["num_heads"] == 3)
    record["partition_total_key_dim"] *= 1 + 1e-5
    for make in (recovery, threshold):
        with pytest.raises(ValueError, match=r"partition_total_key_dim = .* at num_heads = 3"):
            drawn(make, other)
    record["partition_total_key_dim"] = None
    with pytest.raises(ValueError, match="run it again"):
        drawn(threshold, other)


def test_head_sweep_shades_the_window_and_the_cap(data):
    figure, _ = drawn(head_sweep, data)
    tops = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in tops] == ["$D_K$ = 24", "$D_K$ = 36"]
    for axes in tops:
        texts = [text.get_text() for text in axes.texts]
        assert texts == ["predicted\nwindow", "$d_k$ = 1:\nimpossible"]
    caps = [
        text.get_text() for axes in figure.axes for text in axes.texts if text.get_text().startswith("F1")
    ]
    assert caps == ["F1 ≤ 0.80", "F1 ≤ 0.89"]
    enough = make_data(budgets=(96,), real=False, ceilings=(), heads=(4,))
    figure, _ = drawn(head_sweep, enough)
    assert not any("impossible" in text.get_text() for axes in figure.axes for text in axes.texts)


def test_head_sweep_says_which_splits_were_not_run(data):
    assert "without a mark" not in drawn(head_sweep, data)[1]
    part = copy.deepcopy(data)
    part["records"]["points"] = [p for p in part["records"]["points"] if p["num_heads"] != 12]
    assert "those without a mark were not run" in drawn(head_sweep, part)[1]


def test_ceiling_counts_undecided_solves_apart():
    data = make_data(sizes=(), real=False)
    points = data["records"]["ceiling_points"]
    size = points[0]["num_items"]
    mine = [p for p in points if p["num_items"] == size]
    for p, verdict in zip(mine, ["separable"] * 6 + ["inseparable"] * 2 + ["undecided"] * 8, strict=True):
        p["verdict"] = verdict
    undecided = sum(p["verdict"] == "undecided" for p in points)
    figure, caption = drawn(ceiling, data)
    assert f"Undecided solves ({undecided})" in caption
    axes = figure.axes[0]
    diamonds, crosses = (
        [np.asarray(line.get_xydata())[0].tolist() for line in axes.lines if line.get_marker() == marker]
        for marker in "Dx"
    )
    assert diamonds == [[size, 6 / 8]]
    assert [size, 0.5] in crosses
    for p in mine:
        p["verdict"] = "undecided"
    drawn(ceiling, data)


def test_ratios_are_annotated_in_the_real_figure(data):
    figure, _ = drawn(real, data)
    texts = {text.get_text() for text in figure.axes[0].texts}
    for record in data["records"]["transitions"]:
        if record["graph"] == "words" and record["trainer"] == "best":
            assert f"{record['measured_total_key_dim'] / record['partition_total_key_dim']:.2f}" in texts


def test_ratios_are_off_the_lines_they_are_ratios_to():
    data = make_data(heads=(4,), budgets=(), ceilings=(), seeds=2)
    arms = [r for r in data["records"]["transitions"] if r["trainer"] == "best"]
    assert len(arms) == 5
    for share, record in zip((0.7, 0.8, 0.86, 0.9, 1.0), arms, strict=True):
        for name in ("measured_total_key_dim", "ci_low", "ci_high"):
            record[name] = share * record["partition_total_key_dim"]
    figure, _ = drawn(real, data)
    with style.context():
        figure.draw_without_rendering()
    (axes,) = figure.axes
    labels = [text for text in axes.texts if text.get_text()]
    assert len(labels) == 10
    lines = [line for line in axes.lines if line.get_marker() == "None" and np.size(line.get_xdata()) == 2]
    assert len(lines) == 5
    for label in labels:
        box = label.get_window_extent()
        for line in lines:
            (x0, y), (x1, _) = axes.transData.transform(line.get_xydata())
            assert box.x1 < x0 or box.x0 > x1 or not box.y0 < y < box.y1, label.get_text()


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
    plot(small(), tmp_path, "quick")
    others = ("quick-mine.png", "paper-real.svg", "quick-real.txt")
    for name in others:
        (tmp_path / name).touch()
    written = plot(small(real=False, budgets=()), tmp_path, "quick")
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


def test_rates_leave_failed_runs_out():
    rows = [{"head_dim": 2, "status": "ok", "best_f1": f1} for f1 in (1.0, 0.99, 0.98)]
    rows += [{"head_dim": k, "status": "failed", "best_f1": None} for k in (2, 3)]
    (rate,) = rates(rows, "head_dim").values()
    assert (rate.successes, rate.trials, rate.failed) == (2, 3, 1)
    low, high = wilson(2, 3)
    for edge in (low, high):  # Wilson's ends are where the normal test just rejects
        assert abs(2 / 3 - edge) == pytest.approx(1.96 * math.sqrt(edge * (1 - edge) / 3), rel=1e-9)
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(0, 8)[0] == 0.0


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
    (captions,) = plot(data, tmp_path, "quick")
    assert set(NAMES) - set(saved) == absent
    assert captions.exists()
    console = Console(file=io.StringIO(), width=80)
    for item in table.rich_tables(data):
        console.print(item)
    for make_cells in (table.threshold_cells, table.ceiling_cells, table.real_cells):
        if (cells := make_cells(data)) is not None:
            assert cells.markdown().count("\n|") == len(cells.rows) + 2


def test_what_was_left_out_is_written_beside_the_captions(data, tmp_path, monkeypatch):
    monkeypatch.setattr(style, "save", lambda figure, stem: [])
    item = {"what": "minilm-pca", "why": "the model is not installed", "how_to_get": "make models"}
    (captions,) = plot({**data, "left_out": [item], "unfinished": ["a", "b"]}, tmp_path, "quick")
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


def test_table_says_what_the_records_say(data):
    cells = table.threshold_cells(data)
    assert cells is not None
    for row in cells.rows:
        here = [
            r
            for r in data["records"]["transitions"]
            if r["num_heads"] == int(row[0]) and r["embedding"] == "gaussian"
        ]
        trainers = ("best", "joint", "plain")
        rows = [next(r for r in here if r["trainer"] == name) for name in trainers]
        best = rows[0]
        bounds = f"{best['counting_bound']:.1f}/{best['warren_bound']:.0f}/{best['cap_bound']}"
        predictions = [best[f"{name}_total_key_dim"] for name in ("partition", "parameter_count")]
        partition, law = (
            "∞" if value is None else f"{value:.1f}" if value >= best["cap_bound"] else f"({value:.1f})"
            for value in predictions
        )
        exact = "none" if best["smallest_exact"] is None else str(best["smallest_exact"])
        measured = [
            "not reached"
            if r["status"] == "not_reached"
            else f"{r['measured_total_key_dim']:.1f}\n[{r['ci_low']:.1f}–{r['ci_high']:.1f}]"
            for r in rows
        ]
        assert row[1:] == (bounds, partition, measured[0], exact, *measured[1:], law)


def test_table_fits_a_terminal_of_80_columns(data):
    console = Console(file=io.StringIO(), width=80)
    for item in table.rich_tables(data):
        console.print(item)
    out = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, out.splitlines())) <= 80
    assert "[13.6–18.0]" in out
    assert "…" not in out


def test_ceiling_and_real_tables_give_the_distance_from_the_prediction(data):
    (row,) = table.ceiling_cells(data).rows  # type: ignore[union-attr]
    (record,) = data["records"]["ceilings"]
    assert row[-1] == f"{record['measured_num_items'] / record['predicted_num_items']:.2f}"
    arms = table.real_cells(data)
    assert arms is not None
    assert [row[0].split()[0] for row in arms.rows] == ["permutation"] * 3 + ["words", "words-shuffled"]
    assert arms.rows[3][3].startswith("0.")
    lines = [line for line in arms.markdown().splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(arms.rows)
    assert {line.count("|") for line in lines} == {len(arms.columns) + 1}


def test_status_words():
    record = make_data()["records"]["transitions"][0]
    assert table.measured(None) == "not run"
    assert table.measured({**record, "status": "not_run"}) == "not run"
    assert table.measured({**record, "status": "not_reached"}) == "not reached"
    reached = {**record, "status": "reached", "measured_total_key_dim": 8.0}
    assert table.measured({**reached, "ci_low": None, "ci_high": None}) == "8.0"
    assert table.measured({**reached, "ci_low": 7.0, "ci_high": None}) == "8.0 [7.0–?]"
