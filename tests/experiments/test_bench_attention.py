"""`experiments.bench_attention`: floors by hand, a whole run at tiny sizes, what stands in README.md."""

import io
import json

import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from experiments import bench_attention, bench_tables

RATES = {"operations_per_second": 1e9, "bytes_per_second": 1e9}


def test_the_floor_by_hand():
    # 2 examples, 3 heads, 5 x 5 pairs, width 7: two products of 2 * 7 operations for each pair
    operations, data = bench_attention.floor(2, 5, 3, 7, 4, backward=False, causal=False)
    assert (operations, data) == (2 * 3 * 25 * 28, 4 * 2 * 5 * 3 * 7 * 4)
    operations, data = bench_attention.floor(2, 5, 3, 7, 2, backward=True, causal=True)
    assert (operations, data) == (2 * 3 * 15 * 84, 8 * 2 * 5 * 3 * 7 * 2)


@pytest.fixture(scope="module")
def result():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench_attention, "machine_rates", lambda: RATES)
        patch.setattr(bench_attention, "MASK_LENGTH", 16)
        config = bench_attention.Config(
            lengths=(5, 16), num_heads=2, head_dim=4, tokens=16, rounds=2, seconds=0.0, max_gigabytes=1e-6
        )
        return bench_attention.run(config)


def test_all_are_compared_and_those_with_too_many_weights_are_named(result):
    json.dumps(result, allow_nan=False)
    keys = {(p["length"], p["pass"], p["causal"], p["contender"]) for p in result["points"]}
    assert len(keys) == len(result["points"])
    short = {k[3] for k in keys if k[0] == 5}
    assert {"ours", "ours_dense", "ours_blockwise", "jax_nn", "flax_nnx", "flax_linen"} <= short
    assert {k[3] for k in keys if k[0] == 16} - {"torch_sdpa"} == {"ours", "ours_blockwise"}
    assert all("jax_nn" in p["left_out"] for p in result["points"] if p["length"] == 16)
    for p in result["points"]:
        assert p["batch"] == 16 // p["length"]
        if p["contender"] == "ours":
            assert p["time_over_ours"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    assert {r["mask"] for r in result["masks"]} == {"padding (B, 1, 1, S)", "random (B, 1, T, S)", "causal"}


def test_a_contender_that_computes_something_else_stops_the_run():
    right = lambda q: (q,)  # noqa: E731
    programs = {"ours": right, "ours_causal": right, "other": lambda q: (q + 1,)}
    with pytest.raises(AssertionError):
        bench_attention._check_agreement(programs, (jnp.ones(3),), "float32")


def test_it_is_drawn_shown_and_put_into_the_readme(result):
    figure, caption = bench_attention.figure(result)
    assert len(figure.axes) == 8
    assert "python -m experiments.bench_attention" in caption
    shown = io.StringIO()
    bench_attention.show(result, Console(file=shown, width=300))
    assert "forward and backward" in shown.getvalue()
    table = bench_tables.attention_table(result)
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| forward")]
    assert len(rows) == 4
    assert rows[0][3].strip().startswith(f"{_ratio(result, 5, 'jax_nn'):.2f}")
    assert rows[1][3].strip() == "–"  # left out at the greater length


def _ratio(result, length, contender):
    return next(
        p["time_over_ours"]["median"]
        for p in result["points"]
        if (p["length"], p["contender"], p["pass"], p["causal"]) == (length, contender, "forward", False)
    )


def test_lengths_that_are_not_asked_for_are_kept(result):
    fresh = json.loads(json.dumps(result))
    fresh["config"]["lengths"] = [5]
    fresh["points"] = [p | {"rounds": 99} for p in fresh["points"] if p["length"] == 5]
    merged = bench_attention.with_other_lengths(fresh, result)
    assert merged["config"]["lengths"] == [5, 16]
    assert len(merged["points"]) == len(result["points"])
    assert all((p["rounds"] == 99) == (p["length"] == 5) for p in merged["points"])
    other = json.loads(json.dumps(result))
    other["environment"]["versions"]["jax"] = "0"
    with pytest.raises(ValueError, match="versions"):
        bench_attention.with_other_lengths(fresh, other)


def test_a_gpus_files_have_a_name_of_their_own():
    place = {"platform": "gpu", "device_kind": "NVIDIA H100 80GB"}
    name = bench_attention.stem("attention", {"environment": place, "config": {"dtype": "bfloat16"}})
    assert name == "attention-nvidia-h100-80gb-bfloat16"


@pytest.mark.parametrize("config", [{"lengths": ()}, {"lengths": (0,)}, {"rounds": 1}])
def test_bad_configurations_are_refused(config):
    with pytest.raises(ValueError, match="expected"):
        bench_attention.run(bench_attention.Config(**config))


def test_torch_computes_the_same_and_is_timed_by_its_best_number_of_threads():
    times = {
        "ours": [1.0, 1.0],
        "torch_sdpa_one_thread": [3.0, 3.0],
        "torch_sdpa_all_threads": [2.0, 2.0],
        "torch_sdpa_one_thread_causal": [1.0, 1.0],
        "torch_sdpa_all_threads_causal": [2.0, 2.0],
    }
    assert bench_attention._fastest_threads(times) == {
        "ours": "ours",
        "torch_sdpa": "torch_sdpa_all_threads",
        "torch_sdpa_causal": "torch_sdpa_one_thread_causal",
    }
    pytest.importorskip("torch")
    arrays = tuple(np.random.default_rng(0).standard_normal((2, 5, 3, 4), np.float32) for _ in range(4))
    for name, call in bench_attention._torch_calls(arrays, backward=False).items():
        ours = bench_attention._ours(None, name.endswith("_causal"))(*map(jnp.asarray, arrays[:3]))
        np.testing.assert_allclose(call().numpy().swapaxes(1, 2), ours, atol=1e-5)
