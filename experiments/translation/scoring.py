"""What trained models are judged by: perplexity of held-out text, and BLEU of its translation (sacreBLEU)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from sacrebleu.metrics.bleu import BLEU

from experiments.translation.model import ModelShape, apply, inputs_of
from experiments.translation.rows import Rows, packed, single
from experiments.translation.search import translate
from experiments.translation.subwords import Encoded, Tokens
from experiments.translation.training import losses

BATCH = 16
"""Rows whose loss is computed at a time."""


@partial(jax.jit, static_argnums=0)
def _loss_sums(shape: ModelShape, parameters: Any, batches: Rows) -> tuple[Float[Array, " seeds"], Array]:
    def of_model(parameters: Any) -> tuple[Array, Array]:
        def of_batch(batch: Rows) -> tuple[Array, Array]:
            inputs = inputs_of(batch.target, batch.target_segments)
            model = apply(shape, parameters)
            logits = model(batch.source, inputs, batch.source_segments, batch.target_segments)
            valid = batch.target_segments > 0
            return jnp.where(valid, losses(logits, batch.target, 0.0)[1], 0).sum(), valid.sum()

        sums, counts = jax.lax.map(of_batch, batches)
        return sums.sum(), counts.sum()

    return jax.lax.map(of_model, parameters)


def perplexity(
    shape: ModelShape, parameters: Any, pairs: Sequence[tuple[Tokens, Tokens]], length: int
) -> list[float]:
    """Per subword (every pair's `END` is one), for each of the models stacked in ``parameters``.

    Pairs longer than a row are cut.
    """
    cut = [(source[: length - 1], target[: length - 1]) for source, target in pairs]
    rows = packed(cut, length, range(len(cut)))
    missing = -len(rows.source) % BATCH
    batches = Rows(*(np.pad(part, ((0, missing), (0, 0))).reshape(-1, BATCH, length) for part in rows))
    sums, counts = _loss_sums(shape, parameters, batches)
    return np.exp(np.asarray(sums, float) / np.asarray(counts)).tolist()


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    """Corpus BLEU with one reference, and sacreBLEU's signature of how it was computed."""
    metric = BLEU()
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    return float(score), str(metric.get_signature())


def translations(shape: ModelShape, parameters: Any, encoded: Encoded, part: str, length: int) -> list[str]:
    """Beam search's translations of a part of a corpus; sources longer than a row are cut."""
    rows = single(getattr(encoded, part), length)
    return [encoded.subwords.decode(tokens) for tokens in translate(shape, parameters, rows)]


def held_out_bleu(shape: ModelShape, parameters: Any, encoded: Encoded, length: int) -> tuple[float, str]:
    """Of the test part's translations against its targets, whole."""
    return bleu(
        translations(shape, parameters, encoded, "test", length),
        [target for _, target in encoded.corpus.test],
    )


def copy_bleu(encoded: Encoded) -> float:
    """Of the sources in place of their translations."""
    sources, targets = zip(*encoded.corpus.test, strict=True)
    return bleu(sources, targets)[0]
