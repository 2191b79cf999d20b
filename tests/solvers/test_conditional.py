"""The conditional step: against a conic solver, its identity, its certificate, and what makes it fall apart."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advmdp._compiled import kernel
from advmdp.confidence import BoxSet, EllipsoidSet, KnownKernels, L1Set
from advmdp.errors import InvalidMDPError
from advmdp.occupancy import condition
from advmdp.rows.balls import pull_inside
from advmdp.solvers import (
    SolverError,
    conditional_step,
    conditional_value,
    lower_occupancy,
    mirror_descent_step,
    upper_occupancy,
)
from advmdp.solvers.conditional import certified_occupancy
from tests.solvers import reference
from tests.solvers.checks import flow_error
from tests.solvers.instances import FAMILIES, harsh, ordinary


def flat(tables):
    return np.concatenate([np.ravel(table) for table in tables])


def split(confidence_set, vector):
    sizes, n_actions = confidence_set.layer_sizes, confidence_set.n_actions
    parts = np.split(vector, np.cumsum(sizes[:-2]) * n_actions)
    return [part.reshape(-1, n_actions) for part in parts]


def split_states(confidence_set, vector):
    return np.split(vector, np.cumsum(confidence_set.layer_sizes)[:-1])


def log_policy_of(log_q):
    return flat([table - np.logaddexp.reduce(table, axis=1, keepdims=True) for table in log_q])


def policy_of(confidence_set, log_q):
    policy = np.empty_like(log_q)
    condition(log_q, confidence_set.n_actions, policy)
    return policy


def step_of(instance, **options):
    return mirror_descent_step(
        instance.confidence_set, None, instance.loss, instance.step_size,
        log_q=instance.log_q, entropy="conditional", **options,
    )  # fmt: skip


def core_of(instance):
    return conditional_step(
        instance.confidence_set, log_policy_of(instance.log_q), instance.step_size * flat(instance.loss)
    )


def occupancy_of(policy, kernels):
    """Tables q of a policy (S_h, A) under kernels (S_h, A, S_{h+1})."""
    mass, q = np.ones(1), []
    for choice, table in zip(policy, kernels, strict=True):
        q.append(mass[:, None] * choice)
        mass = np.einsum("sa,sat->t", q[-1], table)
    return q


def objective(confidence_set, policy, kernels, log_reference, cost):
    """<q, cost> + sum q ln(pi / ref) in plain numpy."""
    total = 0.0
    tables = (split(confidence_set, vector) for vector in (log_reference, cost))
    for q, pi, ref, c in zip(occupancy_of(policy, kernels), policy, *tables, strict=True):
        played = q > 0.0
        total += float((q * c).sum() + (q[played] * (np.log(pi[played]) - ref[played])).sum())
    return total


def random_kernels(confidence_set, rng):
    """A kernel of the set: rows that are best for random costs, mixed."""
    pairs = confidence_set.n_actions * sum(confidence_set.layer_sizes[:-1])
    steps = [
        mirror_descent_step(
            confidence_set, np.ones(pairs), rng.normal(size=pairs), 5.0, entropy="conditional"
        ).kernels
        for _ in range(3)
    ]  # fmt: skip
    share = rng.dirichlet(np.ones(3))
    return [sum(w * table for w, table in zip(share, layer, strict=True)) for layer in zip(*steps, strict=True)]


# --------------------------------------------------------------------------- against the conic solver


def check_against_oracle(confidence_set, q, loss, step_size, tolerance=2e-6):
    step = mirror_descent_step(confidence_set, q, loss, step_size, entropy="conditional")
    expected = reference.mirror_step(confidence_set, q, loss, step_size, conditional=True)
    assert step.value == pytest.approx(expected.value, abs=tolerance, rel=1e-7)
    for found, table in zip(step.q, expected.q, strict=True):
        mass = found.sum(axis=1, keepdims=True)
        seen = (mass > 1e-2).ravel() & (table.sum(axis=1) > 1e-2)
        share = table[seen] / table[seen].sum(axis=1, keepdims=True)
        np.testing.assert_allclose(found[seen] / mass[seen], share, atol=5e-3)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("family", FAMILIES)
def test_it_agrees_with_a_conic_solver(family, seed):
    instance = ordinary(family, seed)
    check_against_oracle(instance.confidence_set, instance.q, instance.loss, instance.step_size)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 40))
@pytest.mark.parametrize("family", FAMILIES)
def test_it_agrees_with_a_conic_solver_many(family, seed):
    instance = ordinary(family, seed)
    rng = np.random.default_rng(seed)
    loss = [rng.normal(size=table.shape) for table in instance.loss]
    check_against_oracle(instance.confidence_set, instance.q, loss, instance.step_size)


def degenerate_set(family, sizes, n_actions, *, deterministic, lost, rng):
    """A set of some family around a kernel whose rows may be unit vectors and may never lead to a last state."""
    truth = []
    for n, m in pairwise(sizes):
        open_to = m - 1 if lost and m > 1 else m
        table = np.zeros((n, n_actions, m))
        if deterministic:
            table[..., :open_to] = np.eye(open_to)[rng.integers(open_to, size=(n, n_actions))]
        else:
            table[..., :open_to] = rng.dirichlet(np.ones(open_to), size=(n, n_actions))
        truth.append(table)
    if family == "known":
        return KnownKernels(truth)
    if family == "box":
        width = [0.2 * (table > 0.0) for table in truth]
        return BoxSet(
            [t - w for t, w in zip(truth, width, strict=True)], [t + w for t, w in zip(truth, width, strict=True)]
        )
    if family == "l1":
        return L1Set(truth, [np.full(table.shape[:2], 0.0 if lost else 0.3) for table in truth])
    others = []
    for table in truth:
        rolled = table.copy()
        if table.shape[2] > 2:
            rolled[..., :-1] = np.roll(table[..., :-1], 1, axis=2)
        others.append(rolled)
    features = [np.stack([a, b], axis=3) for a, b in zip(truth, others, strict=True)]
    centres = [np.array([0.9, 0.1])] * len(truth)
    return EllipsoidSet(features, centres, [4.0 * np.eye(2)] * len(truth), 0.8, simplex=family == "simplex")


CASES = {
    "deterministic rows": {"deterministic": True},
    "one action": {"n_actions": 1},
    "one state per layer": {"sizes": (1, 1, 1, 1)},
    "one decision": {"sizes": (1, 1)},
    "a state that nothing leads to": {"lost": True},
    "actions of probability zero": {"zeros": True},
    "tiny costs": {"scale": 1e-9},
    "huge costs": {"scale": 1e3},
    "huge costs, deterministic rows": {"scale": 1e5, "deterministic": True},
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("case", CASES)
def test_degenerate_steps(case, family):
    options = {"sizes": (1, 3, 4, 3, 1), "n_actions": 3, "scale": 1.0} | CASES[case]
    rng = np.random.default_rng(7)
    zeros, scale = options.pop("zeros", False), options.pop("scale")
    options = {"deterministic": False, "lost": False} | options
    confidence_set = degenerate_set(family, **options, rng=rng)
    n_actions = confidence_set.n_actions
    q = [rng.dirichlet(np.ones(n_actions), size=n) / n for n in confidence_set.layer_sizes[:-1]]
    if zeros:
        for table in q:
            table[:, 1] = 0.0
    loss = [rng.uniform(-1.0, 1.0, size=table.shape) for table in q]
    step = mirror_descent_step(confidence_set, q, loss, scale, entropy="conditional")
    assert step.status == "conditional"
    assert (step.iterations, step.warm) == (1, {})
    assert abs(step.gap) <= 1e-8
    assert step.residual <= 1e-6
    assert flow_error(step, confidence_set) <= 1e-12
    assert confidence_set.contains(step.kernels, tolerance=1e-9)
    if zeros:
        assert all((table[:, 1] == 0.0).all() for table in step.q)
        assert all(
            (policy[:, 1] == 0.0).all() for policy in split(confidence_set, policy_of(confidence_set, step.flat.log_q))
        )
    if scale <= 1.0:
        check_against_oracle(confidence_set, q, loss, scale)
    else:  # beyond the conic solver: the policy is nearly greedy, and no deterministic one of the set is better
        value = objective(
            confidence_set, split(confidence_set, policy_of(confidence_set, step.flat.log_q)), step.kernels,
            log_policy_of(np.log(table) for table in q), scale * flat(loss),
        )  # fmt: skip
        assert step.value == pytest.approx(value, rel=1e-12)


# --------------------------------------------------------------------------- what the proof rests on


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(6))
def test_the_identity_holds_for_every_occupancy_measure_of_the_set(family, seed):
    """<q, cost> + sum q ln(pi_q / ref) = V(s_1) + sum q (P.V - m) + sum q ln(pi_q / pi), with an unnormalised ref."""
    instance = ordinary(family, seed)
    confidence_set, rng = instance.confidence_set, np.random.default_rng(seed)
    cost = rng.normal(size=flat(instance.loss).shape)
    log_reference = log_policy_of(instance.log_q) + rng.normal(size=cost.shape)
    step = conditional_step(confidence_set, log_reference, cost)
    prices = [-table for table in split_states(confidence_set, step.potential)]
    # m, read off the recursion: ln pi = ln ref + V - cost - m.
    least = split(confidence_set, log_reference - cost - step.log_policy)
    least = [table + price[:, None] for table, price in zip(least, prices, strict=False)]
    for _ in range(5):
        kernels = random_kernels(confidence_set, rng)
        policy = [rng.dirichlet(np.ones(confidence_set.n_actions), n) for n in confidence_set.layer_sizes[:-1]]
        total = step.value
        for h, (q, pi) in enumerate(zip(occupancy_of(policy, kernels), policy, strict=True)):
            ahead = kernels[h] @ prices[h + 1] - least[h]
            reached = confidence_set.reachable[h]
            assert (ahead[reached] >= -1e-9).all()
            total += (q * ahead)[reached].sum()
            total += (q * (np.log(pi) - split(confidence_set, step.log_policy)[h]))[reached].sum()
        assert total == pytest.approx(objective(confidence_set, policy, kernels, log_reference, cost), abs=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(6))
def test_the_value_is_bounded_from_below_by_jensen(family, seed):
    """exp(-V(s_1)) <= E exp(-sum of costs) under the reference and the minimising rows, hence for costs >= 0
    V(s_1) >= <q, cost> - min(H/2 <q, cost^2>, <q, cost>) with q of the reference under these rows; and q lies
    between the occupancy bounds of the reference."""
    instance = ordinary(family, seed)
    confidence_set = instance.confidence_set
    horizon = confidence_set.horizon
    step = core_of(instance)
    kernels = step_of(instance).kernels
    policy = split(confidence_set, np.exp(step.log_reference))
    costs = split(confidence_set, step.cost)
    mean = np.ones(1)
    for h in range(horizon - 1, -1, -1):
        mean = (policy[h] * np.exp(-costs[h]) * (kernels[h] @ mean)).sum(axis=1)
    assert np.exp(-step.value) <= mean[0] * (1.0 + 1e-12)
    q = occupancy_of(policy, kernels)
    linear = sum(float((x * c).sum()) for x, c in zip(q, costs, strict=True))
    square = sum(float((x * c * c).sum()) for x, c in zip(q, costs, strict=True))
    assert step.value >= linear - min(0.5 * horizon * square, linear) - 1e-12
    upper, lower = upper_occupancy(confidence_set, policy), lower_occupancy(confidence_set, policy)
    for table, high, low in zip(q, upper, lower, strict=True):
        assert (table.sum(axis=1) <= high + 1e-9).all()
        assert (table.sum(axis=1) >= low - 1e-9).all()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rho", [0.3, 0.9])
def test_the_bound_holds_for_references_between_two_policies(family, rho):
    """ref = pi^rho first^(1-rho), not normalised, and step sizes eta and rho eta:
    V(s_1) / (rho eta) >= <q, loss> - (eta H / 2) <q, loss^2>, by Hoelder's inequality and Jensen's."""
    instance = ordinary(family, 1)
    confidence_set, rng, eta = instance.confidence_set, np.random.default_rng(0), 0.7
    log_policy = log_policy_of(instance.log_q)
    first = np.full_like(log_policy, -np.log(confidence_set.n_actions))
    loss = 2.0 * rng.random(log_policy.shape)
    step = conditional_step(confidence_set, rho * log_policy + (1.0 - rho) * first, rho * eta * loss)
    q = flat(occupancy_of(split(confidence_set, np.exp(log_policy)), mirror_kernels(step)))
    bound = q @ loss - min(0.5 * eta * confidence_set.horizon * (q @ loss**2), q @ loss)
    assert step.value / (rho * eta) >= bound - 1e-12


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(6))
def test_without_costs_nothing_moves(family, seed):
    instance = ordinary(family, seed)
    log_reference = log_policy_of(instance.log_q)
    step = conditional_step(instance.confidence_set, log_reference, np.zeros_like(log_reference))
    np.testing.assert_allclose(step.policy, np.exp(log_reference), rtol=2e-14, atol=1e-15)
    assert abs(step.value) <= 1e-14


@given(st.sampled_from(FAMILIES), st.integers(0, 60), st.integers(0, 2**32 - 1), st.floats(-3.0, 2.0))
def test_no_other_policy_and_kernel_of_the_set_costs_less(family, seed, choice, size):
    instance = ordinary(family, seed)
    confidence_set, rng = instance.confidence_set, np.random.default_rng(choice)
    cost = 10.0**size * rng.normal(size=flat(instance.loss).shape)
    log_reference = log_policy_of(instance.log_q)
    step = conditional_step(confidence_set, log_reference, cost)
    kernels = random_kernels(confidence_set, rng)
    near = step.log_policy + 0.1 * rng.normal(size=cost.shape)
    for log_policy in (near, rng.normal(size=cost.shape), log_reference):
        policy = split(confidence_set, policy_of(confidence_set, log_policy))
        for rows in (kernels, mirror_kernels(step)):
            found = objective(confidence_set, policy, rows, log_reference, cost)
            assert found >= step.value - 1e-9 * (1.0 + abs(step.value))


def mirror_kernels(step):
    tables, start = [], 0
    sizes, n_actions = step.confidence_set.layer_sizes, step.confidence_set.n_actions
    for n, m in pairwise(sizes[:-1]):
        tables.append(step.occupancy.kernels[start : start + n * n_actions * m].reshape(n, n_actions, m))
        start += n * n_actions * m
    return [*tables, np.ones((sizes[-2], n_actions, 1))]


@pytest.mark.parametrize("family", FAMILIES)
def test_constants_on_layers_shift_the_value_and_nothing_else(family):
    instance = ordinary(family, 2)
    confidence_set, rng = instance.confidence_set, np.random.default_rng(0)
    step = core_of(instance)
    costs, references = rng.normal(size=(2, confidence_set.horizon)) * 10.0
    lift = [np.full((n, confidence_set.n_actions), c) for n, c in zip(confidence_set.layer_sizes, costs, strict=False)]
    scale = [
        np.full((n, confidence_set.n_actions), c) for n, c in zip(confidence_set.layer_sizes, references, strict=False)
    ]
    moved = conditional_step(confidence_set, step.log_reference + flat(scale), step.cost + flat(lift))
    np.testing.assert_allclose(moved.policy, step.policy, atol=1e-12)
    assert moved.value == pytest.approx(step.value + costs.sum() - references.sum(), abs=1e-11)
    assert conditional_value(confidence_set, moved.log_reference, moved.cost) == moved.value


def test_one_layer_is_exponential_weights():
    q, loss = np.array([[0.2, 0.5, 0.3]]), np.array([[0.3, -2.0, 0.0]])
    step = mirror_descent_step(KnownKernels([np.ones((1, 3, 1))]), [q], [loss], 1.5, entropy="conditional")
    expected = q * np.exp(-1.5 * loss)
    np.testing.assert_allclose(step.q[0], expected / expected.sum(), rtol=1e-14)
    assert step.value == pytest.approx(-np.log(expected.sum()), abs=1e-15)


def test_a_point_is_the_known_kernel_in_every_family():
    instance = ordinary("known", 5)
    kernels = instance.confidence_set.kernels
    expected = step_of(instance)
    for confidence_set in (
        BoxSet(kernels, kernels),
        L1Set(kernels, [np.zeros(table.shape[:2]) for table in kernels]),
        EllipsoidSet(
            [table[..., None] for table in kernels], [np.ones(1)] * len(kernels), [np.eye(1)] * len(kernels), 1.0
        ),
    ):
        step = mirror_descent_step(
            confidence_set, None, instance.loss, instance.step_size, log_q=instance.log_q, entropy="conditional"
        )
        assert step.value == pytest.approx(expected.value, abs=1e-12)
        np.testing.assert_allclose(step.flat.q, expected.flat.q, atol=1e-12)


# --------------------------------------------------------------------------- certificates


def check_certificate(instance):
    step, core = step_of(instance), core_of(instance)
    confidence_set = instance.confidence_set
    assert abs(step.gap) <= 1e-8
    assert step.residual <= 1e-9
    assert step.value - core.value == pytest.approx(step.gap, abs=1e-11 * (1.0 + abs(step.value)))
    assert flow_error(step, confidence_set) <= 1e-11
    np.testing.assert_allclose(np.exp(step.flat.log_q), step.flat.q, rtol=1e-15)
    # log q tells the policy of the recursion wherever q has underflowed, and where nothing leads.
    assert (step.flat.log_q > -np.inf).all()
    np.testing.assert_allclose(policy_of(confidence_set, step.flat.log_q), core.policy, rtol=1e-10, atol=1e-300)
    sums = core.policy.reshape(-1, confidence_set.n_actions).sum(axis=1)
    np.testing.assert_allclose(sums, 1.0, rtol=0.0, atol=1e-15 * confidence_set.n_actions)
    return step


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(25))
def test_harsh_steps_are_certified(family, seed):
    instance = harsh(family, seed)
    if instance.empty:
        with pytest.raises(InvalidMDPError, match="empty pairs"):
            step_of(instance)
        return
    step = check_certificate(instance)
    assert instance.confidence_set.contains(step.kernels, tolerance=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
@pytest.mark.parametrize("family", FAMILIES)
def test_harsh_steps_are_certified_many(family, block):
    for seed in range(25 + 40 * block, 65 + 40 * block):
        instance = harsh(family, seed)
        if not instance.empty:
            check_certificate(instance)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_certificate_of_a_wrong_policy_says_how_wrong_it_is(family):
    """The control: whatever policy is handed to it, the gap is what the objective exceeds V(s_1) by."""
    instance = next(each for each in map(ordinary, [family] * 9, range(9)) if each.confidence_set.n_actions > 1)
    confidence_set, rng = instance.confidence_set, np.random.default_rng(1)
    n_actions = confidence_set.n_actions
    step = core_of(instance)
    greedy = np.full_like(step.cost, -np.inf)
    greedy[::n_actions] = 0.0
    uniform = np.full_like(step.cost, -np.log(n_actions))
    drawn = log_policy_of([rng.normal(size=(len(step.cost) // n_actions, n_actions))])
    for log_policy in (uniform, drawn, greedy):
        found = certified_occupancy(step, log_policy)
        policy = split(confidence_set, np.exp(log_policy))
        worth = objective(confidence_set, policy, mirror_kernels(step), step.log_reference, step.cost)
        assert found.gap == pytest.approx(worth - step.value, rel=1e-9, abs=1e-12)
        assert found.gap > 1e-3
        assert found.residual > 1e-2


def test_rows_short_of_the_extreme_are_accounted_for():
    """Prices that are not those of the recursion make the rows and the policy wrong: the gap shows it."""
    instance = ordinary("ellipsoid", 3)
    step = core_of(instance)
    step.potential[1:-1] += np.random.default_rng(0).normal(size=len(step.potential) - 2)
    assert step.occupancy.residual > 0.1


def test_a_gap_above_the_tolerance_is_an_error(tmp_path):
    instance = next(each for each in map(ordinary, ["simplex"] * 9, range(9)) if step_of(each).gap != 0.0)
    with pytest.raises(SolverError, match="conditional mirror step") as error:
        step_of(instance, tolerance=0.0)
    error.value.save(tmp_path / "step.npz")
    assert str(np.load(tmp_path / "step.npz")["set"]) == "EllipsoidSet"


@kernel
def pull(normals, offsets, shortest, point):
    pull_inside(normals, offsets, shortest, point)


@pytest.mark.parametrize("point", [(3.0, 0.0), (0.0, -0.9), (2.0, -2.0), (0.1, 0.2)])
def test_a_point_outside_is_moved_into_its_set(point):
    """The rows are the entries of (1/3 + x, 1/3 + y, 1/3 - x - y), scaled to the unit disc."""
    normals = np.array([[0.4, 0.0, -0.4], [0.0, 0.4, -0.4]])
    offsets = np.full(3, 1.0 / 3.0)
    chi = np.array(point)
    pull(normals, offsets, np.zeros(2), chi)
    row = offsets + chi @ normals
    assert row.min() >= -1e-15
    assert chi @ chi <= 1.0 + 1e-12
    assert abs(chi[0] * point[1] - chi[1] * point[0]) <= 1e-12  # on the way to the point
    inside = np.linalg.norm(point) < 0.5
    assert (np.linalg.norm(chi - point) <= 1e-15) == inside
    assert inside or row.min() <= 1e-12 or chi @ chi >= 1.0 - 1e-12  # and not short of the edge


# --------------------------------------------------------------------------- the edges of floating point


def chain(horizon, n_actions=2):
    kernels = [np.full((1, n_actions, 2), 0.5)]
    kernels += [np.full((2, n_actions, 2), 0.5) for _ in range(horizon - 2)]
    return KnownKernels([*kernels, np.ones((2, n_actions, 1))])


@pytest.mark.parametrize("depth", [1e3, 1e4, 1e6])
def test_references_far_below_floating_point(depth):
    confidence_set = chain(6)
    rng = np.random.default_rng(0)
    log_reference = -depth * rng.random(2 * 11)
    cost = depth * rng.normal(size=log_reference.shape)
    step = conditional_step(confidence_set, log_reference, cost)
    assert np.isfinite(step.log_policy).all()
    np.testing.assert_allclose(step.policy.reshape(-1, 2).sum(axis=1), 1.0, rtol=0.0, atol=3e-16)
    total = np.logaddexp.reduce(step.log_policy.reshape(-1, 2), axis=1)
    np.testing.assert_allclose(total, 0.0, atol=1e-15 * depth)
    assert abs(step.occupancy.gap) <= 1e-14 * depth


def test_states_that_the_minimising_rows_avoid_keep_the_policy_of_the_recursion():
    """A box lets the rows put nothing on the dear state: q is zero there, and log q still tells its policy."""
    lower = [np.zeros((1, 2, 2)), np.zeros((2, 2, 2)), np.ones((2, 2, 1))]
    confidence_set = BoxSet(lower, [np.ones_like(table) for table in lower])
    loss = [np.zeros((1, 2)), np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([[1.0, 0.0], [0.0, 5.0]])]
    q = [np.full((n, 2), 0.5 / n) for n in (1, 2, 2)]
    step = mirror_descent_step(confidence_set, q, loss, 1.0, entropy="conditional")
    assert step.q[1][1].tolist() == [0.0, 0.0]
    odds = step.log_q[1][1, 0] - step.log_q[1][1, 1]
    assert odds == pytest.approx(1.0, abs=1e-12)
    again = mirror_descent_step(confidence_set, None, loss, 1.0, log_q=step.log_q, entropy="conditional")
    assert again.log_q[1][1, 0] - again.log_q[1][1, 1] == pytest.approx(2.0, abs=1e-12)


def test_a_state_that_no_kernel_reaches_keeps_its_reference():
    kernels = [np.tile([1.0, 0.0], (1, 2, 1)), np.ones((2, 2, 1))]
    log_reference = np.log([0.5, 0.5, 0.5, 0.5, 0.2, 0.8])
    cost = np.array([0.0, 1.0, 0.0, 1.0, np.nan, np.inf])  # nobody's
    step = conditional_step(KnownKernels(kernels), log_reference, cost)
    np.testing.assert_allclose(step.policy[4:], [0.2, 0.8], rtol=1e-15)
    assert step.occupancy.q[4:].tolist() == [0.0, 0.0]
    assert abs(step.occupancy.gap) <= 1e-15
    # As log q of the other steps has it there:
    log_q = [np.log([[0.5, 0.5]]), np.array([[np.log(0.5)] * 2, [-np.inf] * 2])]
    answer = mirror_descent_step(
        KnownKernels(kernels), None, [np.zeros((1, 2)), np.ones((2, 2))], 1.0, log_q=log_q, entropy="conditional"
    )
    np.testing.assert_allclose(policy_of(KnownKernels(kernels), answer.flat.log_q)[4:], 0.5, rtol=1e-15)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"log_reference": (slice(2, 4), -np.inf)}, "-inf for all actions of layer 1, state 0"),
        ({"log_reference": (3, np.nan)}, "log_reference is nan at layer 1, state 0, action 1"),
        ({"log_reference": (3, np.inf)}, "log_reference is inf at layer 1, state 0, action 1"),
        ({"cost": (4, np.nan)}, "cost is nan at layer 1, state 1, action 0"),
        ({"cost": (4, np.inf)}, "cost is inf at layer 1, state 1, action 0"),
        ({"cost": (0, -np.inf)}, "cost is -inf at layer 0, state 0, action 0"),
        ({"cost": (slice(None), 1e308)}, "beyond floating-point"),
    ],
)
@pytest.mark.parametrize("family", ["known", "box"])
def test_what_cannot_be_used_is_named(family, change, message):
    kernels = [np.full((1, 2, 2), 0.5), np.ones((2, 2, 1))]
    confidence_set = KnownKernels(kernels) if family == "known" else BoxSet(kernels, kernels)
    vectors = {"log_reference": np.log(np.full(6, 0.5)), "cost": np.zeros(6)}
    for name, (place, value) in change.items():
        vectors[name][place] = value
    with pytest.raises(InvalidMDPError, match=message):
        conditional_step(confidence_set, **vectors)


def test_shapes_and_empty_sets_are_named():
    kernels = [np.full((1, 2, 2), 0.5), np.ones((2, 2, 1))]
    with pytest.raises(InvalidMDPError, match=r"needs \(6,\)"):
        conditional_step(KnownKernels(kernels), np.zeros(6), np.zeros(5))
    lower, upper = [np.full((1, 2, 2), 0.2), np.ones((2, 2, 1))], [np.full((1, 2, 2), 0.9), np.ones((2, 2, 1))]
    upper[0][0, 1] = 0.3
    with pytest.raises(InvalidMDPError, match="layer 0, state 0, action 1"):
        conditional_step(BoxSet(lower, upper), np.zeros(6), np.zeros(6))


def test_vectors_need_not_be_contiguous():
    instance = ordinary("box", 3)
    step = core_of(instance)
    table = np.stack([step.log_reference, step.cost], axis=1)
    again = conditional_step(instance.confidence_set, table[:, 0], table[:, 1])
    np.testing.assert_array_equal(again.policy, step.policy)
