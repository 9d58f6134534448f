"""Relations between items: real ones between words, and several at once.

`theory.word_relations` is the project's table of related words. `several` is a task: every item has a target under each
of R relations and must return the R values of its targets, each in its own slot; `floors` says what fewer than R heads
cannot do there, `training` what gradient descent finds. `bands` measures whether the heads of a trained channel divide
relations among them, and the embeddings' space.
"""

from theory.relations.bands import (
    Shuffled,
    against_shuffled,
    counts_of,
    mean_overlap,
    normalised_mutual_information,
    principal_cosines,
    random_overlap,
    random_overlaps,
    winning_heads,
)
from theory.relations.floors import error_floor, exact_error, readout_floor
from theory.relations.several import LAWS, Law, SeveralRelations, draw_values, make_relations
from theory.relations.training import (
    READOUTS,
    Attention,
    Readout,
    RelationsModel,
    Trained,
    mixing_weights,
    train_relations,
)
from theory.word_relations import KINDS, WordRelations, load_word_relations

__all__ = [
    "KINDS",
    "LAWS",
    "READOUTS",
    "Attention",
    "Law",
    "Readout",
    "RelationsModel",
    "SeveralRelations",
    "Shuffled",
    "Trained",
    "WordRelations",
    "against_shuffled",
    "counts_of",
    "draw_values",
    "error_floor",
    "exact_error",
    "load_word_relations",
    "make_relations",
    "mean_overlap",
    "mixing_weights",
    "normalised_mutual_information",
    "principal_cosines",
    "random_overlap",
    "random_overlaps",
    "readout_floor",
    "train_relations",
    "winning_heads",
]
