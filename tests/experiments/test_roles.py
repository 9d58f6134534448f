"""The roles experiment: roles by thresholds, what is left out, verdicts, tables, figures, a run of seconds."""

import functools
import io
import json
from dataclasses import replace
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from rich.console import Console

from experiments import cli, verses
from experiments.collecting import units_of
from experiments.points import from_unit
from experiments.roles import table, text, treebank, units
from experiments.roles.claims import CLAIMS, claim_rows
from experiments.roles.config import PRESETS, RELATIONS, RolesConfig, resolve
from experiments.roles.experiment import EXPERIMENT
from experiments.roles.figures import plot
from experiments.roles.figures_maps import head_map
from experiments.roles.naming import ORDER, RULES, roles, syntactic, typical
from experiments.roles.records import role_rows
from experiments.verifying import comparable
from tests.experiments import small_models
from tests.experiments.test_roles_measure import TREEBANK

QUICK = PRESETS["quick"]


def head(model: Any = "minilm-l6", layer: Any = 0, number: Any = 0, **scores: Any):
    plain = dict.fromkeys(units.SCORES, 0.1) | {"offset": -1, "uniform_entropy": 4.0, "entropy": 2.0}
    return {"model": model, "layer": layer, "head": number, "num_tokens": 1000} | plain | scores


def row(relation="det", model: Any = "minilm-l6", accuracy=0.8, offset=0.5, count=100, layer=0, number=0):
    return {
        "model": model,
        "relation": relation,
        "layer": layer,
        "head": number,
        "direction": "dependent to head",
        "accuracy": accuracy,
        "ci_low": accuracy - 0.05,
        "ci_high": accuracy + 0.05,
        "best_offset": 1,
        "offset_accuracy": offset,
        "count": count,
    }


@pytest.mark.parametrize("role", [name for name in RULES if name != "broad"])
def test_a_role_needs_more_than_its_threshold(role):
    rule = RULES[role]
    assert roles(head(**{rule.score: rule.threshold + 0.01}), []) == [role]
    assert roles(head(**{rule.score: rule.threshold}), []) == []
    assert roles(head(**{rule.score: None}), []) == []


def test_broad_heads_are_measured_by_uniform_attention():
    assert roles(head(entropy=3.2), []) == ["broad"]
    assert roles(head(entropy=3.2, uniform_entropy=4.2), []) == []


def test_a_head_that_looks_at_itself_is_not_positional():
    assert roles(head(offset=1, offset_share=0.99), []) == ["positional"]
    assert roles(head(offset=0, offset_share=0.99, self=0.7), []) == ["self"]
    rows = [head(number=0, offset=0, offset_share=0.99), head(number=1, offset=-1, offset_share=0.95)]
    assert typical(rows, []) == {"positional": (0, 1)}


def test_syntactic_heads_beat_the_offset_on_enough_words():
    assert roles(head(previous=0.7), [row()]) == ["previous", "syntactic"]
    assert roles(head(number=1), [row()]) == []
    for bad in (row(offset=0.75), row(count=29), row("all"), row() | {"accuracy": None}):
        assert not syntactic(bad)


def test_typical_heads_are_the_largest_above_the_threshold():
    rows = [head(number=i, previous=share, next=0.1) for i, share in enumerate((0.6, 0.9, 0.4))]
    found = typical(
        rows,
        [
            row(accuracy=0.7),
            row("obj", accuracy=0.9, layer=3, number=2),
            row("all", accuracy=0.99, offset=0.1),
        ],
    )
    assert found == {"previous": (0, 1), "syntactic": (3, 2)}
    assert list(found) == [name for name in ORDER if name in found]


def test_presets_and_their_sizes():
    assert PRESETS["smoke"].models == ("minilm-l6",)
    assert PRESETS["smoke"].text == text.SAMPLE
    assert RolesConfig() == QUICK
    assert len(units.head_points(replace(QUICK, text=text.SAMPLE), "minilm-l6")) == 72
    assert len(units.head_points(replace(QUICK, text=text.SAMPLE), "smollm2-135m")) == 270
    assert len(text.passages(text.SAMPLE)) >= 20


