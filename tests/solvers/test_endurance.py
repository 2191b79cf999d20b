"""Bare mirror-descent loops: no step fails, none drifts, and what is claimed after many steps is still true."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from advmdp.confidence import ConfidenceSet
from advmdp.solvers import MirrorStep, mirror_descent_step
from benchmarks.bench_mirror import losses, problem
from tests.solvers.checks import flow_error, recomputed_gap
from tests.solvers.instances import Instance

CASES = [
    ("ellipsoid", "pairs"), ("simplex", "pairs"), ("box", "pairs"), ("known", "pairs"),
    ("l1", "triples"), ("box", "triples"), ("known", "triples"),
]  # fmt: skip
STEP_SIZE = 0.1


def bare_loop(
    family: str, entropy: str, steps: int, sizes: tuple[int, ...], tolerance: float = 1e-8
) -> Iterator[tuple[Instance, MirrorStep]]:
    """Warm steps along losses as importance weighting makes them: each problem, and its answer."""
    families, q, _ = problem(sizes)
    confidence_set: ConfidenceSet = families[family]
    kernels = families["known"].kernels
    log_q, warm = [np.log(table) for table in q], None
    rng = np.random.default_rng(1)
    for number in range(steps):
        loss = losses(rng, q)
        step = mirror_descent_step(
            confidence_set, None, loss, STEP_SIZE,
            log_q=log_q, entropy=entropy, kernels=kernels, warm=warm, tolerance=tolerance,
        )  # fmt: skip
        yield Instance(f"{family}-{number}", confidence_set, log_q, loss, STEP_SIZE, kernels, kernels), step
        log_q, kernels, warm = step.log_q, step.kernels, step.warm


@pytest.mark.parametrize(("family", "entropy"), CASES)
def test_steps_of_a_loop_are_proved_by_another_route(family: str, entropy: str) -> None:
    for number, (instance, step) in enumerate(bare_loop(family, entropy, 60, (1, 4, 5, 4, 1))):
        if number % 15 == 14:
            assert flow_error(step, instance.confidence_set) <= 1e-12
            assert instance.confidence_set.contains(step.kernels, tolerance=1e-9)
            gap, _ = recomputed_gap(instance, step, triples=entropy == "triples")
            assert -1e-10 <= gap <= 1e-8


@pytest.mark.parametrize(("family", "entropy"), CASES)
def test_a_loop_stays_beside_the_same_loop_at_a_tighter_tolerance(family: str, entropy: str) -> None:
    usual = bare_loop(family, entropy, 100, (1, 4, 5, 4, 1))
    tight = bare_loop(family, entropy, 100, (1, 4, 5, 4, 1), tolerance=1e-9)
    for (_, one), (_, other) in zip(usual, tight, strict=True):
        for ours, theirs in zip(one.log_q, other.log_q, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "entropy"), CASES)
def test_five_thousand_steps_without_one_failure(family: str, entropy: str) -> None:
    for _, step in bare_loop(family, entropy, 5000, (1, 10, 10, 10, 10, 1)):
        assert abs(step.gap) <= 1e-8
        assert step.residual <= 1e-6
    assert min(float(table.min()) for table in step.log_q) < -15.0  # it went somewhere
