"""vlsuob-reps-tight with the conditional entropy: steps against a conic solver, and a start that is left alone."""

from __future__ import annotations

import numpy as np
import pytest

from advmdp import (
    Episode,
    InvalidEpisodeError,
    constants,
    load_learner,
    make_adversary,
    make_learner,
    make_world,
    occupancy,
    play,
)
from advmdp.confidence import BoxSet, EllipsoidSet
from advmdp.solvers import upper_occupancy
from tests.solvers import reference

WORLD = make_world("random-mixture", layer_sizes=(1, 3, 4, 1), n_actions=3, dim=2)
SHARED = make_world("grid", height=3, width=3)
LOSSES = make_adversary("stochastic", WORLD, 50)
NO_LOSS = [np.zeros((n, 3)) for n in WORLD.layer_sizes[:-1]]


def conditional(world=WORLD, **options):
    return make_learner("vlsuob-reps-tight", world, 50, entropy="conditional", **options)


def episode_of(learner, k, losses=LOSSES, world=WORLD):
    return play(world, learner.policy, losses.losses(k), np.random.default_rng(k), index=k)


def played(episodes, **options):
    learner = conditional(**options)
    for k in range(episodes):
        learner.update(episode_of(learner, k))
    return learner


def random_start(seed=0):
    return occupancy.random_policy(WORLD.layer_sizes, WORLD.n_actions, np.random.default_rng(seed))


@pytest.mark.parametrize("geometry", ["ellipsoid", "box"])
def test_each_step_is_that_of_a_conic_solver_over_the_set_that_was_played_with(geometry):
    learner = conditional(geometry=geometry, eta=0.7, radius_scale=0.2)
    for k in range(6):
        policy, played_with = learner.policy, learner.confidence_set
        told = episode_of(learner, k)
        estimate = [np.zeros_like(table) for table in policy]
        for h, (s, a) in enumerate(zip(told.states, told.actions, strict=True)):
            u = policy[h][s, a] * upper_occupancy(played_with, policy, [(h, s)])[0]
            estimate[h][s, a] = told.losses[h] / (u + learner.exploration)
        learner.update(told)
        for ours, theirs in zip(learner.loss_estimate, estimate, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)
        assert learner.last_step.confidence_set is played_with
        assert learner.confidence_set is not played_with
        conic = reference.mirror_step(played_with, policy, estimate, 0.7, conditional=True)
        assert learner.last_step.value == pytest.approx(conic.value, abs=1e-5)
        for ours, theirs in zip(learner.policy, conic.q, strict=True):
            reached = theirs.sum(axis=1) > 1e-3
            expected = theirs[reached] / theirs[reached].sum(axis=1, keepdims=True)
            np.testing.assert_allclose(ours[reached], expected, atol=2e-3)
    assert isinstance(played_with, EllipsoidSet if geometry == "ellipsoid" else BoxSet)


def test_another_set_gives_another_step():
    """The control: over the set after the episode the step is a different one."""
    learner = played(5, eta=0.7, radius_scale=0.2)
    policy = learner.policy
    learner.update(episode_of(learner, 5))
    other = reference.mirror_step(learner.confidence_set, policy, learner.loss_estimate, 0.7, conditional=True)
    assert abs(other.value - learner.last_step.value) > 1e-4


@pytest.mark.parametrize("options", [{}, {"geometry": "box"}, {"eta": 5.0}], ids=["ellipsoid", "box", "large step"])
def test_zero_losses_leave_any_start_where_it_is(options):
    start = random_start()
    learner = conditional(start=start, **options)
    for ours, theirs in zip(learner.policy, start, strict=True):
        np.testing.assert_array_equal(ours, theirs)  # the first policy is the start
    for k in range(40):
        learner.update(play(WORLD, learner.policy, NO_LOSS, np.random.default_rng(k), index=k))
        for ours, theirs in zip(learner.policy, start, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=1e-12)


def test_logs_leave_the_policy_where_it_is():
    learner = played(6)
    before = learner.flat_policy.copy()
    learner.observe_transitions([[0, 1, 2], [0, 2, 0]], [[0, 1, 2], [2, 2, 1]])
    np.testing.assert_allclose(learner.flat_policy, before, rtol=0.0, atol=1e-14)


