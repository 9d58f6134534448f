"""The translation experiment as it is asked: presets, arms, learning rates, verdicts, figures, a small run."""

import io
import json
from dataclasses import asdict, replace
from typing import Any

import pytest
from rich.console import Console

from experiments import cli, style, verses
from experiments.engine import Unfinished
from experiments.points import from_unit, to_units
from experiments.reading import select
from experiments.translation import PRESETS, figures, plan, table
from experiments.translation.claims import CLAIMS, claim_rows
from experiments.translation.config import TranslationConfig, resolve
from experiments.translation.counts import COUNTS, text_counts
from experiments.translation.data import Corpus
from experiments.translation.experiment import EXPERIMENT
from experiments.translation.model import num_parameters
from experiments.translation.plan import BaselinePoint, TextPoint, TranslationPoint, TuningPoint, shape_of
from experiments.translation.published import ARMS, BASE
from experiments.translation.records import interval, summary
from experiments.translation.subwords import encode

PAPER = PRESETS["paper"]


def _perplexity(point):
    """What the records say where everything came out as expected."""
    value = 20 * (1.1 if point.num_heads == 1 else 1.03 if point.head_dim == 4 else 1)
    value *= 1.01 if point.head_dim == 64 else 1
    value *= 1 - point.num_heads * point.head_dim / 1e5
    value *= {"M": 1.1, "S": 1.4}.get(point.arm, 1) * (128 / point.d_model) ** 0.1
    return value * (1 + (point.seed - 1) / 500)


def _record(point, perplexity):
    record = asdict(point) | {"seconds": 1.0}
    if isinstance(point, TextPoint):
        return record | {name: 10 * i for i, name in enumerate(COUNTS)}
    if isinstance(point, BaselinePoint):
        return record | {"untrained_perplexity": 3000.0, "untrained_bleu": 0.0, "copy_bleu": 1.5}
    if isinstance(point, TuningPoint):
        value = 30 + abs(point.learning_rate - 3e-3)
        return record | {"status": "ok", "reason": None, "dev_perplexity": value}
    value = perplexity(point)
    return record | {
        "status": "failed" if value is None else "ok",
        "reason": "diverged" if value is None else None,
        "dev_perplexity": value,
        "perplexity": value,
        "bleu": value and 200 / value,
        "signature": "s",
        "num_params": num_parameters(shape_of(point)),
        "flops_per_step": 7e9 + 1e6 * point.num_heads,
        "seconds_per_step": 0.07 + 0.002 * point.num_heads,
    }


def _none(points):
    raise AssertionError(f"asked for {points}")


def _data(config=PAPER, perplexity=_perplexity):
    rows = {name: {} for name in plan.KINDS}

    def ask(points):
        out = []
        for point in points:
            kind = next(name for name, kind in plan.KINDS.items() if type(point) is kind.point)
            out.append(rows[kind].setdefault(point, _record(point, perplexity)))
        return out

    for part in EXPERIMENT.parts(config, ask):
        part.run()
    lists = {name: list(own.values()) for name, own in rows.items()}
    return {"preset": "paper", "config": asdict(config), "records": lists | summary(config, ask, lists)}


@pytest.fixture(scope="module")
def expected():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verses.Path, "exists", lambda _: True)
        return _data()


