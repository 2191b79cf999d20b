"""The test of the mixture model: what its number is, that it keeps its level, and that it has power."""

from __future__ import annotations

import itertools

import cvxpy as cp
import numpy as np
import pytest

from advmdp import LayeredMDP, LinearMixtureModel, load_learner, make_learner
from advmdp.confidence.misspecification import EPOCH_GROWTH, MAX_WAITING, TOLERANCE, MixtureEvidence
from advmdp.episodes import Episode
from advmdp.errors import InvalidSpecError

SIZES, N_ACTIONS = (1, 3, 4, 3, 1), 2


def random_kernels(rng, sparsity=0.0, sizes=SIZES):
    kernels = []
    for n, m in itertools.pairwise(sizes):
        rows = rng.dirichlet(np.ones(m), (n, N_ACTIONS))
        rows[rng.random(rows.shape) < sparsity] = 0.0
        rows[..., 0] += rows.sum(axis=-1) == 0.0
        kernels.append(rows / rows.sum(axis=-1, keepdims=True))
    return kernels


def mixture(rng, dim=3, sparsity=0.0, sizes=SIZES):
    """Base kernels, and a kernel that is a mixture of them with other weights in each layer."""
    bases = [random_kernels(rng, sparsity, sizes) for _ in range(dim)]
    weights = rng.dirichlet(np.ones(dim), len(sizes) - 1)
    truth = [np.tensordot(w, np.array(layer), 1) for w, layer in zip(weights, zip(*bases, strict=True), strict=True)]
    return bases, truth


def episodes(kernels, count, rng):
    """Trajectories under the uniform policy, drawn all at once."""
    states = np.zeros((count, len(kernels)), dtype=np.int64)
    actions = rng.integers(N_ACTIONS, size=states.shape)
    for h, kernel in enumerate(kernels[:-1]):
        cumulative = np.cumsum(kernel[states[:, h], actions[:, h]], axis=1)
        draws = rng.random((count, 1)) * cumulative[:, -1:]
        states[:, h + 1] = (draws >= cumulative).sum(axis=1)
    return zip(states, actions, strict=True)


def signed(model, rng):
    """The same family of kernels, its features turned by a random rotation: signed, and no simplex."""
    turn = np.linalg.qr(rng.normal(size=(model.dim, model.dim)))[0]
    return LinearMixtureModel([f @ turn for f in model.features], model.bound)


def added(evidence, trajectories):
    for states, actions in trajectories:
        evidence = evidence.add(states, actions)
    return evidence


# ------------------------------------------------------------------------------------- its number


def brute_force(model, trajectories):
    """The e-value of each layer from its definition: forecasts one by one, the supremum by a conic solver."""
    result = []
    for h in range(model.horizon - 1):
        features, possible = model.features[h], model.possible[h]
        fits, next_fit, seen = None, 1, []
        free, mixed = {}, {}
        for k, (states, actions) in enumerate(trajectories):
            if k >= next_fit:
                fits, next_fit = supremum(model, h, seen, 0.5)[1], int(np.ceil(EPOCH_GROWTH * (k + 8)))
            s, a, t = states[h], actions[h], states[h + 1]
            if fits is None:
                share = 1.0 / features.sum(axis=2)[0, 0, 0]
                fits = np.full(model.dim, share / model.dim)
            before = [row[2] for row in seen if row[:2] == (s, a)]
            free[s, a] = free.get((s, a), 0.0) + np.log(
                (before.count(t) + 0.5) / (len(before) + possible[s, a].sum() / 2)
            )
            row = np.maximum(features[s, a] @ fits, 1e-12) * possible[s, a]
            mixed[s, a] = mixed.get((s, a), 0.0) + np.log(row[t] / row.sum())
            seen.append((s, a, t))
        n_pairs = features.shape[0] * features.shape[1]
        by_prior = [
            sum(np.logaddexp(np.log(prior) + free[pair], np.log(1 - prior) + mixed[pair]) for pair in free)
            for prior in (0.5, 1 / (n_pairs + 1))
        ]
        result.append(np.logaddexp(*by_prior) - np.log(2) - supremum(model, h, seen)[0])
    return np.array(result)


def supremum(model, h, seen, prior=0.0):
    features = model.features[h]
    rows = np.array([features[triple] for triple in seen])
    theta = cp.Variable(model.dim)
    constraints = [features.sum(axis=2).reshape(-1, model.dim) @ theta == 1.0]
    positive = np.eye(model.dim) if model.simplex else features.reshape(-1, model.dim)
    constraints.append(positive @ theta >= 0.0)
    objective = cp.sum(cp.log(rows @ theta)) + (prior * cp.sum(cp.log(theta)) if prior else 0.0)
    problem = cp.Problem(cp.Maximize(objective), constraints)
    problem.solve(solver=cp.CLARABEL)
    return problem.value, theta.value


