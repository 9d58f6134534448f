"""How benchmarks time: interleaved rounds, ratios with quartiles, rates of the machine.

All contenders of a comparison run in one process, interleaved: one call of each in every round, in an order that
is drawn anew each time, so that none always follows the same other one (threads of PyTorch wait for work a while
after their call, at the cost of whoever comes next). Each round gives one ratio baseline / ours; the median and the
quartiles over rounds are reported, so that a machine that is busy for a while slows down both. PyTorch runs with one
thread and with all, as two contenders, and the faster one counts: on a busy machine its threads wait for each other.
Beside each time stands its floor, the operations and bytes that no way of computing the result avoids, at the
rates that the same machine reached in the same process for a large matrix product and a large copy.
"""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Record = dict[str, Any]


@dataclass(frozen=True)
class Quartiles:
    """Median and quartiles over rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Quartiles":
        """Quartiles of two or more values."""
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)


def interleaved_seconds(
    calls: dict[str, Callable[[], Any]], rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Time every call once a round, in an order drawn for the round.

    Args:
        calls: what to time; a call returns when its work is done.
        rounds: most rounds.
        seconds: stop after this time, but not before five rounds.

    Returns:
        The seconds of each call, in order of rounds.
    """
    for call in calls.values():
        call()
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    names, rng = list(calls), np.random.default_rng(0)
    stop = time.perf_counter() + seconds
    for number in range(rounds):
        for name in rng.permutation(names):
            start = time.perf_counter()
            calls[name]()
            times[name].append(time.perf_counter() - start)
        if number >= 4 and time.perf_counter() > stop:
            break
    return times


def ratios(times: dict[str, list[float]], baseline: str, ours: str) -> Quartiles:
    """How many times faster ``ours`` is than ``baseline``, round by round."""
    return Quartiles.of([b / o for b, o in zip(times[baseline], times[ours], strict=True)])


def machine_rates() -> dict[str, float]:
    """What this machine reaches: operations of a matrix product, bytes of a copy, each a second (float32)."""
    size, length = 1024, 2**24
    matrix = jnp.ones((size, size), jnp.float32)
    vector = jnp.ones(length, jnp.float32)
    product, copy = jax.jit(lambda a: a @ a), jax.jit(lambda a: a + 1)
    times = interleaved_seconds(
        {
            "product": lambda: jax.block_until_ready(product(matrix)),
            "copy": lambda: jax.block_until_ready(copy(vector)),
        },
        rounds=15,
        seconds=3.0,
    )
    return {
        "operations_per_second": 2 * size**3 / statistics.median(times["product"]),
        "bytes_per_second": 8 * length / statistics.median(times["copy"]),
    }


def torch_threads() -> dict[str, int]:
    """Numbers of threads PyTorch is measured with, by name."""
    return {"one_thread": 1, "all_threads": os.cpu_count() or 1}


def temporary_bytes(program: Any) -> int:
    """Temporary memory of a compiled program, beside its arguments and results."""
    return program.memory_analysis().temp_size_in_bytes


def environment(rates: dict[str, float]) -> Record:
    """Versions, machine and its rates, as they stand in the file."""
    packages = ("jax", "flax", "numpy", "equinox", "torch")
    versions = {name: version(name) for name in packages if find_spec(name) is not None}
    device = jax.devices()[0]
    return {
        "versions": versions,
        "platform": device.platform,
        "device_kind": device.device_kind,
        "cpu_count": os.cpu_count(),
        "matmul_precision": "highest",
        "rates": rates,
    }
