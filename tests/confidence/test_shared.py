"""Weights that are the same in every layer: one regression, one radius, one test of the model."""

from __future__ import annotations

import itertools
from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advmdp import InvalidMDPError, InvalidSpecError, LinearMixtureMDP, make_learner, occupancy, play
from advmdp.confidence import EllipsoidSet
from advmdp.confidence.estimators import AllNextStates, SharedNextStates
from advmdp.confidence.misspecification import MixtureEvidence
from advmdp.confidence.regression import joint_regression
from tests.strategies import generators, mixture_worlds

SIZES, N_ACTIONS, DIM = (1, 2, 5, 3, 1), 2, 3


def bases(rng, sizes=SIZES):
    return [
        [rng.dirichlet(np.full(m, 0.5), size=(n, N_ACTIONS)) for n, m in itertools.pairwise(sizes)] for _ in range(DIM)
    ]


def shared_world(rng, sizes=SIZES):
    return LinearMixtureMDP.from_kernels(bases(rng, sizes), rng.dirichlet(np.ones(DIM)))


def history(world, rng, episodes):
    """Trajectories under the uniform policy."""
    policy = occupancy.uniform_policy(world.layer_sizes, world.n_actions)
    losses = [np.zeros((n, world.n_actions)) for n in world.layer_sizes[:-1]]
    return [play(world, policy, losses, rng) for _ in range(episodes)]


def regressed(estimator, episodes):
    data = estimator.empty()
    for one in episodes:
        data = estimator.add(data, one.states, one.actions)
    return data


def width(confidence_set):
    lower, upper = confidence_set.hull()
    return sum(float((b - a).sum()) for a, b in zip(lower[:-1], upper[:-1], strict=True))


# ------------------------------------------------------------------------------------- the regression


@given(mixture_worlds(), generators(), st.floats(0.1, 20.0))
def test_it_is_one_least_squares_problem_in_units_of_the_weights(world, rng, lam):
    """All steps of all episodes in one design matrix: base probabilities against one-hot next states."""
    episodes = history(world, rng, 8)
    sums = SharedNextStates.empty(world.horizon, world.dim)
    for one in episodes:
        sums = sums.add(world.model, one.states, one.actions)
    rows, targets = [np.sqrt(lam) * np.eye(world.dim)], [np.zeros(world.dim)]
    for one in episodes:
        for h in range(world.horizon - 1):
            rows.append(world.model.scales[h] * world.features[h][one.states[h], one.actions[h]])
            targets.append(np.eye(world.layer_sizes[h + 1])[one.states[h + 1]])
    design, target = np.concatenate(rows), np.concatenate(targets)
    estimate = sums.estimate(lam)
    assert estimate.centres.shape == (1, world.dim)
    np.testing.assert_allclose(estimate.grams[0], design.T @ design, atol=1e-9)
    np.testing.assert_allclose(estimate.centres[0], np.linalg.lstsq(design, target, rcond=None)[0], atol=1e-8)
    assert estimate.log_determinants[0] == pytest.approx(np.linalg.slogdet(design.T @ design)[1])
    np.testing.assert_array_equal(sums.moments, sums.moments.transpose(0, 2, 1))


def test_features_in_units_of_the_weights_are_the_base_kernels():
    rng = np.random.default_rng(0)
    kernels = bases(rng)
    world = LinearMixtureMDP.from_kernels(kernels, rng.dirichlet(np.ones(DIM)))
    assert world.model.shared
    assert len(set(np.round(world.model.scales, 9))) > 1  # layers do have different units
    for h in range(world.horizon - 1):
        expected = np.moveaxis([base[h] for base in kernels], 0, -1)
        np.testing.assert_allclose(world.model.scales[h] * world.features[h], expected, atol=1e-12)


def test_adding_an_episode_leaves_the_old_sums_alone():
    world = shared_world(np.random.default_rng(1))
    sums = SharedNextStates.empty(world.horizon, world.dim)
    sums.add(world.model, np.array([0, 1, 2, 0]), np.array([0, 0, 1, 0]))
    assert not sums.moments.any()
    assert not sums.targets.any()


def test_one_layer_has_nothing_to_regress():
    world = LinearMixtureMDP.from_kernels([[np.ones((1, 2, 1))]] * 2, [0.5, 0.5])
    estimator, sets = joint_regression(world.model, shared=True)
    data = estimator.add(estimator.empty(), np.array([0]), np.array([1]))
    np.testing.assert_array_equal(data.estimate.grams, np.eye(2)[None])
    assert sets(data).contains(world.kernels)