@pytest.mark.parametrize(
    ("fields", "error", "said"),
    [
        ({"num_segments": 0}, ValueError, "num_segments: expected a positive integer, got 0"),
        ({"num_sentences": -1}, ValueError, "num_sentences"),
        (
            {"num_sentences": 1},
            ValueError,
            "num_sentences: expected two or more, half to choose on, .* got 1",
        ),
        ({"models": ()}, ValueError, "models: expected at least one"),
        ({"models": ("minilm-l6", "minilm-l6")}, ValueError, "models: expected different values"),
        ({"models": ("bert",)}, FileNotFoundError, "models: expected minilm-l6, smollm2-135m or folders"),
        ({"segment_length": 7}, ValueError, "segment_length: expected at least 8, got 7"),
        ({"text": "no-such-file"}, FileNotFoundError, "text: expected a UTF-8 file, got 'no-such-file'"),
        ({"repeated_length": 1}, ValueError, "repeated_length: expected at least 2, got 1"),
        (
            {"repeated_length": 4097},
            ValueError,
            r"repeated_length: expected at most 4096 \(smollm2-135m has 8192 ",
        ),
        (
            {"segment_length": 513},
            ValueError,
            r"segment_length: expected at most 512 \(minilm-l6 has 512 positions",
        ),
        ({"sentence_length": 513}, ValueError, r"sentence_length: expected at most 512 \(minilm-l6 has"),
        ({"ud": "no-such-file"}, FileNotFoundError, "ud: expected a treebank at no-such-file"),
    ],
)
def test_bad_fields_are_named(fields, error, said):
    with pytest.raises(error, match=said):
        resolve(replace(QUICK, **fields), fields)


def test_files_that_are_none_are_refused_at_once(tmp_path):
    file = tmp_path / "short"
    file.write_text("one line\n")
    with pytest.raises(ValueError, match="text: expected a file of at least ten lines"):
        resolve(replace(QUICK, text=str(file)), {"text"})
    with pytest.raises(ValueError, match=r"ud: expected CoNLL-U in .*short, got line 1"):
        resolve(replace(QUICK, ud=str(file)), {"ud"})


@pytest.mark.parametrize("field", ["num_segments", "control_segments", "distance_segments", "num_sentences"])
def test_more_than_there_is_is_refused(tmp_path, field):
    (tmp_path / "text.txt").write_text("a line\n" * 10)
    (tmp_path / "dev.conllu").write_text("\n".join([TREEBANK] * 3))
    files = {"text": str(tmp_path / "text.txt"), "ud": str(tmp_path / "dev.conllu")}
    there, what = (12, "sentences of the treebank") if "sent" in field else (9, "passages of the text")
    few = {"num_segments": 2, "control_segments": 2, "distance_segments": 2, "num_sentences": 2}
    config = replace(QUICK, **files, **few)
    resolve(replace(config, **{field: there}), {field})
    with pytest.raises(ValueError, match=f"^{field}: expected at most the {there} {what}, got {there + 1}"):
        resolve(replace(config, **{field: there + 1}), {field})


@pytest.mark.parametrize("module", [text, treebank])
def test_a_damaged_file_at_a_default_place_is_said_at_once(tmp_path, monkeypatch, module):
    (tmp_path / "file").write_text("damaged")
    monkeypatch.setattr(module, "PATH", tmp_path / "file")
    if module is text:
        broken = functools.partial(verses.read_verses, tmp_path / "file")
        monkeypatch.setattr(verses, "read_verses", broken)
    monkeypatch.setattr(treebank, "read", treebank.read.__wrapped__)
    with pytest.raises(ValueError, match=r"expected (SHA-256|sha256) "):
        resolve(QUICK, set())


