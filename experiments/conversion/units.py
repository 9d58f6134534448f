"""Points of the conversion experiment and what each computes: losses of one merge, before and after healing."""

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from experiments.conversion.config import ConversionConfig
from experiments.conversion.merge import Moments, energy, joined, merged, weight_moments
from experiments.points import Kind, Record
from experiments.pretrained import ModelConfig, PretrainedModel, forward, load
from experiments.pretrained.model import normalise
from experiments.verses import load_text
from mha_jax import bytes_per_token, project_heads

ORIGINAL = "original"
_TEST_BATCH = 4


@dataclass(frozen=True)
class ConversionPoint:
    """One conversion.

    Attributes:
        model: see `ConversionConfig`.
        text: see there.
        method: of merging, or ``original``: not converted.
        part: what is merged: ``both``, or ``keys`` or ``values`` alone, to tell what each costs.
        num_kv_heads: after the conversion.
        steps: of healing, 0 for none.
        batch: sequences of a step.
        length: tokens of a sequence.
        test_windows: sequences of held-out text.
        calibration_windows: sequences for moments.
        seed: of the sequences that are drawn.
        learning_rate: of healing, None without.
    """

    model: str
    text: str
    method: str
    part: str
    num_kv_heads: int
    steps: int
    batch: int
    length: int
    test_windows: int
    calibration_windows: int
    seed: int
    learning_rate: float | None = None


_IDENTITY = frozenset(ConversionPoint.__dataclass_fields__)
KINDS = {
    "points": Kind(
        ConversionPoint,
        _IDENTITY
        | {
            "loss",
            "healed_loss",
            "window_losses",
            "healed_window_losses",
            "train_losses",
            "key_energy",
            "value_energy",
            "key_energy_unrotated",
            "cache_bytes_per_token",
            "trained_parameters",
            "test_tokens",
            "status",
            "reason",
            "seconds",
        },
    )
}


def grid(config: ConversionConfig) -> list[ConversionPoint]:
    """The original, then every method with each part merged and with both, healed where that is asked for."""
    base = ConversionPoint(
        model=config.model,
        text=config.text,
        method=ORIGINAL,
        part="both",
        num_kv_heads=config.num_kv_heads,
        steps=config.steps if config.healed else 0,
        batch=config.batch,
        length=config.length,
        learning_rate=config.learning_rate if config.healed else None,
        test_windows=config.test_windows,
        calibration_windows=config.calibration_windows,
        seed=config.seed,
    )
    plain = replace(base, steps=0, learning_rate=None)
    points = [base]
    for method in config.methods:
        points += [replace(plain, method=method, part=part) for part in ("keys", "values")]
        points.append(replace(base if method in config.healed else plain, method=method))
    return points


def compute(points: Sequence[ConversionPoint]) -> list[Record]:
    """One record a point."""
    return [_compute(point) for point in points]


def _compute(point: ConversionPoint) -> Record:
    started = time.perf_counter()
    model = load(point.model)
    if point.num_kv_heads == 0 or model.config.num_kv_heads % point.num_kv_heads:
        raise ValueError(
            f"num_kv_heads: expected a divisor of {model.config.num_kv_heads}, got {point.num_kv_heads}"
        )
    params, config, kept = converted(model, point)
    train, test = windows(point.model, point.text, point.length)
    tested = spread(test, point.test_windows)
    before = losses(params, config, tested)
    record: Record = {
        **asdict(point),
        **kept,
        "loss": float(before.mean()),
        "window_losses": before.tolist(),
        "healed_loss": None,
        "healed_window_losses": None,
        "train_losses": None,
        "cache_bytes_per_token": bytes_per_token(
            "gqa", num_kv_heads=config.num_kv_heads, head_dim=config.head_dim, num_layers=config.num_layers
        ),
        "trained_parameters": None,
        "test_tokens": tested.shape[0] * (point.length - 1),
        "status": "ok",
        "reason": "",
    }
    if point.steps:
        record |= _healed(point, params, config, train, tested)
    return record | {"seconds": round(time.perf_counter() - started, 3)}


