"""Measures of heads: pure functions of attention maps and of a mask that multiplies heads' outputs.

They know no model: any maps ``(..., N, T, T)`` of self-attention will do, and any loss that takes a mask. Padding is
given by masks of tokens, on whichever side, and never counts, whatever its weights: the first token is the first real
one. Half precision is measured in float32. What is averaged over a corpus comes as a `Total` (a sum and a number), so
that a corpus of any size is measured in bounded memory, batch after batch.

==============  =====================================================================================================
where           `attention_shares` (previous, next, self, first, delimiters), `attention_share` of any selector
how widely      `attention_entropy`, `confidence`
how alike       `head_distances` (Jensen-Shannon)
words           `word_maps`, `attended_word`, `dependency_hits` and their baseline `offset_hits`
causal models   `induction_score`, `previous_token_score`, `sink_score`
importance      `head_gradients`, `importance_total`, `normalise_layers`, `head_importance`
pruning         `pruning_order`, `recomputed_order`, `random_order`, `kept_heads`, `single_heads`, `all_but_one`
gates           `hard_concrete`, `sample_gates`, `open_probability`, `open_penalty`, `settled_gates`
==============  =====================================================================================================

Letters: ``L`` layers, ``B`` examples, ``N`` heads, ``T`` tokens (queries, then keys), ``W`` words.
"""

from mha_jax.analysis._maps import Total
from mha_jax.analysis.causal import induction_score, induction_selector, previous_token_score, sink_score
from mha_jax.analysis.distances import head_distances
from mha_jax.analysis.gates import (
    hard_concrete,
    open_penalty,
    open_probability,
    sample_gates,
    settled_gates,
)
from mha_jax.analysis.importance import head_gradients, head_importance, importance_total, normalise_layers
from mha_jax.analysis.orders import (
    all_but_one,
    kept_heads,
    num_pruned,
    pruning_order,
    random_order,
    recomputed_order,
    single_heads,
)
from mha_jax.analysis.shares import attention_share, attention_shares, key_selector, offset_selector
from mha_jax.analysis.spread import attention_entropy, confidence
from mha_jax.analysis.words import OFFSETS, attended_word, dependency_hits, offset_hits, word_maps

__all__ = [
    "OFFSETS",
    "Total",
    "all_but_one",
    "attended_word",
    "attention_entropy",
    "attention_share",
    "attention_shares",
    "confidence",
    "dependency_hits",
    "hard_concrete",
    "head_distances",
    "head_gradients",
    "head_importance",
    "importance_total",
    "induction_score",
    "induction_selector",
    "kept_heads",
    "key_selector",
    "normalise_layers",
    "num_pruned",
    "offset_hits",
    "offset_selector",
    "open_penalty",
    "open_probability",
    "previous_token_score",
    "pruning_order",
    "random_order",
    "recomputed_order",
    "sample_gates",
    "settled_gates",
    "single_heads",
    "sink_score",
    "word_maps",
]
