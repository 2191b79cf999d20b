"""EXP3 over deterministic policies: weights from the whole history, unbiased estimates, regret and its bound."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from advmdp import InvalidSpecError, load_learner, make_adversary, make_learner, make_world, occupancy, run, storage
from advmdp.errors import CorruptCheckpointError
from advmdp.experiments.statistics import mean_and_interval
from advmdp.theory import bounds
from tests.learners.test_reps import episodes_of

TINY = make_world("random-mixture", layer_sizes=(1, 2, 1), n_actions=2, dim=2)


def test_policies_are_all_the_deterministic_ones():
    learner = make_learner("exp3-policies", TINY, 10)
    assert learner.n_policies == 8
    found = {tuple(np.concatenate([t.argmax(axis=1) for t in learner.policy_number(i)])) for i in range(8)}
    assert found == set(itertools.product((0, 1), repeat=3))


@pytest.mark.parametrize("seed", range(3))
def test_weights_equal_those_recomputed_from_the_whole_history(seed):
    learner = make_learner("exp3-policies", TINY, 60, seed=seed)
    n, H, K = 8, TINY.horizon, 60
    eta = np.sqrt(2 * np.log(n) / (n * K * H**2))
    assert learner.step_size == pytest.approx(eta)
    total = np.zeros(n)
    for episode in episodes_of(learner, TINY, K, seed=seed):
        weights = np.exp(-eta * (total - total.min()))
        weights /= weights.sum()
        np.testing.assert_allclose(learner.weights, weights, rtol=1e-10)
        arm = learner._now.state.arm
        for ours, table in zip(learner.policy, learner.policy_number(arm), strict=True):
            np.testing.assert_array_equal(ours, table)
        total[arm] += np.sum(episode.losses) / weights[arm]


def test_policies_are_drawn_with_their_weights():
    """Many learners with the same uneven weights: frequencies of the first draw after them."""
    drawn = []
    for seed in range(800):
        learner = make_learner("exp3-policies", TINY, 10, seed=seed)
        drawn.append(learner._drawn(np.log(np.arange(1.0, 9.0)), 1).arm)
    np.testing.assert_allclose(np.bincount(drawn, minlength=8) / 800, np.arange(1, 9) / 36, atol=0.04)


def test_regret_is_below_its_bound_on_average_and_falls():
    """The bound is on the mean, so that an interval over seeds is compared."""
    averages = []
    for episodes in (100, 1600):
        regrets = []
        for seed in range(8):
            learner = make_learner("exp3-policies", TINY, episodes, seed=seed)
            adversary = make_adversary("stochastic", TINY, episodes, seed=seed)
            result = run(TINY, learner, adversary, episodes, seed=seed, progress=False)
            regrets.append(result.regret[-1])
        mean, half = mean_and_interval(regrets)
        bound = bounds.exp3_policies(TINY.n_states, 2, TINY.horizon, episodes).value
        assert result.frame["bound"].iloc[-1] == bound < TINY.horizon * episodes
        assert mean + half < bound
        averages.append(np.array(regrets) / episodes)
    mean, half = mean_and_interval(averages[1] - averages[0])
    assert mean + half < 0.0


def test_it_finds_the_best_policy_of_a_fixed_loss():
    adversary = make_adversary("fixed", TINY, 4000)
    learner = make_learner("exp3-policies", TINY, 4000, eta=0.01)
    run(TINY, learner, adversary, 4000)
    losses = [occupancy.expected_loss(TINY, learner.policy_number(i), adversary.losses(0)) for i in range(8)]
    assert learner.weights @ losses < 0.5 * (min(losses) + np.mean(losses))


def test_large_worlds_are_refused():
    with pytest.raises(InvalidSpecError, match=r"make 2\^24 policies, should be at most 131072"):
        make_learner("exp3-policies", make_world("grid", height=5, width=5), 10)


def test_a_checkpoint_that_makes_no_sense_is_refused(tmp_path):
    path = tmp_path / "learner.npz"
    make_learner("exp3-policies", TINY, 5).save(path)
    tree = storage.read(path, "learner")
    for change in ({"log_weights": np.zeros(3)}, {"log_weights": np.full(8, np.nan)}, {"arm": 8}, {"arm": -1}):
        storage.write(path, "learner", {**tree, "state": {**tree["state"], **change}})
        with pytest.raises(CorruptCheckpointError, match="does not describe a learner"):
            load_learner(path)
