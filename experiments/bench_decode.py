"""Benchmark of decoding: tokens a second against context length, for every way of sharing keys and values.

Command: ``python -m experiments.bench_decode [--contexts N ...] [--batches N ...] [--out DIR]``, or ``make bench``.
Time: about five minutes on two CPU cores.

One comparison is one context length and one batch: a layer of MHA, GQA, MQA and MLA (absorbed and naive), all of one
``d_model`` and number of heads, takes one token on a cache of that many, interleaved in one process as
`experiments.bench` describes. A step is one compiled program with the cache donated; it serves every length up to the
cache's capacity. The cache is all but full: steps fill its last entries, and then it is set back.

Beside each time stands its floor: every entry of the cache and every weight read once, at the rate at which the same
process reads an array from memory, or the operations of the products at the rate of a large product, whichever takes
longer. Small caches lie in the processor's own, so that they can be read faster than memory is. ``…_dense`` is the same
layer with ``implementation="dense"``, which prepares all of the cache before it is attended.

Predictions, written down before the first run (when single steps at 4,096 tokens and batch 1 had been timed), are in
`experiments.bench_decode_predictions`; the record says what came of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from experiments.bench_decode_figure import LABELS, figure
from experiments.bench_decode_predictions import outcomes
from experiments.bench_output import stem, write_and_show
from experiments.timing import (
    Quartiles,
    Record,
    environment,
    interleaved_seconds,
    machine_rates,
    ratios,
    temporary_bytes,
)
from mha_jax import (
    RotaryEmbedding,
    bytes_per_token,
    init_cache,
    init_latent_attention,
    init_latent_cache,
    init_multi_head_attention,
    latent_attention,
    multi_head_attention,
)

DEFAULT_OUT = Path(__file__).parents[1] / "figures" / "bench"


@dataclass(frozen=True)
class Config:
    """Configuration of the benchmark.

    Attributes:
        contexts: capacities of the caches, in tokens.
        batches: sequences that are decoded at once.
        d_model: width of the layer.
        num_heads: query heads; each has ``d_model / num_heads`` dimensions.
        num_kv_heads: of GQA.
        latent_dim: of MLA, ``d_c``.
        rope_dim: of MLA, ``d_R``.
        dtype: of weights, caches and input.
        rounds: most rounds of a comparison.
        seconds: time for one comparison; at least five rounds are run.
        max_gigabytes: naive MLA is left out where the keys and values that it expands take more.
        out: folder to write ``decode.json`` (on a GPU ``decode-<device>-<dtype>.json``) and its figure into.
    """

    contexts: tuple[int, ...] = (256, 1024, 2048, 4096, 8192, 16384)
    batches: tuple[int, ...] = (1, 8)
    d_model: int = 1024
    num_heads: int = 16
    num_kv_heads: int = 4
    latent_dim: int = 256
    rope_dim: int = 32
    dtype: str = "float32"
    rounds: int = 31
    seconds: float = 8.0
    max_gigabytes: float = 1.5
    out: Path = DEFAULT_OUT


# Contenders


@dataclass(frozen=True)
class Design:
    """One way of sharing keys and values, and one form of computing it."""

    kind: str
    absorbed: bool = False
    dense: bool = False


DESIGNS = {
    "mha": Design("mha"),
    "gqa": Design("gqa"),
    "mqa": Design("mqa"),
    "mla_absorbed": Design("mla", absorbed=True),
    "mla_naive": Design("mla"),
    "mha_dense": Design("mha", dense=True),
    "gqa_dense": Design("gqa", dense=True),
    "mla_absorbed_dense": Design("mla", absorbed=True, dense=True),
}


def sizes(config: Config) -> dict[str, int]:
    """The sizes by which `mha_jax.bytes_per_token` prices every kind."""
    return {
        "num_heads": config.num_heads,
        "num_kv_heads": config.num_kv_heads,
        "head_dim": config.d_model // config.num_heads,
        "latent_dim": config.latent_dim,
        "rope_dim": config.rope_dim,
    }


def layer(design: Design, config: Config) -> tuple[Any, Callable[..., Any]]:
    """Parameters, and a step ``(params, x, cache) -> (output, cache)``."""
    key = jax.random.key(0)
    implementation = "dense" if design.dense else None
    if design.kind == "mla":
        given = {"latent_dim": config.latent_dim, "rope_dim": config.rope_dim, "dtype": config.dtype}
        params = init_latent_attention(key, config.d_model, config.num_heads, **given)
        attend = partial(latent_attention, absorbed=design.absorbed, implementation=implementation)
    else:
        heads = {"mha": config.num_heads, "gqa": config.num_kv_heads, "mqa": 1}[design.kind]
        params = init_multi_head_attention(
            key, config.d_model, config.num_heads, num_kv_heads=heads, dtype=config.dtype
        )
        attend = partial(multi_head_attention, rope=RotaryEmbedding(), implementation=implementation)
    return params, lambda params, x, cache: attend(params, x, cache=cache)


def filled_cache(design: Design, config: Config, batch: int, context: int, length: int) -> Any:
    """A cache of ``context`` places, ``length`` of them in use; what it holds is drawn."""
    if design.kind == "mla":
        cache = init_latent_cache(
            context, config.latent_dim, config.rope_dim, batch_shape=(batch,), dtype=config.dtype
        )
    else:
        heads = {"mha": config.num_heads, "gqa": config.num_kv_heads, "mqa": 1}[design.kind]
        head_dim = config.d_model // config.num_heads
        cache = init_cache(context, heads, head_dim, batch_shape=(batch,), dtype=config.dtype)
    first, second = (
        jax.random.normal(key, x.shape, x.dtype)
        for key, x in zip(jax.random.split(jax.random.key(1), 2), cache[:2], strict=True)
    )
    return type(cache)(first, second, jnp.int32(length))


class Decoder:
    """A compiled step and its cache, which every call donates and gets back with one more entry."""

    def __init__(self, design: Design, config: Config, batch: int, context: int, last: int = 32) -> None:
        self.capacity, self.start = context, max(0, context - last)
        self.cache = filled_cache(design, config, batch, context, self.start)
        self.params, step = layer(design, config)
        self.x = jax.random.normal(jax.random.key(2), (batch, 1, config.d_model), config.dtype)
        arguments = self.params, self.x, self.cache
        self.program: Any = jax.jit(step, donate_argnames="cache").lower(*arguments).compile()
        self.length = self.start

    def reset(self) -> None:
        """Back to the first of the last entries."""
        self.length, self.cache = self.start, self.cache._replace(length=jnp.int32(self.start))

    def __call__(self) -> jax.Array:
        """The output of one token."""
        if self.length == self.capacity:
            self.reset()
        output, self.cache = self.program(self.params, self.x, self.cache)
        self.length += 1
        return jax.block_until_ready(output)

    @property
    def weight_bytes(self) -> int:
        """Of the layer's parameters."""
        return sum(x.nbytes for x in jax.tree.leaves(self.params))

    @property
    def cache_bytes(self) -> int:
        """Of the cache's entries."""
        return sum(x.nbytes for x in self.cache[:2])


