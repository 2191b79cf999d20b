"""UOB-, LSUOB- and VLSUOB-REPS: every step against a conic solver, invariants, special cases, coverage."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from advmdp import InvalidSpecError, TabularModel, make_adversary, make_learner, make_world, occupancy, run
from advmdp.confidence import KnownKernels
from advmdp.episodes import play
from advmdp.learners.reps import RepsLearner
from advmdp.solvers import lower_occupancy, mirror_descent_step, reference, upper_occupancy
from tests.test_registry import Secretive

TINY = make_world("random-mixture", layer_sizes=(1, 2, 3, 1), n_actions=2, dim=2, seed=1)
VARIANTS = {
    "vlsuob-reps": ("vlsuob-reps", {}),
    "vlsuob-reps, determinant": ("vlsuob-reps", {"radius": "determinant"}),
    "vlsuob-reps, uniform": ("vlsuob-reps", {"radius": "paper-uniform"}),
    "vlsuob-reps, boxes": ("vlsuob-reps", {"geometry": "box", "radius": "joint"}),
    "vlsuob-reps, triples": ("vlsuob-reps", {"geometry": "box", "entropy": "triples", "radius": "joint"}),
    "vlsuob-reps, narrow": ("vlsuob-reps", {"radius": "joint", "radius_scale": 0.2}),
    "vlsuob-reps-tight": ("vlsuob-reps-tight", {}),
    "lsuob-reps": ("lsuob-reps", {}),
    "lsuob-reps, boxes": ("lsuob-reps", {"geometry": "box"}),
    "uob-reps": ("uob-reps", {}),
}
each_variant = pytest.mark.parametrize(("name", "options"), VARIANTS.values(), ids=VARIANTS.keys())


def episodes_of(learner, mdp, episodes, seed=0, adversary="stochastic"):
    """Play, yielding the learner before and the episode it is about to be told."""
    losses = make_adversary(adversary, mdp, episodes, seed=seed)
    rng = np.random.default_rng(seed)
    for k in range(episodes):
        episode = play(mdp, learner.policy, losses.losses(k), rng, index=k)
        yield episode
        learner.update(episode)


def check_against_conic_solver(name, options, episodes, every):
    learner = make_learner(name, TINY, episodes, **options)
    learner_kernels = None
    previous = None
    for k, episode in enumerate(episodes_of(learner, TINY, episodes)):
        if previous is not None and k % every == 0:
            q, kernels, policy, before, told = previous
            visited = [
                reference.occupancy_bound(before, policy, h, s) * policy[h][s, a]
                for h, (s, a) in enumerate(zip(told.states, told.actions, strict=True))
            ]
            expected = np.zeros(TINY.layers.n_pairs)
            for h, (s, a) in enumerate(zip(told.states, told.actions, strict=True)):
                pair = TINY.layers.pair_offsets[h] + 2 * s + a
                expected[pair] = told.losses[h] / (visited[h] + learner.exploration)
            estimate = TINY.layers.flatten(learner.loss_estimate)
            np.testing.assert_allclose(estimate, expected, rtol=1e-5, atol=1e-7)
            step = reference.mirror_step(
                learner.confidence_set, q, TINY.layers.split(estimate), learner.step_size, kernels=kernels
            )
            assert learner.last_step.value == pytest.approx(step.value, abs=1e-7)
            for ours, theirs in zip(learner.q, step.q, strict=True):
                np.testing.assert_allclose(ours, theirs, atol=1e-4)
        if learner.entropy == "triples":
            learner_kernels = [table.copy() for table in learner._kernels]
        previous = (learner.q, learner_kernels, learner.policy, learner.confidence_set, episode)


@each_variant
def test_steps_equal_a_conic_solver_restarted_from_the_learners_own_state(name, options):
    check_against_conic_solver(name, options, 40, every=5)


@pytest.mark.slow
@each_variant
def test_every_step_of_a_longer_run_equals_a_conic_solver(name, options):
    check_against_conic_solver(name, options, 200, every=1)


@each_variant
def test_the_occupancy_measure_stays_below_its_upper_bound(name, options):
    """q_k <= u_k at every state, whatever the data; and sum u lhat <= H."""
    learner = make_learner(name, TINY, 60, **options)
    for _ in episodes_of(learner, TINY, 60):
        upper = upper_occupancy(learner.confidence_set, learner.policy)
        for table, u in zip(learner.q, upper, strict=True):
            assert (table.sum(axis=1) <= u + 1e-9).all()
            assert table.sum() == pytest.approx(1.0, abs=1e-12)


@each_variant
def test_optimism_on_the_confidence_event(name, options):
    """Where the truth is in the set, the true occupancy lies between the lower and the upper bound."""
    learner = make_learner(name, TINY, 40, **options)
    inside = 0
    for _ in episodes_of(learner, TINY, 40):
        if learner.confidence_set.contains(TINY.kernels, 1e-7):
            inside += 1
            q = occupancy.occupancy_measure(TINY, learner.policy)
            upper = upper_occupancy(learner.confidence_set, learner.policy)
            lower = lower_occupancy(learner.confidence_set, learner.policy)
            for table, low, high in zip(q, lower, upper, strict=True):
                assert (table.sum(axis=1) <= high + 1e-7).all()
                assert (table.sum(axis=1) >= low - 1e-7).all()
    assert inside >= 20


def test_the_set_of_the_main_text_would_break_the_bound():
    """Mirror steps over P_k instead of P_{k+1} leave q_{k+1} above u_{k+1} somewhere: the reason for E1."""

    class Printed(type(make_learner("vlsuob-reps", TINY, 1))):
        def _learn(self, episode):
            before, log_q = self._set, self._log_q
            super()._learn(episode)
            step = mirror_descent_step(
                before,
                self._layers.split(np.exp(log_q)),
                self.loss_estimate,
                self.step_size,
                log_q=self._layers.split(log_q),
                kernels=self._kernels,
            )
            self._take(step)

    excess = 0.0
    for seed in range(4):
        learner = Printed(TINY.model, 60, radius="joint", radius_scale=0.3)
        for _ in episodes_of(learner, TINY, 60, seed=seed):
            upper = upper_occupancy(learner.confidence_set, learner.policy)
            for table, u in zip(learner.q, upper, strict=True):
                excess = max(excess, float((table.sum(axis=1) - u).max()))
    assert excess > 1e-4


def test_with_one_layer_it_is_exp3_ix():
    """H = 1: q is the softmax of -eta times the summed loss estimates."""
    world = make_world("random-mixture", layer_sizes=(1, 1), n_actions=4, dim=1)
    learner = make_learner("vlsuob-reps", world, 50)
    total = np.zeros(4)
    for episode in episodes_of(learner, world, 50):
        weights = np.exp(-learner.step_size * (total - total.min()))
        np.testing.assert_allclose(learner.policy[0][0], weights / weights.sum(), atol=1e-9)
        action = episode.actions[0]
        total[action] += episode.losses[0] / (learner.policy[0][0, action] + learner.exploration)


def test_with_known_kernels_it_is_bandit_o_reps():
    """Sets that hold the truth alone: u = q, and each step is O-REPS's on the true kernels."""

    class Known(RepsLearner):
        name = "known"

        def __init__(self, mdp, episodes):
            self.truth = KnownKernels(mdp.kernels)
            super().__init__(mdp.model, episodes, eta=None, gamma=0.0, zeta=0.05, entropy="pairs", seed=0)

        def _empty_estimator(self):
            return None

        def _estimator_with(self, episode):
            return None

        def _set_of(self, estimator, k):
            return self.truth

        def _estimator_tree(self):
            return {}

        def _estimator_from(self, tree):
            return None

    learner = Known(TINY, 30)
    for k, episode in enumerate(episodes_of(learner, TINY, 30)):
        if k == 0:
            continue
        q = occupancy.occupancy_measure(TINY, learner.policy)
        for ours, true in zip(learner.q, q, strict=True):
            np.testing.assert_allclose(ours, true, atol=1e-9)
        h, s, a = 1, episode.states[1], episode.actions[1]
        policy, before = learner.policy, learner.confidence_set
        assert before is learner.truth
        u = upper_occupancy(before, policy, [(h, s)])[0] * policy[h][s, a]
        assert u == pytest.approx(q[h][s, a], abs=1e-12)


