"""Benchmark of the attention kernels: time and temporary memory beside other implementations.

Command: ``python -m experiments.bench_attention [--lengths N ...] [--dtype NAME] [--out DIR]``, or ``make bench``
(on a GPU ``make bench-gpu``, which takes bfloat16 and float32 and more heads).
Time: about ten minutes on two CPU cores, most of it for the slow implementations at 4,096 and 8,192. Flax is always
there; equinox and PyTorch are measured where they are installed (``pip install '.[bench]'``).

One comparison is one length and one pass (forward, or forward and backward): all implementations, causal and not,
run interleaved in one process as `experiments.bench` describes, so that every ratio is of the same minutes.
PyTorch gets its own layout, contiguous ``(B, N, T, D)``, and the better of one thread and all. Equinox offers its
kernel within modules only; its function of one head is mapped over heads and batch here. An implementation whose
weights alone would take more than ``max_gigabytes`` is left out, and the record says so. Lengths that are not asked
for keep what an earlier run of the same machine, versions and configuration wrote. What causality saves ours is
measured with nothing else between the two: memory that others gave back has to be had again by whoever comes next,
which costs both the same time and hides a part of their ratio.

Temporary memory is that of the compiled program: what it allocates beside its arguments and results. Beside each
time stands its floor, the operations and bytes that no way of computing the result avoids: two products forwards,
four more backwards (causal: half of them); queries, keys, values, output and their gradients moved once.
"""

import functools
import json
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from flax import linen, nnx
from rich.console import Console

from experiments.bench_attention_figure import figure, show
from experiments.bench_output import stem, write_and_show
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
from mha_jax import dot_product_attention

DEFAULT_OUT = Path(__file__).parents[1] / "figures" / "bench"

Attention = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


@dataclass(frozen=True)
class Config:
    """Configuration of the benchmark.

    Attributes:
        lengths: of queries and keys.
        num_heads: query heads, and key/value heads.
        head_dim: of keys and values.
        tokens: the batch is the largest that keeps ``batch * length`` to this, at least 1.
        dtype: of queries, keys and values.
        rounds: most rounds of a comparison.
        seconds: time for one comparison; at least five rounds are run.
        max_gigabytes: implementations whose weights take more are left out.
        out: folder to write ``attention.json`` (on a GPU ``attention-<device>-<dtype>.json``) and its figure into.
    """

    lengths: tuple[int, ...] = (128, 256, 512, 1024, 2048, 4096, 8192)
    num_heads: int = 8
    head_dim: int = 64
    tokens: int = 1024
    dtype: str = "float32"
    rounds: int = 31
    seconds: float = 8.0
    max_gigabytes: float = 1.5
    out: Path = DEFAULT_OUT


# Contenders


def _ours(implementation: str | None, causal: bool) -> Attention:
    options: dict[str, Any] = {"implementation": implementation, "is_causal": causal}
    return lambda q, k, v: dot_product_attention(q, k, v, **options)


def _jax_nn(implementation: Any, causal: bool) -> Attention:
    return functools.partial(jax.nn.dot_product_attention, is_causal=causal, implementation=implementation)


def _flax_nnx(causal: bool) -> Attention:
    return lambda q, k, v: nnx.dot_product_attention(q, k, v, is_causal=causal, deterministic=True)


def _flax_linen(causal: bool) -> Attention:
    def attend(query, key, value):
        mask = linen.make_causal_mask(query[..., 0, 0]) if causal else None
        return linen.dot_product_attention(query, key, value, mask=mask, deterministic=True)

    return attend


def _equinox(causal: bool) -> Attention:
    one_head: Any = import_module("equinox.nn._attention").dot_product_attention

    def attend(query, key, value):
        mask = jnp.tri(query.shape[-3], dtype=bool) if causal else None
        heads = jax.vmap(lambda q, k, v: one_head(q, k, v, mask), in_axes=1, out_axes=1)
        return jax.vmap(heads)(query, key, value)

    return attend


def contenders(gpu: bool, dtype: str) -> dict[str, Callable[[bool], Attention]]:
    """What is compared: a function of whether attention is causal. PyTorch is apart, as it is not compiled by JAX."""
    found: dict[str, Callable[[bool], Attention]] = {
        "ours": lambda causal: _ours(None, causal),
        "ours_dense": lambda causal: _ours("dense", causal),
        "ours_blockwise": lambda causal: _ours("blockwise", causal),
        "jax_nn": lambda causal: _jax_nn("xla", causal),
        "flax_nnx": _flax_nnx,
        "flax_linen": _flax_linen,
    }
    if find_spec("equinox") is not None:
        found["equinox"] = _equinox
    if gpu and dtype in ("bfloat16", "float16"):
        found["jax_nn_cudnn"] = lambda causal: _jax_nn("cudnn", causal)
    return found


LINEAR_MEMORY = ("ours", "ours_blockwise", "jax_nn_cudnn")
"""Contenders that never hold all weights."""


