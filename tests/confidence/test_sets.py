"""Confidence sets: what they refuse, what they contain, when they are empty, and their hulls."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import solve_triangular
from scipy.optimize import linprog, nnls

from advmdp.confidence import BoxSet, EllipsoidSet, KnownKernels, L1Set
from advmdp.errors import InvalidMDPError
from advmdp.theory.lemmas.printed import bow_tie_set
from tests.solvers import reference
from tests.solvers.instances import FAMILIES, harsh, ordinary

SIZES = (1, 3, 2, 1)
N_ACTIONS = 2


def kernels(seed=0):
    rng = np.random.default_rng(seed)
    return [rng.dirichlet(np.ones(m), (n, N_ACTIONS)) for n, m in itertools.pairwise(SIZES)]


def mixture(dim=3, seed=0):
    """Features of base kernels, and the parameters of an equal mixture."""
    features = [np.stack(layer, axis=-1) for layer in zip(*(kernels(seed + i) for i in range(dim)), strict=True)]
    return features, [np.full(dim, 1.0 / dim)] * 3, [np.eye(dim)] * 3


# What is refused ----------------------------------------------------------------------------------------


def test_a_kernel_that_is_not_a_distribution_is_named_by_its_place():
    wrong = kernels()
    wrong[1][2, 1] = [0.4, 0.7]
    with pytest.raises(InvalidMDPError, match=r"value 1\.1\d* at layer 1, state 2, action 1 must be one"):
        KnownKernels(wrong)
    wrong[1][2, 1] = [-0.5, 1.5]
    with pytest.raises(InvalidMDPError, match=r"value -0\.5 at layer 1, state 2, action 1, next state 0"):
        L1Set(wrong, [np.zeros(k.shape[:2]) for k in wrong])


def test_tables_that_do_not_fit_together_are_refused():
    fitting = kernels()
    with pytest.raises(InvalidMDPError, match="at least one layer"):
        KnownKernels([])
    with pytest.raises(InvalidMDPError, match=r"kernels\[1\] has 2 states but kernels\[0\] leads to 3"):
        KnownKernels([fitting[0], fitting[1][:2], fitting[2]])
    with pytest.raises(InvalidMDPError, match=r"kernels\[2\] has 1 actions"):
        KnownKernels([*fitting[:2], fitting[2][:, :1]])
    with pytest.raises(InvalidMDPError, match="single states"):
        KnownKernels(fitting[:2])
    with pytest.raises(InvalidMDPError, match=r"upper\[0\] has shape"):
        BoxSet(fitting, [fitting[0][:, :, :2], fitting[1][:2], fitting[2]])
    with pytest.raises(InvalidMDPError, match="this set needs 3"):
        KnownKernels(fitting).contains([np.ones((1, N_ACTIONS, 1))])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(value):
    wrong = kernels()
    wrong[0][0, 1, 2] = value
    with pytest.raises(InvalidMDPError, match="layer 0, state 0, action 1, next state 2 must be a finite"):
        BoxSet(kernels(), wrong)


def test_crossed_bounds_and_negative_radii_are_refused():
    low, high = kernels(), kernels()
    low[1][0, 0, 1] = high[1][0, 0, 1] + 0.1
    with pytest.raises(InvalidMDPError, match="layer 1, state 0, action 0, next state 1 must be at most"):
        BoxSet(low, high)
    radii = [np.zeros(k.shape[:2]) for k in high]
    radii[1][2, 0] = -0.1
    with pytest.raises(InvalidMDPError, match=r"value -0\.1 at layer 1, state 2, action 0"):
        L1Set(high, radii)


def test_bad_ellipsoids_are_refused():
    features, centres, grams = mixture()
    with pytest.raises(InvalidMDPError, match=r"grams\[1\] \(layer 1\) must be positive definite"):
        EllipsoidSet(features, centres, [grams[0], -grams[1], grams[2]], 1.0)
    skew = grams[0] + np.triu(np.ones((3, 3)), 1)
    with pytest.raises(InvalidMDPError, match=r"grams\[0\] \(layer 0\) must be finite and symmetric"):
        EllipsoidSet(features, centres, [skew, *grams[1:]], 1.0)
    with pytest.raises(InvalidMDPError, match=r"radius at layer 2 is -1\.0"):
        EllipsoidSet(features, centres, grams, [1.0, 1.0, -1.0])
    with pytest.raises(InvalidMDPError, match="one number or one per layer"):
        EllipsoidSet(features, centres, grams, [1.0, 1.0])
    with pytest.raises(InvalidMDPError, match=r"centres\[0\] has shape \(2,\)"):
        EllipsoidSet(features, [c[:2] for c in centres], grams, 1.0)
    signed = [f.copy() for f in features]
    signed[1][0, 1, 1, 2] = -0.25
    EllipsoidSet(signed, centres, grams, 1.0)
    with pytest.raises(InvalidMDPError, match=r"value -0\.25 at layer 1, state 0, action 1, next state 1, coord"):
        EllipsoidSet(signed, centres, grams, 1.0, simplex=True)


# Emptiness ----------------------------------------------------------------------------------------------


@given(st.integers(0, 10_000), st.sampled_from(["ellipsoid", "simplex", "box"]))
def test_the_smallest_multiple_separates_empty_from_not(seed, family):
    confidence_set = harsh(family, seed).confidence_set
    multiple = confidence_set.smallest_radius_multiple()
    if not 1e-12 < multiple < np.inf:
        assert len(confidence_set.empty_pairs()) == 0
        return
    assert len(confidence_set.enlarged(multiple * (1.0 + 1e-7)).empty_pairs()) == 0
    assert len(confidence_set.enlarged(multiple * (1.0 - 1e-7)).empty_pairs()) > 0


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("family", ["ellipsoid", "simplex"])
def test_ellipsoid_multiples_agree_with_least_distance_programming(family, seed):
    confidence_set = harsh(family, seed).confidence_set
    worst = 0.0
    for h, distances in enumerate(least_distances(confidence_set)):
        worst = max(worst, distances[confidence_set.reachable[h]].max() / confidence_set.radius[h])
    assert confidence_set.smallest_radius_multiple() == pytest.approx(worst, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_box_multiples_agree_with_linear_programming(seed):
    box = harsh("box", seed).confidence_set
    lower, upper = box._given
    worst = 0.0
    for h in range(box.horizon - 1):
        middle, half = 0.5 * (lower[h] + upper[h]), 0.5 * (upper[h] - lower[h])
        for s in np.flatnonzero(box.reachable[h]):
            for a in range(box.n_actions):
                m = middle.shape[2]
                # Variables p and the multiple: |p - middle| <= multiple * half.
                away = np.block([[np.eye(m), -half[s, a][:, None]], [-np.eye(m), -half[s, a][:, None]]])
                found = linprog(
                    np.append(np.zeros(m), 1.0),
                    A_ub=away, b_ub=np.concatenate([middle[s, a], -middle[s, a]]),
                    A_eq=[np.append(np.ones(m), 0.0)], b_eq=[1.0],
                )  # fmt: skip
                worst = max(worst, found.fun if found.status == 0 else np.inf)
    assert box.smallest_radius_multiple() == pytest.approx(worst, rel=1e-6, abs=1e-6)


def test_empty_pairs_are_named_and_an_interval_outside_the_unit_interval_is_empty():
    truth = kernels()
    low, high = [k - 0.1 for k in truth], [k + 0.1 for k in truth]
    low[1][2, 1], high[1][2, 1] = [1.2, -0.3], [1.3, -0.1]
    box = BoxSet(low, high)
    assert box.empty_pairs().tolist() == [[1, 2, 1]]
    # The midpoints 1.25 and -0.2 have half-widths 0.05 and 0.1: both reach [0, 1] at five times that.
    assert box.smallest_radius_multiple() == pytest.approx(5.0)
    assert len(box.enlarged(5.01).empty_pairs()) == 0


@given(st.integers(0, 100_000))
def test_boxes_know_whether_a_pair_is_empty_and_which_have_no_bounds(seed):
    rng = np.random.default_rng(seed)
    truth = kernels(seed)
    width = [rng.choice([0.05, 1.0], k.shape[:2])[..., None] for k in truth]
    middle = [k * rng.choice([1.0, 1.0, 1.3, 0.6], k.shape[:2])[..., None] for k in truth]
    box = BoxSet(
        [k - w for k, w in zip(middle, width, strict=True)], [k + w for k, w in zip(middle, width, strict=True)]
    )
    assert box.some_empty == (len(box.empty_pairs()) > 0) == (box.smallest_radius_multiple() > 1.0)
    assert (box.enlarged_if_empty()[0] is box) != box.some_empty
    for h in range(2):
        every = (box.lower[h] == 0.0).all(axis=2) & (box.upper[h] == 1.0).all(axis=2)
        assert (box.loose[h] == every & box.reachable[h][:, None]).all()


def test_features_that_cannot_sum_to_one_leave_no_multiple():
    features, centres, grams = mixture()
    features[1][0, 0] = 0.0
    confidence_set = EllipsoidSet(features, centres, grams, 1.0)
    assert confidence_set.empty_pairs().tolist() == [[1, 0, 0]]
    assert confidence_set.smallest_radius_multiple() == np.inf


def test_a_pair_of_an_unreachable_state_is_never_reported_empty():
    features, centres, grams = mixture()
    features[0][:, :, 1] = 0.0
    features[0] /= features[0].sum(axis=2, keepdims=True)
    features[1][1] = 0.0
    confidence_set = EllipsoidSet(features, centres, grams, 1.0)
    assert [list(r) for r in confidence_set.reachable] == [[True], [True, False, True], [True, True], [True]]
    assert len(confidence_set.empty_pairs()) == 0


def test_a_state_that_the_other_lower_bounds_exclude_is_unreachable():
    low = [np.array([[[0.4, 0.6, 0.0]] * 2]), np.zeros((3, 2, 2)), np.ones((2, 2, 1))]
    high = [np.ones((1, 2, 3)), np.ones((3, 2, 2)), np.ones((2, 2, 1))]
    assert list(BoxSet(low, high).reachable[1]) == [True, True, False]


# Membership, hulls, estimates ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("family", FAMILIES)
def test_the_truth_is_inside_and_a_far_kernel_is_not(family, seed):
    instance = ordinary(family, seed)
    confidence_set = instance.confidence_set
    assert confidence_set.contains(instance.truth, tolerance=1e-9)
    lower, upper = confidence_set.hull()
    for h, truth in enumerate(instance.truth):
        reached = confidence_set.reachable[h]
        assert np.all((lower[h] - 1e-9 <= truth)[reached] & (truth <= upper[h] + 1e-9)[reached])
        excess = np.where(reached[:, None, None], 1.0 - upper[h], 0.0)
        if h < confidence_set.horizon - 1 and excess.max() > 1e-6:
            s, a, t = np.unravel_index(np.argmax(excess), excess.shape)
            moved = [kernel.copy() for kernel in instance.truth]
            moved[h][s, a] = np.eye(truth.shape[2])[t]
            assert not confidence_set.contains(moved)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("family", ["ellipsoid", "simplex", "box", "l1"])
def test_hulls_agree_with_the_conic_solver(family, seed):
    confidence_set = ordinary(family, seed).confidence_set
    lower, upper = confidence_set.hull()
    for h in range(min(confidence_set.horizon - 1, 2)):
        reached = confidence_set.reachable[h]
        for t, unit in enumerate(np.eye(confidence_set.layer_sizes[h + 1])):
            for bound, maximise in ((lower, False), (upper, True)):
                expected = reference.extreme_rows(confidence_set, h, unit, maximise=maximise)
                np.testing.assert_allclose(bound[h][reached, :, t], expected[reached], atol=1e-7)


def test_the_hull_of_an_empty_pair_is_nan():
    truth = kernels()
    low, high = [k - 0.1 for k in truth], [k + 0.1 for k in truth]
    low[1][2, 1] += 0.5
    high[1][2, 1] += 0.5
    lower, upper = BoxSet(low, high).hull()
    assert np.isnan(lower[1][2, 1]).all()
    assert np.isnan(upper[1][2, 1]).all()
    assert not np.isnan(lower[1][2, 0]).any()


@pytest.mark.parametrize("family", ["ellipsoid", "simplex"])
def test_a_new_estimate_gives_the_set_that_the_constructor_gives(family):
    first, second = ordinary(family, 3).confidence_set, ordinary(family, 3).confidence_set
    first.smallest_radius_multiple()  # what was derived from the old estimate must not survive
    centres = [c + 0.1 for c in second.centres]
    grams = [2.0 * g for g in second.grams]
    new = first.with_estimate(centres, grams, 0.5)
    built = EllipsoidSet(second.features, centres, grams, 0.5, second.simplex)
    assert new.smallest_radius_multiple() == built.smallest_radius_multiple()
    np.testing.assert_array_equal(new.radius, built.radius)
    assert new.features is first.features


def test_new_intervals_and_balls_give_the_set_that_the_constructor_gives():
    truth = kernels()
    wide = BoxSet([k - 0.2 for k in truth], [k + 0.2 for k in truth])
    low, high = [k - 0.05 for k in truth], [k + 0.05 for k in truth]
    new, built = wide.with_estimate(low, high), BoxSet(low, high)
    for one, other in zip(new.lower + new.upper, built.lower + built.upper, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(wide.lower[0], np.maximum(truth[0] - 0.2, 0.0))
    ball = L1Set(truth, [np.full(k.shape[:2], 0.5) for k in truth])
    smaller = ball.with_estimate(truth, [np.zeros(k.shape[:2]) for k in truth])
    assert smaller.contains(truth)
    assert not smaller.contains(kernels(seed=5))
    assert ball.enlarged(4.0).contains(kernels(seed=5))


def test_one_hot_features_give_the_counts_of_the_tabular_model():
    """Lambda diagonal: the centre is count / (1 + visits) and the entry's width radius / sqrt(1 + visits)."""
    rng = np.random.default_rng(0)
    n, m = 2, 3
    visits = rng.integers(1, 20, (n, N_ACTIONS))
    counts = np.array([[rng.multinomial(visits[s, a], np.ones(m) / m) for a in range(N_ACTIONS)] for s in range(n)])
    dim = n * N_ACTIONS * m
    one_hot = np.eye(dim).reshape(n, N_ACTIONS, m, dim)
    features = [rng.random((1, N_ACTIONS, n, dim)), one_hot, np.ones((m, N_ACTIONS, 1, dim))]
    gram = np.diag(np.repeat(1.0 + visits.ravel(), m).astype(float))
    estimate = counts / (1.0 + visits)[:, :, None]
    centres = [np.ones(dim) / dim, estimate.ravel(), np.ones(dim)]
    radius = 0.6
    confidence_set = EllipsoidSet(features, centres, [np.eye(dim), gram, np.eye(dim)], radius)
    # At each pair: |p - estimate| <= radius / sqrt(1 + visits) in the Euclidean norm, p a distribution.
    distances = np.linalg.norm(estimate + (1.0 - estimate.sum(axis=2, keepdims=True)) / m - estimate, axis=2)
    multiples = distances * np.sqrt(1.0 + visits) / radius
    found = confidence_set._smallest_multiples()[1]
    np.testing.assert_allclose(found, multiples, rtol=1e-9)


