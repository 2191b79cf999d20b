"""The triple-entropy step beyond the comparison with the oracle: rows, warm starts, and extremes."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advmdp.confidence import BoxSet, KnownKernels, L1Set
from advmdp.errors import InvalidMDPError, InvalidSpecError
from advmdp.solvers import mirror_descent_step
from advmdp.solvers.entropic_rows import LARGEST_SPREAD, LEAST_PRIOR, box_row, l1_row
from tests.solvers.checks import _ball_minimiser, _box_minimiser, flow_error, recomputed_gap
from tests.solvers.instances import Instance, harsh, ordinary

FAMILIES = ("box", "l1", "known")


def step_of(instance, **options):
    return mirror_descent_step(
        instance.confidence_set, None, instance.loss, instance.step_size,
        log_q=instance.log_q, entropy="triples", kernels=instance.kernels, **options,
    )  # fmt: skip


class Row:
    """A row problem with prices that differ by up to hundreds, and a centre with some zeros."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        m = int(self.rng.integers(2, 9))
        self.price = self.rng.choice([1.0, 30.0, 300.0]) * self.rng.normal(size=m)
        self.prior = np.maximum(self.rng.dirichlet(np.ones(m)) * (self.rng.random(m) < 0.9), LEAST_PRIOR)
        self.z = np.log(self.prior) - self.price
        centre = self.rng.dirichlet(np.ones(m)) * (self.rng.random(m) < 0.8)
        centre[0] += 1.0 - centre.sum()
        self.centre = centre

    def solutions(self, kernel, *bounds):
        """The minimiser with weights that are given, where they are in range, and with those of logarithms."""
        highest = self.price.max()
        for level in (highest, np.inf) if highest - self.price.min() < LARGEST_SPREAD else (np.inf,):
            w = self.prior * np.exp(level - self.price) if level < np.inf else np.empty_like(self.prior)
            p, group = np.empty_like(w), np.empty(len(w), dtype=np.int8)
            divergence = kernel(self.prior, self.price, level, *bounds, w, p, group)
            assert divergence + p @ self.price == pytest.approx(self.objective(p), rel=1e-12, abs=1e-12)
            assert p.sum() == pytest.approx(1.0, abs=1e-13)
            yield p

    def objective(self, p):
        positive = p > 0.0
        return (p[positive] * (np.log(p[positive]) - self.z[positive])).sum()


@given(st.integers(0, 100_000))
def test_box_rows_agree_with_bisection(seed):
    row = Row(seed)
    width = row.rng.random(len(row.z)) * row.rng.choice([0.0, 1e-3, 0.5], len(row.z))
    low, high = np.maximum(row.centre - width, 0.0), np.minimum(row.centre + width, 1.0)
    expected = row.objective(_box_minimiser(row.z, low, high))
    for p in row.solutions(box_row, low, high):
        assert np.all((low - 1e-15 <= p) & (p <= high + 1e-15))
        assert row.objective(p) == pytest.approx(expected, rel=1e-11, abs=1e-11)


@given(st.integers(0, 100_000))
def test_l1_rows_agree_with_nested_bisection(seed):
    row = Row(seed)
    radius = float(row.rng.choice([0.0, 1e-3, 0.3, 1.0, 2.5]))
    expected = row.objective(_ball_minimiser(row.z, row.centre, radius))
    for p in row.solutions(l1_row, row.centre, radius):
        assert np.abs(p - row.centre).sum() <= radius + 1e-13
        assert row.objective(p) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("family", FAMILIES)
