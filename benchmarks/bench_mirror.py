"""Times the mirror step against Clarabel and CVXPY, and runs it for long.

    python -m benchmarks.bench_mirror                # speed, loop, scaling, compile and large, then what must hold
    python -m benchmarks.bench_mirror speed          # cold steps of learning runs, with the oracles in turn
    python -m benchmarks.bench_mirror loop           # bare loops and a learner's steps, each step cold and warm
    python -m benchmarks.bench_mirror large          # one cold step at width 100, A = 5, d = 5, H = 10
    python -m benchmarks.bench_mirror scaling        # cost per iteration against A, width and H
    python -m benchmarks.bench_mirror compile        # CPU time to compile what vlsuob-reps and portfolio need
    python -m benchmarks.bench_mirror endure 10000   # so many steps per family, against the same at tolerance 1e-10

Steps include the presolve, except where ``loop`` says otherwise: the reduced form that a set remembers is dropped
before each timing.  The rivals are the two oracles of the tests, ``tests.solvers.reference``, solved by Clarabel at
its default tolerances.  "x Clarabel" counts the time inside Clarabel's ``solve`` on the vectorised model, "x CVXPY,
vectorised" all of it, modelling included, and "x CVXPY, by pairs" all of it for the model with one constraint per pair
and state, as the formulas stand.

Times are CPU times, which a busy machine changes less than time on the wall; but processors that share a core slow
each other down, by a third and more and from one second to the next.  So all that is compared is run in turn, round
after round, and the least time of each over all rounds counts.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import clarabel
import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from advmdp import make_adversary, make_learner, make_world, run
from advmdp.confidence import BoxSet, ConfidenceSet, EllipsoidSet, KnownKernels, L1Set
from advmdp.learners.parts import steps as learner_steps
from advmdp.solvers import MirrorStep, SolverError, mirror_descent_step
from tests.solvers import reference
from tests.solvers.reference import ReferenceStep

Tables = list[np.ndarray]

# What the figures must show, and what they aim at; between the two they are printed as missed.
REQUIRED = {
    "ellipsoid x Clarabel": 30.0, "ellipsoid x CVXPY, by pairs": 400.0,
    "box x Clarabel": 35.0, "box x CVXPY, by pairs": 400.0,
    "known x CVXPY, vectorised": 150.0, "large ellipsoid x Clarabel": 20.0,
    "ellipsoid warm": 1.0, "box warm": 1.0, "ellipsoid warm, both presolved": 0.95, "box warm, both presolved": 0.95,
}  # fmt: skip
GOALS = {
    "ellipsoid x Clarabel": 35.0, "ellipsoid x CVXPY, by pairs": 500.0,
    "box x Clarabel": 50.0, "box x CVXPY, by pairs": 600.0,
    "known x CVXPY, vectorised": 200.0, "known x CVXPY, by pairs": 1000.0,
    "ellipsoid warm": 1.1, "box warm": 1.1, "ellipsoid warm, both presolved": 1.1, "box warm, both presolved": 1.1,
    "ellipsoid warm in a learner": 1.1, "box warm in a learner": 1.1,
    "large ellipsoid x Clarabel": 20.0,
}  # fmt: skip
# At most so many times the cost per iteration.  Of H = 5 layers, 3 are wide on both sides; of 10 they are 8, of 20, 18.
LIMITS = {"2 A": 2.1, "2 width": 4.4, "2 H": 2.3, "4 H by 2 H": 2.3}
COMPILE_LIMITS = {"vlsuob-reps": 30.0, "portfolio": 15.0}
FAMILIES = ("ellipsoid", "box", "known")


def problem(
    sizes: tuple[int, ...] = (1, 10, 10, 10, 10, 1), n_actions: int = 4, dim: int = 4, seed: int = 0
) -> tuple[dict[str, ConfidenceSet], Tables, Tables]:
    """Random mixtures of d kernels with sets of each family around one estimate; q and a dense loss."""
    rng = np.random.default_rng(seed)
    pairs = list(pairwise(sizes))
    features = [
        np.ascontiguousarray(np.moveaxis(rng.dirichlet(np.ones(m), (n, n_actions, dim)), 2, 3)) for n, m in pairs
    ]
    samples = [rng.normal(size=(20, dim)) for _ in pairs]
    grams = [rows.T @ rows + np.eye(dim) for rows in samples]
    # The truth lies at half the radius from the centre of each ellipsoid.
    radius, centres = 0.5, []
    for gram in grams:
        noise = rng.normal(size=dim)
        noise *= 0.5 * radius / np.linalg.norm(noise)
        centres.append(rng.dirichlet(np.ones(dim)) + np.linalg.solve(np.linalg.cholesky(gram).T, noise))
    kernels = [np.clip(phi @ centre, 0.0, None) for phi, centre in zip(features, centres, strict=True)]
    kernels = [kernel / kernel.sum(axis=2, keepdims=True) for kernel in kernels]
    widths = [0.1 * rng.random(kernel.shape) for kernel in kernels]
    q = [rng.dirichlet(np.ones(n * n_actions)).reshape(n, n_actions) for n in sizes[:-1]]
    loss = [rng.random((n, n_actions)) for n in sizes[:-1]]
    families: dict[str, ConfidenceSet] = {
        "ellipsoid": EllipsoidSet(features, centres, grams, radius),
        "box": BoxSet(
            [kernel - width for kernel, width in zip(kernels, widths, strict=True)],
            [kernel + width for kernel, width in zip(kernels, widths, strict=True)],
        ),
        "known": KnownKernels(kernels),
        "simplex": EllipsoidSet(features, centres, grams, radius, simplex=True),
        "l1": L1Set(kernels, [0.2 * rng.random(kernel.shape[:2]) for kernel in kernels]),
    }
    return families, q, loss


def forget(confidence_set: ConfidenceSet) -> None:
    if isinstance(confidence_set, EllipsoidSet):
        confidence_set._reduced = None


def timed(
    confidence_set: ConfidenceSet, *arguments: object, remember: bool = False, **options: object
) -> tuple[float, MirrorStep]:
    """Seconds of CPU of one step, presolve included unless the set is to remember it, and its answer."""
    if not remember:
        forget(confidence_set)
    begin = time.process_time()
    step = mirror_descent_step(confidence_set, *arguments, **options)
    return time.process_time() - begin, step


def best_time(confidence_set: ConfidenceSet, q: Tables, loss: Tables, repeats: int = 50) -> tuple[float, MirrorStep]:
    mirror_descent_step(confidence_set, q, loss, 1.0)
    trials = [timed(confidence_set, q, loss, 1.0) for _ in range(repeats)]
    return min(seconds for seconds, _ in trials), trials[0][1]


class Stopwatch:
    """Stands in for Clarabel's solver and counts the CPU time of its ``solve``, set-up excluded."""

    seconds = 0.0
    make = clarabel.DefaultSolver

    def __init__(self, *arguments: object) -> None:
        self.solver = Stopwatch.make(*arguments)

    def solve(self) -> object:
        begin = time.process_time()
        solution = self.solver.solve()
        Stopwatch.seconds = time.process_time() - begin
        return solution