def test_arms_are_as_described():
    arms = plan.settings(PAPER)
    sizes = {
        arm: [(p.num_heads, p.head_dim, p.value_head_dim, p.d_model) for p in own]
        for arm, own in arms.items()
    }
    assert sizes["A"] == [(h, 128 // h, 128 // h, 128) for h in (1, 2, 4, 8, 16, 32)]
    assert sizes["B"] == [(8, k, 16, 128) for k in (4, 8, 16, 32)]
    assert sizes["F"] == [(h, 32, 32, 128) for h in (1, 2, 4, 8)]
    assert sizes["M"] == [(16, 16, 16, 64), (32, 16, 16, 32)]
    assert all(p.head_dim == p.d_model // 8 and p.num_heads == 8 for p in arms["S"])
    params = {arm: [num_parameters(shape_of(p)) for p in own] for arm, own in arms.items()}
    assert len(set(params["A"])) == 1
    for fixed, split in zip(params["M"], params["S"], strict=True):
        assert split == pytest.approx(fixed, rel=0.03)
    assert len({p for own in arms.values() for p in own}) == 6 + 3 + 3 + 2 + 2
    assert arms["B"][2] is arms["A"][3]
    assert arms["F"][2] is arms["A"][2]


def test_every_arm_has_a_reference_and_one_rate():
    places = {arm: plan.reference(PAPER, arm) for arm in PAPER.arms}
    assert places["A"] == places["B"]
    assert (places["F"].num_heads, places["F"].head_dim) == (4, 32)
    assert places["M"].d_model == 64
    points = plan.tuning(PAPER, "A")
    assert {p.learning_rate for p in points} == set(PAPER.learning_rates)
    assert {(p.num_steps, p.seed) for p in points} == {(PAPER.tuning_steps, plan.TUNING_SEED)}
    runs = [
        {"learning_rate": r, "dev_perplexity": v}
        for r, v in ((1.0, None), (2.0, 5.0), (3.0, 5.0), (4.0, 6.0))
    ]
    assert plan.chosen(runs) == 2.0
    assert plan.chosen(runs[:1]) == 1.0
    assert plan.rate_of(replace(PAPER, learning_rates=(0.5,)), "A", _none) == 0.5


def test_units_say_everything():
    for points in (
        plan.tuning(PAPER, "M"),
        plan.baseline(PAPER),
        plan.runs_of(PAPER, plan.reference(PAPER, "F"), 0.1),
    ):
        [(unit, _)] = to_units(plan.KINDS, points)
        assert from_unit(plan.KINDS, json.loads(json.dumps(unit))) == points


def test_a_run_as_expected_is_judged_so(expected):
    rows = expected["records"]
    verdicts = {row["claim"]: row["verdict"] for row in rows["claims"]}
    assert set(verdicts.values()) == {"held"}, rows["claims"]
    assert {row["arm"]: row["learning_rate"] for row in rows["rates"]} == dict.fromkeys("ABFMS", 3e-3)
    assert len(rows["points"]) == 16 * 3
    assert len(rows["settings"]) == 6 + 4 + 4 + 2 + 2
    assert len(rows["tuning"]) == 3 * 4  # A and B share theirs


@pytest.mark.parametrize(
    ("claim", "perplexity"),
    [
        ("works", lambda p: 2 * _perplexity(p)),
        ("one head", lambda p: _perplexity(p) / (1.09 if p.num_heads == 1 else 1)),
        ("best count", lambda p: _perplexity(p) * (0.9 if p.num_heads == 2 and p.arm == "A" else 1)),
        ("too many", lambda p: _perplexity(p) * (0.97 if p.num_heads == 32 else 1)),
        ("head size", lambda p: _perplexity(p) * (0.9 if (p.arm, p.head_dim) == ("B", 32) else 1)),
        ("fixed size", lambda p: _perplexity(p) * (1.2 if (p.arm, p.num_heads) == ("F", 8) else 1)),
        ("equal parameters", lambda p: _perplexity(p) * (1.5 if (p.arm, p.d_model) == ("M", 32) else 1)),
    ],
)
def test_verdicts_can_fail(claim, perplexity, monkeypatch):
    monkeypatch.setattr(verses.Path, "exists", lambda _: True)
    [row] = select(_data(perplexity=perplexity)["records"]["claims"], claim=claim)
    assert row["verdict"] == "failed"


def test_nothing_is_judged_that_was_not_run(monkeypatch):
    assert {row["verdict"] for row in claim_rows(PAPER, [], [])} == {"not_run"}
    assert len(claim_rows(PAPER, [], [])) == len(CLAIMS)
    monkeypatch.setattr(verses.Path, "exists", lambda _: True)
    rows = _data(perplexity=lambda _: None)["records"]
    assert {row["verdict"] for row in rows["claims"]} == {"not_run"}
    assert {row["perplexity"] for row in rows["settings"]} == {None}

    def nothing(_):
        raise Unfinished

    assert summary(PAPER, nothing, {"baselines": []})["settings"] == []


def test_intervals_are_students():
    row = interval("x", [1.0, 2.0, 3.0])
    assert row["x"] == 2
    assert row["x_high"] - 2 == pytest.approx(4.302653 / 3**0.5, rel=1e-6)  # t of two degrees of freedom
    assert interval("x", [1.0]) == {"x": 1.0, "x_low": None, "x_high": None}
    assert interval("x", [])["x"] is None


def test_published_numbers_are_the_papers():
    assert [row.num_heads for row in ARMS["A"]] == [1, 4, 8, 16, 32]
    assert all(row.num_heads * row.head_dim == 512 for row in ARMS["A"])
    assert {row.value_head_dim for row in ARMS["B"]} == {64}
    assert min(row.bleu for row in ARMS["A"]) == pytest.approx(BASE.bleu - 0.9)


def test_figures_and_tables(expected, tmp_path):
    paths = EXPERIMENT.plot(expected, tmp_path, "paper")
    names = {path.name for path in paths}
    assert {f"paper-{name}.{suffix}" for name in ("heads", "arms") for suffix in style.SUFFIXES} <= names
    captions = (tmp_path / "paper-captions.md").read_text()
    assert "3 seeds" in captions
    assert "divided by the mean at h = 8 as if that were exact" in captions
    console = Console(file=io.StringIO(), width=120)
    EXPERIMENT.show(expected, console)
    assert "equal parameters" in console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    values = table.values(expected)
    assert values["best.A"] == "4"
    assert values["copy.bleu"] == "1.5"
    assert values["claims.held"] == str(len(CLAIMS))
    assert values["text.trained_on"] == "-20"
    assert "| to report on | 80 | – | 90 | 110 | – |" in table.BLOCKS["text"](expected)
    assert "100 translations" in table.BLOCKS["text"](expected)
    assert "| A | 8 | 16 |" in table.BLOCKS["settings"](expected)
    none = {"config": asdict(PAPER), "records": {}}
    assert EXPERIMENT.plot(none, tmp_path, "none") == [tmp_path / "none-captions.md"]


def _drawn(draw, data) -> tuple[Any, str]:
    drawn = draw(data)
    assert drawn is not None
    return drawn


def test_figures_are_of_the_standard_setting_whatever_its_heads_are(monkeypatch):
    monkeypatch.setattr(verses.Path, "exists", lambda _: True)
    sizes = {"d_model": 32, "d_ff": 64, "heads": (1, 4, 8), "standard_heads": 4}
    data = _data(replace(PAPER, arms=("A", "M", "S"), **sizes))
    figure, caption = _drawn(figures.heads, data)
    assert "mean at h = 4" in caption
    assert [axes.get_ylabel()[-5:] for axes in figure.axes] == ["h = 4"] * 2
    assert "published 5, at h = 4" in figure.axes[0].get_title()
    figure, _ = _drawn(figures.arms, data)
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert "32: 4 x 8" in texts
    assert "32: 8 x 4" not in texts
    labels = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert "standard split (S, and A at h = 4)" in labels


def test_perplexity_is_drawn_without_bleu_and_without_the_standard_setting(monkeypatch):
    monkeypatch.setattr(verses.Path, "exists", lambda _: True)
    data = _data(replace(PAPER, arms=("A",), heads=(1, 2, 64)))
    for row in data["records"]["settings"]:
        row["bleu"] = 0.0
    figure, caption = _drawn(figures.heads, data)
    assert [axes.get_ylabel() for axes in figure.axes] == ["perplexity over that at h = 64"]
    assert "BLEU is 0" in caption
    assert "Stars" not in caption  # nothing is published of 64 heads


def test_no_interval_shows_values_that_there_are_not(expected):
    row = {"perplexity": 343.0, "perplexity_low": -660.0, "perplexity_high": 1347.0}
    row |= {"bleu": 0.5, "bleu_low": -1.0, "bleu_high": 2.0}
    assert table.measured(row, "perplexity", 0) == "343 [1–1347]"
    assert table.measured(row, "bleu", 1) == "0.5 [0.0–2.0]"
    assert (
        table.cut_note([row], "bleu") == " (cut to values that there are: BLEU has none below 0 or above 100)"
    )
    assert "cut to" not in table.BLOCKS["settings"](expected)
    rows = [old | row for old in expected["records"]["settings"]]
    data = expected | {"records": expected["records"] | {"settings": rows}}
    assert "perplexity has none below 1; BLEU" in table.BLOCKS["settings"](data)
    for draw in figures.FIGURES.values():
        figure, caption = _drawn(draw, data)
        assert "cut to values that there are: perplexity" in caption
        bars = [s for axes in figure.axes for c in axes.collections for s in c.get_segments()]
        assert bars
        assert min(bar[:, 1].min() for bar in bars) >= 0


def test_fields_of_arms_that_are_not_asked_for_are_not_checked():
    config = replace(PRESETS["smoke"], d_model=36, heads=(1, 2, 3), standard_heads=3, arms=("A",))
    assert resolve(replace(config, key_dims=(), divisors=(4,)), ()).d_model == 36
    for arm in ("M", "S"):
        with pytest.raises(ValueError, match="divisors: expected divisors of half of d_model"):
            resolve(replace(config, arms=("A", arm), divisors=(4,)), ())
    with pytest.raises(ValueError, match="key_dims: expected at least one"):
        resolve(replace(config, arms=("B",), key_dims=()), ())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arms": ("A", "X")}, "arms: expected names among A, B, F, M, S, got X"),
        ({"heads": (3,)}, "heads: expected divisors of d_model = 128, got 3"),
        ({"heads": ()}, "heads: expected at least one, got none"),
        ({"key_dims": (0,)}, "key_dims: expected positive"),
        ({"num_steps": 205}, "num_steps: expected a multiple of 10"),
        ({"num_steps": 100}, "num_steps: expected more than warmup"),
        ({"vocab_size": 100}, "vocab_size: expected at least 259"),
        ({"dropout_rate": 1.0}, "dropout_rate: expected"),
        ({"divisors": (3,), "arms": ("M",)}, "divisors: expected"),
        ({"length": 1}, "length: expected"),
    ],
)
def test_wrong_fields_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        resolve(replace(TranslationConfig(), **changes), changes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "at least thirty lines, got 0"),
        (b"a\tb\n" * 29, "at least thirty lines, got 29"),
        (b"only one\n" * 40, "two fields, a tabulator between them, in line 1 of .*, got 1"),
        (b"a\tb\tc\n" * 40, "two fields, .* got 3"),
        (b"a\tb\n" * 30 + b"\n" + b"a\tb\n", "two fields, .* in line 31 of .*, got 1"),
        (b"a\t \n" * 40, "text on both sides of line 1 of .*, got an empty translation"),
        (b"a\tb\n\tb\n" * 20, "text on both sides of line 2 of .*, got an empty source"),
        ("é\té\n".encode("latin-1") * 40, "a UTF-8 file, got"),
        (b"a\tb\n" * 40, "lines to train on that are not held out later on, got none"),
    ],
)
def test_a_file_of_pairs_is_read_before_anything_runs(content, message, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"^pairs: expected {message}"):
        resolve(replace(TranslationConfig(), pairs=str(path)), {"pairs"})


