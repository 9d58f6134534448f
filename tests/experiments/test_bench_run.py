"""`experiments.bench_run`: times add up, the second run compiles nothing, operations by hand."""

import json

import jax
import pytest

from experiments import bench_run, environment


def test_operations_by_hand():
    # 3 items, d = 2, two heads of width 5: scores 2 * 9 * 10, twice that backwards;
    # projections of queries and keys 2 * 2 * 3 * 2 * 10, once more backwards
    assert bench_run.step_operations(3, 2, 2, 5) == 3 * 180 + 2 * 240


def test_parts_of_a_run_add_up_and_a_second_run_fetches_its_programs(monkeypatch):
    monkeypatch.setattr(environment, "_programs", None)  # another test's run may have kept its programs
    tiny = bench_run.RunCase(num_heads=(2,), seeds=2, max_steps=50, head_dim=2)
    quick = bench_run.PRESETS["quick"]
    small = bench_run.replace(quick, num_items=(12,), d_model=(4,), trainers=("joint",))
    monkeypatch.setitem(bench_run.PRESETS, "quick", small)
    (record,) = bench_run.run_records(1e9, cases=(tiny,))
    for name in ("first", "again"):
        run = record[name]
        parts = [v for k, v in run.items() if k.endswith("_seconds")]
        assert run["seconds"] == pytest.approx(sum(parts))
        assert run["share_not_computing"] == pytest.approx(1 - run["computing_seconds"] / run["seconds"])
        assert run["batches"] >= 1
    assert record["again"]["batches"] == record["first"]["batches"]
    assert record["step_operations"] == 2 * bench_run.step_operations(12, 4, 2, 2)
    parts = ("products_at_peak", "channel", "loss", "optimiser")
    assert record["step_seconds"] == pytest.approx(sum(record[f"{part}_seconds"] for part in parts))
    assert json.loads(json.dumps(record, allow_nan=False))["num_heads"] == [2]
    assert getattr(jax.config, "jax_compilation_cache_dir") is None  # noqa: B009
