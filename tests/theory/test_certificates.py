"""docs/certificates.md: what the gap and the residual of a mirror step prove, held against steps of every kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advmdp.confidence import KnownKernels
from advmdp.occupancy import occupancy_measure, random_policy
from advmdp.solvers import MirrorStep, mirror_descent_step
from tests.solvers.instances import Instance, ordinary

#: Rounding in the divergences of occupancy measures, which are sums of a few dozen terms of size one.
ROUNDING = 1e-12


def divergence(q: list[np.ndarray], log_prior: list[np.ndarray]) -> float:
    """sum q log(q / prior), where the masses of each layer agree."""
    return sum(
        float((table[table > 0] * (np.log(table[table > 0]) - prior[table > 0])).sum())
        for table, prior in zip(q, log_prior, strict=True)
    )


def inner(q: list[np.ndarray], costs: list[np.ndarray]) -> float:
    return sum(float((a * b).sum()) for a, b in zip(q, costs, strict=True))


def solved(instance: Instance, tolerance: float = 1e-8) -> MirrorStep:
    return mirror_descent_step(
        instance.confidence_set, None, instance.loss, instance.step_size, log_q=instance.log_q, tolerance=tolerance
    )


def comparators(instance: Instance, rng: np.random.Generator) -> list[list[np.ndarray]]:
    """Occupancy measures of the set: of its own kernels under all sorts of policies, and the sharper minimiser."""
    chosen = [solved(instance, tolerance=1e-10).q]
    for _ in range(2):
        loss = [rng.random(table.shape) for table in instance.loss]
        elsewhere = solved(replace(instance, loss=loss, step_size=5.0))
        chosen.append(elsewhere.q)
        sizes, n_actions = instance.confidence_set.layer_sizes, instance.confidence_set.n_actions
        policy = random_policy(sizes, n_actions, rng)
        decided = [np.eye(n_actions)[table.argmax(axis=1)] for table in policy]
        chosen += [occupancy_measure(elsewhere.kernels, each) for each in (policy, decided)]
    return chosen


def shortfall(instance: Instance, q: list[np.ndarray], log_q: list[np.ndarray], other: list[np.ndarray]) -> float:
    """By how much the three-point inequality of mirror descent fails for q against ``other``."""
    costs = [instance.step_size * table for table in instance.loss]
    gained = divergence(other, instance.log_q) - divergence(other, log_q) - divergence(q, instance.log_q)
    return inner(q, costs) - inner(other, costs) - gained


@pytest.mark.parametrize("family", ["ellipsoid", "simplex", "box", "known"])
def test_a_step_costs_mirror_descent_no_more_than_its_certificate_says(family):
    rng = np.random.default_rng(3)
    for seed in range(4):
        instance = ordinary(family, seed)
        step = solved(instance, tolerance=1e-4)
        allowed = step.gap + 2 * instance.confidence_set.horizon * step.residual + ROUNDING
        for other in comparators(instance, rng):
            assert shortfall(instance, step.q, step.log_q, other) <= allowed, instance.name


@pytest.mark.parametrize("family", ["ellipsoid", "box"])
def test_an_answer_that_is_not_the_minimiser_costs_more_than_a_certificate_would_allow(family):
    """The control: a step a hundredth too long, passed off as the answer, with the certificate of the true one."""
    rng = np.random.default_rng(3)
    worst = 0.0
    for seed in range(4):
        instance = ordinary(family, seed)
        step = solved(instance)
        wrong = solved(replace(instance, step_size=1.01 * instance.step_size))
        allowed = step.gap + 2 * instance.confidence_set.horizon * step.residual
        for other in comparators(instance, rng):
            worst = max(worst, shortfall(instance, wrong.q, wrong.log_q, other) / allowed)
    assert worst > 10.0


@pytest.mark.parametrize("family", ["ellipsoid", "simplex", "box", "known"])
def test_the_gap_bounds_the_distance_from_the_minimiser_in_every_layer(family):
    for seed in range(4):
        instance = ordinary(family, seed)
        rough, sharp = solved(instance, tolerance=1e-4), solved(instance, tolerance=1e-10)
        squares = sum(float(np.abs(a - b).sum()) ** 2 for a, b in zip(rough.q, sharp.q, strict=True))
        # The sharper answer is itself within sqrt(2e-10) of the minimiser, in the norm of the left side.
        assert np.sqrt(squares) <= np.sqrt(2 * rough.gap) + np.sqrt(2e-10), instance.name


def test_a_known_kernel_leaves_the_comparator_equality_but_for_rounding():
    """With one kernel every row bound is exact, and the inequality of the page becomes an identity."""
    instance = ordinary("known", 0)
    assert isinstance(instance.confidence_set, KnownKernels)
    step = solved(instance)
    rng = np.random.default_rng(0)
    policy = random_policy(instance.confidence_set.layer_sizes, instance.confidence_set.n_actions, rng)
    other = occupancy_measure(instance.confidence_set.kernels, policy)
    assert abs(shortfall(instance, step.q, step.log_q, other)) <= 1e-8
