"""Losses that are known in part, and pairs that share their loss: estimates by enumeration, planners, errors."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from advmdp import InvalidEpisodeError, InvalidSpecError, load_learner, make_learner, make_world, play, run
from advmdp.adversaries import Adversary
from advmdp.confidence import BoxSet, KnownKernels
from advmdp.episodes import Episode, check_episode
from advmdp.layered import LayeredMDP
from advmdp.learners.parts.known_losses import Groups, KnownPart
from advmdp.learners.parts.losses import GroupOccupancy, UpperOccupancy
from advmdp.occupancy import random_policy

SIZES = (1, 2, 2, 1)
WORLD = make_world("random-mixture", layer_sizes=(1, 4, 4, 4, 1), n_actions=3, dim=2, shared=True)


def random_problem(rng):
    mdp = LayeredMDP([rng.dirichlet(np.ones(m), size=(n, 2)) for n, m in itertools.pairwise(SIZES)])
    policy = mdp.layers.flatten(random_policy(SIZES, 2, rng))
    labels = rng.integers(0, 4, mdp.layers.n_pairs)
    return mdp, policy, Groups(mdp.layers, mdp.layers.split(labels))


def trajectories(mdp, policy):
    """All episodes of a tiny problem, with their probabilities."""
    layers = mdp.layers
    for states in itertools.product(*(range(n) for n in SIZES[:-1])):
        for actions in itertools.product(range(2), repeat=3):
            pairs = layers.pair_offsets[:3] + np.array(states) * 2 + np.array(actions)
            kernels = [mdp.kernels[h][states[h], actions[h], states[h + 1]] for h in range(2)]
            yield states, actions, pairs, float(np.prod(policy[pairs]) * np.prod(kernels))


@pytest.mark.parametrize("seed", range(5))
def test_hits_of_a_known_kernel_are_the_probabilities_of_meeting_a_group(seed):
    mdp, policy, groups = random_problem(np.random.default_rng(seed))
    hits = np.zeros(mdp.layers.n_pairs)
    for _, _, pairs, probability in trajectories(mdp, policy):
        hits[np.isin(groups.of_pair, groups.of_pair[pairs])] += probability
    found = groups.upper_hits(KnownKernels(mdp.kernels), policy, np.arange(mdp.layers.n_pairs))
    np.testing.assert_allclose(found, hits, rtol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_hits_over_a_set_are_the_largest_of_its_corners(seed):
    rng = np.random.default_rng(seed)
    mdp, policy, groups = random_problem(rng)
    lower = [np.maximum(table - 0.2 * rng.random(table.shape), 0.0) for table in mdp.kernels[:-1]]
    upper = [np.minimum(table + 0.2 * rng.random(table.shape), 1.0) for table in mdp.kernels[:-1]]
    box = BoxSet([*lower, mdp.kernels[-1]], [*upper, mdp.kernels[-1]])
    found = groups.upper_hits(box, policy, np.arange(mdp.layers.n_pairs))
    # Rows have two entries: the corners are the smallest and the largest first entry.
    ends = []
    for low, high in zip(lower, upper, strict=True):
        ends.append((np.maximum(low[..., 0], 1.0 - high[..., 1]), np.minimum(high[..., 0], 1.0 - low[..., 1])))
    best = np.zeros(mdp.layers.n_pairs)
    for choice in itertools.product((0, 1), repeat=2 + 4):
        firsts = [np.where(np.reshape(part, e[0].shape), e[1], e[0])
                  for part, e in zip((choice[:2], choice[2:]), ends, strict=True)]  # fmt: skip
        kernels = [np.stack([first, 1.0 - first], axis=2) for first in firsts]
        corner = KnownKernels([*kernels, mdp.kernels[-1]])
        best = np.maximum(best, groups.upper_hits(corner, policy, np.arange(mdp.layers.n_pairs)))
    np.testing.assert_allclose(found, best, rtol=1e-10)


def mean_estimate(mdp, policy, part, losses):
    """E lhat of all pairs."""
    state = SimpleNamespace(policy=policy, set=KnownKernels(mdp.kernels))
    mean = np.zeros(mdp.layers.n_pairs)
    for states, actions, pairs, probability in trajectories(mdp, policy):
        episode = check_episode(Episode(states, actions, losses[pairs]), mdp.layers)
        mean += probability * part(state, episode, 0)
    return mean


@pytest.mark.parametrize("seed", range(3))
def test_estimates_of_groups_have_no_bias_without_exploration_and_are_too_small_with_it(seed):
    rng = np.random.default_rng(seed)
    mdp, policy, groups = random_problem(rng)
    losses = rng.random(groups.count)[groups.of_pair]
    found = mean_estimate(mdp, policy, GroupOccupancy(lambda k: 0.0, groups=groups), losses)
    np.testing.assert_allclose(found, losses, rtol=1e-10)
    assert (mean_estimate(mdp, policy, GroupOccupancy(lambda k: 0.1, groups=groups), losses) < losses).all()


def test_groups_of_one_pair_each_change_nothing():
    rng = np.random.default_rng(0)
    mdp, policy, _ = random_problem(rng)
    alone = Groups(mdp.layers, mdp.layers.split(np.arange(mdp.layers.n_pairs)))
    losses = rng.random(mdp.layers.n_pairs)
    parts = [GroupOccupancy(lambda k: 0.02, groups=alone), UpperOccupancy(lambda k: 0.02)]
    found, expected = (mean_estimate(mdp, policy, part, losses) for part in parts)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert alone.spans == mdp.layers.n_pairs


class Tied(Adversary):
    """Losses that depend on the action alone, differ by episode, and are at least ``floor``."""

    def __init__(self, mdp, episodes, floor=0.0, seed=0):
        super().__init__(mdp, episodes)
        rng = np.random.default_rng(seed)
        level = rng.random(mdp.n_actions)
        self._by_action = floor + (1.0 - floor) * (rng.random((episodes, mdp.n_actions)) < level)

    def losses(self, k):
        return [np.tile(self._by_action[k], (n, 1)) for n in self.layers.sizes[:-1]]


def by_action(mdp):
    return [np.tile(np.arange(mdp.n_actions), (n, 1)) for n in mdp.layer_sizes[:-1]]


LEARNERS = {
    "vlsuob-reps-sharp": {"predictor": "none"},
    "vlsuob-reps-tight": {},
    "lsuob-reps": {},
    "planner": {},
    "portfolio": {},
}


@pytest.mark.parametrize("name", ["vlsuob-reps-sharp", "vlsuob-reps-tight", "portfolio"])
def test_learners_that_are_told_the_groups_lose_less(name):
    regrets = [
        np.mean([
            run(WORLD, make_learner(name, WORLD, 300, seed=s, **LEARNERS[name], **more), Tied(WORLD, 300, seed=s), 300,
                seed=s, progress=False).regret[-1]
            for s in range(3)
        ])
        for more in ({}, {"groups": by_action(WORLD)})
    ]  # fmt: skip
    assert regrets[1] < 0.8 * regrets[0]


@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_with_groups_and_a_known_part_goes_on_from_a_file_as_it_would_have(name, tmp_path):
    floor = [np.full((n, WORLD.n_actions), 0.25) for n in WORLD.layer_sizes[:-1]]
    learner = make_learner(name, WORLD, 20, groups=by_action(WORLD), known=floor, **LEARNERS[name])
    adversary, rng = Tied(WORLD, 20, 0.25), np.random.default_rng(0)
    for k in range(10):
        learner.update(play(WORLD, learner.policy, adversary.losses(k), rng, index=k))
    learner.save(tmp_path / "learner")
    other = load_learner(tmp_path / "learner")
    for k in range(10, 20):
        for each in (learner, other):
            each.update(play(WORLD, each.policy, adversary.losses(k), np.random.default_rng(k), index=k))
    for here, there in zip(learner.policy, other.policy, strict=True):
        np.testing.assert_array_equal(here, there)


def test_a_loss_that_is_known_entirely_is_not_estimated():
    rng = np.random.default_rng(1)
    losses = [rng.random((n, WORLD.n_actions)) for n in WORLD.layer_sizes[:-1]]
    for predictor in ("none", "mean"):
        learner = make_learner("vlsuob-reps-sharp", WORLD, known=losses, predictor=predictor)
        for k in range(5):
            learner.update(play(WORLD, learner.policy, losses, rng, index=k))
            for estimate, table in zip(learner.loss_estimate, losses, strict=True):
                np.testing.assert_allclose(estimate, table, atol=1e-12)
        for expected, table in zip(learner.predicted_losses, losses, strict=True):
            np.testing.assert_allclose(expected, table, atol=1e-12)


def test_a_known_part_adds_to_the_estimate_of_the_rest():
    known = [np.full((n, WORLD.n_actions), 0.5) for n in WORLD.layer_sizes[:-1]]
    half = [np.zeros((n, WORLD.n_actions)) for n in WORLD.layer_sizes[:-1]]
    rng = np.random.default_rng(2)
    losses = [0.5 + 0.5 * rng.random(table.shape) for table in half]
    with_part, rest = (make_learner("vlsuob-reps-tight", WORLD, 10, known=table) for table in (known, half))
    episode = play(WORLD, with_part.policy, losses, np.random.default_rng(0), index=0)
    with_part.update(episode)
    rest.update(Episode(episode.states, episode.actions, np.asarray(episode.losses) - 0.5, index=0))
    for a, b in zip(with_part.loss_estimate, rest.loss_estimate, strict=True):
        np.testing.assert_allclose(a, b + 0.5, atol=1e-12)


def test_planners_expect_the_known_part_where_no_loss_was_seen_and_share_what_was_seen_in_a_group():
    floor = [np.full((n, WORLD.n_actions), 0.25) for n in WORLD.layer_sizes[:-1]]
    learner = make_learner("planner", WORLD, known=floor, groups=by_action(WORLD))
    assert all((table == 0.25).all() for table in learner.predicted_losses)
    episode = Episode([0, 0, 0, 0], [1, 1, 1, 1], [0.75] * 4, index=0)
    learner.update(episode)
    for table in learner.predicted_losses:
        np.testing.assert_array_equal(table, np.tile([0.25, 0.75, 0.25], (len(table), 1)))


@pytest.mark.parametrize("name", LEARNERS)
def test_losses_that_contradict_what_was_said_are_refused_and_change_nothing(name):
    floor = [np.full((n, WORLD.n_actions), 0.25) for n in WORLD.layer_sizes[:-1]]
    learner = make_learner(name, WORLD, 10, groups=by_action(WORLD), known=floor, **LEARNERS[name])
    before = [table.copy() for table in learner.policy]
    with pytest.raises(InvalidEpisodeError, match=r"layer 1, state 2, action 1: loss 0.1 is less than the part"):
        learner.update(Episode([0, 2, 0, 0], [1, 1, 1, 1], [0.5, 0.1, 0.5, 0.5], index=0))
    with pytest.raises(
        InvalidEpisodeError, match="layer 0, state 0, action 1 and layer 1, state 2, action 1 were said"
    ):
        learner.update(Episode([0, 2, 0, 0], [1, 1, 1, 1], [0.5, 0.75, 0.5, 0.5], index=0))
    assert learner.episodes_seen == 0
    for a, b in zip(learner.policy, before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_late_losses_of_a_group_are_those_of_all_its_pairs():
    learner = make_learner("planner", WORLD, groups=by_action(WORLD))
    learner.update(Episode([0, 0, 0, 0], [1, 1, 1, 1], None, index=0))
    learner.update(Episode([0, 0, 0, 0], [2, 2, 2, 2], [1.0] * 4, index=1))
    learner.tell(0, [0.5] * 4)
    learner.update(Episode([0, 0, 0, 0], [2, 2, 2, 2], [1.0] * 4, index=2))
    for table in learner.predicted_losses:
        np.testing.assert_allclose(table, np.tile([0.0, 0.5, 1.0], (len(table), 1)))


def test_groups_and_known_parts_of_the_wrong_shape_or_value_are_refused_by_name():
    layers = WORLD.layers
    with pytest.raises(InvalidSpecError, match=r"groups\[1\] has shape"):
        Groups(layers, [np.zeros((1, 3))] * 4)
    labels = by_action(WORLD)
    labels[2] = labels[2] + 0.5
    with pytest.raises(InvalidSpecError, match=r"groups, layer 2, state 0, action 0: label 0.5 should be an integer"):
        Groups(layers, labels)
    with pytest.raises(InvalidSpecError, match=r"known, layer 0, state 0, action 0: loss -0.5 is outside"):
        KnownPart(layers, [np.full((n, 3), -0.5) for n in WORLD.layer_sizes[:-1]])
    for option, value in (("feedback", "actions"), ("predictor", "mean"), ("seen", 0.5)):
        with pytest.raises(InvalidSpecError, match=f"groups goes with {option}="):
            make_learner("vlsuob-reps-tight", WORLD, 10, groups=by_action(WORLD), **{option: value})