def _compiled(attend: Attention, backward: bool, args: tuple[jax.Array, ...]) -> Any:
    def run(query, key, value, grad):
        if not backward:
            return attend(query, key, value)
        output, pullback = jax.vjp(attend, query, key, value)
        return output, *pullback(grad)

    return jax.jit(run).lower(*args).compile()


def _torch_calls(arrays: tuple[np.ndarray, ...], backward: bool) -> dict[str, Callable[[], Any]]:
    """PyTorch's fused attention in its own layout, causal and not, with one thread and with all."""
    torch: Any = import_module("torch")
    query, key, value, grad = (torch.from_numpy(x.swapaxes(1, 2).copy()) for x in arrays)
    inputs = [x.requires_grad_(backward) for x in (query, key, value)]
    attend = torch.nn.functional.scaled_dot_product_attention

    def call(threads: int, causal: bool):
        torch.set_num_threads(threads)
        output = attend(*inputs, is_causal=causal)
        return torch.autograd.grad(output, inputs, grad) if backward else output

    return {
        f"torch_sdpa_{name}{_suffix(causal)}": functools.partial(call, threads, causal)
        for name, threads in torch_threads().items()
        for causal in (False, True)
    }


def _suffix(causal: bool) -> str:
    return "_causal" if causal else ""


# Records


