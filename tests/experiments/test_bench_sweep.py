"""`experiments.bench_sweep`: both ways of running a sweep take the same steps; the record's arithmetic."""

import json

import pytest

from experiments import bench_sweep


def test_both_ways_minimise_the_same_loss_and_add_up():
    case = bench_sweep.SweepCase(
        num_items=31, d_model=7, num_heads=3, head_dims=(2, 1), seeds=2, steps=100, measured_steps=50
    )
    told = []
    (record,) = bench_sweep.sweep_point_records((case,), told.append)
    assert len(told) == 1
    assert len(record["ours_losses"]) == 4
    # 50 steps of float32 from the same weights.
    assert record["ours_losses"] == pytest.approx(record["loop_losses"], rel=1e-3)
    for name in ("ours", "loop"):
        parts = record[f"{name}_compiling_seconds"], record[f"{name}_stepping_seconds"]
        assert record[f"{name}_seconds"] == pytest.approx(sum(parts))
    assert record["speed_over_loop"] == pytest.approx(record["loop_seconds"] / record["ours_seconds"])
    assert len(record["step_speed_over_loop"]) == 2
    assert min(record["step_speed_over_loop"]) > 0
    assert json.loads(json.dumps(record, allow_nan=False))["head_dims"] == [2, 1]


def test_runs_that_end_early_are_not_scaled():
    easy = bench_sweep.SweepCase(
        num_items=5, d_model=7, num_heads=2, head_dims=(5,), seeds=1, steps=500, measured_steps=500
    )
    with pytest.raises(RuntimeError, match="ended early"):
        bench_sweep.sweep_point_records((easy,))
