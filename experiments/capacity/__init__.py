"""The capacity phase transition of the key-query channel, measured against predictions and theorems.

How many key dimensions D_K = h d_k does a channel of h heads need to hold a graph on m items of width d? For every head
count the threshold D_K* (half of the seeds recovered) is located for several trainers, beside the analytic prediction,
the empirical law of plain joint descent and the proven lower bounds; head counts are swept at a fixed D_K; the ceiling
of a single head is decided exactly; random graphs on a real model's embeddings and real word relations are measured the
same way. What the best trainer finds is the measured capacity: an upper bound on the true threshold, proven by the
channel.

    make capacity                    # preset quick, about ten minutes on two cores
    python -m experiments run capacity --num-items 144 --d-model 20 --num-heads 2 3 4 6 --seeds 4 --out DIR

Modules: `config` (fields, presets), `units` (what one batch computes), `plan` (which batches), `records` (what is made
of them), `experiment` (what the command line calls), `figures` and `table` (what a reader sees).
"""

from experiments.capacity.config import PRESETS, CapacityConfig, resolve

__all__ = ["PRESETS", "CapacityConfig", "resolve"]
