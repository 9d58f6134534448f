"""Relations between items: real ones between words, and several at once.

`theory.word_relations` is the project's table of related words. `several` is a task: every item has a target under each
of R relations and must return the R values of its targets, each in its own slot; `floors` says what fewer than R heads
cannot do there, `training` what gradient descent finds.
"""

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
    "Trained",
    "WordRelations",
    "draw_values",
    "error_floor",
    "exact_error",
    "load_word_relations",
    "make_relations",
    "mixing_weights",
    "readout_floor",
    "train_relations",
]
