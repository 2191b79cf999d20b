"""Occupancy bounds: against conic rows, vertices of tiny boxes, and what they must satisfy by meaning."""

from itertools import pairwise, product

import numpy as np
import pytest

from advmdp.confidence import BoxSet, EllipsoidSet, KnownKernels, L1Set
from advmdp.errors import InvalidMDPError
from advmdp.solvers import lower_occupancy, occupancy_bounds, upper_occupancy
from advmdp.solvers.occupancy_bounds import extreme_rows, occupancy_intervals
from tests.solvers import reference
from tests.solvers.instances import FAMILIES, harsh, ordinary


def random_policy(confidence_set, seed):
    rng = np.random.default_rng(seed)
    return [rng.dirichlet(np.ones(confidence_set.n_actions), n) for n in confidence_set.layer_sizes[:-1]]


def visits(kernels, policy):
    """The probability of each state, layer by layer."""
    masses = [np.ones(1)]
    for kernel, table in zip(kernels[:-1], policy[:-1], strict=True):
        masses.append(np.einsum("s,sa,sat->t", masses[-1], table, kernel))
    return masses


def check_against_oracle(family, seed):
    confidence_set = ordinary(family, seed).confidence_set
    policy = random_policy(confidence_set, seed)
    rng = np.random.default_rng(seed)
    last = min(confidence_set.horizon - 1, 3)
    targets = [(h, int(rng.integers(confidence_set.layer_sizes[h]))) for h in range(last + 1)]
    upper = upper_occupancy(confidence_set, policy, targets)
    lower = lower_occupancy(confidence_set, policy, targets)
    for (h, s), high, low in zip(targets, upper, lower, strict=True):
        assert high == pytest.approx(reference.occupancy_bound(confidence_set, policy, h, s), abs=1e-7)
        expected = reference.occupancy_bound(confidence_set, policy, h, s, maximise=False)
        assert low == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("family", FAMILIES)
def test_bounds_agree_with_dynamic_programming_over_conic_rows(family, seed):
    check_against_oracle(family, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5, 45))
@pytest.mark.parametrize("family", FAMILIES)
def test_bounds_agree_with_dynamic_programming_over_conic_rows_many(family, seed):
    check_against_oracle(family, seed)


