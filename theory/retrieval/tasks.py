"""The tasks: generalised D-retrieval and the synthetic one whose numbers are published.

Generalised D-retrieval (Yu et al. 2025, arXiv 2510.06662): a sequence ``x^(1), ..., x^(T)`` in ``[0, 1]^d`` is mapped
to ``F_0(z_1, ..., z_D)`` with ``z_i = min over t in S_i of f_i(x^(t))``, positions ``|S_i| >= T/4``, each ``f_i`` in
C^2 with one non-degenerate minimiser, all different, and ``F_0`` with partial derivatives that are not zero. ``D`` is
the number of retrievals the task needs.

- `general_task`: ``f_i(x) = |x - c_i|^2 / d`` with different ``c_i`` inside the cube, ``F_0`` the sum unless another
  one is given. The paper's assumptions hold.
- `max_task`: ``y = sum_i max_t <a_i, x^(t)>``, ``x^(t) ~ N(0, I_d)``, the paper's synthetic experiment. It is
  D-retrieval in form only: inputs are not bounded and a linear ``f_i`` has no inner minimiser, so the theorem's
  assumptions do **not** hold. The paper's ``a_i`` are not published; here they are the first unit vectors, or drawn
  at random.

Errors are NMSE = mean squared error / variance of the target; a constant (the mean) has 1, the chance level.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from theory.problems import seeded_rng

DIRECTIONS = ("orthonormal", "random")
CHANCE_LEVEL = 1.0
"""NMSE of the best constant."""

Costs = Callable[[Float[np.ndarray, "*batch t d"]], Float[np.ndarray, "*batch t D"]]
Outer = Callable[[Float[np.ndarray, "*batch D"]], Float[np.ndarray, "*batch"]]
Sampler = Callable[[np.random.Generator, int, int, int], Float[np.ndarray, "b t d"]]


@dataclass(frozen=True, eq=False)
class RetrievalTask:
    """One D-retrieval task.

    Attributes:
        name: ``max`` or ``general``, or a name of your own.
        length: tokens T of a sequence.
        width: entries d of a token.
        costs: ``f_1, ..., f_D`` of every token.
        outer: ``F_0``.
        members: ``[i, t]`` is True where position t is in S_i.
        sampler: draws inputs from ``(rng, samples, T, d)``.
        vectors: ``a_i`` or ``c_i``, one a row.
    """

    name: str
    length: int
    width: int
    costs: Costs
    outer: Outer
    members: Bool[np.ndarray, "D t"]
    sampler: Sampler
    vectors: Float[np.ndarray, "D d"]

    def __post_init__(self) -> None:
        if self.length < 1 or self.width < 1:
            raise ValueError(f"length, width: expected positive integers, got {self.length} and {self.width}")
        if self.members.shape != (len(self.vectors), self.length):
            raise ValueError(
                f"members: expected shape ({len(self.vectors)}, {self.length}), got {self.members.shape}"
            )
        if (4 * self.members.sum(axis=1) < self.length).any():
            raise ValueError(
                f"members: expected sets of at least length / 4 = {self.length / 4:g} positions, got "
                f"{self.members.sum(axis=1).tolist()}"
            )

    @property
    def num_targets(self) -> int:
        """D, the minima (or maxima) that the output is made of."""
        return len(self.vectors)

    def sample(self, rng: np.random.Generator, num_samples: int) -> Float32[np.ndarray, "b t d"]:
        """Draw inputs, float32."""
        return self.sampler(rng, num_samples, self.length, self.width).astype(np.float32)

    def retrieved(
        self, inputs: Float[np.ndarray, "*batch t d"]
    ) -> tuple[Float[np.ndarray, "*batch D"], Int[np.ndarray, "*batch D"]]:
        """The minima ``z_i`` and the positions of the tokens that attain them (the first, where several do)."""
        costs = np.where(self.members.T, self.costs(inputs.astype(np.float64)), np.inf)
        return costs.min(axis=-2), costs.argmin(axis=-2)

    def targets(self, inputs: Float[np.ndarray, "*batch t d"]) -> Float[np.ndarray, "*batch"]:
        """``F_0(z_1, ..., z_D)``, float64."""
        return self.outer(self.retrieved(inputs)[0])


def max_task(
    num_targets: int, length: int, *, width: int, directions: str = "orthonormal", seed: int = 0
) -> RetrievalTask:
    """``y = sum_i max_t <a_i, x^(t)>`` on normal tokens.

    Args:
        num_targets: D.
        length: T.
        width: d.
        directions: ``orthonormal`` (the first D unit vectors) or ``random`` (uniform on the sphere, by ``seed``).
        seed: of random directions.

    Raises:
        ValueError: for more orthonormal directions than ``width``, or another name.
    """
    _check_sizes(num_targets, length, width)
    if directions == "orthonormal":
        if num_targets > width:
            raise ValueError(f"num_targets: expected at most width = {width}, got {num_targets}")
        vectors = np.eye(num_targets, width)
    elif directions == "random":
        vectors = seeded_rng(seed, "retrieval, directions").standard_normal((num_targets, width))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    else:
        raise ValueError(f"directions: expected one of {DIRECTIONS}, got {directions!r}")
    return RetrievalTask(
        name="max",
        length=length,
        width=width,
        costs=lambda inputs: -inputs @ vectors.T,
        outer=lambda minima: -minima.sum(axis=-1),
        members=np.ones((num_targets, length), bool),
        sampler=_normal,
        vectors=vectors,
    )


def general_task(
    num_targets: int,
    length: int,
    *,
    width: int,
    window: int | None = None,
    outer: Outer | None = None,
    seed: int = 0,
) -> RetrievalTask:
    """``F_0`` of minima of squared distances to D points, each over positions of its own.

    Args:
        num_targets: D.
        length: T.
        width: d.
        window: positions in each S_i, consecutive (around the end) from ``i T / D`` on; all T if None.
        outer: ``F_0``; the sum if None.
        seed: of the points ``c_i``, uniform in ``[0.25, 0.75]^d``.

    Raises:
        ValueError: for a window that is not in [T/4, T].
    """
    _check_sizes(num_targets, length, width)
    window = length if window is None else window
    if not length <= 4 * window <= 4 * length:
        raise ValueError(f"window: expected from {length / 4:g} to {length} positions, got {window}")
    centres = seeded_rng(seed, "retrieval, centres").uniform(0.25, 0.75, (num_targets, width))
    starts = np.arange(num_targets) * length // num_targets
    members = (np.arange(length) - starts[:, None]) % length < window

    def costs(inputs: Float[np.ndarray, "*batch t d"]) -> Float[np.ndarray, "*batch t D"]:
        return np.square(inputs[..., None, :] - centres).mean(axis=-1)

    return RetrievalTask(
        name="general",
        length=length,
        width=width,
        costs=costs,
        outer=outer or (lambda minima: minima.sum(axis=-1)),
        members=members,
        sampler=_uniform,
        vectors=centres,
    )


def nmse(predictions: Float[np.ndarray, "b"], targets: Float[np.ndarray, "b"]) -> float:
    """Mean squared error over the variance of the targets, in float64.

    Raises:
        ValueError: if the targets do not vary.
    """
    targets = np.asarray(targets, np.float64)
    variance = float(targets.var())
    if not variance > 0:
        raise ValueError("targets: expected more than one value, got a constant")
    return float(np.square(np.asarray(predictions, np.float64) - targets).mean() / variance)


def _normal(rng: np.random.Generator, *shape: int) -> Float32[np.ndarray, "b t d"]:
    return rng.standard_normal(shape, dtype=np.float32)


def _uniform(rng: np.random.Generator, *shape: int) -> Float32[np.ndarray, "b t d"]:
    return rng.random(shape, dtype=np.float32)


def _check_sizes(num_targets: int, length: int, width: int) -> None:
    for name, value in (("num_targets", num_targets), ("length", length), ("width", width)):
        if value < 1:
            raise ValueError(f"{name}: expected a positive integer, got {value}")