def test_sentences_that_are_too_long_are_said(tmp_path):
    model = small_models.write(tmp_path / "llama", "llama")
    long = "\n".join(f"{i}\tw{i}\t_\t_\t_\t_\t0\troot\t_\t_" for i in range(1, 12))
    (tmp_path / "dev.conllu").write_text("\n".join([TREEBANK, f"{long}\n", TREEBANK]))
    config = replace(PRESETS["smoke"], models=(str(model),), ud=str(tmp_path / "dev.conllu"))
    config = replace(config, num_sentences=0, sentence_length=10)
    assert EXPERIMENT.left_out(config) == [
        {
            "what": f"1 of 9 sentences of the treebank, in {model}",
            "why": "they have more than 10 tokens",
            "how_to_get": "--sentence-length 11 leaves out none",
        }
    ]
    assert EXPERIMENT.left_out(replace(config, sentence_length=11)) == []


def test_advice_on_long_sentences_is_not_refused(tmp_path):
    """Of a model of 13 positions: what is longer stays left out, whatever is asked for."""
    model = small_models.write(tmp_path / "bert", "bert")
    settings = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(settings | {"max_position_embeddings": 13}))
    lines = {n: [f"{i}\tw{i}\t_\t_\t_\t_\t0\troot\t_\t_\n" for i in range(1, n + 1)] for n in (11, 20)}
    long = "\n".join("".join(lines[n]) for n in (20, 11, 20))
    (tmp_path / "dev.conllu").write_text("\n".join([TREEBANK, long, TREEBANK]))
    config = replace(PRESETS["smoke"], models=(str(model),), ud=str(tmp_path / "dev.conllu"))
    config = replace(config, num_sentences=0, sentence_length=12, segment_length=12)
    (row,) = EXPERIMENT.left_out(config)
    assert row["what"].startswith("3 of 11 sentences")
    assert row["how_to_get"] == "--sentence-length 13 leaves out 2: a model has 13 positions"
    resolve(replace(config, sentence_length=13), {"sentence_length"})


def test_a_half_without_sentences_is_refused(tmp_path):
    model = small_models.write(tmp_path / "llama", "llama")
    long = "".join(f"{i}\tw{i}\t_\t_\t_\t_\t0\troot\t_\t_\n" for i in range(1, 12))
    config = replace(PRESETS["smoke"], models=(str(model),), num_sentences=0, segment_length=12)
    config = replace(config, repeated_length=5, sentence_length=12)
    for name, halves, length in (
        ("b", [long, TREEBANK.split("\n\n")[0] + "\n"], 11),
        ("c", ["1" + long[1:]] * 2, 11),
    ):
        (tmp_path / f"{name}.conllu").write_text("\n".join(halves))
        config = replace(config, ud=str(tmp_path / f"{name}.conllu"))
        resolve(replace(config, sentence_length=length), {"sentence_length"})
        with pytest.raises(ValueError, match=f"sentence_length: expected at least {length}, .* got 10"):
            resolve(replace(config, sentence_length=10), {"sentence_length"})
    (tmp_path / "d.conllu").write_text(long)
    with pytest.raises(ValueError, match="ud: expected a treebank of two or more sentences"):
        resolve(replace(config, ud=str(tmp_path / "d.conllu")), {"ud"})


@pytest.mark.parametrize(
    ("heads", "word"), [((0, 2), 2), ((2, 1), 1), ((0, 3, 4, 2), 2), ((2, 3, 2), 1), ((9, 0), 9)]
)
def test_words_that_depend_on_no_root_are_refused(heads, word):
    lines = [f"{i}\tw{i}\t_\t_\t_\t_\t{head}\tdet\t_\t_" for i, head in enumerate(heads, 1)]
    said = f"a (word|head) {word} .*in sentence 5, of {len(heads)} words \\(w1 w2"
    with pytest.raises(ValueError, match=said):
        treebank.parse(TREEBANK + "\n" + "\n".join(lines))


