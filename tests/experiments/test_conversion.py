"""The conversion experiment: merges that are exact where they should be, losses by hand, a run on a small model."""

import json
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import cli, verses
from experiments.claims import judged
from experiments.cli import main
from experiments.conversion import figures, table, units
from experiments.conversion.config import PRESETS, ConversionConfig, resolve
from experiments.conversion.experiment import EXPERIMENT
from experiments.conversion.merge import METHODS, energy, joined, merged, weight_moments
from experiments.conversion.records import CLAIMS, excesses
from experiments.pretrained import load
from experiments.reading import records
from mha_jax import RotaryEmbedding, multi_head_attention
from tests.experiments import small_models

M, N, K, D, E = 7, 6, 3, 4, 5
STYLES = ("half", "interleaved")


def layer(rng, heads=K):
    shapes = {"query": (N, M, D), "key": (heads, M, D), "value": (heads, M, E), "out": (N, E, M)}
    return {name: {"kernel": rng.standard_normal(shape)} for name, shape in shapes.items()}


def output(params, rope, x):
    own = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), params)
    return np.asarray(multi_head_attention(own, x, rope=rope, is_causal=True))


def turned(key, factors, style):
    """A head's keys, every pair of features multiplied by a complex number of its own."""
    first = np.arange(D // 2) if style == "half" else np.arange(0, D, 2)
    second = first + (D // 2 if style == "half" else 1)
    pairs = (key[..., first] + 1j * key[..., second]) * factors
    result = np.empty_like(key)
    result[..., first], result[..., second] = pairs.real, pairs.imag
    return result


def convert(params, heads, rope, method, moments=None):
    keys, values = merged(params, heads, rope, method, moments or weight_moments(params))
    return {part: joined(params, keys, values, heads, part) for part in ("both", "keys", "values")}


@pytest.mark.parametrize("style", STYLES)
def test_a_fit_is_exact_where_keys_differ_by_what_commutes_with_rope_and_values_are_few(style):
    rng = np.random.default_rng(0)
    params, rope = layer(rng), RotaryEmbedding(style=style)
    x = jnp.asarray(rng.standard_normal((2, 9, M)), jnp.float32)
    one = rng.standard_normal((M, D))
    factors = rng.standard_normal((K, D // 2)) + 1j * rng.standard_normal((K, D // 2))
    params["key"]["kernel"] = np.stack([turned(one, f, style) for f in factors])
    params["value"]["kernel"] = np.einsum(
        "mf,kfe->kme", rng.standard_normal((M, E)), rng.standard_normal((K, E, E))
    )
    before = output(params, rope, x)
    made = convert(params, 1, rope, "svd")
    assert made["both"]["key"]["kernel"].shape == (1, M, D)
    for part in made.values():
        np.testing.assert_allclose(output(part, rope, x), before, atol=1e-4 * np.abs(before).max())
    kept = energy(params, 1, rope, "svd", weight_moments(params), weight_moments(params))
    assert kept.key == pytest.approx(1, abs=1e-9)
    assert kept.value == pytest.approx(1, abs=1e-9)
    # keys that lie in as many dimensions, but differ by a map that mixes pairs: no such merge
    params["key"]["kernel"] = np.einsum("md,kde->kme", one, rng.standard_normal((K, D, D)))
    kept = energy(params, 1, rope, "svd", weight_moments(params), weight_moments(params))
    assert kept.key < 0.95
    assert kept.key_unrotated == pytest.approx(1, abs=1e-9)
    other = convert(params, 1, rope, "svd")["keys"]
    assert np.abs(output(other, rope, x) - output(params, rope, x)).max() > 1e-2


@pytest.mark.parametrize("method", METHODS)
def test_equal_heads_merge_without_loss_and_all_heads_stay_as_they_are(method):
    rng = np.random.default_rng(1)
    params, rope = layer(rng), RotaryEmbedding()
    x = jnp.asarray(rng.standard_normal((1, 8, M)), jnp.float32)
    same = convert(params, K, rope, method)["both"]
    np.testing.assert_allclose(output(same, rope, x), output(params, rope, x), rtol=1e-3, atol=1e-4)
    for name in "key", "value":
        params[name]["kernel"] = np.repeat(params[name]["kernel"][:1], K, 0)
    both = convert(params, 1, rope, method)["both"]
    np.testing.assert_allclose(output(both, rope, x), output(params, rope, x), rtol=1e-3, atol=1e-4)


def test_first_and_mean_by_hand_and_groups_are_consecutive():
    rng = np.random.default_rng(2)
    params = layer(rng, heads=6)
    key = params["key"]["kernel"]
    first = convert(params, 2, RotaryEmbedding(), "first")["both"]
    np.testing.assert_array_equal(first["key"]["kernel"], key[[0, 3]])
    mean = convert(params, 2, RotaryEmbedding(), "mean")
    np.testing.assert_allclose(mean["both"]["key"]["kernel"], [key[:3].mean(0), key[3:].mean(0)])
    np.testing.assert_array_equal(mean["values"]["key"]["kernel"], key)
    np.testing.assert_array_equal(mean["both"]["query"]["kernel"], params["query"]["kernel"])


def test_no_merge_keeps_more_than_the_fit_and_shares_are_those_of_the_maps():
    """Energies against errors of keys and values on inputs."""
    rng = np.random.default_rng(3)
    params, rope = layer(rng), RotaryEmbedding()
    inputs = rng.standard_normal((200, M)) @ rng.standard_normal((M, M))
    stacked = {n: np.einsum("sm,kmd->skd", inputs, params[n]["kernel"]) for n in ("key", "value")}
    flat = {n: x.reshape(200, -1) for n, x in stacked.items()}
    measured = type(weight_moments(params))(*(flat[n].T @ flat[n] / 200 for n in ("key", "value")))
    kept = {}
    for method in METHODS:
        fit = weight_moments(params) if method == "svd" else measured
        kept[method] = energy(params, 1, rope, method, measured, fit)
    for name, of in ("mean", lambda x: x.mean(1, keepdims=True)), ("first", lambda x: x[:, :1]):
        for share, part in (kept[name].key, "key"), (kept[name].value, "value"):
            lost = np.square(stacked[part] - of(stacked[part])).sum() / np.square(stacked[part]).sum()
            assert share == pytest.approx(1 - lost, abs=1e-9)
    for other in ("first", "mean", "svd"):
        assert kept["svd_inputs"].key >= kept[other].key
        assert kept["svd_inputs"].value >= kept[other].value
    assert kept["svd_inputs"].key <= kept["svd_inputs"].key_unrotated
    # the merged key is what the projection of the members on their leading direction says
    made = convert(params, 1, rope, "svd_inputs", measured)["both"]
    u = inputs @ made["value"]["kernel"][0]
    best = np.linalg.lstsq(u, flat["value"], rcond=None)[0]
    lost = np.square(flat["value"] - u @ best).sum() / np.square(flat["value"]).sum()
    assert kept["svd_inputs"].value == pytest.approx(1 - lost, abs=1e-9)


def test_what_cannot_be_merged_is_refused():
    params = layer(np.random.default_rng(0))
    moments = weight_moments(params)
    with pytest.raises(ValueError, match="num_kv_heads: expected a divisor of 3, got 2"):
        merged(params, 2, RotaryEmbedding(), "mean", moments)
    with pytest.raises(ValueError, match="method: expected one of"):
        merged(params, 1, RotaryEmbedding(), "best", moments)  # pyright: ignore[reportArgumentType]
    for rope in (None, RotaryEmbedding(dims=2)):
        with pytest.raises(NotImplementedError, match="rope"):
            merged(params, 1, rope, "mean", moments)
    params["key"]["bias"] = np.zeros((K, D))
    with pytest.raises(NotImplementedError, match="bias"):
        merged(params, 1, RotaryEmbedding(), "mean", moments)


# On a small random model


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    model = small_models.write(folder / "llama", "llama")
    words = load(model).tokenizer
    text = folder / "text.txt"
    rng = np.random.default_rng(0)
    pieces = [p.strip() for p in words.pieces(range(3, 28)) if p.strip()]
    text.write_text("\n".join(" ".join(rng.choice(pieces, 30)) for _ in range(40)), encoding="utf-8")
    return ConversionConfig(
        model=str(model), text=str(text), methods=("mean", "svd_inputs"), healed=("mean",), steps=3, length=8,
        batch=2, learning_rate=1e-2, test_windows=6, calibration_windows=4,
    )  # fmt: skip


@pytest.fixture(scope="module")
def rows(small):
    return units.compute(units.grid(small))


def test_moments_are_those_of_the_keys_in_the_whole_model(small):
    model = load(small.model)
    first, second = units.moments(small.model, small.text, 8, 4)
    tokens = units.spread(units.windows(small.model, small.text, 8)[0], 4)
    # the second layer's input, from a model whose second layer adds nothing and that does not normalise at the end
    layers = model.params["layers"]
    cut = {n: {**layers[n]} for n in layers}
    cut["attention"]["out"] = {"kernel": layers["attention"]["out"]["kernel"].at[1].set(0)}
    cut["mlp"]["down"] = {"kernel": layers["mlp"]["down"]["kernel"].at[1].set(0)}
    params = {"embed": model.params["embed"], "layers": cut}
    hidden = units.forward(params, model.config, jnp.asarray(tokens), jnp.full(4, 8)).hidden
    x = units.normalise(jax.tree.map(lambda a: a[1], layers["attention_norm"]), model.config, hidden)
    key = np.einsum("btm,kmd->btkd", x, layers["attention"]["key"]["kernel"][1]).reshape(32, -1)
    np.testing.assert_allclose(second.key, key.T @ key / 32, rtol=1e-3, atol=1e-5)
    assert first.key.shape == (8, 8)
    assert np.abs(first.key - second.key).max() > 1e-3


def test_losses_by_hand_whatever_the_number_of_sequences(small):
    model = load(small.model)
    sequences = units.windows(small.model, small.text, 8)[1][:5]
    found = units.losses(model.params, model.config, sequences)
    logits = units.forward(model.params, model.config, jnp.asarray(sequences), jnp.full(5, 8)).logits
    assert logits is not None
    chances = np.asarray(jax.nn.log_softmax(logits, -1), np.float64)
    picked = np.take_along_axis(chances[:, :-1], sequences[:, 1:, None], -1)[..., 0]
    np.testing.assert_allclose(found, -picked.mean(-1), rtol=1e-5)


def test_records_of_a_small_model(small, rows):
    assert [(r["method"], r["part"]) for r in rows[:4]] == [
        ("original", "both"), ("mean", "keys"), ("mean", "values"), ("mean", "both"),
    ]  # fmt: skip
    for row, point in zip(rows, units.grid(small), strict=True):
        assert set(row) == units.KINDS["points"].fields
        assert row["status"] == "ok"
        assert (row["healed_loss"] is not None) == (point.steps > 0)
        assert row["test_tokens"] == 6 * 7
    original, mean = rows[0], rows[3]
    assert (original["cache_bytes_per_token"], mean["cache_bytes_per_token"]) == (
        2 * 2 * 2 * 4 * 4,
        2 * 2 * 4 * 4,
    )
    assert original["key_energy"] is None
    assert mean["loss"] != original["loss"]
    assert len(mean["train_losses"]) == 3
    fitted = rows[6]
    assert fitted["key_energy"] > mean["key_energy"]
    assert fitted["value_energy"] > mean["value_energy"]
    assert mean["healed_loss"] != mean["loss"]


def test_healing_lowers_the_loss_and_moves_attention_alone(small):
    model = load(small.model)
    tokens = jnp.asarray(np.repeat(units.windows(small.model, small.text, 8)[0][None, :2], 30, 0))
    attention = model.params["layers"]["attention"]
    trained, curve = units.heal(attention, model.params, model.config, tokens, jnp.float32(1e-2))
    assert float(curve[-1]) < float(curve[0]) - 0.1
    assert jax.tree.structure(trained) == jax.tree.structure(attention)


def test_excesses_and_verdicts(rows):
    found_rows = excesses(rows)
    assert found_rows[0]["excess"] == 0
    by_hand = np.subtract(rows[3]["window_losses"], rows[0]["window_losses"])
    assert found_rows[3]["excess"] == pytest.approx(by_hand.mean())
    assert found_rows[3]["excess_high"] - found_rows[3]["excess"] == pytest.approx(
        1.96 * by_hand.std(ddof=1) / 6**0.5
    )
    healed = np.subtract(rows[3]["healed_window_losses"], rows[0]["healed_window_losses"])
    assert found_rows[3]["healed_excess"] == pytest.approx(healed.mean())
    found = {row["claim"]: row["verdict"] for row in judged(CLAIMS, found_rows)}
    assert set(found) == {"order", "unusable", "values", "rotation", "healing"}
    assert found["order"] == "not_run"  # first and svd were not measured
    assert found["values"] != "not_run"

    def row(method: str, part: str = "both", **numbers: float) -> dict[str, Any]:
        absent: dict[str, Any] = {"healed_excess": None, "key_energy": None, "key_energy_unrotated": None}
        return absent | {"method": method, "part": part} | numbers

    made = [row("first", excess=5.0), row("mean", excess=3.0, healed_excess=2.0), row("svd", excess=2.0)]
    made += [row("svd_inputs", excess=1.0, healed_excess=0.4, key_energy=0.7, key_energy_unrotated=0.9)]
    made += [row(m, p, excess=x) for m in ("mean", "svd_inputs") for p, x in (("keys", 1.0), ("values", 2.0))]
    assert {row["verdict"] for row in judged(CLAIMS, made)} == {"held"}
    made[3] |= {"excess": 2.5, "healed_excess": 2.1, "key_energy": 0.85}
    found = {row["claim"]: row["verdict"] == "held" for row in judged(CLAIMS, made)}
    assert found == {"order": False, "unusable": True, "values": True, "rotation": False, "healing": False}


def test_a_run_from_the_command_line(small, tmp_path):
    options = {"model": small.model, "text": small.text, "length": "8"}
    command = ["run", "conversion", "--preset", "smoke", "--workers", "0", "--out", str(tmp_path)]
    command += [word for name, value in options.items() for word in (f"--{name}", value)]
    assert main(command) == 0
    (path,) = tmp_path.glob("*.json")
    data = json.loads(path.read_text("utf-8"))
    assert len(records(data, "conversions")) == 7
    assert {p.suffix for p in tmp_path.iterdir()} >= {".svg", ".png", ".md"}
    cells = table.conversions_cells(data)
    assert cells is not None
    assert len(cells.rows) == 7
    assert "excess.mean.both" in table.values(data)
    drawn = figures.loss(data)
    assert drawn is not None
    assert len(drawn[0].axes) == 2


def test_what_is_missing_is_said(tmp_path):
    config = replace(PRESETS["smoke"], model=str(tmp_path / "none"), text=str(tmp_path / "none.txt"))
    rows = EXPERIMENT.left_out(config)
    assert ["make models" in row["how_to_get"] for row in rows] == [True, False]
    assert "--text" in rows[1]["how_to_get"]
    assert EXPERIMENT.points(config) == []
    assert EXPERIMENT.input_files(config) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"methods": ("best",)},
        {"healed": ("first",), "methods": ("mean",)},
        {"steps": 0},
        {"learning_rate": 0.0},
    ],
)
def test_bad_configurations_are_refused(wrong):
    with pytest.raises(ValueError, match="expected"):
        resolve(replace(PRESETS["quick"], **wrong), ())


def test_verses_that_are_not_there_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(verses, "PATH", tmp_path / "verses.tsv")
    rows = EXPERIMENT.left_out(replace(PRESETS["smoke"], text=""))
    assert [row["how_to_get"] for row in rows if "text" in row["what"]] == ["make text, or --text FILE"]
    verses.PATH.write_text("", encoding="utf-8")
    assert not [
        row for row in EXPERIMENT.left_out(replace(PRESETS["smoke"], text="")) if "text" in row["what"]
    ]


@pytest.mark.parametrize("value", ["inf", "nan"])
def test_a_number_that_is_none_is_refused_by_name(value, tmp_path, capsys):
    assert cli.main(["run", "conversion", "--learning-rate", value, "--out", str(tmp_path)]) == 2
    assert f"learning_rate: expected finite numbers, got {value}" in capsys.readouterr().err
