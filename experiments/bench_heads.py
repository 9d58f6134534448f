"""Benchmark of equal cost: operations and time of an attention layer against its number of heads, at a fixed width.

Command: ``python -m experiments.bench_heads [--num-heads N ...] [--dtype NAME] [--out DIR]``, or ``make bench``.
Time: about three minutes on two CPU cores. PyTorch is measured where it is installed (``pip install '.[bench]'``).

"Heads of size d_model / h cost what one head of size d_model costs" (Vaswani et al. 2017 say: similar). It counts the
operations of the products: four projections and two products of tokens with tokens, none of which depends on h. What
it leaves out grows with h: every head has a softmax of its own, T^2 entries to exponentiate, store and read, while its
products get thinner. One step here is a whole layer of self-attention, forwards and backwards to input and parameters;
all head counts and contenders run interleaved in one process as `experiments.bench` describes, so that the ratios are
of the same minutes.

*Operations* are counted twice: by formula (products alone, the same for all contenders) and by the compiler (XLA's
cost analysis of the compiled step, softmax included, exponentials apart). Where the compiled program has a loop, its
body would count once: that of our kernels is then counted by the formula of `experiments.blockwise_operations`. Of
PyTorch's fused kernel the products are known and no more.

What was expected, before the first run: products as by the formula at every h; the compiler's count within 1% of them
at h = 1 and growing in proportion to h T^2, by a tenth or so at h = 64; time at 64 heads more than 1.5 times that at
one head for whoever keeps all weights (`ours_dense`, `jax_nn`), less for what works on blocks.
"""

import functools
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
from matplotlib.figure import Figure
from rich.console import Console

from experiments import style
from experiments.bench_output import stem, write_and_show
from experiments.blockwise_operations import blockwise_operations
from experiments.operations import compiled_operations
from experiments.tables import Cells
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
from mha_jax import combine_heads, init_multi_head_attention, multi_head_attention, project_heads

DEFAULT_OUT = Path(__file__).parents[1] / "figures" / "bench"

Layer = Callable[[Any, jax.Array], jax.Array]


@dataclass(frozen=True)
class Config:
    """Configuration of the benchmark.

    Attributes:
        num_heads: head counts, each a divisor of ``d_model``; the first is what times are compared with.
        d_model: width of the layer; heads have size ``d_model / num_heads``.
        length: tokens of a sequence.
        batch: sequences.
        dtype: of input and parameters.
        rounds: most rounds.
        seconds: time for all rounds; at least five are run.
        out: folder to write ``heads.json`` (on a GPU ``heads-<device>-<dtype>.json``) and its figure into.
    """

    num_heads: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    d_model: int = 512
    length: int = 512
    batch: int = 2
    dtype: str = "float32"
    rounds: int = 31
    seconds: float = 90.0
    out: Path = DEFAULT_OUT


# Contenders


def _ours(implementation: str | None) -> Layer:
    return lambda params, x: multi_head_attention(params, x, implementation=implementation)


def _jax_nn(params: Any, x: jax.Array) -> jax.Array:
    """`jax.nn`'s attention between the projections of `mha_jax`: JAX has none of its own."""
    return combine_heads(params, jax.nn.dot_product_attention(*project_heads(params, x)))


CONTENDERS: dict[str, Layer] = {"ours": _ours(None), "ours_dense": _ours("dense"), "jax_nn": _jax_nn}
"""What JAX compiles. PyTorch is apart."""


def _step(layer: Layer) -> Callable[..., Any]:
    def step(params, x, grad):
        output, pullback = jax.vjp(layer, params, x)
        return output, pullback(grad)

    return step


def _torch_calls(params: Any, x: np.ndarray, grad: np.ndarray) -> dict[str, Callable[[], Any]]:
    """The same layer in PyTorch: one product for the heads of each projection, its fused attention, its autograd."""
    torch: Any = import_module("torch")
    heads, width, size = params["query"]["kernel"].shape
    into = [
        torch.from_numpy(np.array(params[part]["kernel"]).swapaxes(1, 2).reshape(heads * size, width).copy())
        for part in ("query", "key", "value")
    ]
    out = torch.from_numpy(np.array(params["out"]["kernel"]).reshape(heads * size, width).T.copy())
    inputs = [w.requires_grad_() for w in (torch.from_numpy(x.copy()), *into, out)]
    cotangent = torch.from_numpy(grad.copy())

    def call(threads: int) -> Any:
        torch.set_num_threads(threads)
        x, *kernels, out = inputs
        split = (
            torch.nn.functional.linear(x, w).unflatten(-1, (heads, size)).transpose(1, 2) for w in kernels
        )
        attended = torch.nn.functional.scaled_dot_product_attention(*split)
        output = torch.nn.functional.linear(attended.transpose(1, 2).flatten(2), out)
        return output, torch.autograd.grad(output, inputs, cotangent)

    return {f"torch_sdpa_{name}": functools.partial(call, n) for name, n in torch_threads().items()}


