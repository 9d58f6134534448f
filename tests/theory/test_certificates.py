"""Certificates against linear programmes, hand-made cases, and their own definitions."""

import numpy as np
import pytest
from jaxtyping import TypeCheckError
from scipy import optimize

from theory.certificates import Certificate, certify_head, multiplier_bound
from theory.squared_hinge import fit_full_rank_head, minimise_squared_hinge


def unit_norm(num_items, d_model, rng):
    items = rng.standard_normal((num_items, d_model))
    return items / np.linalg.norm(items, axis=1, keepdims=True)


def derangement(num_items, rng):
    """Adjacency matrix of a uniform permutation without fixed points."""
    while True:
        targets = rng.permutation(num_items)
        if np.all(targets != np.arange(num_items)):
            adjacency = np.zeros((num_items, num_items), bool)
            adjacency[np.arange(num_items), targets] = True
            return adjacency


def random_masks(num_items, rng, *, density, free):
    """Independent labels: at least one pair of each sign."""
    labels = np.where(rng.random((num_items, num_items)) < density, 1, -1)
    labels[rng.random(labels.shape) < free] = 0
    labels[0, 1], labels[1, 0] = 1, -1
    return labels == 1, labels == -1


def pair_features(items, mask):
    """Rows (x_u kron x_v, -1) of the pairs in `mask`."""
    return np.array([np.append(np.kron(items[u], items[v]), -1.0) for u, v in np.argwhere(mask)])


def linear_programme_margin(items, positive, negative):
    """max over |M_ab| <= 1 and tau of min over labelled pairs of y (s - tau)."""
    rows = np.concatenate([pair_features(items, positive), -pair_features(items, negative)])
    size = rows.shape[1]
    result = optimize.linprog(
        np.append(np.zeros(size), -1.0),
        A_ub=np.hstack([-rows, np.ones((len(rows), 1))]),
        b_ub=np.zeros(len(rows)),
        bounds=[(-1, 1)] * (size - 1) + [(None, None), (None, None)],
        method="highs",
    )
    assert result.status == 0
    return -result.fun


def check(certificate: Certificate, items, positive, negative):
    """Verifies a decided certificate from its arrays alone."""
    scores = np.array([[u @ certificate.weights @ v for v in items] for u in items])
    if certificate.verdict == "separable":
        assert certificate.proven
        assert certificate.multipliers is None
        assert certificate.residual is None
        assert np.linalg.norm(certificate.weights) == pytest.approx(1, abs=1e-12)
        assert scores[positive].min() > certificate.threshold > scores[negative].max()
        half_gap = 0.5 * (scores[positive].min() - scores[negative].max())
        assert certificate.margin == pytest.approx(half_gap, rel=1e-6)
        return
    assert certificate.verdict == "inseparable"
    multipliers = certificate.multipliers
    assert multipliers is not None
    assert certificate.residual is not None
    assert certificate.margin <= 0
    assert np.all(multipliers >= 0)
    assert np.sum(multipliers) == pytest.approx(1, abs=1e-12)
    assert np.all(multipliers[~(positive | negative)] == 0)
    combination = multipliers[positive] @ pair_features(items, positive)
    combination -= multipliers[negative] @ pair_features(items, negative)
    scale = np.max(np.sum(items**2, axis=1))
    assert np.linalg.norm(combination[:-1]) <= 1e-12 * scale
    assert abs(combination[-1]) <= 1e-12
    assert certificate.residual <= 1e-12 * scale


