"""The channel with softmax in place of the maximum: guarantees from the margin, heads with a null key, value routing.

- `theory.softmax.lemma`: what a margin guarantees (theorems), and a sufficient scale of the logits;
- `theory.softmax.heads`: softmax heads with a null key, by the kernels of `mha_jax`;
- `theory.softmax.training`: such heads trained end to end on contexts;
- `theory.softmax.evaluation`: their answers on contexts, judged in float64;
- `theory.softmax.constructed`: channels with one owner an edge.
"""

from theory.softmax.constructed import one_owner_heads
from theory.softmax.evaluation import (
    Rates,
    decode_direction,
    draw_contexts,
    head_scores_of,
    item_rates,
    neighbours,
    pair_rates,
    weights_on,
)
from theory.softmax.heads import routed_values, softmax_weights
from theory.softmax.lemma import (
    Guarantee,
    Margin,
    absent_output,
    channel_margin,
    idle_weight,
    one_owner_error,
    owner_stray_weight,
    owner_weight,
    shared_output,
    sufficient_scale,
)
from theory.softmax.training import TASKS, SoftmaxChannel, SoftmaxOptions, Task, train_softmax

__all__ = [
    "TASKS",
    "Guarantee",
    "Margin",
    "Rates",
    "SoftmaxChannel",
    "SoftmaxOptions",
    "Task",
    "absent_output",
    "channel_margin",
    "decode_direction",
    "draw_contexts",
    "head_scores_of",
    "idle_weight",
    "item_rates",
    "neighbours",
    "one_owner_error",
    "one_owner_heads",
    "owner_stray_weight",
    "owner_weight",
    "pair_rates",
    "routed_values",
    "shared_output",
    "softmax_weights",
    "sufficient_scale",
    "train_softmax",
    "weights_on",
]
