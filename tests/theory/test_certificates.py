"""docs/certificates.md: what the gap and the residual of a mirror step prove, held against steps of every kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from advmdp._compiled import kernel
from advmdp.confidence import BoxSet, KnownKernels
from advmdp.layered import LayeredMDP, Layers
from advmdp.learners.parts.steps import Descent, KnownDescent, mixability_gap, price_of_pairs, price_of_triples
from advmdp.occupancy import occupancy_measure, random_policy
from advmdp.solvers import MirrorStep, SolverError, mirror_descent_step
from advmdp.solvers.certificate import certify_rolled
from advmdp.solvers.known import FlatStep
from advmdp.solvers.layout import make_layout
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


def test_steps_by_a_share_of_their_losses_cost_no_more_than_is_counted():
    """Known kernels, exact steps, and a solver that refuses some, so that shares of losses are left to later steps."""
    tightest = 0.0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        mdp = LayeredMDP([rng.dirichlet(np.ones(2), (1, 3)), np.ones((2, 3, 1))])
        truth, eta = KnownKernels(mdp.kernels), 10.0 ** rng.uniform(-2.0, 0.0)
        step, offsets = KnownDescent(mdp, truth, lambda k, eta=eta: eta), mdp.layers.pair_offsets
        refusals = []

        def refusing(log_q, cost, solve=step._step, refusals=refusals):
            if refusals:
                refusals.pop()
                raise SolverError("refused", np.inf, np.inf, {})
            return solve(log_q, cost)

        state = step.start()
        step._step = refusing
        first, counted, stable, losses, played = state.log_q, 0.0, 0.0, np.zeros(mdp.layers.n_pairs), 0.0
        for k in range(40):
            refusals[:] = [None] * int(rng.choice([0, 1, 2, 4] if seed % 3 else [4]))
            cost = rng.random(mdp.layers.n_pairs) * (np.arange(mdp.layers.n_pairs) % 3 > 0)
            q = np.exp(state.log_q)
            played, losses = played + float(q @ cost), losses + cost
            stable += mixability_gap(q, cost, eta, offsets)
            state = step.advance(state, truth, cost, k)
            counted += state.gap
        for actions in np.ndindex(3, 3, 3):
            policy = [np.eye(3)[[actions[0]]], np.eye(3)[list(actions[1:])]]
            other = np.concatenate(occupancy_measure(mdp.kernels, policy), axis=None)
            distance = divergence([other], [first])
            regret = played - float(other @ losses)
            assert regret <= distance / eta + stable + counted / eta + 1e-9
            tightest = max(tightest, regret / (distance / eta + stable))
    assert tightest > 1.0  # without what is counted it would not have been a bound


def test_the_price_of_a_step_over_triples_is_what_the_worst_comparator_shows():
    """As above, by linear programmes for the rows; and over known kernels by the step over pairs."""
    for family, seed in (("box", 1), ("box", 3), ("box", 7), ("known", 3)):
        instance = ordinary(family, seed)
        confidence_set, size = instance.confidence_set, instance.step_size
        options = {"log_q": instance.log_q, "entropy": "triples", "kernels": instance.kernels}
        wrong = mirror_descent_step(confidence_set, None, instance.loss, 1.01 * size, **options)
        layers = Layers(confidence_set.layer_sizes, confidence_set.n_actions)
        costs, log_prior = (np.concatenate(tables, axis=None) for tables in (instance.loss, instance.log_q))
        price = price_of_triples(confidence_set, layers, log_prior, instance.kernels, wrong, size * costs)
        value, following = 0.0, np.zeros(1)
        for h in range(layers.horizon - 1, -1, -1):
            slopes = size * instance.loss[h] + wrong.log_q[h] - instance.log_q[h]
            ratios = np.log(np.maximum(wrong.kernels[h], 1e-300) / np.maximum(instance.kernels[h], 1e-300))
            value += float((wrong.q[h] * (slopes + (wrong.kernels[h] * ratios).sum(axis=2))).sum())
            least = np.empty_like(slopes)
            for s, a in np.ndindex(least.shape):
                if family == "known" or h == layers.horizon - 1:
                    least[s, a] = wrong.kernels[h][s, a] @ (following + ratios[s, a])
                else:
                    bounds = list(zip(confidence_set.lower[h][s, a], confidence_set.upper[h][s, a], strict=True))
                    least[s, a] = linprog(
                        following + ratios[s, a], A_eq=np.ones((1, len(bounds))), b_eq=[1.0], bounds=bounds
                    ).fun
            following = (slopes + least).min(axis=1)
        assert price == pytest.approx(value - following[0], abs=1e-9), instance.name
        assert price > 0.0
        if family == "known":
            raised = size * costs + np.concatenate(
                [
                    (rows * np.log(rows / other)).sum(axis=2).ravel()
                    for rows, other in zip(wrong.kernels, instance.kernels, strict=True)
                ]
            )
            assert price == pytest.approx(price_of_pairs(confidence_set, layers, log_prior, wrong, raised), abs=1e-9)


def test_an_empty_row_that_nothing_leads_to_does_not_spoil_the_price():
    low = [np.array([[[0.2, 0.3, 0.0]]]), np.array([[[0.1, 0.1]], [[0.1, 0.1]], [[0.6, 0.6]]]), np.ones((2, 1, 1))]
    high = [np.array([[[0.7, 0.8, 0.0]]]), np.array([[[0.9, 0.9]], [[0.9, 0.9]], [[0.7, 0.7]]]), np.ones((2, 1, 1))]
    confidence_set, layers, cost = BoxSet(low, high), Layers((1, 3, 2, 1), 1), np.arange(6.0) / 6.0
    log_q = np.concatenate([np.full(n, -np.log(n)) for n in (1, 3, 2)])
    step = mirror_descent_step(confidence_set, None, cost, 1.0, log_q=log_q)
    assert price_of_pairs(confidence_set, layers, log_q, step, cost) <= 1e-6


@kernel
def rolled_gap(layout, log_prior, cost, prices, bound, kernels, rounding, work, log_q, q, mass, blur):
    return certify_rolled(layout, log_prior, cost, prices, bound, False, kernels, rounding, work, log_q, q, mass, blur)[
        1
    ]


def test_dual_mass_where_the_kernels_do_not_lead_is_part_of_the_gap():
    layout = make_layout((1, 2, 1), 1, [0], [0])
    log_prior, cost, log_q = np.log([1.0, 0.5, 0.5]), np.array([0.0, 0.0, 1.0]), np.log([1.0, 0.7, 0.3])
    prices = np.array([np.log(2.0), np.log(2.0), np.log(0.6) + 1.0, 0.0])  # the dual has mass 1 and 0.3 in the layer
    bound, q = np.array([prices[1], 0.0, 0.0]), np.zeros(3)
    work = [np.zeros(2), np.zeros((4, 2)), log_q, q, np.zeros(4), np.zeros(4)]
    gap = rolled_gap(layout, log_prior, cost, prices, bound, np.array([1.0, 0.0]), *work)
    prior = np.exp(log_prior)
    primal = sum(x * (np.log(x / p) + c) - x + p if x > 0.0 else p for x, p, c in zip(q, prior, cost, strict=True))
    dual = prices[0] + prior.sum() - (prior * np.exp(prices[:3] - cost - bound)).sum()
    assert gap == pytest.approx(primal - dual)
    assert gap > 0.2
