"""Mixture weights of maximum likelihood against a conic solver, and against their own certificate."""

from __future__ import annotations

import cvxpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advmdp import InvalidSpecError, LayeredMDP, LinearMixtureMDP, LinearMixtureModel, make_world, occupancy, play
from advmdp.confidence.likelihood import TOLERANCE, MixtureWeights, TransitionCounts, fit
from tests.strategies import generators, mixture_worlds, random_kernels, tiny_worlds


def history(mdp, rng, episodes):
    policy = occupancy.uniform_policy(mdp.layer_sizes, mdp.n_actions)
    losses = [np.zeros((n, mdp.n_actions)) for n in mdp.layer_sizes[:-1]]
    return [play(mdp, policy, losses, rng) for _ in range(episodes)]


def base_probabilities(model: LinearMixtureModel, episode) -> np.ndarray:
    """The vector of base probabilities of every transition of an episode, ``(H - 1, d)``."""
    rows = []
    for h in range(model.horizon - 1):
        table = model.features[h][episode.states[h], episode.actions[h]]
        rows.append(table[episode.states[h + 1]] / table[:, 0].sum())
    return np.array(rows).reshape(-1, model.dim)


def likelihood(rows, weights, prior=0.0):
    with np.errstate(divide="ignore"):
        return np.log(rows @ weights).sum() + (prior * np.log(weights).sum() if prior else 0.0)


def conic(rows, dim, prior=0.0):
    w = cvxpy.Variable(dim, nonneg=True)
    value = cvxpy.sum(cvxpy.log(rows @ w))
    if prior:
        value = value + prior * cvxpy.sum(cvxpy.log(w))
    cvxpy.Problem(cvxpy.Maximize(value), [cvxpy.sum(w) == 1]).solve(solver="CLARABEL")
    return np.maximum(w.value, 0.0) / np.maximum(w.value, 0.0).sum()


@settings(max_examples=40)
@given(mixture_worlds(), generators(), st.booleans(), st.sampled_from([0.0, 0.5]))
def test_weights_are_the_most_likely_ones(mdp, rng, shared, prior):
    """Degenerate data included: few transitions, kernels that agree, rows with zeros."""
    estimate = MixtureWeights.empty(mdp.model, shared=shared, prior=prior)
    rows = []
    for episode in history(mdp, rng, int(rng.choice([1, 3, 40]))):
        estimate = estimate.add(episode.states, episode.actions)
        rows.append(base_probabilities(mdp.model, episode))
    assert estimate.gaps.max(initial=0.0) <= TOLERANCE
    np.testing.assert_allclose(estimate.weights.sum(axis=1), 1.0, rtol=1e-12)
    assert (estimate.weights >= 0.0).all()
    if mdp.horizon == 1:
        return
    stacked = np.array(rows)  # (episodes, H - 1, d)
    groups = [stacked.reshape(-1, mdp.dim)] if shared else list(stacked.transpose(1, 0, 2))
    for weights, group in zip(estimate.weights, groups, strict=True):
        best = likelihood(group, conic(group, mdp.dim, prior), prior)
        assert likelihood(group, weights, prior) >= best - 1e-5


@given(mixture_worlds(), generators(), st.booleans())
def test_kernels_are_the_mixture(mdp, rng, shared):
    estimate = MixtureWeights.empty(mdp.model, shared=shared)
    for episode in history(mdp, rng, 5):
        estimate = estimate.add(episode.states, episode.actions)
    kernels = estimate.kernels()
    LayeredMDP(kernels)  # rows are distributions
    for h in range(mdp.horizon - 1):
        features = mdp.features[h]
        weights = estimate.weights[0 if shared else h]
        np.testing.assert_allclose(kernels[h], (features / features[0, 0, :, 0].sum()) @ weights, atol=1e-12)
    np.testing.assert_array_equal(kernels[-1], 1.0)


@pytest.mark.parametrize("name", ["grid", "queue", "frozen-lake"])
def test_shared_weights_are_learnt(name):
    world = make_world(name)
    shared, single = (MixtureWeights.empty(world.model, shared=flag) for flag in (True, False))
    for episode in history(world, np.random.default_rng(0), 400):
        shared = shared.add(episode.states, episode.actions)
        single = single.add(episode.states, episode.actions)
    errors = [
        max(np.abs(a - b).max() for a, b in zip(e.kernels(), world.kernels, strict=True)) for e in (shared, single)
    ]
    assert errors[0] < 0.03
    assert errors[0] < errors[1]
    # What layers share is stored once: one array of the queue's middle layers stands for six.
    assert len(shared.kernel.values) <= sum(kernel.size for kernel in world.kernels)


def test_a_transition_that_only_a_dropped_kernel_explains():
    """The weight of kernel 1 is exactly zero until its own transition comes."""
    end = np.ones((2, 1, 1))
    model = LinearMixtureModel.from_kernels([[[[[1.0, 0.0]]], end], [[[[0.0, 1.0]]], end]])
    estimate = MixtureWeights.empty(model, prior=0.0)
    for _ in range(100):
        estimate = estimate.add(np.array([0, 0]), np.array([0, 0]))
    np.testing.assert_allclose(estimate.weights, [[1.0, 0.0]], atol=1e-6)
    estimate = estimate.add(np.array([0, 1]), np.array([0, 0]))
    np.testing.assert_allclose(estimate.weights, [[100 / 101, 1 / 101]], atol=1e-6)