def check_rows(instance, seed, tolerance):
    confidence_set = instance.confidence_set
    rng = np.random.default_rng(seed)
    for h in range(confidence_set.horizon - 1):
        reached = confidence_set.reachable[h]
        values = rng.normal(size=confidence_set.layer_sizes[h + 1])
        for maximise in (True, False):
            expected = reference.extreme_rows(confidence_set, h, values, maximise=maximise)
            found = extreme_rows(confidence_set, h, values, maximise=maximise)
            np.testing.assert_allclose(found[reached], expected[reached], atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("family", ["ellipsoid", "simplex"])
def test_rows_of_harsh_ellipsoids_agree_with_the_conic_solver(family, seed):
    instance = harsh(family, seed)
    if instance.empty or "touching" in instance.name:
        # A set that is a single point up to 1e-9 is beyond the conic solver, not beyond ours:
        # test_touching_sets checks it by its meaning.
        return
    check_rows(instance, seed, 1e-6)


@pytest.mark.parametrize("seed", range(120))
def test_touching_sets(seed):
    """Where the ellipsoid only touches the simplex, largest and smallest means enclose the same point."""
    instance = harsh("ellipsoid", seed)
    if "touching" not in instance.name:
        return
    confidence_set = instance.confidence_set
    layer, state, action = max(
        ((h, s, a) for h, table in enumerate(confidence_set._smallest_multiples())
         for s in np.flatnonzero(confidence_set.reachable[h]) for a in range(confidence_set.n_actions)),
        key=lambda pair: confidence_set._smallest_multiples()[pair[0]][pair[1], pair[2]],
    )  # fmt: skip
    values = np.random.default_rng(seed).random(confidence_set.layer_sizes[layer + 1])
    high = extreme_rows(confidence_set, layer, values)[state, action]
    low = extreme_rows(confidence_set, layer, values, maximise=False)[state, action]
    # The radius exceeds the smallest by 1e-9 to 1e-7, so the diameter is below sqrt(2e-7) of the whole.
    assert -1e-9 <= high - low <= 1e-2


def vertices(low, high):
    """Vertices of {low <= p <= high, sum one}: all entries at a bound but one."""
    m = len(low)
    for free in range(m):
        for ends in product((0, 1), repeat=m - 1):
            p = np.where(np.insert(ends, free, 0), high, low)
            p[free] = 1.0 - (p.sum() - p[free])
            if low[free] - 1e-12 <= p[free] <= high[free] + 1e-12:
                yield p


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("family", FAMILIES)
def test_intervals_of_all_states_are_the_bounds_and_a_forward_pass_encloses_them(family, seed):
    instance = ordinary(family, seed)
    confidence_set = instance.confidence_set
    policy = random_policy(confidence_set, seed)
    flat = np.concatenate([table.ravel() for table in policy])
    low, high = occupancy_intervals(confidence_set, flat)
    np.testing.assert_allclose(low, np.concatenate(lower_occupancy(confidence_set, policy)), atol=1e-12)
    np.testing.assert_allclose(high, np.concatenate(upper_occupancy(confidence_set, policy)), atol=1e-12)
    wide_low, wide_high = occupancy_intervals(confidence_set, flat, exact=False)
    assert (wide_low >= 0.0).all()
    assert (wide_low <= low + 1e-9).all()
    assert (high <= wide_high + 1e-9).all()
    assert (wide_high <= 1.0 + 1e-12).all()
    truth = np.concatenate(visits(instance.truth, policy))
    if confidence_set.contains(instance.truth, 1e-9):
        assert (wide_low - 1e-8 <= truth).all()
        assert (truth <= wide_high + 1e-8).all()
    if family == "known":
        np.testing.assert_allclose(wide_low, wide_high, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_tiny_boxes_by_trying_every_kernel(seed):
    rng = np.random.default_rng(seed)
    sizes, n_actions = (1, 3, 2, 1), 2
    truth = [rng.dirichlet(np.ones(m), (n, n_actions)) for n, m in pairwise(sizes)]
    width = [0.3 * rng.random(k.shape) for k in truth]
    box = BoxSet([k - w for k, w in zip(truth, width, strict=True)],
                 [k + w for k, w in zip(truth, width, strict=True)])  # fmt: skip
    policy = random_policy(box, seed)
    rows = [
        [list(vertices(box.lower[h][s, a], box.upper[h][s, a])) for s in range(sizes[h]) for a in range(n_actions)]
        for h in range(2)
    ]
    best = [np.zeros(n) for n in sizes[:-1]]
    worst = [np.ones(n) for n in sizes[:-1]]
    for first in product(*rows[0]):
        kernel = np.array(first).reshape(truth[0].shape)
        middle = np.einsum("a,at->t", policy[0][0], kernel[0])
        best[1], worst[1] = np.maximum(best[1], middle), np.minimum(worst[1], middle)
        # Layer 2 is a sum over pairs: each pair takes its own best vertex.
        for t in range(2):
            ends = [[p[t] for p in pair] for pair in rows[1]]
            weight = (middle[:, None] * policy[1]).ravel()
            best[2][t] = max(best[2][t], weight @ [max(e) for e in ends])
            worst[2][t] = min(worst[2][t], weight @ [min(e) for e in ends])
    forward = occupancy_intervals(box, np.concatenate([table.ravel() for table in policy]), exact=False)
    wide_low, wide_high = (np.split(bound, np.cumsum(sizes[:-2])) for bound in forward)
    for h in (1, 2):
        np.testing.assert_allclose(upper_occupancy(box, policy)[h], best[h], atol=1e-12)
        np.testing.assert_allclose(lower_occupancy(box, policy)[h], worst[h], atol=1e-12)
        assert (wide_low[h] <= worst[h] + 1e-12).all()
        assert (wide_high[h] >= best[h] - 1e-12).all()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("family", FAMILIES)
def test_bounds_enclose_the_truth_and_targets_pick_from_the_whole(family, seed):
    instance = ordinary(family, seed)
    confidence_set = instance.confidence_set
    policy = random_policy(confidence_set, seed)
    upper = upper_occupancy(confidence_set, policy)
    lower = lower_occupancy(confidence_set, policy)
    for low, mass, high in zip(lower, visits(instance.truth, policy), upper, strict=True):
        assert np.all((low - 1e-9 <= mass) & (mass <= high + 1e-9))
        assert np.all((low >= 0.0) & (high <= 1.0))
    targets = [(h, n - 1) for h, n in enumerate(confidence_set.layer_sizes[:-1])][::-1]
    np.testing.assert_array_equal(upper_occupancy(confidence_set, policy, targets), [upper[h][s] for h, s in targets])
    if isinstance(confidence_set, KnownKernels):
        for low, high in zip(lower, upper, strict=True):
            np.testing.assert_allclose(low, high, atol=1e-15)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("family", ["ellipsoid", "simplex"])
def test_a_set_has_smaller_bounds_than_its_box_and_larger_than_a_part_of_it(family, seed):
    confidence_set = ordinary(family, seed).confidence_set
    policy = random_policy(confidence_set, seed)
    lower, upper = confidence_set.hull()
    for h, reached in enumerate(confidence_set.reachable[:-1]):
        # Rows of unreachable states matter to nobody but must not be empty.
        lower[h][~reached], upper[h][~reached] = 0.0, 1.0
    box = BoxSet(lower, upper)
    inner = confidence_set.enlarged(0.5 + 0.5 * min(confidence_set.smallest_radius_multiple(), 1.0))
    whole = upper_occupancy(confidence_set, policy)
    for part, middle, outer in zip(upper_occupancy(inner, policy), whole, upper_occupancy(box, policy), strict=True):
        assert np.all(part <= middle + 1e-9)
        assert np.all(middle <= outer + 1e-9)


def test_the_simplex_constraint_alone_gives_the_hull_of_the_simulators():
    """With a huge radius and theta >= 0 the rows are all mixtures of the base kernels, free per pair."""
    rng = np.random.default_rng(3)
    base = [rng.dirichlet(np.ones(4), (1, 2)) for _ in range(3)]
    features = [np.stack(base, axis=-1), np.ones((4, 2, 1, 3))]
    simplex = EllipsoidSet(features, [np.full(3, 1 / 3)] * 2, [np.eye(3)] * 2, 1e3, simplex=True)
    values = rng.random(4)
    expected = np.max([kernel @ values for kernel in base], axis=0)
    np.testing.assert_allclose(extreme_rows(simplex, 0, values), expected, atol=1e-9)


def test_l1_rows_move_half_the_radius():
    centre = np.array([[[0.5, 0.3, 0.2]]])
    ball = L1Set([centre, np.ones((3, 1, 1))], [np.array([[0.5]]), np.zeros((3, 1))])
    values = np.array([0.0, 1.0, 10.0])
    assert extreme_rows(ball, 0, values)[0, 0] == pytest.approx(0.25 * 0.0 + 0.3 * 1.0 + 0.45 * 10.0)
    assert extreme_rows(ball, 0, values, maximise=False)[0, 0] == pytest.approx(0.75 * 0.0 + 0.25 * 1.0)


def test_an_empty_set_is_named():
    instance = next(i for i in (harsh("ellipsoid", seed) for seed in range(50)) if i.empty)
    confidence_set = instance.confidence_set
    with pytest.raises(InvalidMDPError, match=r"empty pairs, the first at layer \d+, state \d+, action \d+"):
        upper_occupancy(confidence_set, random_policy(confidence_set, 0))


def test_wrong_targets_and_policies_are_refused():
    confidence_set = ordinary("box", 0).confidence_set
    policy = random_policy(confidence_set, 0)
    with pytest.raises(InvalidMDPError, match=r"target \(layer 1, state 99\) does not exist"):
        upper_occupancy(confidence_set, policy, [(1, 99)])
    with pytest.raises(InvalidMDPError, match=r"policy\[0\] has shape"):
        upper_occupancy(confidence_set, [policy[0][:, :0], *policy[1:]])
    with pytest.raises(InvalidMDPError, match="policy has"):
        upper_occupancy(confidence_set, policy[:-1])


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([[1.7, 0]], r"target \(layer 1\.7, state 0\) must be two integers"),
        ([[0, 0], [1, np.nan]], r"target \(layer 1, state nan\) must be two integers"),
        ([[np.inf, 0]], r"target \(layer inf, state 0\) must be two integers"),
        ([0, 0, 1, 0], r"targets has shape \(4,\); it must be rows \(layer, state\)"),
        ([[0, 0, 0]], r"targets has shape \(1, 3\)"),
        ([[0, 0], [1]], "targets is not an array of numbers"),
        ([["0", "0"]], "targets is not an array of numbers: its type is"),
        ([[0, 0], [1, 0], [0, 0]], r"target \(layer 0, state 0\) is there twice"),
        ([[0, -1]], r"target \(layer 0, state -1\) does not exist"),
    ],
)
def test_targets_of_a_wrong_type_are_refused_by_name(targets, message):
    confidence_set = ordinary("box", 0).confidence_set
    for bound in (upper_occupancy, lower_occupancy):
        with pytest.raises(InvalidMDPError, match=message):
            bound(confidence_set, random_policy(confidence_set, 0), targets)


