"""Worlds at the edge of what is allowed: every learner plays them, and every number stays sound."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from advmdp import (
    LayeredMDP,
    LinearMDP,
    LinearMixtureMDP,
    load_learner,
    make_adversary,
    make_learner,
    make_world,
    occupancy,
    run,
)
from advmdp.registry import learners
from tests.strategies import random_kernels

EPISODES = 30


def mixture(rng, sizes, n_actions, dim, **options):
    bases = [random_kernels(rng, list(sizes), n_actions) for _ in range(dim)]
    return LinearMixtureMDP.from_kernels(bases, rng.dirichlet(np.ones(dim)), **options)


def deterministic(rng, sizes, n_actions):
    kernels = random_kernels(rng, list(sizes), n_actions)
    return [np.eye(k.shape[2])[k.argmax(axis=2)] for k in kernels]


def duplicated(rng):
    """Both base kernels are the same: the features have rank one, and theta is not determined."""
    kernels = random_kernels(rng, [1, 3, 3, 1], 2)
    return LinearMixtureMDP.from_kernels([kernels, kernels, kernels], [0.2, 0.3, 0.5])


def signed_features(rng):
    """A mixture seen through a rotation, with one coordinate that is always zero."""
    world = mixture(rng, (1, 3, 3, 1), 2, 2)
    turn = np.linalg.qr(rng.normal(size=(2, 2)))[0]
    padded = [np.concatenate([f @ turn, np.zeros((*f.shape[:3], 1))], axis=3) for f in world.features]
    return LinearMixtureMDP(padded, [np.append(turn.T @ t, 0.0) for t in world.theta], bound=world.bound)


def unreachable_state(rng):
    """State 2 of layer 1 has zero features from everywhere."""
    kernels = []
    for _ in range(2):
        base = random_kernels(rng, [1, 3, 3, 1], 2)
        base[0][:, :, 2] = 0.0
        base[0] /= base[0].sum(axis=2, keepdims=True)
        kernels.append(base)
    return LinearMixtureMDP.from_kernels(kernels, [0.5, 0.5])


def linear(sizes, n_actions, dim):
    return make_world("linear-mdp", layer_sizes=sizes, n_actions=n_actions, dim=dim)


#: Of two kinds over three states, to the last of which no kind leads.
MEASURES = [np.array([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0]])] * 2 + [np.ones((2, 1))]

WORLDS = {
    "one action": lambda rng: mixture(rng, (1, 3, 3, 1), 1, 2),
    "one state per layer": lambda rng: mixture(rng, (1, 1, 1, 1), 3, 2),
    "one step": lambda rng: mixture(rng, (1, 1), 3, 2),
    "one step, one action": lambda rng: mixture(rng, (1, 1), 1, 1),
    "deterministic kernels": lambda rng: LinearMixtureMDP.from_kernels(
        [deterministic(rng, (1, 3, 3, 1), 2) for _ in range(2)], [0.0, 1.0]
    ),
    "one base kernel": lambda rng: mixture(rng, (1, 3, 3, 1), 2, 1),
    "duplicate features": duplicated,
    "signed features of low rank": signed_features,
    "more features than data": lambda rng: mixture(rng, (1, 2, 2, 1), 2, 40),
    "a state that nothing leads to": unreachable_state,
    "a long corridor": lambda rng: mixture(rng, (1, *[1] * 30, 1), 2, 2),
    "linear, more features than data": lambda rng: linear((1, 2, 2, 1), 2, 40),
    "linear, one kind": lambda rng: linear((1, 3, 3, 1), 2, 1),
    "linear, equal features": lambda rng: LinearMDP([np.full((n, 2, 2), 0.5) for n in (1, 3, 3)], MEASURES),
    "linear, a state that nothing leads to": lambda rng: LinearMDP(
        [np.tile(np.eye(2), (n, 1, 1)) for n in (1, 3, 3)], MEASURES
    ),
    "linear, a long corridor": lambda rng: linear((1, *[1] * 30, 1), 2, 2),
    "a tabular world": lambda rng: LayeredMDP(deterministic(rng, (1, 4, 4, 1), 2)),
}


def build(world_name):
    return WORLDS[world_name](np.random.default_rng(len(world_name)))


def suits(name, world):
    entry = learners.get(name)
    if name == "exp3-policies" and world.n_states > 15:
        return False  # it refuses so many policies
    return isinstance(world.model, entry.needs)


# In reverse, so that two workers with cold caches, the other at test_learners.py, do not compile the same learners.
CASES = [
    (name, world_name)
    for world_name, world in ((world_name, build(world_name)) for world_name in WORLDS)
    for name in reversed(learners.names())
    if suits(name, world)
]


@pytest.mark.parametrize(("name", "world_name"), CASES)
def test_every_learner_survives(name, world_name, tmp_path):
    world = build(world_name)
    adversary = make_adversary("stochastic", world, EPISODES, seed=1)
    options = {"losses": adversary} if "losses" in learners.options(name) else {}
    learner = make_learner(name, world, EPISODES, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = run(world, learner, adversary, EPISODES)

    assert np.isfinite(result.frame["regret"]).all()
    for table in learner.policy:
        assert np.all(table >= 0.0)
        np.testing.assert_allclose(table.sum(axis=1), 1.0, atol=1e-12)
    if learner.q is not None:
        for q in learner.q:
            assert abs(q.sum() - 1.0) < 1e-9
    if getattr(learner, "last_step", None) is not None:
        assert learner.last_step.gap <= 1e-8
    learner.save(tmp_path / "learner.npz")
    again = load_learner(tmp_path / "learner.npz")
    for mine, theirs in zip(learner.policy, again.policy, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_with_one_action_there_is_nothing_to_regret():
    world = build("one action")
    for name in ("vlsuob-reps", "lsuob-reps", "uob-reps"):
        result = run(world, make_learner(name, world, 20), make_adversary("stochastic", world, 20), 20)
        np.testing.assert_allclose(result.regret, 0.0, atol=1e-9)


def test_occupancies_follow_the_flow_on_every_degenerate_world():
    for build in WORLDS.values():
        world = build(np.random.default_rng(3))
        learner = make_learner("uob-reps", world, EPISODES)
        run(world, learner, make_adversary("stochastic", world, EPISODES), EPISODES)
        q, step = learner.q, learner.last_step
        for h in range(world.horizon - 1):
            inflow = np.einsum("sa,sat->t", q[h], step.kernels[h])
            np.testing.assert_allclose(q[h + 1].sum(axis=1), inflow, atol=1e-9)


def test_the_true_occupancy_of_a_policy_is_one_in_every_layer():
    for build in WORLDS.values():
        world = build(np.random.default_rng(4))
        uniform = [np.full((size, world.n_actions), 1.0 / world.n_actions) for size in world.layer_sizes[:-1]]
        assert all(abs(q.sum() - 1.0) < 1e-12 for q in occupancy.occupancy_measure(world.kernels, uniform))
