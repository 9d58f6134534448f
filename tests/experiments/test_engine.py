"""The engine with a second experiment: records, provenance, resuming, watching, verifying."""

import io
import json
import re
from pathlib import Path

import jax
import pytest
from rich.console import Console

from experiments import cli, collecting, computing, engine, environment, progress
from experiments.points import to_units
from experiments.restoring import batches
from experiments.store import Store, canonical, checksum
from tests.experiments import toy

FIGURES = Path(__file__).parents[2] / "figures"
TOY = "tests.experiments.toy:EXPERIMENT"
CONFIG = toy.EXPERIMENT.presets["quick"]


def run(out, *more, preset="quick"):
    return cli.main(["run", TOY, "--preset", preset, "--workers", "0", "--quiet", "--out", str(out), *more])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("toy")
    assert run(out) == 0
    return out


@pytest.fixture
def data(finished):
    return json.loads((finished / "quick.json").read_text())


def lines_of(folder):
    [path] = folder.glob("*.jsonl")
    return path, [json.loads(line) for line in path.read_text().splitlines()]


def test_an_experiment_of_somewhere_else_runs_through_the_same_engine(data, finished):
    rows = data["records"]["points"]
    assert {row["width"] for row in rows} == {3, 5}
    assert data["records"]["widths"] == [
        {"width": w, "points": sum(row["width"] == w for row in rows)} for w in (3, 5)
    ]
    assert data["unfinished"] == data["left_out"] == []
    assert json.loads((finished / "quick-figure.json").read_text()) == len(rows)
    for row in rows:
        assert row["loss"] == pytest.approx(toy.loss_by_hand(row), rel=1e-5)


def test_points_that_share_shapes_are_one_program(tmp_path):
    toy.TRACED.clear()
    assert run(tmp_path, "--widths", "7", "--rates", "0.2", "0.4", "0.6", "--seeds", "3", preset="smoke") == 0
    assert [(7, 2**n) for n in range(len(toy.TRACED))] == toy.TRACED
    _, (_, *lines) = lines_of(tmp_path)
    assert [len(line["records"]) for line in lines] == [9] * len(toy.TRACED)


def test_every_record_says_what_made_it(data, finished):
    _, (header, *lines) = lines_of(finished)
    for row in data["records"]["points"]:
        assert isinstance(row["seed"], int)
        made = data["provenance"][row["provenance"]]
        assert made["config"] == data["config_hash"]
        assert {"jax", "jaxlib", "numpy", "python", "mha_jax", "device_kind", "x64", "xla_flags"} <= set(
            made["environment"]
        )
        assert made["environment"]["x64"] is (jax.numpy.zeros(()).dtype == "float64")
    assert set(header) == {"schema", "experiment", "preset", "config"}
    assert all(line["environment"]["matmul_precision"] == "highest" for line in lines)
    assert all(line["seconds"]["total"] >= 0 and line["sum"] == checksum(line) for line in lines)


def test_a_second_run_computes_nothing_and_writes_the_same(finished, monkeypatch):
    monkeypatch.setattr(toy.Toy, "compute", lambda *_: pytest.fail("computed"))
    before = (finished / "quick.json").read_bytes()
    assert run(finished) == 0
    assert (finished / "quick.json").read_bytes() == before


def test_a_store_without_notes_and_checksums_is_gone_on_with(finished, tmp_path, monkeypatch):
    """As earlier versions wrote it: its records come without provenance."""
    path, (header, *lines) = lines_of(finished)
    bare = [header, *({k: line[k] for k in ("unit", "records")} for line in lines[:-1])]
    (tmp_path / path.name).write_text("".join(canonical(line) + "\n" for line in bare))
    computed = []
    compute = toy.Toy.compute
    monkeypatch.setattr(toy.Toy, "compute", lambda *a: computed.append(a) or compute(*a))
    assert run(tmp_path) == 0
    assert len(computed) == 1
    rows = json.loads((tmp_path / "quick.json").read_text())["records"]["points"]
    assert sum(row["provenance"] is not None for row in rows) == len(lines[-1]["records"])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda line: line["records"].pop(),
        lambda line: line["records"][0].pop("loss"),
        lambda line: line["records"][0].update(more=1),
        lambda line: line["records"][0].update(seed=17),
        lambda line: line.update(records={}),
        lambda line: line["unit"].update(kind="tree"),
    ],
)
@pytest.mark.parametrize("checked", [False, True])
def test_a_line_whose_records_are_wrong_is_not_trusted(
    finished, tmp_path, capsys, spoil, checked, monkeypatch
):
    path, lines = lines_of(finished)
    spoil(lines[2])
    lines[2].pop("sum")
    if checked:
        lines[2]["sum"] = checksum(lines[2])
    (tmp_path / path.name).write_text("".join(canonical(line) + "\n" for line in lines))
    computed = []
    compute = toy.Toy.compute
    monkeypatch.setattr(toy.Toy, "compute", lambda *a: computed.append(a) or compute(*a))
    assert run(tmp_path) == 0
    assert len(computed) == 1
    assert "line 3" in capsys.readouterr().out


