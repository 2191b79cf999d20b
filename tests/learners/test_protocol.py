"""Feedback as people have it: missing and late losses, logs, a policy to start with, files of another version."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advmdp import (
    CorruptCheckpointError,
    Episode,
    InvalidEpisodeError,
    InvalidSpecError,
    Learner,
    load_learner,
    make_adversary,
    make_learner,
    make_world,
    occupancy,
    play,
    storage,
)
from advmdp.episodes import check_episode
from advmdp.learners.parts.steps import START_SHARE, mean_kernels
from advmdp.registry import learners
from advmdp.solvers import upper_occupancy
from tests.solvers import reference
from tests.strategies import suited

WORLD = make_world("random-mixture", layer_sizes=(1, 3, 4, 1), n_actions=3, dim=2)
LOSSES = make_adversary("stochastic", WORLD, 50)
NOT_WEIGHING = ("uniform", "planner", "portfolio", "vlsuob-reps-sharp")
#: Those whose estimate is a loss over a weight.
WEIGHING = [n for n in learners.names() if learners.get(n).partial and n not in NOT_WEIGHING]
REGRESSING = ["vlsuob-reps", "vlsuob-reps-tight", "lsuob-reps", "uob-reps"]


def episode_of(learner, k):
    return play(WORLD, learner.policy, LOSSES.losses(k), np.random.default_rng(k), index=k)


def played(name, episodes, **options):
    learner = make_learner(name, suited(name, WORLD), 50, **options)
    for k in range(episodes):
        learner.update(episode_of(learner, k))
    return learner


@pytest.mark.parametrize("name", REGRESSING)
def test_a_pair_whose_loss_is_nan_counts_as_unseen(name):
    """By hand: lhat = l / (u + gamma) where a loss was seen, zero elsewhere, and the step of a conic solver on it."""
    learner = played(name, 5)
    policy, before, q = learner.policy, learner.confidence_set, learner.q
    kernels = learner._now.state.step.kernels
    told = episode_of(learner, 5)
    losses = np.array([told.losses[0], np.nan, told.losses[2]])
    learner.update(Episode(told.states, told.actions, losses, index=5))
    expected = [np.zeros_like(table) for table in policy]
    for h in (0, 2):
        s, a = told.states[h], told.actions[h]
        u = upper_occupancy(before, policy, [(h, s)])[0]
        expected[h][s, a] = losses[h] / (policy[h][s, a] * u + learner.exploration)
    for ours, theirs in zip(learner.loss_estimate, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    step = reference.mirror_step(learner.confidence_set, q, expected, learner.step_size, kernels=kernels)
    for ours, theirs in zip(learner.q, step.q, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("name", WEIGHING)
def test_losses_after_the_next_update_enter_with_the_larger_weight(name):
    """lhat of episode 7 is its own estimate plus that of episode 5, divided by max(weight then, weight now)."""
    late, without = played(name, 5), played(name, 5)
    first = episode_of(late, 5)
    first = replace(first, losses=np.maximum(first.losses, 0.5))  # so that they say something
    then = late._weights(late._now.state, _checked(late, first))
    for learner in (late, without):
        learner.update(Episode(first.states, first.actions, None, index=5))
        learner.update(episode_of(learner, 6))
    late.tell(5, first.losses)
    now = late._weights(late._now.state, _checked(late, first))
    divisors = late._losses.divisors(np.maximum(then, now), _checked(late, first), 7)
    last = episode_of(late, 7)
    state = late._now.state
    estimate = late._losses(state, _checked(late, last)._replace(late=late._now.ledger.arrived), state.k)
    alone = late._losses(state, _checked(late, last), state.k)
    expected = alone.copy()
    pairs = _checked(late, first).pairs
    expected[pairs] += first.losses / divisors
    np.testing.assert_allclose(estimate, expected, rtol=1e-12)
    late.update(last)
    without.update(last)
    assert late._now.ledger.arrived == ()
    if name != "tsallis-reps-optimistic":  # whose epochs forget: one begins in every episode so far
        assert any((a != b).any() for a, b in zip(late.policy, without.policy, strict=True))


def _checked(learner, episode):
    return check_episode(Episode(episode.states, episode.actions, episode.losses), learner._layers)


def test_losses_may_come_one_by_one():
    once, pieces = played("vlsuob-reps-tight", 3), played("vlsuob-reps-tight", 3)
    told = episode_of(once, 3)
    once.update(told)
    a, b, c = told.losses.tolist()
    pieces.update(Episode(told.states, told.actions, [a, None, None], index=3))
    pieces.tell(3, [a, None, c])
    pieces.tell(3, [np.nan, b, np.nan])
    np.testing.assert_array_equal(once.flat_policy, pieces.flat_policy)
    with pytest.raises(InvalidEpisodeError, match="episode 3 waits for no losses; no episode does"):
        pieces.tell(3, [a, b, c])


def test_a_late_loss_that_contradicts_an_early_one_is_refused():
    learner = played("uob-reps", 2)
    told = episode_of(learner, 2)
    learner.update(Episode(told.states, told.actions, [0.25, None, 0.5], index=2))
    with pytest.raises(InvalidEpisodeError, match=r"layer 0, state 0, action \d: loss 0.75, but 0.25 was told before"):
        learner.tell(2, [0.75, 0.5, 0.5])
    with pytest.raises(InvalidEpisodeError, match="losses has 2 entries, should have 3"):
        learner.tell(2, [0.75, 0.5])
    learner.tell(2, [0.25, 0.5, 0.5])


def test_a_learner_that_needs_all_losses_says_so():
    learner = played("dilated-bonus", 2)
    told = episode_of(learner, 2)
    with pytest.raises(InvalidEpisodeError, match="learner 'dilated-bonus' needs the loss of every visited pair"):
        learner.update(Episode(told.states, told.actions, [0.5, np.nan, 0.5]))
    learner.update(Episode(told.states, told.actions, None))
    with pytest.raises(InvalidEpisodeError, match="losses of episode 2 have not been told: learner 'dilated-bonus'"):
        learner.update(Episode(told.states, told.actions, told.losses))


def test_losses_of_all_actions_are_refused_where_they_cannot_be_used():
    learner = played("vlsuob-reps", 1)
    told = episode_of(learner, 1)
    with pytest.raises(InvalidEpisodeError, match="learner 'vlsuob-reps' cannot use action_losses"):
        learner.update(Episode(told.states, told.actions, told.losses, action_losses=[[0.5] * 3] * 3))


@pytest.mark.parametrize("name", [*REGRESSING, "pomd", "dilated-bonus"])
def test_logged_transitions_teach_what_the_same_transitions_teach_when_played(name):
    player, reader = make_learner(name, WORLD, 50), make_learner(name, WORLD, 50)
    states, actions = [], []
    for k in range(20):
        told = episode_of(player, k)
        player.update(told)
        states.append(told.states)
        actions.append(told.actions)
    reader.observe_transitions(states, actions)
    assert reader.episodes_seen == 0
    ours, theirs = reader._now.state.data, player._now.state.data
    if hasattr(ours, "estimate"):
        np.testing.assert_array_equal(ours.estimate.grams, theirs.estimate.grams)
        np.testing.assert_array_equal(ours.estimate.centres, theirs.estimate.centres)
        for one, other in zip(reader.confidence_set.hull(), player.confidence_set.hull(), strict=True):
            for a, b in zip(one, other, strict=True):
                np.testing.assert_allclose(a, b, atol=1e-9)
    else:
        for a, b in zip(ours.transitions, theirs.transitions, strict=True):
            np.testing.assert_array_equal(a, b)
        assert ours.epoch == theirs.epoch
    one, other = reader.misspecification(), player.misspecification()
    assert (one is None) == (other is None)
    if one is not None:
        np.testing.assert_allclose(one.log_e, other.log_e)


@pytest.mark.parametrize("name", ["o-reps-bandit", "oppo", "uniform", "exp3-policies"])
def test_a_learner_without_an_estimate_refuses_logs(name):
    world = make_world("random-mixture", layer_sizes=(1, 2, 1), n_actions=2, dim=2)
    learner = make_learner(name, world, 10)
    with pytest.raises(InvalidEpisodeError, match=f"learner '{name}' cannot use logged transitions: it "):
        learner.observe_transitions([0, 1], [0, 1])


def test_a_log_that_cannot_have_happened_is_refused_with_its_number():
    learner = make_learner("uob-reps", WORLD, 10)
    with pytest.raises(InvalidEpisodeError, match="logged episode 1: layer 1: state 9 does not exist"):
        learner.observe_transitions([[0, 1, 1], [0, 9, 1]], [[0, 1, 1], [0, 0, 0]])


#: Those that mix in uniform play begin with less of it.
MIXING = ("q-reps", "mdp-linexp3")


@pytest.mark.parametrize("name", [n for n in learners.names() if learners.get(n).takes_start and n not in MIXING])
def test_the_first_policy_is_the_start_but_for_a_tenth(name):
    rng = np.random.default_rng(0)
    start = occupancy.random_policy(WORLD.layer_sizes, WORLD.n_actions, rng)
    learner = make_learner(name, suited(name, WORLD), 50, start=start)
    kernels = mean_kernels(learner._problem)
    wanted = occupancy.occupancy_measure(kernels, start)
    measure = None if name == "vlsuob-reps-sharp" else learner.q  # its steps are of policies
    found = measure or occupancy.occupancy_measure(kernels, learner.policy)
    for q, table in zip(found, wanted, strict=True):
        assert np.abs(q - table).sum() <= 2 * START_SHARE * (1 if measure else WORLD.horizon) + 1e-9
    for k in range(3):
        learner.update(episode_of(learner, k))


def test_the_start_of_reps_is_the_mixture_that_the_docs_say():
    start = occupancy.uniform_policy(WORLD.layer_sizes, WORLD.n_actions)
    learner = make_learner("vlsuob-reps-tight", WORLD, 50, start=start)
    q = occupancy.occupancy_measure(mean_kernels(WORLD.model), start)
    for ours, table in zip(learner.q, q, strict=True):
        np.testing.assert_allclose(ours, 0.9 * table + 0.1 / table.size, rtol=1e-12)
    divergence = sum(float((p * np.log(p / r)).sum()) for p, r in zip(q, learner.q, strict=True))
    assert divergence <= WORLD.horizon * np.log(1 / 0.9) + 1e-12


def test_a_learner_that_takes_no_start_names_those_that_do():
    start = occupancy.uniform_policy(WORLD.layer_sizes, WORLD.n_actions)
    with pytest.raises(InvalidSpecError, match=r"learner 'ftl' takes no start policy; these do: .*uob-reps"):
        make_learner("ftl", WORLD, 50, start=start)
    start[1] = 0.9 * start[1]
    with pytest.raises(ValueError, match="layer 1, state 0: probabilities"):
        make_learner("uob-reps", WORLD, 50, start=start)


def test_a_file_of_the_version_before_is_refused_with_advice(tmp_path):
    path = tmp_path / "learner.npz"
    played("uob-reps", 1).save(path)
    tree = storage.read(path, "learner")
    del tree["version"]
    storage.write(path, "learner", tree)
    with pytest.raises(CorruptCheckpointError, match=r"another version of advmdp .* start a new learner here"):
        load_learner(path)


def test_any_learner_can_carry_the_test_of_the_model(tmp_path):
    learner = make_learner("uob-reps", WORLD, 50, watch=False)
    assert learner.misspecification() is None
    watching = make_learner("o-reps-bandit", WORLD, 50, watch=True)
    for k in range(4):
        watching.update(episode_of(watching, k))
    assert watching.misspecification().episodes == 4
    watching.save(tmp_path / "learner.npz")
    assert load_learner(tmp_path / "learner.npz").misspecification().episodes == 4
    quiet = played("vlsuob-reps", 1, watch=False)
    assert quiet.misspecification() is None


def test_the_certificate_is_the_sum_of_the_gaps_of_all_steps():
    learner, total = make_learner("vlsuob-reps-tight", WORLD, 50), 0.0
    for k in range(10):
        learner.update(episode_of(learner, k))
        total += max(learner.last_step.gap, 0.0)
        assert learner.certificate == pytest.approx(total, rel=1e-12)
    assert 0.0 <= learner.certificate < 1e-6


@pytest.mark.parametrize("name", [n for n in learners.names() if learners.get(n).partial])
def test_late_losses_that_wait_beside_others_survive_a_file(name, tmp_path):
    """Two episodes wait, the first is told, a third waits: then the third is told before and after loading."""
    learner = played(name, 3)
    told = [episode_of(learner, 3)]
    learner.update(Episode(told[0].states, told[0].actions, None))
    for k in (4, 5):
        told.append(episode_of(learner, k))
        if k == 5:
            learner.tell(3, told[0].losses)
        learner.update(Episode(told[-1].states, told[-1].actions, None))
    learner.save(tmp_path / "learner.npz")
    loaded = load_learner(tmp_path / "learner.npz")
    for one in (learner, loaded):
        one.tell(5, told[2].losses)
    np.testing.assert_array_equal(learner.flat_policy, loaded.flat_policy)


@pytest.mark.parametrize("name", ["vlsuob-reps-tight", "planner", "uob-reps", "dilated-bonus"])
def test_what_waits_does_not_change_with_the_callers_arrays(name):
    safe, careless = played(name, 2), played(name, 2)
    told = episode_of(safe, 2)
    buffers = [np.array(told.states), np.array(told.actions)]
    safe.update(Episode(told.states, told.actions, None))
    careless.update(Episode(*buffers, None))
    for buffer in buffers:
        buffer[:] = 0
    for learner in (safe, careless):
        learner.tell(2, told.losses)
    np.testing.assert_array_equal(safe.flat_policy, careless.flat_policy)


@pytest.mark.parametrize(("name", "before"), [("vlsuob-reps-anytime", 14), ("vlsuob-reps-bank", 10)])
def test_a_log_between_two_episodes_neither_takes_a_step_nor_mixes_a_bank(name, before):
    """Transitions that were seen before change the set hardly, and so the policy."""
    learner = played(name, before)
    last = episode_of(learner, before - 1)
    policy = learner.flat_policy
    for _ in range(5):
        learner.observe_transitions(last.states, last.actions)
    assert np.abs(learner.flat_policy - 1 / 3).max() > 0.5 * np.abs(policy - 1 / 3).max()
    np.testing.assert_allclose(learner.flat_policy, policy, atol=0.05)


def test_an_empty_log_changes_nothing():
    learner = played("uob-reps", 2)
    learner.observe_transitions(np.empty((0, 3), dtype=int), np.empty((0, 3), dtype=int))
    assert learner._now.logged == 0


def test_a_learner_does_not_wait_for_ever_for_losses_that_were_lost(tmp_path):
    learner = played("dilated-bonus", 2)
    told = episode_of(learner, 2)
    learner.update(Episode(told.states, told.actions, None, index=2))
    learner.skip(2)
    assert (learner.episodes_seen, learner.skipped) == (2, 1)
    learner.update(Episode(told.states, told.actions, told.losses, index=3))
    learner.save(tmp_path / "learner.npz")
    assert load_learner(tmp_path / "learner.npz").skipped == 1


def test_the_safe_expert_counts_late_losses_in_its_step_size():
    """All losses come one update late: its scale grows nearly as if they had come in time."""
    prompt, late = make_learner("portfolio", WORLD), make_learner("portfolio", WORLD)
    history = []
    for k in range(30):
        history.append(episode_of(prompt, k))
        prompt.update(history[k])
        late.update(Episode(history[k].states, history[k].actions, None))
        if k:
            late.tell(k - 1, history[k - 1].losses)
    first = late._safe.first_scale
    grown = [learner._now.state.base.scale - first for learner in (prompt, late)]
    assert grown[1] > 0.3 * grown[0] > 0.0


def test_no_class_is_more_than_three_below_learner():
    for name in learners.names():
        chain = [cls for cls in learners.get(name).__mro__ if issubclass(cls, Learner)]
        depth = max(len(path) for path in _paths(chain[0], Learner)) - 1
        assert depth <= 3, (name, chain)


def _paths(cls, root):
    if cls is root:
        return [[cls]]
    return [[cls, *rest] for base in cls.__bases__ if issubclass(base, root) for rest in _paths(base, root)]
