"""UC-O-REPS and its bandit version: a second implementation in CVXPY, coverage, bounds, orderings."""

from __future__ import annotations

import warnings
from itertools import pairwise

import cvxpy
import numpy as np
import pytest
from scipy import stats

from advmdp import LayeredMDP, load_learner, make_learner, make_world, play, storage
from advmdp.adversaries import make_adversary
from advmdp.confidence import radii
from advmdp.errors import CorruptCheckpointError, InvalidSpecError
from advmdp.experiments.statistics import mean_and_interval
from advmdp.theory import bounds
from tests.learners.test_o_reps import final_regret
from tests.learners.test_reps import episodes_of
from tests.strategies import random_kernels

WORLD = LayeredMDP(random_kernels(np.random.default_rng(3), [1, 2, 3, 1], 2))
VARIANTS = {
    "uc-o-reps": ("uc-o-reps", {}),
    "uc-o-reps, narrow": ("uc-o-reps", {"radius_scale": 0.1}),
    "bandit": ("bandit-uc-o-reps", {}),
    "bandit, narrow": ("bandit-uc-o-reps", {"radius_scale": 0.1}),
    "bandit, shifted": ("bandit-uc-o-reps", {"shift": 0.2, "radius_scale": 0.2}),
}
each_variant = pytest.mark.parametrize(("name", "options"), VARIANTS.values(), ids=VARIANTS.keys())


def recounted(history, world):
    """N(s, a, s') at the beginning of the current epoch, from the whole history."""
    now = [np.zeros((n, world.n_actions, m)) for n, m in pairwise(world.layer_sizes[:-1])]
    then = [table.copy() for table in now]
    for states, actions in history:
        for h, table in enumerate(now):
            table[states[h], actions[h], states[h + 1]] += 1
        visits = [(new.sum(axis=2), old.sum(axis=2)) for new, old in zip(now, then, strict=True)]
        if any(((new >= np.maximum(1, 2 * old)) & (new > old)).any() for new, old in visits):
            then = [table.copy() for table in now]
    return then


