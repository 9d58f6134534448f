"""Benchmark: how fast the project's kernels are, as ratios to the natural way of writing the same thing.

Command: ``python -m experiments.bench [--out FILE] [--section NAME ...] [--rounds N]``, or ``make bench``.
Time: under a minute for each section on two CPU cores. PyTorch is measured beside JAX where it is installed
(``pip install '.[bench]'``).

All contenders of a comparison run in one process, interleaved: one call of each in every round, in an order that
is drawn anew each time, so that none always follows the same other one (threads of PyTorch wait for work a while
after their call, at the cost of whoever comes next). Each round gives one ratio baseline / ours; the median and the
quartiles over rounds are reported, so that a machine that is busy for a while slows down both. PyTorch runs with one
thread and with all, as two contenders, and the faster one counts: on a busy machine its threads wait for each other.
Beside each time stands its floor, the operations and bytes that no way of computing the result avoids, at the
rates that the same machine reached in the same process for a large matrix product and a large copy.

A section is a function from `Config` to records; add it to `SECTIONS` and give it columns in `_COLUMNS`.
"""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from experiments.bench_run import run_records
from experiments.bench_sweep import sweep_point_records
from experiments.store import write_json
from theory.channel import max_over_heads

Record = dict[str, Any]

DEFAULT_OUT = Path(__file__).parents[1] / "figures" / "bench" / "bench.json"


@dataclass(frozen=True)
class Config:
    """Configuration of the benchmark.

    Attributes:
        out: JSON file to write.
        section: sections to run; all by default.
        rounds: most rounds of a comparison; fewer where `seconds` are over, at least five.
        seconds: time for one comparison.
    """

    out: Path = DEFAULT_OUT
    section: tuple[str, ...] = ()
    rounds: int = 41
    seconds: float = 8.0


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


# Machine rates


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


# Section: channel


@dataclass(frozen=True)
class ChannelCase:
    """One size of the channel; ``target`` is the least speed-up over the einsum in JAX that is wanted."""

    num_items: int
    total_key_dim: int
    num_heads: int
    target: float | None = None
    seeds: int = 1  # vmapped, as the trainers do


CHANNEL_CASES = (
    ChannelCase(256, 64, 1, 0.95),
    ChannelCase(256, 64, 8, 4.0),
    ChannelCase(256, 64, 32, 5.0),
    ChannelCase(1024, 128, 16, 6.0),
    ChannelCase(96, 24, 1, seeds=8),
    ChannelCase(96, 24, 3, seeds=8),
    ChannelCase(96, 24, 8, seeds=8),
    ChannelCase(96, 24, 24, seeds=8),
    ChannelCase(256, 64, 4, seeds=8),
)


def _einsum_max(queries, keys):
    return jnp.einsum("htk,hsk->hts", queries, keys).max(0)


def _ours(queries, keys):
    return max_over_heads(queries, keys)[0]


def _compiled(function, seeds: int, args):
    """Forward and backward of ``function``, compiled ahead of time."""

    def run(queries, keys, grad):
        scores, pullback = jax.vjp(function, queries, keys)
        return scores, *pullback(grad)

    return jax.jit(jax.vmap(run) if seeds > 1 else run).lower(*args).compile()


def _torch_calls(args: Sequence[np.ndarray]) -> dict[str, Callable[[], Any]]:
    """The same in PyTorch, forward and backward by its own autograd, with one thread and with all."""
    torch: Any = import_module("torch")
    queries, keys = (torch.from_numpy(x).requires_grad_() for x in args[:2])
    grad = torch.from_numpy(args[2])

    def call(threads: int):
        torch.set_num_threads(threads)
        scores = torch.einsum("htk,hsk->hts", queries, keys).max(0).values
        return torch.autograd.grad(scores, (queries, keys), grad)

    return {f"torch_einsum_{name}": partial(call, threads) for name, threads in torch_threads().items()}


def torch_threads() -> dict[str, int]:
    """Numbers of threads PyTorch is measured with, by name."""
    return {"one_thread": 1, "all_threads": os.cpu_count() or 1}


def temporary_bytes(program: Any) -> int:
    """Temporary memory of a compiled program, beside its arguments and results."""
    return program.memory_analysis().temp_size_in_bytes


