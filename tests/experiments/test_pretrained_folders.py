"""Loading models from folders and wheels: what is right gives the reference's numbers, what is wrong is named."""

import hashlib
import importlib
import json
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from experiments.pretrained import WHEELS, Sizes, forward, installed, load, sizes, wheel_files
from experiments.pretrained.load import Wheel, _load_wheel
from experiments.pretrained.tokenizer import TextTokenizer
from tests.experiments import small_models
from tests.experiments.pretrained_reference import SMALL_GOLDEN
from tests.experiments.small_models import SENTENCES, SETTINGS, tensors, write, write_tensors

KINDS = list(SETTINGS)


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def outputs(model):
    tokens = np.full((2, max(map(len, SENTENCES))), 1)
    for row, ids in zip(tokens, SENTENCES, strict=True):
        row[: len(ids)] = ids
    lengths = jnp.array([len(ids) for ids in SENTENCES])
    run = jax.jit(forward, static_argnums=1, static_argnames="return_weights")
    return run(model.params, model.config, jnp.asarray(tokens), lengths, return_weights=True)


def test_a_folder_gives_what_the_reference_gives(kind, tmp_path):
    """Reference: the same folder in transformers, each sentence alone (`tests.experiments.pretrained_reference`)."""
    out = outputs(load(write(tmp_path / kind, kind)))
    with np.load(SMALL_GOLDEN, allow_pickle=False) as golden:
        for row, ids in enumerate(SENTENCES):
            t = len(ids)
            wanted = {
                part: golden[f"{kind}/{part}_{row}"]
                for part in ("hidden", "weights", "logits")
                if f"{kind}/{part}_{row}" in golden
            }
            assert ("logits" in wanted) == (kind != "bert")
            got = {"hidden": out.hidden[row, :t], "weights": out.weights[:, row, :, :t, :t]}
            if out.logits is not None:
                got["logits"] = out.logits[row, :t]
            for part, array in wanted.items():
                assert got[part].shape == array.shape
                assert np.abs(np.asarray(got[part]) - array).max() < 1e-5 * max(1, np.abs(array).max()), part
            assert wanted["weights"].std() > 0.1


def test_heads_are_kept_apart(tmp_path):
    model = load(write(tmp_path / "m", "llama"))
    attention = model.params["layers"]["attention"]
    assert {part: own["kernel"].shape for part, own in attention.items()} == {
        "query": (2, 6, 12, 4),
        "key": (2, 2, 12, 4),
        "value": (2, 2, 12, 4),
        "out": (2, 6, 4, 12),
    }
    theirs = tensors("llama")["model.layers.1.self_attn.o_proj.weight"]
    assert (np.asarray(attention["out"]["kernel"][1, 5]) == theirs[:, 20:24].T).all()


def test_names_without_a_prefix_and_half_precision_are_read(tmp_path):
    whole = load(write(tmp_path / "whole", "bert"))
    bare = {name.removeprefix("bert."): array for name, array in tensors("bert").items()}
    (tmp_path / "bare").mkdir()
    write(tmp_path / "bare", "bert")
    save_file(
        {name: array.astype(ml_dtypes.bfloat16) for name, array in bare.items()},
        tmp_path / "bare" / "model.safetensors",
    )
    half = load(tmp_path / "bare")
    assert half.name == "bare"
    for ours, theirs in zip(jax.tree.leaves(half.params), jax.tree.leaves(whole.params), strict=True):
        assert ours.dtype == jnp.float32
        assert jnp.abs(ours - theirs).max() <= jnp.abs(theirs).max() * 2**-8


def _same(ours, theirs):
    """Whether two models have the same parameters."""
    pairs = zip(jax.tree.leaves(ours.params), jax.tree.leaves(theirs.params), strict=True)
    return all(bool((a == b).all()) for a, b in pairs)


def _first_releases(name):
    """Names in bert-base-uncased as it is published."""
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")


