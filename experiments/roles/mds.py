"""Metric multidimensional scaling: points of the plane whose distances are about those that are given."""

import numpy as np
from jaxtyping import Float


def scale(
    distances: Float[np.ndarray, "n n"], *, num_steps: int = 1000, tolerance: float = 1e-9
) -> tuple[Float[np.ndarray, "n 2"], float]:
    """Points in two dimensions, by majorisation (SMACOF) from the classical solution; no random start.

    Minimises the stress, the sum over pairs of ``(|x_i - x_j| - d_ij)^2``; every step lowers it. Axes are those of
    largest variance, with signs such that each axis' largest coordinate is positive.

    Source: de Leeuw 1977 (the Guttman transform); Clark et al. 2019 scale distances between heads in this way.

    Args:
        distances: symmetric, not negative, 0 on the diagonal.
        num_steps: at most.
        tolerance: stop where a step lowers the stress by less than this part of it.

    Returns:
        Points, centred, and the normalised stress: the root of stress over the sum of squared distances.

    Raises:
        ValueError: if the distances are not such.
    """
    d = np.asarray(distances, np.float64)
    size = len(d)
    if d.ndim != 2 or d.shape != (size, size) or size < 2:
        raise ValueError(f"distances: expected shape (n, n) with n > 1, got {d.shape}")
    if not (np.isfinite(d).all() and (d >= 0).all() and (d == d.T).all() and not d.diagonal().any()):
        raise ValueError("distances: expected a symmetric matrix, not negative, 0 on the diagonal")
    centre = np.eye(size) - 1 / size
    values, vectors = np.linalg.eigh(-centre @ d**2 @ centre / 2)
    points = vectors[:, [-1, -2]] * np.sqrt(np.maximum(values[[-1, -2]], 0))
    norm = max((d**2).sum() / 2, np.finfo(float).tiny)
    stress, between = np.inf, _between(points)
    for _ in range(num_steps):
        ratio = np.divide(d, between, out=np.zeros_like(d), where=between > 0)
        transform = np.diag(ratio.sum(1)) - ratio
        points = transform @ points / size
        between = _between(points)
        stress, before = ((between - d) ** 2).sum() / 2, stress
        if before - stress <= tolerance * norm:
            break
    points -= points.mean(0)
    _, _, axes = np.linalg.svd(points, full_matrices=False)
    points = points @ axes.T
    largest = points[np.abs(points).argmax(0), [0, 1]]
    return points * np.where(largest < 0, -1, 1), float(np.sqrt(stress / norm))


def _between(points: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n n"]:
    return np.sqrt(((points[:, None] - points[None, :]) ** 2).sum(-1))