def test_a_digit_that_changed_is_noticed(finished, tmp_path, capsys):
    path, _ = lines_of(finished)
    text = path.read_text().splitlines(keepends=True)
    text[3] = re.sub(
        r'("loss":\d\.\d)\d', lambda found: found[1] + str((int(found[0][-1]) + 1) % 10), text[3], count=1
    )
    (tmp_path / path.name).write_text("".join(text))
    assert cli.main(["status", str(tmp_path), "--experiment", TOY]) == 0
    assert "line 4: its checksum is wrong; computed again by the next run" in capsys.readouterr().out
    assert run(tmp_path) == 0
    assert "line 4: its checksum is wrong" in capsys.readouterr().out
    assert cli.main(["status", str(tmp_path), "--experiment", TOY]) == 0
    assert "line 4: its checksum is wrong; nothing is missing" in capsys.readouterr().out


def test_a_worker_that_gives_wrong_records_stops_the_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(toy.Toy, "compute", lambda self, points: [])
    assert run(tmp_path) == 2
    assert "records: expected 4, got 0" in capsys.readouterr().err
    assert len(lines_of(tmp_path)[1]) == 1


def test_verify_takes_a_file_and_draws_anew(finished, tmp_path, capsys):
    path = finished / "quick.json"
    assert cli.main(["verify", TOY, "--out", str(finished), "--batches", "2", "--seed", "5"]) == 0
    assert "2 of 2 batches" in capsys.readouterr().out
    data = json.loads(path.read_text())
    for row in data["records"]["points"]:
        row["loss"] += 1e-9
    (tmp_path / "quick.json").write_text(json.dumps(data))
    monkey = engine.EXPERIMENTS | {"toy": TOY}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "EXPERIMENTS", monkey)
        units = collecting.units_of(toy.EXPERIMENT, CONFIG, data["records"])
    assert sum(len(rows) for _, rows in units) == len(data["records"]["points"])
    assert cli.main(["verify", TOY, "--out", str(tmp_path), "--batches", "-3"]) == 2
    assert "batches: expected a positive number, or 0 for all, got -3" in capsys.readouterr().err
    (tmp_path / "quick.json").write_text(json.dumps(data | {"files": {"mine.tsv": "00"}}))
    assert cli.main(["verify", TOY, "--out", str(tmp_path)]) == 2
    assert "files: expected those that" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["plot", "verify"])
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"loss":', '"lost":', "expected records of points with the fields loss, got some without"),
        (
            '"width": 3',
            '"width": NaN',
            "expected the records of a finished run, got a damaged file (the number NaN)",
        ),
        ('"records":', '"record":', "records: expected a JSON object, got NoneType: a damaged file"),
    ],
)
def test_a_damaged_file_is_refused_by_its_name(command, old, new, message, finished, tmp_path, capsys):
    text = (finished / "quick.json").read_text()
    assert old in text
    path = tmp_path / "quick.json"
    path.write_text(text.replace(old, new))
    assert cli.main([command, TOY, "--preset", "quick", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {path}: ")
    assert message in said


def test_a_figure_that_lacks_a_field_names_the_file(finished, tmp_path, capsys, monkeypatch):
    """Of rows that are made of others."""
    monkeypatch.setattr(
        toy.Toy, "plot", lambda self, data, *_: [row["none"] for row in data["records"]["widths"]]
    )
    (tmp_path / "quick.json").write_text((finished / "quick.json").read_text())
    assert cli.main(["plot", TOY, "--preset", "quick", "--out", str(tmp_path)]) == 2
    expected = (
        f"error: {tmp_path / 'quick.json'}: expected records with the field 'none', got some without it"
    )
    assert capsys.readouterr().err.startswith(expected)


def test_collect_writes_what_a_private_run_has_so_far(finished, tmp_path, capsys):
    path, lines = lines_of(finished)
    (tmp_path / path.name).write_text("".join(canonical(line) + "\n" for line in lines[:3]))
    for words in (["collect", TOY, "--out", str(tmp_path)],):
        assert cli.main(words) == 0
        data = json.loads((tmp_path / "quick.json").read_text())
        assert len(data["records"]["points"]) == 8
        assert len(data["unfinished"]) == 2
        assert str(tmp_path) in data["command"]
    assert "unfinished: 2 parts" in capsys.readouterr().out
    assert cli.main(["collect", TOY, "--out", str(tmp_path / "none")]) == 2
    assert "expected one file quick-*.jsonl" in capsys.readouterr().err


def test_a_final_file_is_gone_on_with_elsewhere(finished, tmp_path, capsys, monkeypatch):
    source, lines = lines_of(finished)
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    (before / source.name).write_text("".join(canonical(line) + "\n" for line in lines[:4]))
    assert cli.main(["collect", TOY, "--out", str(before)]) == 0
    monkeypatch.setattr(
        engine, "EXPERIMENTS", engine.EXPERIMENTS | {"toy": TOY}
    )  # as one of the project's own
    assert cli.main(["restore", str(before / "quick.json"), "--out", str(after)]) == 0
    assert "3 batches of" in capsys.readouterr().out
    _, (header, *restored) = lines_of(after)
    assert header == lines[0]
    for got, line in zip(restored, lines[1:4], strict=True):
        assert (got["unit"], got["records"]) == (line["unit"], line["records"])
        assert got["environment"] == line["environment"]
    assert cli.main(["restore", str(before / "quick.json"), "--out", str(after)]) == 0
    assert "0 batches of" in capsys.readouterr().out
    assert run(after) == 0
    computed = len(lines_of(after)[1]) - 1
    assert computed == len(lines) - 1
    whole, data = (json.loads((folder / "quick.json").read_text()) for folder in (finished, after))
    points = [canonical({k: v for k, v in r.items() if k != "seconds"}) for r in whole["records"]["points"]]
    assert points == [
        canonical({k: v for k, v in r.items() if k != "seconds"}) for r in data["records"]["points"]
    ]
    assert data["unfinished"] == []
    assert data["computing"]["batches"] == whole["computing"]["batches"]


DAMAGE = [
    (lambda data: data["records"]["points"].pop(), "records: expected 4 of a batch .width = 5, .*, got 3"),
    (lambda data: data["records"]["points"][0].update(steps=12345), "got none for 1 of points|of a batch"),
    (lambda data: data["records"]["points"][0].pop("loss"), "got damaged ones .KeyError: .loss"),
    (lambda data: data["records"].pop("points"), "records: expected"),
    (lambda data: data["records"].update(points=None), "records: expected rows of points"),
    (lambda data: data.pop("config"), "config: expected a JSON object, got NoneType"),
    (lambda data: data.update(experiment=3), "experiment: expected a JSON string, got int"),
    (lambda data: data.update(provenance=[]), "provenance: expected"),
    (lambda data: data.update(files={"mine.tsv": "00"}), "files: expected those that .* was made of"),
]


@pytest.mark.parametrize(("change", "said"), DAMAGE)
def test_what_cannot_be_restored_whole_is_refused(finished, tmp_path, capsys, monkeypatch, change, said):
    monkeypatch.setattr(engine, "EXPERIMENTS", engine.EXPERIMENTS | {"toy": TOY})
    data = json.loads((finished / "quick.json").read_text())
    change(data)
    path = tmp_path / "quick.json"
    path.write_text(json.dumps(data))
    assert cli.main(["restore", str(path), "--out", str(tmp_path / "out")]) == 2
    assert re.search(said, capsys.readouterr().err)
    assert not list(tmp_path.glob("out/*.jsonl"))


def test_rows_that_would_be_lost_are_an_error(finished, data):
    whole = batches(toy.EXPERIMENT, CONFIG, data)
    assert sum(len(line.records) for line in whole) == len(data["records"]["points"])
    with pytest.raises(ValueError, match="got none for 1 of widths"):
        batches(
            toy.EXPERIMENT, CONFIG, data | {"records": data["records"] | {"widths": [{}] * 3, "delays": []}}
        )


@pytest.mark.parametrize(
    "name",
    [
        "capacity/doubled-cap",
        "joint/quick",
        "pruning/minilm",  # older than one of its experiment's kinds
        pytest.param("capacity/paper", marks=pytest.mark.slow),
        pytest.param("gap/quick", marks=pytest.mark.slow),
    ],
)
def test_committed_files_are_restored_whole(name, monkeypatch):
    monkeypatch.setattr("experiments.pruning.experiment._has_text", lambda _: True)  # the verses or none
    data = json.loads((FIGURES / f"{name}.json").read_text())
    experiment = engine.load(data["experiment"])
    config = collecting.config_from(experiment, data["config"])
    lines = {canonical(line.unit): line for line in batches(experiment, config, data)}
    rows, unfinished, _ = collecting.collect(experiment, config, "", lambda unit: lines.get(canonical(unit)))
    assert unfinished == data["unfinished"]
    kept = [
        {kind: [strip(row) for row in found[kind]] for kind in data["records"]}
        for found in (rows, data["records"])
    ]
    assert kept[0] == kept[1]


def strip(row):
    return {name: value for name, value in row.items() if name != "provenance"}


def test_collect_keeps_what_was_left_out_away_from_the_figures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        toy.Toy, "left_out", lambda self, config: [{"what": "a", "why": "b", "how_to_get": "c"}]
    )
    assert cli.main(["run", TOY, "--workers", "0", "--quiet"]) == 0
    assert cli.main(["collect", TOY]) == 0
    assert not (tmp_path / "figures").exists()
    assert len(list((tmp_path / "runs" / "toy").glob("*/quick.json"))) == 1


def test_a_captions_command_names_the_folder(data, finished):
    assert data["command"].endswith(f"--out {finished}")


def test_status_tells_parts_points_and_estimates(finished, tmp_path, capsys):
    path, lines = lines_of(finished)
    (tmp_path / path.name).write_text(
        "".join(canonical(line) + "\n" for line in lines[:3]) + '{"unit": {"torn'
    )
    assert cli.main(["status", str(tmp_path), "--experiment", TOY]) == 0
    said = capsys.readouterr().out
    assert "toy, preset quick, stopped" in said
    assert "2/4 parts, 2 finished batches, 8 of about 32 points" in said
    assert "line 4: cannot be read" in said
    assert "steps for width 3: steps = ?" in said
    assert cli.main(["status", str(finished), "--experiment", TOY]) == 0
    said = capsys.readouterr().out
    assert "finished" in said
    assert re.search(r"steps for width 3: steps = \d", said)
    with Store(path, {k: v for k, v in lines[0].items() if k != "schema"}):
        assert ", running" in progress.status_lines(path, TOY)[0]


def test_status_of_ones_own_experiment_looks_in_its_own_folder(finished, tmp_path, monkeypatch, capsys):
    path, _ = lines_of(finished)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["status"]) == 0
    assert "--experiment module:attribute looks for those of your own" in capsys.readouterr().out
    folder = tmp_path / "runs" / "toy"
    folder.mkdir(parents=True)
    (folder / path.name).write_text(path.read_text())
    assert cli.main(["status", "--experiment", TOY]) == 0
    assert "toy, preset quick, finished" in capsys.readouterr().out
    assert cli.main(["status", str(folder)]) == 0
    assert "name it by --experiment module:attribute" in capsys.readouterr().out


