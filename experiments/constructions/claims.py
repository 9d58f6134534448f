"""Verdicts on what was expected, from the records alone; the expectations are in the package's docstring."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from experiments.claims import Claim, Verdict, judged
from experiments.points import Record
from experiments.reading import select
from theory.constructions import CONSTRUCTIONS

Made = Mapping[str, Sequence[Record]]
LARGE = {"num_items": 256, "d_model": 256}
SMALL = {"num_items": 96, "d_model": 16}


def claim_rows(made: Made) -> list[Record]:
    """One row a claim: ``verdict`` is ``held``, ``failed`` or ``not_run``."""
    return judged(CLAIMS, made)


def _span(values: Iterable[float], form: str = ".2f") -> str:
    ordered = sorted(values)
    low, high = format(ordered[0], form), format(ordered[-1], form)
    return low if low == high else f"{low} to {high}"


def _constructed(made: Made) -> list[Record]:
    return [row for row in made["thresholds"] if row["construction"] in CONSTRUCTIONS]


def _noise(made: Made) -> Verdict | None:
    ratios = [
        row["variance"] / row["predicted_variance"]
        for row in made["noise_curves"]
        if row["block_size"] >= 16 and row["predicted_variance"] > 0
    ]
    if not ratios:
        return None
    return 0.85 <= min(ratios) <= max(ratios) <= 1.15, f"measured over predicted {_span(ratios)}"


def _budget(made: Made) -> Verdict | None:
    rows = [row for row in _constructed(made) if row["predicted_total_key_dim"] is not None]
    ratios = [
        row["measured_total_key_dim"] / row["predicted_total_key_dim"]
        for row in rows
        if row["status"] == "reached"
    ]
    if not ratios:
        return None
    within = [0.75 <= ratio <= 1.25 for ratio in ratios]
    found = (
        f"measured in {len(ratios)} of {len(rows)}; over predicted {_span(ratios)}, {sum(within)} within 25%"
    )
    return all(within) and len(ratios) == len(rows), found


def _out_of_reach(made: Made) -> Verdict | None:
    rows = [row for row in _constructed(made) if row["predicted_total_key_dim"] is None]
    if not rows:
        return None
    reached = [row for row in rows if row["status"] == "reached"]
    small = select(reached, **SMALL)
    found = f"{len(rows) - len(reached)} of {len(rows)} not reached; reached at (96, 16): {len(small)}"
    return not reached, found


def _blocks(made: Made) -> Verdict | None:
    rows = [row for row in select(made["blocks"], **LARGE) if row["construction"] in CONSTRUCTIONS]
    rows = [row for row in rows if row["measured_num_heads"] and row["predicted_num_heads"]]
    if not rows:
        return None
    ratios = [row["measured_num_heads"] / row["predicted_num_heads"] for row in rows]
    found = "; ".join(
        f"{row['construction']}: {row['measured_num_heads']} (predicted {row['predicted_num_heads']})"
        for row in rows
    )
    return 0.5 <= min(ratios) <= max(ratios) <= 2, found


def _zero_forcing(made: Made) -> Verdict | None:
    best = {
        row["construction"]: row["measured_total_key_dim"]
        for row in select(made["blocks"], **LARGE)
        if row["measured_total_key_dim"] is not None
    }
    if not {"zero-forcing", "matched-filter"} <= set(best):
        return None
    share = best["zero-forcing"] / best["matched-filter"]
    return share < 0.5, f"{best['zero-forcing']:.0f} against {best['matched-filter']:.0f}"


def _one_sided(made: Made) -> Verdict | None:
    rows = [r for r in select(made["thresholds"], construction="one-sided") if r["status"] == "reached"]
    whole = {(r["num_items"], r["d_model"]): r["measured_total_key_dim"] for r in select(rows, num_heads=1)}
    ratios = [
        row["measured_total_key_dim"] / whole[size]
        for row in rows
        if (size := (row["num_items"], row["d_model"])) in whole and row["num_heads"] > 1
    ]
    return (min(ratios) > 1, f"budget of more heads over that of one {_span(ratios)}") if ratios else None


def _training(made: Made) -> Verdict | None:
    trained: dict[tuple[int, int], float] = {}
    for row in select(made["trained"], trainer="best"):
        size, budget = (row["num_items"], row["d_model"]), row["exact_total_key_dim"]
        if budget is not None:
            trained[size] = min(budget, trained.get(size, budget))
    shares = {}
    for size, budget in trained.items():
        sized = dict(zip(("num_items", "d_model"), size, strict=True))
        rows = [row for row in select(made["thresholds"], **sized) if row["status"] == "reached"]
        if rows or select(made["thresholds"], **sized):
            shares[size] = budget / min([row["measured_total_key_dim"] for row in rows] + [size[0]])
    if not shares:
        return None
    found = "; ".join(
        f"{size}: {share:.2f} of the best construction's budget" for size, share in shares.items()
    )
    return max(shares.values()) < 0.5, found


def _precision(made: Made) -> Verdict | None:
    rows = select(made["precision_curves"], source="greedy", num_heads=4, **SMALL)
    bits = {row["total_key_dim"]: row["median_bits"] for row in rows if row["median_bits"] is not None}
    if not {24, 48} <= set(bits):
        return None
    found = ", ".join(f"D_K = {budget}: {bits[budget]:g}" for budget in sorted(bits))
    return bits[48] <= 4 and bits[48] <= bits[24] - 1, f"median bits at {found}"


def _bits(made: Made) -> Verdict | None:
    rows = [row for row in made["precision_curves"] if row["least_bits_over_graph"] is not None]
    if not rows:
        return None
    best = min(rows, key=lambda row: row["least_bits_over_graph"])
    found = (
        f"least {best['least_bits_over_graph']:.1f} times ({best['source']}, D_K = {best['total_key_dim']}, "
        f"{best['least_bits']} bits)"
    )
    return best["least_bits_over_graph"] > 3, found


CLAIMS = (
    Claim("noise", "variances within 15% of the prediction, blocks of 16 edges and more", _noise),
    Claim("budget", "least D_K measured wherever predicted, within 25%", _budget),
    Claim("out of reach", "not reached where none is predicted", _out_of_reach),
    Claim("blocks", "best head counts at (256, 256) within a factor 2 of the predicted", _blocks),
    Claim("zero-forcing", "less than half of the matched filter's budget at (256, 256)", _zero_forcing),
    Claim("one-sided", "one head is best wherever one head works", _one_sided),
    Claim("training", "the best trainer needs less than half of the best construction's budget", _training),
    Claim("precision", "greedy heads at D_K = 48: at most 4 bits, one less than at 24", _precision),
    Claim("bits", "all channels use more than 3 times the bits that name the graph", _bits),
)