def test_pairs_that_are_left_out_cut_or_known_are_counted(tmp_path):
    long, short = "x y " * 20, "x y"
    train = [(short, "a"), (long, "a"), (short, long), (short, "b"), (short, "b")]
    test = [(short, "b"), (long, "b"), (short, long), (short, long), (long, long)]
    text = encode(Corpus("", tuple(train), ((short, "c"), (short, "a")), tuple(test), (4, 1)), 259)
    counts = text_counts(text, 12)
    assert list(counts) == list(COUNTS)
    assert counts == {
        "num_subwords": 259, "train_pairs": 5, "train_repeated": 4, "train_too_long": 2, "dev_pairs": 2,
        "dev_repeated": 1, "dev_cut": 0, "dev_in_training": 1, "test_pairs": 5, "test_cut": 4, "test_targets_cut": 3,
        "test_in_training": 3,
    }  # fmt: skip
    fits = len(text.subwords.encode([short])[0]) + 1  # with END
    assert text_counts(text, fits)["train_too_long"] == 2
    assert text_counts(text, fits - 1)["train_too_long"] == 5
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{short}\t{short} {n}\n" for n in range(30)))
    config = TranslationConfig(pairs=str(path), vocab_size=259)
    with pytest.raises(
        ValueError, match="length: expected one that some pair fits into, so at least 7, got 6"
    ):
        resolve(replace(config, length=6), ())
    resolve(replace(config, length=7), ())  # " x y 0", a subword a byte, and END