@pytest.mark.parametrize(
    "notes",
    [
        {"seconds": 3},
        {"seconds": {"total": "x"}},
        {"at": "noon"},
        {"environment": [1]},
        {"environment": {"jax": 1}},
    ],
)
def test_notes_that_someone_changed_stop_neither_status_nor_collect(finished, tmp_path, capsys, notes):
    path, (header, *lines) = lines_of(finished)
    forged = [{k: v for k, v in line.items() if k != "sum"} | notes for line in lines]
    (tmp_path / path.name).write_text("".join(canonical(line) + "\n" for line in [header, *forged]))
    assert cli.main(["status", str(tmp_path), "--experiment", TOY]) == 0
    assert "finished" in capsys.readouterr().out
    assert cli.main(["collect", TOY, "--out", str(tmp_path)]) == 0


@pytest.mark.parametrize("first", ["[]", "3", '{"experiment": "toy"}', '{"schema": 0}'])
def test_status_of_what_is_no_store_of_this_version_says_so(tmp_path, first):
    (tmp_path / "quick-1.jsonl").write_text(first + "\n")
    [line] = progress.status_lines(tmp_path / "quick-1.jsonl", TOY)
    assert "expected schema 1, got" in line


def make_watch(console, **more):
    parts = toy.EXPERIMENT.parts(CONFIG, lambda points: [])
    return progress.Watch(console, parts, range(len(parts)), [], toy.EXPERIMENT, **more)