# Records


def product_operations(batch: int, length: int, d_model: int) -> int:
    """Operations of the products of one step: ``3 B (8 T d^2 + 4 T^2 d)``, whatever the number of heads.

    Forwards four projections and two products of tokens with tokens, two operations a multiplication and addition;
    backwards twice as many.
    """
    return 3 * batch * (8 * length * d_model**2 + 4 * length**2 * d_model)


def _prepared(config: Config) -> tuple[dict[str, Any], dict[str, Callable[[], Any]]]:
    """Compiled programs and calls of every contender at every head count, by ``<contender>.<heads>``."""
    rng = np.random.default_rng(0)
    shape = (config.batch, config.length, config.d_model)
    arrays = [rng.standard_normal(shape, np.float32) for _ in range(2)]
    x, grad = (jnp.asarray(a, config.dtype) for a in arrays)
    programs: dict[str, Any] = {}
    calls: dict[str, Callable[[], Any]] = {}
    torch = find_spec("torch") is not None and config.dtype == "float32" and jax.default_backend() == "cpu"
    for heads in config.num_heads:
        params = init_multi_head_attention(jax.random.key(0), config.d_model, heads, dtype=config.dtype)
        args = (params, x, grad)
        outputs = {}
        for name, layer in CONTENDERS.items():
            program = jax.jit(_step(layer)).lower(*args).compile()
            programs[f"{name}.{heads}"] = program
            calls[f"{name}.{heads}"] = lambda program=program, args=args: jax.block_until_ready(
                program(*args)
            )
            outputs[name] = program(*args)
        if torch:
            for name, call in _torch_calls(params, *arrays).items():
                calls[f"{name}.{heads}"] = call
                output, grads = call()
                outputs[name] = (output.detach().numpy(), (None, grads[0].numpy()))
        _check_agreement(outputs, config.dtype)
    return programs, calls


def _check_agreement(outputs: Mapping[str, Any], dtype: str) -> None:
    """Output and gradient of the input are the same for all."""
    tolerance = 2e-4 if dtype == "float32" else 5e-2
    expected = outputs["ours_dense"]
    for output, (_, grad) in outputs.values():
        for theirs, ours in ((output, expected[0]), (grad, expected[1][1])):
            theirs, ours = np.asarray(theirs, np.float32), np.asarray(ours, np.float32)
            np.testing.assert_allclose(theirs, ours, rtol=tolerance, atol=tolerance * np.abs(ours).max())


def _fastest_threads(times: Mapping[str, list[float]], num_heads: tuple[int, ...]) -> dict[str, str]:
    """Timed calls by contender and head count; PyTorch by the number of threads that is faster over all of them."""
    found = {name: name for name in times if not name.startswith("torch")}
    kinds = {name.rpartition(".")[0] for name in times if name.startswith("torch")}
    if kinds:
        total = {k: sum(statistics.median(times[f"{k}.{h}"]) for h in num_heads) for k in kinds}
        best = min(total, key=lambda k: total[k])
        found |= {f"torch_sdpa.{h}": f"{best}.{h}" for h in num_heads}
    return found


