import json

import pytest

from experiments import readme
from experiments.capacity.prose import values
from tests.experiments.capacity_records import make_data

TEXT = """# Title

<!-- begin: capacity-table -->
FORMER TEXT
<!-- end: capacity-table -->

At four heads <!-- value: capacity.best.h4 -->1.0<!-- /value --> are enough, a ratio of
<!-- value: capacity.best-ratio.h4 --><!-- /value -->.

<!-- begin: capacity-ceiling -->
<!-- end: capacity-ceiling -->
<!-- begin: capacity-real -->
<!-- end: capacity-real -->
<!-- begin: bench -->
kept
<!-- end: bench -->
"""


@pytest.fixture(scope="module")
def data():
    return make_data()


@pytest.fixture
def project(tmp_path, data):
    (tmp_path / "figures" / "capacity").mkdir(parents=True)
    (tmp_path / "figures" / "capacity" / "quick.json").write_text(json.dumps(data))
    (tmp_path / "README.md").write_text(TEXT, encoding="utf-8")
    return tmp_path


def test_fill_writes_blocks_and_numbers_and_nothing_else(data):
    filled = readme.fill(TEXT, {"capacity": data})
    record = next(
        r
        for r in data["records"]["transitions"]
        if r["num_heads"] == 4 and r["trainer"] == "best" and r["embedding"] == "gaussian"
    )
    value, prediction = record["measured_total_key_dim"], record["partition_total_key_dim"]
    assert f"<!-- value: capacity.best.h4 -->{value:.1f}<!-- /value --> are enough" in filled
    assert f"<!-- value: capacity.best-ratio.h4 -->{value / prediction:.2f}<!-- /value -->." in filled
    assert "FORMER TEXT" not in filled
    assert "kept" in filled  # no bench.json
    assert filled.startswith("# Title\n\n<!-- begin: capacity-table -->\n**Total key dimension")
    assert filled.count("| :--- |") == 3
    assert readme.fill(filled, {"capacity": data}) == filled
    assert readme.fill(TEXT, {}) == TEXT


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- begin: capacity-tabel -->\n<!-- end: capacity-tabel -->", "capacity-tabel"),
        ("<!-- value: capacity.best.h5 -->3<!-- /value -->", "capacity.best.h4"),
        ("<!-- value: nothing.best -->3<!-- /value -->", "nothing.best"),
        ("<!-- begin: bench -->\n", "partner"),
        ("<!-- begin: bench -->\n<!-- end: capacity-table -->", "partner"),
        ("text <!-- end: bench -->", "partner"),
        ("<!-- value: capacity.best.h4 -->3", "partner"),
    ],
)
def test_bad_markers_are_errors(data, text, message):
    with pytest.raises(ValueError, match=message):
        readme.fill(text, {"capacity": data})


def test_bench_table_shows_median_ratios():
    quartiles = {"median": 4.25, "low": 4.0, "high": 4.5}
    row = {"num_items": 256, "total_key_dim": 64, "num_heads": 8, "seeds": 1, "temporary_ratio": 0.1234}
    row["speed_over_jax_einsum"] = quartiles
    other = {"num_items": 96, "speed_over_python_loop": {**quartiles, "median": 17.0}}
    filled = readme.fill(TEXT, {"bench": {"sections": {"channel": [row], "sweep_point": [other]}}})
    assert "| channel | m = 256, D_K = 64, h = 8, seeds = 1 | 4.2 [4.0–4.5] | – | 0.123 |" in filled
    assert "| sweep point | m = 96 | – | 17.0 [4.0–4.5] | – |" in filled


def test_values_of_several_sizes_carry_the_size():
    names = values(make_data(sizes=((96, 16), (192, 24)), heads=(3, 4), real=False, budgets=(24,)))
    assert {"96x16.best.h4", "192x24.joint-over-best.h3", "192x24.sweep.24.greedy.fewest"} <= names.keys()
    assert "best.h4" not in names


def test_what_a_run_took_is_a_value_of_every_experiment(data):
    assert readme.values("capacity", data)["core-minutes"] == "10"
    assert "core-minutes" not in readme.values("capacity", {**data, "computing": None})


def test_values_name_every_kind(data):
    names = values(data)
    assert names["plain.h2"] == "not reached"
    assert names["joint.h2"] == "28.0"
    assert names["best-ratio.h2"] == "–"
    assert names["partition.h2"] == "∞"
    assert names["exact.h1"] == "none"
    assert names["exact-heads.h3"] == "2"
    assert names["exact-heads.h16"] == "8"
    assert names["ceiling-predicted.d16"] == "56.9"
    assert names["sweep.24.greedy.most"] == "8"
    assert 0 < float(names["real.words.minilm-pca-whitened.best-ratio"]) < 1
    assert names["num-runs"] == str(len(data["records"]["points"]))


def test_command_fills_then_agrees_and_check_sees_an_edit(project, capsys):
    path = project / "README.md"
    assert readme.main(["--check"], root=project) == 1
    assert path.read_text("utf-8") == TEXT  # --check writes nothing
    assert readme.main([], root=project) == 0
    filled = path.read_text("utf-8")
    assert filled != TEXT
    assert readme.main(["--check"], root=project) == 0
    assert "bench.json is not there" in capsys.readouterr().out
    edited = filled.replace("<!-- value: capacity.best.h4 -->", "<!-- value: capacity.best.h4 -->9")
    path.write_text(edited, encoding="utf-8")
    assert readme.main(["--check"], root=project) == 1
    assert readme.main([], root=project) == 0
    assert path.read_text("utf-8") == filled
    path.write_text("<!-- begin: what -->\n<!-- end: what -->", encoding="utf-8")
    assert readme.main([], root=project) == 1
    assert "what" in capsys.readouterr().err


def test_list_prints_the_names(project, capsys):
    assert readme.main(["--list"], root=project) == 0
    assert "capacity.best.h4\t" in capsys.readouterr().out


@pytest.mark.parametrize("path", readme.texts(), ids=lambda path: path.name)
def test_every_marker_is_known(path, data):
    readme.fill(path.read_text("utf-8"), {"capacity": data, "bench": {"sections": {}}})