# ------------------------------------------------------------------------------------------- the sets


def test_its_radius_has_no_union_over_layers():
    rng = np.random.default_rng(2)
    world = shared_world(rng)
    estimator, sets = joint_regression(world.model, zeta=0.1, shared=True)
    data = regressed(estimator, history(world, rng, 30))
    expected = 1.0 + sqrt(log(1.0 / 0.1) + 0.5 * np.linalg.slogdet(data.estimate.grams[0])[1])
    np.testing.assert_allclose(sets.radii(data), [expected])


def test_the_ellipsoids_of_theta_are_those_of_the_weights():
    """|theta_h - c_h w_k| in the norm of Lambda / c_h^2 is |w - w_k| in that of Lambda: the same rows."""
    rng = np.random.default_rng(3)
    world = shared_world(rng)
    estimator, sets = joint_regression(world.model, shared=True)
    data = regressed(estimator, history(world, rng, 60))
    in_theta = sets(data)
    scaled = [c * table for c, table in zip(world.model.scales, world.features, strict=True)]
    centre, gram, radius = data.estimate.centres[0], data.estimate.grams[0], sets.radii(data)[0]
    in_weights = EllipsoidSet(scaled, [centre] * world.horizon, [gram] * world.horizon, radius, simplex=True)
    for ours, theirs in zip(in_theta.hull(), in_weights.hull(), strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-7)


@pytest.mark.parametrize("geometry", ["ellipsoid", "box"])
def test_shared_sets_contain_the_truth_and_are_narrower(geometry):
    """Forty worlds, looked at five times each: at most a twentieth may ever miss the truth."""
    misses, ratios = 0, []
    for seed in range(40):
        rng = np.random.default_rng([4, seed])
        world = shared_world(rng)
        episodes = history(world, rng, 80)
        one, one_sets = joint_regression(world.model, geometry, shared=True)
        many, many_sets = joint_regression(world.model, geometry)
        data = one.empty()
        missed = False
        for k, told in enumerate(episodes):
            data = one.add(data, told.states, told.actions)
            if k in (0, 5, 20, 50, 79):
                missed |= not one_sets(data).contains(world.kernels)
        misses += missed
        if seed < 6:
            ratios.append(width(one_sets(data)) / width(many_sets(regressed(many, episodes))))
    assert misses <= 2
    assert max(ratios) < 0.9


def test_the_error_is_within_the_radius_but_not_within_a_tenth_of_it():
    """Coverage in numbers, with a control that fails: |w_k - w|_Lambda / beta over many runs."""
    ratios = []
    for seed in range(100):
        rng = np.random.default_rng([5, seed])
        world = shared_world(rng, (1, 2, 2, 1))
        estimator, sets = joint_regression(world.model, shared=True)
        data = regressed(estimator, history(world, rng, 30))
        weights = world.theta[0] / world.model.scales[0]
        error = data.estimate.centres[0] - weights
        ratios.append(sqrt(error @ data.estimate.grams[0] @ error) / sets.radii(data)[0])
    assert np.mean(np.array(ratios) > 1.0) <= 0.05
    assert np.mean(np.array(ratios) > 0.1) > 0.5


# ----------------------------------------------------------------------------------------- who may say so


def test_shared_weights_are_refused_where_the_model_does_not_say_so():
    rng = np.random.default_rng(6)
    apart = LinearMixtureMDP.from_kernels(bases(rng), rng.dirichlet(np.ones(DIM), size=len(SIZES) - 1))
    with pytest.raises(InvalidSpecError, match="shared=True needs a model that says so"):
        make_learner("vlsuob-reps-tight", apart, 10, shared=True)
    with pytest.raises(InvalidSpecError, match="shared=True goes with radius 'joint'"):
        make_learner("vlsuob-reps", shared_world(rng), 10, shared=True)
    with pytest.raises(InvalidMDPError):
        LinearMixtureMDP.from_kernels(bases(rng), rng.dirichlet(np.ones(DIM), size=len(SIZES) - 1), shared=True)


def test_layers_stay_apart_unless_asked():
    world = shared_world(np.random.default_rng(7))
    learner = make_learner("vlsuob-reps-tight", world, 10)
    assert isinstance(learner._now.state.data.sums, AllNextStates)
    assert isinstance(make_learner("vlsuob-reps-tight", world, 10, shared=True)._now.state.data.sums, SharedNextStates)


