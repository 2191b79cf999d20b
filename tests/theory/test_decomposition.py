from __future__ import annotations

import numpy as np
import pytest

from advmdp.adversaries import make_adversary
from advmdp.confidence import BoxSet, KnownKernels, L1Set
from advmdp.episodes import play
from advmdp.errors import InvalidSpecError
from advmdp.experiments.runner import logged_episodes, run
from advmdp.layered import LayeredMDP
from advmdp.learners import make_learner
from advmdp.occupancy import best_policy, occupancy_measure
from advmdp.solvers import mirror_descent_step
from advmdp.theory.decomposition import TERMS, CompensatedSum, Decomposition, covers, row_errors, row_widths
from advmdp.theory.lemmas.coverage import small_world
from advmdp.theory.lemmas.geometry import boundary_set

EPISODES = 60
LEARNERS = [
    ("vlsuob-reps", {}),
    ("vlsuob-reps", {"geometry": "box"}),
    ("vlsuob-reps", {"geometry": "box", "entropy": "triples"}),
    ("vlsuob-reps-tight", {}),
    ("lsuob-reps", {}),
    ("uob-reps", {}),
]


@pytest.fixture(scope="module")
def world():
    return small_world(np.random.default_rng(3))


def watched(world, name, options, logged=None):
    learner = make_learner(name, world, EPISODES, **options)
    adversary = make_adversary("switching", world, EPISODES, seed=1)
    watcher = Decomposition(world, EPISODES, logged)
    return run(world, learner, adversary, EPISODES, seed=2, watch=watcher, progress=False), watcher


@pytest.mark.parametrize(("name", "options"), LEARNERS)
def test_parts_add_up_to_the_regret_of_the_run(world, name, options):
    result, watcher = watched(world, name, options, logged_episodes(EPISODES))
    frame = watcher.frame
    assert list(frame["episode"]) == list(result.frame["episode"])
    np.testing.assert_allclose(frame[list(TERMS)].sum(axis=1), result.regret, rtol=0, atol=1e-8)
    np.testing.assert_allclose(frame["regret"], result.regret, rtol=0, atol=1e-8)
    assert watcher.covered
    for term in TERMS:
        assert (frame[term] <= frame[f"{term} bound"]).all(), term


def test_the_conditional_entropy_has_no_bound_on_its_regret_of_estimates(world):
    """Its lemma is about the rows of the step, not about the q that the learner names; the others hold."""
    result, watcher = watched(world, "vlsuob-reps-tight", {"entropy": "conditional"})
    frame = watcher.frame
    np.testing.assert_allclose(frame[list(TERMS)].sum(axis=1).iloc[-1], result.regret[-1], rtol=0, atol=1e-8)
    assert frame["REGRET bound"].isna().all()
    for term in ("ERROR", "BIAS-I", "BIAS-II"):
        assert (frame[term] <= frame[f"{term} bound"]).all(), term


def test_each_part_against_a_sum_episode_by_episode(world):
    """The recorder keeps sums only; here everything is kept, and each part is added up by its definition."""
    learner = make_learner("vlsuob-reps", world, EPISODES)
    rng = np.random.default_rng(5)
    layers = world.layers
    watcher = Decomposition(world, EPISODES)
    history = []
    for k in range(EPISODES):
        losses = rng.random(layers.n_pairs)
        q = layers.flatten(occupancy_measure(world, learner.policy))
        q_hat = layers.flatten(learner.q)
        buffers = q.copy(), losses.copy()
        watcher.before(k, learner, *buffers)
        learner.update(play(world, learner.policy, layers.split(losses), rng))
        for buffer in buffers:
            buffer[:] = np.nan  # a runner may reuse them
        watcher.after(k, learner)
        history.append((q, q_hat, losses, layers.flatten(learner.loss_estimate)))
    total = layers.split(sum(losses for _, _, losses, _ in history))
    star = layers.flatten(occupancy_measure(world, best_policy(world, total)[0]))
    parts = {
        "REGRET": sum((q_hat - star) @ estimate for _, q_hat, _, estimate in history),
        "ERROR": sum((q - q_hat) @ losses for q, q_hat, losses, _ in history),
        "BIAS-I": sum(q_hat @ (losses - estimate) for _, q_hat, losses, estimate in history),
        "BIAS-II": sum(star @ (estimate - losses) for _, _, losses, estimate in history),
    }
    last = watcher.frame.iloc[-1]
    for term, value in parts.items():
        assert last[term] == pytest.approx(value, abs=1e-9), term
    assert all(abs(value) > 1e-3 for value in parts.values())


class OnePath:
    """Mirror descent over all kernels of layers 1-4-4-1 with losses zero on one path and one elsewhere."""

    name, step_size, exploration = "one-path", 0.05, 0.05

    def __init__(self, entropy):
        self.entropy = entropy
        shapes = [(1, 2, 4), (4, 2, 4), (4, 2, 1)]
        self.confidence_set = BoxSet([np.zeros(shape) for shape in shapes], [np.ones(shape) for shape in shapes])
        self.q = [np.full(shape[:2], 1.0 / (shape[0] * 2)) for shape in shapes]
        self.kernels = [np.full(shape, 1.0 / shape[2]) for shape in shapes]
        self.loss_estimate = [np.ones(shape[:2]) for shape in shapes]
        for table in self.loss_estimate:
            table[0, 0] = 0.0

    def update(self):
        step = mirror_descent_step(
            self.confidence_set, self.q, self.loss_estimate, 0.05, entropy=self.entropy, kernels=self.kernels
        )
        self.q, self.kernels = step.q, step.kernels if self.entropy == "triples" else self.kernels


