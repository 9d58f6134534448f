"""What a run of joint training costs, with paper and pencil: operations, memory and traffic of a device of a mesh.

For `theory.training.sharded` on a mesh of sizes A (data), H (head) and R (row). A device has b' = b/A seeds, h' = h/H
heads and t = m/R rows, so that at each step

- scores and their gradients are 6 t m h' d_k operations a seed, projections 4 (t + m) d h' d_k;
- it holds `BYTES_OF_A_PAIR` for each of its t m pairs, `COPIES_OF_WEIGHTS` of its weights (themselves, those kept, two
  moments, gradient) and `COPIES_OF_PROJECTIONS` of its queries and keys, all float32;
- it takes part in two all-reduces of 4 t m bytes a seed over the head axis and in one of its weights' gradients over
  the row axis, where these are larger than 1.

Operations and traffic are exact counts. The constants of memory are an empirical law: what XLA allocates (arguments,
results, temporaries of the compiled program, on CPU) at small sizes, which a test compares. Source: ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

BYTES_OF_A_PAIR = 29
"""An edge's bit in a byte, and seven float32 or int32: scores, winners, masks, gradients of one pass."""
COPIES_OF_WEIGHTS = 5
COPIES_OF_PROJECTIONS = 7


@dataclass(frozen=True)
class StepCost:
    """What one device does and holds in a step.

    Attributes:
        operations: floating-point operations in matrix products.
        memory_bytes: allocated at once.
        head_bytes: all-reduced over the head axis.
        row_bytes: all-reduced over the row axis.
        collectives: all-reduces.
    """

    operations: int
    memory_bytes: int
    head_bytes: int
    row_bytes: int
    collectives: int


def step_cost(
    *,
    num_items: int,
    d_model: int,
    num_heads: int,
    head_dim: int,
    seeds: int = 1,
    mesh: Mapping[str, int] | None = None,
) -> StepCost:
    """The cost of one step of joint training for each device.

    Args:
        num_items: items m.
        d_model: width d.
        num_heads: heads h.
        head_dim: key dimension of a head, d_k.
        seeds: problems of the batch.
        mesh: sizes of the axes ``data``, ``head``, ``row``; 1 where none is given.

    Raises:
        ValueError: for a size that is not positive, or one that its axis does not divide.
    """
    mesh = dict(mesh or {})
    share = {}
    for name, number, axis in (
        ("seeds", seeds, "data"),
        ("num_heads", num_heads, "head"),
        ("num_items", num_items, "row"),
    ):
        size = mesh.pop(axis, 1)
        if size < 1 or number < 1 or number % size:
            raise ValueError(
                f"{name}: expected a positive multiple of the mesh's {axis} = {size}, got {number}"
            )
        share[axis] = (number // size, size)
    if mesh or d_model < 1 or head_dim < 1:
        raise ValueError(
            f"mesh, d_model, head_dim: expected positive sizes of known axes, got {mesh, d_model, head_dim}"
        )
    (b, _), (h, head_size), (t, row_size) = share["data"], share["head"], share["row"]
    budget = h * head_dim
    pairs, weights, projections = t * num_items, 2 * d_model * budget, (t + num_items) * budget
    return StepCost(
        operations=b * budget * (6 * pairs + 4 * d_model * (t + num_items)),
        memory_bytes=b
        * (BYTES_OF_A_PAIR * pairs + 4 * (COPIES_OF_WEIGHTS * weights + COPIES_OF_PROJECTIONS * projections)),
        head_bytes=2 * b * 4 * pairs if head_size > 1 else 0,
        row_bytes=b * 4 * (weights + 3) if row_size > 1 else 0,
        collectives=2 * (head_size > 1) + (row_size > 1),
    )


def largest_num_items(
    devices: int,
    memory_bytes: float,
    *,
    items_per_width: int = 16,
    num_heads: int = 16,
    budget_over_width: int = 2,
) -> tuple[int, dict[str, int]]:
    """Items of the largest single problem that fits, over the best split of the devices into rows and heads.

    The shape is that of the largest sizes measured here: d = m / 16, 16 heads, D_K = 2 d.

    Args:
        devices: how many.
        memory_bytes: of one device, all of it usable.
        items_per_width: m / d.
        num_heads: heads h.
        budget_over_width: D_K / d.

    Returns:
        The number of items, a multiple of ``devices`` and of ``items_per_width * num_heads`` (0 if none fits), and the
        mesh: of those that hold it the one with the fewest devices along ``head``, whose traffic is the largest.
    """
    unit = math.lcm(devices, items_per_width * num_heads)
    best: tuple[int, dict[str, int]] = (0, {"head": 1, "row": devices})
    for head in range(1, num_heads + 1):
        if devices % head or num_heads % head:
            continue
        mesh = {"head": head, "row": devices // head}

        def fits(multiple: int, mesh: dict[str, int] = mesh) -> bool:
            m = multiple * unit
            d = m // items_per_width
            width = budget_over_width * d // num_heads
            cost = step_cost(num_items=m, d_model=d, num_heads=num_heads, head_dim=width, mesh=mesh)
            return cost.memory_bytes <= memory_bytes

        low, high = 0, 1
        while fits(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        if low * unit > best[0]:
            best = low * unit, mesh
    return best