@pytest.mark.parametrize("d_model", [3, 4, 5, 6])
def test_verdicts_agree_with_a_linear_programme(d_model):
    rng = np.random.default_rng(d_model)
    verdicts, proven = [], 0
    for case in range(16):
        density, free = ((0.1, 0.0), (0.1, 0.4), (0.5, 0.0), (0.5, 0.4))[case % 4]
        # straddles the capacity: 2 (density 1/2) or 3.9 (density 1/10) labels per degree of freedom
        labels = d_model**2 * (2.0 if density == 0.5 else 3.9) * rng.uniform(0.7, 1.5)
        num_items = max(5, round(np.sqrt(labels / (1 - free))))
        items = unit_norm(num_items, d_model, rng)
        positive, negative = random_masks(num_items, rng, density=density, free=free)
        certificate = certify_head(items, positive, negative)
        best = linear_programme_margin(items, positive, negative)
        # HiGHS is feasible to 1e-7: a margin beyond that is real
        assert certificate.verdict == ("separable" if best > 1e-6 else "inseparable")
        check(certificate, items, positive, negative)
        # a unit Frobenius matrix lies in the box; a matrix in the box has Frobenius norm at most d
        if certificate.verdict == "separable":
            assert certificate.margin <= best + 1e-6
        else:
            proven += certificate.proven  # a contradiction among a few pairs of one item leaves it open
            assert best <= d_model * certificate.residual + 1e-6
        assert certificate.iterations <= 40
        verdicts.append(certificate.verdict)
    assert min(verdicts.count("separable"), verdicts.count("inseparable")) >= 3
    assert proven >= 0.5 * verdicts.count("inseparable")


def test_one_dimensional_cases_by_hand():
    items = np.array([[1.0], [2.0]])  # scores 1, 2, 2, 4 times M
    positive, negative = np.zeros((2, 2), bool), np.zeros((2, 2), bool)
    positive[1, 1], negative[0, 1], negative[1, 0], negative[0, 0] = True, True, True, True
    largest = certify_head(items, positive, negative)
    assert largest.verdict == "separable"
    np.testing.assert_allclose(largest.weights, [[1.0]])
    assert (largest.margin, largest.threshold) == (pytest.approx(1.0), pytest.approx(3.0))

    positive, negative = np.zeros((2, 2), bool), np.zeros((2, 2), bool)
    positive[0, 1], negative[0, 0], negative[1, 1] = True, True, True  # 2 above both 1 and 4; (1, 0) is free
    between = certify_head(items, positive, negative)
    assert between.verdict == "inseparable"
    assert between.proven
    assert between.multipliers is not None
    # 2 a = b + 4 c, a = b + c: the only multipliers there are
    np.testing.assert_allclose(between.multipliers, [[1 / 3, 1 / 2], [0, 1 / 6]], atol=1e-12)


def test_planted_matrix_is_found():
    rng = np.random.default_rng(0)
    items = unit_norm(29, 5, rng)
    scores = items @ rng.standard_normal((5, 5)) @ items.T
    cut = np.quantile(scores, 0.9)
    margin = 0.02 * np.std(scores)
    certificate = certify_head(items, scores > cut + margin, scores < cut - margin)
    assert certificate.verdict == "separable"
    check(certificate, items, scores > cut + margin, scores < cut - margin)


@pytest.mark.parametrize("kept_free", [False, True])
def test_duplicated_items_contradict_each_other_unless_free(kept_free):
    rng = np.random.default_rng(1)
    items = unit_norm(7, 5, rng)
    items[1] = items[0]
    positive = np.zeros((7, 7), bool)
    positive[0, 3] = True
    negative = ~positive
    if kept_free:
        negative[1, 3] = False
    certificate = certify_head(items, positive, negative)
    check(certificate, items, positive, negative)
    if kept_free:
        assert certificate.verdict == "separable"
        scores = items @ certificate.weights @ items.T
        assert scores[1, 3] > certificate.threshold  # the free pair is on the wrong side, and may be
    else:
        assert certificate.verdict == "inseparable"
        assert certificate.multipliers is not None
        # the contradiction is all there is: half the weight on each of the two equal pairs
        assert certificate.multipliers[0, 3] == pytest.approx(0.5, abs=1e-9)
        assert certificate.multipliers[1, 3] == pytest.approx(0.5, abs=1e-9)
        assert not certificate.proven  # two pairs span nothing


def test_bound_holds_for_every_matrix_and_any_multipliers():
    rng = np.random.default_rng(2)
    items = 1.7 * unit_norm(11, 3, rng)
    positive, negative = random_masks(11, rng, density=0.3, free=0.2)
    for _ in range(50):
        multipliers = rng.exponential(size=(11, 11)) ** 3
        bound = multiplier_bound(items, positive, negative, multipliers)
        weights = rng.standard_normal((3, 3))
        scores = items @ (weights / np.linalg.norm(weights)) @ items.T
        margin = 0.5 * (scores[positive].min() - scores[negative].max())
        assert margin <= bound
        assert bound == pytest.approx(multiplier_bound(items, positive, negative, 5.0 * multipliers))
    # and above the margin of a separating matrix, with the residuals of a fit that does not separate yet
    items, positive = unit_norm(7, 5, rng), derangement(7, rng)
    separable = certify_head(items, positive, ~positive)
    assert separable.verdict == "separable"
    early = certify_head(items, positive, ~positive, max_iterations=1)
    assert early.residual is not None
    assert separable.margin < early.residual