def feed(watch):
    for unit, points in to_units(toy.EXPERIMENT.kinds, toy.EXPERIMENT.points(CONFIG)):
        records = toy.EXPERIMENT.compute(points)
        watch.unit_done(unit, records)
    watch.part_done(0)


def test_a_log_has_parts_points_rate_and_the_estimate(monkeypatch):
    monkeypatch.setattr(progress, "LOG_EVERY", 0.0)
    shown = io.StringIO()
    with make_watch(Console(file=shown, width=300)) as watch:
        feed(watch)
        feed(watch)
    first, *_, last = shown.getvalue().splitlines()
    assert re.search(r"0/4 parts, 4 of about 36 points, \S+ points/s  width = 3, .*; steps = \?", first)
    assert re.search(r"1/4 parts, 16 of about 44 points, \S+ points/s, about \S+ \S+ left", last)
    assert "\x1b" not in shown.getvalue()


def test_quiet_is_quiet_and_a_terminal_has_a_bar():
    shown = io.StringIO()
    with make_watch(Console(file=shown, force_terminal=True), quiet=True) as watch:
        feed(watch)
    assert shown.getvalue() == ""
    with make_watch(Console(file=shown, force_terminal=True, width=200)) as watch:
        feed(watch)
    assert "parts" in shown.getvalue()
    assert "steps for width 5" in shown.getvalue()