def oracle_time(oracle: Callable[..., ReferenceStep], *arguments: object) -> tuple[float, float]:
    """Seconds of CPU of one call, and how many of them Clarabel took."""
    clarabel.DefaultSolver = Stopwatch
    try:
        begin = time.process_time()
        oracle(*arguments, 1.0, settings={})
        return time.process_time() - begin, Stopwatch.seconds
    finally:
        clarabel.DefaultSolver = Stopwatch.make


class Instance(NamedTuple):
    """One step: the loss is already multiplied by the step size."""

    name: str
    confidence_set: ConfidenceSet
    q: Tables
    loss: Tables


class Step(NamedTuple):
    """The same, with q given by its logarithm."""

    confidence_set: ConfidenceSet
    log_q: Tables
    loss: Tables


# Episodes of a run of vlsuob-reps-tight, with ellipsoids or with boxes around them, whose steps are timed.
EPISODES = (2, 10, 40, 160)


def steps_of_run(family: str, episodes: int) -> list[Step]:
    """All steps of a learning run at layers 1-10-10-10-10-1, A = 4, d = 4."""
    world = make_world("random-mixture", layer_sizes=(1, 10, 10, 10, 10, 1), n_actions=4, dim=4)
    original = learner_steps.mirror_descent_step
    steps = []

    def record(confidence_set, q, loss, step_size, **options):  # type: ignore[no-untyped-def]
        split = world.layers.split  # learners hand over flat vectors
        steps.append(Step(confidence_set, split(options["log_q"].copy()), split(step_size * loss)))
        return original(confidence_set, q, loss, step_size, **options)

    learner_steps.mirror_descent_step = record
    try:
        learner = make_learner("vlsuob-reps-tight", world, episodes, geometry=family)
        run(world, learner, make_adversary("stochastic", world, episodes), episodes, progress=False)
    finally:
        learner_steps.mirror_descent_step = original
    return steps


