"""The shortcut of the warm mirror step: taken only where it is exact, and then certified like any other answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advmdp.solvers import mirror_descent_step
from advmdp.solvers.step import SPACES
from tests.solvers.checks import flow_error, recomputed_gap
from tests.solvers.instances import ordinary


def start_from(family, seed, step_size):
    """An instance whose previous measure is feasible, found by a first step, and that step."""
    instance = ordinary(family, seed)
    first = mirror_descent_step(instance.confidence_set, None, instance.loss, instance.step_size, log_q=instance.log_q)
    rng = np.random.default_rng(seed)
    loss = [rng.random(layer.shape) for layer in instance.loss]
    return replace(instance, log_q=first.log_q, loss=loss, step_size=step_size), first


def step_of(instance, **options):
    return mirror_descent_step(
        instance.confidence_set, None, instance.loss, instance.step_size, log_q=instance.log_q, **options
    )


def without_kernels(instance):
    """log q_h of the optimum that ignores where flow comes from: prior_h exp(-cost_h), normalised."""
    tables = [log_q - instance.step_size * loss for log_q, loss in zip(instance.log_q, instance.loss, strict=True)]
    return [table - np.log(np.exp(table).sum()) for table in tables]


@pytest.mark.parametrize("family", ["ellipsoid", "simplex"])
def test_it_is_taken_exactly_where_its_answer_is_the_optimum(family):
    """Small steps, where both happen: its status goes with the closed form, and every answer with the cold one."""
    taken = refused = 0
    for seed in range(30):
        instance, first = start_from(family, seed, 1e-3)
        if not all(reached.all() for reached in instance.confidence_set.reachable):
            continue
        step, cold = step_of(instance, warm=first.warm), step_of(instance)
        assert step.value == pytest.approx(cold.value, abs=2e-8)
        if step.status == "shortcut":
            taken += 1
            for found, expected in zip(step.log_q, without_kernels(instance), strict=True):
                np.testing.assert_allclose(found, expected, atol=1e-6)
            assert flow_error(step, instance.confidence_set) <= 1e-12
            assert instance.confidence_set.contains(step.kernels, tolerance=1e-9)
            assert recomputed_gap(instance, step)[0] <= 1e-8
        else:
            refused += 1
    assert taken >= 3, "the shortcut is never taken: these instances do not test it"
    assert refused >= 3, "no instance binds: these instances do not test the refusal"


@pytest.mark.parametrize("family", ["ellipsoid", "simplex"])
def test_a_warm_step_does_not_depend_on_what_the_memory_held(family):
    for seed in range(6):
        instance, first = start_from(family, seed, 1e-3)
        once = step_of(instance, warm=first.warm)
        step_of(replace(instance, step_size=2.0))
        again = step_of(instance, warm=first.warm)
        SPACES.spaces.clear()
        fresh = step_of(instance, warm=first.warm)
        for other in (again, fresh):
            assert other.status == once.status
            for name in once.warm:
                np.testing.assert_array_equal(other.warm[name], once.warm[name])
            for left, right in zip(other.log_q, once.log_q, strict=True):
                np.testing.assert_array_equal(left, right)
