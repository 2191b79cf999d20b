"""Processor time of a whole episode, of this source tree and of another one, by turns.

    python -m benchmarks.bench_episode                      # this tree
    python -m benchmarks.bench_episode ../before/src        # against the package of another checkout

Each tree has a process of its own.  They take turns with short pieces of the same runs, the first of which compiles and
is not counted; the median time of the pieces is printed, and the median of the ratios of the two.  On a shared machine
only the ratio means much.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

PIECES = 15
# Learner, layers or grid, actions, simulators, adversary, episodes of a piece.
CASES = {
    "o-reps, 10 x 10 grid": ("o-reps", None, 2, 0, "switching", 300),
    "vlsuob-reps, 1-4-4-4-1": ("vlsuob-reps", (1, 4, 4, 4, 1), 4, 2, "stochastic", 100),
    "vlsuob-reps, 1-10-10-10-10-1": ("vlsuob-reps", (1, 10, 10, 10, 10, 1), 4, 4, "stochastic", 50),
    "lsuob-reps, 1-4-4-4-1": ("lsuob-reps", (1, 4, 4, 4, 1), 4, 2, "stochastic", 100),
    "uob-reps, 1-4-4-4-1": ("uob-reps", (1, 4, 4, 4, 1), 4, 2, "stochastic", 100),
    "uniform, 10 x 10 grid": ("uniform", None, 2, 0, "switching", 1000),
}


def serve() -> None:
    """Read names of cases, answer with the seconds per episode of the next piece of that run."""
    from advmdp import make_adversary, make_learner, make_world
    from advmdp.experiments.runner import Run

    runs = {}
    for line in sys.stdin:
        case = line.strip()
        name, sizes, n_actions, dim, losses, count = CASES[case]
        if case not in runs:
            if sizes is None:
                world = make_world("grid", height=10, width=10, noise={"slip": 0.1})
            else:
                world = make_world("random-mixture", layer_sizes=sizes, n_actions=n_actions, dim=dim)
            episodes = count * (PIECES + 1)
            adversary = make_adversary(losses, world, episodes)
            runs[case] = Run(world, make_learner(name, world, episodes), adversary, episodes)
        start = time.process_time()
        runs[case].play(count)
        print((time.process_time() - start) / count, flush=True)


def main() -> None:
    package = Path(__file__).parents[1] / "src"
    trees = {"this tree": package} | ({"the other": Path(sys.argv[1]).resolve()} if len(sys.argv) > 1 else {})
    command = [sys.executable, "-c", "from benchmarks.bench_episode import serve; serve()"]
    servers = {
        name: subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=package.parent,
            env={**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"},
        )
        for name, tree in trees.items()
    }
    print(f"{'microseconds per episode':30}" + "".join(f"{name:>12}" for name in (*trees, "ratio")))
    for case in CASES:
        times: dict[str, list[float]] = {name: [] for name in servers}
        for _ in range(PIECES + 1):
            for name, server in servers.items():
                assert server.stdin is not None
                assert server.stdout is not None
                server.stdin.write(case + "\n")
                server.stdin.flush()
                times[name].append(1e6 * float(server.stdout.readline()))
        pieces = np.array([found[1:] for found in times.values()])
        figures = [*np.median(pieces, axis=1), np.median(pieces[-1] / pieces[0])]
        print(f"{case:30}" + "".join(f"{figure:12.0f}" for figure in figures[:-1]) + f"{figures[-1]:12.2f}", flush=True)
    for server in servers.values():
        server.communicate()


if __name__ == "__main__":
    main()