def recorded(family: str) -> list[Instance]:
    """Steps of a learning run, after the random one of :func:`problem`."""
    families, q, loss = problem()
    instances = [Instance("random", families[family], q, loss)]
    if family != "known":
        steps = steps_of_run(family, max(EPISODES))
        for episode in EPISODES:
            confidence_set, log_q, loss = steps[episode - 1]
            instances.append(Instance(f"episode {episode}", confidence_set, [np.exp(x) for x in log_q], loss))
    return instances


def speed(rounds: int = 8) -> dict[str, float]:
    """Cold steps and Clarabel's in turn; per family the middle ratio of its instances."""
    ratios = {}
    print("family     instance      ms/step  iterations  gap       Clarabel, ms  x Clarabel  x CVXPY, vectorised")
    for family in FAMILIES:
        found = []
        instances = recorded(family)
        for name, confidence_set, q, loss in instances:
            own = inside = whole = np.inf
            _, step = timed(confidence_set, q, loss, 1.0)
            for _ in range(rounds):
                own = min(own, *(timed(confidence_set, q, loss, 1.0)[0] for _ in range(20)))
                both = oracle_time(reference.mirror_step, confidence_set, q, loss)
                whole, inside = min(whole, both[0]), min(inside, both[1])
            found.append((inside / own, whole / own))
            print(
                f"{family:10} {name:12} {1e3 * own:8.3f}  {step.iterations:10d}  {step.gap:.1e} {1e3 * inside:13.2f}"
                f" {inside / own:11.1f} {whole / own:20.0f}",
                flush=True,
            )
        first = instances[0]
        own = min(timed(*first[1:], 1.0)[0] for _ in range(50))
        plain = oracle_time(reference.mirror_step_pair_by_pair, *first[1:])[0]
        own = min(own, *(timed(*first[1:], 1.0)[0] for _ in range(50)))
        middle = np.median(found, axis=0)
        ratios |= {
            f"{family} x Clarabel": float(middle[0]),
            f"{family} x CVXPY, vectorised": float(middle[1]),
            f"{family} x CVXPY, by pairs": plain / own,
        }
        print(
            f"{family:10} middle: x Clarabel {middle[0]:.1f}, x CVXPY, vectorised {middle[1]:.0f}; "
            f"random: x CVXPY, by pairs {plain / own:.0f}",
            flush=True,
        )
    return ratios


def large(width: int = 100) -> dict[str, float]:
    """Time and peak memory of one large step; then Clarabel on the same, after the peak was read."""
    families, q, loss = problem((1, *[width] * 9, 1), 5, 5)
    mirror_descent_step(problem()[0]["ellipsoid"], *problem()[1:], 1.0)  # compile
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds, step = best_time(families["ellipsoid"], q, loss, 3)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"large ellipsoid, width {width}, A = 5, d = 5, H = 10: {seconds:.3f} s, {step.iterations} iterations, "
        f"gap {step.gap:.1e}, {step.status}; peak memory {peak / 1024:.0f} MB, of it new {(peak - before) / 1024:.0f}"
    )
    wall, begin = time.perf_counter(), time.process_time()
    try:
        oracle = reference.mirror_step(families["ellipsoid"], q, loss, 1.0, settings={"time_limit": 240.0})
    except Exception as error:
        print(f"  Clarabel gave up: {type(error).__name__}: {error}")
        return {}
    spent = oracle.solve_time * (time.process_time() - begin) / (time.perf_counter() - wall)
    print(f"  Clarabel: {oracle.status}, {spent:.1f} s, x {spent / seconds:.0f}")
    return {"large ellipsoid x Clarabel": spent / seconds}


def losses(rng: np.random.Generator, q: Tables) -> Tables:
    """A loss on about two pairs of each layer, as importance weighting makes it."""
    return [np.where(rng.random(x.shape) < 2 / x.size, 5 * rng.random(x.shape), 0) for x in q]


