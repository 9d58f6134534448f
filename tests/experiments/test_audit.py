"""The audit: graphs over types by hand, a small folder model from end to end, verdicts, figures."""

import json
import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from experiments import cli
from experiments.audit import graphs, records, table, units
from experiments.audit.config import PRESETS, AuditConfig, resolve
from experiments.audit.experiment import EXPERIMENT
from experiments.audit.graphs import content_positions, contexts_of, type_graph
from experiments.audit.weights import query_key_weights, random_singular_values, table_rank
from experiments.pretrained import SIZES, ModelConfig, PretrainedModel, Sizes, forward
from experiments.roles.text import whole_pieces
from theory.bounds import partition_max_edges, partition_total_key_dim
from theory.spectra import effective_rank, stable_rank

QUICK = PRESETS["quick"]


class Words:
    """A tokeniser of words that are numbers: ids from 3 on, [CLS] 1, [SEP] 2."""

    special = frozenset({0, 1, 2})
    prefix, suffix = (1,), (2,)

    def around(self, ids):
        return [*self.prefix, *ids, *self.suffix]

    def encode_all(self, texts):
        return [[int(word) for word in text.split()] for text in texts]

    def encode_joined(self, texts):
        return self.encode_all([" ".join(texts)])[0]


def _model(causal=False, seed=0):
    rng = np.random.default_rng(seed)
    layers, heads, kv, width, dim, vocab = 2, 4, 2 if causal else 4, 12, 3, 23

    def draw(*shape):
        return rng.standard_normal(shape).astype(np.float32) / 3

    norm = {"scale": 1 + draw(layers, width), "bias": draw(layers, width)}
    attention = {
        "query": {"kernel": draw(layers, heads, width, dim)},
        "key": {"kernel": draw(layers, kv, width, dim)},
        "value": {"kernel": draw(layers, kv, width, dim)},
        "out": {"kernel": draw(layers, heads, dim, width)},
    }
    mlp = {"up": {"kernel": draw(layers, width, 7)}, "down": {"kernel": draw(layers, 7, width)}}
    params = {
        "embed": {"tokens": draw(vocab, width)},
        "layers": {"attention": attention, "mlp": mlp, "attention_norm": norm, "mlp_norm": norm},
    }
    config = ModelConfig(
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv,
        head_dim=dim,
        d_model=width,
        d_ff=7,
        vocab_size=vocab,
        max_length=64,
        causal=causal,
        pre_norm=causal,
        norm="layer",
        norm_epsilon=1e-6,
        activation="gelu",
    )
    return PretrainedModel("small", config, params, Words())  # type: ignore[arg-type]


@pytest.fixture
def text(tmp_path):
    rng = np.random.default_rng(5)
    lines = [" ".join(str(3 + word) for word in rng.integers(0, 20, 14)) for _ in range(11)]
    path = tmp_path / "numbers.txt"
    path.write_text("\n".join(lines))
    return str(path)


def test_edges_go_from_a_type_to_the_type_attended_most():
    contexts = np.array([[1, 7, 8, 9, 2], [1, 9, 7, 7, 2], [1, 8, 7, 9, 2], [1, 9, 9, 7, 2]])
    content = (contexts != 1) & (contexts != 2)
    attended = np.zeros((1, 4, 5), int)  # everything attends [CLS] but:
    attended[0, 0, 1], attended[0, 0, 2], attended[0, 0, 3] = 2, 3, 3  # 7 -> 8, 8 -> 9, 9 -> itself
    attended[0, 1, 3] = 2  # 7 -> another 7: no edge
    attended[0, 2, 1] = 3  # 8 -> 9, known
    attended[0, 3, 3] = 1  # 7 -> 9, new
    found = type_graph(contexts, content, attended, causal=False, parts=(0.5, 1.0))
    assert (found.items, found.edges) == (3, 3)
    assert found.growth[1] == {"contexts": 4, "items": 3, "edges": 3}
    assert found.growth[0]["contexts"] == 2
    assert found.sink_share == 6 / 12
    assert found.self_share == 2 / 12
    # Second half: 8 -> 9 is met in context 2 and attended; 7 -> 8 is met there and is not. 7 in context 3 has no 8.
    assert (found.opportunities, found.recurrence) == (2, 0.5)
    assert found.baseline == 0.5  # 8 sees 7 and 9, 7 sees 8 and 9


def test_a_causal_model_sees_what_is_before():
    contexts = np.array([[5, 7, 8], [5, 8, 7]])
    content = np.array([[False, True, True]] * 2)
    attended = np.zeros((1, 2, 3), int)
    attended[0, 0, 2] = 1  # 8 -> 7
    kind = {"causal": True, "parts": (1.0,)}
    assert type_graph(contexts, content, attended, **kind).opportunities == 0  # there 7 comes after 8
    assert type_graph(contexts[[0, 0]], content, attended, **kind).opportunities == 1
    open_ = type_graph(contexts, content, attended, causal=False, parts=(1.0,))
    assert (open_.opportunities, open_.recurrence) == (1, 0.0)


