"""O-REPS with full information and with bandit feedback: slow references, special cases, bounds, orderings."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from advmdp import Episode, LayeredMDP, load_learner, make_adversary, make_learner, make_world, occupancy, run, storage
from advmdp.errors import CorruptCheckpointError, InvalidEpisodeError, InvalidSpecError
from advmdp.experiments.statistics import mean_and_interval
from advmdp.theory import bounds
from tests.learners.test_learners import Alternating
from tests.learners.test_reps import episodes_of
from tests.solvers import reference
from tests.strategies import random_kernels

TINY = make_world("random-mixture", layer_sizes=(1, 2, 3, 1), n_actions=2, dim=2, seed=1)
NAMES = ("o-reps", "o-reps-bandit")
both = pytest.mark.parametrize("name", NAMES)


def slow_step(kernels, q, loss, eta):
    """q(s, a) exp(V(s) - eta l(s, a) - (P V)(s, a)), V maximising V(s_0) - sum q: damped Newton on dense matrices.

    Plain numpy, nothing of the library.
    """
    starts = np.cumsum([0, *(len(table) for table in q)])
    rows = []
    for h, table in enumerate(q):
        for s, a in np.ndindex(table.shape):
            row = np.zeros(starts[-1])
            row[starts[h] + s] = 1.0
            if h + 1 < len(q):
                row[starts[h + 1] : starts[h + 2]] -= kernels[h][s, a]
            rows.append(row)
    flow = np.array(rows)
    prior = np.concatenate([(table * np.exp(-eta * cost)).ravel() for table, cost in zip(q, loss, strict=True)])
    V = np.zeros(starts[-1])

    def dual(V):
        return V[0] - (prior * np.exp(np.minimum(flow @ V, 500.0))).sum()

    for _ in range(200):
        mass = prior * np.exp(flow @ V)
        gradient = -flow.T @ mass
        gradient[0] += 1.0
        if np.abs(gradient).max() < 1e-13:
            break
        move, length = np.linalg.solve(flow.T @ (mass[:, None] * flow), gradient), 1.0
        while dual(V + length * move) < dual(V) - 1e-15 and length > 1e-6:
            length /= 2.0
        V = V + length * move
    flat = np.split(prior * np.exp(flow @ V), np.cumsum([table.size for table in q])[:-1])
    return [part.reshape(table.shape) for part, table in zip(flat, q, strict=True)]


def slow_learner(world, episodes, eta, estimate):
    """The whole algorithm on its own state; yields q_2, q_3, ...; ``estimate`` makes lhat_k from q_k."""
    q = [np.full((n, world.n_actions), 1.0 / (n * world.n_actions)) for n in world.layer_sizes[:-1]]
    q = slow_step(world.kernels, q, [np.zeros_like(table) for table in q], eta)
    for _ in range(episodes):
        q = slow_step(world.kernels, q, estimate(q), eta)
        yield q


@both
@pytest.mark.parametrize("seed", range(3))
def test_the_run_equals_a_slow_reference_that_keeps_its_own_state(name, seed):
    rng = np.random.default_rng(seed)
    sizes = [1, *rng.integers(1, 4, size=rng.integers(1, 4)), 1]
    world = LayeredMDP(random_kernels(rng, sizes, 2))
    H, S, A, K = world.horizon, world.n_states, 2, 60
    eta = np.sqrt(np.log(S * A / H) / K) if name == "o-reps" else np.sqrt(H * np.log(S * A / H) / (K * S * A))
    learner = make_learner(name, world, K)
    told = []

    def estimate(q):
        episode = told[-1]
        if name == "o-reps":
            return [np.asarray(table) for table in episode.loss_table]
        lhat = [np.zeros_like(table) for table in q]
        for h, (s, a) in enumerate(zip(episode.states, episode.actions, strict=True)):
            lhat[h][s, a] = episode.losses[h] / q[h][s, a]
        return lhat

    slow = slow_learner(world, K, eta, estimate)
    for episode in episodes_of(learner, world, K, seed=seed):
        if told:
            for ours, theirs in zip(learner.q, next(slow), strict=True):
                np.testing.assert_allclose(ours, theirs, atol=1e-9)
        told.append(episode)
    assert len(told) == K


@both
def test_steps_equal_a_conic_solver_restarted_from_the_learners_own_state(name):
    learner = make_learner(name, TINY, 50)
    q = None
    for _ in episodes_of(learner, TINY, 50):
        if q is not None:
            step = reference.mirror_step(learner.confidence_set, q, learner.loss_estimate, learner.step_size)
            assert learner.last_step.value == pytest.approx(step.value, abs=1e-7)
            for ours, theirs in zip(learner.q, step.q, strict=True):
                np.testing.assert_allclose(ours, theirs, atol=1e-4)
        q = learner.q


@both
def test_q_is_the_true_occupancy_measure_of_the_policy(name):
    world = make_world("grid", height=4, width=4)
    learner = make_learner(name, world, 40)
    for _ in episodes_of(learner, world, 40):
        for ours, true in zip(learner.q, occupancy.occupancy_measure(world, learner.policy), strict=True):
            np.testing.assert_allclose(ours, true, atol=1e-12)


def test_the_start_is_the_measure_of_greatest_entropy():
    """Nearest to the layer-uniform measure, which is not that of the uniform policy where states are rarely reached."""
    world = LayeredMDP(random_kernels(np.random.default_rng(5), [1, 3, 3, 1], 2))
    learner = make_learner("o-reps", world, 10)

    def entropy(q):
        return -sum(float((table * np.log(table)).sum()) for table in q)

    assert entropy(learner.q) > entropy(occupancy.occupancy_measure(world, occupancy.uniform_policy((1, 3, 3, 1), 2)))
    rng = np.random.default_rng(0)
    for _ in range(200):
        policy = occupancy.random_policy(world.layer_sizes, world.n_actions, rng)
        assert entropy(occupancy.occupancy_measure(world, policy)) <= entropy(learner.q) + 1e-9


def test_with_one_layer_it_is_hedge():
    world = make_world("random-mixture", layer_sizes=(1, 1), n_actions=4, dim=1)
    learner = make_learner("o-reps", world, 50)
    total = np.zeros(4)
    for episode in episodes_of(learner, world, 50):
        weights = np.exp(-learner.step_size * (total - total.min()))
        np.testing.assert_allclose(learner.policy[0][0], weights / weights.sum(), atol=1e-12)
        total += np.asarray(episode.loss_table[0][0])


def test_states_that_nothing_reaches_take_no_part():
    kernels = [np.array([[[0.5, 0.5, 0.0]] * 2]), np.ones((3, 2, 1))]
    world = LayeredMDP(kernels)
    for name in NAMES:
        learner = make_learner(name, world, 30)
        for _ in episodes_of(learner, world, 30):
            assert learner.q[1][2].tolist() == [0.0, 0.0]
            np.testing.assert_allclose(learner.policy[1][2], 0.5)


def test_the_estimate_is_unbiased_and_implicit_exploration_lowers_it():
    """A pair is visited with probability q: q lhat is the loss, or q / (q + gamma) of it."""
    losses = make_adversary("fixed", TINY, 10).losses(0)
    for gamma in (0.0, 0.1):
        for h, table in enumerate(make_learner("o-reps-bandit", TINY, 10).q):
            for (s, a), q in np.ndenumerate(table):
                learner = make_learner("o-reps-bandit", TINY, 10, gamma=gamma)
                states, actions = [0] * TINY.horizon, [0] * TINY.horizon
                states[h], actions[h] = s, a
                seen = [losses[g][states[g], actions[g]] for g in range(TINY.horizon)]
                learner.update(Episode(states, actions, seen))
                expected = losses[h][s, a] * q / (q + gamma)
                assert q * learner.loss_estimate[h][s, a] == pytest.approx(expected, rel=1e-9)


def test_an_episode_that_the_policy_never_plays_is_refused_where_its_probability_underflows():
    """With an absurd step and somebody else's actions 1 / q would overflow; the learner stays as it was."""
    learner = make_learner("o-reps-bandit", TINY, 10, eta=50.0)
    episode = Episode([0] * TINY.horizon, [0] * TINY.horizon, [1.0] * TINY.horizon)
    while min(learner.q[h][0, 0] for h in range(TINY.horizon)) > 1e-300:
        learner.update(episode)
    policy, seen = learner.policy, learner.episodes_seen
    with pytest.raises(InvalidEpisodeError, match=r"layer \d, state 0, action 0: .* probability .* gamma > 0"):
        learner.update(episode)
    assert seen == learner.episodes_seen >= 1
    for before, after in zip(policy, learner.policy, strict=True):
        np.testing.assert_array_equal(before, after)
    explorer = make_learner("o-reps-bandit", TINY, 10, eta=50.0, gamma=0.1)
    for _ in range(10):
        explorer.update(episode)