def test_durations_are_for_people():
    assert [progress.duration(s) for s in (3, 61, 7200, 86400 * 3)] == ["3 s", "1 min", "2.0 h", "3.0 days"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", "expected one of capacity"),
        ("no.such:THING", "No module named"),
        ("tests.experiments.toy:NOTHING", "NOTHING"),
        ("tests.experiments.toy:Point", "got type"),
    ],
)
def test_what_is_no_experiment_is_refused(name, said, capsys):
    assert cli.main(["run", name]) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_is_another_one_at_the_worker_is_refused(tmp_path):
    path = tmp_path / "items.csv"
    path.write_text("1\n")
    unit, _ = to_units(toy.EXPERIMENT.kinds, toy.EXPERIMENT.points(CONFIG))[0]
    with pytest.raises(ValueError, match="expected the file that the run began with"):
        computing.work(TOY, {str(path): "0" * 64}, unit)


def test_a_worker_that_cannot_import_the_experiment_says_what_to_do():
    with pytest.raises(
        ValueError, match=r"No module named 'my_own'.* worker on .* needs the same module: start"
    ):
        computing.work("my_own:EXPERIMENT", {}, {})


def test_time_of_nested_compilations_counts_once(monkeypatch):
    clock = environment.CompileClock()
    now = iter([3.0, 4.0, 9.0])
    monkeypatch.setattr(environment.time, "perf_counter", lambda: next(now))
    clock("/jax/core/compile/inner", 1.0)  # 2 to 3
    clock("/jax/core/compile/outer", 3.0)  # 1 to 4
    clock("/jax/other", 5.0)
    clock("/jax/core/compile/later", 2.0)  # 7 to 9
    assert clock.take() == 5.0
    assert clock.take() == 0.0
