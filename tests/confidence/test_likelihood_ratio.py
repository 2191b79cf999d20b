"""Likelihood-ratio sets: the threshold against enumeration, the ellipsoid against a conic solver, and coverage."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from math import lgamma, log
from pathlib import Path

import cvxpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advmdp import (
    InvalidSpecError,
    LinearMixtureMDP,
    LinearMixtureModel,
    make_adversary,
    make_learner,
    make_world,
    occupancy,
    play,
    run,
)
from advmdp.confidence.likelihood import MixtureWeights
from advmdp.confidence.likelihood_ratio import dirichlet_regret, likelihood_ratio, outer_ellipsoids
from advmdp.confidence.regression import joint_regression
from advmdp.episodes import check_episode
from advmdp.learners.parts.safe import SafeBase
from advmdp.solvers import mirror_descent_step, upper_occupancy
from advmdp.testing import check_learner
from advmdp.theory.lemmas import likelihood as lemmas
from tests.solvers import reference
from tests.strategies import generators, mixture_worlds, random_kernels

TINY = make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=2, dim=3, seed=0, shared=True)


def history(world, rng, episodes):
    policy = occupancy.uniform_policy(world.layer_sizes, world.n_actions)
    losses = [np.zeros((n, world.n_actions)) for n in world.layer_sizes[:-1]]
    return [play(world, policy, losses, rng) for _ in range(episodes)]


def learnt(estimator, episodes):
    data = estimator.empty()
    for one in episodes:
        data = estimator.add(data, one.states, one.actions)
    return data


def base_probabilities(model, episode):
    """The vector of base probabilities of every transition of an episode, ``(H - 1, d)``."""
    rows = []
    for h in range(model.horizon - 1):
        table = model.features[h][episode.states[h], episode.actions[h]]
        rows.append(table[episode.states[h + 1]] / table[:, 0].sum())
    return np.array(rows).reshape(-1, model.dim)


def width(confidence_set):
    lower, upper = confidence_set.hull()
    return sum(float((b - a).sum()) for a, b in zip(lower[:-1], upper[:-1], strict=True))


# ------------------------------------------------------------------------------- the price of a forecaster


@given(st.integers(1, 40), st.integers(1, 5))
def test_the_price_is_the_largest_over_all_types_of_sequences(n, dim):
    """One kernel per transition: the price depends on the counts alone, and all counts are tried."""
    n = min(n, 12 if dim > 3 else 40)
    prices = []
    for ends in itertools.combinations(range(n + dim - 1), dim - 1):
        counts = np.diff([-1, *ends, n + dim - 1]) - 1
        best = sum(c * log(c / n) for c in counts.tolist() if c)
        moment = lgamma(dim / 2) - lgamma(n + dim / 2) + sum(lgamma(c + 0.5) - lgamma(0.5) for c in counts.tolist())
        prices.append(best - moment)
    assert dirichlet_regret(n, dim) == pytest.approx(max(prices), abs=1e-9)
    assert dirichlet_regret(n, dim) <= (dim - 1) / 2 * log(n + 1) + log(2.0) + 1e-12
    assert dirichlet_regret(0, dim) == pytest.approx(0.0)


def test_the_price_of_a_mixture_by_quadrature():
    """Two kernels: the integral over the arcsine law, w = sin(x)^2, x uniform."""
    rng = np.random.default_rng(0)
    x = (np.arange(200_000) + 0.5) * np.pi / 400_000
    for n in (1, 5, 200):
        rows = rng.random((n, 2))
        values = np.log(np.outer(np.sin(x) ** 2, rows[:, 0]) + np.outer(np.cos(x) ** 2, rows[:, 1])).sum(axis=1)
        top = values.max()
        mixture = top + log(np.exp(values - top).mean())
        assert 0.0 <= top - mixture <= dirichlet_regret(n, 2)
        if n <= 5:
            assert mixture == pytest.approx(log(lemmas.mixture_probability(rows)), abs=1e-6)


# ------------------------------------------------------------------------------------------- the threshold


@settings(max_examples=30)
@given(mixture_worlds(), generators(), st.booleans())
def test_thresholds_are_those_of_the_definition(world, rng, shared):
    """Forecasts with weights fitted to the episodes before, recomputed from the whole history."""
    estimator, sets = likelihood_ratio(world.model, zeta=0.1, shared=shared)
    data, forecaster = estimator.empty(), MixtureWeights.empty(world.model, shared=shared, prior=0.5)
    groups = len(forecaster.weights)
    rows, log_forecast = [], np.zeros(groups)
    for episode in history(world, rng, int(rng.choice([1, 4, 30]))):
        found = base_probabilities(world.model, episode)
        for h, row in enumerate(found):
            log_forecast[0 if shared else h] += log(row @ data.forecaster[0 if shared else h])
        rows.append(found)
        data = estimator.add(data, episode.states, episode.actions)
        forecaster = forecaster.add(episode.states, episode.actions)
    np.testing.assert_allclose(data.log_forecast, log_forecast, atol=1e-9)
    assert data.confidence == pytest.approx(log(max(1, groups) / 0.1))
    stacked = np.array(rows).reshape(len(rows), world.horizon - 1, world.dim)
    for g in range(groups):
        mine = stacked.reshape(-1, world.dim) if shared else stacked[:, g]
        best = np.log(mine @ data.likeliest.weights[g]).sum()
        smoothed = [np.log(mine @ w).sum() + 0.5 * np.log(w).sum() for w in (forecaster.weights[g], data.forecaster[g])]
        assert smoothed[1] >= smoothed[0] - 0.011
        average = np.logaddexp(log_forecast[g], best - dirichlet_regret(len(mine), world.dim)) - log(2.0)
        gap = data.likeliest.gaps[g]
        threshold = max(best - average, 0.0) + gap + data.confidence
        assert data.estimate.radii[g] ** 2 == pytest.approx(2.02 * threshold, rel=1e-9)
        assert data.estimate.evidence[g] == pytest.approx(average - best - gap, abs=1e-9)
    np.testing.assert_allclose(sets.radii(data), data.estimate.radii)


# ------------------------------------------------------------------------------------------- the ellipsoid


def test_the_set_of_likely_weights_is_inside_its_ellipsoid():
    """Four hundred instances, d = 2 to 5, zeros, repeated rows, tiny n; 200 directions and all vertices each."""
    ratios = lemmas.ellipsoid_ratios(True)(np.random.default_rng(1), 400)
    assert ratios.max() <= 1.0
    assert np.median(ratios) >= 0.5  # and it is not far from it


def test_no_weights_that_are_likely_stick_out_by_a_conic_solver():
    """The largest <c, w> over the set of likely weights against that over the ellipsoid."""
    rng = np.random.default_rng(2)
    for _ in range(25):
        dim = int(rng.integers(2, 6))
        rows = lemmas.random_rows(rng, int(rng.integers(1, 9)), dim)
        counts = np.floor(rng.choice([1.0, 30.0]) * (1.0 + rng.exponential(size=len(rows))))
        centre, gap = lemmas.likeliest(rows, counts)
        depth, slack = float(rng.uniform(0.5, 12.0)), np.array([gap])
        grams, radii = np.empty((1, dim, dim)), np.empty(1)
        groups, everything = np.array([0, len(rows)]), np.arange(len(rows))
        outer_ellipsoids(rows, groups, everything, counts, centre[None], slack + depth, slack, grams, radii)
        costs = rng.normal(size=dim)
        w = cvxpy.Variable(dim, nonneg=True)
        likely = counts @ cvxpy.log(rows @ w) >= counts @ np.log(rows @ centre) - depth
        cvxpy.Problem(cvxpy.Maximize(costs @ w), [cvxpy.sum(w) == 1, likely]).solve(solver="CLARABEL")
        reach = radii[0] * np.sqrt(costs @ np.linalg.solve(grams[0], costs))
        assert costs @ w.value <= costs @ centre + reach + 1e-6


def test_without_data_all_weights_are_left():
    for shared in (True, False):
        estimator, sets = likelihood_ratio(TINY.model, shared=shared)
        data = estimator.empty()
        for base in np.eye(3):
            assert sets(data).contains([f @ (c * base) for f, c in zip(TINY.features, TINY.model.scales, strict=True)])


def test_a_kernel_that_is_not_needed_is_soon_ruled_out():
    """The truth is the first of four simulators: their weights end at zero, and cost more than a curvature there."""
    rng = np.random.default_rng(3)
    kernels = [random_kernels(rng, [1, 4, 4, 1], 2) for _ in range(4)]
    world = LinearMixtureMDP.from_kernels(kernels, [1.0, 0.0, 0.0, 0.0])
    episodes = history(world, rng, 300)
    ratio, sets = likelihood_ratio(world.model, shared=True)
    ridge, ridge_sets = joint_regression(world.model, shared=True)
    found = sets(learnt(ratio, episodes))
    assert found.contains(world.kernels, 1e-7)
    assert width(found) < 0.4 * width(ridge_sets(learnt(ridge, episodes)))


@pytest.mark.parametrize(("name", "factor"), [("grid", 1.35), ("queue", 1.6), ("pricing", 1.1)])
def test_sets_are_narrower_than_those_of_the_joint_radius(name, factor):
    world = make_world(name)
    episodes = history(world, np.random.default_rng(0), 300)
    widths = [
        width(sets(learnt(estimator, episodes)))
        for estimator, sets in (joint_regression(world.model), likelihood_ratio(world.model))
    ]
    assert widths[0] > factor * widths[1]


# ---------------------------------------------------------------------------------------------- coverage


def covered(trials, seed):
    """How many of these runs of 50 episodes, looked at after each of them, ever miss the truth."""
    return int((lemmas.coverage_ratios(np.random.default_rng(seed), trials) > 1.0).sum())


def test_the_truth_stays_inside():
    assert covered(60, 11) <= 6


@pytest.mark.slow
def test_the_truth_stays_inside_in_a_thousand_runs():
    """Level 0.1 for all 50 episodes and ten layers at once; so does the ratio itself, with less to spare."""
    assert covered(1000, 12) <= 100
    assert (lemmas.forecaster_ratios(True)(np.random.default_rng(13), 1000) > 1.0).sum() <= 100


def test_the_page_names_every_check():
    page = (Path(__file__).resolve().parents[2] / "docs" / "likelihood-sets.md").read_text(encoding="utf-8")
    assert set(re.findall(r'"(Likelihood: [^"]+)"', page)) == {check.name for check in lemmas.CHECKS}


# ---------------------------------------------------------------------------------------------- odd data


def test_features_in_other_units_give_the_same_sets():
    """Features need not be kernels divided by their norms: any positive multiple, other ones in each layer."""
    episodes = history(TINY, np.random.default_rng(4), 40)
    factors = (0.9, 0.5, 0.7)
    for shared in (True, False):
        features = [c * f for c, f in zip(factors, TINY.features, strict=True)]
        scales = [3.0 * c / f for c, f in zip(TINY.model.scales, factors, strict=True)]
        other = LinearMixtureModel(features, bound=9.0, simplex=True, shared=True, scales=scales)
        ours, theirs = (likelihood_ratio(model, shared=shared) for model in (TINY.model, other))
        for a, b in zip(
            ours[1](learnt(ours[0], episodes)).hull(), theirs[1](learnt(theirs[0], episodes)).hull(), strict=True
        ):
            for left, right in zip(a, b, strict=True):
                np.testing.assert_allclose(left, right, atol=1e-6)


def test_one_kernel_or_one_layer_leaves_nothing_to_learn():
    alone = make_world("random-mixture", layer_sizes=(1, 2, 2, 1), n_actions=2, dim=1)
    short = LinearMixtureMDP.from_kernels([[np.ones((1, 2, 1))]] * 2, [0.5, 0.5])
    for world in (alone, short):
        for shared in (True, False):
            estimator, sets = likelihood_ratio(world.model, shared=shared)
            found = sets(learnt(estimator, history(world, np.random.default_rng(5), 3)))
            assert found.contains(world.kernels, 1e-7)
            assert width(found) <= 1e-6


def test_kernels_that_data_does_not_tell_apart_all_stay_possible():
    kernels = random_kernels(np.random.default_rng(0), [1, 3, 3, 1], 2)
    world = LinearMixtureMDP.from_kernels([kernels, kernels], [0.5, 0.5])
    estimator, sets = likelihood_ratio(world.model)
    data = learnt(estimator, history(world, np.random.default_rng(6), 500))
    assert np.linalg.cond(data.estimate.grams).max() < 1e6
    assert sets(data).contains(world.kernels, 1e-7)


@settings(max_examples=60)
@given(mixture_worlds(), generators(), st.booleans(), st.sampled_from([1, 2, 7, 60]), st.booleans())
def test_any_data_leave_a_set_around_the_likeliest_kernel(world, rng, shared, episodes, plausible):
    """Zeros, rows that agree, few or many episodes; also next states that are possible and far from the truth."""
    estimator, sets = likelihood_ratio(world.model, shared=shared)
    data = estimator.empty()
    for _ in range(episodes):
        states, actions = np.zeros(world.horizon, dtype=np.int64), rng.integers(world.n_actions, size=world.horizon)
        for h in range(world.horizon - 1):
            row = world.kernels[h][states[h], actions[h]]
            states[h + 1] = rng.choice(row.size, p=row) if plausible else np.flatnonzero(row)[-1]
        data = estimator.add(data, states, actions)
    found = sets(data)
    assert found.smallest_radius_multiple() <= 1.0
    assert found.contains(data.likeliest.kernels(), 1e-7)
    for lower, upper in zip(*found.hull(), strict=True):
        assert (lower <= upper + 1e-9).all()


def test_steps_over_these_sets_are_those_of_a_conic_solver():
    """Two kernels that are equal and a third that hardly ever acts make the matrix uneven."""
    rng = np.random.default_rng(10)
    often, rarely = (random_kernels(rng, [1, 3, 3, 1], 2) for _ in range(2))
    world = LinearMixtureMDP.from_kernels([often, often, rarely], [0.5, 0.495, 0.005])
    estimator, sets = likelihood_ratio(world.model)
    data = learnt(estimator, history(world, rng, 2000))
    assert np.linalg.cond(data.estimate.grams).max() > 1e4
    found, policy = sets(data), occupancy.random_policy(world.layer_sizes, 2, rng)
    q, loss = occupancy.occupancy_measure(world, policy), [rng.random(table.shape) for table in policy]
    ours = mirror_descent_step(found, q, loss, 2.0)
    assert ours.gap <= 1e-7
    for mine, theirs in zip(ours.q, reference.mirror_step(found, q, loss, 2.0).q, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=2e-5)
    for h, bounds in enumerate(upper_occupancy(found, policy)[: world.horizon]):
        for s, bound in enumerate(bounds):
            assert bound == pytest.approx(reference.occupancy_bound(found, policy, h, s), abs=1e-6)


def switch():
    """Two simulators that are certain of different next states."""
    end = np.ones((2, 1, 1))
    return LinearMixtureModel.from_kernels([[[[[0.99, 0.01]]], end], [[[[0.01, 0.99]]], end]])


def test_data_that_no_weights_explain_is_reported_and_leaves_a_set():
    """First one simulator, then the other: the forecaster follows, and beats every fixed mixture."""
    estimator, sets = likelihood_ratio(switch())
    data = estimator.empty()
    followed = np.array([[1e-3, 1.0 - 1e-3]])
    for k in range(60):
        data = estimator.add(data, np.array([0, k // 30]), np.array([0, 0]))
    assert data.estimate.evidence[0] < 0.0  # the fitted forecaster is slower than that
    doubtful = replace(data, log_forecast=np.array([-5.0]), forecaster=followed)
    assert doubtful.estimate.evidence[0] > doubtful.confidence  # no weights are left
    assert doubtful.refuted
    assert not data.refuted
    learner = make_learner("vlsuob-reps-tight", switch(), 60, radius="likelihood")
    state = learner._now.state
    assert [learner._renewed(state, each).empty_sets for each in (data, doubtful)] == [0, 1]
    found, enlargement = sets(doubtful).enlarged_if_empty()
    assert enlargement == 1.0
    assert 0.0 < width(found) < width(sets(data))


def test_transitions_that_no_kernel_allows_are_left_out_and_counted():
    end = np.ones((3, 1, 1))
    exact = LinearMixtureModel.from_kernels([[[[[0.5, 0.5, 0.0]]], end], [[[[0.1, 0.9, 0.0]]], end]])
    model = LinearMixtureModel(exact.features, exact.bound, True, zeros_are_certain=False, scales=exact.scales)
    estimator, sets = likelihood_ratio(model)
    data = estimator.add(estimator.empty(), np.array([0, 2]), np.array([0, 0]))
    assert (data.likeliest.unexplained, data.version) == (1, 1)
    assert sets(data).enlarged_if_empty()[1] == 1.0
    np.testing.assert_equal(estimator.tree(estimator.restore(estimator.tree(data))), estimator.tree(data))


def test_probabilities_too_small_to_be_told_apart_are_none():
    end = np.ones((2, 1, 1))
    model = LinearMixtureModel.from_kernels([[[[[1.0, 1e-15]]], end], [[[[1.0, 2e-15]]], end]])
    data = learnt(likelihood_ratio(model)[0], [])
    data = data.add(np.array([0, 1]), np.array([0, 0]))
    assert data.likeliest.unexplained == 1
    assert np.isfinite(data.estimate.grams).all()


def test_millions_of_transitions():
    """Counts as they are after a long run: the set is a few standard deviations, and the matrix is regular."""
    estimator, sets = likelihood_ratio(switch(), zeta=0.05)
    data = learnt(estimator, [])
    found = data.likeliest._fitted(np.array([0, 1]), np.array([3e6, 7e6]), 0)
    data = replace(data, likeliest=found, log_forecast=np.array([-1e9]), version=10**7)
    lower, upper = sets(data).hull()
    deviation = np.sqrt(0.3 * 0.7 / 1e7)
    assert 6.0 * deviation < (upper[0] - lower[0]).max() < 16.0 * deviation


# ---------------------------------------------------------------------------------------------- learners


CASES = {
    "apart": {},
    "shared": {"shared": True},
    "conditional": {"entropy": "conditional", "shared": True},
    "boxes": {"geometry": "box"},
    "triples": {"geometry": "box", "entropy": "triples"},
    "narrow": {"radius_scale": 0.2},
    "any sign": {"simplex": False},
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES.keys())
def test_learners_run_with_it(options):
    learner = make_learner("vlsuob-reps-tight", TINY.model, 60, radius="likelihood", **options)
    assert learner.radii is None
    result = run(TINY, learner, make_adversary("stochastic", TINY, 60), 60, progress=False)
    assert np.isnan(result.frame["bound"]).all()  # coverage is proved, widths are not
    estimate = learner.estimate
    np.testing.assert_allclose(learner.radii, options.get("radius_scale", 1.0) * estimate.radii)
    assert len(learner.radii) == (1 if "shared" in options else 2)
    assert learner.empty_sets == 0
    if "radius_scale" not in options:
        assert learner.confidence_set.contains(TINY.kernels, 1e-7)


@pytest.mark.parametrize("name", ["vlsuob-reps", "vlsuob-reps-tight"])
@pytest.mark.parametrize("shared", [False, True])
def test_it_conforms(name, shared):
    def factory(problem, episodes, seed):
        return make_learner(name, problem, episodes, seed=seed, radius="likelihood", shared=shared)

    check_learner(factory, mdp=TINY, episodes=10)


def test_what_cannot_go_with_it_is_refused():
    any_sign = LinearMixtureModel(TINY.features, bound=TINY.model.bound)
    with pytest.raises(InvalidSpecError, match="need a model whose parameters are mixture weights"):
        make_learner("vlsuob-reps-tight", any_sign, 10, radius="likelihood")
    with pytest.raises(InvalidSpecError, match="lam should be None"):
        make_learner("vlsuob-reps-tight", TINY.model, 10, radius="likelihood", lam=2.0)
    apart = make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=2, dim=3)
    with pytest.raises(InvalidSpecError, match="needs a model that says so"):
        make_learner("vlsuob-reps-tight", apart.model, 10, radius="likelihood", shared=True)


def test_logs_make_the_first_set_narrower():
    episodes = history(TINY, np.random.default_rng(7), 50)
    learner = make_learner("vlsuob-reps-tight", TINY.model, 60, radius="likelihood", shared=True)
    learner.observe_transitions([e.states for e in episodes], [e.actions for e in episodes])
    estimator, sets = likelihood_ratio(TINY.model, shared=True)
    data = learnt(estimator, episodes)
    np.testing.assert_allclose(learner.radii, sets.radii(data))
    np.testing.assert_allclose(learner.estimate.centres, data.estimate.centres)


@pytest.mark.parametrize("shared", [False, True])
def test_the_safe_expert_can_use_it(shared):
    safe = SafeBase(TINY.model, shared, 0.05, radius="likelihood")
    plain = SafeBase(TINY.model, shared, 0.05)
    states = [part.start() for part in (safe, plain)]
    rho = np.ones(TINY.horizon)
    for k, episode in enumerate(history(TINY, np.random.default_rng(8), 60)):
        checked = check_episode(episode, TINY.layers)
        states = [part.advance(state, checked, rho, 1.0, k) for part, state in zip((safe, plain), states, strict=True)]
    assert states[0].set.contains(TINY.kernels, 1e-7)
    assert width(states[0].set) < width(states[1].set)
    again = safe.restore(safe.tree(states[0]))
    np.testing.assert_array_equal(again.set.grams, states[0].set.grams)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("forecaster", np.zeros((1, 3)), "forecaster should be"),
        ("forecaster", np.full((2, 3), 1 / 3), "forecaster should be"),
        ("log_forecast", np.array([np.nan]), "log_forecast should be"),
        ("log_forecast", np.array([1.0]), "log_forecast should be"),
        ("episodes", 7, "do not add up"),
        ("counts", np.array([-1.0]), "seen and counts"),
    ],
)
def test_trees_of_no_history_are_refused(key, value, message):
    estimator, _ = likelihood_ratio(TINY.model, shared=True)
    tree = estimator.tree(learnt(estimator, history(TINY, np.random.default_rng(9), 5)))
    with pytest.raises(ValueError, match=message):
        estimator.restore({**tree, key: value})