def test_a_length_that_nothing_fits_into_is_refused_before_anything_runs(tmp_path, capsys):
    wanted = ["run", "translation", "--preset", "smoke", "--out", str(tmp_path / "out"), "--length", "2"]
    assert cli.main(wanted) == 2
    assert capsys.readouterr().err.startswith(
        "error: length: expected one that some pair fits into, so at least 3"
    )
    assert not (tmp_path / "out").exists()


def test_a_request_for_a_file_that_is_not_there_is_answered_by_its_name(tmp_path, capsys):
    wanted = ["run", "translation", "--preset", "smoke", "--out", str(tmp_path / "out"), "--pairs"]
    for missing in (tmp_path / "none.tsv", tmp_path):
        assert cli.main([*wanted, str(missing)]) == 2
        said = capsys.readouterr().err
        assert said.startswith("error: pairs: expected a UTF-8 file, got")
        assert "Traceback" not in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ("", "Held-out books; means"),
        ("copy", "Made-up lines that were held out; means"),
        ("some/of/mine.tsv", "The last tenth of mine.tsv; means"),
        ("a/train.tsv,dev.tsv,b/test.tsv", "The pairs of test.tsv; means"),
    ],
)
def test_notes_say_what_was_held_out(expected, pairs, said, tmp_path):
    data = expected | {"config": expected["config"] | {"pairs": pairs}}
    assert said in table.BLOCKS["settings"](data)
    EXPERIMENT.plot(data, tmp_path, "paper")
    captions = (tmp_path / "paper-captions.md").read_text()
    assert captions.count(table.held_out(data)) == 2
    assert (captions.count("books") == 0) == bool(pairs)