def test_a_repeated_type_is_one_chance():
    contexts = np.array([[7, 8, 9, 9], [7, 8, 8, 9]])
    content = np.ones((2, 4), bool)
    attended = np.zeros((1, 2, 4), int)
    attended[0, 0, 0] = 1  # 7 -> 8
    attended[0, 1, 0] = 2  # 7 -> the second 8
    found = type_graph(contexts, content, attended, causal=False, parts=(1.0,))
    sevens = [(7, 8)]
    assert len(sevens) <= found.opportunities  # 8 -> 7 and 9 -> 7 are known as well
    only = attended.copy()
    only[0, 0, 1:] = [1, 2, 2]  # themselves
    found = type_graph(contexts, content, only, causal=False, parts=(1.0,))
    assert (found.opportunities, found.recurrence, found.baseline) == (1, 1.0, 0.5)


def test_contexts_are_whole_and_from_all_over_the_text(text):
    found = contexts_of(Words(), text, 6, 7)  # type: ignore[arg-type]
    assert found.shape == (6, 7)
    assert (found[:, 0] == 1).all()
    assert (found[:, -1] == 2).all()
    lines = Path(text).read_text().splitlines()
    assert found[0, 1:-1].tolist() == [int(word) for word in lines[0].split()[:5]]
    assert found[-1, 1:-1].tolist() == [int(word) for word in lines[9].split()[5:10]]  # the rest is held out
    with pytest.raises(ValueError, match="num_contexts: expected at most the text's 20, got 21"):
        contexts_of(Words(), text, 21, 7)  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=r"text: expected one with contexts of 900 tokens, got none in '.*text"
    ):
        contexts_of(Words(), text, 8, 900)  # type: ignore[arg-type]
    assert content_positions(_model(), found).sum() == 6 * 5
    assert not content_positions(_model(causal=True), found[:, 1:])[:, 0].any()


def test_lines_within_sentences_are_joined(text, tmp_path):
    """A file with a line break behind every few words has the contexts of the same file without."""
    lines = Path(text).read_text().splitlines()[:10]  # the last one is held out
    words = " ".join(lines).split()
    wrapped = tmp_path / "wrapped.txt"
    wrapped.write_text("\n".join(" ".join(words[i : i + 4]) for i in range(0, len(words), 4)) + 4 * "\n2")
    found = contexts_of(Words(), str(wrapped), 28, 7)  # type: ignore[arg-type]
    assert found[:, 1:-1].ravel().tolist() == [int(word) for word in words]
    mixed = [lines[0], "3 4", "5 6 7 8", "9", lines[1]]  # between longer passages short ones are one
    pieces = [ids[1:-1] for ids in whole_pieces(Words(), mixed, 7)]  # type: ignore[arg-type]
    long = [[int(word) for word in line.split()] for line in mixed[::4]]
    assert pieces == [long[0][:5], long[0][5:10], [3, 4, 5, 6, 7], long[1][:5], long[1][5:10]]


def test_attention_is_the_models_own(text):
    model = _model()
    contexts = contexts_of(model.tokenizer, text, 10, 7)
    found = graphs.most_attended(model, contexts)  # 8 and 2: the last batch is filled up
    tokens, lengths = jnp.asarray(contexts), jnp.full(10, 7)
    weights = forward(model.params, model.config, tokens, lengths, return_weights=True).weights
    np.testing.assert_array_equal(found, np.asarray(weights).argmax(-1).transpose(0, 2, 1, 3))


def test_shared_keys_stand_beside_each_query_head_with_the_norms_scale():
    model = _model(causal=True)
    query, key = query_key_weights(model)
    assert query.shape == key.shape == (2, 4, 12, 3)
    own = np.asarray(model.params["layers"]["attention"]["key"]["kernel"], float)
    scale = np.asarray(model.params["layers"]["attention_norm"]["scale"], float)
    np.testing.assert_allclose(key[1, 3], own[1, 1] * scale[1][:, None], rtol=1e-6)
    np.testing.assert_array_equal(key[:, 0], key[:, 1])
    plain = query_key_weights(_model())[0]
    np.testing.assert_array_equal(plain, _model().params["layers"]["attention"]["query"]["kernel"])


def test_random_weights_use_most_of_their_rank():
    values = random_singular_values(384, 32, 20, 0)
    ranks = effective_rank(values)
    assert ((ranks > 31) & (ranks < 32)).all()
    assert (stable_rank(values) < ranks).all()
    assert 8 < table_rank(_model()) < 12


