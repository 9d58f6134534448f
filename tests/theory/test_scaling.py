"""The scaling model: operations by hand, memory against what XLA allocates, the table of the docs."""

import json
from pathlib import Path

import pytest

from tests.theory.mesh_cases import allocated
from tests.theory.test_training_sharded import result, start
from theory.scaling import largest_num_items, step_cost

DOCS = Path(__file__).parents[2] / "docs" / "scaling.md"


def test_operations_and_traffic_by_hand():
    # One device: 3 items, d = 2, two heads of width 5. Scores 2 * 9 * 10, twice that backwards; projections of queries
    # and of keys 2 * 3 * 2 * 10 each, as much again for their weights.
    assert step_cost(num_items=3, d_model=2, num_heads=2, head_dim=5).operations == 540 + 480
    # Of 2 x 3 x 5 devices each has 7 of 14 seeds, one of 3 heads, 2 of 10 rows.
    cost = step_cost(
        num_items=10, d_model=11, num_heads=3, head_dim=4, seeds=14, mesh={"data": 2, "head": 3, "row": 5}
    )
    assert cost.operations == 7 * 4 * (6 * 2 * 10 + 4 * 11 * 12)
    assert cost.head_bytes == 7 * 2 * 4 * 20
    assert cost.row_bytes == 7 * 4 * (2 * 11 * 4 + 3)
    assert cost.collectives == 3


@pytest.mark.parametrize(
    "change",
    [{"mesh": {"row": 3}}, {"mesh": {"tree": 1}}, {"d_model": 0}, {"seeds": 0}, {"mesh": {"data": 0}}],
)
def test_what_cannot_be_is_refused(change):
    with pytest.raises(ValueError, match="expected"):
        step_cost(**({"num_items": 10, "d_model": 11, "num_heads": 3, "head_dim": 4} | change))


PAIRS = {"num_items": 256, "d_model": 16, "num_heads": 4, "head_dim": 8, "seeds": 1}
WEIGHTS = {"num_items": 128, "d_model": 128, "num_heads": 4, "head_dim": 32, "seeds": 2}


@pytest.mark.parametrize("size", [PAIRS, WEIGHTS], ids=["pairs", "weights"])
def test_memory_is_what_xla_allocates(size):
    assert allocated({}, **size) == pytest.approx(step_cost(**size).memory_bytes, rel=0.25)


@pytest.mark.slow
def test_memory_of_a_device_of_a_mesh_is_what_xla_allocates():
    meshes = [{"row": 2}, {"head": 2}, {"head": 2, "row": 2}]
    found = result(start(4, "memory", json.dumps([[mesh, PAIRS] for mesh in meshes])))
    for mesh, measured in zip(meshes, found, strict=True):
        assert measured == pytest.approx(step_cost(**PAIRS, mesh=mesh).memory_bytes, rel=0.25), mesh


def test_the_largest_size_fits_and_the_next_does_not():
    items, mesh = largest_num_items(1, 80e9)
    assert mesh == {"head": 1, "row": 1}

    def memory(m):
        return step_cost(
            num_items=m, d_model=m // 16, num_heads=16, head_dim=m // 128, mesh=mesh
        ).memory_bytes

    assert memory(items) <= 80e9 < memory(items + 256)


def test_the_table_of_the_docs_is_the_models():
    rows = []
    for devices in (1, 8, 64):
        items, mesh = largest_num_items(devices, 80e9)
        d = items // 16
        cost = step_cost(num_items=items, d_model=d, num_heads=16, head_dim=d // 8, mesh=mesh)
        name = ", ".join(f"{axis}={size}" for axis, size in mesh.items() if size > 1) or "one device"
        traffic = (cost.head_bytes + cost.row_bytes) / 1e9
        gigabytes = f"{traffic:.1f}" if traffic else "0"
        rows.append(
            f"| {devices} | {name} | {items:,} | {d:,} | {2 * d:,} | {cost.operations:.1e} | {gigabytes} GB |"
        )
    text = DOCS.read_text()
    assert "\n".join(rows) in text
    paper = step_cost(num_items=2048, d_model=128, num_heads=16, head_dim=16)
    assert f"one seed takes {paper.memory_bytes / 1e9:.2f} GB" in text
