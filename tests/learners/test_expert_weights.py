"""The meta step: estimates without bias, by enumeration of all trajectories, and the inequality of its proof."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from advmdp import InvalidEpisodeError, InvalidSpecError, LayeredMDP, occupancy
from advmdp.learners.parts.experts import ExpertWeights, instability, premium, tsallis
from tests.strategies import generators, tiny_worlds


def random_policies(world: LayeredMDP, count: int, rng: np.random.Generator) -> list[list[np.ndarray]]:
    """Some random, some deterministic, which are the hardest: their posteriors are zero or large."""
    policies = [occupancy.random_policy(world.layer_sizes, world.n_actions, rng) for _ in range(count)]
    for i in range(0, count, 2):
        policies[i] = [np.eye(world.n_actions)[table.argmax(axis=1)] for table in policies[i]]
    return policies


def trajectories(world: LayeredMDP):
    """Every sequence of states and actions, with what the kernels contribute to its probability."""
    sizes = world.layer_sizes[:-1]
    for states in itertools.product(*(range(n) for n in sizes)):
        for actions in itertools.product(range(world.n_actions), repeat=len(sizes)):
            chance = 1.0
            for h in range(len(sizes) - 1):
                chance *= world.kernels[h][states[h], actions[h], states[h + 1]]
            if chance > 0.0:
                yield states, actions, chance


def experienced(count: int, horizon: int, rng: np.random.Generator, episodes: int = 30) -> ExpertWeights:
    """Weights after some episodes whose estimates are far apart."""
    weights = ExpertWeights.empty(count, horizon)
    for _ in range(episodes):
        probabilities = rng.random((count, horizon)) * (rng.random((count, horizon)) < 0.8) + 1e-3
        weights = weights.add(weights.posterior(probabilities), rng.random(horizon))
    return weights


@given(tiny_worlds(), generators(), st.integers(2, 5))
def test_estimates_have_no_bias(world, rng, count):
    policies = random_policies(world, count, rng)
    losses = [rng.random((n, world.n_actions)) for n in world.layer_sizes[:-1]]
    weights = experienced(count, world.horizon, rng)
    w = weights.weights
    mean = np.zeros(count)
    for states, actions, chance in trajectories(world):
        steps = list(zip(range(world.horizon), states, actions, strict=True))
        probabilities = np.array([[policy[h][s, a] for h, s, a in steps] for policy in policies])
        likelihood = chance * (w @ probabilities.prod(axis=1))
        if likelihood == 0.0:
            continue
        rho = weights.posterior(probabilities)
        np.testing.assert_allclose(rho @ w, 1.0, rtol=1e-12)
        assert (rho <= (1.0 + 1e-12) / w).all()
        seen = np.array([losses[h][s, a] for h, s, a in steps])
        mean += likelihood * weights.estimates(rho, seen)
    expected = [occupancy.expected_loss(world, policy, losses) for policy in policies]
    np.testing.assert_allclose(mean, expected, atol=1e-12)


@given(tiny_worlds(), generators(), st.integers(2, 5))
def test_losses_of_all_actions_give_estimates_without_bias(world, rng, count):
    policies = random_policies(world, count, rng)
    losses = [rng.random((n, world.n_actions)) for n in world.layer_sizes[:-1]]
    weights = experienced(count, world.horizon, rng)
    w = weights.weights
    partly = rng.random(world.horizon) < 0.5  # in some steps only the loss of the action taken is seen
    mean = np.zeros(count)
    for states, actions, chance in trajectories(world):
        steps = list(zip(range(world.horizon), states, actions, strict=True))
        probabilities = np.array([[policy[h][s, a] for h, s, a in steps] for policy in policies])
        likelihood = chance * (w @ probabilities.prod(axis=1))
        if likelihood == 0.0:
            continue
        rho = weights.posterior(probabilities)
        seen = np.array([losses[h][s, a] for h, s, a in steps])
        each = np.array([[policy[h][s] @ losses[h][s] for policy in policies] for h, s, _ in steps])
        each[partly] = np.nan
        mean += likelihood * weights.estimates(rho, seen, each)
    expected = [occupancy.expected_loss(world, policy, losses) for policy in policies]
    np.testing.assert_allclose(mean, expected, atol=1e-12)


def test_weights_of_the_markov_mixture_would_be_biased():
    """The control: dividing by the action probabilities of the mixture's Markov policy is another estimate."""
    rng = np.random.default_rng(0)
    kernels = [np.array([[[0.9, 0.1], [0.1, 0.9]]]), np.full((2, 2, 2), 0.5), np.ones((2, 2, 1))]
    world = LayeredMDP(kernels)
    # One goes left and then plays 0, the other goes right and then plays 1: together they look undecided everywhere.
    policies = [[np.tile(np.eye(2)[i], (n, 1)) for n in world.layer_sizes[:-1]] for i in (0, 1)]
    losses = [rng.random((n, 2)) for n in world.layer_sizes[:-1]]
    mean, markov = np.zeros(2), np.zeros(2)
    weights = ExpertWeights.empty(2, 3, base=None)
    mixture = [sum(0.5 * policy[h] for policy in policies) for h in range(3)]
    for states, actions, chance in trajectories(world):
        steps = list(zip(range(3), states, actions, strict=True))
        probabilities = np.array([[policy[h][s, a] for h, s, a in steps] for policy in policies])
        likelihood = chance * 0.5 * probabilities.prod(axis=1).sum()
        if likelihood == 0.0:
            continue
        seen = np.array([losses[h][s, a] for h, s, a in steps])
        mean += likelihood * weights.estimates(weights.posterior(probabilities), seen)
        played = np.array([mixture[h][s, a] for h, s, a in steps])
        markov += likelihood * (np.cumprod(probabilities / played, axis=1) @ seen)
    expected = [occupancy.expected_loss(world, policy, losses) for policy in policies]
    np.testing.assert_allclose(mean, expected, atol=1e-12)
    assert np.abs(markov - expected).max() > 0.1