# An independent route to the distance of the nearest valid parameter --------------------------------------


def least_distances(confidence_set):
    """min |theta - centre|_Lambda over valid parameters per pair, by non-negative least squares.

    With theta = centre + L^{-T} y the row is M y + Phi centre; 'sums to one' fixes y along e = M' 1, and what
    is left is Lawson and Hanson's least-distance programme.
    """
    for h in range(confidence_set.horizon - 1):
        factor = np.linalg.cholesky(confidence_set.grams[h])
        phi, centre = confidence_set.features[h], confidence_set.centres[h]
        dim = len(centre)
        whitened = solve_triangular(factor, phi.reshape(-1, dim).T, lower=True).T.reshape(phi.shape)
        inverse = solve_triangular(factor, np.eye(dim), lower=True).T
        distances = np.full(phi.shape[:2], np.inf)
        for s in range(phi.shape[0]):
            for a in range(phi.shape[1]):
                matrix, offset = whitened[s, a], phi[s, a] @ centre
                e = matrix.sum(axis=0)
                if e @ e <= 1e-28 * (matrix**2).sum():
                    continue
                along = e * ((1.0 - offset.sum()) / (e @ e))
                rows, offsets = (inverse, centre) if confidence_set.simplex else (matrix, offset)
                complement = np.linalg.qr(np.column_stack([e, np.eye(dim)]))[0][:, 1:dim]
                rest = least_norm(rows @ complement, -(offsets + rows @ along))
                distances[s, a] = np.hypot(np.linalg.norm(along), rest)
        yield distances