def test_multiplier_bound_is_tight_and_refuses_nonsense():
    items = np.eye(2)
    positive, negative = np.zeros((2, 2), bool), np.zeros((2, 2), bool)
    positive[0, 1], negative[1, 0] = True, True
    # the best unit matrix has entries +-1/sqrt(2) on the two pairs: margin 1/sqrt(2)
    bound = multiplier_bound(items, positive, negative, np.full((2, 2), 3.0))
    assert bound == pytest.approx(np.sqrt(0.5), rel=1e-12)
    for bad in (np.zeros((2, 2)), np.full((2, 2), -1.0), np.full((2, 2), np.nan), np.eye(2)):
        with pytest.raises(ValueError, match="multipliers: expected"):
            multiplier_bound(items, positive, negative, bad)


@pytest.mark.parametrize("num_items", [7, 29])
def test_scale_and_coordinates_change_nothing_but_the_margin(num_items):
    rng = np.random.default_rng(3)
    items, positive = unit_norm(num_items, 5, rng), derangement(num_items, rng)
    plain = certify_head(items, positive, ~positive)
    scaled = certify_head(1e3 * items, positive, ~positive)
    rotation, _ = np.linalg.qr(rng.standard_normal((7, 5)))
    rotated = certify_head(items @ rotation.T, positive, ~positive)  # 7 columns of rank 5
    assert plain.verdict == ("separable" if num_items == 7 else "inseparable")
    for other, scale in ((scaled, 1e6), (rotated, 1.0)):
        assert other.verdict == plain.verdict
        assert other.margin == pytest.approx(scale * plain.margin, rel=1e-6)
        if plain.multipliers is not None:
            assert other.multipliers is not None
            np.testing.assert_allclose(other.multipliers, plain.multipliers, atol=1e-10)
    check(scaled, 1e3 * items, positive, ~positive)
    check(rotated, items @ rotation.T, positive, ~positive)
    if plain.verdict == "inseparable":
        assert plain.proven
        assert scaled.proven
        assert not rotated.proven


def test_independent_items_hold_every_graph():
    rng = np.random.default_rng(4)
    items = unit_norm(5, 7, rng)
    for _ in range(10):
        positive, _ = random_masks(5, rng, density=0.4, free=0.0)
        certificate = certify_head(items.astype(np.float32), positive, ~positive)
        assert certificate.verdict == "separable"
        check(certificate, items.astype(np.float32), positive, ~positive)


def test_undecided_when_stopped_early_and_restarted_from_there():
    rng = np.random.default_rng(5)
    for num_items, verdict in ((13, "separable"), (31, "inseparable")):
        items, positive = unit_norm(num_items, 7, rng), derangement(num_items, rng)
        full = certify_head(items, positive, ~positive)
        assert full.verdict == verdict
        assert full.iterations > 1
        early = certify_head(items, positive, ~positive, max_iterations=1)
        assert (early.verdict, early.iterations) == ("undecided", 1)
        assert not early.proven
        assert early.multipliers is None
        assert early.residual is not None
        assert early.residual > 1e-6
        fit = minimise_squared_hinge(items, positive, ~positive)
        again = certify_head(items, positive, ~positive, warm_start=(fit.weights, fit.threshold))
        assert again.verdict == verdict
        assert again.iterations <= 1