def test_constants_are_those_of_the_source():
    S, A, H, K = TINY.n_states, TINY.n_actions, TINY.horizon, 700
    assert make_learner("o-reps", TINY, K).step_size == pytest.approx(np.sqrt(np.log(S * A / H) / K))
    bandit = make_learner("o-reps-bandit", TINY, K)
    assert bandit.step_size == pytest.approx(np.sqrt(H * np.log(S * A / H) / (K * S * A)))
    assert bandit.gamma == 0.0
    assert make_learner("o-reps", TINY, K, eta=0.3).step_size == 0.3


@pytest.mark.parametrize(("name", "options"), [("o-reps", {"eta": 0.0}), ("o-reps-bandit", {"gamma": -1.0})])
def test_options_that_make_no_sense_are_refused(name, options):
    with pytest.raises(InvalidSpecError, match=rf"{next(iter(options))} is .*, should be a number"):
        make_learner(name, TINY, 10, **options)
    with pytest.raises(InvalidSpecError, match="needs an MDP"):
        make_learner(name, TINY.model, 10)


@both
def test_a_checkpoint_that_makes_no_sense_is_refused(name, tmp_path):
    path = tmp_path / "learner.npz"
    make_learner(name, TINY, 5).save(path)
    tree = storage.read(path, "learner")
    for change in ({"step": {"log_q": tree["state"]["step"]["log_q"] * 0.5}}, {"loss_estimate": np.ones(2)}):
        storage.write(path, "learner", {**tree, "state": {**tree["state"], **change}})
        with pytest.raises(CorruptCheckpointError, match="does not describe a learner"):
            load_learner(path)