def least_norm(matrix, bound):
    """min |z| with matrix z >= bound: z = -r_head / r_last, r the residual of NNLS on [matrix bound]'."""
    violated = bound > 1e-12 * (1.0 + np.abs(bound).max())
    if not violated.any():
        return 0.0
    lengths = np.linalg.norm(matrix, axis=1)
    if (lengths[violated] <= 1e-14 * max(lengths.max(), 1e-300)).any():
        return np.inf
    scale = float((bound[violated] / lengths[violated]).max())
    target = np.append(np.zeros(matrix.shape[1]), 1.0)
    for _ in range(3):
        programme = np.vstack([matrix.T, bound[None, :] / scale])
        residual = programme @ nnls(programme, target)[0] - target
        if -residual[-1] <= 1e-12:
            return np.inf
        norm = float(np.linalg.norm(residual[:-1]) / -residual[-1])
        if norm < 10.0:
            break
        scale *= norm
    return norm * scale


def tilted(by: float) -> list[np.ndarray]:
    """Two actions that lead to the first of two states with probability 1/2 + by and 1/2 - by."""
    return [np.array([[[0.5 + by, 0.5 - by], [0.5 - by, 0.5 + by]]]), np.ones((2, 2, 1))]


@pytest.mark.parametrize(
    "confidence_set",
    [
        bow_tie_set(0.2),
        L1Set(tilted(0.0), [np.full((1, 2), 0.4), np.zeros((2, 2))]),
        BoxSet([np.full((1, 2, 2), 0.3), np.ones((2, 2, 1))], [np.full((1, 2, 2), 1.0), np.ones((2, 2, 1))]),
        BoxSet([np.zeros((1, 2, 2)), np.ones((2, 2, 1))], [np.full((1, 2, 2), 0.7), np.ones((2, 2, 1))]),
    ],
    ids=["ellipsoid", "ball", "box from below", "box from above"],
)
def test_a_set_ends_where_it_ends(confidence_set):
    """All of them are |by| <= 0.2."""
    for by in (0.0, 0.199, -0.199):
        assert confidence_set.contains(tilted(by))
    for by in (0.201, -0.201, 0.3, 0.39):
        assert not confidence_set.contains(tilted(by))


def test_the_bounds_of_a_box_are_probabilities():
    """They may be given as centre and width; widths of rows are read off these attributes."""
    wide = BoxSet([np.full((1, 2, 2), -0.5), np.ones((2, 2, 1))], [np.full((1, 2, 2), 1.5), np.ones((2, 2, 1))])
    assert (wide.lower[0] == 0.0).all()
    assert (wide.upper[0] == 1.0).all()