def bare_loop(confidence_set: ConfidenceSet, q: Tables, count: int) -> list[Step]:
    """Steps of mirror descent on one set, from q, along random losses."""
    rng = np.random.default_rng(0)
    log_q, warm = [np.log(layer) for layer in q], None
    steps = []
    for _ in range(count):
        steps.append(Step(confidence_set, log_q, [0.1 * layer for layer in losses(rng, q)]))
        found = mirror_descent_step(confidence_set, None, steps[-1].loss, 1.0, log_q=log_q, warm=warm)
        log_q, warm = found.log_q, found.warm
    return steps


def cold_and_warm(steps: list[Step]) -> tuple[np.ndarray, np.ndarray]:
    """Mean seconds and iterations of a step: cold, cold on a set that remembers its presolve, and warm; in turn and
    three times.

    A warm step has what the loop has: its presolve too, if the set is that of the step before.
    """
    seconds, iterations = np.zeros(3), np.zeros(3)
    warm = None
    for i, (confidence_set, log_q, loss) in enumerate(steps):
        same = i > 0 and steps[i - 1].confidence_set is confidence_set
        kinds = [{}, {"remember": True}, {"remember": same, "warm": warm}]
        trials = [[timed(confidence_set, None, loss, 1.0, log_q=log_q, **kind) for kind in kinds] for _ in range(3)]
        if i > 0:
            seconds += np.min([[spent for spent, _ in trial] for trial in trials], axis=0)
            iterations += [step.iterations for _, step in trials[0]]
        warm = trials[0][2][1].warm
    return seconds / (len(steps) - 1), iterations / (len(steps) - 1)


def loop(count: int = 301) -> dict[str, float]:
    """The steps of a bare loop on one set, and those of a learner, whose set changes, each solved cold and warm."""
    families, q, _ = problem()
    ratios = {}
    for name in FAMILIES[:2]:
        loops = {"warm": bare_loop(families[name], q, count), "warm in a learner": steps_of_run(name, count)}
        for kind, steps in loops.items():
            seconds, iterations = cold_and_warm(steps)
            cold, remembered, warm = 1e3 * seconds
            ratios[f"{name} {kind}"] = cold / warm
            line = (
                f"{name:10} {kind:18}  cold {iterations[0]:5.2f} iterations, {cold:.3f} ms;  "
                f"warm {iterations[2]:5.2f}, {warm:.3f} ms;  {cold / warm:.2f} times faster"
            )
            if kind == "warm":
                # One set: a warm step finds its presolve done.  So may a cold one.
                ratios[f"{name} warm, both presolved"] = remembered / warm
                line += f";  cold but presolved {remembered:.3f} ms, {remembered / warm:.2f} times"
            print(line, flush=True)
    return ratios


def scaling(rounds: int = 20) -> dict[str, float]:
    """Microseconds per iteration, presolve included, as sizes double; all sizes in turn, the least of all rounds."""
    base = {"width": 10, "horizon": 5, "n_actions": 4}
    changes = {"base": {}, "2 A": {"n_actions": 8}, "2 width": {"width": 20}, "2 H": {"horizon": 10}}
    changes["4 H"] = {"horizon": 20}
    instances = {}
    for change, sizes in changes.items():
        shape = base | sizes
        instances[change] = problem((1, *[shape["width"]] * (shape["horizon"] - 1), 1), shape["n_actions"])
    each = dict.fromkeys([(name, change) for name in FAMILIES for change in changes], np.inf)
    for _ in range(rounds):
        for change, (families, q, loss) in instances.items():
            for name in FAMILIES:
                seconds, step = best_time(families[name], q, loss, 10)
                each[name, change] = min(each[name, change], seconds / max(step.iterations, 1))
    ratios = {}
    print("family     us/iteration   " + "   ".join(f"{change} (at most {limit})" for change, limit in LIMITS.items()))
    for name in FAMILIES:
        found = {change: each[name, change] / each[name, "base"] for change in ("2 A", "2 width", "2 H")}
        found["4 H by 2 H"] = each[name, "4 H"] / each[name, "2 H"]
        ratios |= {f"{name} {change}": ratio for change, ratio in found.items()}
        print(f"{name:10} {1e6 * each[name, 'base']:12.1f}   " + "   ".join(f"{x:16.2f}" for x in found.values()))
    return ratios


