"""Analytic bounds on the capacity of the key-query channel: theorems, predictions, one empirical law.

``m`` items with embeddings in ``R^d`` and a directed graph of ``m'`` edges; ``h`` heads of key dimension
``d_k`` score pairs, and a pair is called an edge where the largest score exceeds one threshold ``tau``. The
budget is ``D_K = h d_k``.

- Theorems (hold always): `counting_bound`, `warren_bound`, `cover_max_items`, `one_dimensional_cap`,
  `one_dimensional_f1_cap`.
- Predictions (no free parameter, heuristic): `gardner_capacity`, `gardner_threshold`, `width_requirement`,
  `matrix_width`, `single_head_max_items`, `convex_success_probability`, `transition_width`, `held_edges`,
  `partition_head_dim`, `partition_total_key_dim`, `partition_max_edges`, `max_edges`, `greedy_max_items`,
  `head_window`.
  (`matrix_width` itself is a property of random matrices, exact up to Monte-Carlo error;
  `convex_success_probability` has one measured constant, its width.)
- Theorem for i.i.d. Gaussian features, a prediction for the channel's: `owning_probability`,
  `gordon_total_key_dim`.
- Estimates for heads that choose their edges: `max_of_heads_requirement`, `max_of_heads_total_key_dim`,
  `first_moment_requirement`, `first_moment_total_key_dim`.
- Empirical law (of plain joint gradient descent): `parameter_count_total_key_dim`.

All but `head_window`, `one_dimensional_f1_cap`, Gordon's and the estimates for free choice take numbers or
arrays, which broadcast, and compute in float64: scalars give a Python float (or int), arrays a NumPy array. Errors are
``ValueError`` with the argument's name, what was expected and what came.
"""

from theory.bounds.free_choice import (
    first_moment_requirement,
    first_moment_total_key_dim,
    max_of_heads_requirement,
    max_of_heads_total_key_dim,
)
from theory.bounds.gardner import (
    convex_success_probability,
    gardner_capacity,
    gardner_threshold,
    single_head_max_items,
    transition_width,
    width_requirement,
)
from theory.bounds.gordon import gordon_total_key_dim, owning_probability
from theory.bounds.greedy import greedy_max_items
from theory.bounds.partition import (
    max_edges,
    parameter_count_total_key_dim,
    partition_head_dim,
    partition_max_edges,
    partition_total_key_dim,
)
from theory.bounds.theorems import (
    counting_bound,
    cover_max_items,
    one_dimensional_cap,
    one_dimensional_f1_cap,
    warren_bound,
)
from theory.bounds.width import held_edges, matrix_width
from theory.bounds.window import head_window

__all__ = [
    "convex_success_probability",
    "counting_bound",
    "cover_max_items",
    "first_moment_requirement",
    "first_moment_total_key_dim",
    "gardner_capacity",
    "gardner_threshold",
    "gordon_total_key_dim",
    "greedy_max_items",
    "head_window",
    "held_edges",
    "matrix_width",
    "max_edges",
    "max_of_heads_requirement",
    "max_of_heads_total_key_dim",
    "one_dimensional_cap",
    "one_dimensional_f1_cap",
    "owning_probability",
    "parameter_count_total_key_dim",
    "partition_head_dim",
    "partition_max_edges",
    "partition_total_key_dim",
    "single_head_max_items",
    "transition_width",
    "warren_bound",
    "width_requirement",
]
