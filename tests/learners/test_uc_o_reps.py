"""UC-O-REPS and its bandit version: a second implementation in plain numpy, coverage, bounds, orderings."""

from __future__ import annotations

import itertools
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from advmdp import LayeredMDP, load_learner, make_learner, make_world, storage
from advmdp.adversaries import make_adversary
from advmdp.confidence import radii
from advmdp.errors import CorruptCheckpointError, InvalidSpecError
from advmdp.experiments.statistics import mean_and_interval
from advmdp.theory import bounds
from tests.learners.test_o_reps import final_regret
from tests.learners.test_reps import episodes_of
from tests.strategies import random_kernels

WORLD = LayeredMDP(random_kernels(np.random.default_rng(3), [1, 2, 3, 1], 2))
#: On triples; errors may pile up over a run.
TOLERANCE = 1e-7
VARIANTS = {
    "uc-o-reps": ("uc-o-reps", {}),
    "uc-o-reps, narrow": ("uc-o-reps", {"radius_scale": 0.1}),
    "bandit": ("bandit-uc-o-reps", {}),
    "bandit, narrow": ("bandit-uc-o-reps", {"radius_scale": 0.1}),
    "bandit, shifted": ("bandit-uc-o-reps", {"shift": 0.2, "radius_scale": 0.2}),
}
each_variant = pytest.mark.parametrize(("name", "options"), VARIANTS.values(), ids=VARIANTS.keys())


def tuned(name, world, episodes):
    """eta of docs/learners/counting.md, written out."""
    S, A, H = world.n_states, world.n_actions, world.horizon
    divergence = np.log(S**2 * A / H**2)
    return np.sqrt(divergence / episodes) if name == "uc-o-reps" else np.sqrt(H * divergence / (episodes * S * A))


def ends(centre, radius, shift):
    """Lower and upper end of the shifted box."""
    return [(1 - shift) * np.clip(centre + side * radius / 2, 0, 1) + shift / len(centre) for side in (-1, 1)]


def masses_by_case(centre, radius, shift):
    """Every way in which a row of the set can be tight: (fixed entries, groups of free ones, mass of each group).

    In an l1 ball either nothing is, or radius / 2 of mass has moved from some entries to others and the rest is at the
    centre; in a box each entry is at its lower end, at its upper end, or free.
    """
    m = len(centre)
    everything = np.ones(m, bool)
    if not shift:
        yield np.zeros(m), [(everything, 1.0)]
        for case in itertools.product((-1, 0, 1), repeat=m):
            more, less = np.equal(case, 1), np.equal(case, -1)
            if more.any() and less.any() and centre[less].sum() > radius / 2:
                groups = [(more, centre[more].sum() + radius / 2), (less, centre[less].sum() - radius / 2)]
                yield np.where(more | less, 0.0, centre), groups
        return
    low, high = ends(centre, radius, shift)
    for case in itertools.product((-1, 0, 1), repeat=m):
        free = np.equal(case, 0)
        fixed = np.select([np.equal(case, -1), np.equal(case, 1)], [low, high], 0.0)
        if free.any() and fixed.sum() < 1.0:
            yield fixed, [(free, 1.0 - fixed.sum())]


def in_set(row, centre, radius, shift):
    if not shift:
        return np.abs(row - centre).sum() <= radius + 1e-12
    low, high = ends(centre, radius, shift)
    return (row >= low - 1e-12).all() and (row <= high + 1e-12).all()


def best_row(log_prior, value, centre, radius, shift):
    """argmin over rows P of the set of KL(P || prior) + <P, V>, by trying all cases; with minus its derivative in V."""
    best = np.inf, None, None
    log_weight = log_prior - value
    for fixed, groups in masses_by_case(centre, radius, shift):
        row, slope = fixed.copy(), np.zeros((len(fixed), len(fixed)))
        for group, mass in groups:
            part = np.where(group, np.exp(np.minimum(log_weight - log_weight[group].max(), 0.0)), 0.0)
            part *= mass / part.sum()
            row += part
            slope += np.diag(part) - np.outer(part, part) / mass
        if in_set(row, centre, radius, shift):
            score = sum(p * (np.log(p) - x) for p, x in zip(row, log_weight, strict=True) if p > 0.0)
            if score < best[0]:
                best = score, row, slope
    return best


def slow_step(w, cost, centres, widths, shift):
    """argmin <q, cost> + D(w' || w) over triple measures w' with rows in the sets: Newton's method on its dual.

    With V on the states, w'(s, a, .) = q exp(V(s) - cost - F) P, where P is the best row for V and F its score; V
    maximises V(s_0) - sum w'.  Plain numpy, nothing of the library.
    """
    starts = np.cumsum([0, *(len(table) for table in w)])

    def solve(V):
        triples, gradient, hessian = [np.zeros_like(table) for table in w], np.zeros(starts[-1]), 0.0
        gradient[0], total = 1.0, 0.0
        for h, table in enumerate(w):
            following = np.arange(starts[h + 1], starts[h + 2]) if h + 1 < len(w) else []
            for s, a in np.ndindex(table.shape[:2]):
                q = table[s, a].sum()
                value = V[following] if len(following) else np.zeros(1)
                score, row, slope = best_row(np.log(table[s, a] / q), value, centres[h][s, a], widths[h][s, a], shift)
                q *= np.exp(min(V[starts[h] + s] - cost[h][s, a] - score, 500.0))
                triples[h][s, a] = q * row
                direction, curvature = np.zeros(starts[-1]), np.zeros((starts[-1], starts[-1]))
                direction[starts[h] + s] = 1.0
                if len(following):
                    direction[following] -= row
                    curvature[np.ix_(following, following)] = slope
                total += q
                gradient -= q * direction
                hessian = hessian + q * (np.outer(direction, direction) + curvature)
        return V[0] - total, gradient, hessian, triples

    V = np.zeros(starts[-1])
    for _ in range(100):
        dual, gradient, hessian, triples = solve(V)
        # Some states have next to no mass: a unit of everything is a standard deviation of its own.
        scale = 1.0 / np.sqrt(np.diag(hessian))
        move = scale * np.linalg.solve(scale[:, None] * hessian * scale, scale * gradient)
        if np.abs(move).max() < 1e-9:
            return triples
        move *= min(1.0, 3.0 / np.abs(move).max())
        while solve(V + move)[0] < dual - 1e-14:
            move *= 0.5
        V = V + move
    raise AssertionError("Newton's method did not end")