def run(config: Config, progress: Callable[[str], None] = lambda _: None) -> Record:
    """Run the comparison and return everything that is written.

    Raises:
        ValueError: no head count, one that does not divide ``d_model``, a size that is not positive, fewer than two
            rounds.
    """
    if not config.num_heads or any(h < 1 or config.d_model % h for h in config.num_heads):
        raise ValueError(f"num_heads: expected divisors of {config.d_model}, got {config.num_heads}")
    for name, least in (("d_model", 1), ("length", 1), ("batch", 1), ("rounds", 2)):
        if getattr(config, name) < least:
            raise ValueError(f"{name}: expected at least {least}, got {getattr(config, name)}")
    progress("rates of the machine")
    rates = machine_rates()
    progress("heads: compiling")
    programs, calls = _prepared(config)
    progress(f"heads: {len(calls)} layers in turn")
    times = interleaved_seconds(calls, config.rounds, config.seconds)
    points = [
        _record(name, timed, times, programs.get(name), config)
        for name, timed in _fastest_threads(times, config.num_heads).items()
    ]
    settings = {k: v for k, v in asdict(config).items() if k != "out"}
    left_out = [] if any(p["contender"] == "torch_sdpa" for p in points) else ["torch_sdpa"]
    return {"config": settings, "environment": environment(rates), "points": points, "left_out": left_out}


def _record(name: str, timed: str, times: Mapping[str, list[float]], program: Any, config: Config) -> Record:
    contender, _, heads = name.rpartition(".")
    reference = f"{timed.rpartition('.')[0]}.{config.num_heads[0]}"
    operations = product_operations(config.batch, config.length, config.d_model)
    counts = {"compiled_operations": None, "transcendentals": None}
    return {
        "contender": contender,
        "num_heads": int(heads),
        "head_dim": config.d_model // int(heads),
        "d_model": config.d_model,
        "length": config.length,
        "batch": config.batch,
        "dtype": config.dtype,
        "rounds": len(times[timed]),
        "timed_as": timed,
        "seconds": asdict(Quartiles.of(times[timed])),
        "time_over_fewest_heads": asdict(ratios(dict(times), timed, reference)),
        "product_operations": operations,
        **(counts if program is None else compiled_operations(program)),
        "softmax_entries": config.batch * int(heads) * config.length**2,
        "temporary_bytes": None if program is None else temporary_bytes(program),
        "achieved_operations_per_second": operations / statistics.median(times[timed]),
    }


# Figure and tables


def operations(point: Mapping[str, Any]) -> int | None:
    """Operations of a step, softmax included: the compiler's count, of ours in blocks by formula; None of PyTorch's."""
    if point["compiled_operations"] is not None or point["contender"] != "ours":
        return point["compiled_operations"]
    sizes = (point[name] for name in ("batch", "length", "d_model", "num_heads"))
    return blockwise_operations(point["product_operations"], *sizes)


_BY_FORMULA = style.Look("ours, by formula", style.BLUE, "o", filled=False)
_LOOKS = {
    "ours": style.Look("ours", style.BLUE, "o"),
    "ours_dense": style.Look("ours, dense", style.SKY, "^"),
    "jax_nn": style.Look("jax.nn", style.VERMILLION, "s", filled=False),
    "torch_sdpa": style.Look("PyTorch SDPA", style.BLACK, "X"),
}


def figure(result: Mapping[str, Any]) -> tuple[Figure, str]:
    """Operations and time against the number of heads, and the caption."""
    points, config = result["points"], result["config"]
    heads = sorted(config["num_heads"])
    with style.context():
        grid, axes = style.grid(1, 2, style.DOUBLE_WIDTH, 2.8)
        counts, time = axes[0]
        shown = [name for name in _LOOKS if any(p["contender"] == name for p in points)]
        formulas = False
        for name in shown:
            own = sorted((p for p in points if p["contender"] == name), key=lambda p: p["num_heads"])
            compiled = [p for p in own if p["compiled_operations"] is not None]
            by_formula = [p for p in own if p not in compiled and operations(p) is not None]
            for part, look in ((compiled, _LOOKS[name]), (by_formula, _BY_FORMULA)):
                x = [p["num_heads"] for p in part]
                y = [(operations(p) or 0) / p["product_operations"] for p in part]
                style.interval_bars(counts, x, y, [None] * len(x), [None] * len(x), look, linestyle="-")
            formulas |= bool(by_formula)
            ratio = [p["time_over_fewest_heads"] for p in own]
            style.interval_bars(
                time,
                [p["num_heads"] for p in own],
                [r["median"] for r in ratio],
                [r["low"] for r in ratio],
                [r["high"] for r in ratio],
                _LOOKS[name],
                linestyle="-",
            )
        counts.axhline(1, **style.PREDICTION)
        time.axhline(1, **style.PREDICTION)
        for panel in (counts, time):
            panel.set_xscale("log", base=2)
            style.plain_log_ticks(panel.xaxis, heads)
            panel.set_xlabel(f"heads $h$ of size {config['d_model']} / $h$")
            panel.set_ylim(0, 1.08 * panel.get_ylim()[1])  # markers at the top are whole
        counts.set_ylabel("operations / products alone")
        time.set_ylabel(f"time / time at h = {config['num_heads'][0]}")
        handles = [style.handle(look) for look in [_LOOKS[name] for name in shown] + [_BY_FORMULA] * formulas]
        handles.append(style.line_handle("products: the same at every h", style.PREDICTION))
        style.legend_below(grid, handles, 3)
    return grid, _caption(result)