def test_the_table_of_claims_says_that_the_ledger_judges_otherwise(expected):
    note = table.BLOCKS["claims"](expected)
    assert "on means over seeds (quick: one seed), by the rule as it was written down" in note
    assert "CLAIMS.md asks for intervals as well" in note


def test_presets_are_sound():
    for name, config in PRESETS.items():
        assert resolve(config, ()) == config, name
    assert (PRESETS["base"].d_model, PRESETS["big"].d_model) == (512, 1024)
    assert plan.reference(PRESETS["big"], "A").head_dim == 64


def test_without_verses_nothing_runs_and_it_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(verses, "PATH", tmp_path / "none.tsv")
    config = PRESETS["quick"]
    [row] = EXPERIMENT.left_out(config)
    assert "make text" in row["how_to_get"]
    assert EXPERIMENT.parts(config, _none) == []
    assert EXPERIMENT.left_out(PRESETS["smoke"]) == []
    assert EXPERIMENT.input_files(replace(config, pairs="x.tsv")) == ["x.tsv"]


def test_a_watcher_reads_what_a_batch_is():
    point = plan.reference(PAPER, "A")
    records = [{"bleu": 9.0, "perplexity": 20.0}, {"bleu": 11.0, "perplexity": 22.0}]
    assert EXPERIMENT.describe([point], records) == "A: 8 heads of 16, width 128: BLEU 10.0, perplexity 21.00"
    assert "diverged" in EXPERIMENT.describe([point], [{"bleu": None}])
    assert isinstance(point, TranslationPoint)
    assert EXPERIMENT.program([point]) != EXPERIMENT.program(plan.tuning(PAPER, "A"))


@pytest.mark.slow
def test_a_small_run(tmp_path):
    out = tmp_path / "out"
    options = ["--preset", "smoke", "--heads", "4", "--arms", "A", "--workers", "1"]
    assert cli.main(["run", "translation", *options, "--out", str(out)]) == 0
    data = json.loads((out / "smoke.json").read_text())
    assert data["unfinished"] == []
    [text] = data["records"]["text"]
    assert (text["train_pairs"], text["train_too_long"], text["test_in_training"]) == (1800, 0, 0)
    assert [row["num_heads"] for row in data["records"]["points"]] == [4, 4]
    assert (
        data["records"]["points"][0]["perplexity"] < data["records"]["baselines"][0]["untrained_perplexity"]
    )
