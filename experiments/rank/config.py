"""What the rank experiment can be asked to do, and its presets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from experiments import checks
from experiments.rank.maps import LENGTHS, NUM_MAPS
from theory.rank import PATTERNS

STORAGE_BITS = {"bfloat16": 8, "float16": 11, "float32": 24}
"""Bits of the significand of each precision, the hidden one included."""
BLOCK = 1024
"""Queries on the circle that are computed at once."""
MOST_KEYS = 2**16
"""On the circle: a block of weights takes 256 MB in float32, and a few such are alive."""


@dataclass(frozen=True)
class RankConfig:
    """Fields of the rank experiment; every one can be overridden on the command line.

    Attributes:
        patterns: names in `theory.rank.PATTERNS`.
        lengths: n, queries and keys of these patterns.
        head_dims: d_k; those of n - 1 and more are left out, n - 2 and n - 1 added.
        bounds: on ``|q_i| |k_j|``, each beside the unbounded heads.
        real_lengths: tokens of the text whose maps are approximated. Needs MiniLM.
        real_head_dims: d_k for maps.
        real_maps: how many maps, from all layers in turn.
        seeds: of patterns with chance in them, and of random starts.
        num_starts: of the optimiser, the first from the truncation.
        num_steps: of the optimiser, at most.
        spectrum_length: n of the spectra.
        spectrum_head_dims: d_k of the spectra.
        circle_lengths: n of the circle in finite precision.
        circle_dtypes: in which its queries and keys are kept: bfloat16, float16 or float32.
        circle_miss: weight that all other keys are to share.
        circle_queries: most queries looked at for one length.
    """

    patterns: tuple[str, ...] = tuple(PATTERNS)
    lengths: tuple[int, ...] = (12, 24)
    head_dims: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16)
    bounds: tuple[float, ...] = (10.0,)
    real_lengths: tuple[int, ...] = (48,)
    real_head_dims: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    real_maps: int = 6
    seeds: int = 3
    num_starts: int = 3
    num_steps: int = 400
    spectrum_length: int = 64
    spectrum_head_dims: tuple[int, ...] = (1, 2, 4, 8, 16)
    circle_lengths: tuple[int, ...] = tuple(n for e in range(3, 15) for n in (2**e, 3 * 2 ** (e - 1)))
    circle_dtypes: tuple[str, ...] = ("bfloat16", "float16", "float32")
    circle_miss: float = 0.01
    circle_queries: int = 1024


PRESETS = {
    "smoke": RankConfig(
        lengths=(8,),
        head_dims=(1, 2, 4),
        real_lengths=(),
        seeds=2,
        num_starts=2,
        num_steps=100,
        spectrum_length=16,
        spectrum_head_dims=(1, 4),
        circle_lengths=(8, 32, 128),
        circle_dtypes=("bfloat16",),
    ),
    "quick": RankConfig(),
    "paper": RankConfig(
        lengths=(12, 24, 48),
        head_dims=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32),
        bounds=(5.0, 10.0, 20.0),
        real_lengths=(48, 96),
        real_head_dims=(1, 2, 4, 8, 16, 24, 31, 32),
        real_maps=12,
        seeds=5,
        num_starts=4,
        num_steps=800,
        spectrum_length=128,
        spectrum_head_dims=(1, 2, 4, 8, 16, 32),
        circle_queries=16_384,
    ),
}

_ARMS = ("real_lengths", "spectrum_head_dims", "circle_lengths")


def resolve(config: RankConfig, given: Collection[str]) -> RankConfig:
    """Complete a configuration of which the fields ``given`` were named by the user, and check it.

    Naming ``patterns`` or ``lengths`` asks for these patterns without the other arms (maps, spectra, circle); naming an
    arm asks for that one, without patterns unless they are named too.

    Raises:
        ValueError: naming a field, what was expected and what came.
    """
    asked = set(given)
    if {"patterns", "lengths"} & asked:
        config = replace(config, **dict.fromkeys(set(_ARMS) - asked, ()))
    elif set(_ARMS) & asked:
        config = replace(config, **dict.fromkeys((set(_ARMS) | {"lengths"}) - asked, ()))
    _check(config)
    return config


def _check(config: RankConfig) -> None:
    checks.positive(config)
    checks.different(config)
    checks.known(config, patterns=PATTERNS, circle_dtypes=STORAGE_BITS)
    checks.within(config, lengths=(6, 70))
    checks.least(config, circle_lengths=3)
    if max(config.circle_lengths, default=0) > MOST_KEYS:
        raise ValueError(
            f"circle_lengths: expected at most {MOST_KEYS:,}, as the weights of {BLOCK:,} queries over all keys are "
            f"held at once, got {max(config.circle_lengths):,}"
        )
    if config.circle_miss >= 0.5:
        raise ValueError(f"circle_miss: expected less than 1/2, got {config.circle_miss}")
    if config.lengths:
        checks.some(config, "patterns")
    if config.real_lengths:
        _check_maps(config)
    sizes = config.spectrum_head_dims
    if max(sizes, default=0) > config.spectrum_length:
        raise ValueError(
            f"spectrum_head_dims: expected at most spectrum_length = {config.spectrum_length}, got {max(sizes)}"
        )
    if not (config.lengths or any(getattr(config, name) for name in _ARMS)):
        raise ValueError("lengths: expected something to measure, got none")


def _check_maps(config: RankConfig) -> None:
    checks.within(config, real_lengths=LENGTHS)
    shortest = min(config.real_lengths)
    if min(config.real_head_dims, default=shortest) >= shortest:
        raise ValueError(
            f"real_head_dims: expected one below the least of real_lengths, {shortest}, got {config.real_head_dims}"
        )
    if config.real_maps > NUM_MAPS:
        raise ValueError(f"real_maps: expected at most {NUM_MAPS}, the model's heads, got {config.real_maps}")
