"""Steps that are prepared once: equal to the general solver's, on sparse, dense and partly unreachable worlds."""

from __future__ import annotations

import numpy as np
import pytest

from advmdp import LayeredMDP, make_world
from advmdp.confidence import KnownKernels
from advmdp.solvers.known import RepeatedStep
from tests.strategies import random_kernels

WORLDS = {
    "dense": LayeredMDP(random_kernels(np.random.default_rng(0), [1, 4, 5, 3, 1], 3)),
    "grid": make_world("grid", height=5, width=4, noise={"slip": 0.1}),
    "one layer": LayeredMDP([np.ones((1, 3, 1))]),
    "unreachable states": LayeredMDP([np.array([[[0.5, 0.5, 0.0]] * 2]), np.ones((3, 2, 1))]),
}


def start(world):
    sizes, n_actions = world.layer_sizes, world.n_actions
    uniform = np.concatenate([np.full(n * n_actions, -np.log(n * n_actions)) for n in sizes[:-1]])
    step = RepeatedStep(KnownKernels(world.kernels))
    return step, step.cold(uniform, np.zeros_like(uniform)).log_q


@pytest.mark.parametrize("scale", [0.01, 1.0, 8.0])
@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())
def test_a_sequence_of_steps_equals_the_general_solver(world, scale):
    step, log_q = start(world)
    rng = np.random.default_rng(1)
    for _ in range(20):
        cost = scale * rng.random(log_q.size)
        ours, general = step(log_q, cost), step.cold(log_q, cost)
        reached = np.isfinite(general.log_q)
        np.testing.assert_array_equal(np.isfinite(ours.log_q), reached)
        np.testing.assert_allclose(ours.log_q[reached], general.log_q[reached], atol=3e-7)
        np.testing.assert_allclose(ours.policy, general.policy, atol=1e-7)
        assert ours.value == pytest.approx(general.value, abs=1e-9)
        assert 0.0 <= ours.gap <= 1e-10
        assert ours.residual <= 1e-6
        log_q = ours.log_q


def test_small_steps_take_the_short_way():
    step, log_q = start(WORLDS["grid"])
    rng = np.random.default_rng(2)
    for _ in range(50):
        answer = step(log_q, 0.05 * rng.random(log_q.size))
        assert answer.status == "repeated"
        assert answer.iterations <= 4
        log_q = answer.log_q


def test_masses_beyond_floating_point_are_left_to_the_general_solver():
    step, log_q = start(WORLDS["dense"])
    cost = np.zeros_like(log_q)
    cost[:2] = 400.0  # two of the three first actions become as good as impossible
    for _ in range(3):
        answer = step(log_q, cost)
        log_q = answer.log_q
    assert log_q.min() < -1000.0
    assert answer.gap <= 1e-8


def test_states_of_denormal_mass_are_left_to_the_general_solver():
    """exp(-744.3) and exp(-744.6) are the same number, so that flow which seems to hold proves nothing about log q."""
    step = RepeatedStep(KnownKernels([np.eye(2)[None], np.ones((2, 2, 1))]))
    log_q = np.array([0.0, -744.3, -0.1, np.log1p(-np.exp(-0.1)), -744.3, -900.0])
    cost = np.array([0.0, 0.0, 0.0, 0.0, 0.3, 0.3])
    answer = step(log_q, cost)
    np.testing.assert_allclose(answer.log_q - log_q, [0.0, -0.15, 0.0, 0.0, -0.15, -0.15], atol=1e-7)


def test_rows_that_sum_to_one_up_to_rounding_lose_no_mass():
    rows = np.array([[0.3, 0.7 + 5e-10], [0.5, 0.5 - 5e-10]])
    world = [rows[None], np.array([rows, rows]), np.ones((2, 2, 1))]
    step = RepeatedStep(KnownKernels(world))
    log_q = step.cold(np.log([0.5] * 2 + [0.25] * 8), np.zeros(10)).log_q
    answer = step(log_q, np.arange(10.0) / 10)
    assert answer.status == "repeated"
    masses = [np.exp(part).sum() for part in np.split(answer.log_q, [2, 6])]
    np.testing.assert_allclose(masses, 1.0, rtol=0, atol=1e-14)
