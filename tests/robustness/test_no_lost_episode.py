"""No episode is lost to a solver, whatever the step size: what a step misses is counted, and learning goes on."""

from __future__ import annotations

import itertools
import logging

import numpy as np
import pytest

from advmdp import LinearMixtureMDP, load_learner, make_adversary, make_learner, make_world, play
from advmdp.confidence import BoxSet, EllipsoidSet, KnownKernels
from advmdp.learners.parts import steps
from advmdp.solvers import SolverError, mirror_descent_step
from benchmarks.no_lost_episode import LEARNERS, LOSSES, MULTIPLES, NOT_FOR, WORLDS, run_cell

WORLD = make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=2, dim=2)


def hub(sizes, dim=3, n_actions=2, seed=0):
    """A mixture of random kernels on these layers."""
    rng = np.random.default_rng(seed)
    shapes = [(n, n_actions, m) for n, m in itertools.pairwise(sizes)]
    bases = [[rng.dirichlet(np.full(m, 0.5), (n, a)) for n, a, m in shapes] for _ in range(dim)]
    return LinearMixtureMDP.from_kernels(bases, rng.dirichlet(np.ones(dim)))


@pytest.mark.parametrize("name", LEARNERS)
def test_no_episode_is_lost_at_a_hundred_times_the_step_size(name):
    for world, adversary in (("queue", "stochastic"), ("river-swim", "switching"), ("grid", "natural-losses")):
        cell = run_cell(name, world, adversary, 100.0, 60)
        assert cell["exceptions"] == 0
        assert cell["certificate"] < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "world"), [pair for pair in itertools.product(LEARNERS, WORLDS) if pair not in NOT_FOR]
)
def test_no_episode_is_lost_on_any_world_at_any_step_size(name, world):
    losses = [each for each in LOSSES if (each, world) not in NOT_FOR]
    for adversary, multiple in itertools.product(losses, MULTIPLES):
        cell = run_cell(name, world, adversary, multiple, 300)
        assert cell["exceptions"] == 0
        assert cell["gaps"] < 1e-3
        assert cell["certificate"] < 1e-2  # which the steps that miss the tolerance are most of


@pytest.mark.parametrize("sizes", [(1, 50, 2, 50, 1), (1, 2, 80, 2, 1)])
@pytest.mark.parametrize("name", LEARNERS)
def test_wide_and_narrow_layers_in_turn_are_solved(name, sizes):
    cell = run_cell(name, hub(sizes), "switching", 10.0, 12)
    assert cell["exceptions"] == 0
    assert cell["certificate"] < 1e-3


@pytest.mark.parametrize("family", ["ellipsoid", "box", "known"])
@pytest.mark.parametrize("sizes", [(1, 4, 4, 1), (1, 20, 2, 20, 1)])
def test_a_step_with_huge_costs_and_tiny_masses_has_a_certified_answer(family, sizes):
    rng = np.random.default_rng(3)
    world = hub(sizes, seed=3)
    confidence_set = {
        "ellipsoid": lambda: EllipsoidSet(world.features, world.theta, [np.eye(3)] * (len(sizes) - 1), 0.3),
        "box": lambda: BoxSet([k - 0.05 for k in world.kernels], [k + 0.05 for k in world.kernels]),
        "known": lambda: KnownKernels(world.kernels),
    }[family]()
    for largest_cost, least_log_q in ((1e6, -10.0), (1e3, -1000.0), (1e6, -1000.0)):
        log_q = rng.uniform(least_log_q, 0.0, world.layers.n_pairs)
        loss = largest_cost * rng.uniform(-1.0, 1.0, world.layers.n_pairs)

        def solve(loss, log_q=log_q):
            return mirror_descent_step(confidence_set, None, loss, 1.0, log_q=log_q)

        taken = steps.take(solve, loss, 1.0, world.layers.pair_offsets, lambda step, losses: abs(step.gap))
        assert taken.gap < 3.0 * largest_cost * len(sizes)
        for table in taken.step.q:
            np.testing.assert_allclose(table.sum(), 1.0, atol=1e-9)


def sabotaged(monkeypatch, at, refused):
    """The real mirror step, which finds nothing at so many calls from the given one on."""
    calls = itertools.count()

    def step(*arguments, **options):
        if at <= next(calls) < at + refused:
            raise SolverError("sabotage", np.inf, np.inf, {})
        return mirror_descent_step(*arguments, **options)

    monkeypatch.setattr(steps, "mirror_descent_step", step)