def floor(
    batch: int, length: int, num_heads: int, head_dim: int, itemsize: int, backward: bool, causal: bool
):
    """Operations and bytes that cannot be avoided.

    Returns:
        Operations: 2 D for each of two products a pair (six with the backward pass), half the pairs if causal.
        Bytes: query, key, value, output; with the backward pass also their four gradients.
    """
    pairs = batch * num_heads * (length * (length + 1) // 2 if causal else length**2)
    operations = 2 * head_dim * pairs * (6 if backward else 2)
    data = batch * length * num_heads * head_dim * itemsize * (8 if backward else 4)
    return operations, data


def comparison(config: Config, length: int, backward: bool, rates: Mapping[str, float]) -> list[Record]:
    """All contenders at one length and pass: a record for each, causal and not."""
    batch = max(1, config.tokens // length)
    shape = (batch, length, config.num_heads, config.head_dim)
    rng = np.random.default_rng(0)
    arrays = tuple(rng.standard_normal(shape, np.float32) for _ in range(4))
    args = tuple(jnp.asarray(x, config.dtype) for x in arrays)
    gpu = jax.default_backend() == "gpu"
    weights = batch * config.num_heads * length**2 * 4 / 1e9
    programs: dict[str, Any] = {}
    left_out = []
    for name, make in contenders(gpu, config.dtype).items():
        if name not in LINEAR_MEMORY and weights > config.max_gigabytes:
            left_out.append(name)
            continue
        for causal in (False, True):
            programs[name + _suffix(causal)] = _compiled(make(causal), backward, args)
    _check_agreement(programs, args, config.dtype)
    calls: dict[str, Callable[[], Any]] = {
        name: lambda program=program: jax.block_until_ready(program(*args))
        for name, program in programs.items()
    }
    if find_spec("torch") is not None and config.dtype == "float32" and not gpu:
        calls |= _torch_calls(arrays, backward)
    times = interleaved_seconds(calls, config.rounds, config.seconds)
    own = {name: calls[name] for name in ("ours", "ours_causal")}
    alone = interleaved_seconds(own, config.rounds, config.seconds / 4)
    return [
        _record(name, timed, times, programs, batch, length, backward, left_out, config, rates)
        | {"ours_speedup_by_causality": asdict(ratios(alone, "ours", "ours_causal"))}
        for name, timed in _fastest_threads(times).items()
    ]


def _check_agreement(programs: Mapping[str, Any], args: tuple[jax.Array, ...], dtype: str) -> None:
    """What is timed computes the same thing."""
    tolerance = 2e-4 if dtype == "float32" else 5e-2
    for causal in (False, True):
        expected = jax.tree.leaves(programs["ours" + _suffix(causal)](*args))
        for name, program in programs.items():
            if name.endswith("_causal") != causal:
                continue
            for ours, theirs in zip(expected, jax.tree.leaves(program(*args)), strict=True):
                ours, theirs = np.asarray(ours, np.float32), np.asarray(theirs, np.float32)
                np.testing.assert_allclose(theirs, ours, rtol=tolerance, atol=tolerance * np.abs(ours).max())


def _fastest_threads(times: Mapping[str, list[float]]) -> dict[str, str]:
    """Contenders by name, PyTorch under the faster of its numbers of threads."""
    found = {name: name for name in times if not name.startswith("torch")}
    for causal in (False, True):
        rivals = [n for n in times if n.startswith("torch") and n.endswith("_causal") == causal]
        if rivals:
            found["torch_sdpa" + _suffix(causal)] = min(rivals, key=lambda n: statistics.median(times[n]))
    return found


def _record(
    name: str,
    timed: str,
    times: Mapping[str, list[float]],
    programs: Mapping[str, Any],
    batch: int,
    length: int,
    backward: bool,
    left_out: list[str],
    config: Config,
    rates: Mapping[str, float],
) -> Record:
    causal = name.endswith("_causal")
    itemsize = jnp.dtype(config.dtype).itemsize
    operations, data = floor(batch, length, config.num_heads, config.head_dim, itemsize, backward, causal)
    seconds = Quartiles.of(times[timed])
    baseline = "ours" + _suffix(causal)
    return {
        "contender": name.removesuffix("_causal"),
        "causal": causal,
        "pass": "forward and backward" if backward else "forward",
        "length": length,
        "batch": batch,
        "num_heads": config.num_heads,
        "head_dim": config.head_dim,
        "dtype": config.dtype,
        "rounds": len(times[timed]),
        "timed_as": timed,
        "seconds": asdict(seconds),
        "time_over_ours": asdict(ratios(dict(times), timed, baseline)),
        "temporary_bytes": temporary_bytes(programs[name]) if name in programs else None,
        "weights_bytes": batch * config.num_heads * length**2 * 4,
        "floor_operations": operations,
        "floor_bytes": data,
        "floor_seconds": max(operations / rates["operations_per_second"], data / rates["bytes_per_second"]),
        "achieved_operations_per_second": operations / seconds.median,
        "left_out": left_out,
    }


MASK_LENGTH = 512
"""Length at which the cost of masks is measured."""


def mask_records(config: Config) -> list[Record]:
    """What a mask costs the dense kernel: its time with one over its time without, in one comparison."""
    length = MASK_LENGTH
    shape = (max(1, config.tokens // length), length, config.num_heads, config.head_dim)
    rng = np.random.default_rng(1)
    args = tuple(jnp.asarray(rng.standard_normal(shape, np.float32), config.dtype) for _ in range(4))
    masks = {
        "none": None,
        "padding (B, 1, 1, S)": np.broadcast_to(np.arange(length) < length - 7, (shape[0], 1, 1, length)),
        "random (B, 1, T, S)": rng.random((shape[0], 1, length, length)) < 0.8,
        "causal": "causal",
    }
    records = []
    for backward in (False, True):
        calls = {}
        for name, mask in masks.items():
            options: dict[str, Any] = {"is_causal": True} if isinstance(mask, str) else {"mask": mask}

            def attend(q, k, v, options=options):
                return dot_product_attention(q, k, v, implementation="dense", **options)

            program = _compiled(attend, backward, args)
            calls[name] = lambda program=program: jax.block_until_ready(program(*args))
        times = interleaved_seconds(calls, config.rounds, config.seconds)
        records += [
            {
                "mask": name,
                "pass": "forward and backward" if backward else "forward",
                "length": length,
                "batch": shape[0],
                "rounds": len(times[name]),
                "time_over_no_mask": asdict(ratios(times, name, "none")),
            }
            for name in masks
            if name != "none"
        ]
    return records


def run(config: Config, progress: Callable[[str], None] = lambda _: None) -> Record:
    """Run all comparisons and return everything that is written.

    Raises:
        ValueError: no length, a length that is not positive, fewer than two rounds.
    """
    if not config.lengths or min(config.lengths) < 1:
        raise ValueError(f"lengths: expected positive numbers, got {config.lengths}")
    if config.rounds < 2:
        raise ValueError(f"rounds: expected at least 2, got {config.rounds}")
    progress("rates of the machine")
    rates = machine_rates()
    points = []
    for length in config.lengths:
        for backward in (False, True):
            progress(f"attention: T = {length}, {'forward and backward' if backward else 'forward'}")
            points += comparison(config, length, backward, rates)
    progress("attention: masks")
    settings = {k: v for k, v in asdict(config).items() if k != "out"}
    return {
        "config": settings,
        "environment": environment(rates),
        "points": points,
        "masks": mask_records(config),
    }


def with_other_lengths(result: Record, earlier: Mapping[str, Any]) -> Record:
    """``result`` and the points of lengths that it lacks from an ``earlier`` one of the same machine and versions.

    Raises:
        ValueError: the earlier one is of another machine, other versions or another configuration.
    """
    free = ("lengths", "rounds", "seconds", "max_gigabytes")
    for name, mine, theirs in (
        ("config", result["config"], earlier["config"]),
        ("environment", result["environment"], earlier["environment"]),
    ):
        for key in (mine.keys() | theirs.keys()) - {*free, "rates"}:
            if mine.get(key) != theirs.get(key):
                raise ValueError(
                    f"out: expected results of {name} {key} = {mine.get(key)} there, got {theirs.get(key)}"
                )
    lengths = result["config"]["lengths"]
    points = [*result["points"], *(p for p in earlier["points"] if p["length"] not in lengths)]
    points.sort(key=lambda p: (p["length"], p["pass"], p["causal"]))
    config = result["config"] | {"lengths": sorted({p["length"] for p in points})}
    return result | {"points": points, "config": config}


# Command


def main(config: Config) -> None:
    """Run, write, draw, show."""
    console = Console()
    with console.status("") as status:
        result = run(config, status.update)
    path = config.out / stem("attention", result)
    earlier = path.with_name(f"{path.name}.json")
    if earlier.exists():
        result = with_other_lengths(result, json.loads(earlier.read_text("utf-8")))
    write_and_show(result, path, figure, show, console)


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
