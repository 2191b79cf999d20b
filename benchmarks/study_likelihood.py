"""Regret of `vlsuob-reps-tight` with the joint radius and with likelihood-ratio sets, weights apart and shared.

    python -m benchmarks.study_likelihood [factor]

Conditional entropy, step size (times a factor) and exploration of its theorem, K = 2,000, three seeds; regret against
the best fixed policy, mean and half the range over seeds.
"""

from __future__ import annotations

import sys

import numpy as np

from advmdp import make_adversary, make_learner, make_world, run

WORLDS, LOSSES = ("grid", "queue", "inventory"), ("natural-losses", "stochastic")
EPISODES, SEEDS = 2000, 3
FORMS = [(radius, shared) for shared in (False, True) for radius in ("joint", "likelihood")]


def regret(name: str, losses: str, radius: str, shared: bool, seed: int, factor: float) -> float:
    world = make_world(name)
    options = {"entropy": "conditional", "radius": radius, "shared": shared}
    learner = make_learner("vlsuob-reps-tight", world.model, EPISODES, seed=seed, **options)
    if factor != 1.0:
        options["eta"] = factor * learner.step_size
        learner = make_learner("vlsuob-reps-tight", world.model, EPISODES, seed=seed, **options)
    adversary = make_adversary(losses, world, EPISODES, seed=seed)
    frame = run(world, learner, adversary, EPISODES, seed=seed, progress=False).frame
    return float(frame["regret"].iloc[-1])


def main(factor: float = 1.0) -> None:
    titles = [f"{radius}{', shared' if shared else ''}" for radius, shared in FORMS]
    print(f"| world, losses | {' | '.join(titles)} |\n|---|{'--:|' * len(FORMS)}")
    for name in WORLDS:
        for losses in LOSSES:
            cells = []
            for form in FORMS:
                found = [regret(name, losses, *form, seed, factor) for seed in range(SEEDS)]
                cells.append(f"{np.mean(found):.0f} ± {0.5 * np.ptp(found):.0f}")
            print(f"| {name}, {losses} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(*map(float, sys.argv[1:2]))
