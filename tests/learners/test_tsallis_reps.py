"""The 1/2-Tsallis regulariser: slow references, Tsallis-INF, optimism, bounds, orderings."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from advmdp import Episode, InvalidSpecError, LayeredMDP, make_adversary, make_learner, make_world, occupancy, run
from advmdp.experiments.statistics import mean_and_interval
from advmdp.solvers import upper_occupancy
from advmdp.testing import check_learner
from advmdp.theory import bounds
from tests.learners.test_overlap import trajectories
from tests.learners.test_reps import episodes_of
from tests.solvers.test_tsallis import flow_matrix
from tests.strategies import random_kernels

TINY = make_world("random-mixture", layer_sizes=(1, 2, 3, 1), n_actions=2, dim=2, seed=1)


def slow_leader(kernels, sizes, n_actions, cost):
    """q = r^-2 by damped Newton on dense matrices, from prices far below all costs; nothing of the library.

    States that nothing leads to have q = 0.
    """
    flow = flow_matrix(kernels, sizes, n_actions)
    reached = np.eye(flow.shape[1])[0] > 0.0
    for s in range(flow.shape[1]):
        if reached[s]:
            reached |= (flow[s * n_actions : (s + 1) * n_actions] < 0.0).any(axis=0)
    pairs = np.repeat(reached, n_actions)
    A, c = flow[pairs][:, reached], cost[pairs]
    V, depth = np.zeros(A.shape[1]), 0.0
    for h in reversed(range(len(sizes) - 1)):  # deeper and deeper towards the start: every r is positive
        depth = 2.0 * depth + 10.0 + np.abs(cost).max()
        first = sum(sizes[:h])
        V[np.cumsum(reached)[first : first + sizes[h]][reached[first : first + sizes[h]]] - 1] = -depth
    source = np.eye(A.shape[1])[0]

    def dual(V):
        r = c - A @ V
        return V[0] - (1.0 / r).sum() if (r > 0.0).all() else -np.inf

    assert dual(V) > -np.inf
    for _ in range(500):
        r = c - A @ V
        gradient = source - A.T @ r**-2.0
        if np.abs(gradient).max() < 1e-13:
            break
        move, length = np.linalg.solve(A.T @ (2.0 * r[:, None] ** -3.0 * A), gradient), 1.0
        while not dual(V + length * move) >= dual(V) - 1e-15 and length > 1e-9:
            length /= 2.0
        V = V + length * move
    q = np.zeros(cost.size)
    q[pairs] = (c - A @ V) ** -2.0
    return q


@pytest.mark.parametrize("seed", range(3))
def test_the_run_equals_a_slow_reference_that_keeps_its_own_state(seed):
    rng = np.random.default_rng(seed)
    sizes = [1, *rng.integers(1, 4, size=rng.integers(1, 4)).tolist(), 1]
    world = LayeredMDP(random_kernels(rng, sizes, 2))
    learner, totals, k = make_learner("tsallis-reps", world), np.zeros(world.layers.n_pairs), 1
    for episode in episodes_of(learner, world, 40, seed=seed):
        q = slow_leader(world.kernels, sizes, 2, totals / np.sqrt(k))
        np.testing.assert_allclose(world.layers.flatten(learner.q), q, atol=1e-9)
        pairs = world.layers.pair_offsets[:-1] + np.asarray(episode.states) * 2 + np.asarray(episode.actions)
        totals[pairs] += np.asarray(episode.losses) / q[pairs]
        k += 1
    assert 0.0 <= learner.certificate <= 1e-9


def test_with_one_layer_it_is_tsallis_inf():
    """w_i = 4 / (eta' (Lhat_i - x))^2 with eta' = 2 / sqrt(k), the weights of Zimmert and Seldin."""
    world = LayeredMDP([np.ones((1, 4, 1))])
    learner, totals = make_learner("tsallis-reps", world), np.zeros(4)
    for k, episode in enumerate(episodes_of(learner, world, 60), start=1):
        eta, low, high = 2.0 / np.sqrt(k), totals.min() - 2.0 * np.sqrt(k), totals.min() - 1e-9
        for _ in range(100):
            x = 0.5 * (low + high)
            low, high = (x, high) if (4.0 / (eta * (totals - x)) ** 2).sum() < 1.0 else (low, x)
        weights = 4.0 / (eta * (totals - low)) ** 2
        np.testing.assert_allclose(learner.policy[0][0], weights, atol=1e-9)
        action = int(np.asarray(episode.actions)[0])
        totals[action] += float(np.asarray(episode.losses)[0]) / weights[action]


def test_the_estimate_is_unbiased_over_all_episodes():
    losses = np.random.default_rng(0).random(TINY.layers.n_pairs)
    learner, expected = make_learner("tsallis-reps", TINY), np.zeros(TINY.layers.n_pairs)
    flat, moment = learner.flat_policy, learner.state()
    for states, actions, chance in trajectories(TINY.kernels, TINY.horizon, 2):
        pairs = TINY.layers.pair_offsets[:-1] + states * 2 + actions
        learner.set_state(moment)
        learner.update(Episode(states, actions, losses[pairs]))
        expected += chance * flat[pairs].prod() * TINY.layers.flatten(learner.loss_estimate)
    np.testing.assert_allclose(expected, losses, rtol=1e-9)


def test_no_number_of_episodes_enters_and_eta_is_a_factor():
    policies = []
    for episodes in (None, 50, 10_000):
        learner = make_learner("tsallis-reps", TINY, episodes)
        for k, _ in enumerate(episodes_of(learner, TINY, 20)):
            assert learner.step_size == pytest.approx(1.0 / np.sqrt(k + 1))
        policies.append(learner.flat_policy)
    assert all(np.array_equal(policies[0], other) for other in policies[1:])
    assert make_learner("tsallis-reps", TINY, eta=3.0).step_size == 3.0
    with pytest.raises(InvalidSpecError, match=r"eta is 0\.0, should be a number > 0"):
        make_learner("tsallis-reps", TINY, eta=0.0)


@pytest.mark.parametrize("name", ["tsallis-reps", "tsallis-reps-optimistic"])
def test_they_conform_and_a_start_policy_is_where_they_begin(name):
    check_learner(lambda problem, episodes, seed: make_learner(name, problem, episodes, seed=seed))
    if name == "tsallis-reps":
        today = [np.tile([0.95, 0.05], (n, 1)) for n in TINY.layer_sizes[:-1]]
        begun = make_learner(name, TINY, start=today)
        usual = make_learner(name, TINY)
        q_0 = 0.9 * TINY.layers.flatten(occupancy.occupancy_measure(TINY, today)) + 0.1 * TINY.layers.flatten(usual.q)
        np.testing.assert_allclose(TINY.layers.flatten(begun.q), q_0, atol=1e-9)


def final_regret(name, world, adversary, episodes, seed, **options):
    learner = make_learner(name, world, episodes, seed=seed, **options)
    result = run(world, learner, adversary, episodes, seed=seed, progress=False)
    return float(result.regret[-1]), float(result.frame["bound"].iloc[-1])


def test_regret_is_below_its_bound_on_average():
    episodes, regrets = 300, []
    for seed in range(8):
        adversary = make_adversary("switching", TINY, episodes, period=50, seed=seed)
        regret, bound = final_regret("tsallis-reps", TINY, adversary, episodes, seed)
        regrets.append(regret)
    assert bound == bounds.tsallis_reps(TINY.n_states, 2, TINY.horizon, episodes).value
    assert bound == pytest.approx((4 * np.sqrt(3 * 6 * 2) - 2 * 3) * np.sqrt(300))
    mean, half = mean_and_interval(np.array(regrets))
    assert mean + half <= bound


@pytest.mark.parametrize("kind", ["stochastic", "switching"])
def test_without_k_it_beats_o_reps_bandit_with_k(kind):
    """What is measured in docs/learners/o-reps.md, in small; theory has the same order without a logarithm."""
    world, differences = make_world("random-mixture", layer_sizes=(1, 4, 4, 1), n_actions=3, dim=2), []
    for seed in range(5):
        adversary = make_adversary(kind, world, 600, seed=seed)
        ours, theirs = (final_regret(n, world, adversary, 600, seed)[0] for n in ("tsallis-reps", "o-reps-bandit"))
        differences.append(ours - theirs)
    mean, half = mean_and_interval(np.array(differences))
    assert mean + half < 0.0


# ------------------------------------------------------------------------------------ unknown transition


@pytest.mark.parametrize("radius_scale", [1.0, 0.02])
def test_every_optimistic_step_equals_the_slow_reference(radius_scale):
    """Weights by the library's upper bounds, which have tests of their own; epochs, kernel and leader written out."""
    learner = make_learner("tsallis-reps-optimistic", TINY, radius_scale=radius_scale)
    totals, k, before, restarts = np.zeros(TINY.layers.n_pairs), 1, None, 0
    for episode in episodes_of(learner, TINY, 60):
        boxes, policy = learner.confidence_set, learner.policy
        if before is not None and boxes is not before:
            totals, k, restarts = np.zeros_like(totals), 1, restarts + 1
        before = boxes
        q = slow_leader(boxes.lower, TINY.layer_sizes, 2, totals / np.sqrt(k))
        expected = occupancy.policy_of(TINY.layers.split(q))
        for ours, theirs in zip(policy, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-8)
        for h, (s, a, loss) in enumerate(zip(episode.states, episode.actions, episode.losses, strict=True)):
            u = policy[h][s, a] * upper_occupancy(boxes, policy, [(h, s)])[0]
            totals[TINY.layers.pair_offsets[h] + s * 2 + a] += loss / u
        k += 1
    assert 5 < restarts < 60
    reached = np.exp(learner.moment.step.log_q) > 0.0
    assert reached.all() == (radius_scale < 1.0)  # otherwise the comparison would not have seen the later layers
    assert learner.q is None


def test_optimism_holds_for_every_policy_while_the_truth_is_in_the_set():
    """q under the lower ends is below the true one at every pair, so E <q~, lhat> <= <q, l>: by enumeration."""
    rng = np.random.default_rng(4)
    learner = make_learner("tsallis-reps-optimistic", TINY, radius_scale=0.1)
    for _ in episodes_of(learner, TINY, 300):
        pass
    boxes, played = learner.confidence_set, learner.policy
    assert boxes.contains(TINY.kernels)
    losses, lowered = rng.random(TINY.layers.n_pairs), 0.0
    expected, moment = np.zeros_like(losses), learner.state()
    for states, actions, chance in trajectories(TINY.kernels, TINY.horizon, 2):
        pairs = TINY.layers.pair_offsets[:-1] + states * 2 + actions
        learner.set_state(moment)
        learner.update(Episode(states, actions, losses[pairs]))
        expected += chance * learner._layers.flatten(played)[pairs].prod() * TINY.layers.flatten(learner.loss_estimate)
    assert (expected <= losses * (1 + 1e-9)).all()
    for choice in itertools.islice(itertools.product(range(2), repeat=TINY.layers.n_pairs // 2), 64):
        policy = np.eye(2)[list(choice)].ravel()
        truth = TINY.layers.flatten(occupancy.occupancy_measure(TINY, TINY.layers.split(policy)))
        lower = np.zeros_like(truth)
        lower[:2] = policy[:2]
        for h, table in enumerate(boxes.lower[:-1]):
            here, there = TINY.layers.pair_offsets[h : h + 2]
            inflow = lower[here:there] @ np.asarray(table).reshape(there - here, -1)
            lower[there : TINY.layers.pair_offsets[h + 2]] = (
                np.repeat(inflow, 2) * policy[there : TINY.layers.pair_offsets[h + 2]]
            )
        assert (lower <= truth + 1e-12).all()
        assert lower @ expected <= truth @ losses + 1e-9
        lowered = max(lowered, float((truth - lower).max()))
    assert lowered > 0.01