def _healed(
    point: ConversionPoint,
    params: Mapping[str, Any],
    config: ModelConfig,
    train: np.ndarray,
    tested: np.ndarray,
) -> Record:
    rng = np.random.default_rng([point.seed, 1])
    drawn = train[rng.integers(len(train), size=(point.steps, point.batch))]
    attention = params["layers"]["attention"]
    attention, curve = heal(attention, params, config, jnp.asarray(drawn), jnp.float32(point.learning_rate))
    numbers: Record = {"trained_parameters": sum(x.size for x in jax.tree.leaves(attention))}
    curve = np.asarray(curve)
    if not np.isfinite(curve).all():
        return numbers | {"status": "failed", "reason": "healing diverged"}
    params = {**params, "layers": {**params["layers"], "attention": attention}}
    after = losses(params, config, tested)
    numbers |= {"healed_loss": float(after.mean()), "healed_window_losses": after.tolist()}
    return numbers | {"train_losses": curve.tolist()}


# Text


@functools.lru_cache(maxsize=2)
def windows(model: str, text: str, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Sequences of ``length`` tokens, ``(n, length)``, of the training and of the held-out text, end to end.

    Raises:
        ValueError: a part of the text is shorter than one sequence.
    """
    found = load_text(text)
    parts = []
    for name, passages in ("training", found.train), ("held-out", found.held_out):
        ids = np.concatenate([np.asarray(x, np.int32) for x in load(model).tokenizer.encode_all(passages)])
        count = len(ids) // length
        if count == 0:
            raise ValueError(f"text: expected at least {length} tokens of {name} text, got {len(ids)}")
        parts.append(ids[: count * length].reshape(count, length))
    return parts[0], parts[1]


def spread(sequences: np.ndarray, count: int) -> np.ndarray:
    """``count`` sequences, evenly over the text; all where there are no more."""
    count = min(count, len(sequences))
    return sequences[np.linspace(0, len(sequences) - 1, count).round().astype(int)]


# Losses


def next_token_loss(params: Any, config: ModelConfig, tokens: Int[Array, "b t"]) -> Float[Array, "b"]:
    """Mean cross-entropy of every next token of a sequence, in nats."""
    logits = forward(params, config, tokens, jnp.full(tokens.shape[0], tokens.shape[1])).logits
    if logits is None:
        raise ValueError("model: expected one that predicts the next token, got an encoder")
    return optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], tokens[:, 1:]).mean(-1)


_batch_losses = jax.jit(next_token_loss, static_argnums=1)


def losses(params: Any, config: ModelConfig, sequences: np.ndarray) -> np.ndarray:
    """Loss of every sequence, in float64; ``_TEST_BATCH`` at a time, the last batch filled up."""
    padded = np.concatenate([sequences, np.repeat(sequences[-1:], -len(sequences) % _TEST_BATCH, 0)])
    batches = padded.reshape(-1, min(_TEST_BATCH, len(padded)), sequences.shape[1])
    found = [np.asarray(_batch_losses(params, config, jnp.asarray(batch)), np.float64) for batch in batches]
    return np.concatenate(found)[: len(sequences)]


@functools.partial(jax.jit, static_argnums=2)
def heal(
    attention: Any,
    params: Any,
    config: ModelConfig,
    sequences: Int[Array, "n b t"],
    learning_rate: Float[Array, ""],
) -> tuple[Any, Float[Array, "n"]]:
    """Trains the attention of all layers by Adam; everything else stays.

    Args:
        attention: projections of all layers.
        params: of the whole model.
        config: of the model.
        sequences: of every step.
        learning_rate: reached linearly in the first tenth of the steps, then kept.

    Returns:
        The trained projections, and the loss of every step before it was taken.
    """
    count = sequences.shape[0]
    adam = optax.scale_by_adam()

    def loss(attention, tokens):
        own = {**params, "layers": {**params["layers"], "attention": attention}}
        return next_token_loss(own, config, tokens).mean()

    def step(state, inputs):
        attention, moments = state
        tokens, number = inputs
        value, gradient = jax.value_and_grad(loss)(attention, tokens)
        updates, moments = adam.update(gradient, moments)
        rate = learning_rate * jnp.minimum(1.0, (number + 1) / max(1, count // 10))
        attention = jax.tree.map(lambda x, u: x - rate * u, attention, updates)
        return (attention, moments), value

    state = attention, adam.init(attention)
    (attention, _), curve = jax.lax.scan(step, state, (sequences, jnp.arange(count, dtype=jnp.float32)))
    return attention, curve


# Conversion


def converted(model: PretrainedModel, point: ConversionPoint) -> tuple[dict[str, Any], ModelConfig, Record]:
    """Parameters and configuration of the converted model, and the shares of the moments that it keeps."""
    kept: Record = dict.fromkeys(("key_energy", "value_energy", "key_energy_unrotated"))
    if point.method == ORIGINAL:
        return dict(model.params), model.config, kept
    measured = moments(point.model, point.text, point.length, point.calibration_windows)
    attention = jax.tree.map(lambda x: np.asarray(x, np.float64), model.params["layers"]["attention"])
    rope, heads = model.config.rope, point.num_kv_heads
    made, energies = [], []
    for number in range(model.config.num_layers):
        layer = jax.tree.map(lambda x, n=number: x[n], attention)
        fit = weight_moments(layer) if point.method == "svd" else measured[number]
        keys, values = merged(layer, heads, rope, point.method, fit)  # pyright: ignore[reportArgumentType]
        made.append(joined(layer, keys, values, heads, point.part))  # pyright: ignore[reportArgumentType]
        energies.append(energy(layer, heads, rope, point.method, measured[number], fit))  # pyright: ignore[reportArgumentType]
    means = np.mean(energies, axis=0)
    kept |= {"key_energy_unrotated": float(means[2])}
    kept |= {"key_energy": float(means[0])} if point.part != "values" else {}
    kept |= {"value_energy": float(means[1])} if point.part != "keys" else {}
    stacked = jax.tree.map(lambda *x: jnp.asarray(np.stack(x), jnp.float32), *made)
    params = {**model.params, "layers": {**model.params["layers"], "attention": stacked}}
    config = replace(model.config, num_kv_heads=heads) if point.part == "both" else model.config
    return params, config, kept


@functools.lru_cache(maxsize=2)
def moments(model: str, text: str, length: int, count: int) -> tuple[Moments, ...]:
    """`Moments` of every layer's keys and values on training text: means over tokens.

    A model of one layer, whose token table is what entered the layer, gives what enters the next.
    """
    loaded = load(model)
    config = replace(loaded.config, num_layers=1)
    tokens = spread(windows(model, text, length)[0], count)
    states = jnp.asarray(loaded.params["embed"]["tokens"])[tokens]
    found = []
    for number in range(loaded.config.num_layers):
        layer = jax.tree.map(lambda x, n=number: x[n : n + 1], loaded.params["layers"])
        states, key, value = _layer(layer, config, states)
        found.append(Moments(np.asarray(key, np.float64), np.asarray(value, np.float64)))
    return tuple(found)


@functools.partial(jax.jit, static_argnums=1)
def _layer(
    layer: Any, config: ModelConfig, states: Float[Array, "b t m"]
) -> tuple[Float[Array, "b t m"], Float[Array, "kd kd"], Float[Array, "ke ke"]]:
    """What leaves a layer, and the moments of its keys and values."""
    own = jax.tree.map(lambda x: x[0], layer)
    _, key, value = project_heads(own["attention"], normalise(own["attention_norm"], config, states))
    batch, length, width = states.shape
    table = {"tokens": states.reshape(batch * length, width)}
    ids = jnp.arange(batch * length).reshape(batch, length)
    after = forward({"embed": table, "layers": layer}, config, ids, jnp.full(batch, length)).hidden

    def moment(x: Array) -> Array:
        flat = x.reshape(batch * length, -1)
        return flat.T @ flat / flat.shape[0]

    return after, moment(key), moment(value)
