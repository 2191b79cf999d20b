"""Each part by itself, as an author of another learner would use it: its formula, and that it changes nothing."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from advmdp import InvalidEpisodeError, make_learner, make_world, occupancy, play
from advmdp.confidence import BoxSet, KnownKernels
from advmdp.confidence.counts import BernsteinBoxes, L1Balls, ShiftedBoxes, VisitCounts
from advmdp.confidence.estimators import AllNextStates, OneNextState, SharedNextStates
from advmdp.confidence.known import KnownTransition, NothingKept
from advmdp.confidence.likelihood_ratio import LikelihoodRatio, likelihood_ratio
from advmdp.confidence.regression import MixtureSets, RidgeRegression, joint_regression, scalar_radius, vector_radius
from advmdp.episodes import CheckedEpisode, LateLosses, check_episode
from advmdp.learners.parts.losses import LossTable, OwnOccupancy, UpperOccupancy
from advmdp.learners.parts.steps import (
    Bank,
    Blocks,
    ConditionalDescent,
    KnownDescent,
    MirrorDescent,
    uniform_log_q,
)
from advmdp.solvers import upper_occupancy
from tests.solvers import reference

WORLD = make_world("random-mixture", layer_sizes=(1, 2, 3, 1), n_actions=2, dim=2, seed=1, shared=True)
LAYERS, MODEL = WORLD.layers, WORLD.model
POLICY = LAYERS.flatten(occupancy.random_policy(WORLD.layer_sizes, 2, np.random.default_rng(0)))
LOSS = np.random.default_rng(1).random(LAYERS.n_pairs)


def episodes(count: int) -> list[CheckedEpisode]:
    rng = np.random.default_rng(2)
    played = [play(WORLD, LAYERS.split(POLICY), LAYERS.split(LOSS), rng) for _ in range(count)]
    return [check_episode(episode, LAYERS, None, True) for episode in played]


ESTIMATORS = {
    "all next states": RidgeRegression(MODEL, AllNextStates, lambda k: 1.0),
    "one next state": RidgeRegression(MODEL, OneNextState, lambda k: 1.0),
    "shared": RidgeRegression(MODEL, SharedNextStates, lambda k: 1.0),
    "likelihood": LikelihoodRatio(MODEL),
    "counts": VisitCounts(LAYERS),
    "nothing": NothingKept(),
}


@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS.keys())
def test_an_estimator_builds_values_that_come_back_from_a_tree(estimator):
    data = estimator.empty()
    before = repr(estimator.tree(data))
    grown = data
    for episode in episodes(5):
        grown = estimator.add(grown, episode.states, episode.actions)
    assert repr(estimator.tree(data)) == before
    again = estimator.restore(estimator.tree(grown))
    assert again.version == grown.version
    np.testing.assert_equal(estimator.tree(again), estimator.tree(grown))


SETS = {
    "printed": (ESTIMATORS["all next states"], MixtureSets(MODEL, vector_radius("paper", MODEL, lambda k: 1.0, 0.05))),
    "boxes": (ESTIMATORS["one next state"], MixtureSets(MODEL, scalar_radius(MODEL, 1.0, 0.05), "box")),
    "tight": joint_regression(MODEL),
    "tight, shared": joint_regression(MODEL, shared=True),
    "likelihood": likelihood_ratio(MODEL),
    "likelihood, shared": likelihood_ratio(MODEL, shared=True),
    "bernstein": (ESTIMATORS["counts"], BernsteinBoxes(LAYERS, 100, 0.05)),
    "bernstein, any time": (ESTIMATORS["counts"], BernsteinBoxes(LAYERS, None, 0.05)),
    "balls": (ESTIMATORS["counts"], L1Balls(LAYERS, 100, 0.05)),
    "known": (ESTIMATORS["nothing"], KnownTransition(WORLD)),
}


@pytest.mark.parametrize(("estimator", "sets"), SETS.values(), ids=SETS.keys())
def test_a_set_holds_the_truth(estimator, sets):
    data = estimator.empty()
    for episode in episodes(60):
        data = estimator.add(data, episode.states, episode.actions)
    assert sets(data).contains(WORLD.kernels, 1e-7)


@pytest.mark.parametrize("sets", [BernsteinBoxes, L1Balls])
def test_logged_episodes_share_the_failure_probability_of_counts(sets):
    """K is the number of episodes that were played or read: widths are those of so many more."""
    counts = VisitCounts(LAYERS).empty()
    for episode in episodes(30):
        counts = counts.add(episode.states, episode.actions, logged=True)
    played = replace(counts, logged=0)
    of_log, of_more, of_fewer = (
        np.concatenate(sets(LAYERS, episodes, 0.05, 0.02)(data).hull()[1][:-1], axis=None)
        for data, episodes in ((counts, 100), (played, 130), (played, 100))
    )
    np.testing.assert_allclose(of_log, of_more, atol=1e-12)
    assert np.abs(of_log - of_fewer).max() > 1e-4


def test_shifted_boxes_keep_every_next_state_possible():
    counts, sets = ESTIMATORS["counts"].empty(), ShiftedBoxes(LAYERS, 100, 0.05, 1.0, 0.2)
    for episode in episodes(30):
        counts = counts.add(episode.states, episode.actions)
    for table, width in zip(sets(counts).lower[:-1], LAYERS.sizes[1:-1], strict=True):
        assert (table >= 0.2 / width - 1e-12).all()


def state_of(confidence_set):
    q = LAYERS.flatten(occupancy.occupancy_measure(WORLD, LAYERS.split(POLICY)))
    return SimpleNamespace(policy=POLICY, set=confidence_set, step=SimpleNamespace(log_q=np.log(q)))


def everything() -> BoxSet:
    shapes = [table.shape for table in WORLD.kernels]
    return BoxSet([np.zeros(shape) for shape in shapes], [np.ones(shape) for shape in shapes])


def test_the_upper_occupancy_estimate_divides_by_the_largest_probability_of_a_visit():
    (episode,) = episodes(1)
    lhat = UpperOccupancy(gamma=lambda k: 0.1)(state_of(everything()), episode, 0)
    upper = upper_occupancy(everything(), LAYERS.split(POLICY))
    for h, pair in enumerate(episode.pairs):
        u = upper[h][episode.states[h]] * POLICY[pair]
        assert lhat[pair] == pytest.approx(episode.losses[h] / (u + 0.1))
    assert np.count_nonzero(lhat) == LAYERS.horizon


def test_late_losses_are_divided_by_the_larger_of_two_weights():
    first, second = episodes(2)
    part, state = UpperOccupancy(gamma=lambda k: 0.1), state_of(KnownKernels(WORLD.kernels))
    now = part.weights(state, first.states, first.pairs, 0)
    for then in (0.5 * now, 2.0 * now):
        late = LateLosses(first.states, first.pairs, first.losses, then)
        more = part(state, second._replace(late=(late,)), 0) - part(state, second, 0)
        np.testing.assert_allclose(more[first.pairs], first.losses / (np.maximum(then, now) + 0.1))


def test_the_estimate_by_the_own_occupancy_is_unbiased_where_the_kernel_is_known():
    """Over all trajectories of a known world: sum of probability times lhat is the loss."""
    part, state = OwnOccupancy(LAYERS), state_of(KnownKernels(WORLD.kernels))
    total = np.zeros(LAYERS.n_pairs)
    for s1 in range(2):
        for s2 in range(3):
            for moves in np.ndindex(2, 2, 2):
                states, actions = np.array([0, s1, s2]), np.array(moves)
                pairs = LAYERS.pair_offsets[:3] + states * 2 + actions
                probability = np.prod(POLICY[pairs])
                probability *= WORLD.kernels[0][0, moves[0], s1] * WORLD.kernels[1][s1, moves[1], s2]
                episode = CheckedEpisode(states, actions, LOSS[pairs], pairs, None)
                total += probability * part(state, episode, 0)
    np.testing.assert_allclose(total, LOSS, rtol=1e-10)
    state.step.log_q = np.full(LAYERS.n_pairs, -1e4)
    with pytest.raises(InvalidEpisodeError, match="too little to divide the loss by"):
        part(state, episodes(1)[0], 0)


def test_the_own_occupancy_counts_no_less_than_its_floor():
    (episode,) = episodes(1)
    state = state_of(KnownKernels(WORLD.kernels))
    q = np.exp(state.step.log_q[episode.pairs])
    floor = 0.5 * (q.min() + q.max())
    lhat = OwnOccupancy(LAYERS, floor=floor)(state, episode, 0)
    np.testing.assert_allclose(lhat[episode.pairs], episode.losses / np.maximum(q, floor))
    assert (q < floor).any()
    assert (q > floor).any()


def test_the_loss_table_is_its_own_estimate():
    (episode,) = episodes(1)
    np.testing.assert_array_equal(LossTable()(None, episode, 0), LOSS)


def test_mirror_descent_equals_a_conic_solver_and_leaves_its_state_alone():
    step = MirrorDescent(MODEL, lambda k: 0.3 * (k + 1))
    first = step.start()
    before = first.log_q.copy()
    second = step.advance(first, everything(), LOSS, 1)
    wanted = reference.mirror_step(everything(), LAYERS.split(np.exp(before)), LAYERS.split(LOSS), 0.6)
    for ours, theirs in zip(LAYERS.split(np.exp(second.log_q)), wanted.q, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
    np.testing.assert_array_equal(first.log_q, before)
    assert 0.0 <= second.gap < 1e-7


def test_known_descent_is_mirror_descent_over_the_true_kernels():
    truth = KnownKernels(WORLD.kernels)
    step = KnownDescent(WORLD, truth, lambda k: 0.3)
    first = step.start()
    second = step.advance(first, truth, LOSS, 0)
    wanted = reference.mirror_step(truth, LAYERS.split(np.exp(first.log_q)), LAYERS.split(LOSS), 0.3)
    for ours, theirs in zip(LAYERS.split(np.exp(second.log_q)), wanted.q, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_the_conditional_step_multiplies_a_single_layer_by_exponentials():
    """Where nothing follows: pi' proportional to pi exp(-eta l); checked in the last layer of decisions."""
    step = ConditionalDescent(MODEL, lambda k: 0.5)
    second = step.advance(step.start(), everything(), LOSS, 0)
    rows = np.exp(-0.5 * LAYERS.split(LOSS)[-1])
    np.testing.assert_allclose(LAYERS.split(second.policy)[-1], rows / rows.sum(axis=1, keepdims=True), rtol=1e-12)