def _caption(result: Mapping[str, Any]) -> str:
    config, place = result["config"], result["environment"]
    return (
        f"A layer of self-attention, forwards and backwards, on {place['device_kind']} ({place['cpu_count']} CPUs), "
        f"{config['dtype']}, d_model = {config['d_model']}, {config['batch']} sequences of {config['length']} tokens. "
        "Left: operations, softmax included, over those of the products (formula): by the compiler's count, and of "
        "ours where its program has a loop by formula, with the logits that it computes twice (PyTorch: no count). "
        "Right: time over that with the fewest heads in the same rounds, median and quartiles. "
        "Drawn by: python -m experiments.bench_heads"
    )


def heads_cells(result: Mapping[str, Any]) -> Cells:
    """Operations and time by head count as a table."""
    found = {(p["num_heads"], p["contender"]): p for p in result["points"]}
    names = [name for name in _LOOKS if any(key[1] == name for key in found)]
    counted = [
        name for name in names if any(operations(p) is not None for k, p in found.items() if k[1] == name)
    ]
    lines = []
    for heads in sorted({key[0] for key in found}):
        any_ = found[heads, names[0]]
        line = [str(heads), str(any_["head_dim"]), f"{any_['product_operations'] / 1e9:.2f}"]
        line += [_more(found[heads, name]) for name in counted]
        for name in names:
            ratio = found[heads, name]["time_over_fewest_heads"]
            line.append(f"{ratio['median']:.2f} [{ratio['low']:.2f}–{ratio['high']:.2f}]")
        lines.append(tuple(line))
    labels = (_LOOKS[name].label for name in names)
    config, place = result["config"], result["environment"]
    first = {name: found[config["num_heads"][0], name]["seconds"]["median"] for name in names}
    note = (
        f"Products: of one layer of self-attention, forwards and backwards, d_model = {config['d_model']}, "
        f"{config['batch']} sequences of {config['length']} tokens, {config['dtype']}, the same for all. More: beyond "
        "the products, softmax included, by the compiler's count; *: by formula, as the program has a loop, with the "
        f"logits that it computes twice. Then time over that at h = {config['num_heads'][0]} in the same rounds, "
        f"median (quartiles), on {place['cpu_count']} CPUs; there "
        + ", ".join(f"{_LOOKS[name].label} takes {1e3 * seconds:.0f} ms" for name, seconds in first.items())
        + "."
    )
    more = (f"more,\n{_LOOKS[name].label}" for name in counted)
    columns = ("h", "d_k", "products\n(Gop)", *more, *(f"time,\n{label}" for label in labels))
    return Cells("Operations and time at a fixed width", columns, tuple(lines), note)


def _more(point: Mapping[str, Any]) -> str:
    """Operations beyond the products."""
    found = operations(point)
    if found is None:
        return "–"
    mark = "*" if point["compiled_operations"] is None else ""
    return f"{100 * (found / point['product_operations'] - 1):+.1f}%{mark}"


def heads_table(result: Mapping[str, Any]) -> str:
    """`heads_cells` in Markdown, for `experiments.readme`."""
    return heads_cells(result).markdown()


def show(result: Mapping[str, Any], console: Console) -> None:
    """Print operations and times."""
    console.print(heads_cells(result).rich())
    for name in result["left_out"]:
        console.print(f"left out: {name}; to get it: pip install '.[bench]'", markup=False)


def main(config: Config) -> None:
    """Run, write, draw, show."""
    console = Console()
    with console.status("") as status:
        result = run(config, status.update)
    write_and_show(result, config.out / stem("heads", result), figure, show, console)


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
