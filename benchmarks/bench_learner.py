"""One whole episode of a learner against its own mirror step, in the same run.

The rest of an episode is the simulation, the upper occupancy bounds, the regression, the presolve of the new set that
the step needs anyway, and Python.
"""

from __future__ import annotations

import time

import numpy as np

from advmdp import make_adversary, make_learner, make_world, run
from advmdp.experiments.runner import Run
from advmdp.learners import reps

EPISODES = 300
LIMIT = 2.5


class Stopwatch:
    """Wraps a function and sums the processor time that it takes."""

    def __init__(self, function):
        self.function, self.seconds = function, 0.0

    def __call__(self, *arguments, **options):
        start = time.process_time()
        result = self.function(*arguments, **options)
        self.seconds += time.process_time() - start
        return result


def measure(name: str, sizes: tuple[int, ...], n_actions: int, dim: int) -> tuple[float, float]:
    """Milliseconds of processor time per episode of the run, and of its mirror steps."""
    world = make_world("random-mixture", layer_sizes=sizes, n_actions=n_actions, dim=dim)
    adversary = make_adversary("stochastic", world, EPISODES)
    run(world, make_learner(name, world, EPISODES), adversary, 5, progress=False)  # compiles
    watch = Stopwatch(reps.mirror_descent_step)
    original, reps.mirror_descent_step = reps.mirror_descent_step, watch
    ongoing = Run(world, make_learner(name, world, EPISODES), adversary, EPISODES)
    start = time.process_time()
    try:
        ongoing.play()
    finally:
        reps.mirror_descent_step = original
    return (time.process_time() - start) / EPISODES * 1e3, watch.seconds / EPISODES * 1e3


def main() -> None:
    cases = [
        ("vlsuob-reps", (1, 10, 10, 10, 10, 1), 4, 4),
        ("vlsuob-reps-tight", (1, 10, 10, 10, 10, 1), 4, 4),
        ("lsuob-reps", (1, 10, 10, 10, 10, 1), 4, 4),
        ("uob-reps", (1, 10, 10, 10, 10, 1), 4, 4),
        ("vlsuob-reps", (1, 4, 4, 4, 1), 4, 2),
    ]
    print(f"{'learner':20} {'layers':24} {'episode, ms':>12} {'mirror step, ms':>16} {'ratio':>6}")
    for name, sizes, n_actions, dim in cases:
        repeats = [measure(name, sizes, n_actions, dim) for _ in range(3)]
        episode, step = repeats[int(np.argmin([e for e, _ in repeats]))]
        print(f"{name:20} {'-'.join(map(str, sizes)):24} {episode:12.3f} {step:16.3f} {episode / step:6.2f}")
        if name == "vlsuob-reps" and len(sizes) == 6:
            assert episode <= LIMIT * step, f"an episode costs {episode / step:.2f} times its mirror step"


if __name__ == "__main__":
    main()