def conic_step(world, counts, learner, w, loss):
    """argmin eta <q, lhat> + sum w' log(w' / w) over triple measures w' whose rows are in the sets, in CVXPY."""
    S, A, K = world.n_states, world.n_actions, learner.episodes
    constraints, objective, triples = [], 0.0, []
    inflow = np.ones(1)
    for h, (n, m) in enumerate(pairwise(world.layer_sizes)):
        new = cvxpy.Variable((n * A, m), nonneg=True)
        q = cvxpy.sum(new, axis=1)
        constraints.append(cvxpy.sum(cvxpy.reshape(q, (n, A), order="C"), axis=1) == inflow)
        if h < world.horizon - 1:
            visits = counts[h].sum(axis=2).reshape(n * A, 1)
            centre = np.where(visits > 0, counts[h].reshape(n * A, m) / np.maximum(1, visits), 1 / m)
            radius = learner.radius_scale * np.sqrt(2 * m * np.log(K * S * A / 0.05) / np.maximum(1, visits))
            radius = np.where(visits > 0, np.minimum(radius, 2), 2)
            column = cvxpy.reshape(q, (n * A, 1), order="C")
            shift = getattr(learner, "shift", 0.0)
            if shift:
                for side, compare in ((-1, lambda x, y: x >= y), (1, lambda x, y: x <= y)):
                    bound = (1 - shift) * np.clip(centre + side * radius / 2, 0, 1) + shift / m
                    constraints.append(compare(new, cvxpy.multiply(bound, column)))
            else:
                away = cvxpy.sum(cvxpy.abs(new - cvxpy.multiply(centre, column)), axis=1)
                constraints.append(away <= cvxpy.multiply(radius[:, 0], q))
        # w' log(w' / w) with log w in the linear part: a conic solver does not like tiny numbers in its cones.
        objective += learner.step_size * (loss[h].ravel() @ q) - cvxpy.sum(cvxpy.entr(new))
        objective -= cvxpy.sum(cvxpy.multiply(np.log(w[h].reshape(n * A, m)), new))
        triples.append(new)
        inflow = cvxpy.sum(new, axis=0)
    problem = cvxpy.Problem(cvxpy.Minimize(objective), constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 'almost solved': the comparison below decides
        problem.solve(solver=cvxpy.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return float(problem.value), [new.value for new in triples]


def check_against_conic_programme(name, options, episodes, every):
    learner = make_learner(name, WORLD, episodes, **options)
    losses = make_adversary("stochastic", WORLD, episodes)
    rng = np.random.default_rng(0)
    history = []
    for k in range(episodes):
        q, kernels, floor = learner.q, [table.copy() for table in learner._kernels], learner.step_size / 10
        episode = play(WORLD, learner.policy, losses.losses(k), rng, index=k)
        learner.update(episode)
        history.append((episode.states, episode.actions))
        if name == "uc-o-reps":
            loss = [np.asarray(table) for table in episode.loss_table]
        else:
            loss = [np.zeros_like(table) for table in q]
            for h, (s, a) in enumerate(zip(episode.states, episode.actions, strict=True)):
                loss[h][s, a] = episode.losses[h] / max(q[h][s, a], floor)
        for ours, theirs in zip(learner.loss_estimate, loss, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9)
        if k % every == 0:
            w = [table[:, :, None] * rows for table, rows in zip(q, kernels, strict=True)]
            value, triples = conic_step(WORLD, recounted(history, WORLD), learner, w, loss)
            assert learner.last_step.value == pytest.approx(value, abs=1e-6)
            for h, theirs in enumerate(triples):
                ours = learner.q[h][:, :, None] * learner._kernels[h]
                np.testing.assert_allclose(ours.reshape(theirs.shape), theirs, atol=2e-4)


@each_variant
def test_steps_equal_a_conic_programme_built_from_the_whole_history(name, options):
    check_against_conic_programme(name, options, 60, every=4)


@pytest.mark.slow
@each_variant
def test_every_step_equals_a_conic_programme(name, options):
    check_against_conic_programme(name, options, 100, every=1)


@each_variant
def test_the_kernel_of_the_iterate_is_in_its_set(name, options):
    learner = make_learner(name, WORLD, 80, **options)
    for _ in episodes_of(learner, WORLD, 80):
        assert learner.confidence_set.contains(learner._kernels, 1e-7)
        assert learner.empty_sets == 0


def test_a_shift_makes_every_state_reachable():
    learner = make_learner("bandit-uc-o-reps", WORLD, 100, shift=0.3)
    for _ in episodes_of(learner, WORLD, 100):
        for table in learner.q:
            assert (table.sum(axis=1) >= 0.3 / len(table) - 1e-9).all()


def test_the_shift_of_the_theory():
    S, A, H = WORLD.n_states, WORLD.n_actions, WORLD.horizon
    assert make_learner("bandit-uc-o-reps", WORLD, 100, shift="theory").shift_in_force == 1.0
    many = 10**8
    expected = S * A**0.25 / (H**0.5 * many**0.25)
    assert make_learner("bandit-uc-o-reps", WORLD, many, shift="theory").shift_in_force == pytest.approx(expected)
    assert make_learner("bandit-uc-o-reps", WORLD, many).shift_in_force == 0.0


def test_the_floor_is_counted_and_saved(tmp_path):
    """A world with a state that is hardly reachable in the learner's eyes and often in truth: the floor must act."""
    world = make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=3, dim=2)
    learner = make_learner("bandit-uc-o-reps", world, 600)
    for _ in episodes_of(learner, world, 600):
        pass
    assert learner.floored > 0
    assert max(float(table.max()) for table in learner.loss_estimate) <= 10 / learner.step_size
    path = tmp_path / "learner.npz"
    learner.save(path)
    assert load_learner(path).floored == learner.floored
    tree = storage.read(path, "learner")
    storage.write(path, "learner", {**tree, "state": {**tree["state"], "floored": -1}})
    with pytest.raises(CorruptCheckpointError, match="floored is -1"):
        load_learner(path)


def test_the_radius_covers_weissmans_inequality():
    """m log 2 + log(K S A / zeta) <= m log(K S A / zeta) for all m >= 2 and K S A / zeta >= 4."""
    for m in (2, 3, 10):
        for episodes in (1, 10, 10_000):
            radius = radii.weissman(np.array([0.0, 1.0, 7.0]), m, episodes, 4, 2, 0.5)
            needed = np.sqrt(2 * (m * np.log(2) + np.log(episodes * 8 / 0.5)) / np.array([1, 1, 7]))
            assert (radius >= needed - 1e-12).all()


def misses(name, options, runs, episodes):
    """Share of runs in which the truth was ever outside the set."""
    missed = 0
    for seed in range(runs):
        world = LayeredMDP(random_kernels(np.random.default_rng(seed), [1, 3, 3, 1], 2))
        learner = make_learner(name, world, episodes, **options)
        outside = False
        for _ in episodes_of(learner, world, episodes, seed=seed):
            outside = outside or not learner.confidence_set.contains(world.kernels)
        missed += outside
    return missed / runs


@pytest.mark.parametrize("name", ["uc-o-reps", "bandit-uc-o-reps"])
def test_the_truth_stays_in_the_sets(name):
    assert misses(name, {"zeta": 0.2}, 12, 60) == 0.0
    assert misses(name, {"radius_scale": 0.1}, 6, 60) > 0.5


@pytest.mark.slow
def test_the_truth_stays_in_the_sets_of_many_runs():
    assert misses("uc-o-reps", {}, 100, 200) <= 0.05


def test_constants():
    S, A, H, K = WORLD.n_states, WORLD.n_actions, WORLD.horizon, 500
    divergence = np.log(S**2 * A / H**2)
    assert make_learner("uc-o-reps", WORLD, K).step_size == pytest.approx(np.sqrt(divergence / K))
    bandit = make_learner("bandit-uc-o-reps", WORLD, K)
    assert bandit.step_size == pytest.approx(np.sqrt(H * divergence / (K * S * A)))


@pytest.mark.parametrize("shift", [-0.1, 1.5, "often"])
def test_a_shift_is_a_probability(shift):
    with pytest.raises(InvalidSpecError, match=r"shift is .*, should be a number from 0 to 1, or 'theory'"):
        make_learner("bandit-uc-o-reps", WORLD, 10, shift=shift)


@pytest.mark.parametrize("adversary", ["stochastic", "switching"])
def test_regret_is_below_its_bound(adversary):
    """At this length the bound is far above H K, so that only its mirror-descent part says anything here."""
    world = make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=2, dim=2)
    regret, bound = final_regret("uc-o-reps", world, make_adversary(adversary, world, 300), 300, 0)
    sizes = (world.n_states, 2, world.horizon, 300)
    assert bound == bounds.uc_o_reps(*sizes).value
    assert regret <= dict(bounds.uc_o_reps(*sizes).terms)["REGRET"]
    regret, _ = final_regret("bandit-uc-o-reps", world, make_adversary(adversary, world, 300), 300, 0)
    assert regret <= bounds.bandit_uc_o_reps(*sizes).value


def test_regret_per_episode_falls_with_the_number_of_episodes():
    world = make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=2, dim=2)
    falls = []
    for seed in range(5):
        adversary = make_adversary("stochastic", world, 1600, seed=seed)
        averages = [final_regret("uc-o-reps", world, adversary, K, seed)[0] / K for K in (100, 1600)]
        falls.append(averages[1] - 0.6 * averages[0])
    mean, half = mean_and_interval(np.array(falls))
    assert mean + half < 0.0


def test_full_information_means_less_regret():
    world = make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=3, dim=2)
    regrets = [
        [final_regret(name, world, make_adversary("stochastic", world, 400, seed=seed), 400, seed)[0]
         for name in ("uc-o-reps", "bandit-uc-o-reps")]
        for seed in range(6)
    ]  # fmt: skip
    assert stats.ttest_rel(*np.transpose(regrets), alternative="less").pvalue < 1e-3
