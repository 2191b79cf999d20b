"""Passes over a world of about 10^5 states on its possible transitions, in units of one planning pass.

    python -m benchmarks.bench_sparse_passes

A map of 40 x 40 cells over 60 steps: four moves, three noise models, one table of kernels and one of features for all
layers.  The planning pass is greedy dynamic programming over the sparse kernels.  CPU time, medians of rounds that take
turns; a figure above its goal ends the script with status 1.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array

from advmdp._compiled import kernel
from advmdp.confidence import ConfidenceSet, EllipsoidSet, KnownKernels
from advmdp.layered.rows import Rows, SparseRows, layer_means
from advmdp.solvers import conditional_step
from advmdp.solvers.occupancy_bounds import occupancy_intervals, visited_upper_occupancy

SIDE = 40
STEPS = 60
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
ROUNDS = 15
GOALS = {"conditional step": 6.0, "forward intervals": 4.0, "visited states": 30.0, "known kernels": 3.0}


def noise_models() -> list[np.ndarray]:
    """Dense (cells * moves, cells) of three models: slipping to the sides, staying, and wind from the north."""
    cells = np.arange(SIDE * SIDE)
    row, column = cells // SIDE, cells % SIDE
    led = [np.clip(row + y, 0, SIDE - 1) * SIDE + np.clip(column + x, 0, SIDE - 1) for y, x in MOVES]
    models = []
    for slip, stay, wind in ((0.3, 0.05, 0.05), (0.05, 0.4, 0.05), (0.05, 0.05, 0.3)):
        table = np.zeros((len(cells), len(MOVES), len(cells)))
        for a in range(len(MOVES)):
            sides = (2, 3) if a < 2 else (0, 1)
            table[cells, a, led[a]] += 1.0 - slip - stay - wind
            table[cells, a, cells] += stay
            table[cells, a, led[1]] += wind
            for side in sides:
                table[cells, a, led[side]] += slip / 2.0
        models.append(table.reshape(-1, len(cells)))
    return models


def sparse_features(models: list[np.ndarray]) -> SparseRows:
    """Of dense models (S_h A, S_{h+1}), on the union of their supports."""
    support = SparseRows.of_matrix(csr_array(sum(models)), len(MOVES))
    values = np.stack([model[support.pairs, support.nexts] for model in models], axis=1)
    return support.with_values(values)


def world() -> tuple[list[SparseRows], list[SparseRows]]:
    """Kernels and features of all layers."""
    middle = noise_models()
    start = SIDE * (SIDE // 2) + SIDE // 2
    first = [model[start * len(MOVES) : (start + 1) * len(MOVES)] for model in middle]
    last = [np.ones((len(middle[0]), 1))] * 3
    features = [sparse_features(models) for models in (first, middle, last)]
    weights = np.array([0.6, 0.3, 0.1])
    kernels = [table.with_values(table.values @ weights) for table in features]
    return tuple([tables[0], *[tables[1]] * (STEPS - 1), tables[2]] for tables in (kernels, features))  # type: ignore[return-value]


def learnt(features: list[SparseRows], visits: float) -> EllipsoidSet:
    """The set after so many visits to each layer."""
    gram = np.eye(3) + visits * (0.15 * np.eye(3) + 0.1)
    centre = np.array([0.57, 0.32, 0.11])
    return EllipsoidSet(features, [centre] * len(features), [gram] * len(features), 2.0, simplex=True)


@kernel
def plan(
    rows: Rows, sizes: np.ndarray, n_actions: int, losses: np.ndarray, value: np.ndarray, means: np.ndarray
) -> None:
    """Greedy backward pass; ``value`` of all states, the terminal one last; ``means`` of the pairs of a layer."""
    state = value.size - 1
    block = losses.size
    value[state] = 0.0
    for h in range(sizes.size - 2, -1, -1):
        following = value[state : state + sizes[h + 1]]
        state -= sizes[h]
        block -= sizes[h] * n_actions
        layer_means(rows, h, 0, sizes[h] * n_actions, sizes[h + 1], following, means)
        for s in range(sizes[h]):
            best = np.inf
            for a in range(n_actions):
                pair = s * n_actions + a
                best = min(best, losses[block + pair] + means[pair])
            value[state + s] = best


def cpu_times(contestants: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median CPU seconds of each, in turns."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for call in contestants.values():
        call()
    for _ in range(ROUNDS):
        for name, call in contestants.items():
            start = time.process_time()
            call()
            times[name].append(time.process_time() - start)
    return {name: float(np.median(found)) for name, found in times.items()}


def main() -> None:
    kernels, features = world()
    known = KnownKernels(kernels)
    sizes, n_actions = known.size_array, known.n_actions
    pairs = n_actions * int(sizes[:-1].sum())
    rng = np.random.default_rng(0)
    losses, value = rng.random(pairs), np.empty(int(sizes.sum()))
    means = np.empty(n_actions * int(sizes.max()))
    policy = rng.dirichlet(np.ones(n_actions), pairs // n_actions).ravel()
    log_policy = np.log(policy)
    states = visited(kernels, policy, rng)
    entries = sum(len(table.values) for table in kernels)
    print(f"{len(value):,} states, {entries:,} transitions, {int(known.flat_reachable.sum()):,} states reachable")
    missed = False
    for visits in (10.0, 1000.0):
        mixture: ConfidenceSet = learnt(features, visits)
        mixture.smallest_radius_multiple()
        calls: dict[str, Callable[[], object]] = {
            "plan": lambda: plan(known.rows, sizes, n_actions, losses, value, means),
            "conditional step": lambda m=mixture: conditional_step(m, log_policy, losses),  # type: ignore[misc]
            "forward intervals": lambda m=mixture: occupancy_intervals(m, policy, exact=False),  # type: ignore[misc]
            "visited states": lambda m=mixture: visited_upper_occupancy(m, policy, states),  # type: ignore[misc]
            "known kernels": lambda: conditional_step(known, log_policy, losses),
        }
        times = cpu_times(calls)
        print(f"\nafter {visits:,.0f} visits: a planning pass takes {1e3 * times['plan']:.2f} ms")
        for name, goal in GOALS.items():
            ratio = times[name] / times["plan"]
            missed = missed or ratio > goal
            print(f"{name:>18}: {1e3 * times[name]:8.2f} ms, {ratio:6.2f} passes (at most {goal:g})")
    sys.exit(1 if missed else 0)


def visited(kernels: list[SparseRows], policy: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The states of one episode, layer by layer."""
    states, block = [0], 0
    for table in kernels[:-1]:
        n, n_actions = table.shape[:2]
        share = policy[block : block + n * n_actions].reshape(n, n_actions)[states[-1]]
        row = table[states[-1], int(rng.choice(n_actions, p=share))]
        states.append(int(rng.choice(len(row), p=row / row.sum())))
        block += n * n_actions
    return np.array(states)


if __name__ == "__main__":
    main()