def final_regret(name, world, adversary, episodes, seed):
    learner = make_learner(name, world, episodes, seed=seed)
    result = run(world, learner, adversary, episodes, seed=seed, progress=False)
    return float(result.regret[-1]), float(result.frame["bound"].iloc[-1])


@pytest.mark.parametrize("adversary", ["stochastic", "switching", "alternating", "fixed"])
def test_full_information_regret_is_below_its_bound_whatever_the_losses(adversary):
    """The bound is for every sequence of losses, with no probability in it; the proof needs 3/2 of its 2."""
    for seed, episodes in enumerate((20, 100, 400)):
        world = make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=2, dim=2, seed=seed)
        losses = (
            Alternating(world, episodes)
            if adversary == "alternating"
            else make_adversary(adversary, world, episodes, seed=seed)
        )
        regret, bound = final_regret("o-reps", world, losses, episodes, seed)
        assert bound == bounds.o_reps(world.n_states, 2, world.horizon, episodes).value < world.horizon * episodes
        assert regret <= 0.75 * bound


def test_bandit_regret_is_below_its_bound_on_average():
    episodes = 300
    regrets, all_bounds = zip(
        *(final_regret("o-reps-bandit", TINY, make_adversary("switching", TINY, episodes, period=50, seed=seed),
                       episodes, seed) for seed in range(12)), strict=True,
    )  # fmt: skip
    mean, half = mean_and_interval(np.array(regrets))
    assert all_bounds[0] == bounds.o_reps_bandit(TINY.n_states, 2, TINY.horizon, episodes).value
    assert mean + half <= all_bounds[0]


@both
def test_regret_per_episode_falls_with_the_number_of_episodes(name):
    """K 16 times as large, the same losses in the beginning; the difference with an interval over seeds."""
    world = make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=3, dim=2)
    falls = []
    for seed in range(6):
        adversary = make_adversary("stochastic", world, 2400, seed=seed)
        averages = [final_regret(name, world, adversary, K, seed)[0] / K for K in (150, 2400)]
        falls.append(averages[1] - 0.6 * averages[0])
    mean, half = mean_and_interval(np.array(falls))
    assert mean + half < 0.0


def test_more_knowledge_means_less_regret():
    """o-reps < o-reps-bandit < uob-reps, on the same losses; one-sided paired t-tests over seeds."""
    world = make_world("random-mixture", layer_sizes=(1, 4, 4, 1), n_actions=3, dim=2)
    names = ("o-reps", "o-reps-bandit", "uob-reps")
    regrets = np.array(
        [
            [final_regret(name, world, make_adversary("stochastic", world, 600, seed=s), 600, s)[0] for name in names]
            for s in range(6)
        ]
    )
    for better, worse in ((0, 1), (1, 2)):
        assert stats.ttest_rel(regrets[:, better], regrets[:, worse], alternative="less").pvalue < 1e-3