@given(generators(), st.integers(2, 9), st.integers(1, 6), st.booleans())
def test_no_path_loses_more_than_the_certificate(rng, count, horizon, hostile):
    """sum_k <v_k - e_i, x_k> <= 2 Delta_K - Delta_0 for every i, whatever the estimates are; and t >= -1/2."""
    weights = ExpertWeights.empty(count, horizon, base=int(rng.integers(count)))
    lost = np.zeros(count)
    for _ in range(60):
        probabilities = rng.random((count, horizon)) ** 3 * (rng.random((count, horizon)) < 0.7) + 1e-4
        rho = weights.posterior(probabilities)
        best = weights.shares.argmax()
        dear = rho[:, best] > 1.0
        losses = dear.astype(float) if hostile else rng.random(horizon)
        estimates = weights.estimates(rho, losses)
        x = (1.0 - weights.premium) * estimates
        assert (weights.step_size * np.sqrt(weights.shares) * x >= -0.5 - 1e-12).all()
        assert np.isfinite(instability(weights.shares, x, weights.step_size))
        lost += weights.shares @ x - x
        weights = weights.add(rho, losses)
        assert lost.max() <= weights.certificate + 1e-9
        np.testing.assert_allclose(weights.weights.sum(), 1.0, rtol=1e-12)


@given(generators(), st.integers(2, 30), st.floats(-6, 6), st.floats(-6, 6))
def test_shares_minimise_what_they_should(rng, count, log_eta, log_spread):
    eta, totals = 10.0**log_eta, rng.standard_normal(count) * 10.0**log_spread
    shares = tsallis(totals, eta)
    assert abs(shares.sum() - 1.0) < 1e-12
    assume(shares.min() > 1e-200)
    # Stationarity: X - v^(-1/2) / eta is the same for all.
    slopes = totals - shares**-0.5 / eta
    assert np.ptp(slopes) <= 1e-9 * (np.abs(totals).max() + shares.min() ** -0.5 / eta)


def test_the_instability_bounds_every_step():
    """sup over v' of <v - v', x> - D(v', v) / eta is at most the instability, by search over v'."""
    rng = np.random.default_rng(1)
    for _ in range(50):
        count = int(rng.integers(2, 6))
        shares, eta = rng.dirichlet(np.ones(count)), 10.0 ** rng.uniform(-2, 1)
        x = rng.uniform(-0.5, 4.0, size=count) / (eta * np.sqrt(shares))
        others = rng.dirichlet(np.full(count, 0.5), size=400)
        distance = (-2.0 * np.sqrt(others) + 2.0 * np.sqrt(shares) + (others - shares) / np.sqrt(shares)).sum(axis=1)
        gain = (shares - others) @ x - distance / eta
        assert gain.max() <= instability(shares, x, eta) + 1e-9


def test_a_missing_loss_counts_as_its_baseline():
    rng = np.random.default_rng(2)
    weights = experienced(3, 4, rng)
    rho = weights.posterior(rng.random((3, 4)))
    losses = rng.random(4)
    losses[2] = np.nan
    filled = np.where(np.isnan(losses), weights.baselines, losses)
    np.testing.assert_array_equal(weights.estimates(rho, losses), weights.estimates(rho, filled))
    after = weights.add(rho, losses)
    assert after.baselines[2] == weights.baselines[2]
    assert np.isfinite(after.weights).all()
    nothing = ExpertWeights.empty(2, 2).add(np.ones((2, 2)), np.full(2, np.nan))
    np.testing.assert_array_equal(nothing.shares, [0.5, 0.5])


def test_an_episode_that_no_expert_played_is_refused():
    weights = ExpertWeights.empty(2, 2)
    with pytest.raises(InvalidEpisodeError, match="layer 1: no expert"):
        weights.posterior(np.array([[1.0, 0.0], [0.0, 1.0]]))


def test_two_experts_are_needed():
    with pytest.raises(InvalidSpecError, match="number of experts"):
        ExpertWeights.empty(1, 3)
    with pytest.raises(InvalidSpecError, match="base is expert 2"):
        ExpertWeights.empty(2, 3, base=2)


def test_the_premium_is_the_base_s():
    weights = ExpertWeights.empty(4, 3, base=2)
    assert weights.premium == premium(1) == 0.25
    np.testing.assert_allclose(weights.weights, 0.75 / 4 + 0.25 * np.eye(4)[2])
    assert ExpertWeights.empty(4, 3, base=None).premium == 0.0
    assert weights.certificate == 3.0


def test_weights_survive_a_checkpoint():
    weights = experienced(4, 3, np.random.default_rng(3))
    again = ExpertWeights.empty(4, 3).from_tree(weights.tree())
    np.testing.assert_array_equal(again.weights, weights.weights)
    assert again.certificate == weights.certificate
    for name, wrong in (("scale", 1.0), ("totals", np.zeros(3)), ("baselines", np.full(3, 2.0)), ("episodes", -1)):
        with pytest.raises(ValueError, match=name):
            ExpertWeights.empty(4, 3).from_tree({**weights.tree(), name: wrong})