def _buffers(kind):
    """Tensors in published files that are no parameters of the model, or belong to a head behind it."""
    one = np.ones(1, np.float32)
    return {
        "bert": {"bert.embeddings.position_ids": one, "cls.seq_relationship.weight": one, "classifier.bias": one},
        "llama": {"model.layers.0.self_attn.rotary_emb.inv_freq": one},
        "gpt2": {"transformer.h.0.attn.bias": one, "transformer.h.1.attn.masked_bias": one, "lm_head.weight": one},
    }[kind]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "rename"),
    [
        ("bert", _first_releases),
        ("bert", lambda name: _first_releases(name).removeprefix("bert.")),
        ("bert", lambda name: name.removeprefix("bert.")),
        ("llama", lambda name: name.removeprefix("model.")),
        ("gpt2", lambda name: name.removeprefix("transformer.")),
    ],
)
def test_published_names_are_read(tmp_path, kind, rename):
    whole = load(write(tmp_path / "whole", kind))
    other = write(tmp_path / "other", kind)
    for more in ({}, _buffers(kind)):
        write_tensors(other, kind, {rename(name): array for name, array in (tensors(kind) | more).items()})
        assert _same(load(other), whole)


def test_a_norm_named_twice_is_refused(tmp_path):
    own = tensors("bert")
    twice = own | {"bert.embeddings.LayerNorm.gamma": own["bert.embeddings.LayerNorm.weight"]}
    write_tensors(write(tmp_path / "m", "bert"), "bert", twice)
    with pytest.raises(
        ValueError, match=r"expected only tensors of the model, got bert\.embeddings\.LayerNorm\.gamma"
    ):
        load(tmp_path / "m")


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_the_output_matrix_is_tied_or_not_as_the_settings_say(tmp_path, kind):
    own = {name: array for name, array in tensors(kind).items() if name != "lm_head.weight"}
    head = {"lm_head.weight": np.full((small_models.VOCAB, small_models.WIDTH), 0.25, np.float32)}
    folder = write(tmp_path / kind, kind)
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    for tied, arrays in ((True, own), (True, own | head), (False, own | head)):
        change(folder, tie_word_embeddings=tied)
        save_file(arrays, folder / "model.safetensors")
        params = load(folder).params
        assert ("unembed" in params) == (not tied)
        assert tied or (np.asarray(params["unembed"]) == 0.25).all()
    save_file(own, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"expected a tensor 'lm_head\.weight', got none"):
        load(folder)


def test_biases_of_a_llama_are_used_and_have_to_fit_the_settings(tmp_path):
    plain = tensors("llama")
    parts = [name.removesuffix(".weight") for name in plain if "_proj" in name]
    biases = {f"{name}.bias": np.full(len(plain[f"{name}.weight"]), 0.5, np.float32) for name in parts}
    folder = write(tmp_path / "m", "llama")
    with_bias = {"attention_bias": True, "mlp_bias": True}
    for settings in ({}, with_bias):
        change(folder, **settings)
        write_tensors(folder, "llama", plain | biases)
        layers = load(folder).params["layers"]
        for kernel in (layers["attention"]["key"], layers["attention"]["out"], layers["mlp"]["gate"]):
            assert (np.asarray(kernel["bias"]) == 0.5).all()
    write_tensors(folder, "llama", plain)
    with pytest.raises(ValueError, match=r"'attention_bias' to fit the tensors, got no .*q_proj\.bias"):
        load(folder)
    change(folder, attention_bias=False, mlp_bias=False)
    write_tensors(folder, "llama", plain | {name: biases[name] for name in biases if ".mlp." in name})
    with pytest.raises(ValueError, match=r"'mlp_bias' to fit the tensors, got a .*gate_proj\.bias"):
        load(folder)


@pytest.mark.parametrize(
    ("kind", "rename", "said"),
    [
        ("bert", lambda n: f"module.{n}", r"'bert\.embeddings\.word_.*' or 'embeddings\..*got module\."),
        ("llama", lambda n: n.replace("model.embed_tokens", "tok_embeddings"), r"'embed_tokens\.weight', got .* more"),
        ("gpt2", lambda n: n.replace("c_attn", "q_attn"), r"a tensor 'transformer\.h\.0\.attn\.c_attn\.weight'"),
    ],
)  # fmt: skip
def test_other_names_are_refused_with_some_of_them(tmp_path, kind, rename, said):
    write_tensors(write(tmp_path / "m", kind), kind, {rename(name): a for name, a in tensors(kind).items()})
    with pytest.raises(ValueError, match=said):
        load(tmp_path / "m")


def test_a_bias_of_a_layer_too_many_is_no_mask(tmp_path):
    more = tensors("gpt2") | {"transformer.h.2.attn.c_attn.bias": np.ones(36, np.float32)}
    write_tensors(write(tmp_path / "m", "gpt2"), "gpt2", more)
    with pytest.raises(ValueError, match=r"got transformer\.h\.2\.attn\.c_attn\.bias"):
        load(tmp_path / "m")


