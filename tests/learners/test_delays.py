"""Losses that come late: their weights against a second implementation, steps that are made for delays, the price."""

from __future__ import annotations

import numpy as np
import pytest

from advmdp import Episode, InvalidSpecError, make_adversary, make_learner, make_world, play
from advmdp.experiments.statistics import mean_and_interval
from advmdp.solvers import upper_occupancy
from advmdp.testing import check_learner
from advmdp.theory import bounds
from benchmarks.study_tabular import late_run
from tests.learners.test_overlap import trajectories
from tests.solvers import reference

TINY = make_world("random-mixture", layer_sizes=(1, 2, 3, 1), n_actions=2, dim=2, seed=1)


def test_it_conforms():
    check_learner(lambda p, episodes, seed: make_learner("delayed-uob-reps", p, episodes, seed=seed, delay=5))


def test_late_losses_are_divided_by_the_larger_of_two_upper_bounds():
    """u when the pair was visited and u now, each recomputed from the set and the policy of then; then the step."""
    learner, past, arrived, ratios = make_learner("delayed-uob-reps", TINY, 60, delay=3, radius_scale=0.05), [], {}, []
    adversary, rng = make_adversary("stochastic", TINY, 60), np.random.default_rng(0)
    for k in range(60):
        policy, boxes, q = learner.policy, learner.confidence_set, learner.q
        told = play(TINY, policy, adversary.losses(k), rng, index=k)
        past.append((told, policy, boxes))
        expected = [np.zeros_like(table) for table in policy]
        for j in arrived.pop(k, []):
            before, then_policy, then_boxes = past[j]
            for h, (s, a, loss) in enumerate(zip(before.states, before.actions, before.losses, strict=True)):
                then = then_policy[h][s, a] * upper_occupancy(then_boxes, then_policy, [(h, s)])[0]
                now = policy[h][s, a] * upper_occupancy(boxes, policy, [(h, s)])[0]
                expected[h][s, a] += loss / (max(then, now) + learner.exploration)
                ratios.append(now / then)
        kernels = learner.moment.step.kernels
        learner.update(Episode(told.states, told.actions, None, index=k))
        for ours, theirs in zip(learner.loss_estimate, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9)
        if k in (20, 40):
            step = reference.mirror_step(learner.confidence_set, q, expected, learner.step_size, kernels=kernels)
            assert learner.last_step.value == pytest.approx(step.value, abs=1e-6)
        if k >= 3:  # told after the update of episode k, so that they enter with the next
            learner.tell(k - 3, past[k - 3][0].losses)
            arrived[k + 1] = [k - 3]
    assert min(ratios) < 0.95
    assert max(ratios) > 1.05


def test_a_late_estimate_is_optimistic_by_enumeration():
    """E lhat <= l whatever was played meanwhile: the divisor is at least u of the episode's own policy."""
    losses, layers = np.random.default_rng(1).random(TINY.layers.n_pairs), TINY.layers
    learner = make_learner("delayed-uob-reps", TINY, 60, delay=1, radius_scale=0.3)
    for k in range(40):
        learner.update(play(TINY, learner.policy, layers.split(losses), np.random.default_rng(k)))
    assert learner.confidence_set.contains(TINY.kernels)
    moment, flat, expected = learner.state(), learner.flat_policy, np.zeros(layers.n_pairs)
    blank = Episode([0, 0, 0], [0, 0, 0], [np.nan] * 3)
    for states, actions, chance in trajectories(TINY.kernels, TINY.horizon, 2):
        pairs = layers.pair_offsets[:-1] + states * 2 + actions
        learner.set_state(moment)
        learner.update(Episode(states, actions, None, index=40))
        learner.update(blank)
        learner.tell(40, losses[pairs])
        learner.update(blank)
        expected += chance * flat[pairs].prod() * layers.flatten(learner.loss_estimate)
    assert (expected <= losses * (1 + 1e-9)).all()
    assert (expected > 0.1 * losses).all()


def test_steps_are_those_of_uob_reps_without_delay_and_smaller_with():
    S, A, H, K = TINY.n_states, 2, TINY.horizon, 500
    assert make_learner("delayed-uob-reps", TINY, K).step_size == make_learner("uob-reps", TINY, K).step_size
    for delay in (0.5, 40):
        learner = make_learner("delayed-uob-reps", TINY, K, delay=delay)
        scale = S * A * K + H * np.sqrt(H * S * A) * delay * K
        assert learner.step_size == pytest.approx(np.sqrt(H * np.log(H * S * A / 0.05) / scale))
        assert learner.exploration == learner.step_size
        late = bounds.delayed_uob_reps(S, A, H, K, delay=delay).order
        assert late == pytest.approx(bounds.uob_reps(S, A, H, K).order + (H * S * A) ** 0.25 * H * np.sqrt(delay * K))
    with pytest.raises(InvalidSpecError, match="delay is -1, should be a number >= 0"):
        make_learner("delayed-uob-reps", TINY, K, delay=-1)


@pytest.mark.parametrize("name", ["uob-reps", "delayed-uob-reps"])
def test_delays_cost(name):
    """The same losses and luck; losses that are 100 of 400 episodes late against losses in time."""
    world, differences = make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=2, dim=2), []
    for seed in range(5):
        adversary = make_adversary("stochastic", world, 400, seed=seed)
        totals = []
        for delay in (100, 0):
            options = {"delay": delay} if name == "delayed-uob-reps" else {}
            learner = make_learner(name, world, 400, radius_scale=0.1, **options)
            totals.append(late_run(world, learner, adversary, 400, delay, seed))
        differences.append(totals[0] - totals[1])
    mean, half = mean_and_interval(np.array(differences))
    assert mean - half > 0.0