def test_weights_that_data_does_not_tell_apart_stay_equal():
    kernels = random_kernels(np.random.default_rng(0), [1, 3, 3, 1], 2)
    world = LinearMixtureMDP.from_kernels(
        [kernels, kernels, random_kernels(np.random.default_rng(1), [1, 3, 3, 1], 2)], [1, 0, 0]
    )
    estimate = MixtureWeights.empty(world.model, shared=True, prior=0.0)
    for episode in history(world, np.random.default_rng(2), 200):
        estimate = estimate.add(episode.states, episode.actions)
    assert estimate.weights[0, 0] == pytest.approx(estimate.weights[0, 1], abs=1e-3)
    assert estimate.weights[0, 2] < 0.1


@given(generators(), st.integers(1, 8), st.integers(1, 60))
def test_the_certificate_bounds_what_is_missing(rng, dim, rows):
    """After any number of steps, far from the maximum too."""
    vectors = rng.random((rows, dim)) * (rng.random((rows, dim)) < 0.5)
    vectors[vectors.sum(axis=1) == 0.0] = 1.0
    counts = rng.integers(1, 1000, size=rows).astype(float)
    groups, seen = np.array([0, rows]), np.arange(rows)
    best, gaps = np.full((1, dim), 1.0 / dim), np.zeros(1)
    fit(vectors, groups, seen, counts, 0.0, 1e-9, 200, best, gaps)
    assert gaps[0] <= 1e-6

    def value(weights):
        return counts @ np.log(vectors @ weights)

    for steps in range(4):
        weights = np.full((1, dim), 1.0 / dim)
        fit(vectors, groups, seen, counts, 0.0, 0.0, steps, weights, gaps)
        assert value(best[0]) <= value(weights[0]) + gaps[0] + 1e-7 * counts.sum()


def test_transitions_without_any_explanation_are_left_out():
    model = LinearMixtureModel.from_simulators([lambda *_: 0, lambda *_: 0], (1, 2, 1), n_actions=1, samples=5)
    estimate = MixtureWeights.empty(model).add(np.array([0, 1]), np.array([0, 0]))
    assert estimate.unexplained == 1
    np.testing.assert_array_equal(estimate.weights, [[0.5, 0.5]])


def test_signed_parameters_are_no_weights():
    with pytest.raises(InvalidSpecError, match="mixture weights"):
        MixtureWeights.empty(make_world("bow-tie").model)
    with pytest.raises(InvalidSpecError, match="prior"):
        MixtureWeights.empty(make_world("grid").model, prior=-1.0)


@given(tiny_worlds(), generators(), st.sampled_from([0.0, 1.0]))
def test_counts_are_frequencies(world, rng, prior):
    estimate = TransitionCounts.empty(world.model, prior=prior)
    counts = [np.zeros(kernel.shape) for kernel in world.kernels]
    for episode in history(world, rng, 8):
        estimate = estimate.add(episode.states, episode.actions)
        for h in range(world.horizon - 1):
            counts[h][episode.states[h], episode.actions[h], episode.states[h + 1]] += 1.0
    for h, kernel in enumerate(estimate.kernels()):
        m = kernel.shape[2]
        visits = counts[h].sum(axis=2, keepdims=True)
        expected = np.where(visits > 0, (counts[h] + prior / m) / np.maximum(visits + prior, 1e-9), 1.0 / m)
        np.testing.assert_allclose(kernel, expected if h < world.horizon - 1 else 1.0)
    again = TransitionCounts.empty(world.model, prior=prior).from_tree(estimate.tree())
    np.testing.assert_allclose(again.kernel.values, estimate.kernel.values, rtol=1e-14)


def test_counts_respect_what_a_model_rules_out():
    world = make_world("grid", height=3, width=3)
    estimate = TransitionCounts.empty(world.model, prior=1.0)
    for episode in history(world, np.random.default_rng(0), 20):
        estimate = estimate.add(episode.states, episode.actions)
    for kernel, possible in zip(estimate.kernels(), world.model.possible, strict=True):
        assert not kernel[~possible].any()
    LayeredMDP(estimate.kernels())
    wrong = np.where(estimate.possible, 0.0, 1.0)
    with pytest.raises(ValueError, match="rules out"):
        TransitionCounts.empty(world.model).from_tree({"counts": wrong})


def test_an_estimate_survives_a_checkpoint():
    world = make_world("queue")
    empty = MixtureWeights.empty(world.model, shared=True)
    estimate = empty
    episodes = history(world, np.random.default_rng(0), 20)
    for episode in episodes:
        before = estimate.weights.copy()
        new = estimate.add(episode.states, episode.actions)
        np.testing.assert_array_equal(estimate.weights, before)
        estimate = new
    again = empty.from_tree(estimate.tree())
    one, two = (e.add(episodes[0].states, episodes[0].actions) for e in (estimate, again))
    np.testing.assert_array_equal(one.weights, two.weights)
    wrong = {
        "seen": estimate.seen[::-1], "counts": estimate.counts * 0.0, "weights": estimate.weights * 2.0,
        "gaps": estimate.gaps - 1.0, "unexplained": -1,
    }  # fmt: skip
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=name):
            empty.from_tree({**estimate.tree(), name: value})
