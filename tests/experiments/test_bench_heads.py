"""`experiments.bench_heads`: operations by hand, a whole run at tiny sizes."""

import io
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from experiments import bench_heads
from mha_jax import init_multi_head_attention


def test_operations_by_hand():
    # 2 sequences of 3 tokens, width 5: four projections of 3 x 5 by 5 x 5, two products of 3 x 3 pairs and width 5
    assert bench_heads.product_operations(2, 3, 5) == 3 * 2 * (4 * 2 * 3 * 5 * 5 + 2 * 2 * 3 * 3 * 5)


@pytest.fixture(scope="module")
def result():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            bench_heads, "machine_rates", lambda: {"operations_per_second": 1e9, "bytes_per_second": 1e9}
        )
        config = bench_heads.Config(num_heads=(1, 4), d_model=8, length=16, batch=1, rounds=2, seconds=0.0)
        return bench_heads.run(config)


def test_products_are_the_same_at_every_head_count_and_the_rest_grows(result):
    json.dumps(result, allow_nan=False)
    keys = {(p["contender"], p["num_heads"]) for p in result["points"]}
    assert len(keys) == len(result["points"])
    assert {(name, h) for name in ("ours", "ours_dense", "jax_nn") for h in (1, 4)} <= keys
    by = {(p["contender"], p["num_heads"]): p for p in result["points"]}
    for name in ("ours_dense", "jax_nn"):
        one, four = by[name, 1], by[name, 4]
        assert one["product_operations"] == four["product_operations"] == 3 * (8 * 16 * 64 + 4 * 256 * 8)
        assert (one["head_dim"], four["head_dim"]) == (8, 2)
        assert four["softmax_entries"] == 4 * one["softmax_entries"] == 4 * 256
        # what is counted beyond the products is in proportion to h T^2, but for sums over tokens and widths
        rest = [p["compiled_operations"] - p["product_operations"] for p in (one, four)]
        assert 0 < rest[0] < rest[1] < 4.5 * rest[0]
        assert four["transcendentals"] >= 4 * 256
        assert one["time_over_fewest_heads"] == {"median": 1.0, "low": 1.0, "high": 1.0}


def test_it_is_drawn_and_shown(result):
    figure, caption = bench_heads.figure(result)
    assert len(figure.axes) == 2
    assert "python -m experiments.bench_heads" in caption
    shown = io.StringIO()
    bench_heads.show(result, Console(file=shown, width=300))
    assert "softmax" in shown.getvalue()
    table = bench_heads.heads_cells(result)
    assert [row[:3] for row in table.rows] == [("1", "8", "0.00"), ("4", "2", "0.00")]
    counted = table.columns.index("time,\nours")
    assert table.columns[3:counted] == ("more,\nours", "more,\nours, dense", "more,\njax.nn")
    assert table.rows[0][counted] == "1.00 [1.00–1.00]"
    assert ("left out: torch_sdpa" in shown.getvalue()) == bool(result["left_out"])
    assert bench_heads.stem("heads", result) == "heads"


def test_pytorch_computes_the_same_and_gets_its_better_number_of_threads():
    times = {"ours.1": [1.0, 1.0], "ours.2": [2.0, 2.0]}
    seconds = {"a.1": 3.0, "a.2": 1.0, "b.1": 2.0, "b.2": 3.0}
    times |= {f"torch_sdpa_{name}": [s, s] for name, s in seconds.items()}
    found = bench_heads._fastest_threads(times, (1, 2))
    assert found["torch_sdpa.1"] == "torch_sdpa_a.1"
    assert found["torch_sdpa.2"] == "torch_sdpa_a.2"
    pytest.importorskip("torch")
    params = init_multi_head_attention(jax.random.key(0), 8, 2)
    x, grad = np.random.default_rng(0).standard_normal((2, 2, 5, 8), np.float32)
    expected, _ = bench_heads._step(bench_heads.CONTENDERS["ours_dense"])(
        params, jnp.asarray(x), jnp.asarray(grad)
    )
    for call in bench_heads._torch_calls(params, x, grad).values():
        np.testing.assert_allclose(call()[0].detach().numpy(), expected, atol=1e-5)


def test_a_contender_that_computes_something_else_stops_the_run():
    right = (np.ones(3), (None, np.ones(3)))
    with pytest.raises(AssertionError):
        bench_heads._check_agreement(
            {"ours_dense": right, "other": (np.ones(3), (None, np.zeros(3)))}, "float32"
        )


@pytest.mark.parametrize("config", [{"num_heads": ()}, {"num_heads": (3,)}, {"rounds": 1}, {"length": 0}])
def test_bad_configurations_are_refused(config):
    with pytest.raises(ValueError, match="expected"):
        bench_heads.run(bench_heads.Config(**config))
