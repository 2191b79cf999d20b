"""Occupancy measures and best policies against brute-force enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advmdp import InvalidMDPError, LayeredMDP, occupancy
from tests.strategies import generators, random_kernels, tiny_worlds


def enumerate_paths(mdp: LayeredMDP, policy) -> list[np.ndarray]:
    """q(s, a) by walking along every trajectory, one at a time."""
    q = [np.zeros((n, mdp.n_actions)) for n in mdp.layer_sizes[:-1]]

    def walk(layer: int, state: int, probability: float) -> None:
        if layer == mdp.horizon:
            return
        for action in range(mdp.n_actions):
            here = probability * policy[layer][state, action]
            q[layer][state, action] += here
            for following in range(mdp.layer_sizes[layer + 1]):
                walk(layer + 1, following, here * mdp.kernels[layer][state, action, following])

    walk(0, 0, 1.0)
    return q


def deterministic_policies(mdp: LayeredMDP):
    states = sum(mdp.layer_sizes[:-1])
    for choice in itertools.product(range(mdp.n_actions), repeat=states):
        flat = np.zeros((states, mdp.n_actions))
        flat[np.arange(states), choice] = 1.0
        yield mdp.layers.split(flat.ravel())


def random_losses(rng, mdp):
    return [rng.random((n, mdp.n_actions)) for n in mdp.layer_sizes[:-1]]


@given(tiny_worlds(), generators())
def test_occupancy_measure_equals_the_sum_over_all_trajectories(mdp, rng):
    policy = occupancy.random_policy(mdp.layer_sizes, mdp.n_actions, rng)
    expected = enumerate_paths(mdp, policy)
    for kernels in (mdp, list(mdp.kernels)):
        q = occupancy.occupancy_measure(kernels, policy)
        for one, other in zip(q, expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-14)


@given(tiny_worlds(), generators())
def test_best_and_worst_policy_equal_enumeration(mdp, rng):
    losses = random_losses(rng, mdp)
    values = [
        sum(float((q * loss).sum()) for q, loss in zip(enumerate_paths(mdp, policy), losses, strict=True))
        for policy in deterministic_policies(mdp)
    ]
    best, value = occupancy.best_policy(mdp, losses)
    assert value == pytest.approx(min(values), abs=1e-12)
    assert occupancy.expected_loss(mdp, best, losses) == pytest.approx(value, abs=1e-12)
    worst, value = occupancy.worst_policy(mdp, losses)
    assert value == pytest.approx(max(values), abs=1e-12)
    assert occupancy.expected_loss(mdp, worst, losses) == pytest.approx(value, abs=1e-12)


@given(st.lists(st.integers(1, 30), max_size=8), st.integers(1, 5), generators())
def test_flow_is_conserved(inner, n_actions, rng):
    mdp = LayeredMDP(random_kernels(rng, [1, *inner, 1], n_actions))
    q = occupancy.occupancy_measure(mdp, occupancy.random_policy(mdp.layer_sizes, n_actions, rng))
    for h, table in enumerate(q):
        assert table.sum() == pytest.approx(1.0, abs=1e-12)
        if h:
            inflow = np.einsum("sa,sat->t", q[h - 1], mdp.kernels[h - 1])
            np.testing.assert_allclose(table.sum(axis=1), inflow, atol=1e-12)


@given(tiny_worlds(), generators())
def test_policy_of_inverts_the_occupancy_measure(mdp, rng):
    policy = occupancy.random_policy(mdp.layer_sizes, mdp.n_actions, rng)
    q = occupancy.occupancy_measure(mdp, policy)
    for table, original, recovered in zip(q, policy, occupancy.policy_of(q), strict=True):
        reached = table.sum(axis=1) > 0
        np.testing.assert_allclose(recovered[reached], original[reached], rtol=1e-12)
        np.testing.assert_array_equal(recovered[~reached], 1.0 / mdp.n_actions)


def test_ties_go_to_the_lowest_action():
    mdp = LayeredMDP([np.ones((1, 3, 1))])
    policy, value = occupancy.best_policy(mdp, [[[0.5, 0.5, 0.5]]])
    assert policy[0].tolist() == [[1.0, 0.0, 0.0]]
    assert value == 0.5


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ([np.ones((1, 2))], r"policy has 1 layers, should be a list over 2 layers"),
        ([np.ones((1, 2)), np.ones((2, 2))], r"policy\[1\] has shape \(2, 2\), should be \(3, 2\)"),
    ],
)
def test_tables_of_the_wrong_shape_are_named(policy, message):
    kernels = [np.full((1, 2, 3), 1 / 3), np.ones((3, 2, 1))]
    with pytest.raises(InvalidMDPError, match=message):
        occupancy.occupancy_measure(kernels, policy)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(1, 2, 3), (2, 2, 1)], r"kernels\[1\] has 2 states, but kernels\[0\] leads to 3"),
        ([(1, 4, 3), (3, 1, 2), (2, 4, 1)], r"kernels\[1\] has 1 actions, kernels\[0\] has 4"),
        ([(1, 2)], r"kernels\[0\] has shape \(1, 2\), should be \(S_h, A, S_\{h\+1\}\)"),
    ],
)
def test_kernels_that_do_not_fit_are_named(shapes, message):
    kernels = [np.full(shape, 1.0 / shape[-1]) for shape in shapes]
    with pytest.raises(InvalidMDPError, match=message):
        occupancy.occupancy_measure(kernels, [])


def test_policies_and_losses_that_make_no_sense_are_named():
    mdp = LayeredMDP([np.full((1, 2, 2), 0.5), np.ones((2, 2, 1))])
    policy = [np.array([[2.0, -1.0]]), np.full((2, 2), 0.5)]
    with pytest.raises(InvalidMDPError, match="policy, layer 0, state 0: probabilities"):
        occupancy.occupancy_measure(mdp, policy)
    losses = [np.zeros((1, 2)), np.array([[0.0, 0.0], [np.nan, 0.0]])]
    with pytest.raises(InvalidMDPError, match="losses, layer 1, state 1, action 0: nan is not a finite number"):
        occupancy.best_policy(mdp, losses)
