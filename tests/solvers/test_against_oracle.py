"""Mirror steps against a conic solver, and against a duality gap computed by another route."""

import numpy as np
import pytest

from advmdp.confidence import BoxSet, KnownKernels
from advmdp.solvers import mirror_descent_step, upper_occupancy
from tests.solvers import reference
from tests.solvers.checks import flow_error, recomputed_gap, smallest_means_by_linear_programme
from tests.solvers.instances import STRUCTURES, ordinary

PAIRS = ("ellipsoid", "simplex", "box", "l1", "known")
TRIPLES = ("box", "l1", "known")
CASES = [*((family, "pairs") for family in PAIRS), *((family, "triples") for family in TRIPLES)]
QUICK = range(4)
MANY = range(4, 36)


def solve(instance, entropy):
    return mirror_descent_step(
        instance.confidence_set, instance.q, instance.loss, instance.step_size,
        entropy=entropy, kernels=instance.kernels,
    )  # fmt: skip


def check(family, entropy, seed):
    instance = ordinary(family, seed)
    triples = entropy == "triples"
    step = solve(instance, entropy)
    oracle = reference.mirror_step(
        instance.confidence_set, instance.q, instance.loss, instance.step_size,
        kernels=instance.kernels if triples else None,
    )  # fmt: skip
    assert step.value == pytest.approx(oracle.value, abs=1e-7)
    for ours, theirs in zip(step.q, oracle.q, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert flow_error(step, instance.confidence_set) <= 1e-12
    assert instance.confidence_set.contains(step.kernels, tolerance=1e-9)
    gap, value_error = recomputed_gap(instance, step, triples=triples)
    assert step.gap <= 1e-8
    assert -1e-10 <= gap <= 1e-8
    assert value_error <= 1e-10 * (1.0 + abs(step.value))
    policy = [np.exp(log_q - log_q.max(axis=1, keepdims=True, initial=-1e300)) for log_q in step.log_q]
    policy = [np.where(table.sum(axis=1, keepdims=True) > 0.0, table, 1.0) for table in policy]
    policy = [table / table.sum(axis=1, keepdims=True) for table in policy]
    for q, upper in zip(step.q, upper_occupancy(instance.confidence_set, policy), strict=True):
        assert np.all(q.sum(axis=1) <= upper + 1e-9)


@pytest.mark.parametrize("seed", QUICK)
@pytest.mark.parametrize(("family", "entropy"), CASES)
def test_step_agrees_with_the_conic_solver(family, entropy, seed):
    check(family, entropy, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", MANY)
@pytest.mark.parametrize(("family", "entropy"), CASES)
def test_step_agrees_with_the_conic_solver_on_many_instances(family, entropy, seed):
    check(family, entropy, seed)


@pytest.mark.parametrize("seed", [6, 10])
@pytest.mark.parametrize("family", [family for family in PAIRS if family != "l1"])
def test_step_agrees_with_the_programme_written_pair_by_pair(family, seed):
    instance = ordinary(family, seed)
    step = solve(instance, "pairs")
    oracle = reference.mirror_step_pair_by_pair(instance.confidence_set, instance.q, instance.loss, instance.step_size)
    assert step.value == pytest.approx(oracle.value, abs=1e-7)
    for ours, theirs in zip(step.q, oracle.q, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("seed", [0, 1, 3, 4])
def test_gap_of_the_box_step_by_linear_programming(seed):
    instance = ordinary("box", seed)
    step = solve(instance, "pairs")
    gap, _ = recomputed_gap(instance, step, row_minimum=smallest_means_by_linear_programme)
    assert -1e-9 <= gap <= 1e-8


@pytest.mark.parametrize("seed", [0, 2, 4])
@pytest.mark.parametrize("family", ["ellipsoid", "simplex"])
def test_gap_of_the_ellipsoid_step_by_conic_rows(family, seed):
    instance = ordinary(family, seed)
    step = solve(instance, "pairs")

    def row_minimum(confidence_set, layer, values):
        return reference.extreme_rows(confidence_set, layer, values, maximise=False)

    gap, _ = recomputed_gap(instance, step, row_minimum=row_minimum)
    assert abs(gap) <= 1e-8


@pytest.mark.parametrize("seed", range(6))
def test_a_box_of_width_zero_is_the_known_kernel(seed):
    instance = ordinary("known", seed)
    truth = instance.truth
    known = solve(instance, "pairs")
    for entropy in ("pairs", "triples"):
        step = mirror_descent_step(
            BoxSet(truth, truth), instance.q, instance.loss, instance.step_size,
            entropy=entropy, kernels=truth,
        )  # fmt: skip
        for one, other in zip(step.q, known.q, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-7)


@pytest.mark.parametrize("entropy", ["pairs", "triples"])
@pytest.mark.parametrize("n_actions", [1, 2, 5])
def test_one_layer_is_exponential_weights(entropy, n_actions):
    rng = np.random.default_rng(n_actions)
    q = rng.dirichlet(np.ones(n_actions))[None, :]
    loss = rng.random((1, n_actions))
    one = np.ones((1, n_actions, 1))
    weights = q * np.exp(-1.7 * loss)
    for confidence_set in (KnownKernels([one]), BoxSet([one], [one])):
        step = mirror_descent_step(confidence_set, [q], [loss], 1.7, entropy=entropy, kernels=[one])
        np.testing.assert_allclose(step.q[0], weights / weights.sum(), rtol=1e-12)
        assert step.value == pytest.approx(-np.log(weights.sum()), abs=1e-12)


def test_the_instances_cover_what_they_are_meant_to():
    """The ranges over which the agreement above is claimed do occur among its instances."""
    assert len(CASES) * len([*QUICK, *MANY]) >= 200
    horizons = set()
    for family in {family for family, _ in CASES}:
        instances = [ordinary(family, seed) for seed in (*QUICK, *MANY)]
        sets = [instance.confidence_set for instance in instances]
        horizons |= {confidence_set.horizon for confidence_set in sets}
        assert {confidence_set.n_actions for confidence_set in sets} == set(range(1, 7))
        assert {size for confidence_set in sets for size in confidence_set.layer_sizes} == set(range(1, 13))
        structures = {instance.name.split("-", 2)[2] for instance in instances}
        assert structures == set(STRUCTURES) - ({"signed", "uneven-sums"} if family == "simplex" else set())
        if family in ("ellipsoid", "simplex"):
            assert {confidence_set.dim for confidence_set in sets} == set(range(1, 11))
            radii = [float(confidence_set.radius[0]) for confidence_set in sets]
            assert min(radii) < 2e-3
            assert max(radii) > 500.0
            assert any((table == 0.0).all(axis=3).any() for s in sets for table in s.features)
    assert horizons == set(range(1, 9))
