"""The chain of attempts, each where it is the one that succeeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from advmdp import make_adversary, make_learner, make_world, run
from advmdp.learners.parts import steps
from advmdp.solvers import MirrorStep, SolverError, mirror, mirror_descent_step
from tests.solvers.checks import flow_error, recomputed_gap
from tests.solvers.instances import harsh, ordinary


@pytest.mark.parametrize("family", ["ellipsoid", "simplex", "box", "l1"])
@pytest.mark.parametrize("seed", [0, 2, 3])
def test_later_attempts_agree_with_the_usual_ones(family: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = ordinary(family, seed)
    problem = (instance.confidence_set, None, instance.loss, instance.step_size)
    usual = mirror_descent_step(*problem, log_q=instance.log_q)
    assert usual.status == "cold"
    for attempts, status in ((mirror._CHAIN[1:], "careful"), ((), "smoothed")):
        monkeypatch.setattr(mirror, "_CHAIN", attempts)
        step = mirror_descent_step(*problem, log_q=instance.log_q)
        assert step.status == status
        assert abs(step.value - usual.value) <= 2e-8
        assert flow_error(step, instance.confidence_set) <= 1e-12
        assert recomputed_gap(instance, step)[0] <= 1e-7
        assert instance.confidence_set.contains(step.kernels, tolerance=1e-8)


@pytest.mark.parametrize(
    ("family", "seed", "status"),
    [
        ("ellipsoid", 0, "cold"), ("simplex", 1, "cold"), ("box", 0, "cold"),
        ("ellipsoid", 39, "careful"), ("simplex", 64, "careful"), ("box", 108, "careful"),
        ("ellipsoid", 51, "smoothed"), ("simplex", 79, "smoothed"), ("box", 395, "smoothed"), ("l1", 111, "smoothed"),
    ],
)  # fmt: skip
def test_each_attempt_is_needed(family: str, seed: int, status: str) -> None:
    instance = harsh(family, seed)
    step = mirror_descent_step(instance.confidence_set, None, instance.loss, instance.step_size, log_q=instance.log_q)
    assert step.status == status
    assert recomputed_gap(instance, step)[0] <= 1e-7


def test_exact_minima_prove_what_multipliers_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = harsh("ellipsoid", 249)
    problem = (instance.confidence_set, None, instance.loss, instance.step_size)
    assert mirror_descent_step(*problem, log_q=instance.log_q).status == "careful"
    nothing = np.full(sum(table.size for table in instance.log_q), -np.inf)
    extremes = mirror.mixtures.extremes
    monkeypatch.setattr(mirror.mixtures, "extremes", lambda *given: (nothing, extremes(*given)[1]))
    with pytest.raises(SolverError) as missed:
        mirror_descent_step(*problem, log_q=instance.log_q)
    assert missed.value.gap > 1e-8


@pytest.mark.parametrize("family", ["ellipsoid", "box"])
def test_a_step_like_the_last_one_succeeds_warm(family: str) -> None:
    instance = ordinary(family, 0)
    problem = (instance.confidence_set, None, instance.loss, instance.step_size)
    first = mirror_descent_step(*problem, log_q=instance.log_q)
    second = mirror_descent_step(*problem, log_q=instance.log_q, warm=first.warm)
    assert (first.status, second.status) == ("cold", "warm")
    assert abs(first.value - second.value) <= 2e-8


# Deep occupancies and thin sets.  Simplex 631: only just not empty, into which no point finds from far outside.
# Simplex 30025: nearly a point, out of which an earlier start stepped.  Box 30040 and 91014: rare states at kinks.
# Box 20126 and 70060, simplex 123022 and 140290: lost by the interior point before this one.  l1 546: lost by the dual
# that barriers smoothed.  l1 631 and 1479: prices went astray as tau fell for good.  Ellipsoid 1219 and 838: rare
# states from which Newton's steps did not return.
@pytest.mark.parametrize(
    ("family", "seed"),
    [
        ("ellipsoid", 51), ("ellipsoid", 39), ("box", 395), ("box", 285), ("box", 49), ("simplex", 631),
        ("simplex", 30025), ("simplex", 79), ("simplex", 181), ("simplex", 91051), ("box", 70060),
        ("box", 30040), ("box", 91014), ("box", 20126), ("simplex", 123022), ("simplex", 140290), ("l1", 546),
        ("l1", 631), ("l1", 1479), ("ellipsoid", 1219), ("ellipsoid", 838),
    ],
)  # fmt: skip
def test_steps_that_were_lost_are_solved(family: str, seed: int) -> None:
    instance = harsh(family, seed)
    step = mirror_descent_step(instance.confidence_set, None, instance.loss, instance.step_size, log_q=instance.log_q)
    assert flow_error(step, instance.confidence_set) <= 1e-12
    assert recomputed_gap(instance, step)[0] <= 1e-7
    assert instance.confidence_set.contains(step.kernels, tolerance=1e-8)


def test_steps_of_a_run_over_narrow_boxes_succeed_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Multipliers that were cut down to the path while their slacks were still on the way spoilt one in ten."""
    world = make_world("random-mixture", layer_sizes=(1, 20, 20, 20, 20, 1), n_actions=4, dim=4)
    solve, statuses = steps.mirror_descent_step, []

    def recorded(*arguments: Any, **options: Any) -> MirrorStep:
        step = solve(*arguments, **options)
        statuses.append(step.status)
        return step

    monkeypatch.setattr(steps, "mirror_descent_step", recorded)
    learner = make_learner("vlsuob-reps-tight", world, 60, geometry="box", radius_scale=0.1)
    run(world, learner, make_adversary("stochastic", world, 60), 60, progress=False)
    assert statuses == ["cold"] + ["warm"] * (len(statuses) - 1)
