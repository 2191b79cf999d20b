"""The step with the regulariser -2 sum sqrt(q): against a conic solver, closed forms, and its own certificate."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from advmdp import LayeredMDP, SolverError, make_world
from advmdp.layered import Layers
from advmdp.solvers.known import TsallisStep
from tests.strategies import random_kernels


def flow_matrix(kernels, sizes, n_actions):
    """Row b is e_s - P_b, over the states that have actions."""
    starts, rows = np.cumsum([0, *sizes[:-1]]), []
    for h, n in enumerate(sizes[:-1]):
        for s, a in np.ndindex(n, n_actions):
            row = np.zeros(starts[-1])
            row[starts[h] + s] = 1.0
            if h + 2 < len(sizes):
                row[starts[h + 1] : starts[h + 2]] -= np.asarray(kernels[h])[s, a]
            rows.append(row)
    return np.array(rows)


def instance(seed):
    """Any kind of rows, some of which lose mass, and costs of any size and sign."""
    rng = np.random.default_rng(seed)
    sizes, n_actions = [1, *rng.integers(1, 5, size=rng.integers(0, 4)).tolist(), 1], int(rng.integers(1, 4))
    world = LayeredMDP(random_kernels(rng, sizes, n_actions))
    kernels = world.kernels
    if seed % 2:
        kernels = [table * rng.uniform(0.0, 1.0, size=(*table.shape[:2], 1)) for table in kernels]
    cost = rng.exponential(size=world.layers.n_pairs) * 10.0 ** rng.integers(-2, 3)
    return world, kernels, cost - (cost.mean() if seed % 3 == 0 else 0.0)


@pytest.mark.parametrize("seed", range(12))
def test_steps_equal_a_conic_solver(seed):
    world, kernels, cost = instance(seed)
    step, _ = TsallisStep(kernels, world.layers)(cost)
    flow = flow_matrix(kernels, world.layer_sizes, world.n_actions)
    q, source = cp.Variable(cost.size, nonneg=True), np.eye(flow.shape[1])[0]
    problem = cp.Problem(cp.Minimize(cost @ q - 2 * cp.sum(cp.sqrt(q))), [flow.T @ q == source])
    problem.solve(solver="CLARABEL")
    found = np.exp(step.log_q)
    # Of a state that nothing leads to the conic solver leaves q = 1e-10, and its root counts.
    assert step.value == pytest.approx(problem.value, abs=1e-4 * (1 + np.abs(cost).max()))
    np.testing.assert_allclose(found, q.value, atol=1e-4)
    np.testing.assert_allclose(flow.T @ found, source, atol=1e-12)


@pytest.mark.parametrize("seed", range(60))
def test_the_gap_is_primal_minus_dual_and_nearly_zero(seed):
    """Both sides written out; their difference is the printed sum of squares, up to rounding."""
    world, kernels, cost = instance(seed)
    step, V = TsallisStep(kernels, world.layers)(cost)
    flow = flow_matrix(kernels, world.layer_sizes, world.n_actions)
    q = np.exp(step.log_q)
    reached = q > 0.0
    r = cost - flow @ V
    assert (r[reached] > 0.0).all()
    primal, dual = cost @ q - 2 * np.sqrt(q).sum(), V[0] - (1 / r[reached]).sum()
    assert step.value == pytest.approx(primal, rel=1e-9)
    assert primal - dual == pytest.approx(0.0, abs=1e-9 * (1 + abs(primal) + np.abs(cost).max()))
    assert 0.0 <= step.gap <= 1e-12
    np.testing.assert_allclose(q[reached], r[reached] ** -2, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3, 1e8])
def test_with_one_layer_it_is_the_closed_form_of_tsallis_inf(scale):
    """w_i = (c_i - z)^-2, z by bisection."""
    rng = np.random.default_rng(3)
    for n_actions in (1, 2, 7):
        world = LayeredMDP([np.ones((1, n_actions, 1))])
        cost = scale * rng.random(n_actions)
        low, high = cost.min() - np.sqrt(n_actions), cost.min() - 1.0
        for _ in range(200):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if ((cost - middle) ** -2.0).sum() < 1.0 else (low, middle)
        step, _ = TsallisStep(world.kernels, world.layers)(cost)
        # z itself is only known up to rounding of the costs.
        np.testing.assert_allclose(np.exp(step.log_q), (cost - low) ** -2.0, rtol=1e-8 + 1e-14 * scale)


def test_the_leader_equals_mirror_descent_from_the_stabilised_iterate():
    """p^-1/2 = rho q_k^-1/2 + (1 - rho) q_1^-1/2 where eta falls by the factor rho; without it they differ."""
    world = make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=2, dim=2)
    solve, rng = TsallisStep(world.kernels, world.layers), np.random.default_rng(0)
    totals = np.zeros(world.layers.n_pairs)
    first = q = np.exp(solve(totals)[0].log_q)
    plain = q
    for k in range(1, 8):
        loss, eta, rho = rng.exponential(size=totals.size), (k + 1) ** -0.5, (k / (k + 1)) ** 0.5
        totals = totals + loss
        q = np.exp(solve(rho * q**-0.5 + (1 - rho) * first**-0.5 + eta * loss)[0].log_q)
        plain = np.exp(solve(plain**-0.5 + eta * loss)[0].log_q)
        leader = np.exp(solve(eta * totals)[0].log_q)
        np.testing.assert_allclose(q, leader, rtol=1e-7)
    assert np.abs(plain - leader).max() > 1e-3


def test_a_warm_start_changes_nothing_but_the_time():
    world = make_world("queue")
    solve, rng = TsallisStep(world.kernels, world.layers), np.random.default_rng(1)
    cost, prices = rng.random(world.layers.n_pairs), None
    for _ in range(20):
        cost = cost + rng.exponential(size=cost.size) * (rng.random(cost.size) < 0.1)
        cold, warm = solve(cost)[0], solve(cost, prices)
        prices = warm[1]
        np.testing.assert_allclose(warm[0].log_q, cold.log_q, atol=1e-7)
    useless = solve(cost, np.full_like(prices, 1e6))[0]  # outside r > 0: as if there were none
    np.testing.assert_array_equal(useless.log_q, solve(cost)[0].log_q)


@pytest.mark.parametrize("jump", [1e3, 1e6, 2e6, 1e8, -1e8])
def test_prices_of_costs_far_away_do_no_harm(jump):
    """From them the first step would have to be too short for floating point."""
    step = TsallisStep([np.ones((1, 1, 1))], Layers((1, 1), 1))
    _, prices = step(np.zeros(1))
    found, _ = step(np.array([jump]), prices)
    assert found.value == pytest.approx(jump - 2.0, rel=1e-9)
    assert found.gap <= 1e-9


def test_harsh_instances_are_certified():
    """Probabilities down to 1e-12, costs up to 1e6 that differ by state, long chains."""
    rng = np.random.default_rng(2)
    for number in range(40):
        sizes = [1, *rng.integers(1, 4, size=rng.integers(1, 12)).tolist(), 1]
        kernels = random_kernels(rng, sizes, 3)
        for table in kernels[:-1]:
            rare = 10.0 ** rng.uniform(-12, 0, size=table.shape)
            table += rare * (rng.random(table.shape) < 0.3)
            table /= table.sum(axis=2, keepdims=True)
        world = LayeredMDP(kernels)
        cost = 10.0 ** rng.uniform(-3, 6, size=world.layers.n_pairs)
        step, _ = TsallisStep(world.kernels, world.layers)(cost)
        assert step.gap <= 1e-8, number
        assert step.residual <= 1e-6, number


def test_where_nothing_leads_there_is_no_mass_and_masked_actions_have_none():
    lost = LayeredMDP([np.array([[[0.5, 0.5, 0.0]] * 2]), np.ones((3, 2, 1))])
    step, _ = TsallisStep(lost.kernels, lost.layers)(np.arange(8.0))
    assert np.isneginf(step.log_q[-2:]).all()
    assert step.policy[-2:].tolist() == [0.5, 0.5]
    masks = [np.array([[True, False]]), np.array([[True, True], [False, True], [True, True]])]
    fewer = lost.restricted(masks)
    step, _ = TsallisStep(fewer.kernels, fewer.layers)(np.arange(8.0))
    assert (np.exp(step.log_q) > 0.0).tolist() == [True, False, True, True, False, True, False, False]


def test_a_step_without_a_certificate_is_an_error_with_a_reproducer(tmp_path):
    world = LayeredMDP([np.ones((1, 2, 1))])
    with pytest.raises(SolverError, match="gap inf, should be at most") as caught:
        TsallisStep(world.kernels, world.layers)(np.array([np.nan, 1.0]))
    caught.value.save(tmp_path / "step.npz")
    assert np.load(tmp_path / "step.npz")["cost"].shape == (2,)
