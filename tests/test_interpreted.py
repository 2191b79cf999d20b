"""Kernels without a compiler: compiled answers are the same.

``NUMBA_DISABLE_JIT`` is read when numba is imported, so the interpreted half runs in a process of its own:
``python -m tests.test_interpreted answers.npz``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from advmdp import make_world, occupancy
from advmdp._interpreted import view
from advmdp._summation import CompensatedSum
from advmdp.confidence import EllipsoidSet, KnownKernels
from advmdp.confidence.estimators import OneNextState
from advmdp.confidence.likelihood import MixtureWeights
from advmdp.learners.parts.planning import mixed_occupancy
from advmdp.solvers import (
    SolverError,
    conditional_step,
    ellipsoid,
    lower_occupancy,
    mirror,
    mirror_descent_step,
    upper_occupancy,
)
from advmdp.solvers.interior_point import Step, certify
from advmdp.solvers.known import RepeatedStep, TsallisStep
from advmdp.solvers.occupancy_bounds import occupancy_intervals
from advmdp.solvers.step import SPACES
from tests.solvers.instances import harsh, on_supports, ordinary

# Small instances, with every entropy that is possible; (family, seed, entropy).
STEPS = (
    ("ellipsoid", 10, "pairs"), ("simplex", 0, "pairs"), ("box", 1, "pairs"), ("box", 1, "triples"),
    ("l1", 3, "triples"), ("known", 3, "pairs"), ("known", 3, "triples"), ("ellipsoid", 10, "conditional"),
    ("ellipsoid", 17, "conditional"), ("simplex", 0, "conditional"), ("box", 1, "conditional"),
    ("l1", 3, "conditional"), ("known", 3, "conditional"),
)  # fmt: skip
# Where the shortest point of a block is not its centre, and rows of an occupancy bound meet the edges of their sets.
BOUNDS = (("ellipsoid", 10), ("ellipsoid", 17), ("simplex", 0), ("box", 1), ("l1", 3), ("known", 3))

# The same by their possible transitions alone; of mixtures of three simulators, and of others.
SPARSE = (("simplex", 9), ("simplex", 0), ("ellipsoid", 17), ("box", 4), ("l1", 5), ("known", 5))


def answers() -> Iterator[tuple[str, np.ndarray]]:
    """What the solvers find, by way of every inner kernel of theirs."""
    for family, seed, entropy in STEPS:
        instance = ordinary(family, seed)
        name = f"{family} {seed} {entropy}"
        problem = (instance.confidence_set, None, instance.loss)
        options = {"log_q": instance.log_q, "kernels": instance.kernels, "entropy": entropy}
        first = mirror_descent_step(*problem, instance.step_size, **options)
        yield f"{name} cold", first.flat.log_q
        options = {"log_q": first.log_q, "kernels": first.kernels, "entropy": entropy, "warm": first.warm}
        for step_size in (1e-3, 1.0):
            step = mirror_descent_step(*problem, step_size, **options)
            yield f"{name} after, step size {step_size}", step.flat.log_q
    instance = ordinary("box", 1)  # prices so far apart that weights of rows are formed from logarithms
    problem = (instance.confidence_set, None, instance.loss, 3e3)
    step = mirror_descent_step(*problem, log_q=instance.log_q, kernels=instance.kernels, entropy="triples")
    yield "box 1 triples, step size 3e3", step.flat.log_q
    instance = harsh("known", 38)
    problem = (instance.confidence_set, None, instance.loss)
    with suppress(SolverError):  # a hopeless step, but the only kind that calls one of the kernels
        mirror_descent_step(*problem, 1e3 * instance.step_size, log_q=instance.log_q)
    for family, seed in (("ellipsoid", 10), ("box", 3)):
        instance = ordinary(family, seed)
        with suppress(SolverError):  # an answer that misses its tolerance is kept and recalled
            mirror_descent_step(
                instance.confidence_set, None, instance.loss, instance.step_size, log_q=instance.log_q, tolerance=-1.0
            )
    instance = ordinary("l1", 5)
    step = mirror_descent_step(instance.confidence_set, None, instance.loss, instance.step_size, log_q=instance.log_q)
    yield "l1 by pairs", step.flat.log_q
    chain = mirror._CHAIN
    try:
        for family, seed in (("ellipsoid", 10), ("simplex", 0), ("box", 1), ("l1", 5)):
            instance = ordinary(family, seed)
            problem = (instance.confidence_set, None, instance.loss, instance.step_size)
            for attempts in (chain[1:], ()):
                mirror._CHAIN = attempts
                step = mirror_descent_step(*problem, log_q=instance.log_q)
                yield f"{family} by {step.status}", step.flat.log_q
    finally:
        mirror._CHAIN = chain
    for family, seed in (*BOUNDS, *SPARSE):
        confidence_set = ordinary(family, seed).confidence_set
        if (family, seed) in SPARSE:
            confidence_set = on_supports(confidence_set)
            pairs = confidence_set.n_actions * sum(confidence_set.layer_sizes[:-1])
            log_reference = np.where(np.arange(pairs) % confidence_set.n_actions, -500.0, 0.0)
            step = conditional_step(confidence_set, log_reference, np.cos(np.arange(pairs)))
            yield f"conditional {family} {seed}", np.concatenate([step.policy, step.occupancy.q])
            yield f"kernels {family} {seed}", np.concatenate([np.asarray(table).ravel() for table in step.kernels])
        policy = occupancy.uniform_policy(confidence_set.layer_sizes, confidence_set.n_actions)
        yield f"upper {family} {seed}", np.concatenate(upper_occupancy(confidence_set, policy))
        yield f"lower {family} {seed}", np.concatenate(lower_occupancy(confidence_set, policy))
        flat = np.concatenate(policy, axis=None)
        yield f"forward {family} {seed}", np.concatenate(occupancy_intervals(confidence_set, flat, exact=False))
    # Simulators whose sums differ have no weights in common.
    features = [np.array([[[[0.6, 0.2], [0.4, 0.3]]]]), np.ones((2, 1, 1, 2))]
    uneven = EllipsoidSet(features, [np.array([0.5, 1.0])] * 2, [np.eye(2)] * 2, 0.3, simplex=True)
    yield "forward, uneven sums", np.concatenate(occupancy_intervals(uneven, np.ones(3), exact=False))
    world = make_world("grid", height=2, width=2, noise={"slip": 0.1})
    uniform = np.concatenate([np.full(n * world.n_actions, -np.log(n)) for n in world.layer_sizes[:-1]])
    costs = [np.arange(n * world.n_actions).reshape(n, -1) / n for n in world.layer_sizes[:-1]]
    yield "best policy", np.array([occupancy.best_policy(world.kernels, costs)[1]])
    again = RepeatedStep(KnownKernels(world.kernels))
    start = again.cold(uniform, np.zeros_like(uniform))
    yield "repeated", again(start.log_q, np.arange(len(uniform)) / len(uniform)).log_q
    yield "tsallis", TsallisStep(world.kernels, world.layers)(np.arange(len(uniform)) / 3.0)[0].log_q
    states, actions = np.array([0, 0]), np.array([0, 1])
    empty = OneNextState.empty(world.horizon, world.dim)
    yield "imaginary next states", empty.add(world.model, states, actions, empty.estimate(1.0)).moments
    yield "mixture weights", MixtureWeights.empty(world.model).add(states, actions).weights
    policies = np.array([world.layers.uniform_policy] * 2)
    yield "occupancy of a draw", mixed_occupancy(world.layers, world.rows, policies, np.array([0.5, 0.5]))
    total = CompensatedSum(2)
    for term in (1e16, 1.0, -1e16):
        total.add(np.array([term, -term]))
    yield "sum", total.value


def certificates() -> dict[str, np.ndarray]:
    """Residuals that the certificate over ellipsoids finds for a point of the set and for one outside of it, whose
    kernels are distributions all the same: beyond the sphere, and beyond the simplex of mixtures."""
    features = [np.array([[[[0.6, 0.4], [0.4, 0.6]]]]), np.ones((2, 1, 1, 2))]
    one = [np.zeros((1, 1)), np.zeros((2, 1))]
    found = {}
    for name, simplex, centre, radius in (("sphere", False, 0.5, 1.0), ("simplex", True, 0.05, 10.0)):
        centres = [np.array([centre, 1.0 - centre])] * 2
        confidence_set = EllipsoidSet(features, centres, [100.0 * np.eye(2)] * 2, radius, simplex=simplex)
        SPACES.spaces.clear()
        log_q = np.array([0.0, np.log(0.5), np.log(0.5)])
        mirror_descent_step(confidence_set, None, one, 1.0, log_q=log_q)
        (space,) = SPACES.spaces.values()
        rows, step = ellipsoid.Rows(*confidence_set.reduced[:4]), Step(log_q, np.zeros(3))
        residuals = []
        for share in (0.9, 1.1):
            # From where theta is the centre of the reduced form to the boundary that is nearest, and beyond.
            way = 1.0 if name == "sphere" else -rows.E0.min() / rows.E[rows.E0.argmin()]
            space.own.chi[:] = share * way
            residuals.append(certify(space.layout, rows, step, space.memory, space.own)[2])
        found[name] = np.array(residuals)
    return found


def main(path: str) -> None:
    """Write the answers."""
    with np.errstate(all="ignore"):
        found = dict(answers())
        outside = {f"outside the {name}": residuals for name, residuals in certificates().items()}
    np.savez(path, **found, **outside)


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    path = tmp_path_factory.mktemp("interpreted") / "answers.npz"
    command = [sys.executable, "-m", "tests.test_interpreted", str(path)]
    root = Path(__file__).parents[1]
    outcome = subprocess.run(
        command, cwd=root, env=os.environ | {"NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    with np.load(path) as saved:
        return dict(saved)


def test_compiled_answers_are_those_of_the_interpreter(interpreted: dict[str, np.ndarray]) -> None:
    compiled = dict(answers())
    others = {"outside the sphere", "outside the simplex"}
    assert interpreted.keys() - others == compiled.keys()
    for name, expected in compiled.items():
        np.testing.assert_allclose(interpreted[name], expected, rtol=0, atol=1e-8, err_msg=name)


def test_a_view_shares_the_memory_of_its_buffer() -> None:
    buffer = np.zeros(8)
    view(buffer, 2, 2, 3)[1, 0] = 1.0
    assert np.flatnonzero(buffer).tolist() == [5]


@pytest.mark.parametrize("edge", ["sphere", "simplex"])
def test_kernels_outside_their_set_are_never_certified(interpreted: dict[str, np.ndarray], edge: str) -> None:
    inside, outside = interpreted[f"outside the {edge}"]
    assert np.isfinite(inside)
    assert outside == np.inf


if __name__ == "__main__":
    main(sys.argv[1])