class SlowLearner:
    """The whole algorithm on its own state: counts, epochs, sets, estimate and step, from the formulas of the docs."""

    def __init__(self, name, world, episodes, shift=0.0, radius_scale=1.0):
        self.name, self.world, self.episodes = name, world, episodes
        self.shift, self.scale, self.eta = shift, radius_scale, tuned(name, world, episodes)
        shapes = [(n, world.n_actions, m) for n, m in pairwise(world.layer_sizes)]
        self.w = [np.full(shape, 1.0 / np.prod(shape)) for shape in shapes]
        self.now = [np.zeros(shape) for shape in shapes]
        self.then = [np.zeros(shape) for shape in shapes]

    def sets(self):
        confidence = np.log(self.episodes * self.world.n_states * self.world.n_actions / 0.05)
        centres, widths = [], []
        for counts in self.then:
            m, visits = counts.shape[2], counts.sum(axis=2)
            radius = np.minimum(2.0, self.scale * np.sqrt(2 * m * confidence / np.maximum(1, visits)))
            centres.append(np.where(visits[..., None] > 0, counts / np.maximum(1, visits)[..., None], 1 / m))
            widths.append(np.where(visits > 0, radius, 2.0))
        return centres, widths

    def learn(self, episode):
        if self.name == "uc-o-reps":
            loss = [np.asarray(table) for table in episode.loss_table]
        else:
            loss = [np.zeros(table.shape[:2]) for table in self.w]
            for h, (s, a) in enumerate(zip(episode.states, episode.actions, strict=True)):
                loss[h][s, a] = episode.losses[h] / max(self.w[h][s, a].sum(), self.eta / 10)
        for h, table in enumerate(self.now[:-1]):
            table[episode.states[h], episode.actions[h], episode.states[h + 1]] += 1
        visits = [(new.sum(axis=2), old.sum(axis=2)) for new, old in zip(self.now, self.then, strict=True)]
        if any(((new >= np.maximum(1, 2 * old)) & (new > old)).any() for new, old in visits):
            self.then = [table.copy() for table in self.now]
        self.w = slow_step(self.w, [self.eta * table for table in loss], *self.sets(), self.shift)


def check_against_slow_learner(name, options, seed, episodes):
    rng = np.random.default_rng(seed)
    sizes = [1, *rng.integers(2, 4, size=rng.integers(1, 3)), 1]
    world = LayeredMDP(random_kernels(rng, sizes, 2))
    learner, slow = make_learner(name, world, episodes, **options), SlowLearner(name, world, episodes, **options)
    assert learner.step_size == pytest.approx(slow.eta, rel=1e-12)
    for table in learner.q:
        np.testing.assert_allclose(table, 1.0 / table.size, rtol=1e-12)
    for episode in episodes_of(learner, world, episodes, seed=seed):
        compare(learner, slow)
        slow.learn(episode)
    compare(learner, slow)


def compare(learner, slow):
    for h, theirs in enumerate(slow.w):
        ours = learner.q[h][:, :, None] * learner._now.state.step.kernels[h]
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE)


@each_variant
def test_the_run_equals_a_slow_reference_that_keeps_its_own_state(name, options):
    check_against_slow_learner(name, options, seed=1, episodes=15)


@pytest.mark.slow
@each_variant
@pytest.mark.parametrize("seed", range(3))
def test_long_runs_equal_a_slow_reference_that_keeps_its_own_state(name, options, seed):
    check_against_slow_learner(name, options, seed, episodes=80)


@each_variant
def test_the_kernel_of_the_iterate_is_in_its_set(name, options):
    learner = make_learner(name, WORLD, 80, **options)
    for _ in episodes_of(learner, WORLD, 80):
        assert learner.confidence_set.contains(learner._now.state.step.kernels, 1e-7)
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
        assert max(float(table.max()) for table in learner.loss_estimate) <= 10 / learner.step_size
    assert learner.floored > 0
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


@pytest.mark.parametrize("shift", [-0.1, 1.5, float("nan"), "often", True, None])
def test_a_shift_is_a_probability(shift):
    with pytest.raises(InvalidSpecError, match=r"shift is .*, should be a number from 0 to 1, or 'theory'"):
        make_learner("bandit-uc-o-reps", WORLD, 10, shift=shift)


@pytest.mark.parametrize("adversary", ["stochastic", "switching"])
def test_regret_is_below_its_bound(adversary):
    """At this length the bounds are above H K, the regret of any learner, and show nothing; the mirror-descent part of
    that of uc-o-reps does.
    """
    world = make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=2, dim=2)
    regret, bound = final_regret("uc-o-reps", world, make_adversary(adversary, world, 300), 300, 0)
    sizes = (world.n_states, 2, world.horizon, 300)
    assert bound == bounds.uc_o_reps(*sizes).value > world.horizon * 300
    assert regret <= dict(bounds.uc_o_reps(*sizes).terms)["REGRET"] < world.horizon * 300
    assert bounds.bandit_uc_o_reps(*sizes).value > world.horizon * 300


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