def test_shared_sums_survive_a_file():
    rng = np.random.default_rng(8)
    world = shared_world(rng)
    estimator, _ = joint_regression(world.model, shared=True)
    data = regressed(estimator, history(world, rng, 10))
    again = estimator.restore(estimator.tree(data))
    np.testing.assert_array_equal(again.estimate.grams, data.estimate.grams)
    assert again.version == 10
    apart, _ = joint_regression(world.model)
    with pytest.raises(ValueError, match="wrong shape"):
        apart.restore(estimator.tree(data))


# ------------------------------------------------------------------------------------------- its test


def evidence(model, world, rng, episodes, shared=True):
    found = MixtureEvidence.empty(model, shared)
    for one in history(world, rng, episodes):
        found = found.add(one.states, one.actions)
    return found


def test_the_shared_test_has_one_number_and_raises_no_alarm_where_the_model_is_right():
    for seed in range(8):
        rng = np.random.default_rng([9, seed])
        world = shared_world(rng)
        verdict = evidence(world.model, world, rng, 300).weigh()
        assert verdict.log_e.shape == (1,)
        assert verdict.shared
        assert not verdict.alarm
        assert verdict.layers == []
        assert [table.shape for table in verdict.evidence] == [(n, N_ACTIONS) for n in SIZES[:-2]]


def test_it_raises_the_alarm_where_layers_have_weights_of_their_own():
    """Each layer is a mixture, so that the test per layer is content: only sharing is wrong."""
    rng = np.random.default_rng(10)
    kernels = bases(rng)
    said = LinearMixtureMDP.from_kernels(kernels, np.full(DIM, 1.0 / DIM))
    reality = LinearMixtureMDP.from_kernels(kernels, np.eye(DIM)[[0, 1, 2, 0]])
    together = evidence(said.model, reality, np.random.default_rng(0), 400).weigh()
    apart = evidence(said.model, reality, np.random.default_rng(0), 400, shared=False).weigh()
    assert together.alarm
    assert together.log_e.shape == (1,)
    assert together.layers == []
    assert "rejected at level" in str(together)
    assert not apart.alarm
    assert apart.log_e.shape == (len(SIZES) - 2,)


def test_a_learner_that_shares_carries_the_shared_test():
    world = shared_world(np.random.default_rng(11))
    assert make_learner("vlsuob-reps-tight", world, 10, shared=True).misspecification().shared
    assert make_learner("portfolio", world, watch=True).misspecification().shared
    assert not make_learner("portfolio", world, watch=True, shared=False).misspecification().shared


def test_the_shared_e_value_is_that_of_its_definition():
    """Short history, everything by hand: forecasters per pair, and the supremum on a grid of the simplex."""
    from scipy.special import gammaln

    rng = np.random.default_rng(12)
    kernels = bases(rng, (1, 2, 2, 1))[:2]
    world = LinearMixtureMDP.from_kernels(kernels, [0.3, 0.7])
    episodes = history(world, rng, 1)
    verdict = MixtureEvidence.empty(world.model, True).add(episodes[0].states, episodes[0].actions).weigh()
    states, actions = episodes[0].states, episodes[0].actions
    by_prior = np.zeros(2)
    for h in range(2):
        free = gammaln(1.0) - gammaln(2.0) + gammaln(1.5) - gammaln(0.5)
        mixture = np.log(np.mean([base[h][states[h], actions[h], states[h + 1]] for base in kernels]))
        for i, prior in enumerate((0.5, 1.0 / (2 + 4 + 1))):
            by_prior[i] += np.log(prior * np.exp(free) + (1.0 - prior) * np.exp(mixture))
    grid = np.linspace(0.0, 1.0, 20001)
    likelihood = sum(
        np.log(
            grid * kernels[0][h][states[h], actions[h], states[h + 1]]
            + (1.0 - grid) * kernels[1][h][states[h], actions[h], states[h + 1]]
        )
        for h in range(2)
    )
    expected = np.logaddexp(*by_prior) - np.log(2.0) - likelihood.max()
    assert verdict.log_e[0] == pytest.approx(expected, abs=2e-3)
    assert verdict.log_e[0] <= expected + 1e-6  # what the climb misses counts for the model