@pytest.mark.parametrize(("entropy", "regret", "bound"), [("pairs", 98.2, 99.5), ("triples", 153.6, 156.3)])
def test_bound_of_mirror_descent_where_it_is_nearly_attained(entropy, regret, bound):
    """With the divergence of pairs the bound for triples would be 100.9, and violated."""
    kernels = [np.zeros((1, 2, 4)), np.zeros((4, 2, 4)), np.zeros((4, 2, 1))]
    for table in kernels:
        table[:, :, 0] = 1.0
    mdp, learner, steps = LayeredMDP(kernels), OnePath(entropy), 600
    watcher = Decomposition(mdp, steps)
    losses = mdp.layers.flatten(learner.loss_estimate)
    for k in range(steps):
        watcher.before(k, learner, mdp.layers.flatten(learner.q), losses)
        learner.update()
        watcher.after(k, learner)
    frame = watcher.frame
    assert watcher.covered
    assert (frame["REGRET"] <= frame["REGRET bound"]).all()
    assert frame["REGRET"].iloc[-1] == pytest.approx(regret, abs=0.05)
    assert frame["REGRET bound"].iloc[-1] == pytest.approx(bound, abs=0.05)


def test_memory_does_not_grow_with_the_episodes(world):
    _, watcher = watched(world, "vlsuob-reps", {})
    assert list(watcher.frame["episode"]) == [1, 2, 4, 8, 16, 32, 60]
    assert len(watcher._rows) == 7


def test_an_uncovered_run_says_so(world):
    _, watcher = watched(world, "vlsuob-reps", {"radius": "joint", "radius_scale": 0.02})
    assert not watcher.covered


def test_a_learner_without_loss_estimates_is_refused(world):
    learner = make_learner("uniform", world, 5)
    with pytest.raises(InvalidSpecError, match="'uniform' has no"):
        Decomposition(world, 5).before(0, learner, np.zeros(1), np.zeros(1))


def test_half_a_run_has_no_comparator(world):
    with pytest.raises(InvalidSpecError, match="0 of 60 episodes"):
        _ = Decomposition(world, 60).frame
    with pytest.raises(InvalidSpecError, match="should increase and end with 60"):
        Decomposition(world, 60, logged=[1, 10])


def chord(confidence_set, h, s, a):
    """For d = 2: the rows of a pair are base + x * slope, low <= x <= high, in closed form."""
    features, gram = confidence_set.features[h][s, a], confidence_set.grams[h]
    total = features.sum(axis=0)
    towards = np.linalg.solve(gram, total)
    missing = 1.0 - total @ confidence_set.centres[h]
    nearest = confidence_set.centres[h] + towards * missing / (total @ towards)
    along = np.array([-total[1], total[0]])
    room = confidence_set.radius[h] ** 2 - missing**2 / (total @ towards)
    high = np.sqrt(room / (along @ gram @ along))
    base, slope = features @ nearest, features @ along
    limits = -base / slope  # where an entry becomes zero
    return slope, max(-high, limits[slope > 0].max(initial=-np.inf)), min(high, limits[slope < 0].min(initial=np.inf))


def test_width_of_an_ellipsoid_is_the_length_of_its_rows():
    rng = np.random.default_rng(8)
    for episodes in (3, 30, 300):
        mdp = small_world(rng)
        confidence_set = boundary_set(mdp, episodes, rng)
        widths = row_widths(confidence_set)
        for h in range(mdp.horizon - 1):
            for s in range(mdp.layer_sizes[h]):
                for a in range(mdp.n_actions):
                    slope, low, high = chord(confidence_set, h, s, a)
                    length = (high - low) * np.abs(slope).sum()
                    assert 0.0 < length < 2.0
                    assert widths[h][s, a] == pytest.approx(length, rel=1e-6)


def test_widths_of_other_sets(world):
    uniform = [np.full(table.shape, 1.0 / table.shape[2]) for table in world.kernels]
    radii = [np.full(table.shape[:2], 0.3) for table in world.kernels]
    np.testing.assert_allclose(row_widths(L1Set(uniform, radii))[0], 0.6)
    assert all((table == 0.0).all() for table in row_widths(KnownKernels(world.kernels)))
    assert covers(KnownKernels(world.kernels), world)
    assert not covers(KnownKernels(uniform), world)


def test_errors_are_the_largest_that_a_set_allows(world):
    uniform = [np.full(table.shape, 1.0 / table.shape[2]) for table in world.kernels]
    away = [np.abs(table - flat).sum(axis=2) for table, flat in zip(world.kernels, uniform, strict=True)]
    for found, expected in zip(row_errors(KnownKernels(uniform), world)[:-1], away, strict=False):
        np.testing.assert_allclose(found, expected, atol=1e-15)
    radii = [np.full(table.shape[:2], 0.3) for table in world.kernels]
    np.testing.assert_allclose(row_errors(L1Set(world.kernels, radii), world)[0], 0.3)
    # All kernels: an entry p can be wrong by max(p, 1 - p); the rows together by no more than 2.
    everything = BoxSet([np.zeros_like(table) for table in uniform], [np.ones_like(table) for table in uniform])
    for h, table in enumerate(world.kernels[:-1]):
        expected = np.minimum(2.0, np.maximum(table, 1.0 - table).sum(axis=2))
        np.testing.assert_allclose(row_errors(everything, world)[h], expected)
    assert all((table == 0.0).all() for table in row_errors(KnownKernels(world.kernels), world))


def test_compensated_sum_keeps_small_terms():
    total = CompensatedSum(1)
    for term in (1e16, 1.0, -1e16):
        total.add(np.array([term]))
    assert total.value[0] == 1.0