# Records


def read_rate(rounds: int = 15) -> float:
    """Bytes a second at which a sum reads 256 MB."""
    array = jnp.ones(2**26, jnp.float32)
    total = jax.jit(jnp.sum)
    times = interleaved_seconds({"read": lambda: jax.block_until_ready(total(array))}, rounds, seconds=3.0)
    return array.nbytes / Quartiles.of(times["read"]).median


def floor(design: Design, config: Config, batch: int, context: int, weights: int) -> tuple[int, int]:
    """Operations and bytes of one token of each sequence that cannot be avoided.

    Args:
        design: what is decoded.
        config: sizes.
        batch: sequences.
        context: entries that are attended.
        weights: number of weights.

    Returns:
        Operations: 2 for every weight and sequence, and for every entry, head and dimension of the two products.
        MLA is counted in its absorbed form. Bytes: cache and weights once.
    """
    itemsize = jnp.dtype(config.dtype).itemsize
    width = 2 * (config.d_model // config.num_heads)
    if design.kind == "mla":
        width = 2 * config.latent_dim + config.rope_dim
    operations = 2 * batch * (weights + context * config.num_heads * width)
    entry = bytes_per_token(design.kind, **sizes(config), dtype=config.dtype)  # pyright: ignore[reportArgumentType]
    return operations, batch * context * entry + weights * itemsize


def expanded_gigabytes(config: Config, batch: int, context: int) -> float:
    """What the keys and values of all heads take that naive MLA expands in float32."""
    width = 2 * (config.d_model // config.num_heads) + config.rope_dim
    return batch * context * config.num_heads * width * 4 / 1e9


def comparison(config: Config, batch: int, context: int, rates: Mapping[str, float]) -> list[Record]:
    """A record of every design at one batch and context."""
    designs = dict(DESIGNS)
    left_out = []
    if expanded_gigabytes(config, batch, context) > config.max_gigabytes:
        left_out.append("mla_naive")
        del designs["mla_naive"]
    decoders = {name: Decoder(design, config, batch, context) for name, design in designs.items()}
    check_agreement(decoders, config.dtype)
    times = interleaved_seconds(dict(decoders), config.rounds, config.seconds)
    return [
        _record(name, designs[name], decoders[name], times, left_out, config, batch, context, rates)
        for name in designs
    ]


def check_agreement(decoders: Mapping[str, Decoder], dtype: str) -> None:
    """Forms of one design give the same output for the same cache."""
    tolerance = 1e-4 if dtype in ("float32", "float64") else 5e-2
    outputs = {name: np.asarray(decoder(), np.float32) for name, decoder in decoders.items()}
    for name, output in outputs.items():
        other = {"mla_naive": "mla_absorbed"}.get(name, name.removesuffix("_dense"))
        scale = float(np.abs(outputs[other]).max())
        np.testing.assert_allclose(output, outputs[other], rtol=tolerance, atol=tolerance * scale)


def _record(
    name: str,
    design: Design,
    decoder: Decoder,
    times: dict[str, list[float]],
    left_out: list[str],
    config: Config,
    batch: int,
    context: int,
    rates: Mapping[str, float],
) -> Record:
    itemsize = jnp.dtype(config.dtype).itemsize
    operations, data = floor(design, config, batch, context, decoder.weight_bytes // itemsize)
    seconds = Quartiles.of(times[name])
    bound = max(operations / rates["operations_per_second"], data / rates["read_bytes_per_second"])
    formula = bytes_per_token(design.kind, **sizes(config), dtype=config.dtype)  # pyright: ignore[reportArgumentType]
    record: Record = {
        "contender": name,
        "design": design.kind,
        "context": context,
        "batch": batch,
        "dtype": config.dtype,
        "rounds": len(times[name]),
        "bytes_per_token": formula,
        "measured_bytes_per_token": decoder.cache_bytes / (batch * context),
        "cache_bytes": decoder.cache_bytes,
        "weight_bytes": decoder.weight_bytes,
        "temporary_bytes": temporary_bytes(decoder.program),
        "seconds": asdict(seconds),
        "tokens_per_second": batch / seconds.median,
        "floor_operations": operations,
        "floor_bytes": data,
        "floor_seconds": bound,
        "floor_tokens_per_second": batch / bound,
        "seconds_over_floor": seconds.median / bound,
        "speed_over_mha": asdict(ratios(times, "mha", name)),
        "left_out": left_out,
    }
    for suffix in ("naive", "dense"):
        rival = f"mla_{suffix}" if suffix == "naive" else f"{name}_{suffix}"
        if rival in times and (suffix == "dense" or name == "mla_absorbed"):
            record[f"speed_over_{suffix}"] = asdict(ratios(times, rival, name))
    return record


def run(config: Config, progress: Callable[[str], None] = lambda _: None) -> Record:
    """Run all comparisons and return everything that is written.

    Raises:
        ValueError: no context or batch, one that is not positive, fewer than two rounds, heads that do not fit.
    """
    for name in "contexts", "batches":
        values = getattr(config, name)
        if not values or min(values) < 1:
            raise ValueError(f"{name}: expected positive numbers, got {values}")
    if config.rounds < 2:
        raise ValueError(f"rounds: expected at least 2, got {config.rounds}")
    if config.d_model % config.num_heads:
        raise ValueError(f"num_heads: expected a divisor of {config.d_model}, got {config.num_heads}")
    progress("rates of the machine")
    rates = machine_rates() | {"read_bytes_per_second": read_rate()}
    points = []
    for batch in config.batches:
        for context in config.contexts:
            progress(f"decode: batch {batch}, context {context}")
            points += comparison(config, batch, context, rates)
    settings = {k: v for k, v in asdict(config).items() if k != "out"}
    return {
        "config": settings,
        "environment": environment(rates),
        "points": points,
        "predictions": outcomes(points),
    }


# Command


def show(result: Mapping[str, Any], console: Console) -> None:
    """Print a table of the speeds."""
    table = Table(title="decoding one token of every sequence: medians (quartiles)")
    for head in (
        "batch",
        "context",
        "design",
        "B/token",
        "ms",
        "tokens/s",
        "x floor",
        "speed / MHA",
        "temp / cache",
    ):
        table.add_column(head, justify="right")
    for p in result["points"]:
        speed, temporary = p["speed_over_mha"], p["temporary_bytes"]
        table.add_row(
            str(p["batch"]),
            str(p["context"]),
            LABELS.get(p["contender"], p["contender"]),
            str(p["bytes_per_token"]),
            f"{1e3 * p['seconds']['median']:.2f}",
            f"{p['tokens_per_second']:.0f}",
            f"{p['seconds_over_floor']:.1f}",
            f"{speed['median']:.2f} ({speed['low']:.2f}-{speed['high']:.2f})",
            "-" if temporary is None else f"{temporary / p['cache_bytes']:.2f}",
        )
    console.print(table)
    for outcome in result["predictions"].values():
        held = {True: "held", False: "did not hold", None: "not measured"}[outcome["held"]]
        console.print(f"{held}: {outcome['prediction']}")


def main(config: Config) -> None:
    """Run, write, draw, show."""
    console = Console()
    with console.status("") as status:
        result = run(config, status.update)
    write_and_show(result, config.out / stem("decode", result), figure, show, console)


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