@pytest.mark.parametrize("name", ["vlsuob-reps", "vlsuob-reps-tight", "lsuob-reps", "uob-reps"])
def test_a_learner_needs_a_model_only(name):
    for problem in (TINY.model, Secretive(TINY)):
        learner = make_learner(name, problem, 5)
        for _ in episodes_of(learner, TINY, 5):
            pass
        assert learner.episodes_seen == 5


def test_constants_are_those_of_the_theorem():
    learner = make_learner("vlsuob-reps", TINY, 1000)
    n_states, n_actions, horizon = TINY.n_states, TINY.n_actions, TINY.horizon
    expected = np.sqrt(horizon * np.log(horizon * n_states * n_actions / 0.05) / (1000 * n_states * n_actions))
    assert learner.step_size == pytest.approx(expected)
    assert learner.exploration == pytest.approx(expected)
    assert learner.zeta == 0.05
    assert make_learner("vlsuob-reps", TINY, 1000, eta=0.5, gamma=0.1).step_size == 0.5
    for k in (1, 2, 7):
        assert learner._regularisation(k) == pytest.approx(1.0 if k == 1 else 2 * np.log(k * n_states))


def test_updates_beyond_the_horizon_warn_once():
    learner = make_learner("vlsuob-reps-tight", TINY, 3)
    generator = episodes_of(learner, TINY, 6)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in generator:
            pass
    assert [str(w.message).startswith("learner 'vlsuob-reps-tight' was made for 3") for w in caught] == [True]