def change(folder, **settings):
    values = json.loads((folder / "config.json").read_text()) | settings
    (folder / "config.json").write_text(json.dumps({k: v for k, v in values.items() if v is not None}))


@pytest.mark.parametrize(
    ("kind", "settings", "error", "said"),
    [
        ("bert", {"model_type": "t5"}, NotImplementedError, "model_type: expected one of bert, llama, gpt2, got 't5'"),
        ("bert", {"position_embedding_type": "relative_key"}, NotImplementedError, "position_embedding_type"),
        ("bert", {"hidden_act": "mish"}, NotImplementedError, "hidden_act: expected one of gelu"),
        ("bert", {"hidden_size": None}, ValueError, "expected the setting 'hidden_size'"),
        ("bert", {"num_attention_heads": 5}, ValueError, "5 heads"),
        ("bert", {"num_hidden_layers": 1}, ValueError, "expected only tensors of the model, got .*layer.1"),
        ("bert", {"num_hidden_layers": 3}, ValueError, "expected a tensor 'bert.encoder.layer.2.*got none"),
        ("bert", {"intermediate_size": 18}, ValueError, r"of shape \(18, 12\), got \(17, 12\)"),
        ("llama", {"rope_scaling": {"rope_type": "llama3"}}, NotImplementedError, "rope_scaling"),
        ("llama", {"rope_parameters": {"rope_type": "yarn"}}, NotImplementedError, "rope_parameters.*yarn"),
        ("llama", {"num_key_value_heads": 4}, ValueError, "num_kv_heads: expected a divisor"),
        ("llama", {"quantization_config": {"quant_method": "gptq"}}, NotImplementedError, "quantization_config"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, NotImplementedError, "scale_attn_by_inverse"),
        ("bert", {"hidden_size": "12"}, ValueError, "'hidden_size' to be a positive integer, got '12'"),
        ("bert", {"num_attention_heads": True}, ValueError, "'num_attention_heads' to be a positive integer, got True"),
        ("bert", {"type_vocab_size": 2.0}, ValueError, "'type_vocab_size' to be a positive integer, got 2.0"),
        ("bert", {"layer_norm_eps": "1e-6"}, ValueError, "'layer_norm_eps' to be a positive number, got '1e-6'"),
        ("bert", {"hidden_act": ["gelu"]}, NotImplementedError, "hidden_act: expected one of gelu"),
        ("bert", {"model_type": ["bert"]}, NotImplementedError, "model_type: expected one of bert"),
        ("llama", {"head_dim": -4}, ValueError, "'head_dim' to be a positive integer, got -4"),
        ("llama", {"num_key_value_heads": "2"}, ValueError, "'num_key_value_heads' to be a positive integer, got '2'"),
        ("llama", {"max_position_embeddings": 0}, ValueError, "'max_position_embeddings' to be a positive integer"),
        ("llama", {"rope_theta": float("nan")}, ValueError, "'rope_theta' to be a positive number, got nan"),
        ("llama", {"rope_parameters": "none"}, ValueError, "'rope_parameters' to be an object, got 'none'"),
        ("llama", {"tie_word_embeddings": "false"}, ValueError, "'tie_word_embeddings' to be true or false"),
        ("gpt2", {"n_inner": 0}, ValueError, "'n_inner' to be a positive integer, got 0"),
        ("gpt2", {"vocab_size": 28}, ValueError, r"expected 'transformer.wte.weight' of shape \(28, 12\)"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(tmp_path, kind, settings, error, said):
    change(write(tmp_path / "m", kind), **settings)
    with pytest.raises(error, match=said):
        load(tmp_path / "m")


def test_an_unknown_tensor_is_refused(tmp_path):
    """A norm of queries, say, would change what the model computes."""
    write(tmp_path / "m", "llama")
    more = tensors("llama") | {"model.layers.0.self_attn.q_norm.weight": np.ones(4, np.float32)}
    write_tensors(tmp_path / "m", "llama", more)
    with pytest.raises(ValueError, match=r"got model\.layers\.0\.self_attn\.q_norm\.weight"):
        load(tmp_path / "m")


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
def test_weights_that_are_not_finite_are_refused(tmp_path, value):
    write(tmp_path / "m", "gpt2")
    broken = {name: array.astype(np.float64) for name, array in tensors("gpt2").items()}
    broken["transformer.h.1.attn.c_attn.weight"][3, 5] = value
    write_tensors(tmp_path / "m", "gpt2", broken)
    with pytest.raises(
        ValueError, match=r"finite numbers in 'transformer\.h\.1\.attn\.c_attn\.weight', got 1 of 432"
    ):
        load(tmp_path / "m")


@pytest.mark.parametrize("dtype", [np.int32, np.bool_])
def test_weights_that_are_no_floating_point_are_refused(tmp_path, dtype):
    write(tmp_path / "m", "gpt2")
    name = "transformer.h.1.attn.c_attn.weight"
    write_tensors(tmp_path / "m", "gpt2", tensors("gpt2") | {name: tensors("gpt2")[name].astype(dtype)})
    with pytest.raises(ValueError, match=rf"expected '{name}' of floating point, got {np.dtype(dtype)}"):
        load(tmp_path / "m")


def test_an_index_without_a_map_is_refused(tmp_path):
    write(tmp_path / "m", "llama")
    for content in ('{"metadata": {}}', '{"weight_map": {"a": 1}}'):
        (tmp_path / "m" / "model.safetensors.index.json").write_text(content)
        with pytest.raises(ValueError, match=r"index\.json: expected a weight_map"):
            load(tmp_path / "m")


def test_sizes_of_a_folder_are_those_of_the_loaded_model(kind, tmp_path):
    folder = write(tmp_path / kind, kind)
    config = load(folder).config
    (folder / "tokenizer.json").unlink()
    assert sizes(str(folder)) == tuple(getattr(config, field) for field in Sizes._fields)
    change(folder, model_type="t5")
    with pytest.raises(
        ValueError, match=r"models: model_type: expected one of bert.*, got 't5' in .*config\.json"
    ):
        sizes(str(folder))


@pytest.mark.parametrize("experiment", ["roles", "pruning", "audit", "conversion"])
def test_files_that_are_read_are_those_whose_change_makes_another_run(tmp_path, experiment):
    own = importlib.import_module(f"experiments.{experiment}.experiment").EXPERIMENT
    llama, bert = (write(tmp_path / kind, kind) for kind in ("llama", "bert"))
    text = tmp_path / "text.txt"
    text.write_text("a line\n" * 10)
    for folder in (llama, bert):
        for name in ("README.md", "training_args.json", "pytorch_model.bin", "other.safetensors"):
            (folder / name).write_text("not read")
    weights = ["model.safetensors.index.json"] + [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    wanted = {str(llama / name) for name in ("config.json", "tokenizer.json", *weights)} | {str(text)}
    if experiment == "conversion":
        config = replace(own.presets["quick"], model=str(llama), text=str(text))
    else:
        wanted |= {str(bert / name) for name in ("config.json", "tokenizer.json", "model.safetensors")}
        config = replace(own.presets["quick"], models=(str(llama), str(bert), "minilm-l6"), text=str(text))
    assert set(own.input_files(config)) == wanted
    assert not set(own.input_files(replace(config, text=""))) & {str(text)}


@pytest.mark.parametrize("experiment", ["roles", "pruning", "audit"])
def test_folders_whose_figures_would_be_called_the_same_are_refused(tmp_path, experiment):
    own = importlib.import_module(f"experiments.{experiment}.experiment").EXPERIMENT
    for parent in ("a", "b"):
        (tmp_path / parent).mkdir()
        write(tmp_path / parent / "bert", "bert")
    write(tmp_path / "a" / "other", "bert")
    write(tmp_path / "a" / "MiniLM L6", "bert")
    bert = str(tmp_path / "a" / "bert")
    lengths = ("segment_length", "sentence_length") if experiment == "roles" else ("length",)
    short = dict.fromkeys(lengths, 12)  # the small models have few positions

    def resolved(*models):
        config = replace(own.presets["smoke"], models=models, **short)
        return own.resolve(config, {"models"}).models

    assert resolved(bert, str(tmp_path / "a" / "other")) == (bert, str(tmp_path / "a" / "other"))
    for first, second in (
        (bert, str(tmp_path / "b" / "bert")),
        (bert, f"{bert}/"),
        (bert, str(tmp_path / "a" / "other" / ".." / "bert")),
        ("minilm-l6", str(tmp_path / "a" / "MiniLM L6")),
    ):
        with pytest.raises(ValueError, match=r"^models: expected folders of different names, got .*, "):
            resolved(first, second)


def test_missing_and_broken_files_are_named(tmp_path):
    folder = write(tmp_path / "m", "llama")
    with pytest.raises(FileNotFoundError, match="expected one of minilm-l6, smollm2-135m or a folder"):
        load(tmp_path / "other")
    shard = folder / "model-00001-of-00002.safetensors"
    content = shard.read_bytes()
    shard.write_bytes(content[:100])
    with pytest.raises(ValueError, match="expected a safetensors file, got a broken one"):
        load(folder)
    shard.unlink()
    with pytest.raises(FileNotFoundError, match=r"expected the shard model-00001-of-00002\.safetensors"):
        load(folder)
    shard.write_bytes(content)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"expected a tokenizer\.json"):
        load(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"expected tokenizer\.json, got none"):
        load(folder)
    (folder / "model.safetensors.index.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"expected model\.safetensors or its index"):
        load(folder)
    (folder / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"expected config\.json"):
        load(folder)


def test_a_shard_outside_the_folder_is_not_read(tmp_path):
    folder = write(tmp_path / "m", "llama")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    index["weight_map"] = dict.fromkeys(index["weight_map"], "../model.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    save_file(tensors("llama"), tmp_path / "model.safetensors")
    with pytest.raises(FileNotFoundError, match="expected the shard"):
        load(folder)


def test_a_text_that_names_a_special_token_holds_its_characters():
    tokenizer = Tokenizer(models.BPE())
    byte_level: Any = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = byte_level
    trainer = trainers.BpeTrainer(
        special_tokens=["<|endoftext|>"], initial_alphabet=byte_level.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(["a"], trainer)
    ours = TextTokenizer(tokenizer)
    assert ours.special == {0}
    for found in (ours.encode("a<|endoftext|>b"), ours.encode_words(["<|endoftext|>"], [False])[0]):
        assert not set(found) & ours.special
        assert "<|endoftext|>" in "".join(ours.pieces(found))


def test_the_tokenizer_says_which_word_a_piece_is_of(tmp_path):
    tokenizer = load(write(tmp_path / "m", "gpt2")).tokenizer
    assert (tokenizer.prefix, tokenizer.suffix, tokenizer.vocab_size) == ((), (), small_models.VOCAB)
    ids, owners = tokenizer.encode_words(["w3", "", "w4 w5"], [True, True, False])
    assert (ids, owners) == ([3, 4, 5], [0, 2, 2])
    assert tokenizer.pieces([3, 28]) == ["w3", "w28"]


class TestWheels:
    """A wheel that is missing or altered, in a stand-in package."""

    @pytest.fixture
    def wheel(self, tmp_path, monkeypatch):
        folder = tmp_path / "small_wheel" / "model"
        folder.mkdir(parents=True)
        (tmp_path / "small_wheel" / "__init__.py").write_text("raise RuntimeError('imported')")
        (folder / "a.bin").write_bytes(b"weights")
        digest = hashlib.sha256(b"weights").hexdigest()
        wheel = Wheel("small-wheel==1.0", "small_wheel", "model", {"a.bin": digest})
        monkeypatch.setitem(WHEELS, "small", wheel)
        monkeypatch.syspath_prepend(tmp_path)
        return folder / "a.bin", digest

    def test_right(self, wheel):
        assert installed("small")
        assert wheel_files("small") == {"a.bin": wheel[0]}

    def test_altered(self, wheel):
        wheel[0].write_bytes(b"other weights")
        found = hashlib.sha256(b"other weights").hexdigest()
        with pytest.raises(ValueError, match=f"{wheel[1]}, got {found}; .*small-wheel.* `make models`"):
            load("small")

    def test_missing(self, wheel):
        wheel[0].unlink()
        assert not installed("small")
        with pytest.raises(FileNotFoundError, match=rf"a.bin .*{wheel[1]}.* run `make models`"):
            load("small")

    def test_not_installed(self, monkeypatch):
        for name, wheel in WHEELS.items():
            absent = Wheel(wheel.distribution, "no_such_package", ".", wheel.sha256)
            monkeypatch.setitem(WHEELS, name, absent)
            _load_wheel.cache_clear()
            assert not installed(name)
            with pytest.raises(FileNotFoundError, match=rf"{wheel.distribution} .*make models"):
                load(name)
