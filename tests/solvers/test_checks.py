"""The judge of the mirror steps is judged: it proves right answers, also at rare states, and refutes wrong ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advmdp.solvers import MirrorStep, mirror_descent_step
from advmdp.solvers.problem import FlatTables
from tests.solvers.checks import flow_error, primal_value, recomputed_gap
from tests.solvers.instances import Instance, harsh, ordinary
from tests.solvers.test_against_oracle import CASES


def solve(instance: Instance, entropy: str, loss: list[np.ndarray]) -> MirrorStep:
    return mirror_descent_step(
        instance.confidence_set, None, loss, instance.step_size,
        log_q=instance.log_q, entropy=entropy, kernels=instance.kernels,
    )  # fmt: skip


def mixture(instance: Instance, step: MirrorStep, other: MirrorStep, share: float) -> MirrorStep:
    """Occupancy measures of triples mixed: one of the set again, by convexity, that claims to be what ``step`` is."""
    confidence_set = instance.confidence_set
    q, log_q, kernels = [], [], []
    for h in range(confidence_set.horizon):
        weights = np.stack([(1.0 - share) * step.q[h], share * other.q[h]])
        mixed = weights.sum(axis=0)
        q.append(mixed)
        with np.errstate(divide="ignore"):
            log_q.append(np.log(mixed))
        of_step = np.where(mixed > 0.0, weights[0] / np.where(mixed > 0.0, mixed, 1.0), 1.0)[:, :, None]
        kernels.append(of_step * step.kernels[h] + (1.0 - of_step) * other.kernels[h])
    tables = (q, log_q, kernels[:-1] or [np.empty(0)])
    flat = FlatTables(*(np.concatenate([table.ravel() for table in layers]) for layers in tables))
    return replace(step, flat=flat)


@pytest.mark.parametrize("seed", [0, 1, 3, 5, 6, 9])
@pytest.mark.parametrize(("family", "entropy"), CASES)
def test_a_step_with_too_high_a_value_is_refuted(family: str, entropy: str, seed: int) -> None:
    instance = ordinary(family, seed)
    triples = entropy == "triples"
    step = solve(instance, entropy, instance.loss)
    rng = np.random.default_rng(seed)
    other = solve(instance, entropy, [rng.random(table.shape) / instance.step_size for table in instance.loss])
    # The smallest move towards the other step that costs more than the tolerance.
    for share in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1):
        wrong = mixture(instance, step, other, share)
        excess = primal_value(instance, wrong, triples=triples) - step.value
        if excess > 2e-8:
            break
    assert excess > 2e-8
    assert flow_error(wrong, instance.confidence_set) <= 1e-12
    assert instance.confidence_set.contains(wrong.kernels, tolerance=1e-9)
    gap, value_error = recomputed_gap(instance, wrong, triples=triples)
    assert gap >= excess - 1e-10
    assert value_error == pytest.approx(excess, rel=1e-6)
    assert recomputed_gap(instance, step, triples=triples)[0] <= 1e-8


# States of mass 1e-13 and ties between prices: read off q, the prices leave gaps of 8e-7, 5e-4 and 1e-7.
@pytest.mark.parametrize(("family", "seed"), [("ellipsoid", 336), ("simplex", 9003), ("simplex", 20034)])
def test_coarse_prices_of_rare_states_are_improved(family: str, seed: int) -> None:
    instance = harsh(family, seed)
    problem = (instance.confidence_set, None, instance.loss, instance.step_size)
    step = mirror_descent_step(*problem, log_q=instance.log_q, tolerance=1e-9)
    gap, _ = recomputed_gap(instance, step)
    assert -1e-12 <= gap <= 1e-9
