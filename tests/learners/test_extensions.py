"""Restarts and a bank of step sizes: steps, weights, what depends on K, dynamic regret."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from advmdp import InvalidSpecError, load_learner, make_adversary, make_learner, make_world, play, run, storage
from advmdp.errors import CorruptCheckpointError
from advmdp.experiments.statistics import mean_and_interval
from advmdp.solvers import upper_occupancy
from tests.learners.test_reps import episodes_of
from tests.solvers import reference

TINY = make_world("random-mixture", layer_sizes=(1, 2, 3, 1), n_actions=2, dim=2, seed=1)


def uniform():
    return [np.full((n, 2), 1.0 / (2 * n)) for n in TINY.layer_sizes[:-1]]


def estimate_of(told, before, policy, gamma):
    """lhat from the upper occupancy bound of the played policy."""
    lhat = [np.zeros_like(table) for table in policy]
    for h, (s, a) in enumerate(zip(told.states, told.actions, strict=True)):
        u = upper_occupancy(before, policy, [(h, s)])[0]
        lhat[h][s, a] = told.losses[h] / (policy[h][s, a] * u + gamma)
    return lhat


def test_steps_equal_a_conic_solver_and_blocks_begin_at_the_uniform_measure(monkeypatch):
    episodes = 60
    learner = make_learner("vlsuob-reps-restart", TINY, episodes)
    monkeypatch.setattr(type(learner), "restart_period", 20)
    losses, rng = make_adversary("stochastic", TINY, episodes), np.random.default_rng(0)
    S, A, H = TINY.n_states, 2, TINY.horizon
    eta = np.sqrt(H * np.log(H * S * A / 0.05) / (20 * S * A))
    restarts = 0
    for k in range(episodes):
        q, policy, before = learner.q, learner.policy, learner.confidence_set
        told = play(TINY, policy, losses.losses(k), rng, index=k)
        learner.update(told)
        lhat = estimate_of(told, before, policy, eta)
        for ours, theirs in zip(learner.loss_estimate, lhat, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9)
        begins = (k + 1) % 20 == 0
        restarts += begins
        if begins:
            q, lhat = uniform(), [np.zeros_like(table) for table in lhat]
        if begins or k % 6 == 0:
            step = reference.mirror_step(learner.confidence_set, q, lhat, eta)
            for ours, theirs in zip(learner.q, step.q, strict=True):
                np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert restarts == 3


def test_the_regression_goes_on_through_restarts():
    """Sets of a restarting learner are those of one that never restarts and saw the same transitions."""
    restarting, steady = make_learner("vlsuob-reps-restart", TINY, 40), make_learner("vlsuob-reps-tight", TINY, 40)
    for episode in episodes_of(restarting, TINY, 40):
        steady.update(episode)
    for h in range(TINY.horizon - 1):
        np.testing.assert_allclose(restarting.estimate.grams[h], steady.estimate.grams[h], atol=1e-10)
    np.testing.assert_allclose(restarting.radii, steady.radii)


def test_every_base_step_of_the_bank_equals_a_conic_solver_and_weights_are_those_of_hedge():
    episodes = 56
    learner = make_learner("vlsuob-reps-bank", TINY, episodes)
    S, A, H = TINY.n_states, 2, TINY.horizon
    eta = np.sqrt(H * np.log(H * S * A / 0.05) / (episodes * S * A))
    np.testing.assert_allclose(learner.step_sizes, eta * np.array([1, 4, 16]))
    epsilon = np.sqrt(2 * np.log(3) / (H * S * A * episodes))
    losses, rng = make_adversary("switching", TINY, episodes, period=14), np.random.default_rng(0)
    total = np.zeros(3)
    for k in range(episodes):
        base, policy, before = learner.base_q, learner.policy, learner.confidence_set
        told = play(TINY, policy, losses.losses(k), rng, index=k)
        learner.update(told)
        lhat = estimate_of(told, before, policy, eta)
        total += [sum(float((a * b).sum()) for a, b in zip(q, lhat, strict=True)) for q in base]
        weights = np.exp(-epsilon * (total - total.min()))
        weights /= weights.sum()
        np.testing.assert_allclose(learner.weights, weights, rtol=1e-9)
        average = [sum(w * q[h] for w, q in zip(weights, learner.base_q, strict=True)) for h in range(H)]
        for ours, theirs in zip(learner.q, average, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-12)
        if k % 5 == 0:
            for i, q in enumerate(base):
                prior = [(1 - 1 / episodes) * a + b / episodes for a, b in zip(q, uniform(), strict=True)]
                step = reference.mirror_step(learner.confidence_set, prior, lhat, eta * 4**i)
                for ours, theirs in zip(learner.base_q[i], step.q, strict=True):
                    np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("name", ["vlsuob-reps-restart", "vlsuob-reps-bank", "vlsuob-reps-anytime"])
def test_the_occupancy_measure_stays_below_its_upper_bound(name):
    learner = make_learner(name, TINY, 40)
    for _ in episodes_of(learner, TINY, 40, adversary="switching"):
        upper = upper_occupancy(learner.confidence_set, learner.policy)
        for table, u in zip(learner.q, upper, strict=True):
            assert (table.sum(axis=1) <= u + 1e-9).all()
            assert table.sum() == pytest.approx(1.0, abs=1e-9)
        assert learner.confidence_set.contains(TINY.kernels, 1e-7)


def test_anytime_does_not_depend_on_the_number_of_episodes():
    """Neither what it does nor whether it complains."""
    few, many = (make_learner("vlsuob-reps-anytime", TINY, K) for K in (3, 10**9))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for episode in episodes_of(many, TINY, 30):
            few.update(episode)
    for ours, theirs in zip(few.policy, many.policy, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_period_follows_its_formula():
    S, A, H = TINY.n_states, 2, TINY.horizon
    expected = (10_000 / 9) ** (2 / 3) * (S * A * np.log(H * S * A / 0.05) / H) ** (1 / 3)
    assert make_learner("vlsuob-reps-restart", TINY, 10_000, switches=9).restart_period == int(np.ceil(expected))
    assert make_learner("vlsuob-reps-restart", TINY, 10, switches=1).restart_period == 10
    with pytest.raises(InvalidSpecError, match="switches is 0"):
        make_learner("vlsuob-reps-restart", TINY, 10, switches=0)


def test_a_bank_that_makes_no_sense_is_refused(tmp_path):
    path = tmp_path / "learner.npz"
    learner = make_learner("vlsuob-reps-bank", TINY, 20)
    for _ in episodes_of(learner, TINY, 3):
        pass
    learner.save(path)
    tree = storage.read(path, "learner")
    state, step = tree["state"], tree["state"]["step"]
    for change in (
        {"base": step["base"][1:]},
        {"log_weights": np.zeros(3)},
        {"base": [{**base, "log_q": 0.5 * base["log_q"]} for base in step["base"]]},
    ):
        storage.write(path, "learner", {**tree, "state": {**state, "step": {**step, **change}}})
        with pytest.raises(CorruptCheckpointError, match="does not describe a learner"):
            load_learner(path)


def dynamic_regret(name, seed):
    adversary = make_adversary("switching", TINY, 400, period=100, seed=seed)
    result = run(TINY, make_learner(name, TINY, 400), adversary, 400, seed=seed, comparators=(3,))
    return result.frame["regret_3_switches"].iloc[-1]


def test_the_bank_follows_changing_losses_better_than_one_step_size():
    """Regret against the best sequence with one switch per change, on the same losses."""
    for seed in range(2):
        assert dynamic_regret("vlsuob-reps-bank", seed) < dynamic_regret("vlsuob-reps-tight", seed)


@pytest.mark.slow
def test_the_bank_follows_changing_losses_better_over_seeds():
    pairs = [[dynamic_regret(name, seed) for name in ("vlsuob-reps-bank", "vlsuob-reps-tight")] for seed in range(6)]
    mean, half = mean_and_interval(np.subtract(*np.transpose(pairs)))
    assert mean + half < 0.0