_COMPILED = """
import sys
from advmdp import make_adversary, make_learner, make_world, run
world = make_world("random-mixture", layer_sizes=(1, 4, 4, 1), n_actions=2, dim=3)
run(world, make_learner(sys.argv[1], world, 5), make_adversary("stochastic", world, 5), 5, progress=False)
"""


def compile_time() -> dict[str, float]:
    """CPU seconds of a first run of five episodes of a learner, less those of a second run."""
    found = {}
    for name in COMPILE_LIMITS:
        with tempfile.TemporaryDirectory() as cache:
            command, environment, spent = [sys.executable, "-c", _COMPILED], os.environ | {"NUMBA_CACHE_DIR": cache}, []
            for _ in range(2):
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run([*command, name], env=environment, check=True, stderr=subprocess.DEVNULL)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        print(f"compiling what {name} needs: {spent[0] - spent[1]:.1f} s of CPU (a run without: {spent[1]:.1f} s)")
        found[name] = spent[0] - spent[1]
    return found


def endure(steps: int = 10_000, only: int | None = None) -> None:
    """Bare warm loops, and the same at tolerance 1e-10 beside them (1e-9 for a step that misses it): failures, and how
    far log q is from there at most."""
    families, q, _ = problem()
    first = families["known"].kernels
    cases = [(name, "pairs") for name in ("ellipsoid", "simplex", "box", "known")] + [
        (name, "triples") for name in ("l1", "box")
    ]
    print("family     entropy  steps  failures  failures at 1e-10  largest drift of log q  ms/step  outcomes")
    for name, entropy in cases if only is None else cases[only : only + 1]:
        confidence_set = families[name]
        rng = np.random.default_rng(1)
        failures = [0, 0]
        states: list[tuple[Tables, Tables, dict | None]] = [([np.log(x) for x in q], first, None)] * 2
        outcomes = Counter[str]()
        drift, spent = 0.0, 0.0
        for _ in range(steps):
            loss = losses(rng, q)
            for i, tolerance in enumerate((1e-8, 1e-10)):
                log_q, kernels, warm = states[i]
                begin = time.process_time()
                try:
                    step = mirror_descent_step(
                        confidence_set, None, loss, 0.1, log_q=log_q, entropy=entropy, kernels=kernels, warm=warm,
                        tolerance=tolerance,
                    )  # fmt: skip
                except SolverError:
                    failures[i] += 1
                    if i == 0:
                        continue
                    step = mirror_descent_step(
                        confidence_set, None, loss, 0.1, log_q=log_q, entropy=entropy, kernels=kernels, warm=warm,
                        tolerance=1e-9,
                    )  # fmt: skip
                if i == 0:
                    spent += time.process_time() - begin
                    outcomes[step.status] += 1
                states[i] = step.log_q, step.kernels, step.warm
            drift = max(drift, *(float(np.abs(x - y).max()) for x, y in zip(states[0][0], states[1][0], strict=True)))
        print(
            f"{name:10} {entropy:8} {steps:5d} {failures[0]:9d} {failures[1]:18d} {drift:23.1e} "
            f"{1e3 * spent / steps:8.3f}  {dict(outcomes)}",
            flush=True,
        )


def main() -> None:
    ratios = speed() | loop() | scaling() | compile_time() | large()
    for name, goal in GOALS.items():
        if name in ratios:
            print(f"{name}: {ratios[name]:.2f}, goal {goal:g} {'reached' if ratios[name] >= goal else 'MISSED'}")
    limits = {f"{name} {change}": limit for name in FAMILIES for change, limit in LIMITS.items()}
    for name, limit in (limits | COMPILE_LIMITS).items():
        print(f"{name}: {ratios[name]:.2f}, at most {limit:g} {'kept' if ratios[name] <= limit else 'MISSED'}")
    for name, least in REQUIRED.items():
        if name in ratios:
            assert ratios[name] >= least, f"{name} is {ratios[name]:.1f}, and must be at least {least:g}"


if __name__ == "__main__":
    command, *rest = sys.argv[1:] or ["main"]
    commands = {
        "main": main, "speed": speed, "loop": loop, "large": large, "scaling": scaling, "compile": compile_time,
        "endure": endure,
    }  # fmt: skip
    commands[command](*map(int, rest))
