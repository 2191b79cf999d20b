"""Times the pair-entropy mirror step against Clarabel and CVXPY, and counts outcomes on harsh instances.

    python benchmarks/bench_mirror.py speed      # one cold step per family, best of several, with the oracle
    python benchmarks/bench_mirror.py loop       # bare mirror-descent loops, cold and warm
    python benchmarks/bench_mirror.py scaling    # cost per iteration against A, width and H
    python benchmarks/bench_mirror.py harsh 250  # outcomes by class over 250 harsh instances per family

Steps include the presolve: the reduced form that a set remembers is dropped before each timing.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from advmdp.confidence import BoxSet, ConfidenceSet, EllipsoidSet, KnownKernels
from advmdp.errors import InvalidMDPError
from advmdp.solvers import MirrorStep, SolverError, mirror_descent_step

Tables = list[np.ndarray]


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
    families: dict[str, ConfidenceSet] = {
        "ellipsoid": EllipsoidSet(features, centres, grams, radius),
        "box": BoxSet(
            [kernel - width for kernel, width in zip(kernels, widths, strict=True)],
            [kernel + width for kernel, width in zip(kernels, widths, strict=True)],
        ),
        "known": KnownKernels(kernels),
    }
    q = [rng.dirichlet(np.ones(n * n_actions)).reshape(n, n_actions) for n in sizes[:-1]]
    loss = [rng.random((n, n_actions)) for n in sizes[:-1]]
    return families, q, loss


def forget(confidence_set: ConfidenceSet) -> None:
    if isinstance(confidence_set, EllipsoidSet):
        confidence_set._reduced = None


def best_time(confidence_set: ConfidenceSet, q: Tables, loss: Tables, repeats: int = 50) -> tuple[float, MirrorStep]:
    step = mirror_descent_step(confidence_set, q, loss, 1.0)
    best = np.inf
    for _ in range(repeats):
        forget(confidence_set)
        begin = time.perf_counter()
        step = mirror_descent_step(confidence_set, q, loss, 1.0)
        best = min(best, time.perf_counter() - begin)
    return best, step


def speed() -> None:
    from advmdp.solvers import reference

    families, q, loss = problem()
    print("family     ms/step  iterations  gap       x Clarabel  x CVXPY")
    for name, confidence_set in families.items():
        seconds, step = best_time(confidence_set, q, loss)
        begin = time.perf_counter()
        oracle = reference.mirror_step(confidence_set, q, loss, 1.0, settings={})
        whole = time.perf_counter() - begin
        print(
            f"{name:10} {1e3 * seconds:7.3f}  {step.iterations:10d}  {step.gap:.1e}"
            f"  {oracle.solve_time / seconds:10.0f}  {whole / seconds:7.0f}"
        )


def loop(steps: int = 1000) -> None:
    families, q, _ = problem()
    for name, confidence_set in families.items():
        for mode in ("cold", "warm"):
            rng = np.random.default_rng(1)
            log_q, warm, iterations = [np.log(layer) for layer in q], None, 0
            outcomes: Counter[str] = Counter()
            begin = time.perf_counter()
            for _ in range(steps):
                loss = [np.where(rng.random(x.shape) < 2 / x.size, 5 * rng.random(x.shape), 0) for x in q]
                forget(confidence_set)
                step = mirror_descent_step(confidence_set, None, loss, 0.1, log_q=log_q, warm=warm)
                log_q, iterations = step.log_q, iterations + step.iterations
                warm = step.warm if mode == "warm" else None
                outcomes[step.status] += 1
            each = 1e3 * (time.perf_counter() - begin) / steps
            print(f"{name:10} {mode}: {iterations / steps:5.1f} iterations, {each:.3f} ms", dict(outcomes))


def scaling() -> None:
    base = {"width": 10, "horizon": 5, "n_actions": 4}
    print("family      change       microseconds per iteration")
    for change in ({}, {"n_actions": 8}, {"width": 20}, {"horizon": 10}):
        shape = base | change
        sizes = (1, *[shape["width"]] * (shape["horizon"] - 1), 1)
        families, q, loss = problem(sizes, shape["n_actions"])
        for name, confidence_set in families.items():
            seconds, step = best_time(confidence_set, q, loss, 20)
            print(f"{name:10}  {change or 'base'!s:18} {1e6 * seconds / max(step.iterations, 1):8.1f}")


def harsh(count: int = 250) -> None:
    from tests.solvers import instances

    for family in ("ellipsoid", "simplex", "box", "known"):
        outcomes: Counter[str] = Counter()
        for seed in range(count):
            instance = instances.harsh(family, seed)
            try:
                step = mirror_descent_step(
                    instance.confidence_set, None, instance.loss, instance.step_size,
                    log_q=instance.log_q,
                )  # fmt: skip
                outcomes["WRONG (set is empty)" if instance.empty else step.status] += 1
            except InvalidMDPError:
                outcomes["empty" if instance.empty else "WRONG (set is not empty)"] += 1
            except SolverError as error:
                outcomes["unsolved"] += 1
                print(f"  unsolved: {instance.name} gap {error.gap:.1e} residual {error.residual:.1e}")
        print(family, dict(outcomes), flush=True)


if __name__ == "__main__":
    command, *rest = sys.argv[1:] or ["speed"]
    {"speed": speed, "loop": loop, "scaling": scaling, "harsh": harsh}[command](*map(int, rest))
