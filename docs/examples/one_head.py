"""How many items can one head of full rank tell apart? Exact answers beside the prediction: a whole experiment."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from experiments import style
from experiments.engine import Experiment
from experiments.points import Kind
from experiments.reading import wilson
from experiments.tables import Cells
from theory.bounds import convex_success_probability
from theory.certificates import certify_head
from theory.problems import make_problem


@dataclass(frozen=True)
class Point:  # one run
    num_items: int
    d_model: int
    seed: int


@dataclass(frozen=True)
class Config:  # every field is an option: --num-items 20 24 --seeds 40
    num_items: tuple[int, ...] = (12, 16, 20, 24, 28)
    d_model: int = 8
    seeds: int = 20


def ceiling(data):
    rows = [row for row in data["records"]["curve"] if row["runs"]]
    figure, axes = style.grid(1, 1, style.COLUMN_WIDTH, 2.4)
    x = [row["num_items"] for row in rows]
    y = [row["held"] / row["runs"] for row in rows]
    low, high = zip(*(wilson(row["held"], row["runs"]) for row in rows), strict=True)
    style.interval_bars(axes[0, 0], x, y, low, high, style.TRAINERS["convex"])
    axes[0, 0].plot(x, [row["predicted"] for row in rows], **style.PREDICTION)
    axes[0, 0].set(xlabel="items m", ylabel="graphs held", ylim=style.SHARE_LIMITS)
    return figure, "Share of random permutations that one head holds (95% intervals); dashed: predicted."


def curve(data):
    rows = tuple(
        (f"{r['num_items']}", f"{r['held']}/{r['runs']}", f"{r['predicted']:.2f}")
        for r in data["records"]["curve"]
    )
    return Cells("Permutations held by one head", ("items", "held", "predicted"), rows)


class OneHead(Experiment[Config]):
    name = "one-head"
    summary = "the ceiling of one head of full rank, decided exactly"
    presets = {"smoke": Config(num_items=(12, 28), seeds=4), "quick": Config()}
    kinds = {"points": Kind(Point, frozenset({"num_items", "d_model", "seed", "held"}))}
    plots = {"ceiling": ceiling}  # what a reader sees: figures by name
    tables = (curve,)

    def points(self, config):
        return [Point(m, config.d_model, seed) for m in config.num_items for seed in range(config.seeds)]

    def compute(self, points):  # one batch: points that differ in their seed alone
        held = []
        for point in points:
            made = make_problem(
                **asdict(point), num_edges=point.num_items, embedding="gaussian", graph="permutation"
            )
            edges = made.graph.adjacency()
            held.append(certify_head(made.embeddings, edges, ~edges).verdict == "separable")
        return [asdict(point) | {"held": one} for point, one in zip(points, held, strict=True)]

    def summary_of(self, config, ask, rows):  # located from the records: share of the graphs that are held
        curve = []
        for m in config.num_items:
            held = [row["held"] for row in rows["points"] if row["num_items"] == m]
            predicted = float(convex_success_probability(m, m, config.d_model))
            curve.append({"num_items": m, "held": sum(held), "runs": len(held), "predicted": predicted})
        return {"curve": curve}


EXPERIMENT = OneHead()
