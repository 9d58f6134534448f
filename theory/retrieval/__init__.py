"""Head count and approximation: D-retrieval, and the single head that memorises (Yu et al. 2025, arXiv 2510.06662).

`tasks` (what is to be computed, samplers, errors), `theorem` (the published bound, and what we derive), `model` (one
attention layer read at a class token), `constructions` (hand-set weights) and `training`.
"""

from theory.retrieval.constructions import (
    apply_relu_network,
    memorising_head,
    num_hidden_units,
    retrieving_heads,
    tournament,
)
from theory.retrieval.model import (
    ENCODERS,
    Encoder,
    RetrievalModel,
    class_weights,
    initial_params,
    predict,
    tokens,
)
from theory.retrieval.snapshots import Watched, watch
from theory.retrieval.tasks import (
    CHANCE_LEVEL,
    DIRECTIONS,
    RetrievalTask,
    general_task,
    max_task,
    nmse,
)
from theory.retrieval.theorem import (
    exponent,
    max_variance,
    uniform_attention_nmse,
    unread_nmse,
    vacuous_length,
)
from theory.retrieval.training import Run, TrainingOptions, match_heads, train

__all__ = [
    "CHANCE_LEVEL",
    "DIRECTIONS",
    "ENCODERS",
    "Encoder",
    "RetrievalModel",
    "RetrievalTask",
    "Run",
    "TrainingOptions",
    "Watched",
    "apply_relu_network",
    "class_weights",
    "exponent",
    "general_task",
    "initial_params",
    "match_heads",
    "max_task",
    "max_variance",
    "memorising_head",
    "nmse",
    "num_hidden_units",
    "predict",
    "retrieving_heads",
    "tokens",
    "tournament",
    "train",
    "uniform_attention_nmse",
    "unread_nmse",
    "vacuous_length",
    "watch",
]
