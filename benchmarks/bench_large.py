"""Worlds of 10^3 to 10^6 states: what an episode costs, in planning passes over the same world.

    python -m benchmarks.bench_large              # everything but the largest world
    python -m benchmarks.bench_large learners     # an episode of each learner at 10^5 states, and its memory
    python -m benchmarks.bench_large growth       # the same work at 10^3, 10^4, 10^5 states, per non-zero
    python -m benchmarks.bench_large planning     # planning against scipy.sparse, and two threads against one
    python -m benchmarks.bench_large tabular      # updates of learners that count transitions, at 932 states
    python -m benchmarks.bench_large looser       # what u by one forward pass costs in regret, on the default worlds

The world is a map of n x n cells over 60 steps with 4 moves and 3 noise models, n = 40 for 10^5 states.  A planning
pass is ``occupancy.best_policy`` without its checks: one backward pass over the kernel.  Times are processor time,
medians of an episode and a pass that take turns; both sides of a ratio are measured in one process.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise, product

import numpy as np
import scipy.sparse

import advmdp
from advmdp import make_adversary, make_learner, make_world, occupancy, play
from advmdp.layered import LayeredMDP, LinearMixtureMDP, SparseRows

STEPS = 60
#: Cells on a side that give about 10^3, 10^4, 10^5 and 10^6 states.
SIDES = {1_000: 4, 10_000: 13, 100_000: 40, 1_000_000: 129}
#: Learners and their options; an episode may take so many planning passes (None: no limit was set).
CONDITIONAL = {"entropy": "conditional", "shared": True}
LEARNERS: dict[str, tuple[str, dict[str, object], float | None]] = {
    "planner": ("planner", {}, None),
    "portfolio": ("portfolio", {}, 12.0 + 2.0 * 7.0),
    "conditional, u by one pass": ("vlsuob-reps-tight", {**CONDITIONAL, "bounds": "forward"}, 12.0),
    "conditional, exact u": ("vlsuob-reps-tight", CONDITIONAL, 12.0 + STEPS / 2),
    "conditional, weights per layer": ("vlsuob-reps-tight", {"entropy": "conditional", "bounds": "forward"}, None),
    "oppo": ("oppo", {}, None),
    "pomd": ("pomd", {}, None),
}


def city(side: int, steps: int = STEPS) -> LayeredMDP:
    """A map of side x side cells, a start drawn anywhere, and in every step a move that may turn left or right."""
    row, column = np.divmod(np.arange(side * side), side)
    moves = np.array([(0, -1), (1, 0), (0, 1), (-1, 0)])
    anywhere = np.full((1, 4, side * side), 1.0 / side**2)
    bases = []
    for turn in (0, 1, -1):
        down, right = moves[(np.arange(4) + turn) % 4].T
        target = np.clip(row[:, None] + down, 0, side - 1) * side + np.clip(column[:, None] + right, 0, side - 1)
        shape = (target.size, side * side)
        move = scipy.sparse.csr_array((np.ones(target.size), target.ravel(), np.arange(target.size + 1)), shape=shape)
        bases.append([anywhere, *[move] * (steps - 2), np.ones((side * side, 4, 1))])
    return LinearMixtureMDP.from_kernels(bases, [0.6, 0.25, 0.15])


def least(call: Callable[[], object], rounds: int = 7) -> float:
    """Seconds of processor time."""
    call()
    times = []
    for _ in range(rounds):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def planning_pass(world: LayeredMDP, rounds: int = 9) -> float:
    """Seconds of one backward pass."""
    layers, policy = world.layers, np.empty(world.layers.n_pairs)
    losses = np.random.default_rng(0).random(layers.n_pairs)
    return least(lambda: occupancy.greedy(layers, world.rows, losses, policy), rounds)


def episodes(
    world: LayeredMDP, name: str, options: dict[str, object], count: int, losses_are: str = "stochastic"
) -> np.ndarray:
    """Seconds of processor time of each update, and of a planning pass after it: in turns, on a machine with others."""
    adversary = make_adversary(losses_are, world, count)
    learner, rng, times = make_learner(name, world.model, 1000, **options), np.random.default_rng(0), []
    layers, policy, table = world.layers, np.empty(world.layers.n_pairs), adversary.flat_losses(0)
    for k in range(count):
        losses = world.layers.split(adversary.flat_losses(k))
        episode = play(world, learner.policy, losses, rng, index=k)
        start = time.process_time()
        learner.update(episode)
        middle = time.process_time()
        occupancy.greedy(layers, world.rows, table, policy)
        times.append((middle - start, time.process_time() - middle))
    return np.array(times)


def one_learner(title: str, side: int, count: int = 18) -> dict[str, float]:
    """In a process of its own: passes per episode (median of the last ones), and the peak of memory in GiB."""
    name, options, _ = LEARNERS[title]
    episodes(city(20, 4), name, options, 3)  # compile first
    start = time.process_time()
    world = city(side)
    built = time.process_time() - start
    update, unit = np.median(episodes(world, name, options, count)[count // 3 :], axis=0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"passes": update / unit, "GiB": peak, "build": built / unit, "pass": unit}


def in_a_process(title: str, side: int) -> dict[str, float]:
    code = f"import json, benchmarks.bench_large as b; print(json.dumps(b.one_learner({title!r}, {side})))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(found.stdout.splitlines()[-1])
    return result


def learners(side: int = SIDES[100_000]) -> None:
    """The table of docs/scaling.md."""
    world = city(side)
    sparse = [table for table in world.kernels if isinstance(table, SparseRows)]
    print(f"{world.n_states} states, {world.layers.n_pairs} pairs, {sum(t.nexts.size for t in sparse)} non-zeros")
    for title, (_, _, limit) in LEARNERS.items():
        found = in_a_process(title, side)
        verdict = "" if limit is None else "  ok" if found["passes"] <= limit else f"  ABOVE {limit:.0f}"
        print(
            f"  {title:<32} {found['passes']:6.1f} planning passes of {1e3 * found['pass']:.2f} ms{verdict}, peak "
            f"{found['GiB']:.2f} GiB, world built in {found['build']:.1f} passes",
            flush=True,
        )


def growth() -> None:
    """Nanoseconds per non-zero of the whole world: proportional growth is a constant."""
    chosen = ("planner", "portfolio", "conditional, u by one pass")
    print("nanoseconds per non-zero of all layers:", "planning", *chosen, sep="  ")
    for states in (1_000, 10_000, 100_000):
        world = city(SIDES[states])
        entries = sum(np.count_nonzero(t.values if isinstance(t, SparseRows) else t) for t in world.kernels)
        row = [planning_pass(world, 25)]
        for title in chosen:
            name, options, _ = LEARNERS[title]
            row.append(float(np.median(episodes(world, name, options, 24)[8:, 0])))
        print(f"  {world.n_states:>7} states", *(f"{1e9 * seconds / entries:8.1f}" for seconds in row), flush=True)


def planning() -> None:
    """Against one product of scipy.sparse per layer, and threads."""
    for states in (100_000, 1_000_000):
        world = city(SIDES[states])
        layers = world.layers
        losses = np.random.default_rng(0).random(layers.n_pairs)
        matrices = {id(t): t.tocsr() for t in world.kernels if isinstance(t, SparseRows)}

        def by_products(world=world, layers=layers, losses=losses, matrices=matrices) -> float:
            value = np.zeros(1)
            for h in range(layers.horizon - 1, -1, -1):
                table, here = world.kernels[h], slice(*layers.pair_offsets[h : h + 2])
                matrix = matrices.get(id(table))
                ahead = table.reshape(-1, value.size) @ value if matrix is None else matrix @ value
                totals = (losses[here] + ahead).reshape(-1, layers.n_actions)
                policy = np.zeros(totals.shape)  # what best_policy returns, too
                policy[np.arange(len(totals)), totals.argmin(axis=1)] = 1.0
                value = totals.min(axis=1)
            return float(value[0])

        policy = np.empty(layers.n_pairs)
        assert abs(by_products() - occupancy.greedy(layers, world.rows, losses, policy)) < 1e-9
        unit, rival = planning_pass(world), least(by_products)
        wall: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(12):  # in turns: the speed of these machines changes from second to second
            for threads, times in wall.items():
                advmdp.use_threads(threads)
                occupancy.greedy(layers, world.rows, losses, policy)  # starts the threads
                for _ in range(10):
                    start = time.perf_counter()
                    occupancy.greedy(layers, world.rows, losses, policy)
                    times.append(time.perf_counter() - start)
        advmdp.use_threads(1)
        print(
            f"{world.n_states} states: a planning pass takes {1e3 * unit:.2f} ms, scipy.sparse x {rival / unit:.2f} "
            "(1.5 asked); two threads x "
            f"{np.median(wall[1]) / np.median(wall[2]):.2f} of one, on the clock (1.5 asked for the largest)",
            flush=True,
        )


def random_world(sizes: tuple[int, ...], support: int, n_actions: int = 5) -> LayeredMDP:
    """Dense tables whose rows have so many possible next states."""
    rng, kernels = np.random.default_rng(0), []
    for n, m in pairwise(sizes):
        drawn = rng.exponential(size=(n, n_actions, m))
        drawn *= drawn >= np.sort(drawn)[..., -min(support, m), None]
        kernels.append(drawn / drawn.sum(axis=2, keepdims=True))
    return LayeredMDP(kernels)


def tabular(count: int = 60) -> None:
    """Updates from the first episode on, when sets are wide and change every time."""
    deep, wide = (1, *[93] * 10, 1), (1, 310, 310, 310, 1)
    worlds = {"dense": random_world(deep, 93), "sparse": random_world(deep, 5), "wide": random_world(wide, 310)}
    print(f"planning passes per update of the first {count} episodes at 932 states, median and worst (100 asked)")
    for name, (title, world), losses, multiple in product(
        ("uob-reps", "uc-o-reps", "bandit-uc-o-reps"), worlds.items(), ("stochastic", "switching"), (1.0, 10.0)
    ):
        options = {"eta": multiple * make_learner(name, world.model, 1000).step_size}
        episodes(world, name, options, 2)  # compile first
        updates, units = episodes(world, name, options, count, losses).T
        passes = updates / np.median(units)
        print(f"  {name:<18} {title:<7} {losses:<10} x {multiple:<4g} {np.median(passes):6.1f} {passes.max():6.1f}")


def looser(count: int = 2000, seeds: int = 3) -> None:
    """Regret of the conditional learner with u exact at the visited states, and with that of one forward pass."""
    print(f"regret per episode after {count}, {seeds} seeds: exact, forward")
    for name in ("grid", "queue", "inventory", "frozen-lake", "river-swim", "routing"):
        world, row = make_world(name), []
        for bounds in ("exact", "forward"):
            total = 0.0
            for seed in range(seeds):
                learner = make_learner(
                    "vlsuob-reps-tight", world, count, seed=seed, entropy="conditional", bounds=bounds
                )
                losses = make_adversary("stochastic", world, count, seed=seed)
                total += advmdp.run(world, learner, losses, count, seed=seed, progress=False).regret[-1]
            row.append(total / (seeds * count))
        print(f"  {name:<12} {row[0]:.3f}  {row[1]:.3f}", flush=True)


def main() -> None:
    parts = {"learners": learners, "growth": growth, "planning": planning, "tabular": tabular, "looser": looser}
    for part in sys.argv[1:] or ("learners", "growth", "planning"):
        parts[part]()


if __name__ == "__main__":
    main()