def test_a_warm_start_changes_the_work_and_not_the_answer(family, seed):
    instance = ordinary(family, seed)
    cold = step_of(instance)
    warm = step_of(instance, warm=cold.warm)
    assert warm.iterations == 0
    assert warm.value == pytest.approx(cold.value, abs=1e-12)
    far = step_of(instance, warm={"prices": 5.0 * np.random.default_rng(seed).normal(size=cold.warm["prices"].size)})
    assert far.value == pytest.approx(cold.value, abs=1e-10)
    for one, other in zip(far.log_q, cold.log_q, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("width", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("support", [2, 90])
def test_wide_layers_are_solved_by_gradients_and_by_factors(support, width):
    """Where pairs lead to two states each flow takes more iterations to settle than where they lead everywhere."""
    rng = np.random.default_rng(support)
    sizes = (1, 90, 95, 90, 1)
    truth, kernels, log_q, loss = [], [], [], []
    for n, m in pairwise(sizes):
        drawn = rng.exponential(size=(n, 2, m))
        drawn *= drawn >= np.sort(drawn)[..., -min(support, m), None]
        truth.append(drawn / drawn.sum(axis=2, keepdims=True))
        kernels.append(np.maximum(truth[-1], 1e-3) / np.maximum(truth[-1], 1e-3).sum(axis=2, keepdims=True))
        log_q.append(rng.normal(size=(n, 2)) * 3.0 - np.log(n))
        loss.append(rng.random((n, 2)))
    boxes = BoxSet([np.maximum(p - width, 0.0) for p in truth], [np.minimum(p + width, 1.0) for p in truth])
    instance = Instance("wide", boxes, log_q, loss, 1.0, kernels, truth)
    step = step_of(instance)
    gap, error = recomputed_gap(instance, step, triples=True)
    assert step.status == "cold"
    assert flow_error(step, boxes) < 1e-12
    assert max(gap, error) < 1e-8


@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_along_no_loss_from_inside_the_set_stays(family):
    """q and its kernels are feasible already, so they are the projection of themselves."""
    instance = ordinary(family, 4)
    kernels = instance.truth
    policy = [np.exp(log_q - np.log(np.exp(log_q).sum(axis=1, keepdims=True))) for log_q in instance.log_q]
    q, mass = [], np.ones(1)
    for kernel, table in zip(kernels, policy, strict=True):
        q.append(mass[:, None] * table)
        mass = np.einsum("sa,sat->t", q[-1], kernel)
    zero = [np.zeros_like(table) for table in q]
    step = mirror_descent_step(
        instance.confidence_set, [np.maximum(table, 1e-300) for table in q], zero, 1.0,
        entropy="triples", kernels=kernels,
    )  # fmt: skip
    assert step.value == pytest.approx(0.0, abs=1e-10)
    for one, other in zip(step.q, q, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("family", FAMILIES)
def test_many_steps_stay_certified_while_q_leaves_the_range_of_floats(family, seed):
    """One action per state is punished in every step: its log q falls to about -1500."""
    instance = ordinary(family, seed)
    confidence_set = instance.confidence_set
    if confidence_set.n_actions == 1:
        return
    loss = [np.zeros_like(table) for table in instance.loss]
    for table in loss:
        table[:, 0] = 1.0
    log_q, kernels, warm = instance.log_q, instance.kernels, None
    for _ in range(30):
        step = mirror_descent_step(
            confidence_set, None, loss, 50.0, log_q=log_q, entropy="triples", kernels=kernels, warm=warm
        )
        log_q = [np.where(np.isfinite(table), table, -1e4) for table in step.log_q]
        kernels, warm = step.kernels, step.warm
    assert step.gap <= 1e-8
    assert flow_error(step, confidence_set) <= 1e-12
    reached = confidence_set.reachable[-2]
    before, after = (np.diff(tables[-1][reached, :2], axis=1) for tables in (instance.log_q, step.log_q))
    # Nothing follows the last layer: there each step moves the log-ratio of two actions by exactly 50.
    np.testing.assert_allclose(after - before, 30 * 50.0, rtol=1e-9)


def test_results_do_not_depend_on_what_was_solved_before():
    instance, other = ordinary("box", 1), harsh("box", 3)
    first = step_of(instance)
    step_of(other)
    second = step_of(instance)
    for one, two in zip(first.q + first.kernels, second.q + second.kernels, strict=True):
        np.testing.assert_array_equal(one, two)


def test_what_the_step_refuses():
    instance = ordinary("box", 1)
    with pytest.raises(InvalidSpecError, match="needs kernels"):
        mirror_descent_step(instance.confidence_set, instance.q, instance.loss, 1.0, entropy="triples")
    ellipsoid = ordinary("ellipsoid", 1)
    with pytest.raises(InvalidSpecError, match="no solver for EllipsoidSet"):
        step_of(ellipsoid)
    bad = [table.copy() for table in instance.loss]
    bad[0][0, 0] = np.nan
    with pytest.raises(InvalidMDPError, match=r"step_size \* loss is nan at layer 0, state 0, action 0"):
        mirror_descent_step(instance.confidence_set, instance.q, bad, 1.0, entropy="triples", kernels=instance.kernels)


def test_an_empty_box_is_named():
    truth = [np.full((1, 2, 3), 1 / 3), np.ones((3, 2, 1))]
    low = [truth[0] + 0.1, truth[1]]
    box = BoxSet(low, [table + 0.05 for table in low])
    q = [np.full((1, 2), 0.5), np.full((3, 2), 1 / 6)]
    with pytest.raises(InvalidMDPError, match="first at layer 0, state 0, action 0; a radius 5 times"):
        mirror_descent_step(box, q, q, 1.0, entropy="triples", kernels=truth)


def test_sets_of_one_kernel_agree():
    instance = ordinary("known", 2)
    truth = instance.truth
    steps = [
        mirror_descent_step(s, instance.q, instance.loss, instance.step_size, entropy="triples", kernels=truth)
        for s in (
            KnownKernels(truth),
            BoxSet(truth, truth),
            L1Set(truth, [np.zeros(k.shape[:2]) for k in truth]),
        )
    ]
    for step in steps[1:]:
        assert step.value == pytest.approx(steps[0].value, abs=1e-12)
