"""The task of several relations at once, and the laws that values are drawn from.

m items with fixed embeddings; under each of R relations every item has one target (a derangement, as in the channel's
graphs), and no two relations agree on any item, so that an item has R different targets. All items are in the context.
Values are drawn afresh for every example: what is learned is whom to read, not what is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from theory.embeddings import gaussian_unit_norm
from theory.graphs import permutation_graph
from theory.problems import seeded_rng

Law = Literal["gaussian", "signs"]
LAWS: tuple[Law, ...] = ("gaussian", "signs")


@dataclass(frozen=True, eq=False)
class SeveralRelations:
    """One seed's task.

    Attributes:
        embeddings: ``(m, d)``, unit norm.
        targets: ``targets[r, u]``, the target of item u under relation r.
    """

    embeddings: Float[np.ndarray, "m d"]
    targets: Int[np.ndarray, "R m"]


def make_relations(num_items: int, d_model: int, num_relations: int, seed: int) -> SeveralRelations:
    """Draw the task of one seed. The first relations are the same whatever their number.

    Derangements are drawn until one disagrees with all before it, about ``e^R`` times.

    Raises:
        ValueError: if a size is not positive, or ``num_relations`` exceeds ``num_items / 8``, where drawing is slow.
    """
    if num_relations < 1 or 8 * num_relations > num_items:
        raise ValueError(
            f"num_relations: expected 1 to num_items / 8 = {num_items // 8}, got {num_relations}"
        )
    rng = seeded_rng(seed, "relations, targets")
    targets: list[np.ndarray] = []
    while len(targets) < num_relations:
        drawn = permutation_graph(num_items, rng).edges[:, 1]
        if not any((drawn == other).any() for other in targets):
            targets.append(drawn)
    vectors = gaussian_unit_norm(num_items, d_model, seeded_rng(seed, "embedding"))
    return SeveralRelations(vectors, np.stack(targets))


def draw_values(key: Array, law: Law, shape: tuple[int, ...]) -> Float[Array, ...]:
    """Independent entries of mean 0 and variance 1, float32: standard normal, or +1 and -1.

    Raises:
        ValueError: for another law.
    """
    if law not in LAWS:
        raise ValueError(f"law: expected one of {LAWS}, got {law!r}")
    if law == "gaussian":
        return jax.random.normal(key, shape, jnp.float32)
    return jax.random.rademacher(key, shape, jnp.float32)
