"""docs/certificates.md: what the gap and the residual of a mirror step prove, held against steps of every kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advmdp.confidence import KnownKernels
from advmdp.layered import LayeredMDP, Layers
from advmdp.learners.parts.steps import Descent, KnownDescent, price_of_pairs
from advmdp.occupancy import occupancy_measure, random_policy
from advmdp.solvers import MirrorStep, SolverError, mirror_descent_step
from advmdp.solvers.repeated import FlatStep
from tests.solvers import reference
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


def rough_step(instance: Instance, rng: np.random.Generator) -> FlatStep:
    """Under known kernels, the answer with its policy off by 1e-4 in the logarithm, and the certificate of that."""
    kernels, step = instance.confidence_set.kernels, solved(instance)
    policy = [np.exp(table + 1e-4 * rng.uniform(-1.0, 1.0, table.shape)) for table in step.log_q]
    q = occupancy_measure(kernels, [table / table.sum(axis=1, keepdims=True) for table in policy])
    prices, off = np.zeros(1), []
    for h in range(len(q) - 1, -1, -1):
        above = np.log(q[h]) - instance.log_q[h] + instance.step_size * instance.loss[h] + kernels[h] @ prices
        prices = above.mean(axis=1)
        off.append(above - prices[:, None])
    gap = inner(q, [np.expm1(-table) + table for table in off[::-1]])
    log_q = np.log(np.concatenate(q, axis=None))
    return FlatStep(log_q, np.exp(log_q), 0.0, gap, max(np.abs(table).max() for table in off), 1, "rough")


def test_what_a_learner_counts_of_a_step_that_misses_the_tolerance_is_what_it_can_cost():
    rng, beyond_the_gap = np.random.default_rng(0), 0.0
    reachable = [
        each for each in (ordinary("known", seed) for seed in range(9)) if min(map(np.min, solved(each).q)) > 0
    ]
    for instance in reachable[:4]:
        confidence_set, rough = instance.confidence_set, rough_step(instance, rng)
        layers = Layers(confidence_set.layer_sizes, confidence_set.n_actions)
        losses, log_q = (np.concatenate(tables, axis=None) for tables in (instance.loss, instance.log_q))

        def solve(losses, rough=rough):
            raise SolverError("the residual is above 1e-6", rough.gap, rough.residual, {}, rough)

        step = KnownDescent(LayeredMDP(confidence_set.kernels), confidence_set, lambda k, eta=instance.step_size: eta)
        step._step = lambda log_q, cost: solve(cost)
        after = step.advance(Descent(log_q, np.exp(log_q)), confidence_set, losses, 0)
        assert (after.last, after.missed, after.rest) == (rough, True, None)
        q = layers.split(np.exp(rough.log_q))
        worst = max(shortfall(instance, q, layers.split(rough.log_q), each) for each in comparators(instance, rng))
        assert worst <= after.gap <= rough.gap + 2 * layers.horizon * rough.residual
        beyond_the_gap = max(beyond_the_gap, worst / rough.gap)
    assert beyond_the_gap > 10.0  # the gap alone would not have covered it


@pytest.mark.parametrize("family", ["ellipsoid", "simplex", "box", "known"])
def test_the_price_of_a_step_is_what_the_worst_comparator_shows(family):
    """A step that is a hundredth too long, priced with no look at the solver's certificate."""
    rng = np.random.default_rng(3)
    for seed in range(2):
        instance = ordinary(family, seed)
        wrong = solved(replace(instance, step_size=1.01 * instance.step_size))
        layers = Layers(instance.confidence_set.layer_sizes, instance.confidence_set.n_actions)
        costs, log_prior = (np.concatenate(tables, axis=None) for tables in (instance.loss, instance.log_q))
        price = price_of_pairs(instance.confidence_set, layers, log_prior, wrong, instance.step_size * costs)
        worst = max(shortfall(instance, wrong.q, wrong.log_q, other) for other in comparators(instance, rng))
        assert worst <= price + ROUNDING, instance.name
        expected, following = 0.0, np.zeros(1)
        for h in range(layers.horizon - 1, -1, -1):
            log_q = np.where(wrong.q[h] > 0.0, wrong.log_q[h], 0.0)  # out of reach of all comparators, if zero
            slopes = instance.step_size * instance.loss[h] + log_q - instance.log_q[h]
            if h < layers.horizon - 1:
                ahead = reference.extreme_rows(instance.confidence_set, h, following, maximise=False)
            following = (slopes + (ahead if h < layers.horizon - 1 else 0.0)).min(axis=1)
            expected += float((wrong.q[h] * slopes).sum())
        assert price == pytest.approx(expected - following[0], abs=1e-6), instance.name
