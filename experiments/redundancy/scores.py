"""Importance of a translation model's heads, and what it has gained over the frequencies of subwords."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from experiments.translation.model import ModelShape, apply, inputs_of
from experiments.translation.rows import Rows, packed
from experiments.translation.subwords import END, Tokens
from experiments.translation.training import losses
from mha_jax import analysis

BATCH = 8
"""Rows whose gradients are computed at a time."""


def importance(
    shape: ModelShape, parameters: Any, pairs: Sequence[tuple[Tokens, Tokens]], length: int
) -> Float[np.ndarray, "a n"]:
    """I_h of every head (Michel et al. 2019): see `mha_jax.analysis`.

    Args:
        shape: of the model.
        parameters: as of `parameters_of`.
        pairs: that the loss, the cross-entropy of all target subwords, is of; those longer than a row are left out.
        length: of rows.

    Returns:
        For every attention layer in the order of `ATTENTIONS`, of norm 1 each. Heads of the encoder are averaged over
        tokens of the source, the others over those of the target.
    """
    rows = packed(pairs, length, range(len(pairs)))
    missing = -len(rows.source) % BATCH
    batches = Rows(*(np.pad(part, ((0, missing), (0, 0))).reshape(-1, BATCH, length) for part in rows))
    totals = _totals(shape, parameters, batches)
    return np.concatenate([np.asarray(analysis.normalise_layers(total.mean())) for total in totals])


@partial(jax.jit, static_argnums=0)
def _totals(shape: ModelShape, parameters: Any, batches: Rows) -> list[analysis.Total]:
    """Sums over sources (layers of the encoder) and targets (all others)."""

    def of_batch(batch: Rows) -> list[analysis.Total]:
        model, valid = apply(shape, parameters), batch.target_segments > 0
        inputs = inputs_of(batch.target, batch.target_segments)

        def loss(mask: Float[Array, "a b t n"]) -> Float[Array, ""]:
            logits = model(batch.source, inputs, batch.source_segments, batch.target_segments, head_mask=mask)
            return jnp.where(valid, losses(logits, batch.target, 0.0)[1], 0).sum()

        ones = jnp.ones((3 * shape.num_layers, *batch.source.shape, shape.num_heads))
        _, gradients = analysis.head_gradients(loss, ones)
        depth = shape.num_layers
        return [
            analysis.importance_total(gradients[:depth], batch.source_segments > 0),
            analysis.importance_total(gradients[depth:], valid),
        ]

    return [total.over(0) for total in jax.lax.map(of_batch, batches)]


def frequency_loss(
    train: Sequence[tuple[Tokens, Tokens]], held_out: Sequence[tuple[Tokens, Tokens]], vocab_size: int
) -> float:
    """Cross-entropy of held-out targets by the frequencies of subwords in training targets, in nats a subword.

    Every pair's `END` is a subword; every count is one higher, so that none is 0.
    """
    counts = Counter(dict.fromkeys(range(vocab_size), 1))
    for _, target in train:
        counts.update((*target, END))
    log_total = np.log(counts.total())
    seen = [token for _, target in held_out for token in (*target, END)]
    return float(np.mean([log_total - np.log(counts[token]) for token in seen]))
