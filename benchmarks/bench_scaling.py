"""How the cost of an episode grows with the number of states, actions, layers and simulators.

Processor time per episode of `vlsuob-reps-tight`, by part: the upper occupancy bound, the mirror step, and the rest of
`update` (regression, set, checks); and of one exact evaluation of a policy. One size is doubled at a time.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import advmdp
from advmdp.learners import reps

BASE = {"width": 16, "actions": 4, "layers": 6, "dim": 4}
WARM, EPISODES = 3, 10


@contextmanager
def timed(parts: dict[str, float]) -> Iterator[None]:
    """Measures what the learner spends in the two steps, where it calls them."""
    originals = {name: getattr(reps, name) for name in ("visited_upper_occupancy", "mirror_descent_step")}

    def measured(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            start = time.process_time()
            result = function(*arguments, **options)
            parts[name] += time.process_time() - start
            return result

        return call

    for name, function in originals.items():
        setattr(reps, name, measured(name, function))
    try:
        yield
    finally:
        for name, function in originals.items():
            setattr(reps, name, function)


def measure(width: int, actions: int, layers: int, dim: int) -> dict[str, float]:
    """Milliseconds of processor time per episode, by part, and iterations of the mirror step."""
    world = advmdp.make_world("random-mixture", layer_sizes=(1, *[width] * (layers - 1), 1), n_actions=actions, dim=dim)
    adversary = advmdp.make_adversary("stochastic", world, WARM + EPISODES)
    # Narrow sets, as after many episodes: with wide ones the step often has a closed form.
    learner = advmdp.make_learner("vlsuob-reps-tight", world.model, WARM + EPISODES, radius_scale=0.2)
    rng = np.random.default_rng(0)
    parts: dict[str, float] = defaultdict(float)
    total = evaluation = iterations = 0.0
    with timed(parts):
        for k in range(WARM + EPISODES):
            if k == WARM:
                parts.clear()
                total = evaluation = iterations = 0.0
            start = time.process_time()
            advmdp.occupancy.occupancy_measure(world, learner.policy)
            evaluation += time.process_time() - start
            episode = advmdp.play(world, learner.policy, adversary.losses(k), rng)
            start = time.process_time()
            learner.update(episode)
            total += time.process_time() - start
            iterations += learner.last_step.iterations
    upper, mirror = parts["visited_upper_occupancy"], parts["mirror_descent_step"]
    times = {"u": upper, "mirror step": mirror, "rest of update": total - upper - mirror, "evaluation": evaluation}
    row = {name: 1e3 * seconds / EPISODES for name, seconds in times.items()}
    return {**row, "iterations": iterations / EPISODES}


def main() -> None:
    """Print the table."""
    print(f"| sizes | u | mirror step | rest of update | evaluation | iterations |  (ms per episode, base {BASE})")
    print("|---|---:|---:|---:|---:|---:|")
    variants = [("base", BASE)]
    for name in BASE:
        for factor in (2, 4):
            variants.append((f"{factor} x {name}", {**BASE, name: factor * BASE[name]}))
    for label, sizes in variants:
        row = measure(**sizes)
        print(f"| {label} | " + " | ".join(f"{value:.2f}" for value in row.values()) + " |", flush=True)


if __name__ == "__main__":
    main()
