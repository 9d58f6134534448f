"""Which heads of pretrained models can go: importance, pruning curves, gates, and heads really removed.

Two models (`experiments.pretrained`): SmolLM2-135M, a causal language model whose loss is that of the next token on
held-out text, and MiniLM-L6, which embeds sentences: its loss is one minus the mean cosine between the embeddings of
the pruned and of the whole model, and its ranking Spearman's correlation between the similarities of all pairs of
held-out sentences. Heads are masked, scores are from training text, losses from books that are held out. Nothing is
trained again.

Importance is Michel et al. 2019's I_h (`mha_jax.analysis`): it needs a loss with a gradient. One minus the cosine to
the whole model has none there (it is least), so that of MiniLM is the contrastive loss it was made with: two
neighbouring verses belong together, all others of the batch do not.

What was expected, written down before the first run (`claims` judges each):

- *importance*: removing heads by I_h costs less than at random, in both models (mean loss over the curve).
- *onset*: by I_h the loss begins to rise after 20% to 40% of the heads, as published for translation and BERT: the
  largest fraction that costs at most 5% of what removing all heads costs lies there.
- *confidence*: in the causal model confidence is no better than chance, for its most confident heads look at the first
  token and do nothing; in MiniLM it is between chance and importance.
- *recomputed*: computing I_h anew at every step costs less than one-shot pruning (`paper`).
- *ablation*: fewer than a tenth of the heads cost more than 1% of what removing all costs, alone (`paper`;
  published: 8 of 96 significant).
- *one left*: leaving one head in a layer costs at most 5% of what removing all heads costs, in more than half of the
  layers (`paper`).
- *gates*: heads that L0-penalised gates leave open have a higher I_h than those they close.
- *gated loss*: at as many heads, the heads that gates leave cost less than those that I_h leaves.
- *removed*: the model with smaller weights gives the same as the masked one, to float32 accuracy.
- *speed*: the measured speed-up is within a fifth of the ratio of multiplications, at half of the heads removed.

Of the preset `smollm`, written down before its run and after those of `quick` and `minilm`: *importance*, *recomputed*,
*ablation* and *one left* hold (in MiniLM the last two failed: SmolLM2 has five times as many layers, so that one
matters less), and the order of what each head costs alone, worse than chance in MiniLM, is better than chance here,
but worse than I_h.
"""

from experiments.pruning.config import PRESETS, PruningConfig

__all__ = ["PRESETS", "PruningConfig"]