@pytest.mark.parametrize("sparsity", [0.0, 0.5])
def test_the_e_value_is_that_of_its_definition(sparsity):
    rng = np.random.default_rng(1)
    bases, truth = mixture(rng, sparsity=sparsity)
    model = LinearMixtureModel.from_kernels(bases)
    trajectories = list(episodes(truth, 60, rng))
    found = added(MixtureEvidence.empty(model), trajectories).weigh()
    np.testing.assert_allclose(found.log_e, brute_force(model, trajectories), atol=0.01)


@pytest.mark.parametrize("simplex", [True, False])
@pytest.mark.parametrize("count", [1, 30, 100_000])
def test_the_largest_likelihood_is_bracketed_closely(simplex, count):
    rng = np.random.default_rng(count)
    bases, truth = mixture(rng, dim=4, sparsity=0.3)
    model = LinearMixtureModel.from_kernels(bases)
    model = model if simplex else signed(model, rng)
    evidence = added(MixtureEvidence.empty(model), episodes(truth, min(count, 300), rng))._counted()
    for h in range(model.horizon - 1):
        pairs, rows, counts = evidence._seen(h)
        counts = counts * max(1, count // 300)
        theta, excess = evidence.null.families[h].likeliest(rows, counts.astype(float))
        nexts = evidence.triples[np.searchsorted(evidence.triples, evidence.null.first_triple[h]) :][: pairs.size]
        nexts = (nexts - evidence.null.first_triple[h]) % SIZES[h + 1]
        triples = zip(*np.divmod(pairs, N_ACTIONS), nexts, strict=True)
        seen = [triple for triple, n in zip(triples, counts, strict=True) for _ in range(n // max(1, count // 300))]
        largest = supremum(model, h, seen)[0] * max(1, count // 300)
        reached = counts @ np.log(rows @ theta)
        # The family is a little larger than the conic programme's: its sums, and its signs, hold up to TOLERANCE.
        assert reached <= largest + 1e-6 * (1 + abs(largest)) + 2.0 * TOLERANCE * counts.sum()
        assert reached + excess >= largest - 1e-6 * (1 + abs(largest))
        assert excess < 0.02 + 10.0 * TOLERANCE * counts.sum()


def test_counting_late_or_at_once_gives_the_same():
    rng = np.random.default_rng(2)
    bases, truth = mixture(rng)
    model = LinearMixtureModel.from_kernels(bases)
    late = at_once = MixtureEvidence.empty(model)
    for states, actions in episodes(truth, 200, rng):
        late, at_once = late.add(states, actions), at_once.add(states, actions)._counted()
    np.testing.assert_allclose(late.weigh().log_e, at_once.weigh().log_e, atol=1e-9)


def test_waiting_episodes_are_bounded():
    rng = np.random.default_rng(3)
    bases, truth = mixture(rng)
    evidence = MixtureEvidence.empty(LinearMixtureModel.from_kernels(bases))
    longest = 0
    for states, actions in episodes(truth, 6 * MAX_WAITING, rng):
        evidence = evidence.add(states, actions)
        longest = max(longest, len(evidence.waiting))
    assert longest == MAX_WAITING


# ------------------------------------------------------------------------------- level and power


def false_alarms(runs, level, seed):
    """Runs of a true mixture in which the test ever raises its alarm, looked at again and again."""
    rng = np.random.default_rng(seed)
    alarms = 0
    for number in range(runs):
        bases, truth = mixture(rng, dim=int(rng.integers(1, 5)), sparsity=float(rng.choice([0.0, 0.5, 0.9])))
        model = LinearMixtureModel.from_kernels(bases)
        evidence, raised = MixtureEvidence.empty(signed(model, rng) if number % 5 == 0 else model), False
        for k, (states, actions) in enumerate(episodes(truth, 160, rng)):
            evidence = evidence.add(states, actions)
            if k % 10 == 9:
                raised |= evidence.weigh(level).alarm
        alarms += raised
    return alarms


def test_a_true_mixture_seldom_raises_the_alarm():
    assert false_alarms(40, 0.2, seed=4) <= 12  # P(Binomial(40, 0.2) > 12) = 0.04 even if the level were attained


@pytest.mark.slow
def test_a_true_mixture_raises_the_alarm_in_at_most_a_twentieth_of_1000_runs():
    assert false_alarms(1000, 0.05, seed=5) <= 50


def test_a_kernel_outside_the_mixture_raises_the_alarm():
    rng = np.random.default_rng(6)
    bases, truth = mixture(rng)
    model = LinearMixtureModel.from_kernels(bases)
    truth[1] = random_kernels(rng)[1]
    result = added(MixtureEvidence.empty(model), episodes(truth, 2000, rng)).weigh()
    assert result.alarm
    assert result.layers == [1]
    assert "rejected in layers [1]" in str(result)


def test_one_wrong_pair_is_found_and_pointed_at():
    rng = np.random.default_rng(7)
    bases, truth = mixture(rng)
    model = LinearMixtureModel.from_kernels(bases)
    truth[2][1, 0] = [0.0, 0.0, 1.0]
    result = added(MixtureEvidence.empty(model), episodes(truth, 1500, rng)).weigh()
    assert result.layers == [2]
    assert np.unravel_index(np.argmax(result.evidence[2]), result.evidence[2].shape) == (1, 0)


def test_a_transition_that_no_sampled_simulator_made_counts_against_the_model():
    def step(layer, state, action, rng):
        return 0

    model = LinearMixtureModel.from_simulators([step, step], SIZES, N_ACTIONS, samples=5)
    learner = make_learner("vlsuob-reps", model, 100)
    assert not learner.misspecification().alarm
    for k in range(3):
        learner.update(Episode([0, 2, 0, 0], [0, 0, 0, 0], [0.5] * 4, index=k))
    assert learner.misspecification().layers == [0]


# --------------------------------------------------------------------------------- in a learner


def played(learner, truth, count, seed):
    for k, (states, actions) in enumerate(episodes(truth, count, np.random.default_rng(seed)), learner.episodes_seen):
        learner.update(Episode(states, actions, np.full(4, 0.5), index=k))
    return learner


def test_a_saved_learner_goes_on_with_the_same_evidence_bit_for_bit(tmp_path):
    rng = np.random.default_rng(9)
    bases, truth = mixture(rng)
    model = LinearMixtureModel.from_kernels(bases)
    straight = played(make_learner("vlsuob-reps-tight", model, 100), truth, 17, 1)
    straight.save(tmp_path / "learner.npz")
    resumed = load_learner(tmp_path / "learner.npz")
    for learner in (straight, resumed):
        played(learner, truth, 20, 2)
    np.testing.assert_array_equal(straight.misspecification().log_e, resumed.misspecification().log_e)


def test_a_failed_update_leaves_the_evidence_alone(monkeypatch):
    rng = np.random.default_rng(10)
    bases, truth = mixture(rng)
    learner = played(make_learner("vlsuob-reps", LinearMixtureModel.from_kernels(bases), 100), truth, 3, 1)
    before = learner.misspecification().log_e

    def interrupted(self, states, actions):
        raise KeyboardInterrupt

    monkeypatch.setattr(MixtureEvidence, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        played(learner, truth, 1, 2)
    assert learner.episodes_seen == 3
    np.testing.assert_array_equal(learner.misspecification().log_e, before)


def test_learners_without_a_mixture_have_nothing_to_test():
    world = LayeredMDP(random_kernels(np.random.default_rng(11)))
    assert make_learner("uob-reps", world, 10).misspecification() is None


def test_one_step_has_nothing_to_test_and_never_alarms():
    model = LinearMixtureModel([np.ones((1, 2, 1, 1))], 1.0)
    learner = make_learner("vlsuob-reps", model, 10)
    learner.update(Episode([0], [1], [0.5]))
    assert not learner.misspecification().alarm


def test_bad_levels_are_named():
    rng = np.random.default_rng(12)
    bases, _ = mixture(rng)
    evidence = MixtureEvidence.empty(LinearMixtureModel.from_kernels(bases))
    with pytest.raises(InvalidSpecError, match="level is 1"):
        evidence.weigh(1.0)


def test_a_model_without_any_valid_kernel_is_rejected_at_once():
    features = [np.array([1.0, -0.5]).reshape(1, 1, 2, 1), np.ones((2, 1, 1, 1))]  # theta = 2 gives the row (2, -1)
    evidence = MixtureEvidence.empty(LinearMixtureModel(features, 3.0))
    assert evidence.add(np.array([0, 0]), np.array([0, 0])).weigh().alarm


@pytest.mark.parametrize("noise", [1e-12, 1e-9, 1e-8, 1e-7])
def test_rounding_of_features_raises_no_alarm(noise):
    rng = np.random.default_rng(13)
    bases, truth = mixture(rng)
    exact = signed(LinearMixtureModel.from_kernels(bases), rng)
    rough = [f * (1.0 + noise * rng.standard_normal(f.shape)) * 0.9 for f in exact.features]
    model = LinearMixtureModel(rough, 2.0 * exact.bound)
    for _ in range(3):
        assert not added(MixtureEvidence.empty(model), episodes(truth, 1500, rng)).weigh(0.2).alarm


def test_a_learner_with_features_in_single_precision_learns():
    for seed in range(6):
        rng = np.random.default_rng(seed)
        bases, truth = mixture(rng)
        exact = LinearMixtureModel.from_kernels(bases)
        rough = [0.9 * f.astype(np.float32).astype(np.float64) for f in exact.features]
        learner = played(
            make_learner("vlsuob-reps-tight", LinearMixtureModel(rough, 2.0 * exact.bound), 50), truth, 20, 1
        )
        assert not learner.misspecification().alarm
