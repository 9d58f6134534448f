"""Benchmark: how fast the project's kernels are, as ratios to the natural way of writing the same thing.

Command: ``python -m experiments.bench [--out FILE] [--section NAME ...] [--rounds N]``, or ``make bench``.
Time: under a minute for each section on two CPU cores. PyTorch is measured beside JAX where it is installed
(``pip install '.[bench]'``).

How contenders are timed: `experiments.timing`.

A section is a function from `Config` to records; add it to `SECTIONS` and give it columns in `_COLUMNS`.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
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
from experiments.timing import (
    Quartiles,
    Record,
    environment,
    interleaved_seconds,
    machine_rates,
    ratios,
    temporary_bytes,
    torch_threads,
)
from theory.channel import max_over_heads

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