def _data():
    layers, drawn = [], []
    for name, count in (("minilm-l6", 6), ("smollm2-135m", 30)):
        sizes = {"model": name, "num_heads": 4, "num_kv_heads": 4, "head_dim": 8, "d_model": 64}
        sizes |= {"vocab_size": 1000, "total_key_dim": 32, "table_rank": 50.0, "seconds": 1.0}
        for layer in range(count):
            layers.append(
                sizes
                | {"layer": layer, "random_draws": 2, "effective_rank": [5.0, 6.0], "stable_rank": [2.0, 3.0]}
                | {"random_effective_rank": [7.5, 7.6], "random_stable_rank": [5.0, 5.1]}
                | {"vocab_edges": 900.0, "vocab_edges_at_rank": 700.0}
            )
            drawn.append(
                sizes
                | {"layer": layer, "text": "", "num_contexts": 8, "length": 16, "growth": [0.5, 1.0]}
                | {"items": 90, "edges": 400, "sink_share": 0.4, "self_share": 0.1, "opportunities": 99}
                | {
                    "counts": [
                        {"contexts": 4, "items": 60, "edges": 210},
                        {"contexts": 8, "items": 90, "edges": 400},
                    ]
                }
                | {"recurrence": 0.3, "baseline": 0.05, "held_edges": 300.0, "held_edges_at_rank": 200.0}
                | {"needed_total_key_dim": None, "needed_at_rank": None}
            )
    rows = {"layers": layers, "graphs": drawn}
    return {"preset": "quick", "records": rows | records.summary(rows)}


@pytest.mark.parametrize(
    ("claim", "kind", "change"),
    [
        ("rank", "layers", {"effective_rank": [7.6, 7.7]}),
        ("vocabulary", "layers", {"vocab_edges": 1000.0}),
        ("text", "graphs", {"needed_total_key_dim": 31.0}),
        ("not fixed", "graphs", {"recurrence": 0.6}),
        ("not fixed", "graphs", {"baseline": 0.11}),
    ],
)
def test_each_verdict_can_fail(claim, kind, change):
    rows = _data()["records"]
    verdicts = {row["claim"]: row["verdict"] for row in records.claim_rows(rows)}
    assert set(verdicts.values()) == {"held"}
    spoilt = rows | {kind: [row | change for row in rows[kind]]}
    verdicts = {row["claim"]: row["verdict"] for row in records.claim_rows(spoilt)}
    assert verdicts.pop(claim) == "failed"
    assert set(verdicts.values()) == {"held"}


def test_how_often_the_text_has_to_be_doubled_is_counted():
    """Edges times 1.5, items times 1.2 with each doubling, against what the layer holds of as many items."""
    parts = [
        {"contexts": c, "items": i, "edges": e} for c, i, e in ((4, 9, 9), (8, 1000, 120), (16, 1200, 180))
    ]
    row = {"num_heads": 4, "head_dim": 8, "d_model": 64, "vocab_size": 10**6, "items": 1200, "edges": 180}
    row |= {"counts": parts}
    for heads, given, wanted in ((4, None, 3), (2, 2, 1)):
        held = [partition_max_edges(round(1200 * 1.2**n), 64, heads, 8) for n in range(4)]
        assert wanted == next(n for n in range(4) if 180 * 1.5**n > held[n])
        assert records.doublings(row, given) == wanted
    assert records.doublings(row | {"edges": 10**6}) == 0
    assert records.doublings(row | {"counts": parts[-1:]}) is None
    slower = [parts[1] | {"contexts": 4}, parts[2]]  # the same growth over two doublings
    assert records.doublings(row | {"counts": slower}) == 5
    none = [parts[2] | {"contexts": 8}, parts[2]]
    assert records.doublings(row | {"counts": none}) is None


def test_figures_and_values_are_made_of_the_records(tmp_path):
    data = _data()
    names = {path.name for path in EXPERIMENT.plot(data, tmp_path, "quick")}
    assert {f"quick-{name}.svg" for name in ("ranks", "graph", "fixed")} <= names
    found = records.values(data)
    assert found["minilm-l6.mean_effective_rank"] == "5.5"
    assert found["smollm2-135m.median_recurrence"] == "30%"
    assert found["smollm2-135m.layers_beyond"] == "30"
    assert found["claims.held"] == found["claims.judged"] == "4"
    assert found["minilm-l6.doubling-most"] == "1.90"
    assert found["minilm-l6.recurrence-least"] == found["minilm-l6.recurrence-most"] == "30%"
    made = table.claims_cells(data)
    assert made is not None
    assert [line[0] for line in made.rows] == ["rank", "vocabulary", "text", "not fixed"]
    without = {"records": {"layers": data["records"]["layers"], "graphs": []}}
    made = without["records"] | records.summary(without["records"])
    assert {row["verdict"] for row in made["claims"]} == {"held", "not_run"}
    assert table.graph_cells({"records": made}) is None
    assert table.rank_cells({"records": made}) is not None