def test_the_conditional_step_begins_with_a_start_and_a_tenth_of_uniform_where_that_rules_actions_out():
    sure = np.concatenate([np.eye(LAYERS.n_actions)[[0] * n].ravel() for n in LAYERS.sizes[:-1]])
    for start, wanted in ((sure, 0.9 * sure + 0.1 * LAYERS.uniform_policy), (LAYERS.uniform_policy,) * 2):
        np.testing.assert_allclose(ConditionalDescent(MODEL, lambda k: 0.5, start).start().policy, wanted, rtol=1e-15)


@pytest.mark.parametrize("name", ["vlsuob-reps", "vlsuob-reps-sharp", "vls-o-reps"])
def test_learners_with_the_conditional_step_take_a_start_that_is_sure(name):
    start = [np.eye(WORLD.n_actions)[[0] * n] for n in WORLD.layer_sizes[:-1]]
    learner = make_learner(name, WORLD, 10, start=start, entropy="conditional")
    np.testing.assert_allclose(learner.policy[1], 0.9 * start[1] + 0.1 / WORLD.n_actions, rtol=1e-12)


def test_blocks_begin_again_and_forget_the_last_loss():
    step = Blocks(MODEL, lambda k: 1.0, block=lambda k: (k // 2 * 2, 2))
    state = step.advance(step.start(), everything(), LOSS, 0)
    assert not np.allclose(state.log_q, uniform_log_q(LAYERS))
    state = step.advance(state, everything(), LOSS, 1)
    np.testing.assert_allclose(state.log_q, uniform_log_q(LAYERS), atol=1e-6)


def test_a_bank_is_the_weighted_average_of_its_steps():
    parts = MirrorDescent(MODEL, lambda k: 0.1), MirrorDescent(MODEL, lambda k: 1.0)
    step = Bank(LAYERS, parts, epsilon=0.5, mu=1e-6)
    first = step.start()
    second = step.advance(first, everything(), LOSS, 0)
    weights = np.exp(second.log_weights)
    np.testing.assert_allclose(weights, 0.5, rtol=1e-9)  # both began at the same measure
    average = sum(w * np.exp(base.log_q) for w, base in zip(weights, second.base, strict=True))
    np.testing.assert_allclose(np.exp(second.log_q), average, rtol=1e-12)
    third = step.advance(second, everything(), LOSS, 1)
    means = [np.exp(base.log_q) @ LOSS for base in second.base]
    np.testing.assert_allclose(np.diff(third.log_weights), -0.5 * np.diff(means), rtol=1e-9)
