"""Regret per episode of UC-O-REPS and its bandit version against K: the figures of docs/learners/counting.md.

Run with ``python -m benchmarks.study_uc_o_reps`` (about two minutes of one core).  Seeds pair worlds, losses and luck.
"""

from __future__ import annotations

import numpy as np

from advmdp import make_adversary, make_learner, make_world, run
from advmdp.experiments.statistics import mean_and_interval

EPISODES = (250, 1000, 4000)
SEEDS = 8
LEARNERS = {
    "`uniform`": ("uniform", {}),
    "`o-reps`": ("o-reps", {}),
    "`uc-o-reps`": ("uc-o-reps", {}),
    "`bandit-uc-o-reps`": ("bandit-uc-o-reps", {}),
    "shift 0.1": ("bandit-uc-o-reps", {"shift": 0.1}),
    'shift "theory"': ("bandit-uc-o-reps", {"shift": "theory"}),
    "`uob-reps`": ("uob-reps", {}),
}


def main() -> None:
    averages = np.empty((len(EPISODES), len(LEARNERS), SEEDS))
    floored = np.full_like(averages, np.nan)
    for seed in range(SEEDS):
        world = make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=3, dim=2, seed=seed)
        for i, episodes in enumerate(EPISODES):
            adversary = make_adversary("stochastic", world, episodes, seed=seed)
            for j, (name, options) in enumerate(LEARNERS.values()):
                learner = make_learner(name, world, episodes, seed=seed, **options)
                regret = run(world, learner, adversary, episodes, seed=seed, progress=False).regret[-1]
                averages[i, j, seed] = regret / episodes
                floored[i, j, seed] = getattr(learner, "floored", np.nan) / (episodes * world.horizon)
    print("| K |", " | ".join(LEARNERS), "|")
    print("|---:|" + "---:|" * len(LEARNERS))
    for episodes, row in zip(EPISODES, averages, strict=True):
        print(f"| {episodes} |", " | ".join(f"{cell.mean():.3f}" for cell in row), "|")
    falls = [mean_and_interval(last / first) for first, last in zip(averages[0], averages[-1], strict=True)]
    print(f"| {EPISODES[-1]} / {EPISODES[0]} |", " | ".join(f"{mean:.2f} ± {half:.2f}" for mean, half in falls), "|")
    print()
    for j, label in enumerate(LEARNERS):
        if not np.isnan(floored[0, j, 0]):
            shares = ", ".join(f"{100.0 * share:.2f}%" for share in floored[:, j].mean(axis=1))
            print(f"{label}: the floor acted on {shares} of the visited pairs at K = {', '.join(map(str, EPISODES))}")


if __name__ == "__main__":
    main()