def test_an_empty_set_is_enlarged_and_counted():
    learner = make_learner("vlsuob-reps", TINY, 50, radius="joint", radius_scale=1e-3)
    for _ in episodes_of(learner, TINY, 50):
        assert len(learner.confidence_set.empty_pairs()) == 0
    assert learner.empty_sets > 0
    wide = make_learner("vlsuob-reps", TINY, 50)
    for _ in episodes_of(wide, TINY, 50):
        pass
    assert wide.empty_sets == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"geometry": "ball"}, "geometry is 'ball', should be 'ellipsoid' or 'box'"),
        ({"entropy": "triples"}, "entropy 'triples' goes with geometry 'box'"),
        ({"radius": "huge"}, "radius is 'huge', should be one of paper"),
        ({"radius_scale": 0.0}, "radius_scale is 0.0"),
        ({"eta": -1.0}, "eta is -1.0"),
        ({"zeta": 1.0}, "zeta is 1.0"),
        ({"lam": 0.0}, "lam is 0.0"),
        ({"geometry": "box", "simplex": True}, "simplex=True needs geometry 'ellipsoid'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InvalidSpecError, match=message):
        make_learner("vlsuob-reps", TINY, 10, **options)


@pytest.mark.parametrize("name", ["vlsuob-reps", "vlsuob-reps-tight", "lsuob-reps"])
def test_linear_mixture_learners_refuse_a_tabular_model(name):
    with pytest.raises(InvalidSpecError, match=f"learner '{name}' needs a LinearMixtureModel"):
        make_learner(name, TabularModel((1, 2, 1), 2), 10)


def coverage(name, options, runs, episodes):
    """Share of runs in which the truth was ever outside the set."""
    missed = 0
    for seed in range(runs):
        world = make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=2, dim=2, seed=seed)
        learner = make_learner(name, world, episodes, **options)
        outside = False
        for _ in episodes_of(learner, world, episodes, seed=seed):
            if learner.radii is None:
                continue
            estimate = learner.estimate
            for h, radius in enumerate(learner.radii):
                error = world.theta[h] - estimate.centres[h]
                outside = outside or np.sqrt(error @ estimate.grams[h] @ error) > radius
        missed += outside
    return missed / runs


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vlsuob-reps", "vlsuob-reps-tight", "lsuob-reps"])
def test_the_truth_stays_in_the_sets_of_full_runs(name):
    assert coverage(name, {}, 50, 150) <= 0.05


@pytest.mark.slow
def test_the_coverage_harness_notices_sets_that_are_too_small():
    assert coverage("vlsuob-reps-tight", {"radius_scale": 0.1}, 20, 100) > 0.5


@pytest.mark.slow
def test_average_regret_falls_with_the_constants_of_the_theory():
    """Layers 1-4-4-4-1, A = 4, d = 2, Bernoulli losses, seeds 0-9."""
    averages = {}
    for episodes in (2000, 8000):
        for name in ("vlsuob-reps", "uniform"):
            regrets = []
            for seed in range(10):
                world = make_world("random-mixture", layer_sizes=(1, 4, 4, 4, 1), n_actions=4, dim=2, seed=seed)
                adversary = make_adversary("stochastic", world, episodes, seed=seed)
                learner = make_learner(name, world, episodes, seed=seed)
                regrets.append(run(world, learner, adversary, episodes, seed=seed).regret[-1])
            averages[name, episodes] = np.mean(regrets) / episodes
    assert averages["vlsuob-reps", 8000] <= 0.7 * averages["vlsuob-reps", 2000]
    assert averages["vlsuob-reps", 8000] < 0.5 * averages["uniform", 8000]
