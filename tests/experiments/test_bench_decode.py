"""`experiments.bench_decode`: floors by hand, one program as a cache fills, a whole run at tiny sizes."""

import io
import json

import jax
import numpy as np
import pytest
from rich.console import Console

from experiments import bench_decode
from experiments.bench_decode import DESIGNS, Config, Decoder
from experiments.bench_decode_predictions import outcomes

RATES = {"operations_per_second": 1e9, "bytes_per_second": 1e9}
TINY = Config(
    contexts=(6,), batches=(1, 2), d_model=16, num_heads=4, num_kv_heads=2, latent_dim=8, rope_dim=2, rounds=2,
    seconds=0.0, max_gigabytes=1.5e-6,
)  # fmt: skip


def test_the_floor_by_hand():
    # batch 2, 5 entries, 4 heads, 100 weights, heads of 4: 4 + 4 products an entry and head, 2 x 2 x 4 floats an entry
    operations, data = bench_decode.floor(DESIGNS["gqa"], TINY, 2, 5, 100)
    assert operations == 2 * 2 * (100 + 5 * 4 * 8)
    assert data == 2 * 5 * (2 * 2 * 4) * 4 + 100 * 4
    # every head reads latents of 8 twice and rotated keys of 2 once
    operations, data = bench_decode.floor(DESIGNS["mla_naive"], TINY, 2, 5, 100)
    assert operations == 2 * 2 * (100 + 5 * 4 * 18)
    assert data == 2 * 5 * (8 + 2) * 4 + 100 * 4


@pytest.fixture(scope="module")
def result():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench_decode, "machine_rates", lambda: RATES)
        patch.setattr(bench_decode, "read_rate", lambda: 2e9)
        return bench_decode.run(TINY)


def test_every_design_is_measured_and_what_takes_too_much_memory_is_named(result):
    json.dumps(result, allow_nan=False)
    points = {(p["batch"], p["context"], p["contender"]): p for p in result["points"]}
    assert len(points) == len(result["points"])
    # naive MLA expands 4 heads x (4 + 4 + 2) floats an entry: 160 bytes, of which 1,500 bytes hold 9
    assert bench_decode.expanded_gigabytes(TINY, 2, 6) == pytest.approx(2 * 6 * 160 / 1e9)
    assert {key[2] for key in points if key[0] == 1} == set(DESIGNS)
    assert {key[2] for key in points if key[0] == 2} == set(DESIGNS) - {"mla_naive"}
    assert all(p["left_out"] == (["mla_naive"] if p["batch"] == 2 else []) for p in result["points"])
    for p in result["points"]:
        assert p["measured_bytes_per_token"] == p["bytes_per_token"]
        assert p["tokens_per_second"] == pytest.approx(p["batch"] / p["seconds"]["median"])
        assert p["floor_seconds"] == max(p["floor_operations"] / 1e9, p["floor_bytes"] / 2e9)
    assert points[2, 6, "mqa"]["bytes_per_token"] == 2 * 4 * 4
    assert result["predictions"]["bytes"]["held"]
    assert result["predictions"]["absorbed"]["held"] is None  # no context of 4,096


def test_predictions_can_fail():
    point = {
        "contender": "gqa", "context": 4096, "batch": 1, "temporary_bytes": 30, "cache_bytes": 100,
        "measured_bytes_per_token": 9.0, "bytes_per_token": 8, "speed_over_mha": {"median": 4.5},
    }  # fmt: skip
    found = {name: outcome["held"] for name, outcome in outcomes([point]).items()}
    assert found == {
        "bytes": False,
        "temporary": False,
        "gqa": False,
        "mqa": None,
        "mla": None,
        "absorbed": None,
    }
    better = point | {
        "temporary_bytes": 20,
        "measured_bytes_per_token": 8.0,
        "speed_over_mha": {"median": 3.5},
    }
    found = {name: outcome["held"] for name, outcome in outcomes([better]).items()}
    assert found["bytes"]
    assert found["temporary"]
    assert found["gqa"]


@pytest.mark.parametrize("name", ["gqa", "mla_absorbed"])
def test_one_program_serves_every_length_and_gives_what_is_decoded_in_one_go(name):
    decoder = Decoder(DESIGNS[name], TINY, 2, 6, last=6)
    assert decoder.length == 0
    entries = [np.asarray(x) for x in decoder.cache[:2]]
    outputs = np.stack([np.asarray(decoder())[:, 0] for _ in range(6)], axis=1)
    assert int(decoder.cache.length) == 6
    _, step = bench_decode.layer(DESIGNS[name], TINY)
    empty = bench_decode.filled_cache(DESIGNS[name], TINY, 2, 6, 0)
    inputs = np.broadcast_to(decoder.x, (2, 6, 16))
    whole, _ = jax.jit(step)(decoder.params, inputs, empty)
    np.testing.assert_allclose(outputs, whole, atol=1e-5)
    assert any((x != np.asarray(y)).any() for x, y in zip(entries, decoder.cache[:2], strict=True))
    again = np.asarray(decoder())  # full: back to the start
    np.testing.assert_allclose(again[:, 0], outputs[:, 0], atol=1e-6)


def test_a_form_that_computes_something_else_stops_the_run():
    wrong = {"mha": lambda: np.ones(3), "mha_dense": lambda: np.full(3, 1.01)}
    with pytest.raises(AssertionError):
        bench_decode.check_agreement(wrong, "float32")  # pyright: ignore[reportArgumentType]


def test_it_is_drawn_and_shown(result):
    figure, caption = bench_decode.figure(result)
    assert [axes.get_title() for axes in figure.axes] == ["batch 1", "batch 2"]
    assert "python -m experiments.bench_decode" in caption
    shown = io.StringIO()
    bench_decode.show(result, Console(file=shown, width=200))
    assert "MLA, naive" in shown.getvalue()
    assert "not measured: From 4,096" in shown.getvalue()


def test_a_gpus_files_have_a_name_of_their_own():
    place = {"platform": "gpu", "device_kind": "NVIDIA H100 80GB"}
    name = bench_decode.stem("decode", {"environment": place, "config": {"dtype": "bfloat16"}})
    assert name == "decode-nvidia-h100-80gb-bfloat16"


@pytest.mark.parametrize("config", [{"contexts": ()}, {"batches": (0,)}, {"rounds": 1}, {"num_heads": 3}])
def test_bad_configurations_are_refused(config):
    with pytest.raises(ValueError, match="expected"):
        bench_decode.run(Config(**config))
