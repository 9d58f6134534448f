"""What the certificates experiment can be asked to do, and its presets."""

from __future__ import annotations

from dataclasses import dataclass

from experiments import checks


@dataclass(frozen=True)
class CertificatesConfig:
    """Fields of the certificates experiment; every one can be overridden on the command line.

    Attributes:
        d_models: ``d``.
        head_counts: ``h``.
        largest: leave out sizes above this many items.
        offsets: sizes: the predicted half-way point, moved by these multiples of the predicted range from 90% to 10%.
        seeds: graphs at d = 16, fewer at larger d in proportion to 1 / d, at least 2.
    """

    d_models: tuple[int, ...] = (16, 24, 32)
    head_counts: tuple[int, ...] = (1, 2, 4, 8)
    largest: int = 480
    offsets: tuple[float, ...] = (-0.5, 0.0, 0.3, 0.6, 1.0)
    seeds: int = 20


PRESETS = {
    "smoke": CertificatesConfig(d_models=(8, 10), head_counts=(1, 2), seeds=6),
    "quick": CertificatesConfig(),
    "drift": CertificatesConfig(d_models=(8, 12, 16, 24, 32, 48), head_counts=(1, 2), largest=400, seeds=96),
    "paper": CertificatesConfig(
        d_models=(16, 24, 32, 48), largest=2000, offsets=(-0.5, -0.2, 0.0, 0.2, 0.4, 0.6, 0.8, 1.2), seeds=64
    ),
}


def check(config: CertificatesConfig) -> CertificatesConfig:
    """The configuration, checked.

    Raises:
        ValueError: naming a field, what was expected and what came.
    """
    checks.positive(config, but=("offsets",))
    checks.different(config)
    checks.some(config, "d_models", "head_counts", "offsets")
    checks.least(config, d_models=4)
    return config
