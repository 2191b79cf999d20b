"""Losses of any sign, for every entropy and set: a constant per layer changes the value and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from advmdp.confidence import KnownKernels
from advmdp.solvers import mirror_descent_step
from advmdp.solvers.known import RepeatedStep
from tests.solvers import reference
from tests.solvers.checks import flow_error
from tests.solvers.instances import FAMILIES, ordinary

COMBINATIONS = [
    *(("pairs", family) for family in ("ellipsoid", "simplex", "box", "known")),
    *(("triples", family) for family in ("box", "l1", "known")),
    *(("conditional", family) for family in FAMILIES),
]


def signed(instance, seed):
    rng = np.random.default_rng(seed)
    return [rng.uniform(-1.0, 0.5, size=table.shape) for table in instance.loss]


def step_of(instance, entropy, loss):
    return mirror_descent_step(
        instance.confidence_set, None, loss, instance.step_size,
        log_q=instance.log_q, kernels=instance.kernels, entropy=entropy,
    )  # fmt: skip


def check_against_oracle(entropy, family, seed):
    instance = ordinary(family, seed)
    loss = signed(instance, seed)
    step = step_of(instance, entropy, loss)
    assert step.gap <= 1e-8
    assert flow_error(step, instance.confidence_set) <= 1e-11
    options = {"kernels": instance.kernels} if entropy == "triples" else {"conditional": entropy == "conditional"}
    expected = reference.mirror_step(instance.confidence_set, instance.q, loss, instance.step_size, **options)
    assert step.value == pytest.approx(expected.value, abs=2e-6)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("entropy", "family"), COMBINATIONS)
def test_they_agree_with_a_conic_solver(entropy, family, seed):
    check_against_oracle(entropy, family, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 20))
@pytest.mark.parametrize(("entropy", "family"), COMBINATIONS)
def test_they_agree_with_a_conic_solver_many(entropy, family, seed):
    check_against_oracle(entropy, family, seed)


@pytest.mark.parametrize("seed", [1, 4, 6])
@pytest.mark.parametrize(("entropy", "family"), COMBINATIONS)
def test_a_constant_per_layer_changes_no_occupancy(entropy, family, seed):
    instance = ordinary(family, seed)
    constants = np.random.default_rng(seed).uniform(-3.0, 1.0, size=len(instance.loss))
    moved = [table + c for table, c in zip(instance.loss, constants, strict=True)]
    before, after = (step_of(instance, entropy, loss) for loss in (instance.loss, moved))
    shift = instance.step_size * constants.sum()
    assert after.value == pytest.approx(before.value + shift, abs=3e-8)
    # |q - q'|_1 of a layer is at most sqrt(2 gap) for each of the two.
    atol = 1e-9 if entropy == "conditional" else 2.0 * np.sqrt(2.0 * max(before.gap, after.gap, 1e-12))
    for old, new in zip(before.q, after.q, strict=True):
        np.testing.assert_allclose(new, old, atol=atol)


@pytest.mark.parametrize("entropy", ["pairs", "triples", "conditional"])
def test_losses_of_states_that_are_left_out_are_nobodys(entropy):
    kernels = [np.tile([0.5, 0.5, 0.0], (1, 2, 1)), np.ones((3, 2, 1))]
    q = [np.full((1, 2), 0.5), np.full((3, 2), 1 / 6)]
    steps = []
    for lost in (0.0, -1e12):
        loss = [np.array([[-1.0, 0.5]]), np.array([[-2.0, 0.0], [1.0, -1.0], [lost, lost]])]
        steps.append(mirror_descent_step(KnownKernels(kernels), q, loss, 1.0, entropy=entropy, kernels=kernels))
    np.testing.assert_array_equal(steps[0].flat.q, steps[1].flat.q)
    assert steps[0].value == steps[1].value


def test_repeated_steps_take_them():
    instance = ordinary("known", 3)
    again = RepeatedStep(instance.confidence_set)
    start = again.cold(
        np.concatenate([table.ravel() for table in instance.log_q]), np.zeros(sum(t.size for t in instance.loss))
    )
    cost = np.concatenate([table.ravel() for table in signed(instance, 0)])
    found = again(start.log_q, cost)
    expected = mirror_descent_step(instance.confidence_set, None, cost, 1.0, log_q=start.log_q)
    assert found.status == "repeated"
    assert found.value == pytest.approx(expected.value, abs=2e-8)
    np.testing.assert_allclose(np.exp(found.log_q), expected.flat.q, atol=1e-6)
