"""A solver that fails inside a learner: nothing is half done, the step can be looked at, and life goes on."""

from __future__ import annotations

import numpy as np
import pytest

from advmdp import Episode, InvalidEpisodeError, load_learner, make_adversary, make_learner, make_world, play
from advmdp.learners.parts import steps
from advmdp.solvers import SolverError, mirror_descent_step
from tests.robustness.failures import CLASSES, campaign

WORLD = make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=2, dim=2)


def episodes(learner, count, seed=0):
    adversary = make_adversary("stochastic", WORLD, 100, seed=seed)
    rng = np.random.default_rng(seed)
    for k in range(count):
        yield play(WORLD, learner.policy, adversary.losses(k), rng, index=k)


def fail_once(monkeypatch, at, found=False):
    """The real mirror step, asked for an impossible accuracy from one call on: its own failure path is what runs.

    Without ``found`` as if it had not come to an occupancy measure of the set, for so many calls as one update makes.
    """
    calls = []

    def step(*args, **options):
        calls.append(1)
        if not at <= len(calls) < at + (1 if found else len(steps.SHARES)):
            return mirror_descent_step(*args, **options)
        with pytest.raises(SolverError) as caught:
            mirror_descent_step(*args, **options, tolerance=-1.0)
        if not found:
            caught.value.step = None
        raise caught.value

    monkeypatch.setattr(steps, "mirror_descent_step", step)


@pytest.mark.parametrize("name", ["vlsuob-reps", "vlsuob-reps-tight", "lsuob-reps", "uob-reps"])
def test_a_failed_step_changes_nothing_and_may_be_tried_again(name, monkeypatch):
    undisturbed, disturbed = (make_learner(name, WORLD, 100) for _ in range(2))
    for episode in episodes(undisturbed, 8):
        undisturbed.update(episode)

    fail_once(monkeypatch, at=5)
    failures = 0
    for episode in episodes(disturbed, 8):
        try:
            disturbed.update(episode)
        except SolverError:
            failures += 1
            disturbed.update(episode)
    assert failures == 1
    for a, b in zip(undisturbed.policy, disturbed.policy, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", ["vlsuob-reps-tight", "uob-reps", "vlsuob-reps-bank"])
def test_a_step_that_misses_its_tolerance_is_taken_with_its_gap(name, monkeypatch):
    undisturbed, disturbed = (make_learner(name, WORLD, 100) for _ in range(2))
    for episode in episodes(undisturbed, 8):
        undisturbed.update(episode)
    fail_once(monkeypatch, at=5, found=True)
    for episode in episodes(disturbed, 8):
        disturbed.update(episode)
    assert disturbed.episodes_seen == 8
    assert disturbed.missed_tolerance == 1
    assert disturbed.certificate < undisturbed.certificate + 1e-6
    for a, b in zip(undisturbed.policy, disturbed.policy, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-3)


def test_a_failed_step_can_be_skipped(monkeypatch):
    learner = make_learner("vlsuob-reps-tight", WORLD, 100)
    fail_once(monkeypatch, at=4)
    for k, episode in enumerate(episodes(learner, 8)):
        try:
            learner.update(episode)
        except SolverError:
            policy = learner.policy
            learner.skip(k)
            assert learner.policy is policy
    assert (learner.episodes_seen, learner.skipped) == (7, 1)


def test_a_failed_step_leaves_a_file_that_reproduces_it(monkeypatch, tmp_path):
    learner = make_learner("vlsuob-reps-tight", WORLD, 100)
    fail_once(monkeypatch, at=2)
    first, second = episodes(learner, 2)
    learner.update(first)
    with pytest.raises(SolverError) as caught:
        learner.update(second)
    caught.value.save(tmp_path / "step.npz")
    with np.load(tmp_path / "step.npz", allow_pickle=False) as saved:
        assert saved["step_size"] > 0.0
        np.testing.assert_array_equal(saved["features_0"], WORLD.features[0])
        assert saved["loss"].shape == (WORLD.layers.n_pairs,)


def test_skipping_keeps_count_of_episodes_and_is_saved(tmp_path):
    learner = make_learner("vlsuob-reps", WORLD, 100)
    learner.skip(0)
    learner.update(Episode([0, 0, 0], [0, 0, 0], [0.5] * 3, index=1))
    learner.save(tmp_path / "learner.npz")
    learner = load_learner(tmp_path / "learner.npz")
    assert (learner.episodes_seen, learner.skipped) == (1, 1)
    with pytest.raises(InvalidEpisodeError, match=r"episode index 1 was told before: 2 .* the next index is 2"):
        learner.skip(1)
    with pytest.raises(InvalidEpisodeError, match=r"episode index 3 comes too early"):
        learner.update(Episode([0, 0, 0], [0, 0, 0], [0.5] * 3, index=3))
    assert learner.skipped == 1


def test_steps_inside_runs_of_every_class_are_solved():
    tallies = campaign(9 * 400)
    assert {name: len(tally.failures) for name, tally in tallies.items()} == dict.fromkeys(CLASSES, 0)
    assert all(tally.largest_gap <= 1e-8 for tally in tallies.values())
