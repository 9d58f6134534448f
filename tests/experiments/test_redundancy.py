"""The redundancy experiment: heads removed from a translation model, their importance, what is made of the records."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import cli
from experiments.points import to_units
from experiments.redundancy import points, records, table, units
from experiments.redundancy.claims import CLAIMS, claim_rows
from experiments.redundancy.config import PRESETS, RedundancyConfig, resolve
from experiments.redundancy.experiment import EXPERIMENT
from experiments.redundancy.scores import frequency_loss, importance
from experiments.translation import plan
from experiments.translation.config import PRESETS as TRANSLATION
from experiments.translation.model import (
    ATTENTIONS,
    ModelShape,
    apply,
    inputs_of,
    parameters_of,
    without_heads,
)
from experiments.translation.rows import packed
from experiments.translation.subwords import END
from experiments.translation.training import losses

SHAPE = ModelShape(vocab_size=11, d_model=6, d_ff=8, num_layers=2, num_heads=2, head_dim=3, value_head_dim=3)
PAIRS = [((3, 4, 5), (6, 7)), ((8, 9), (10, 3, 4)), ((5,), (6,)), ((7, 8), (9, 10))]
LENGTH = 6
ROWS = packed(PAIRS, LENGTH, range(len(PAIRS)))
QUICK = PRESETS["quick"]


@pytest.fixture(scope="module")
def parameters():
    return parameters_of(SHAPE, jax.random.key(0))


def logits(parameters, mask=None, source=ROWS.source):
    segments = ROWS.target_segments
    model = apply(SHAPE, parameters)
    return model(
        jnp.asarray(source),
        inputs_of(jnp.asarray(ROWS.target), jnp.asarray(segments)),
        jnp.asarray(ROWS.source_segments),
        jnp.asarray(segments),
        head_mask=mask,
    )


def broadcast(kept):
    return jnp.broadcast_to(kept[:, None, None].astype(jnp.float32), (6, *ROWS.source.shape, 2))


def test_a_model_without_heads_is_the_masked_model(parameters):
    kept = jnp.array([[1, 0], [1, 1], [0, 1], [0, 0], [1, 1], [1, 0]], bool)
    smaller = logits(without_heads(SHAPE, parameters, kept))
    np.testing.assert_allclose(smaller, logits(parameters, broadcast(kept)), atol=1e-5)
    assert float(jnp.abs(smaller - logits(parameters)).max()) > 1e-2


def test_without_the_heads_that_attend_the_source_it_has_no_say(parameters):
    other = np.where(ROWS.source_segments > 0, (ROWS.source + 1) % 11, 0)
    kinds = {
        kind: jnp.ones((6, 2), bool).at[2 * i : 2 * i + 2].set(False) for i, kind in enumerate(ATTENTIONS)
    }
    for kind, kept in kinds.items():
        own = without_heads(SHAPE, parameters, kept)
        changed = float(jnp.abs(logits(own) - logits(own, source=other)).max())
        assert (changed == 0) == (kind == "source")


def test_importance_is_of_the_loss_token_by_token(parameters):
    valid = ROWS.target_segments > 0
    step, ones = 1e-5, np.ones((6, *ROWS.source.shape, 2))
    real = [ROWS.source_segments > 0] * 2 + [valid] * 4
    places = [(a, b, t, h) for a in range(6) for b, t in np.argwhere(real[a]) for h in range(2)]
    masks = np.stack([ones] * len(places))
    for mask, place in zip(masks, places, strict=True):
        mask[place] += step
    with jax.enable_x64(True):
        exact = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), parameters)

        @jax.jit
        def loss(mask):
            found = losses(logits(exact, mask), jnp.asarray(ROWS.target), 0.0)[1]
            return jnp.where(valid, found, 0).sum()

        whole = loss(jnp.asarray(ones))
        changes = (jax.vmap(loss)(jnp.asarray(masks)) - whole) / step
    expected = np.zeros((6, 2))
    for (a, _, _, h), change in zip(places, np.asarray(changes), strict=True):
        expected[a, h] += abs(change) / real[a].sum()
    expected /= np.sqrt((expected**2).sum(-1, keepdims=True))
    found = importance(SHAPE, parameters, PAIRS, LENGTH)
    np.testing.assert_allclose(found, expected, rtol=1e-3)  # float32 against one-sided differences


def test_the_baseline_knows_frequencies_alone():
    train = [((3,), (5, 5, 6)), ((3,), (5,))]  # with END twice, and every count one higher
    counts = {5: 4, 6: 2, END: 3}
    total = 6 + 8
    held_out = [((3,), (5, 6)), ((4,), (3,))]
    seen = [5, 6, END, 3, END]
    expected = np.mean([np.log(total / counts.get(token, 1)) for token in seen])
    assert frequency_loss(train, held_out, 8) == pytest.approx(expected)


def test_models_are_those_of_arm_a():
    paper = TRANSLATION["paper"]
    [standard] = [s for s in plan.settings(paper)["A"] if s.num_heads == 8]
    found = {points.training_of(point) for point in points.grid(QUICK)}
    assert found == set(plan.runs_of(paper, standard, 6e-3))
    assert len(to_units({"points": points.KIND}, points.grid(QUICK))) == QUICK.seeds


def test_orders_remove_what_they_say():
    own = [p for p in points.grid(QUICK) if p.seed == 0 and p.steps == QUICK.looks[-1]]
    scores = np.random.default_rng(0).random((6, 8))
    for point in own:
        mask = units.kept(point, scores)
        by_kind = mask.reshape(3, 16).sum(-1)
        total = 16 if point.order in ATTENTIONS else 48
        removed = int(np.ceil(round(point.fraction_pruned * total, 6)))
        assert mask.sum() == 48 - removed
        if point.order in ATTENTIONS:
            others = [n for kind, n in zip(ATTENTIONS, by_kind, strict=True) if kind != point.order]
            assert others == [16, 16]
        if point.order in (*ATTENTIONS, "importance") and 0 < removed < total:
            inside = np.ones_like(mask)
            if point.order in ATTENTIONS:
                inside[:] = False
                inside[2 * ATTENTIONS.index(point.order) :][:2] = True
            assert scores[~mask].max() < scores[mask & inside].min()
    draws = [
        units.kept(replace(own[0], order="random", fraction_pruned=0.5, seed=seed, draw=draw), scores)
        for seed in (0, 1)
        for draw in (0, 1)
    ]
    assert len({mask.tobytes() for mask in draws}) == 4


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"num_heads": 3}, "num_heads: expected a divisor of d_model = 128, got 3"),
        ({"looks": (100, 125)}, "looks: expected ascending multiples of 50 up to num_steps = 1800"),
        ({"looks": (300, 300)}, "looks"),
        ({"looks": (1850,)}, "looks"),
        ({"looks": ()}, "looks"),
        ({"learning_rate": 0.0}, "learning_rate: expected a positive number, got 0.0"),
        ({"seeds": 0}, "seeds: expected a positive integer, got 0"),
        ({"warmup": 1800}, "num_steps: expected more than warmup|tuning_steps: expected more than warmup"),
    ],
)
def test_bad_fields_are_named(fields, said):
    with pytest.raises(ValueError, match=said):
        resolve(replace(QUICK, **fields), fields)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_allowed(preset):
    assert resolve(PRESETS[preset], ()) == PRESETS[preset]


def made(config: RedundancyConfig, bleu: Any, gain: Any) -> list[dict[str, Any]]:
    """Records of functions of (order, steps, fraction, seed)."""
    rows = []
    for p in points.grid(config):
        at = (p.order, p.steps, p.fraction_pruned, p.seed)
        rows.append(
            vars(p)
            | {"status": "ok", "reason": None, "heads_left": 0, "left_by_kind": [16, 16, 16], "loss": 1.0}
            | {"gain": gain(*at), "bleu": None if p.order == "random" else bleu(*at), "seconds": 0.0}
        )
    return rows


def falls(late: float, early: float, source: float = 2.0):
    """BLEU and gain that fall as 1 - f / late, or early, or (source alone) steeper."""

    def value(order, steps, fraction, seed):
        slope = {"source": source, "random": 1.4}.get(order, late if steps == 1800 else early)
        return (10 + seed) * max(0.0, 1 - slope * fraction) * (steps >= 300)

    return value


def test_curves_are_shares_of_each_model():
    rows = made(QUICK, falls(0.25, 1.0), falls(0.25, 1.0))
    curves = records.summary({"points": rows})["curves"]
    [last] = [c for c in curves if c["order"] == "importance" and c["steps"] == 1800]
    assert (last["bleu"], last["seeds"], last["bleu_seeds"]) == (11.0, 3, 3)
    np.testing.assert_allclose(last["bleu_kept"], 1 - 0.25 * np.linspace(0, 1, 11))
    np.testing.assert_allclose(last["bleu_kept_low"], last["bleu_kept"])
    [first] = [c for c in curves if c["order"] == "importance" and c["steps"] == 150]
    assert first["bleu"] == 0
    assert first["bleu_kept"] is first["gain_kept"] is None  # worth nothing: nothing to keep
    [chance] = [c for c in curves if c["order"] == "random" and c["steps"] == 1800]
    assert chance["bleu"] is None
    assert chance["gain_kept"][5] == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("values", "verdicts"),
    [
        (falls(0.25, 1.0), {"late": "failed", "appears": "held", "order": "held", "source": "held"}),
        (falls(0.5, 0.3), {"late": "held", "appears": "failed", "order": "held"}),
        (falls(1.5, 1.0, 1.0), {"order": "failed", "source": "failed", "early order": "failed"}),
    ],
)
def test_claims_can_come_out_either_way(values, verdicts):
    curves = records.summary({"points": made(QUICK, values, values)})["curves"]
    found = {row["claim"]: row["verdict"] for row in claim_rows(curves)}
    assert found.items() >= verdicts.items()
    assert set(found) == {claim.name for claim in CLAIMS}
    assert {row["verdict"] for row in claim_rows([])} == {"not_run"}


def test_figures_and_tables_show_all_curves(tmp_path):
    rows = made(QUICK, falls(0.5, 1.0), falls(0.5, 1.0))
    data = {"preset": "quick", "records": {"points": rows, **records.summary({"points": rows})}}
    drawn = {path.name for path in EXPERIMENT.plot(data, tmp_path, "quick")}
    assert {"quick-dynamics.svg", "quick-kinds.svg", "quick-captions.md"} <= drawn
    cells = table.curves_cells(data)
    assert cells is not None
    assert len(cells.rows) == 2 * 5 + 3
    values = table.values(data)
    assert values["kept.bleu.importance.t100.p40"] == "80%"
    assert values["kept.bleu.source.t100.p40-low"] == "20%"
    assert values["bleu.t100"] == "11.0"


def test_without_text_everything_is_left_out(monkeypatch, tmp_path):
    monkeypatch.setattr("experiments.verses.PATH", tmp_path / "none")
    [row] = EXPERIMENT.left_out(QUICK)
    assert row["what"] == "everything"
    assert EXPERIMENT.parts(QUICK, lambda points: []) == []


def test_a_run_of_seconds(tmp_path, capsys):
    words = ["run", "redundancy", "--preset", "smoke", "--workers", "0", "--quiet", "--out", str(tmp_path)]
    assert cli.main(words) == 0
    assert "Kept without some heads" in capsys.readouterr().out