def test_without_text_and_treebank_the_rest_is_planned(monkeypatch, tmp_path):
    monkeypatch.setattr(text, "PATH", tmp_path / "verses.tsv")
    monkeypatch.setattr(treebank, "PATH", tmp_path / "dev.conllu")
    monkeypatch.setattr("experiments.roles.experiment.installed", lambda name: name != "minilm-l6")
    left = EXPERIMENT.left_out(QUICK)
    assert [r["how_to_get"].split(",")[0] for r in left][:2] == ["make models", "make text"]
    assert "--text PATH" in left[1]["how_to_get"]
    assert "15d613d8" in left[2]["how_to_get"]
    assert "--ud PATH" in left[2]["how_to_get"]
    assert len(left) == 3
    parts = EXPERIMENT.parts(QUICK, lambda points: [])
    assert {part.name.split(":")[0] for part in parts} == {"smollm2-135m"}
    assert sum(part.points for part in parts) == 270 * 2  # heads and control on repeated tokens
    for point in units.head_points(QUICK, "smollm2-135m"):
        assert point.text is None
        assert point.repeated_sequences
    assert units.head_points(QUICK, "minilm-l6") == []


def test_the_treebank_is_found_by_file_or_folder(tmp_path):
    file = tmp_path / "a.conllu"
    file.write_text(TREEBANK)
    assert treebank.find(str(file)) == treebank.find(str(tmp_path)) == file
    assert len(treebank.read(str(tmp_path))) == 4
    (tmp_path / "b.conllu").write_text("no treebank\n")
    with pytest.raises(ValueError, match="got 2 in "):
        treebank.find(str(tmp_path))
    with pytest.raises(ValueError, match=r"ud: expected CoNLL-U in .*b\.conllu, got line 1: 1 fields"):
        treebank.read(str(tmp_path / "b.conllu"))
    (tmp_path / "c.conllu").write_text("# newdoc\n\n")
    with pytest.raises(ValueError, match=r"ud: expected CoNLL-U in .*c\.conllu, got no sentence"):
        treebank.read(str(tmp_path / "c.conllu"))


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"num_hidden_layers": "6", "num_attention_heads": 2}'])
def test_settings_of_a_model_that_are_none_name_the_field_and_the_file(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match=r"models: .*config\.json"):
        resolve(replace(QUICK, models=(str(tmp_path),)), {"models"})


def test_another_treebank_at_the_default_place_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(treebank, "PATH", tmp_path / "dev.conllu")
    treebank.PATH.write_text(TREEBANK)
    treebank.read.cache_clear()
    with pytest.raises(ValueError, match=rf"{treebank.SHA256}, got [0-9a-f]{{64}}"):
        treebank.read("")


def expected_rows():
    """Records in which everything is as expected."""
    minilm = [
        head(layer=i, previous=0.9, next=0.9, entropy=abs(i - 3) + 1.0, separator=0.2 * i, number=0)
        for i in range(6)
    ]
    smollm = [
        head("smollm2-135m", i, 0, sink=0.8, previous=0.9, previous_random=0.9 if i == 5 else 0.1)
        | {"induction": 0.9 if i > 20 else 0.1}
        for i in range(30)
    ]
    distances = [
        {"model": m, "same_group": 1.0, "same_layer": 2.0, "other_layers": 3.0, "x": [], "y": []}
        for m in QUICK.models
    ]
    dependencies = [row(r, m) for r in ("det", "obj") for m in QUICK.models]
    controls = [row(r, m, accuracy=0.4) for r in ("det", "obj") for m in QUICK.models]
    return {
        "heads": minilm + smollm,
        "distances": distances,
        "dependency": dependencies,
        "controls": controls,
    }


def test_every_claim_holds_where_all_is_as_expected():
    assert {r["claim"]: r["verdict"] for r in claim_rows(expected_rows())} == dict.fromkeys(CLAIMS, "held")