def test_a_run_from_the_command_line(tmp_path, text, capsys, monkeypatch):
    model = _model(causal=True)
    here = SimpleNamespace(installed=lambda name: name == "small", load=lambda name: model)
    for module in ("audit.units", "audit.config", "pretrained.load"):
        monkeypatch.setattr(import_module(f"experiments.{module}"), "installed", here.installed)
    sizes = Sizes(*(getattr(model.config, name) for name in Sizes._fields))
    monkeypatch.setitem(SIZES, "small", sizes)
    monkeypatch.setattr("experiments.audit.config.load_tokenizer", lambda name: model.tokenizer)
    monkeypatch.setattr(units, "load", here.load)
    monkeypatch.setattr(EXPERIMENT, "input_files", lambda config: [])
    monkeypatch.setattr(EXPERIMENT, "plots", {})  # drawn above
    command = f"run audit --preset smoke --models small --text {text} --length 7 --workers 0 --out {tmp_path}"
    assert cli.main(command.split()) == 0
    rows = json.loads((tmp_path / "smoke.json").read_text(), parse_constant=pytest.fail)["records"]
    assert [row["layer"] for row in rows["graphs"]] == [row["layer"] for row in rows["layers"]] == [0, 1]
    for row in rows["graphs"]:
        assert row["held_edges"] == partition_max_edges(row["items"], 12, 4, 3)
        needed = partition_total_key_dim(row["items"], row["edges"], 12, 4)
        assert row["needed_total_key_dim"] == (needed if np.isfinite(needed) else None)
    assert "Rank and predicted capacity" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("--length 65", "length: expected at most 64 \\(small has 64 positions\\), got 65"),
        ("--num-contexts 1000", "num_contexts: expected at most the text's 20, got 1000"),
        (
            "--length 200 --models minilm-l6 smollm2-135m --text sample",
            "num_contexts: expected at most the text's 1, got 8 \\(text 'sample', 200 tokens each\\)",
        ),
    ],
)
def test_what_a_model_or_a_text_has_not_is_refused_at_once(monkeypatch, text, asked, said, capsys):
    model = _model()
    monkeypatch.setitem(SIZES, "small", Sizes(2, 4, 4, causal=False, max_length=64, vocab_size=23))
    monkeypatch.setattr("experiments.audit.config.installed", lambda name: True)
    monkeypatch.setattr("experiments.audit.config.load_tokenizer", lambda name: model.tokenizer)
    monkeypatch.setattr(Words, "encode_all", lambda self, texts: [[3] * len(text.split()) for text in texts])
    monkeypatch.setattr(EXPERIMENT, "compute", lambda points: pytest.fail("computed"))
    command = f"run audit --preset smoke --length 7 --workers 0 --models small --text {text} {asked}"
    assert cli.main(command.split()) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert re.search(f"^error: {said}", shown), shown


def test_what_is_missing_is_said(monkeypatch):
    pretrained = import_module("experiments.pretrained.load")
    monkeypatch.setattr(pretrained, "installed", lambda name: name != "smollm2-135m")
    monkeypatch.setattr("experiments.audit.experiment.available", lambda text: False)
    rows = EXPERIMENT.left_out(QUICK)
    assert [(row["what"], row["how_to_get"]) for row in rows] == [
        ("smollm2-135m", "make models"),
        ("attention's graph on a text", "make text, or name a UTF-8 file by --text PATH"),
    ]


@pytest.mark.parametrize(
    ("changes", "given", "message"),
    [
        ({"models": ()}, set(), "models: expected at least one, got none"),
        ({"models": ("minilm-l6", "minilm-l6")}, set(), "models: expected different values"),
        ({"num_contexts": 7}, set(), "num_contexts: expected a multiple of 2, got 7"),
        ({"length": 3}, set(), "length: expected at least 4, got 3"),
        ({"random_draws": 0}, set(), "random_draws: expected a positive integer, got 0"),
        ({"growth": (0.5, 0.9)}, set(), "growth: expected ascending parts up to 1"),
    ],
)
def test_mistakes_are_named(changes, given, message):
    with pytest.raises(ValueError, match=message):
        resolve(replace(QUICK, **changes), given)
    with pytest.raises(FileNotFoundError, match="models: expected an installed model"):
        resolve(replace(QUICK, models=("nowhere",)), {"models"})
    assert resolve(QUICK, set()) == QUICK == AuditConfig()
