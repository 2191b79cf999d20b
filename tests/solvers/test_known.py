"""The certificate of steps over known rows, away from the optimum: primal minus dual, written out."""

from __future__ import annotations

import numpy as np
import pytest

from advmdp import LayeredMDP, occupancy
from advmdp._compiled import kernel
from advmdp.confidence import KnownKernels
from advmdp.solvers import known
from advmdp.solvers.known import RepeatedStep, TsallisStep
from tests.solvers.test_tsallis import flow_matrix
from tests.strategies import random_kernels


@kernel
def certify_at(problem, memory, log_prior, cost, V, log_q, policy):
    problem, memory = known._Problem(*problem), known._Memory(*memory)
    known.evaluate(problem, memory, log_prior, cost, V)
    return known.certify(problem, memory, log_prior, cost, log_q, policy)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("roots", [False, True])
def test_the_gap_of_any_prices_is_primal_minus_dual(seed, roots):
    rng = np.random.default_rng(seed)
    sizes, n_actions = [1, *rng.integers(1, 5, size=3).tolist(), 1], 3
    world = LayeredMDP(random_kernels(rng, sizes, n_actions))
    flow = flow_matrix(world.kernels, sizes, n_actions)
    cost, V = rng.random(len(flow)), 0.3 * rng.standard_normal(flow.shape[1])
    prior = world.layers.flatten(occupancy.occupancy_measure(world, world.layers.split(world.layers.uniform_policy)))
    if roots:
        step = TsallisStep(world.kernels, world.layers)
        cost += np.maximum(0.0, 0.1 - (cost - flow @ V).min())
    else:
        step = RepeatedStep(KnownKernels(world.kernels))
    log_q, policy = np.full_like(cost, np.nan), world.layers.uniform_policy.copy()
    reached = prior > 0.0
    with np.errstate(divide="ignore"):
        log_prior = np.log(prior)
    value, gap, residual = certify_at(*step._parts, log_prior, cost, V, log_q, policy)
    q, r = np.exp(log_q), (cost - flow @ V)[reached]
    np.testing.assert_allclose(flow.T @ q, np.eye(flow.shape[1])[0], atol=1e-13)
    if roots:
        primal, dual = cost @ q - 2 * np.sqrt(q).sum(), V[0] - (1 / r).sum()
        stationary = np.log(q[reached]) + 2 * np.log(r)
    else:
        moved = log_q[reached] - log_prior[reached]
        primal = cost @ q + q[reached] @ moved
        dual = V[0] - (prior[reached] * np.exp(-r)).sum() + prior.sum()
        stationary = moved + r
    assert value == pytest.approx(primal, rel=1e-12)
    assert gap == pytest.approx(primal - dual, rel=1e-9)
    assert gap > 1e-4
    assert residual == pytest.approx(np.abs(stationary).max(), rel=1e-9)