@pytest.mark.parametrize("refused", [1, 2, len(steps.SHARES) - 1])
def test_a_step_without_an_answer_is_made_shorter_and_the_rest_added_to_the_next(monkeypatch, refused):
    undisturbed, disturbed = (make_learner("vlsuob-reps-tight", WORLD, 100) for _ in range(2))
    adversary, rng = make_adversary("stochastic", WORLD, 100, seed=0), np.random.default_rng(0)
    told = [play(WORLD, undisturbed.policy, adversary.losses(k), rng, index=k) for k in range(6)]
    for episode in told:
        undisturbed.update(episode)
    sabotaged(monkeypatch, 3, refused)
    for k, episode in enumerate(told):
        disturbed.update(episode)
        rest = disturbed._now.state.step.rest
        if k == 3:
            np.testing.assert_allclose(rest, (1.0 - steps.SHARES[refused]) * disturbed._now.state.loss_estimate)
        else:
            assert rest is None
    assert disturbed.missed_tolerance == 1
    assert disturbed.certificate >= undisturbed.certificate
    # All losses have been used by now, if not all of them at once.
    for a, b in zip(undisturbed.policy, disturbed.policy, strict=True):
        np.testing.assert_allclose(a, b, atol=0.02)


def test_what_was_left_to_the_next_step_is_saved(monkeypatch, tmp_path):
    learner = make_learner("vlsuob-reps-tight", WORLD, 100)
    adversary, rng = make_adversary("stochastic", WORLD, 100, seed=0), np.random.default_rng(0)
    sabotaged(monkeypatch, 1, 1)
    for k in range(2):
        learner.update(play(WORLD, learner.policy, adversary.losses(k), rng, index=k))
    learner.save(tmp_path / "learner.npz")
    again = load_learner(tmp_path / "learner.npz")
    assert (again.missed_tolerance, again.certificate) == (1, learner.certificate)
    episode = play(WORLD, learner.policy, adversary.losses(2), rng, index=2)
    for each in (learner, again):
        each.update(episode)
    for a, b in zip(learner.policy, again.policy, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_step_that_costs_much_is_logged(monkeypatch, caplog):
    learner = make_learner("vlsuob-reps-tight", WORLD, 100)
    sabotaged(monkeypatch, 0, 4)
    episode = play(WORLD, learner.policy, make_adversary("stochastic", WORLD, 100).losses(0), np.random.default_rng(0))
    with caplog.at_level(logging.WARNING, logger="advmdp"):
        learner.update(episode)
    assert learner.missed_tolerance == 1
    if learner.certificate > steps.LARGE_COST:
        assert "certificate counts it" in caplog.text


def test_an_answer_that_misses_the_tolerance_is_the_one_that_its_certificate_is_of():
    rng = np.random.default_rng(0)
    world = hub((1, 6, 6, 1), seed=1)
    confidence_set = EllipsoidSet(world.features, world.theta, [np.eye(3)] * 3, 0.3)
    log_q = np.log(rng.dirichlet(np.ones(12), 3))
    q = [np.full((1, 2), 0.5), *np.exp(log_q[:2]).reshape(2, 6, 2)]
    loss = [rng.uniform(size=table.shape) for table in q]
    exact = mirror_descent_step(confidence_set, q, loss, 1.0)
    with pytest.raises(SolverError, match="stopped with a duality gap") as caught:
        mirror_descent_step(confidence_set, q, loss, 1.0, tolerance=1e-300)
    best = caught.value.step
    assert 0.0 <= best.gap == caught.value.gap < 1e-8
    value = sum(
        float((x * y).sum() + (x * np.log(x / p) - x + p).sum()) for x, y, p in zip(best.q, loss, q, strict=True)
    )
    assert value == pytest.approx(best.value, abs=1e-12)
    assert best.value <= exact.value + best.gap + 1e-12
    for h in range(2):
        arriving = np.einsum("sa,sat->t", best.q[h], best.kernels[h])
        np.testing.assert_allclose(arriving, best.q[h + 1].sum(axis=1), atol=1e-12)


@pytest.mark.parametrize("entry", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("family", "name"), [("ellipsoid", "chi"), ("box", "kernels"), ("triples", "prices")])
def test_a_warm_start_that_is_not_finite_is_refused_by_name(family, name, entry):
    world = WORLD
    q = [np.full((n, 2), 0.5 / n) for n in world.layer_sizes[:-1]]
    loss = [np.ones_like(table) for table in q]
    confidence_set = BoxSet([k - 0.1 for k in world.kernels], [k + 0.1 for k in world.kernels])
    options = {"entropy": "triples", "kernels": world.kernels} if family == "triples" else {}
    if family == "ellipsoid":
        confidence_set = EllipsoidSet(world.features, world.theta, [np.eye(2)] * 3, 0.3)
    step = mirror_descent_step(confidence_set, q, loss, 0.1, **options)
    warm = {key: vector.copy() for key, vector in step.warm.items()}
    warm[name][0] = entry
    with pytest.raises(ValueError, match=rf"warm\['{name}'\] has 1 entries that are not finite"):
        mirror_descent_step(confidence_set, q, loss, 0.1, warm=warm, **options)
