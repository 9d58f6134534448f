"""The rank experiment: presets, what is made of records, verdicts, figures, a run of seconds."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from experiments import cli, style
from experiments.points import from_unit, to_units
from experiments.rank import PRESETS, figures, maps, table
from experiments.rank.best import best_known
from experiments.rank.claims import CLAIMS
from experiments.rank.config import resolve
from experiments.rank.experiment import EXPERIMENT
from experiments.rank.records import summary
from experiments.rank.units import KINDS, CirclePoint, RankPoint, SpectrumPoint, floor_kl, grid, work_of
from theory.rank import (
    bounded_permutation_kl,
    circle_kl,
    circle_scale,
    guaranteed_length,
    least_planar_scale,
    required_head_dim,
)

QUICK = PRESETS["quick"]
EXACT_SIZES = {"random": 99, "low-rank": 4, "soft-permutation": 99, "gaussian-band": 2, "window-band": 99}


@pytest.fixture
def with_model(monkeypatch):
    monkeypatch.setattr(maps, "why_left_out", lambda: None)


def _rank_record(point):
    """What comes out where everything is as expected."""
    hard = point.pattern == "permutation"
    required = None if hard else min(EXACT_SIZES.get(point.pattern, 32), point.n - 1)
    met = required is not None and required <= point.head_dim
    kl = 0.0 if met else 0.004 * (1 + point.seed) * 8 / point.head_dim**2
    bound = point.bound or 0.0
    is_circle = hard and point.bound is not None
    if hard:
        kl = 1e-5 if point.head_dim > 1 else 1.2
    if is_circle and point.head_dim > 1:
        kl = floor_kl(point) if point.head_dim > 2 else circle_kl(point.n, bound) * (1 + 1e-7)
    if point.pattern == "random" and not met:
        kl = 0.1
    return asdict(point) | {
        "kl": kl,
        "max_logit": 7.0,
        "representable": met,
        "minimal_head_dim": required,
        "truncated_kl": None if hard else 3 * kl,
        "uniform_kl": 2.0,
        "floor_kl": floor_kl(point),
        "circle_kl": circle_kl(point.n, bound) if is_circle else None,
        "starts": [kl, None],
        "steps_taken": [7, 8],
        "layer": 0 if point.pattern == maps.MODEL else None,
        "head": 0 if point.pattern == maps.MODEL else None,
        "seconds": 1.0,
    }


def _record(point):
    if isinstance(point, RankPoint):
        return _rank_record(point)
    if isinstance(point, SpectrumPoint):
        values = [0.5**i for i in range(point.n)]
        cut = [x if i < point.head_dim else 1e-17 for i, x in enumerate(values)]
        ranks = {"logits_rank": point.head_dim, "weights_rank": point.n if point.head_dim >= 4 else 20}
        return (
            asdict(point)
            | {"logits": cut, "weights": values, "layer": None, "head": None, "seconds": 1.0}
            | ranks
        )
    assert isinstance(point, CirclePoint)
    longest = guaranteed_length({"bfloat16": 8, "float16": 11, "float32": 24}[point.dtype])
    right = point.n < 2 * longest
    return asdict(point) | {
        "scale": circle_scale(point.n, point.miss),
        "least_scale": least_planar_scale(point.n, point.miss),
        "guaranteed_length": longest,
        "share_right": 1.0 if right else 0.9,
        "least_weight": 0.9 if right else 0.1,
        "queries_seen": point.n,
        "seconds": 1.0,
    }


def _data(config=QUICK, record=_record):
    rows = {name: [] for name in KINDS}
    for unit, members in to_units(KINDS, grid(config)):
        rows[unit["kind"]] += [record(point) for point in members]
    return {"preset": "quick", "records": rows | summary(rows)}


@pytest.fixture(scope="module")
def expected():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maps, "why_left_out", lambda: None)
        return _data()


@pytest.mark.usefixtures("with_model")
@pytest.mark.parametrize("name", PRESETS)
def test_points_of_a_preset_are_batches_that_come_back(name):
    points = grid(PRESETS[name])
    units = to_units(KINDS, points)
    assert sorted(map(str, points)) == sorted(str(p) for _, members in units for p in members)
    for unit, members in units:
        assert from_unit(KINDS, unit) == members
        assert set(_record(members[0])) == KINDS[unit["kind"]].fields
        assert work_of(members) > 0
    assert all(p.head_dim <= p.width < p.n for p in points if isinstance(p, RankPoint))


@pytest.mark.usefixtures("with_model")
def test_quick_holds_what_it_has_to():
    points = grid(QUICK)
    approximated = [p for p in points if isinstance(p, RankPoint)]
    assert {p.pattern for p in approximated} == {*EXACT_SIZES, "permutation", maps.MODEL}
    for n in QUICK.lengths:
        sizes = {p.head_dim for p in approximated if p.n == n}
        assert {1, 2, n // 2, n - 2, n - 1} <= sizes
    for bound in (None, *QUICK.bounds):
        assert {p.head_dim for p in approximated if (p.pattern, p.bound) == (maps.MODEL, bound)} >= {
            8,
            16,
            32,
        }
    reach = max(p.n for p in points if isinstance(p, CirclePoint) and p.dtype == "float32")
    assert reach >= 4 * guaranteed_length(24)


@pytest.mark.usefixtures("with_model")
def test_everything_expected_is_judged_held_and_one_wrong_number_fails_it(expected):
    claims = {row["claim"]: row for row in expected["records"]["claims"]}
    assert {name: row["verdict"] for name, row in claims.items()} == {c.name: "held" for c in CLAIMS}

    def spoilt(point):
        row = _record(point)
        if isinstance(point, RankPoint):
            at = (point.pattern, point.head_dim, point.bound)
            changes = {
                ("random", point.n // 2, None): {"kl": 1e-3, "truncated_kl": 1.5e-3},
                ("permutation", 1, None): {"kl": 0.5},
                (maps.MODEL, 32, 10.0): {"kl": 1e-5},
                ("permutation", 3, 10.0): {"kl": floor_kl(point) / 2},
            }
            # Heads of smaller sizes and bounds count too: all of them have to be bad.
            if point.pattern in ("window-band", maps.MODEL) and point.head_dim <= 8:
                return row | {"kl": 1.0, "truncated_kl": 1.0}
            if (point.pattern, point.head_dim) == ("low-rank", 4):
                return row | {"kl": 1e-5}
            return row | changes.get(at, {})
        if isinstance(point, SpectrumPoint):
            return row | ({"weights_rank": 1} if point.head_dim == 1 else {})
        return row | ({"share_right": 0.5} if point.n == 8 else {})

    verdicts = {row["claim"]: row["verdict"] for row in _data(record=spoilt)["records"]["claims"]}
    assert verdicts == {c.name: "failed" for c in CLAIMS}


def test_what_was_not_run_is_not_judged():
    data = _data(replace(QUICK, lengths=(), real_lengths=(), spectrum_head_dims=(), circle_lengths=(8, 16)))
    assert {row["verdict"] for row in data["records"]["claims"]} == {"not_run"}
    assert table.claims_cells(data) is table.kl_cells(data) is None


def test_a_claim_of_which_a_half_was_not_run_is_not_judged():
    halves = [
        ("spectra", {"spectrum_head_dims": (1, 2)}),
        ("spectra", {"spectrum_head_dims": (4, 8)}),
        ("truncation", {"patterns": ("random",)}),
        ("truncation", {"patterns": ("soft-permutation",)}),
        ("precision", {"circle_lengths": (24_576,)}),
    ]
    whole = {row["claim"]: row["verdict"] for row in _data()["records"]["claims"]}
    for name, change in halves:
        verdicts = {r["claim"]: r["verdict"] for r in _data(replace(QUICK, **change))["records"]["claims"]}
        assert (whole[name], verdicts[name]) == ("held", "not_run"), change


def test_a_head_found_for_a_smaller_size_or_bound_counts_for_larger_ones():
    """By hand: a search without a bound that is worse than one with it, and one at a larger size."""

    def found(head_dim, bound, kl, **other):
        point = RankPoint("random", 8, 7, 2, 100, head_dim, seed=0, bound=bound)
        return _rank_record(replace(point, **other)) | {"kl": kl, "max_logit": 100 * kl, "truncated_kl": 1.0}

    rows = [
        found(2, None, 0.5),
        found(2, 10.0, 0.4),
        found(2, 5.0, 0.45),
        found(4, 5.0, 0.6),
        found(4, None, 0.1),
        found(1, None, 0.2, seed=1),
        found(2, None, 0.3, n=9),
        found(2, None, 0.01, pattern="low-rank"),
    ]
    kept = json.loads(json.dumps(rows))
    best = best_known(rows)
    assert [r["kl"] for r in best] == [0.4, 0.4, 0.45, 0.45, 0.1, 0.2, 0.3, 0.01]
    assert [r["search_kl"] for r in best] == [r["kl"] for r in best]
    assert [r["max_logit"] for r in best] == [100 * r["kl"] for r in best]
    assert json.loads(json.dumps(rows)) == kept
    curves = summary({"points": rows, "circle": [], "spectra": []})["curves"]
    [curve] = [
        r for r in curves if (r["pattern"], r["n"], r["head_dim"], r["bound"]) == ("random", 8, 4, 5.0)
    ]
    assert (curve["median_kl"], curve["median_max_logit"]) == (0.45, 45.0)


def test_no_head_is_reported_above_a_construction():
    """Searches that fail: uniform attention, truncation, circle and simplex are known nevertheless."""

    def failed(pattern, head_dim, bound):
        return _rank_record(RankPoint(pattern, 8, 7, 2, 100, head_dim, seed=0, bound=bound)) | {"kl": 3.0}

    rows = [failed("permutation", k, bound) for bound in (None, 1.0, 5.0) for k in (1, 2, 6, 7)]
    best = {(r["head_dim"], r["bound"]): r for r in best_known(rows)}
    assert {r["search_kl"] for r in best.values()} == {3.0}
    assert best[1, 5.0]["kl"] == best[1, None]["kl"] == rows[0]["uniform_kl"]
    for bound in (1.0, 5.0):
        assert best[2, bound]["kl"] == best[6, bound]["kl"] == circle_kl(8, bound)
        assert best[7, bound]["kl"] == bounded_permutation_kl(8, bound)
        assert best[7, bound]["max_logit"] == bound
    free = best[2, None]
    assert free["kl"] == best[7, None]["kl"] == 1e-10
    assert circle_kl(8, free["max_logit"]) == pytest.approx(1e-10, rel=1e-6)
    rows = [failed("random", k, bound) | {"truncated_kl": 1 / k} for bound in (None, 5.0) for k in (1, 2)]
    assert [(r["kl"], r["max_logit"]) for r in best_known(rows)] == [
        (1.0, None),
        (0.5, None),
        (2.0, 0.0),
        (2.0, 0.0),
    ]
    [curve] = [
        r for r in summary({"points": rows, "circle": [], "spectra": []})["curves"] if r["head_dim"] == 2
    ][:1]
    assert (curve["median_kl"], curve["median_search_kl"], curve["median_max_logit"]) == (0.5, 3.0, None)


def test_a_search_that_fails_is_blamed_and_not_the_theorem():
    def failing(point):
        bad = isinstance(point, RankPoint) and (point.pattern, point.head_dim) == ("permutation", 2)
        return _record(point) | ({"kl": 1.0} if bad else {})

    rows = _data(record=failing)["records"]
    claims = {row["claim"]: row for row in rows["claims"]}
    for name in ("permutations, unbounded", "permutations, bounded"):
        assert claims[name]["verdict"] == "failed"
        assert "the search" in claims[name]["expected"]
        assert "the search" in claims[name]["found"]
    assert "0 of 6 runs (the circle is, in all: theorem)" in claims["permutations, unbounded"]["found"]
    [row] = [
        r
        for r in rows["curves"]
        if (r["pattern"], r["n"], r["head_dim"], r["bound"]) == ("permutation", 24, 2, None)
    ]
    assert row["largest_kl"] == 1e-10 < row["least_search_kl"]


def test_every_bound_is_drawn_with_a_look_of_its_own(monkeypatch):
    bounds = (1.0, 2.0, 5.0, 10.0, 20.0)
    data = _data(replace(QUICK, bounds=bounds, patterns=("permutation",), lengths=(12,)))
    drawn = figures.divergence(data)
    assert drawn is not None
    figure, _ = drawn
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert [label for label in labels if "leq" in label] == [
        f"best head known, $|q||k| \\leq {bound:g}$" for bound in bounds
    ]
    looks = {(look.color, look.marker) for look in map(figures._bounded, range(20))}
    assert len(looks) == 20


def test_curves_are_medians_with_their_ranges(expected):
    [row] = [
        r
        for r in expected["records"]["curves"]
        if (r["pattern"], r["n"], r["bound"], r["head_dim"]) == ("window-band", 24, None, 4)
    ]
    base = 0.004 * 8 / 16
    assert (row["least_kl"], row["median_kl"], row["largest_kl"]) == (base, 2 * base, 3 * base)
    assert row["median_truncated_kl"] == 6 * base
    assert (row["least_minimal_head_dim"], row["largest_minimal_head_dim"], row["num_seeds"]) == (23, 23, 3)


def test_limits_are_below_the_first_failure(expected):
    [row] = [r for r in expected["records"]["limits"] if r["dtype"] == "bfloat16"]
    assert (row["guaranteed_length"], row["longest_right"], row["first_wrong"]) == (35, 64, 96)
    assert (row["longest_half"], row["first_below_half"]) == (64, 96)


def test_tables_show_the_numbers(expected):
    divergence, limits, claims = (
        make(expected) for make in (table.kl_cells, table.limits_cells, table.claims_cells)
    )
    assert divergence is not None
    assert limits is not None
    assert claims is not None
    lines = divergence.markdown().splitlines()
    [line] = [line for line in lines if line.startswith("| soft permutation | 24 | –")]
    assert line.split(" | ")[3:7] == ["23", "2.0", "0.064", "0.016"]
    assert "35 | 64 | 96" in limits.markdown()
    assert len(claims.rows) == len(CLAIMS)
    values = table.values(expected)
    assert values["kl.permutation.n24.b10.d2"] == table.nats(circle_kl(24, 10.0))
    assert values["exact.low-rank.n12"] == "4"
    assert values["claims.held"] == values["claims.judged"] == str(len(CLAIMS))
    shown = {None: "–", 3e-12: "0", 0.0123: "0.012", 2.5e-5: "2.5e-5"}
    assert {value: table.nats(value) for value in shown} == shown


def test_every_figure_is_drawn_and_captioned(expected, tmp_path):
    paths = EXPERIMENT.plot(json.loads(json.dumps(expected)), tmp_path, "quick")
    names = {path.name for path in paths}
    assert names == {
        f"quick-{f}.{s}" for f in ("divergence", "spectra", "circle") for s in style.SUFFIXES
    } | {"quick-captions.md"}
    captions = (tmp_path / "quick-captions.md").read_text()
    assert all(f"quick-{f}.svg" in captions for f in ("divergence", "spectra", "circle"))
    assert EXPERIMENT.plot({"records": {}}, tmp_path, "none") == [tmp_path / "none-captions.md"]


def test_without_the_model_the_rest_runs_and_says_so(monkeypatch):
    monkeypatch.setattr(maps, "why_left_out", lambda: "the MiniLM model is not installed")
    assert not [p for p in grid(QUICK) if maps.MODEL in str(p)]
    assert grid(QUICK)
    [row] = EXPERIMENT.left_out(QUICK)
    assert row == {
        "what": "minilm-l6",
        "why": "the MiniLM model is not installed",
        "how_to_get": "make models",
    }
    assert EXPERIMENT.left_out(replace(QUICK, real_lengths=())) == []


def test_fields_that_are_named_ask_for_what_they_are_of():
    def arms(config):
        return config.lengths, config.real_lengths, config.spectrum_head_dims, config.circle_lengths

    assert arms(resolve(replace(QUICK, lengths=(8,)), {"lengths"})) == ((8,), (), (), ())
    assert arms(resolve(replace(QUICK, circle_lengths=(8,)), {"circle_lengths"})) == ((), (), (), (8,))
    both = resolve(replace(QUICK, patterns=("random",), real_lengths=(9,)), {"patterns", "real_lengths"})
    assert arms(both) == (QUICK.lengths, (9,), (), ())
    assert resolve(replace(QUICK, seeds=1), {"seeds"}).lengths == QUICK.lengths


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"patterns": ("random", "other")}, "patterns: expected names among .* got other"),
        ({"lengths": (5,)}, "lengths: expected 6 to 70"),
        ({"lengths": (8, 8)}, "lengths: expected different values"),
        ({"bounds": (0.0,)}, "bounds: expected positive numbers"),
        ({"seeds": 0}, "seeds: expected a positive integer"),
        ({"circle_miss": 0.5}, "circle_miss: expected less than 1/2"),
        (
            {"circle_lengths": (8, 30_000_000)},
            "circle_lengths: expected at most 65,536, as the weights .* 30,000,000",
        ),
        ({"circle_lengths": (2,)}, "circle_lengths: expected at least 3"),
        ({"circle_dtypes": ("float64",)}, "circle_dtypes: expected names among"),
        ({"circle_miss": float("nan")}, "circle_miss: expected a positive number, got nan"),
        ({"bounds": (float("nan"),)}, "bounds: expected positive numbers, got nan"),
        ({"bounds": (float("inf"),)}, "bounds: expected positive numbers, got inf"),
        ({"real_lengths": (48, 100_000)}, "real_lengths: expected 3 to 120, got 100000"),
        ({"real_lengths": (2,)}, "real_lengths: expected 3 to 120, got 2"),
        ({"real_lengths": (4,), "real_head_dims": (4, 8)}, "real_head_dims: expected one below .* 4, got"),
        ({"real_maps": 73}, "real_maps: expected at most 72"),
        ({"spectrum_head_dims": (65,)}, "spectrum_head_dims: expected at most spectrum_length = 64, got 65"),
    ],
)
def test_bad_configurations_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        resolve(replace(QUICK, **change), set())


def test_a_run_of_seconds_from_the_command_line(tmp_path, capsys):
    """Real batches: an exact pattern, a circle, spectra; resumed, it computes nothing again."""
    fields = "--patterns gaussian-band --lengths 6 --head-dims 1 2 --bounds --seeds 1 --num-starts 2 --num-steps 40"
    fields += " --circle-lengths 8 200 --circle-dtypes bfloat16 --spectrum-head-dims 2 --spectrum-length 16"
    arguments = [
        "run",
        "rank",
        "--preset",
        "smoke",
        "--executor",
        "in-process",
        "--out",
        str(tmp_path),
        *fields.split(),
    ]
    assert cli.main(arguments) == 0
    [path] = tmp_path.glob("smoke*.json")
    data = json.loads(path.read_text(), parse_constant=pytest.fail)
    rows = data["records"]
    kl = {r["head_dim"]: r["kl"] for r in rows["points"]}
    assert kl[2] < 1e-12 < kl[1]
    assert {r["head_dim"]: r["representable"] for r in rows["points"]} == {
        1: False,
        2: True,
        4: True,
        5: True,
    }
    share = {r["n"]: r["share_right"] for r in rows["circle"]}
    assert share[8] == 1 > share[200]
    [least] = [r["least_weight"] for r in rows["circle"] if r["n"] == 8]
    assert least == pytest.approx(0.99, abs=0.02)  # coordinates of 8 bits
    assert [(r["logits_rank"], r["weights_rank"] > 2) for r in rows["spectra"]] == [(2, True)]
    shown = capsys.readouterr().out
    assert "Gaussian band" in shown
    assert "Expected and found" in shown
    assert cli.main(arguments) == 0


@pytest.mark.slow
@pytest.mark.skipif(maps.why_left_out() is not None, reason=str(maps.why_left_out()))
def test_maps_of_the_model_have_the_rank_of_its_heads():
    found = maps.real_map(40, 7)
    assert (found.layer, found.head) == (1, 10)
    assert found.pattern.shape == (40, 40)
    np.testing.assert_allclose(found.pattern.sum(axis=1), 1, rtol=1e-12)
    assert required_head_dim(found.pattern) == 32
    seen = {(maps.real_map(40, i).layer, maps.real_map(40, i).head) for i in range(72)}
    assert len(seen) == maps.NUM_MAPS == 72
    for n in maps.LENGTHS:
        assert maps.real_map(n, 0).pattern.shape == (n, n)
    with pytest.raises(ValueError, match="real_lengths: expected 3 to 120 tokens, got 121"):
        maps.real_map(121, 0)
    with pytest.raises(ValueError, match="real_lengths: expected 3 to"):
        maps.real_map(4000, 0)
