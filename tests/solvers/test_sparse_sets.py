"""Sets on sparse rows: they answer as dense ones do, and in weight space as pair by pair."""

from __future__ import annotations

from copy import copy
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import csr_array

from advmdp.confidence import BoxSet, EllipsoidSet, KnownKernels, L1Set, base
from advmdp.errors import InvalidMDPError, InvalidSpecError
from advmdp.layered.rows import SparseRows
from advmdp.solvers import conditional_step, lower_occupancy, mirror_descent_step, upper_occupancy
from advmdp.solvers.occupancy_bounds import (
    extreme_rows,
    extreme_values,
    occupancy_intervals,
    visited_upper_occupancy,
)
from tests.solvers import reference
from tests.solvers.instances import FAMILIES, harsh, on_supports, ordinary, sparse_rows

SEEDS = range(14)


def close(found, expected, tolerance=1e-12):
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=0.0, atol=tolerance)


def random_policy(confidence_set, seed):
    rng = np.random.default_rng(seed)
    tables = [rng.dirichlet(np.ones(confidence_set.n_actions), n) for n in confidence_set.layer_sizes[:-1]]
    return tables, np.concatenate(tables, axis=None)


def pair_by_pair(confidence_set):
    """The same ellipsoids without the weights of their layers."""
    other = copy(confidence_set)
    other.sums = other._weights = None
    return other


def check_bounds(one, other, seed, tolerance=1e-12):
    tables, policy = random_policy(one, seed)
    for bound in (upper_occupancy, lower_occupancy):
        for first, second in zip(bound(one, tables), bound(other, tables), strict=True):
            close(first, second, tolerance)
    rng = np.random.default_rng(seed)
    states = np.array([rng.integers(n) for n in one.layer_sizes[:-1]])
    close(visited_upper_occupancy(one, policy, states), visited_upper_occupancy(other, policy, states), tolerance)
    for exact in (True, False):
        for first, second in zip(
            occupancy_intervals(one, policy, exact), occupancy_intervals(other, policy, exact), strict=True
        ):
            close(first, second, tolerance)


def check_rows(one, other, seed, tolerance=1e-12):
    rng = np.random.default_rng(seed)
    tables, _ = random_policy(one, seed)
    for h, reached in enumerate(one.reachable[:-1]):
        values = rng.normal(size=one.layer_sizes[h + 1])
        for maximise in (True, False):
            first, second = (extreme_rows(each, h, values, maximise=maximise) for each in (one, other))
            close(first[reached], second[reached], tolerance)
    losses = [rng.random(table.shape) for table in tables]
    for first, second in zip(
        extreme_values(one, tables, losses, maximise=False), extreme_values(other, tables, losses, maximise=False),
        strict=True,
    ):  # fmt: skip
        close(first, second, 10.0 * tolerance)
    for bounds in zip(one.hull(), other.hull(), strict=True):
        for first, second, reached in zip(*bounds, one.reachable, strict=False):
            close(np.asarray(first)[reached], np.asarray(second)[reached], tolerance)


def check_steps(one, other, seed, tolerance=1e-12):
    rng = np.random.default_rng(seed)
    _, policy = random_policy(one, seed)
    cost = rng.normal(size=len(policy))
    first, second = (conditional_step(each, np.log(policy), cost) for each in (one, other))
    close(first.value, second.value, tolerance)
    close(first.potential, second.potential, tolerance)
    close(first.policy, second.policy, tolerance)
    for step in (first, second):
        assert abs(step.gap) <= 1e-8
        assert step.occupancy.residual <= 1e-9
    close(first.occupancy.value, second.occupancy.value, 1e-9)
    # Where several rows attain a mean, either answer is right; each must be of both sets.
    assert one.contains(second.kernels, 1e-7)
    assert other.contains(first.kernels, 1e-7)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_sparse_sets_answer_as_dense_ones(family, seed):
    instance = ordinary(family, seed)
    dense = instance.confidence_set
    sparse = on_supports(dense, first_dense=seed % 3 == 0)
    assert [list(r) for r in sparse.reachable] == [list(r) for r in dense.reachable]
    close(sparse.smallest_radius_multiple(), dense.smallest_radius_multiple())
    assert sparse.empty_pairs().tolist() == dense.empty_pairs().tolist()
    assert sparse.contains(instance.truth) == dense.contains(instance.truth)
    check_bounds(sparse, dense, seed)
    check_rows(sparse, dense, seed)
    check_steps(sparse, dense, seed)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("family", ["simplex", "box"])
