"""One model with its text: what its loss is when heads are masked, and what its heads' scores are."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import rankdata

from experiments.pretrained import PretrainedModel, load
from experiments.pruning import losses
from experiments.pruning.data import BATCH, Batches, subject_batches, text_of
from experiments.roles.measure import marks
from mha_jax import analysis
from theory.problems import seeded_rng


@dataclass(frozen=True)
class Measured:
    """What a mask of heads costs.

    Attributes:
        loss: of the next token in nats; of an encoder one minus the mean cosine to the whole model's embeddings.
        ranking: of an encoder, Spearman's correlation with the whole model over the similarities of all pairs; None
            where it does not exist.
    """

    loss: float
    ranking: float | None


@dataclass(eq=False)
class Subject:
    """See the module's docstring.

    Attributes:
        model: as it was loaded.
        train: batches that scores are computed on.
        test: batches that losses are measured on.
    """

    model: PretrainedModel
    train: Batches
    test: Batches
    _known: dict[tuple[str, bytes], Any] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int]:
        """Layers and heads."""
        return self.model.config.num_layers, self.model.config.num_heads

    @property
    def num_heads(self) -> int:
        """Heads of all layers."""
        return self.shape[0] * self.shape[1]

    def measure(self, kept: Float[np.ndarray, "L N"] | Bool[np.ndarray, "L N"]) -> Measured:
        """The loss on held-out text of a model whose heads' outputs are multiplied by ``kept``."""
        key = ("test", np.asarray(kept, np.float32).tobytes())
        if key not in self._known:
            self._known[key] = self._measure(kept)
        return self._known[key]

    def training_loss(self, kept: Bool[np.ndarray, "L N"]) -> float:
        """The loss on training text by which importance is defined."""
        return float(losses.mean_loss(*self._on(self.train), _mask(kept)))

    def importance(self, kept: Bool[np.ndarray, "L N"] | None = None) -> Float[np.ndarray, "L N"]:
        """I_h of every head, where those that are not kept are masked; every layer has norm 1."""
        kept = np.ones(self.shape, bool) if kept is None else kept
        key = ("importance", kept.tobytes())
        if key not in self._known:
            total = losses.importance(*self._on(self.train), _mask(kept))
            self._known[key] = np.asarray(analysis.normalise_layers(total.mean()), float)
        return self._known[key]

    def measures(self) -> dict[str, Float[np.ndarray, "L N"]]:
        """Confidence, entropy and shares of attention.

        Queries of the confidence are no special tokens, nor in a causal model the first, which has no choice; all keys
        compete for its maximum, [SEP] too, unlike in `experiments.roles`. The entropy is not smoothed. Delimiters are
        those of `experiments.roles.measure.Marks`.
        """
        key = ("measures", b"")
        if key not in self._known:
            queries = self.train.words.copy()
            if self.model.config.causal:
                queries[..., 0] = False
            delimiters = marks(self.train.tokens, self.train.lengths, self.model.tokenizer).delimiter
            totals = losses.measures(*self._on(self.train), jnp.asarray(queries), delimiters)
            found = {name: np.asarray(total.mean(), float) for name, total in totals.items()}
            if self.model.config.causal:
                found["induction"] = self._induction()
            self._known[key] = found
        return self._known[key]

    def _induction(self) -> Float[np.ndarray, "L N"]:
        """On random tokens that are repeated once: nothing but the repetition tells where to look."""
        shape = (1, BATCH, self.train.tokens.shape[-1] // 2)
        words = np.setdiff1d(np.arange(self.model.tokenizer.vocab_size), sorted(self.model.tokenizer.special))
        once = seeded_rng(0, "repeated tokens").choice(words, shape).astype(np.int32)
        tokens = np.concatenate([once, once], axis=-1)
        lengths = np.full(shape[:2], tokens.shape[-1], np.int32)
        everywhere = np.ones(tokens.shape, bool)
        arrays = map(jnp.asarray, (tokens, lengths, everywhere, everywhere))
        totals = losses.measures(self.model.params, self.model.config, *arrays)
        return np.asarray(totals["induction"].mean(), float)

    def ablation(self) -> Float[np.ndarray, "L N"]:
        """What the loss on training text rises by when a head is removed alone."""
        key = ("ablation", b"")
        if key not in self._known:
            whole = self.training_loss(np.ones(self.shape, bool))
            rises = [self.training_loss(kept) - whole for kept in analysis.single_heads(*self.shape)]
            self._known[key] = np.array(rises).reshape(self.shape)
        return self._known[key]

    def embeddings(self, kept: Any) -> Float[np.ndarray, "b m"]:
        """Embeddings of the held-out sentences."""
        found = losses.embeddings(*self._on(self.test), _mask(kept))
        return np.asarray(found, float).reshape(-1, found.shape[-1])

    def _measure(self, kept: Any) -> Measured:
        if self.model.config.causal:
            return Measured(float(losses.mean_loss(*self._on(self.test), _mask(kept))), None)
        key = ("whole", b"")
        if key not in self._known:
            self._known[key] = self.embeddings(np.ones(self.shape, bool))
        return compare(self._known[key], self.embeddings(kept))

    def _on(self, batches: Batches) -> tuple[Any, ...]:
        return self.model.params, self.model.config, jnp.asarray(batches.tokens), jnp.asarray(batches.lengths)


def compare(whole: Float[np.ndarray, "b m"], pruned: Float[np.ndarray, "b m"]) -> Measured:
    """Fidelity of embeddings of norm 1: one minus the mean cosine, and the ranking of all pairs' similarities."""
    loss = float(1 - (whole * pruned).sum(1).mean())
    upper = np.triu_indices(len(whole), 1)
    ours, theirs = ((e @ e.T)[upper] for e in (whole, pruned))
    if np.ptp(ours) == 0 or np.ptp(theirs) == 0:
        return Measured(loss, None)
    # Spearman's correlation: that of ranks (of equal values, their mean).
    return Measured(loss, float(np.corrcoef(rankdata(ours), rankdata(theirs))[0, 1]))


def _mask(kept: Any) -> Any:
    return jnp.asarray(np.asarray(kept, np.float32))


@cache
def subject(model: str, text: str, num_tokens: int, length: int) -> Subject:
    """A model with about ``num_tokens`` tokens to score heads on, and as many to measure losses on."""
    loaded = load(model)
    batches = subject_batches(
        loaded.tokenizer, text_of(text), num_tokens, length, causal=loaded.config.causal
    )
    return Subject(loaded, *batches)
