"""Incremental estimators equal a recomputation from the whole history."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advmdp import LinearMixtureMDP, LinearMixtureModel, make_world, occupancy, play
from advmdp.confidence.counts import BernsteinBoxes
from advmdp.confidence.estimators import AllNextStates, EpochCounts, OneNextState
from tests.strategies import generators, mixture_worlds


def history(mdp, rng, episodes):
    policy = occupancy.uniform_policy(mdp.layer_sizes, mdp.n_actions)
    losses = [np.zeros((n, mdp.n_actions)) for n in mdp.layer_sizes[:-1]]
    return [play(mdp, policy, losses, rng) for _ in range(episodes)]


@given(mixture_worlds(), generators(), st.floats(0.1, 20.0))
def test_all_next_states_solves_the_regression_of_the_paper(mdp, rng, lam):
    """Equation (3): least squares with the one-hot next state as target, solved from scratch."""
    episodes = history(mdp, rng, 12)
    sums = AllNextStates.empty(mdp.horizon, mdp.dim)
    for episode in episodes:
        sums = sums.add(mdp.model, episode.states, episode.actions)
    estimate = sums.estimate(lam)
    for h in range(mdp.horizon - 1):
        rows = [np.sqrt(lam) * np.eye(mdp.dim)]
        targets = [np.zeros(mdp.dim)]
        for episode in episodes:
            rows.append(mdp.features[h][episode.states[h], episode.actions[h]])
            targets.append(np.eye(mdp.layer_sizes[h + 1])[episode.states[h + 1]])
        design, target = np.concatenate(rows), np.concatenate(targets)
        expected = np.linalg.lstsq(design, target, rcond=None)[0]
        np.testing.assert_allclose(estimate.centres[h], expected, atol=1e-10)
        np.testing.assert_allclose(estimate.grams[h], design.T @ design, atol=1e-10)
        assert estimate.log_determinants[h] == pytest.approx(np.linalg.slogdet(design.T @ design)[1])


@given(mixture_worlds(), generators())
def test_one_next_state_chooses_before_it_looks(mdp, rng):
    episodes = history(mdp, rng, 12)
    sums = OneNextState.empty(mdp.horizon, mdp.dim)
    for episode in episodes:
        sums = sums.add(mdp.model, episode.states, episode.actions, sums.estimate(1.0))
    for h in range(mdp.horizon - 1):
        gram, target = np.eye(mdp.dim), np.zeros(mdp.dim)
        for episode in episodes:
            rows = mdp.features[h][episode.states[h], episode.actions[h]]
            lengths = [row @ np.linalg.solve(gram, row) for row in rows]
            imaginary = next(t for t, length in enumerate(lengths) if length >= max(lengths) * (1.0 - 1e-9))
            gram = gram + np.outer(rows[imaginary], rows[imaginary])
            target = target + rows[imaginary] * (episode.states[h + 1] == imaginary)
        np.testing.assert_allclose(sums.estimate(1.0).grams[h], gram, atol=1e-10)
        np.testing.assert_allclose(sums.targets[h], target, atol=1e-10)


def test_adding_an_episode_leaves_the_old_sums_alone():
    mdp = LinearMixtureMDP.from_kernels(
        [[np.full((1, 2, 2), 0.5), np.ones((2, 2, 1))], [np.eye(2)[None], np.ones((2, 2, 1))]], [0.5, 0.5]
    )
    sums = AllNextStates.empty(mdp.horizon, mdp.dim)
    sums.add(mdp.model, np.array([0, 1]), np.array([0, 0]))
    assert not sums.moments.any()
    counts = EpochCounts.empty(mdp.layer_sizes, mdp.n_actions)
    counts.add(np.array([0, 1]), np.array([0, 0]))
    assert not counts.transitions[0].any()


def test_a_gram_matrix_that_rounding_makes_indefinite_is_solved_all_the_same():
    """A regularisation far below the rounding of the moments: no Cholesky factor, but an answer."""
    row = np.array([1.0, 1.0 / 3.0])
    sums = AllNextStates(1e12 * np.outer(row, row)[None] - 1e-4 * np.eye(2), 1e12 * row[None])
    estimate = sums.estimate(1e-5)
    assert np.isfinite(estimate.centres).all()
    np.testing.assert_allclose(estimate.grams[0] @ estimate.centres[0], sums.targets[0], rtol=1e-6)


def test_one_hot_features_make_the_regression_count():
    """Tabular embedding: theta = visits of the triple / (lambda + visits of the pair)."""
    rng = np.random.default_rng(0)
    n, n_actions, m = 1, 2, 3
    dim = n * n_actions * m
    first = np.eye(dim).reshape(n, n_actions, m, dim)
    last = np.zeros((m, n_actions, 1, dim))
    model = LinearMixtureModel([first, last], bound=10.0)
    sums = AllNextStates.empty(2, dim)
    counts = np.zeros((n_actions, m))
    for _ in range(30):
        action, following = int(rng.integers(2)), int(rng.integers(3))
        counts[action, following] += 1
        sums = sums.add(model, np.array([0, following]), np.array([action, 0]))
    expected = counts / (2.0 + counts.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(sums.estimate(2.0).centres[0], expected.ravel(), atol=1e-12)


@given(mixture_worlds(), generators())
def test_epochs_begin_where_a_visited_pair_has_doubled(mdp, rng):
    counts = EpochCounts.empty(mdp.layer_sizes, mdp.n_actions)
    seen = [np.zeros_like(table) for table in counts.transitions]
    start, epoch = [table.copy() for table in seen], 1
    for episode in history(mdp, rng, 40):
        counts = counts.add(episode.states, episode.actions)
        for h in range(mdp.horizon - 1):
            seen[h][episode.states[h], episode.actions[h], episode.states[h + 1]] += 1
        doubled = any(
            (now.sum(axis=2) >= np.maximum(1, 2 * then.sum(axis=2))).any()
            for now, then in zip(seen, start, strict=True)
        )
        if doubled:
            start, epoch = [table.copy() for table in seen], epoch + 1
        assert counts.epoch == epoch
        for got, now, then in zip(counts.frequencies(), seen, start, strict=True):
            visits = then.sum(axis=2)
            np.testing.assert_array_equal(got[1], visits)
            np.testing.assert_allclose(got[0] * np.maximum(visits, 1)[..., None], then, atol=1e-12)
            assert now.sum() >= then.sum()


def test_the_last_decision_layer_ends_no_epoch_and_widths_need_none_there():
    """docs/learners/counting.md: the published rule adds fresher sets; what the proof uses holds without it."""
    world = make_world("random-mixture", layer_sizes=(1, 6, 1), n_actions=2, dim=2, seed=0)
    counts, boxes = EpochCounts.empty(world.layer_sizes, world.n_actions), BernsteinBoxes(world.layers, 600, 0.05)
    seen, start, published, together = np.zeros((2, 6, 2, 6)), np.zeros((2, 6, 2, 6)), 1, 0
    for episode in history(world, np.random.default_rng(0), 600):
        # Of two visits one at least was before the epoch, in every layer whose rows have a width.
        before = counts.frequencies()[0][1]
        assert (counts.transitions[0].sum(axis=2) <= np.maximum(1.0, 2.0 * before)).all()
        epoch, counts = counts.epoch, counts.add(episode.states, episode.actions)
        (first, second), (a, b) = episode.states[:2], episode.actions
        seen[0, first, a, second] += 1
        seen[1, second, b, 0] += 1
        visits = seen.sum(axis=3)
        if (visits >= np.maximum(1.0, 2.0 * start.sum(axis=3)))[visits > 0].any():
            start, published = seen.copy(), published + 1
            if counts.epoch > epoch:  # both begin one: the sets are the same
                together += 1
                np.testing.assert_array_equal(counts.at_epoch[0], start[0, :1])
        last = boxes(counts)
        assert (last.lower[-1] == 1.0).all()
        assert (last.upper[-1] == 1.0).all()
    assert together > 3
    assert published > 2 * counts.epoch


def test_boxes_without_a_number_of_episodes_do_not_depend_on_when_they_are_made():
    """A learner that is read from a file makes its set anew, in the middle of an epoch."""
    world = make_world("random-mixture", layer_sizes=(1, 2, 2, 1), n_actions=2, dim=2, seed=0)
    counts, rng = EpochCounts.empty(world.layer_sizes, world.n_actions), np.random.default_rng(0)
    boxes, made = BernsteinBoxes(world.layers, None, 0.05), {}
    for episode in history(world, rng, 1200):
        counts = counts.add(episode.states, episode.actions)
        made.setdefault(counts.epoch, boxes(counts))
    assert counts.transitions[0].sum() > counts.at_epoch[0].sum()
    for now, then in zip(boxes(counts).hull(), made[counts.epoch].hull(), strict=True):
        for table, first in zip(now, then, strict=True):
            np.testing.assert_array_equal(table, first)