def test_syntax_says_how_many_relations_are_over_the_offset_by_their_interval_too():
    rows = expected_rows()
    relations = [
        row(name, model, 0.7, 0.5) | {"ci_low": 0.5 + above}
        for model, margins in (("minilm-l6", (0.09, 0.11, 0.15)), ("smollm2-135m", (0.05, 0.08, 0.11)))
        for name, above in zip(("det", "obj", "nsubj"), margins, strict=True)
    ]
    (said,) = (r for r in claim_rows(rows | {"dependency": relations}) if r["claim"] == "syntax")
    assert said["verdict"] == "held"
    assert said["found"].startswith("3 of 3, 3 of 3 relations")
    assert said["found"].endswith("; 2 and 1 by the lower end of the 95% interval too")


def test_claims_are_not_judged_without_records():
    empty = {kind: [] for kind in ("heads", "distances", "dependency", "controls")}
    assert {r["verdict"] for r in claim_rows(empty)} == {"not_run"}


@pytest.mark.parametrize(
    ("claim", "kind", "changes"),
    [
        ("syntax", "dependency", {"accuracy": 0.55}),
        ("control", "controls", {"accuracy": 0.7}),
        ("layers", "distances", {"same_layer": 3.1}),
        ("groups", "distances", {"same_group": 2.1}),
        ("sinks", "heads", {"sink": 0.4}),
        ("induction", "heads", {"previous_random": 0.4}),
        ("middle", "heads", {"entropy": 1.0}),
        ("separator", "heads", {"separator": 0.5}),
        ("neighbours", "heads", {"next": 0.5}),
    ],
)
def test_every_claim_can_fail(claim, kind, changes):
    rows = expected_rows()
    rows[kind] = [r | changes for r in rows[kind]]
    verdicts = {r["claim"]: r["verdict"] for r in claim_rows(rows)}
    assert verdicts[claim] == "failed"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run on two small models, a small text and a small treebank, in this process."""
    folder = tmp_path_factory.mktemp("roles")
    words = [f"w{3 + (5 * i) % 26}" for i in range(400)]
    lines = [" ".join(words[10 * i : 10 * i + 10]) for i in range(40)]
    (folder / "text.txt").write_text("\n".join(lines))
    (folder / "dev.conllu").write_text("\n".join([TREEBANK] * 8))
    models = [str(small_models.write(folder / kind, kind)) for kind in ("bert", "llama")]
    out = folder / "out"
    command = (
        f"run roles --preset smoke --executor in-process --quiet --out {out} --text {folder / 'text.txt'} "
    )
    command += f"--ud {folder / 'dev.conllu'} --segment-length 12 --sentence-length 12 "
    command += "--repeated-length 5 --repeated-sequences 2"
    assert cli.main([*command.split(), "--models", *models]) == 0
    return out


def test_a_run_has_every_record(finished):
    data = json.loads((finished / "smoke.json").read_text(), parse_constant=pytest.fail)
    rows = data["records"]
    assert data["left_out"] == data["unfinished"] == []
    assert len(rows["heads"]) == len(rows["control_heads"]) == len(rows["roles"]) == 2 * 3 + 2 * 6
    for record in rows["heads"]:
        causal = record["model"].endswith("llama")
        assert all(0 <= record[name] <= 1 for name in ("previous", "self", "first", "delimiter"))
        delimiters = (record["separator"] or 0) + record["punctuation"]
        assert record["delimiter"] == pytest.approx(delimiters, abs=2e-6)
        assert 0 < record["entropy"] <= record["uniform_entropy"] + 1e-5
        null = {name for name in units.SCORES if record[name] is None}
        assert null == ({"next", "separator"} if causal else {"induction", "previous_random", "sink"})
    for kind in ("dependency", "controls"):
        assert [r["relation"] for r in rows[kind]] == 2 * list(RELATIONS)
        found = [r for r in rows[kind] if r["accuracy"] is not None]
        assert {r["relation"] for r in found} == {"all", "nsubj", "det", "obj", "nsubj:pass"}
        assert all(0 <= r["ci_low"] <= r["accuracy"] <= r["ci_high"] <= 1 for r in found)
    trained, control = ([r["entropy"] for r in rows[kind]] for kind in ("heads", "control_heads"))
    assert np.abs(np.subtract(trained, control)).max() > 0.1
    assert rows["roles"] == role_rows(rows)
    assert {r["model"] for r in rows["distances"]} == set(data["config"]["models"])
    for example in rows["examples"]:
        weights = np.array(example["weights"])
        assert weights.shape == 2 * (len(example["tokens"]),)
        assert np.abs(weights.sum(-1) - 1).max() < 0.02
    expected = 2 * 5 + len({r["model"] for r in rows["examples"]})
    assert len(units_of(EXPERIMENT, config_of(data), rows)) == expected


def config_of(data):
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in data["config"].items()}
    return replace(PRESETS["smoke"], **values)


def test_units_computed_again_give_the_same(finished):
    data = json.loads((finished / "smoke.json").read_text())
    found = units_of(EXPERIMENT, config_of(data), data["records"])
    assert {unit["kind"] for unit, _ in found} == set(EXPERIMENT.kinds)
    for unit, records in found:
        kind = EXPERIMENT.kinds[unit["kind"]]
        again = EXPERIMENT.compute(from_unit(EXPERIMENT.kinds, unit))
        assert [comparable(r, kind) for r in again] == [comparable(r, kind) for r in records]


def test_figures_and_tables_of_a_run(finished):
    data = json.loads((finished / "smoke.json").read_text())
    captions = (finished / "smoke-captions.md").read_text()
    drawn = sorted(finished.glob("smoke-*.png"))
    names = {"dependency", "entropy", "map", "scores-bert", "scores-llama"}
    names |= {f"examples-{table.label(row['model'])}" for row in data["records"]["examples"]}
    assert {path.stem for path in drawn} == {f"smoke-{name}" for name in names}
    for path in drawn:
        assert path.stat().st_size > 1000
        assert path.with_suffix(".svg").exists()
        assert f"## {path.stem}\n" in captions
    drawn_map = head_map(data)
    assert drawn_map is not None
    assert {axes.get_xlabel() for axes in drawn_map[0].axes if axes.get_title()} == {"nats a token"}
    plt.close(drawn_map[0])
    console = Console(file=io.StringIO(), width=200)
    EXPERIMENT.show(data, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "nsubj:pass" in shown
    assert "Expected and found" not in shown  # nothing was expected of other models
    assert "claims.held" in table.values(data)


def test_nothing_is_drawn_of_nothing(tmp_path):
    empty = {"config": {"models": ["minilm-l6"]}, "records": {}}
    assert [path.name for path in plot(empty, tmp_path, "empty")] == ["empty-captions.md"]
    assert {make(empty) for make in EXPERIMENT.tables} == {None}


def test_tables_say_what_the_records_say():
    rows = expected_rows()
    rows["roles"] = role_rows(rows)
    data = {"config": {"models": list(QUICK.models)}, "records": rows | {"claims": claim_rows(rows)}}
    values = table.values(data)
    assert values["claims.held"] == values["claims.judged"] == str(len(CLAIMS))
    assert values["minilm.count.previous"] == "6"
    assert values["smollm.best.induction"] == "0.90"
    assert values["minilm.det"] == "80"
    assert values["minilm.det-control"] == "40"
    assert values["minilm.entropy.l0"] == "4.00"
    assert values["smollm.near.same_group"] == "1.000"
    cells = table.dependency_cells(data)
    assert cells is not None
    assert cells.rows[0] == ("det", "100", "80* [75–85] L0H0→", "40", "80* [75–85] L0H0→", "40", "50 (+1)")
    cells = table.role_cells(data)
    assert cells is not None
    assert cells.rows[-1] == ("all heads", "", "6", "30")