def _channel_floor(case: ChannelCase) -> tuple[int, int]:
    """Operations and bytes that cannot be avoided, forwards and backwards.

    Every head's score of every pair, one comparison each; for each pair the gradient of one head, the winner.
    Queries, keys and the cotangent read once, scores and gradients written once.
    """
    pairs = case.num_items**2
    head_dim = case.total_key_dim // case.num_heads
    operations = pairs * (2 * case.total_key_dim + case.num_heads + 4 * head_dim)
    floats = 4 * case.num_items * case.total_key_dim + 2 * pairs
    return case.seeds * operations, case.seeds * 4 * floats


def _channel_record(case: ChannelCase, config: Config, rates: dict[str, float]) -> Record:
    rng = np.random.default_rng(0)
    head_dim = case.total_key_dim // case.num_heads
    batch = (case.seeds,) if case.seeds > 1 else ()
    factor = (*batch, case.num_heads, case.num_items, head_dim)
    shapes = factor, factor, (*batch, case.num_items, case.num_items)
    arrays = [rng.standard_normal(shape, np.float32) for shape in shapes]
    args = [jnp.asarray(x) for x in arrays]
    functions = {"jax_einsum": _einsum_max, "ours": _ours}
    programs = {name: _compiled(function, case.seeds, args) for name, function in functions.items()}
    for ours, expected in zip(programs["ours"](*args), programs["jax_einsum"](*args), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-3)  # they compute the same thing

    calls: dict[str, Callable[[], Any]] = {
        name: lambda program=program: jax.block_until_ready(program(*args))
        for name, program in programs.items()
    }
    if find_spec("torch") is not None and case.seeds == 1:
        calls |= _torch_calls(arrays)
    times = interleaved_seconds(calls, config.rounds, config.seconds)

    operations, data = _channel_floor(case)
    seconds = Quartiles.of(times["ours"])
    floor = max(operations / rates["operations_per_second"], data / rates["bytes_per_second"])
    record: Record = asdict(case) | {"head_dim": head_dim, "dtype": "float32", "rounds": len(times["ours"])}
    for name in functions:
        record[f"{name}_temporary_bytes"] = temporary_bytes(programs[name])
    record["temporary_ratio"] = record["ours_temporary_bytes"] / record["jax_einsum_temporary_bytes"]
    for name in calls:
        record[f"{name}_seconds"] = asdict(Quartiles.of(times[name]))
    record["speed_over_jax_einsum"] = asdict(ratios(times, "jax_einsum", "ours"))
    rivals = [name for name in times if name.startswith("torch")]
    if rivals:
        fastest = min(rivals, key=lambda name: statistics.median(times[name]))
        record["torch_fastest"] = fastest
        record["speed_over_torch_einsum"] = asdict(ratios(times, fastest, "ours"))
    record |= {
        "floor_operations": operations,
        "floor_bytes": data,
        "floor_seconds": floor,
        "achieved_operations_per_second": operations / seconds.median,
        "achieved_bytes_per_second": data / seconds.median,
        "seconds_over_floor": seconds.median / floor,
    }
    return record


def channel(config: Config, rates: dict[str, float], progress: Callable[[str], None]) -> list[Record]:
    """`theory.channel.max_over_heads`, forward and backward, against einsum and max in JAX and in PyTorch."""
    records = []
    for case in CHANNEL_CASES:
        progress(
            f"channel: m={case.num_items} D_K={case.total_key_dim} h={case.num_heads} seeds={case.seeds}"
        )
        records.append(_channel_record(case, config, rates))
    return records


# Output

Section = Callable[[Config, dict[str, float], Callable[[str], None]], list[Record]]
SECTIONS: dict[str, Section] = {
    "channel": channel,
    "sweep_point": lambda config, rates, progress: sweep_point_records(progress=progress),
    "run": lambda config, rates, progress: run_records(rates["operations_per_second"], progress),
}


def _ratio(record: Record, key: str) -> str:
    if key not in record:
        return "-"
    return f"{record[key]['median']:.2f}x ({record[key]['low']:.2f}-{record[key]['high']:.2f})"