def test_without_a_start_it_begins_with_the_uniform_policy():
    learner = conditional()
    for table in learner.policy:
        np.testing.assert_allclose(table, 1.0 / 3.0, rtol=1e-15)


@pytest.mark.parametrize(("layer", "state", "action"), [(0, 0, 2), (1, 2, 0), (2, 3, 1)])
def test_a_start_that_rules_an_action_out_gets_a_tenth_of_the_uniform_policy(layer, state, action):
    start = random_start()
    start[layer][state, action] = 0.0
    start[layer][state] /= start[layer][state].sum()
    for ours, given in zip(conditional(start=start).policy, start, strict=True):
        np.testing.assert_allclose(ours, 0.9 * given + 0.1 / 3.0, rtol=1e-12)


def test_its_constants_are_those_of_the_theorem_for_policies():
    learner, layers = conditional(), WORLD.layers
    n, S, A, H, K = layers.n_pairs, layers.n_states, layers.n_actions, layers.horizon, 50
    assert learner.step_size == pytest.approx(np.sqrt(2.0 * np.log(A) / (n * K)))
    assert learner.exploration == pytest.approx(np.sqrt(H * np.log(S * A / 0.05) / (2.0 * n * K)))
    assert learner.exploration == constants.conditional_exploration(n, S, A, H, K, 0.05)


@pytest.mark.parametrize("options", [{}, {"start": random_start(3)}, {"geometry": "box"}], ids=["", "start", "box"])
def test_it_survives_a_file(options, tmp_path):
    learner = played(6, **options)
    learner.save(tmp_path / "learner.npz")
    again = load_learner(tmp_path / "learner.npz")
    np.testing.assert_array_equal(again.flat_policy, learner.flat_policy)
    for k in range(6, 12):
        told = episode_of(learner, k)
        for one in (learner, again):
            one.update(told)
        np.testing.assert_array_equal(again.flat_policy, learner.flat_policy)
        assert again.certificate == learner.certificate == 0.0


def test_its_occupancy_is_that_of_its_policy_under_a_kernel_of_the_set():
    learner = played(8)
    step = learner._step
    found = step.occupancy(learner._now.state.step, learner.confidence_set)
    for q, policy in zip(learner._layers.split(found), learner.policy, strict=True):
        assert q.sum() == pytest.approx(1.0, abs=1e-12)
        mass = q.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(q, mass * policy, atol=1e-12)
    upper = upper_occupancy(learner.confidence_set, learner.policy)
    for q, u in zip(learner.q, upper, strict=True):
        assert (q.sum(axis=1) <= u + 1e-9).all()


def test_shared_weights_go_with_it():
    losses = make_adversary("stochastic", SHARED, 50)
    learner, apart = conditional(SHARED, shared=True), conditional(SHARED)
    for k in range(12):
        for one in (learner, apart):
            one.update(episode_of(one, k, losses, SHARED))
    assert len(learner.radii) == 1
    assert learner.misspecification().shared
    assert not apart.misspecification().shared


@pytest.mark.parametrize(("entropy", "geometry"), [("pairs", "ellipsoid"), ("pairs", "box"), ("triples", "box")])
def test_other_entropies_step_over_the_set_of_the_next_episode(entropy, geometry):
    """What the conditional step has brought does not concern them."""
    learner = make_learner("vlsuob-reps-tight", WORLD, 50, entropy=entropy, geometry=geometry)
    for k in range(4):
        learner.update(episode_of(learner, k))
    q, kernels = learner.q, learner._now.state.step.kernels
    learner.update(episode_of(learner, 4))
    assert not learner._step.over_played_set
    step = reference.mirror_step(learner.confidence_set, q, learner.loss_estimate, learner.step_size, kernels=kernels)
    for ours, theirs in zip(learner.q, step.q, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_a_loss_that_never_comes_counts_as_unseen():
    learner = played(4)
    told = episode_of(learner, 4)
    learner.update(Episode(told.states, told.actions, [np.nan] * 3, index=4))
    assert not any(table.any() for table in learner.loss_estimate)
    with pytest.raises(InvalidEpisodeError, match="waits for no losses"):
        learner.tell(4, told.losses)