def test_minimiser_agrees_with_a_general_optimiser():
    rng = np.random.default_rng(6)
    items = unit_norm(13, 3, rng)
    positive, negative = random_masks(13, rng, density=0.2, free=0.3)
    rows = np.concatenate([pair_features(items, positive), -pair_features(items, negative)])

    def loss(point):
        residuals = np.maximum(1 - rows @ point, 0)
        return 0.5 * residuals @ residuals, -residuals @ rows

    best = optimize.minimize(
        loss, np.zeros(10), jac=True, method="L-BFGS-B", options={"gtol": 1e-10, "ftol": 0}
    )
    fit = minimise_squared_hinge(items, positive, negative)
    assert fit.loss == pytest.approx(best.fun, rel=1e-9)
    assert loss(np.append(fit.weights.ravel(), fit.threshold))[0] == pytest.approx(fit.loss, rel=1e-9)
    assert not fit.separates
    assert fit.gradient <= 1e-9
    np.testing.assert_allclose(np.append(fit.weights.ravel(), fit.threshold), best.x, atol=1e-4)


def test_minimiser_reaches_zero_where_it_does_not_stop_at_separation():
    rng = np.random.default_rng(7)
    items, positive = unit_norm(13, 7, rng), derangement(13, rng)
    fit = minimise_squared_hinge(items, positive, ~positive)
    assert fit.separates
    assert fit.loss <= 1e-12
    early = minimise_squared_hinge(items, positive, ~positive, stop_at_separation=True)
    assert early.separates
    assert early.iterations <= fit.iterations


def test_dropping_the_worst_pairs_with_warm_starts_reaches_a_held_set():
    rng = np.random.default_rng(8)
    items, edges = unit_norm(37, 7, rng), derangement(37, rng)
    own, warm, steps = edges.copy(), None, {"warm": 0, "cold": 0}
    for _ in range(40):
        fit = fit_full_rank_head(items, own, ~edges, warm_start=warm)
        steps["warm"] += fit.iterations
        steps["cold"] += fit_full_rank_head(items, own, ~edges).iterations
        if fit.separates:
            break
        warm = (fit.weights, fit.threshold)
        scores = np.where(own, items @ fit.weights @ items.T, np.inf)
        own[np.unravel_index(np.argsort(scores, axis=None)[:2], own.shape)] = False
    certificate = certify_head(items, own, ~edges)
    assert certificate.verdict == "separable"
    check(certificate, items, own, ~edges)
    assert 10 <= own.sum() < 37
    assert steps["warm"] < steps["cold"]


def test_invalid_arguments_are_named():
    rng = np.random.default_rng(9)
    items, positive = unit_norm(5, 3, rng), derangement(5, rng)
    none = np.zeros((5, 5), bool)
    for arguments, message in (
        ((items, positive, positive), "negative: expected no pair in common with positive, got 5"),
        ((items, none, ~positive), "positive: expected at least one pair"),
        ((items, positive, none), "negative: expected at least one pair"),
        ((items * np.nan, positive, ~positive), "embeddings: expected a finite array"),
        ((0 * items, positive, ~positive), "embeddings: expected at least one item that is not zero"),
    ):
        with pytest.raises(ValueError, match=message):
            certify_head(*arguments)
        with pytest.raises(ValueError, match=message):
            minimise_squared_hinge(*arguments)
    with pytest.raises(ValueError, match="max_iterations: expected a positive integer, got 0"):
        certify_head(items, positive, ~positive, max_iterations=0)
    with pytest.raises(ValueError, match="warm_start: expected"):
        certify_head(items, positive, ~positive, warm_start=(np.full((3, 3), np.inf), 0.0))
    with pytest.raises(ValueError, match="tolerance: expected"):
        minimise_squared_hinge(items, positive, ~positive, tolerance=-1.0)
    with pytest.raises((ValueError, TypeCheckError)):
        certify_head(items, positive[:4, :4], ~positive)


@pytest.mark.slow
def test_single_head_ceiling_at_16_dimensions():
    """Half of the permutation graphs on Gaussian unit-norm items are separable near the predicted 56.9."""
    sizes, seeds = (54, 57, 60, 63, 66), 16
    fractions = []
    for num_items in sizes:
        separable = 0
        for seed in range(seeds):
            rng = np.random.default_rng([num_items, seed])
            items, positive = unit_norm(num_items, 16, rng), derangement(num_items, rng)
            certificate = certify_head(items, positive, ~positive)
            assert certificate.proven
            separable += certificate.verdict == "separable"
        fractions.append(separable / seeds)
    assert fractions[0] > 0.5 > fractions[-1]
    middle = 54 - 1.5 + 3 * sum(fractions)  # the area under the curve; standard error 0.5
    assert abs(middle / 56.9 - 1) < 0.06
