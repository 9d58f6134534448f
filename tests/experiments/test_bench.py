"""`experiments.bench`: the arithmetic of the ratios, the order of the calls, a whole run at a tiny size."""

import io
import json

import pytest
from rich.console import Console

from experiments import bench, timing
from experiments.store import write_json


def test_every_round_calls_each_once_in_an_order_of_its_own():
    seen = []
    names = "abcdef"
    calls = {name: (lambda name=name: seen.append(name)) for name in names}
    times = timing.interleaved_seconds(calls, 20, 60.0)
    assert "".join(seen[:12]) == "aabbccddeeff"  # two calls each to warm up
    rounds = ["".join(seen[start : start + 6]) for start in range(12, len(seen), 6)]
    assert len(rounds) == 20
    assert all(sorted(order) == list(names) for order in rounds)
    before_a = {(names[-1] + order)[order.index("a")] for order in rounds}
    assert len(before_a) >= 4  # nobody always follows the same other one
    assert {name: len(x) for name, x in times.items()} == dict.fromkeys(names, 20)


def test_time_ends_the_rounds_but_not_before_five():
    times = timing.interleaved_seconds({"a": lambda: None}, rounds=100, seconds=0.0)
    assert len(times["a"]) == 5


def test_ratios_are_taken_round_by_round():
    times = {"base": [2.0, 30.0, 8.0], "ours": [1.0, 10.0, 2.0]}  # a slow round slows down both
    assert timing.ratios(times, "base", "ours") == timing.Quartiles(median=3.0, low=2.5, high=3.5)


def test_the_floor_by_hand():
    # 3^2 pairs, two heads of width 2: 8 operations, 2 comparisons, 8 backwards; 4 * 12 + 18 floats
    operations, data = bench._channel_floor(bench.ChannelCase(3, 4, 2))
    assert (operations, data) == (9 * 18, 4 * 66)


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_run_at_a_tiny_size_is_written_and_shown(seeds, tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "CHANNEL_CASES", (bench.ChannelCase(7, 6, 2, 1.0, seeds),))
    monkeypatch.setattr(
        bench, "machine_rates", lambda: {"operations_per_second": 1e9, "bytes_per_second": 1e9}
    )
    config = bench.Config(out=tmp_path / "new" / "bench.json", rounds=2, section=("channel",))
    result = bench.run(config)
    write_json(config.out, result)
    assert [x.name for x in config.out.parent.iterdir()] == ["bench.json"]
    text = config.out.read_text()
    assert str(tmp_path) not in text
    assert json.loads(text) == json.loads(json.dumps(result))
    (record,) = result["sections"]["channel"]
    assert record["seeds"] == seeds
    assert record["head_dim"] == 3
    assert record["speed_over_jax_einsum"]["median"] > 0
    shown = io.StringIO()
    bench.show(result, Console(file=shown, width=200))
    assert "over JAX einsum" in shown.getvalue()


@pytest.mark.parametrize("config", [bench.Config(section=("nothing",)), bench.Config(rounds=1)])
def test_bad_configurations_are_refused(config):
    with pytest.raises(ValueError, match="expected"):
        bench.run(config)