_COLUMNS: dict[str, dict[str, Callable[[Record], str]]] = {
    "channel": {
        "m": lambda r: str(r["num_items"]),
        "D_K": lambda r: str(r["total_key_dim"]),
        "h": lambda r: str(r["num_heads"]),
        "seeds": lambda r: str(r["seeds"]),
        "ms": lambda r: f"{1e3 * r['ours_seconds']['median']:.2f}",
        "over JAX einsum": lambda r: _ratio(r, "speed_over_jax_einsum"),
        "target": lambda r: "-" if r["target"] is None else f"{r['target']:.2f}x",
        "over PyTorch": lambda r: _ratio(r, "speed_over_torch_einsum"),
        "temp MB": lambda r: (
            f"{r['ours_temporary_bytes'] / 1e6:.2f} / {r['jax_einsum_temporary_bytes'] / 1e6:.2f}"
        ),
        "Gop/s": lambda r: f"{r['achieved_operations_per_second'] / 1e9:.1f}",
        "GB/s": lambda r: f"{r['achieved_bytes_per_second'] / 1e9:.2f}",
        "time / floor": lambda r: f"{r['seconds_over_floor']:.1f}",
    },
    "sweep_point": {
        "m": lambda r: str(r["num_items"]),
        "d": lambda r: str(r["d_model"]),
        "h": lambda r: str(r["num_heads"]),
        "d_k": lambda r: " ".join(map(str, r["head_dims"])),
        "seeds": lambda r: str(r["seeds"]),
        "steps": lambda r: str(r["steps"]),
        "seconds": lambda r: f"{r['ours_seconds']:.1f}",
        "of the loop": lambda r: f"{r['loop_seconds']:.1f}",
        "over the loop": lambda r: f"{r['speed_over_loop']:.1f}x",
        "target": lambda r: "-" if r["target"] is None else f"{r['target']:.2f}x",
    },
    "run": {
        "batches": lambda r: str(r["again"]["batches"]),
        "seconds, first": lambda r: f"{r['first']['seconds']:.1f}",
        "compiling": lambda r: f"{r['first']['compiling_seconds']:.1f}",
        "again": lambda r: f"{r['again']['seconds']:.1f}",
        "compiling again": lambda r: f"{r['again']['compiling_seconds']:.1f}",
        "I/O": lambda r: f"{r['again']['io_seconds']:.2f}",
        "not computing": lambda r: (
            f"{r['first']['share_not_computing']:.0%}, {r['again']['share_not_computing']:.0%}"
        ),
        "target": lambda r: f"{r['target']:.0%}",
        "us a step": lambda r: f"{1e6 * r['step_seconds']:.0f}",
        "at peak": lambda r: f"{1e6 * r['products_at_peak_seconds']:.0f}",
        "channel": lambda r: f"+{1e6 * r['channel_seconds']:.0f}",
        "loss": lambda r: f"+{1e6 * r['loss_seconds']:.0f}",
        "optimiser": lambda r: f"+{1e6 * r['optimiser_seconds']:.0f}",
        "of peak": lambda r: f"{r['share_of_peak']:.0%}",
    },
}


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


def run(config: Config, progress: Callable[[str], None] = lambda _: None) -> Record:
    """Run the sections and return everything that is written.

    Raises:
        ValueError: an unknown section, fewer than two rounds.
    """
    unknown = set(config.section) - set(SECTIONS)
    if unknown:
        raise ValueError(f"section: expected any of {sorted(SECTIONS)}, got {sorted(unknown)}")
    if config.rounds < 2:
        raise ValueError(f"rounds: expected at least 2, got {config.rounds}")
    with jax.default_matmul_precision("highest"):
        progress("rates of the machine")
        rates = machine_rates()
        names = config.section or tuple(SECTIONS)
        sections = {name: SECTIONS[name](config, rates, progress) for name in names}
    settings = {"rounds": config.rounds, "seconds": config.seconds}
    return {"config": settings, "environment": environment(rates), "sections": sections}


def show(result: Record, console: Console) -> None:
    """Print a table for each section."""
    environment = result["environment"]
    rates = environment["rates"]
    for name, records in result["sections"].items():
        reached = (
            f"{rates['operations_per_second'] / 1e9:.0f} Gop/s, {rates['bytes_per_second'] / 1e9:.1f} GB/s"
        )
        machine = f"{environment['device_kind']}, {environment['cpu_count']} CPUs"
        table = Table(title=f"{name}: medians (quartiles)", caption=f"{machine}; floor at {reached}")
        for column in _COLUMNS[name]:
            table.add_column(column, justify="right")
        for record in records:
            table.add_row(*(cell(record) for cell in _COLUMNS[name].values()))
        console.print(table)


def main(config: Config) -> None:
    """Run, write, show."""
    console = Console()
    with console.status("") as status:
        result = run(config, status.update)
    write_json(config.out, result)
    show(result, console)
    console.print(f"written: {config.out}")


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