def test_sparse_sets_are_empty_where_dense_ones_are(family, seed):
    dense = harsh(family, seed).confidence_set
    sparse = on_supports(dense)
    assert sparse.empty_pairs().tolist() == dense.empty_pairs().tolist()
    multiple = dense.smallest_radius_multiple()
    assert sparse.smallest_radius_multiple() == pytest.approx(multiple, rel=1e-12, abs=1e-12)
    if np.isfinite(multiple):
        assert len(sparse.enlarged_if_empty()[0].empty_pairs()) == 0


@pytest.mark.parametrize("seed", range(20))
def test_weights_of_a_layer_answer_as_its_pairs_one_by_one(seed):
    mixture = ordinary("simplex", seed).confidence_set
    assert mixture.weights is not None
    one_by_one = pair_by_pair(mixture)
    assert one_by_one.weights is None
    close(mixture.smallest_radius_multiple(), one_by_one.smallest_radius_multiple(), 1e-9)
    check_bounds(mixture, one_by_one, seed, 1e-8)
    check_rows(mixture, one_by_one, seed, 1e-8)


@pytest.mark.parametrize("seed", range(4))
def test_simulators_whose_sums_differ_have_no_common_weights(seed):
    rng = np.random.default_rng(seed)
    sizes, n_actions, dim = (1, 3, 4, 1), 2, 3
    features = [
        rng.dirichlet(np.ones(m), (n, n_actions, dim)).swapaxes(2, 3) * rng.uniform(0.5, 1.5, (n, n_actions, 1, dim))
        for n, m in pairwise(sizes)
    ]
    mixture = EllipsoidSet(features, [np.full(dim, 0.35)] * 3, [np.eye(dim)] * 3, 0.8, simplex=True)
    assert mixture.weights is None
    check_bounds(on_supports(mixture), mixture, seed)
    for h in range(2):
        values = rng.normal(size=sizes[h + 1])
        close(extreme_rows(mixture, h, values), reference.extreme_rows(mixture, h, values), 1e-6)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_forward_pass_encloses_the_exact_bounds(family, seed):
    sparse = on_supports(ordinary(family, seed).confidence_set)
    _, policy = random_policy(sparse, seed)
    low, high = occupancy_intervals(sparse, policy)
    wide_low, wide_high = occupancy_intervals(sparse, policy, exact=False)
    assert (wide_low <= low + 1e-9).all()
    assert (high <= wide_high + 1e-9).all()


@pytest.mark.parametrize("dim", [1, 2, 3, 5])
def test_passes_over_ancestors_alone_find_what_all_states_give(dim):
    """A walk on a line: a state has few ancestors, and most of every layer leads elsewhere."""
    for confidence_set in (walk(dim, 30), walk(dim, 30).dense()):
        tables, policy = random_policy(confidence_set, dim)
        upper, lower = upper_occupancy(confidence_set, tables), lower_occupancy(confidence_set, tables)
        for h, s in ((1, 15), (3, 14), (5, 16), (5, 0)):
            # The whole layer, by the means of one layer after the other.
            for bound, maximise in ((upper, True), (lower, False)):
                values = np.eye(confidence_set.layer_sizes[h])[s]
                for g in range(h - 1, -1, -1):
                    rows = extreme_rows(confidence_set, g, values, maximise=maximise)
                    values = (tables[g] * rows).sum(axis=1)
                close(bound[h][s], values[0])
        wide_low, wide_high = occupancy_intervals(confidence_set, policy, exact=False)
        assert (wide_low <= np.concatenate(lower) + 1e-12).all()
        assert (wide_high >= np.concatenate(upper) - 1e-12).all()


