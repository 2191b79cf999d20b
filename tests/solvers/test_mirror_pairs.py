"""The mirror step with the pair entropy: certificates, feasibility, limits and failures."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from advmdp.confidence import BoxSet, EllipsoidSet, KnownKernels, L1Set
from advmdp.errors import InvalidMDPError, InvalidSpecError
from advmdp.solvers import SolverError, mirror_descent_step
from advmdp.solvers.prices import BALANCE
from advmdp.solvers.step import SPACES
from tests.solvers.instances import harsh, ordinary

FAMILIES = ("ellipsoid", "simplex", "box", "known")


def step_of(instance, **options):
    return mirror_descent_step(
        instance.confidence_set, None, instance.loss, instance.step_size,
        log_q=instance.log_q, **options,
    )  # fmt: skip


def flow_error(step) -> float:
    """Largest violation of flow conservation, and of layers summing to one."""
    worst = abs(float(step.q[0].sum()) - 1.0)
    for q, kernel, following in zip(step.q[:-1], step.kernels[:-1], step.q[1:], strict=True):
        arriving = np.einsum("sa,sat->t", q, kernel)
        worst = max(worst, float(np.abs(arriving - following.sum(axis=1)).max()))
        worst = max(worst, abs(float(following.sum()) - 1.0))
    return worst


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(8))
def test_answer_is_feasible_and_its_certificate_holds(family, seed):
    instance = ordinary(family, seed)
    step = step_of(instance)
    assert step.gap <= 1e-8
    assert step.residual <= 1e-6
    assert flow_error(step) <= 1e-12
    assert instance.confidence_set.contains(step.kernels, tolerance=1e-9)
    objective = 0.0
    for h, (q, log_q) in enumerate(zip(step.q, step.log_q, strict=True)):
        reached = instance.confidence_set.reachable[h]
        prior, loss = instance.log_q[h], instance.loss[h]
        ratio = (instance.step_size * loss + log_q - prior)[reached]
        objective += float((q[reached] * ratio).sum()) + float(np.exp(prior).sum()) - 1.0
    assert step.value == pytest.approx(objective, abs=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_feasible_neighbour_is_better(family):
    """The value may be undercut by no more than the gap: mixtures with other feasible measures try to."""
    instance = ordinary(family, 3)
    step = step_of(instance)
    rng = np.random.default_rng(0)
    for _ in range(20):
        tilted = [loss + rng.normal(size=loss.shape) ** 2 for loss in instance.loss]
        other = mirror_descent_step(instance.confidence_set, None, tilted, instance.step_size, log_q=instance.log_q)
        for share in (1e-3, 0.1, 0.5):
            value = 0.0
            for q, p, prior, loss in zip(step.q, other.q, instance.log_q, instance.loss, strict=True):
                mixed = (1 - share) * q + share * p
                inside = mixed > 0
                value += float((instance.step_size * loss * mixed).sum())
                value += float((mixed[inside] * (np.log(mixed[inside]) - prior[inside])).sum())
                value += float(np.exp(prior)[inside].sum() - mixed.sum())
            assert value >= step.value - step.gap - 1e-12


def test_zero_loss_leaves_a_feasible_measure_where_it_is():
    rng = np.random.default_rng(1)
    kernels = [rng.dirichlet(np.ones(m), size=(n, 3)) for n, m in ((1, 4), (4, 4), (4, 1))]
    policy = [rng.dirichlet(np.ones(3), size=n) for n in (1, 4, 4)]
    mass, q = np.ones(1), []
    for kernel, choice in zip(kernels, policy, strict=True):
        q.append(mass[:, None] * choice)
        mass = np.einsum("sa,sat->t", q[-1], kernel)
    zero = [np.zeros_like(layer) for layer in q]
    wide = BoxSet([k - 0.2 for k in kernels], [k + 0.2 for k in kernels])
    for confidence_set in (KnownKernels(kernels), wide):
        step = mirror_descent_step(confidence_set, q, zero, 1.0)
        assert step.value == pytest.approx(0.0, abs=1e-8)
        for new, old in zip(step.q, q, strict=True):
            np.testing.assert_allclose(new, old, atol=2e-4)


def test_one_layer_is_exponential_weights():
    loss = [np.array([[0.3, 2.0, 0.0]])]
    q = [np.array([[0.2, 0.5, 0.3]])]
    expected = q[0] * np.exp(-1.5 * loss[0])
    for confidence_set in (
        KnownKernels([np.ones((1, 3, 1))]),
        BoxSet([np.ones((1, 3, 1))], [np.ones((1, 3, 1))]),
        EllipsoidSet([np.ones((1, 3, 1, 1))], [np.ones(1)], [np.eye(1)], 1.0),
    ):
        step = mirror_descent_step(confidence_set, q, loss, 1.5)
        np.testing.assert_allclose(step.q[0], expected / expected.sum(), atol=1e-7)


def test_a_point_box_is_the_known_kernel():
    instance = ordinary("known", 5)
    kernels = instance.confidence_set.kernels
    point = BoxSet(kernels, kernels)
    known, boxed = (
        step_of(instance),
        mirror_descent_step(point, None, instance.loss, instance.step_size, log_q=instance.log_q),
    )
    assert boxed.value == pytest.approx(known.value, abs=1e-8)
    for a, b in zip(known.q, boxed.q, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_deep_occupancies_keep_a_meaningful_policy(family):
    """A policy with log-probabilities near -900: log q stays finite and normalises state by state."""
    solved = 0
    for seed in range(40):
        instance = harsh(family, seed)
        if instance.empty or "depth900" not in instance.name:
            continue
        try:
            step = step_of(instance)
        except SolverError:
            continue
        solved += 1
        for log_q, reached in zip(step.log_q, instance.confidence_set.reachable, strict=False):
            assert np.isfinite(log_q[reached]).all()
        assert flow_error(step) <= 1e-12
    assert solved >= 3


@pytest.mark.parametrize("family", FAMILIES)
def test_results_do_not_depend_on_what_was_solved_before(family):
    first, other = ordinary(family, 0), ordinary(family, 1)
    before = step_of(first)
    step_of(other)
    again = step_of(first)
    for a, b in zip(before.log_q, again.log_q, strict=True):
        np.testing.assert_array_equal(a, b)
    assert before.gap == again.gap


@pytest.mark.parametrize("family", ["ellipsoid", "simplex", "box"])
def test_a_warm_step_does_not_depend_on_what_the_memory_held(family):
    for seed in range(6):
        instance = ordinary(family, seed)
        start = step_of(instance).warm
        once = step_of(instance, warm=start)
        step_of(replace(instance, step_size=2.0))
        again = step_of(instance, warm=start)
        SPACES.spaces.clear()
        fresh = step_of(instance, warm=start)
        for other in (again, fresh):
            assert other.status == once.status
            for name in once.warm:
                np.testing.assert_array_equal(other.warm[name], once.warm[name])
            for left, right in zip(other.log_q, once.log_q, strict=True):
                np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("family", ["ellipsoid", "box"])
def test_a_warm_start_changes_the_answer_within_the_tolerance_only(family, tmp_path):
    instance = ordinary(family, 2)
    cold = step_of(instance)
    np.savez(tmp_path / "warm.npz", **cold.warm)
    with np.load(tmp_path / "warm.npz") as stored:
        warm = step_of(instance, warm=dict(stored))
    assert warm.gap <= 1e-8
    assert warm.value == pytest.approx(cold.value, abs=2e-8)
    for a, b in zip(cold.q, warm.q, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-3)


def test_unreachable_states_get_no_mass():
    kernels = [np.zeros((1, 2, 3)), np.zeros((3, 2, 2)), np.ones((2, 2, 1))]
    kernels[0][:, :, :2] = 0.5
    kernels[1][:, :, 0] = 1.0
    q = [np.full((1, 2), 0.5), np.full((3, 2), 1 / 6), np.full((2, 2), 0.25)]
    loss = [np.ones_like(layer) for layer in q]
    step = mirror_descent_step(KnownKernels(kernels), q, loss, 0.5)
    assert step.q[1][2].sum() == 0.0
    assert step.q[2][1].sum() == 0.0
    assert (step.log_q[1][2] == -np.inf).all()
    assert flow_error(step) <= 1e-12


def test_empty_sets_are_named_before_any_iteration():
    lower = [np.full((1, 2, 2), 0.2), np.full((2, 2, 1), 1.0)]
    upper = [np.full((1, 2, 2), 0.9), np.full((2, 2, 1), 1.0)]
    lower[0][0, 1] = upper[0][0, 1] = 0.3
    q = [np.full((1, 2), 0.5), np.full((2, 2), 0.25)]
    with pytest.raises(InvalidMDPError, match="layer 0, state 0, action 1"):
        mirror_descent_step(BoxSet(lower, upper), q, q, 1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": -1e17}, "layer 0, state 0, action 0"),
        ({"loss": np.nan}, "finite, between"),
        ({"loss": 1e17}, "between -1e.09 and 1e.09"),  # log q would drown in it, and the certificate as well
        ({"q": 0.0}, "log_q"),
        ({"q": -0.5}, "log q is nan at layer 0, state 0, action 0"),
    ],
)
def test_bad_input_is_named(change, message):
    kernels = [np.full((1, 2, 2), 0.5), np.ones((2, 2, 1))]
    q = [np.full((1, 2), 0.5), np.full((2, 2), 0.25)]
    loss = [np.zeros((1, 2)), np.zeros((2, 2))]
    table = {"q": q, "loss": loss}
    for name, value in change.items():
        table[name][0][0, 0] = value
    with pytest.raises(InvalidMDPError, match=message):
        mirror_descent_step(KnownKernels(kernels), q, loss, 1.0)


@pytest.mark.parametrize("entropy", ["pairs", "triples"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_log_q_of_an_unreachable_state_may_be_minus_infinity_but_must_be_a_number(entropy, bad):
    """It is part of the value: a NaN there used to make the value of a certified step NaN."""
    kernels = [np.tile([0.5, 0.5, 0.0], (1, 2, 1)), np.ones((3, 2, 1))]
    log_q = [np.full((1, 2), np.log(1 / 2)), np.full((3, 2), np.log(1 / 6))]
    loss = [np.ones((1, 2)), np.ones((3, 2))]
    for confidence_set in (KnownKernels(kernels), BoxSet(kernels, kernels)):
        log_q[1][2] = -np.inf
        options = {"log_q": log_q, "entropy": entropy, "kernels": kernels}
        assert np.isfinite(mirror_descent_step(confidence_set, None, loss, 0.5, **options).value)
        log_q[1][2] = bad
        with pytest.raises(InvalidMDPError, match="layer 1, state 2, action 0"):
            mirror_descent_step(confidence_set, None, loss, 0.5, **options)


@pytest.mark.parametrize("entropy", ["pairs", "triples"])
@pytest.mark.parametrize(("log_q", "loss"), [(800.0, 1.0), (-1e17, 1.0), (-1.0, 1e17)])
def test_sizes_that_double_precision_does_not_resolve_are_refused(entropy, log_q, loss):
    """Beside a cost of 1e17 a log q of -1 is rounding: the answer would be wrong, and its residual zero."""
    kernels = [np.full((1, 2, 2), 0.5), np.ones((2, 2, 1))]
    tables = [np.array([[log_q, 0.5 * log_q]]), np.full((2, 2), np.log(0.25))]
    losses = [np.full((1, 2), loss), np.zeros((2, 2))]
    for confidence_set in (KnownKernels(kernels), BoxSet(kernels, kernels)):
        with pytest.raises(InvalidMDPError, match="layer 0, state 0, action 0"):
            mirror_descent_step(confidence_set, None, losses, 1.0, log_q=tables, entropy=entropy, kernels=kernels)


@pytest.mark.parametrize("family", ["ellipsoid", "simplex", "box"])
@pytest.mark.parametrize("entry", [1e300, -1e300, -5.0])
def test_a_spoilt_warm_start_does_no_harm(family, entry):
    instance = ordinary(family, 3)
    cold = step_of(instance)
    spoilt = {name: np.full_like(table, entry) for name, table in cold.warm.items()}
    warm = step_of(instance, warm=spoilt)
    assert warm.value == pytest.approx(cold.value, abs=2e-8)
    assert flow_error(warm) <= 1e-12
    assert instance.confidence_set.contains(warm.kernels, tolerance=1e-9)


def test_an_estimate_that_is_not_a_number_leaves_an_empty_set():
    """Learners set estimates without checks; what comes of a NaN there must not pass for a step."""
    instance = ordinary("ellipsoid", 3)
    good = instance.confidence_set
    for centres, grams, radius in (
        ([np.nan * centre for centre in good.centres], good.grams, 1.0),
        (good.centres, [np.nan * gram for gram in good.grams], 1.0),
        (good.centres, [-gram for gram in good.grams], 1.0),
        (good.centres, good.grams, np.nan),
    ):
        with pytest.raises(InvalidMDPError, match="empty pairs"):
            mirror_descent_step(
                good.with_estimate(centres, grams, radius), None, instance.loss, 1.0, log_q=instance.log_q
            )


def test_unknown_entropy_is_refused():
    with pytest.raises(InvalidSpecError, match="pairs"):
        mirror_descent_step(KnownKernels([np.ones((1, 1, 1))]), [np.ones((1, 1))], [], 1.0, entropy="x")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_error_of_an_impossible_tolerance_has_the_gap_of_the_best_certificate(family):
    instance = ordinary(family, 4)
    with pytest.raises(SolverError) as caught:
        step_of(instance, tolerance=-1.0)
    assert abs(caught.value.gap) <= 1e-6
    assert caught.value.residual < np.inf


def test_a_missed_tolerance_is_an_error_that_can_be_saved(tmp_path):
    instance = ordinary("ellipsoid", 4)
    with pytest.raises(SolverError) as caught:
        step_of(instance, tolerance=-1.0)
    caught.value.save(tmp_path / "step.npz")
    with np.load(tmp_path / "step.npz") as stored:
        assert str(stored["set"]) == "EllipsoidSet"
        np.testing.assert_array_equal(stored["centres_0"], instance.confidence_set.centres[0])


@pytest.mark.parametrize("entropy", ["pairs", "triples", "conditional"])
def test_a_saved_step_can_be_made_again_from_its_file(entropy, tmp_path):
    instance = ordinary("box", 1)
    problem = (instance.confidence_set, None, instance.loss, instance.step_size)
    options = {"log_q": instance.log_q, "entropy": entropy, "kernels": instance.kernels}
    with pytest.raises(SolverError) as failure:
        mirror_descent_step(*problem, tolerance=-1.0, **options)
    failure.value.save(tmp_path / "step.npz")
    with np.load(tmp_path / "step.npz") as saved:
        layers = range(len(saved["layer_sizes"]) - 1)
        again = BoxSet(*([saved[f"{name}_{h}"] for h in layers] for name in ("lower", "upper")))
        kernels = [saved[f"previous_kernels_{h}"] for h in layers] if entropy == "triples" else None
        step = mirror_descent_step(
            again, None, saved["loss"], float(saved["step_size"]),
            log_q=saved["log_q"], entropy=str(saved["entropy"]), kernels=kernels,
        )  # fmt: skip
    expected = mirror_descent_step(*problem, **options)
    np.testing.assert_array_equal(step.flat.log_q, expected.flat.log_q)


@pytest.mark.parametrize("family", ["ellipsoid", "box"])
def test_a_warm_start_from_another_set_gives_the_same_answer(family):
    """Sets change from episode to episode; what a warm start carries may lie outside the new one."""
    rng = np.random.default_rng(0)
    sizes, n_actions = (1, 4, 5, 1), 3
    warm = None
    for _ in range(15):
        kernels = [rng.dirichlet(np.ones(m), size=(n, n_actions)) for n, m in itertools.pairwise(sizes)]
        if family == "box":
            widths = [rng.uniform(0.01, 0.4, size=kernel.shape) for kernel in kernels]
            lower = [k - w for k, w in zip(kernels, widths, strict=True)]
            upper = [k + w for k, w in zip(kernels, widths, strict=True)]
            confidence_set = BoxSet(lower, upper)
        else:
            features = [np.stack([k, np.roll(k, 1, axis=2)], axis=3) for k in kernels]
            gram = np.eye(2) * rng.uniform(1.0, 50.0)
            confidence_set = EllipsoidSet(features, [np.array([0.6, 0.4])] * 3, [gram] * 3, rng.uniform(0.2, 3.0))
        q = [np.full((n, n_actions), 1.0 / (n * n_actions)) for n in sizes[:-1]]
        loss = [rng.random((n, n_actions)) * 3.0 for n in sizes[:-1]]
        cold = mirror_descent_step(confidence_set, q, loss, 1.0)
        step = mirror_descent_step(confidence_set, q, loss, 1.0, warm=warm)
        warm = step.warm
        assert flow_error(step) <= 1e-12
        assert -1e-12 <= step.gap <= 1e-8
        assert step.value == pytest.approx(cold.value, abs=2e-8)
        assert confidence_set.contains(step.kernels, tolerance=1e-9)
        for ours, other in zip(step.log_q, cold.log_q, strict=True):
            np.testing.assert_allclose(ours, other, atol=1e-3)
        for table, log_table in zip(step.q, step.log_q, strict=True):
            np.testing.assert_allclose(table, np.exp(log_table), rtol=1e-12)


def test_a_step_on_which_the_predictor_stalls_is_solved():
    """Episode 7,743 of a run of vlsuob-reps: three attempts stall at a gap of 1e-7, short steps do not."""
    saved = np.load(Path(__file__).parent / "data" / "stalled_step.npz", allow_pickle=False)
    sizes, n_actions = saved["layer_sizes"], int(saved["n_actions"])
    layers = range(len(sizes) - 1)
    tables = [[saved[f"{name}_{h}"] for h in layers] for name in ("features", "centres", "grams")]
    confidence_set = EllipsoidSet(*tables, saved["radius"])
    cuts = np.cumsum([sizes[h] * n_actions for h in layers])[:-1]
    log_q, cost = (
        [part.reshape(n_actions, -1).T for part in np.split(saved[name], cuts)] for name in ("log_prior", "cost")
    )
    step = mirror_descent_step(confidence_set, None, cost, 1.0, log_q=log_q)
    assert step.gap <= 1e-8
    assert step.value == pytest.approx(0.00858945, abs=2e-8)  # Clarabel's, at its tightest


def test_rounding_of_large_prices_does_not_end_a_line_search():
    """Costs of 1e4: the rounding of exponents in common states hid that the flow of rare ones improves."""
    saved = np.load(Path(__file__).parent / "data" / "large_costs_step.npz", allow_pickle=False)
    kernels = [saved[f"kernels_{h}"] for h in range(len(saved["layer_sizes"]) - 1)]
    step = mirror_descent_step(KnownKernels(kernels), None, saved["loss"], 1.0, log_q=saved["log_q"])
    assert step.residual <= BALANCE
    assert flow_error(step) <= 1e-12


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("make", [KnownKernels, lambda rows: L1Set(rows, [np.full((1, 2), 0.1), np.zeros((3, 2))])])
def test_rows_that_sum_to_one_as_far_as_sets_ask_can_be_stepped_over(make, sparse):
    rng = np.random.default_rng(0)
    rows = [rng.dirichlet(np.ones(3), (1, 2)) * (1.0 + 5e-9), np.ones((3, 2, 1))]
    confidence_set = make([csr_array(table.reshape(-1, table.shape[2])) for table in rows] if sparse else rows)
    step = mirror_descent_step(confidence_set, None, [rng.random((1, 2)), rng.random((3, 2))], 1.0, log_q=np.zeros(8))
    assert step.gap < 1e-8
    np.testing.assert_allclose(step.kernels[0].sum(axis=2), 1.0, rtol=0.0, atol=1e-14)
