"""Plans for several tables at once: greedy ones against the exact planner, soft ones against their optimality."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advmdp import InvalidSpecError, LayeredMDP, occupancy
from advmdp.learners.parts.planning import Learning, PlugInLearners, mixed_occupancy, plans
from tests.strategies import generators, tiny_worlds


@given(tiny_worlds(), generators())
def test_greedy_plans_are_best(world, rng):
    tables = rng.random((3, world.layers.n_pairs))
    tables[0] = 0.0
    policies = plans(world.layers, world.rows, tables, np.full(3, np.inf))
    np.testing.assert_allclose(policies[0], 1.0 / world.n_actions)  # ties are shared
    for table, policy in zip(tables, policies, strict=True):
        split = world.layers.split
        _, best = occupancy.best_policy(world, split(table))
        assert occupancy.expected_loss(world, split(policy), split(table)) == pytest.approx(best, abs=1e-8)


@given(tiny_worlds(), generators(), st.floats(0.01, 100.0))
def test_soft_plans_minimise_loss_and_entropy(world, rng, rate):
    """<q, l> + (1 / eta) sum q ln(A pi), against other policies."""
    layers = world.layers
    table = rng.standard_normal(layers.n_pairs)
    policy = plans(layers, world.rows, table[None], np.array([rate]))[0]
    others = [layers.flatten(occupancy.random_policy(world.layer_sizes, world.n_actions, rng)) for _ in range(20)]
    near = [0.99 * policy + 0.01 * other for other in others]
    everyone = np.array([policy, *others, *near])
    q = np.array([mixed_occupancy(layers, world.rows, each[None], np.ones(1)) for each in everyone])
    with np.errstate(divide="ignore", invalid="ignore"):
        divergence = np.where(q > 0.0, q * np.log(world.n_actions * everyone), 0.0).sum(axis=1)
    values = q @ table + divergence / rate
    assert values.min() >= values[0] - 1e-9 * (1.0 + np.abs(values).max())


@given(tiny_worlds(), generators())
def test_the_occupancy_of_a_draw_is_the_mixture(world, rng):
    policies = [occupancy.random_policy(world.layer_sizes, world.n_actions, rng) for _ in range(3)]
    weights = rng.dirichlet(np.ones(3))
    flat = world.layers.flatten
    q = mixed_occupancy(world.layers, world.rows, np.array([flat(policy) for policy in policies]), weights)
    expected = sum(w * flat(occupancy.occupancy_measure(world, p)) for w, p in zip(weights, policies, strict=True))
    np.testing.assert_allclose(q, expected, atol=1e-15)


def test_totals_follow_their_formula():
    rng = np.random.default_rng(0)
    layers = LayeredMDP([np.full((1, 2, 2), 0.5), np.ones((2, 2, 1))]).layers
    rules = (Learning(3.0), Learning(10.0, fading=0.1))
    learners = PlugInLearners.empty(layers, rules)
    totals = np.zeros((2, layers.n_pairs))
    for k in range(1, 30):
        unit = np.sqrt(np.log(2) / (layers.n_pairs * k))
        np.testing.assert_allclose(learners.rates, np.array([3.0, 10.0]) * np.sqrt(2) * unit)
        pairs, losses = np.array([rng.integers(2), 2 + rng.integers(4)]), rng.random(2)
        losses[rng.random(2) < 0.2] = np.nan
        predicted, q = rng.random((2, layers.n_pairs)), rng.random(layers.n_pairs)
        learners = learners.add(pairs, losses, predicted, q)
        for i, rule in enumerate(rules):
            estimate = predicted[i].copy()
            for pair, loss in zip(pairs, losses, strict=True):
                if not np.isnan(loss):
                    estimate[pair] += (loss - predicted[i, pair]) / (q[pair] + unit)
            totals[i] = (1.0 - rule.fading) * totals[i] + estimate
        np.testing.assert_allclose(learners.totals, totals, rtol=1e-12)
    again = PlugInLearners.empty(layers, rules).from_tree(learners.tree())
    np.testing.assert_array_equal(again.totals, learners.totals)
    assert again.episodes == learners.episodes
    with pytest.raises(ValueError, match="totals"):
        PlugInLearners.empty(layers, rules).from_tree({**learners.tree(), "totals": totals * np.nan})


def test_one_action_leaves_nothing_to_learn():
    layers = LayeredMDP([np.full((1, 1, 2), 0.5), np.ones((2, 1, 1))]).layers
    learners = PlugInLearners.empty(layers, (Learning(3.0),))
    assert learners.rates[0] > 0.0
    learners = learners.add(np.array([0, 1]), np.array([1.0, 1.0]), np.zeros((1, 3)), np.zeros(3))
    assert np.isfinite(learners.totals).all()


@pytest.mark.parametrize("wrong", [{"multiple": 0.0}, {"multiple": 1.0, "fading": 1.0}])
def test_senseless_rules_are_refused(wrong):
    with pytest.raises(InvalidSpecError):
        Learning(**wrong)