def test_no_targets_have_no_bounds():
    confidence_set = ordinary("box", 0).confidence_set
    assert upper_occupancy(confidence_set, random_policy(confidence_set, 0), []).shape == (0,)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([["a", "b"]], r"policy\[0\] is not an array of numbers"),
        ([[0.5, 0.5], [1.0]], r"policy\[0\] is not an array of numbers"),
        ([0.5, 0.5], r"policy\[0\] has shape \(2,\), should be"),
        (0.5, r"policy\[0\] has shape \(\), should be"),
        (np.array([[0.5 + 0.5j]]), r"policy\[0\] is not an array of numbers: its type is complex"),
    ],
)
def test_policies_of_a_wrong_type_are_refused_by_name(wrong, message):
    confidence_set = ordinary("box", 0).confidence_set
    with pytest.raises(InvalidMDPError, match=message):
        upper_occupancy(confidence_set, [wrong, *random_policy(confidence_set, 0)[1:]])


def test_nested_lists_are_a_policy_if_their_numbers_are():
    confidence_set = ordinary("box", 0).confidence_set
    policy = random_policy(confidence_set, 0)
    found = upper_occupancy(confidence_set, [table.tolist() for table in policy])
    np.testing.assert_array_equal(np.concatenate(found), np.concatenate(upper_occupancy(confidence_set, policy)))
    policy[1][0, 0] = np.nan
    with pytest.raises(InvalidMDPError, match="layer 1, state 0"):
        upper_occupancy(confidence_set, [table.tolist() for table in policy])


@pytest.mark.parametrize("family", FAMILIES)
def test_targets_that_fill_several_passes_find_what_one_pass_does(family, monkeypatch):
    confidence_set = ordinary(family, 2).confidence_set
    policy = random_policy(confidence_set, 0)
    expected = np.concatenate(upper_occupancy(confidence_set, policy))
    monkeypatch.setattr(occupancy_bounds, "AT_A_TIME", 3)
    np.testing.assert_array_equal(np.concatenate(upper_occupancy(confidence_set, policy)), expected)


@pytest.mark.parametrize("factor", [2.0, -1.0, np.nan])
def test_what_is_no_policy_is_refused(factor):
    """Bounds are cut off at zero and one, and looked like bounds whatever the policy was."""
    confidence_set = ordinary("box", 3).confidence_set
    policy = random_policy(confidence_set, 0)
    policy[1] = policy[1] * factor
    for bound in (upper_occupancy, lower_occupancy):
        with pytest.raises(InvalidMDPError, match="layer 1, state 0"):
            bound(confidence_set, policy)