def walk(dim, n, horizon=6):
    """Left or right on n cells, with d ways to stay or slip; one table of features for all layers but the ends."""
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.ones(3), (dim, 2))
    table = np.zeros((n, 2, n, dim))
    for s in range(n):
        for move in (-1, 0, 1):
            for a in range(2):
                table[s, a, min(max(s + move, 0), n - 1)] += shares[:, a, move + 1]
    middle = sparse_rows(table, (table != 0.0).any(axis=3))
    first = sparse_rows(table[n // 2][None], (table[n // 2] != 0.0).any(axis=2)[None])
    features = [first, *[middle] * (horizon - 2), np.ones((n, 2, 1, dim))]
    centre = np.full(dim, 1.0 / dim)
    return EllipsoidSet(features, [centre] * horizon, [4.0 * np.eye(dim)] * horizon, 0.7, simplex=True)


def test_features_are_kept_once_and_no_dense_table_is_made(monkeypatch):
    monkeypatch.setattr(SparseRows, "__array__", None)
    mixture = walk(3, 40)
    assert len(mixture.feature_tables.rows.values) == 3 * sum(
        table.values.shape[0] if isinstance(table, SparseRows) else table.size // 3
        for table in (mixture.features[0], mixture.features[1], mixture.features[-1])
    )
    new = mixture.with_estimate(mixture.centres, mixture.grams, 0.5)
    assert new.feature_tables is mixture.feature_tables
    assert new.arrivals is mixture.arrivals
    _, policy = random_policy(new, 0)
    occupancy_intervals(new, policy)
    occupancy_intervals(new, policy, exact=False)
    conditional_step(new, np.log(policy), policy).occupancy  # noqa: B018
    new.hull()
    new.enlarged_if_empty()


def test_an_estimate_that_leaves_nothing_is_an_error_with_the_layer():
    mixture = walk(3, 10).with_estimate([np.array([2.0, -1.0, 0.0])] * 6, [np.eye(3)] * 6, 0.1)
    tables, policy = random_policy(mixture, 0)
    assert len(mixture.empty_pairs()) > 0
    with pytest.raises(InvalidMDPError, match="empty pairs, the first at layer 0, state 0, action 0"):
        upper_occupancy(mixture, tables)
    with pytest.raises(InvalidMDPError, match="empty pairs"):
        conditional_step(mixture, np.log(policy), policy)
    grown, factor = mixture.enlarged_if_empty()
    assert factor > 1.0
    assert len(grown.empty_pairs()) == 0


@pytest.mark.parametrize("seed", range(5))
def test_sparse_balls_move_mass_within_their_supports(seed):
    rng = np.random.default_rng(seed)
    m, radius = 6, float(rng.uniform(0.0, 1.5))
    possible = rng.random((1, 1, m)) < 0.6
    possible[..., 2] = True
    centre = np.where(possible, rng.random((1, 1, m)), 0.0)
    centre /= centre.sum()
    ball = L1Set([sparse_rows(centre, possible), np.ones((m, 1, 1))], [np.full((1, 1), radius), np.zeros((m, 1))])
    values = rng.normal(size=m)
    # Variables p and |p - centre|, p zero outside the support.
    away = np.block([[np.eye(m), -np.eye(m)], [-np.eye(m), -np.eye(m)], [np.zeros((1, m)), np.ones((1, m))]])
    found = linprog(
        np.concatenate([-values, np.zeros(m)]), A_ub=away,
        b_ub=np.concatenate([centre.ravel(), -centre.ravel(), [radius]]), A_eq=[[1.0] * m + [0.0] * m], b_eq=[1.0],
        bounds=[(0.0, 1.0 if p else 0.0) for p in possible.ravel()] + [(0.0, None)] * m,
    )  # fmt: skip
    close(extreme_rows(ball, 0, values), -found.fun, 1e-9)
    outside = np.zeros((1, 1, m))
    outside[..., np.argmax(~possible)] = 1.0
    assert possible.all() or not ball.contains([outside, np.ones((m, 1, 1))])


def test_scipy_matrices_are_layers():
    kernels = [csr_array([[0.5, 0.5, 0.0], [0.0, 0.2, 0.8]]), csr_array(np.ones((6, 1)))]
    known = KnownKernels(kernels)
    assert known.layer_sizes == (1, 3, 1)
    assert known.contains([np.array([[[0.5, 0.5, 0.0], [0.0, 0.2, 0.8]]]), np.ones((3, 2, 1))])
    assert not known.contains([np.array([[[0.5, 0.4, 0.1], [0.0, 0.2, 0.8]]]), np.ones((3, 2, 1))])
    # Lower bounds of zero are not stored, and need not be.
    lower = [csr_array([[0.4, 0.0, 0.0], [0.0, 0.0, 0.7]]), kernels[1]]
    upper = [csr_array([[0.9, 0.6, 0.0], [0.0, 0.3, 0.9]]), kernels[1]]
    boxes = BoxSet(lower, upper)
    dense = BoxSet(*([np.asarray(t.toarray()).reshape(-1, 2, t.shape[1]) for t in part] for part in (lower, upper)))
    check_rows(boxes, dense, 0)
    assert boxes.contains(kernels)
    with pytest.raises(InvalidMDPError, match="layer 0, state 0, action 0 that upper"):
        BoxSet([csr_array([[0.4, 0.0, 0.1], [0.0, 0.0, 0.7]]), kernels[1]], upper)


def test_what_is_wrong_in_a_sparse_layer_is_named():
    with pytest.raises(InvalidMDPError, match=r"value -0\.5 at layer 0, state 0, action 1, next state 2 must be"):
        KnownKernels([csr_array([[0.5, 0.5, 0.0], [0.0, 1.5, -0.5]]), csr_array(np.ones((6, 1)))])
    table = np.array([[[[0.5, 0.5], [0.0, 0.0]], [[0.5, 0.0], [0.0, -0.5]]]])
    features = [sparse_rows(table, (table != 0.0).any(axis=3)), np.ones((2, 2, 1, 2))]
    with pytest.raises(InvalidMDPError, match=r"value -0\.5 at layer 0, state 0, action 1, next state 1, coordinate 1"):
        EllipsoidSet(features, [np.ones(2)] * 2, [np.eye(2)] * 2, 1.0, simplex=True)


@pytest.mark.parametrize("entropy", ["pairs", "triples"])
@pytest.mark.parametrize("family", ["box", "known", "simplex"])
def test_steps_that_need_dense_tables_make_them(family, entropy):
    if (family, entropy) == ("simplex", "triples"):
        return
    instance = ordinary(family, 3)
    options = {"log_q": instance.log_q, "entropy": entropy, "kernels": instance.kernels}
    problem = None, instance.loss, instance.step_size
    found = mirror_descent_step(on_supports(instance.confidence_set), *problem, **options)
    expected = mirror_descent_step(instance.confidence_set, *problem, **options)
    assert found.value == pytest.approx(expected.value, abs=1e-7)


def test_layers_too_wide_for_dense_tables_are_refused_before_anything_begins(monkeypatch):
    wide = walk(3, 40)
    monkeypatch.setattr(base, "LARGEST_DENSE", 40 * 2 * 40 - 1)
    pairs = 2 * sum(wide.layer_sizes[:-1])
    with pytest.raises(InvalidSpecError, match=r"layer 1 has 40 states and leads to 40.*entropy='conditional'"):
        mirror_descent_step(wide, np.full(pairs, 0.5), np.zeros(pairs), 1.0)
    with pytest.raises(InvalidSpecError, match="layer 1 has 40 states"):
        wide.reduced  # noqa: B018
    assert mirror_descent_step(wide, np.full(pairs, 0.5), np.zeros(pairs), 1.0, entropy="conditional").gap <= 1e-8


def test_rows_of_other_actions_are_taken_on_their_supports():
    sparse = walk(3, 6)
    actions = [np.array([[1, 1]] * n) for n in sparse.layer_sizes[:-1]]
    found, expected = sparse.with_rows_of(actions), sparse.dense().with_rows_of(actions)
    assert found.sparse
    check_rows(found, expected, 0)
    same = [np.array([[0, 1]] * n) for n in sparse.layer_sizes[:-1]]
    assert sparse.with_rows_of(same) is sparse
