"""Episodes that overlap, or that somebody else played: losses are weighed by the policy that was in force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from advmdp import Episode, InvalidEpisodeError, load_learner, make_adversary, make_learner, make_world, occupancy, play
from advmdp.learners.parts.experts import ExpertWeights
from advmdp.registry import learners
from advmdp.solvers import upper_occupancy
from tests.strategies import suited

WORLD = make_world("random-mixture", layer_sizes=(1, 3, 4, 1), n_actions=3, dim=2)
LOSSES = make_adversary("stochastic", WORLD, 50)
PARTIAL = [name for name in learners.names() if learners.get(name).partial]


def bandit(learner, k, policy=None):
    told = play(WORLD, learner.policy if policy is None else policy, LOSSES.losses(k), np.random.default_rng(k))
    return Episode(told.states, told.actions, told.losses)


def played(name, episodes, **options):
    learner = make_learner(name, suited(name, WORLD), 50, **options)
    for k in range(episodes):
        learner.update(bandit(learner, k))
    return learner


def flat_state(learner):
    return np.concatenate([np.ravel(table) for table in learner.policy])


@pytest.mark.parametrize("name", PARTIAL)
def test_the_current_moment_changes_no_bit(name):
    one, other = played(name, 4), played(name, 4)
    for k in range(4, 7):
        one.update(bandit(one, k))
        other.update(bandit(other, k), played=other.moment)
    assert np.array_equal(flat_state(one), flat_state(other))


@pytest.mark.parametrize("name", ["vlsuob-reps", "vlsuob-reps-tight", "lsuob-reps", "uob-reps"])
def test_losses_are_weighed_by_the_policy_of_the_beginning(name):
    learner = played(name, 5)
    began, policy, before = learner.moment, learner.policy, learner.confidence_set
    open_one = bandit(learner, 99)
    for k in range(5, 8):
        learner.update(bandit(learner, k))
    assert not np.array_equal(flat_state(learner), began.policy)
    learner.update(open_one, played=began)
    for h, (s, a, loss) in enumerate(zip(open_one.states, open_one.actions, open_one.losses, strict=True)):
        u = policy[h][s, a] * upper_occupancy(before, policy, [(h, s)])[0]
        assert learner.loss_estimate[h][s, a] == pytest.approx(loss / (u + learner.exploration), rel=1e-9)


@pytest.mark.parametrize("name", PARTIAL)
def test_what_overlaps_survives_a_file_and_late_losses(name, tmp_path):
    """An episode of an earlier moment whose losses come right after it: as if they had come with it."""
    learner, straight = played(name, 4), played(name, 4)
    tree, episode = learner.moment_tree(learner.moment), bandit(learner, 99)
    began, their = learner.moment_from_tree(tree), straight.moment
    for k in range(4, 6):
        learner.update(bandit(learner, k))
        straight.update(bandit(straight, k))
    straight.update(episode, played=their)
    learner.update(Episode(episode.states, episode.actions, None), played=began)
    learner.save(tmp_path / "learner.npz")
    learner = load_learner(tmp_path / "learner.npz")
    learner.tell(6, episode.losses)
    assert np.array_equal(flat_state(learner), flat_state(straight))


def trajectories(kernels, horizon, n_actions):
    for states in itertools.product(*(range(len(kernel)) for kernel in kernels)):
        for actions in itertools.product(range(n_actions), repeat=horizon):
            steps = zip(kernels[:-1], states, actions, states[1:], strict=False)
            yield np.array(states), np.array(actions), float(np.prod([k[s, a, t] for k, s, a, t in steps]))


def test_estimates_of_experts_have_no_bias_whenever_the_episode_began():
    rng = np.random.default_rng(5)
    world = make_world("random-mixture", layer_sizes=(1, 2, 2, 1), n_actions=2, dim=2)
    layers = world.layers
    policies = np.array([rng.dirichlet(np.ones(2), size=layers.n_pairs // 2).ravel() for _ in range(3)])
    losses = rng.random(layers.n_pairs)
    began = ExpertWeights.empty(3, layers.horizon)
    for _ in range(6):
        began = began.add(rng.random((3, 3)) * 3.0, rng.random(3))
    now = began
    for _ in range(6):
        now = now.add(rng.random((3, 3)) * 3.0, rng.random(3))
    assert np.abs(now.weights - began.weights).max() > 1e-3
    expected = np.zeros(3)
    for states, actions, chance in trajectories(world.kernels, layers.horizon, 2):
        pairs = layers.pair_offsets[:-1] + states * 2 + actions
        took = policies[:, pairs]
        rho = began.posterior(took)
        x = now.add(rho, losses[pairs], began).totals - now.totals
        expected += chance * float(began.weights @ took.prod(axis=1)) * x
    for i, policy in enumerate(policies):
        exact = occupancy.expected_loss(world, layers.split(policy), layers.split(losses))
        assert expected[i] == pytest.approx((1.0 - now.premium) * exact, rel=1e-9)


def test_experts_that_were_hardly_played_then_cannot_upset_the_weights_of_now():
    then = ExpertWeights.empty(4, 3, base=None)
    for _ in range(3000):  # two experts become rarities
        then = then.add(np.array([[1.0, 1.0, 1.3, 1.3]] * 3), np.full(3, 0.9))
    now = then
    for _ in range(6000):  # and the favourites
        now = now.add(np.array([[1.1, 1.1, 0.5, 0.4999]] * 3), np.full(3, 0.9))
    rho = np.zeros((3, 4))
    rho[:, 2:] = np.array([0.8, 0.2]) / then.weights[2:]  # they alone can have played this
    assert then.weights[2:].max() < 0.01
    assert now.weights[2:].min() > 0.1
    after = now.add(rho, np.zeros(3), then)
    assert np.isfinite(after.scale)
    assert after.shares.sum() == pytest.approx(1.0)
    assert now.add(rho, np.zeros(3)).scale == np.inf  # control: with the weights of now alone


def test_learners_that_need_all_losses_refuse_an_earlier_moment():
    learner = make_learner("dilated-bonus", WORLD, 50)
    began = learner.moment
    learner.update(bandit(learner, 0))
    before = flat_state(learner)
    with pytest.raises(InvalidEpisodeError, match="'dilated-bonus' has changed since the episode began"):
        learner.update(bandit(learner, 1), played=began)
    with pytest.raises(InvalidEpisodeError, match="should be the moment at which the episode began"):
        learner.update(bandit(learner, 1), played="yesterday")
    assert np.array_equal(flat_state(learner), before)
    assert learner.episodes_seen == 1


def test_what_others_played_teaches_planners_its_losses_and_nobody_a_weight():
    uniform = occupancy.uniform_policy(WORLD.layer_sizes, WORLD.n_actions)
    planner, same = played("planner", 3), played("planner", 3)
    episode = bandit(planner, 9, uniform)
    planner.observe(episode)
    same.update(episode)
    assert np.array_equal(planner.predicted_losses[1], same.predicted_losses[1])
    assert np.array_equal(planner.mixture_weights, same.mixture_weights)
    assert planner.episodes_seen == 3
    portfolio = played("portfolio", 3)
    weights, totals = portfolio.weights, portfolio.moment.learners.totals
    portfolio.observe(episode)
    assert np.array_equal(portfolio.weights, weights)
    assert np.array_equal(portfolio.moment.learners.totals, totals)
    assert portfolio.moment.predictions.visits.sum() == 12
    reps = played("vlsuob-reps-tight", 3)
    estimate = [table.copy() for table in reps.loss_estimate]
    reps.observe(episode)
    assert all(np.array_equal(a, b) for a, b in zip(estimate, reps.loss_estimate, strict=True))
    assert reps.misspecification().episodes == 4
    make_learner("uniform", WORLD).observe(episode)  # no use for it, and no error


def test_losses_that_others_saw_late_count_as_if_in_time():
    late, in_time = played("planner", 3), played("planner", 3)
    episode = bandit(late, 9)
    in_time.observe(episode)
    late.observe(Episode(episode.states, episode.actions, None))
    late.observe_losses(episode)
    assert np.array_equal(late.predicted_losses[1], in_time.predicted_losses[1])
